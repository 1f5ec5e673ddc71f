"""nano behind `uni_train serve`, in processes of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from uni_train.core.addresses import held_port


@contextmanager
def served(log: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Its address and its first process, once it is ready. log: what it says; its processes end with the context."""
    with held_port() as port, open(log, "wb") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "uni_train", "serve", "-m", "nano", "--port", str(port), *options],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            while b"ready" not in log.read_bytes():
                assert server.poll() is None, log.read_text()
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/v1", server
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()
