"""Python programs in processes of their own, forked from one that has imported what most of them need.

A fresh interpreter takes four seconds to import torch and lightning, a fork a tenth. What is tested about the start
itself (imports, options of the interpreter) takes a fresh one: `subprocess.run([sys.executable, ...])`.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        *("lightning.pytorch", "hydra", "PIL.PngImagePlugin", "pyarrow.parquet", "statsmodels.stats.proportion"),
        *("uni_train.eval.report", "uni_train.recipes.flow_grpo.training", "uni_train.stages.evaluate"),
    ]
)


class Python:
    """`python ARGUMENTS` (-m MODULE ... or -c CODE ...) running in the background.

    env: all variables of the process (None: those of this one). cwd: its current folder (None: this one's).
    """

    def __init__(self, *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | str | None = None) -> None:
        self.arguments = arguments
        self._folder = tempfile.TemporaryDirectory()
        self._said = [str(Path(self._folder.name) / name) for name in ("stdout", "stderr")]
        given = (arguments, dict(os.environ if env is None else env), str(cwd or os.getcwd()), self._said)
        self.process = FORKS.Process(target=_program, args=given)
        self.process.start()

    def wait(self) -> CompletedProcess[str]:
        """How it ended, as `subprocess.run` says it."""
        self.process.join()
        texts = [Path(file).read_text(encoding="utf-8", errors="replace") for file in self._said]
        self._folder.cleanup()
        assert self.process.exitcode is not None
        return CompletedProcess(self.arguments, self.process.exitcode, *texts)


def python(
    *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | str | None = None
) -> CompletedProcess[str]:
    """Run `python ARGUMENTS` to its end."""
    return Python(*arguments, env=env, cwd=cwd).wait()


def wait_for_no_disk() -> None:
    """What tests write need not outlive the machine: forcing it to the disk takes milliseconds a file."""
    os.fsync = lambda descriptor: None


def keep_threads() -> None:
    """To be called first in a fork: torch makes its pool of threads anew when it is first asked for, and of two threads
    that ask at once one may find none ("Invalid thread pool!")."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(torch.get_num_threads())


def _program(arguments: Sequence[str], env: Mapping[str, str], cwd: str, files: Sequence[str]) -> None:
    keep_threads()
    wait_for_no_disk()
    for descriptor, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.path[:0] = [cwd, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
    try:
        _run(*arguments)
    finally:
        atexit._run_exitfuncs()  # as an interpreter does and multiprocessing does not


def _run(option: str, name: str, *rest: str) -> None:
    if option == "-c":
        sys.argv = [option, *rest]
        exec(compile(name, "<string>", "exec"), {"__name__": "__main__"})
    else:
        assert option == "-m", option
        sys.argv = [name, *rest]
        runpy.run_module(name, run_name="__main__", alter_sys=True)
