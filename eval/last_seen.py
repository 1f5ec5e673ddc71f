"""The identity that each server reported last, so that its stored results are found while it is down.

    evals/store/seen/<hash of what was asked whom>.json

A served checkpoint is known by what its server says (its content's hash). What is stored of it must be found, and an
evaluation have the same name, whether the server is up or not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uni_train.data_gen.reading_limits import read_json
from uni_train.eval.shards import disk_errors
from uni_train.files import atomic_write_json


class LastSeen:
    """Reported identities, below the store of evaluations."""

    def __init__(self, store: Path) -> None:
        self.folder = Path(store) / "seen"

    def keep(self, server: Mapping[str, Any], said: Mapping[str, Any]) -> None:
        """Store what the server reports; both JSON-able. Raises UserError: the folder cannot be written."""
        file = self._file(server)
        if self.of(server) != said:
            with disk_errors(file):
                self.folder.mkdir(parents=True, exist_ok=True)
                atomic_write_json(file, {"server": dict(server), "said": dict(said)})

    def of(self, server: Mapping[str, Any]) -> dict[str, Any] | None:
        """What it said last; None where it was never seen, or its file is damaged."""
        try:
            said = read_json(self._file(server))["said"]
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return said if isinstance(said, dict) else None

    def _file(self, server: Mapping[str, Any]) -> Path:
        plain = json.dumps(server, sort_keys=True, ensure_ascii=False)
        return self.folder / f"{hashlib.blake2b(plain.encode(), digest_size=10).hexdigest()}.json"
