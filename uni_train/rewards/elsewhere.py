"""Rewards that are computed elsewhere: by another interpreter of this machine, or by a server (docs/rewards.md).

Both get batches: prompts, images, and the columns that JSON can hold. Images of a batch without a reply have no value,
which is None and never 0; where no batch has one, that is an error. A reply of another form ends the run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import Pipe
from typing import Any

import numpy as np

from uni_train.core.addresses import key_for
from uni_train.core.errors import UserError
from uni_train.core.http_client import BadReply, Client, NoReply, ask_all
from uni_train.data_gen.task import Item
from uni_train.models.batches import ModelDown
from uni_train.models.pictures import encode_png
from uni_train.rewards import worker
from uni_train.rewards.config import RewardConfig
from uni_train.rewards.registry import Trained, reward

RESTARTS = 3  # of a process that ends, without a reply in between
LOADING = 1800.0  # seconds that the file or module of a function may take
OURS = re.compile("PYTHON|(VIRTUAL_ENV|CONDA_PREFIX)$|TORCHELASTIC_|MASTER_|((LOCAL|GROUP|ROLE)_)?(RANK|WORLD_SIZE)$")
"""Variables of our interpreter and of our ranks, which another one is not to see."""


class Elsewhere:
    """A reward function with trl's contract that asks about batches."""

    def __init__(self, config: RewardConfig, trained: Trained) -> None:
        self.name, self.config, self.left_out, self.lost = trained.name, config, set[str](), 0

    def ask(self, batches: Sequence[Mapping[str, Any]]) -> Sequence[Any]:
        """The reply to each of them, or why there is none."""
        raise NotImplementedError

    def hint(self) -> str:
        """Where to look if there is no reply."""
        return "See whether it is up, and what it has logged."

    def __call__(
        self, prompts: Sequence[str], completions: Sequence[np.ndarray], **columns: Sequence[Any]
    ) -> list[float | None]:
        """One number an image.

        Raises:
            ModelDown: no batch has a reply. UserError: a reply of another form, or a process that keeps ending.
        """
        sent = {name: values for name, values in columns.items() if self._crosses(name, values)}
        parts = [slice(at, at + self.config.batch) for at in range(0, len(prompts), self.config.batch)]
        cut = [{name: values[part] for name, values in sent.items()} for part in parts]
        replies = self.ask([
            {"prompts": prompts[part], "images": completions[part], "columns": columns}
            for part, columns in zip(parts, cut, strict=True)
        ])  # fmt: skip
        values: list[float | None] = []
        problems, before = [reply for reply in replies if isinstance(reply, NoReply)], self.lost
        for part, reply in zip(parts, replies, strict=True):
            values += self._values(reply, len(prompts[part]))
        if problems:
            now = f"{self.lost - before} of {len(prompts)} images"
            if len(problems) == len(replies):
                raise ModelDown(f"the reward {self.name} has no value for {now}: {problems[0]}", self.hint())
            print(f"the reward {self.name} has no value for {now} ({self.lost} so far): {problems[0]}", file=sys.stderr)
        return values

    def _crosses(self, name: str, values: Sequence[Any]) -> bool:
        """Whether JSON can hold a column; the first time that it cannot is printed."""
        if name not in self.left_out:
            try:
                json.dumps(values, default=lambda value: _plain(value, np.shape), allow_nan=False)
                return True
            except (TypeError, ValueError) as error:
                self.left_out.add(name)
                print(f"the reward {self.name} does not get the column {name}: {error}", file=sys.stderr)
        return False

    def _values(self, reply: Any, images: int) -> list[Any]:
        if isinstance(reply, NoReply):
            self.lost += images
            return [None] * images
        values = reply.get("rewards") if isinstance(reply, dict) else None
        if isinstance(values, list) and len(values) == images:
            return values
        what = f"{len(values)} values" if isinstance(values, list) else f"{json.dumps(reply):.80}"
        raise UserError(
            f"the reward {self.name} returned {what} for {images} images",
            'Return one number an image, None where it does not apply. A server answers {"rewards": [...]}.',
        )


@reward("server")
class Server(Elsewhere):
    """Asks `config.address` (docs/rewards.md has the contract). Raises UserError: its key is not there."""

    def __init__(self, config: RewardConfig, trained: Trained) -> None:
        super().__init__(config, trained)
        self.url = config.address or ""
        self.key = key_for(self.url, config.server.key_env)

    def ask(self, batches: Sequence[Mapping[str, Any]]) -> Sequence[Any]:
        replies: list[Any] = [None] * len(batches)

        def png(image: np.ndarray) -> str:
            return b64encode(encode_png(image)).decode()

        async def post(client: Client, place: int) -> None:
            body = json.loads(json.dumps(batches[place], default=lambda value: _plain(value, png)))
            try:
                replies[place] = await client.ask(self.url, {**self.config.server.extra_body, **body})
            except (NoReply, BadReply) as error:
                replies[place] = NoReply(str(error))

        ask_all(range(len(batches)), post, self.key, self.config.server)
        return replies


@reward("python")
class OtherPython(Elsewhere):
    """Runs `config.function` by `config.python`, one process a rank (worker.py), which prints into a log.

    Raises:
        UserError: there is no such interpreter, or it lacks numpy or the function.
    """

    tried = True

    def __init__(self, config: RewardConfig, trained: Trained) -> None:
        super().__init__(config, trained)
        self.device, self.deaths = trained.device, 0
        self.log: Any = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - open as long as the process
        if trained.folder is not None:
            trained.folder.mkdir(parents=True, exist_ok=True)
            name = re.sub(r"[^\w-]", "_", self.name)
            self.log = (trained.folder / f"{name}.log").open("a+b")
        self._start()

    def hint(self) -> str:
        self.log.seek(max(0, self.log.seek(0, os.SEEK_END) - 4000))
        lines = self.log.read().decode(errors="replace").splitlines()[-6:]
        return "\n  ".join(["The last lines that it printed:", *lines]) if lines else "It has printed nothing."

    def ask(self, batches: Sequence[Mapping[str, Any]]) -> Sequence[Any]:
        return [self._asked(batch) for batch in batches]

    def _asked(self, batch: Mapping[str, Any]) -> Any:
        if self.process.returncode is not None:
            self._start()
        pixels, places = bytearray(), dict[int, int]()

        def image(value: np.ndarray) -> dict[str, Any]:
            place = places.setdefault(id(value), len(pixels))
            if place == len(pixels):
                pixels.extend(value.tobytes())
            return {worker.IMAGE: [place, value.shape]}

        text = json.dumps(batch, default=lambda value: _plain(value, image))
        reply = self._exchange(self.config.patience, text.encode(), bytes(pixels))
        self.deaths = 0 if self.process.returncode is None else self.deaths + 1
        if self.deaths > RESTARTS:
            raise UserError(f"the reward {self.name}: its process {reply}, {self.deaths} times in a row", self.hint())
        return reply

    def _start(self) -> None:
        given, function = self.config.python or "", self.config.function
        python = shutil.which(os.path.expanduser(given)) if "/" in given else None
        self.pipe, theirs = Pipe()
        try:
            if python is None:
                raise FileNotFoundError("there is no such program")
            self.process = subprocess.Popen(
                [python, worker.__file__, function, str(theirs.fileno())], pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=_environment(python, self.device),
                start_new_session=True,  # Ctrl-C is for the run
            )  # fmt: skip
        except OSError as error:
            hint = "Give the path of an interpreter: /path/to/environment/bin/python."
            raise UserError(f"rewards.{self.name}.python={given} cannot be run: {error}", hint) from None
        theirs.close()
        weakref.finalize(self, _end, self.process)
        problem = self._exchange(LOADING)
        if isinstance(problem, NoReply):
            raise UserError(
                f"rewards.{self.name}.python={given} cannot run {function}: {problem}",
                f"It needs Python 3.8 or newer, numpy, and what the function imports. {self.hint()}",
            )

    def _exchange(self, patience: float, *messages: bytes) -> Any:
        """The process's reply, or why there is none; then it may have ended."""
        try:
            for message in messages:
                self.pipe.send_bytes(message)
            if self.pipe.poll(patience):
                reply = json.loads(self.pipe.recv_bytes())
                return NoReply(reply["error"]) if "error" in reply else reply
            reason = f"gave no reply within {patience:g} s"
        except (OSError, EOFError):
            reason = "ended with exit code {0}"
        _end(self.process)
        return NoReply(reason.format(self.process.returncode))


def _environment(python: str, device: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not OURS.match(name)} | {"PYTHONUNBUFFERED": "1"}
    kept["PATH"] = f"{os.path.dirname(python)}{os.pathsep}{kept.get('PATH', os.defpath)}"
    if card := device.partition(":")[2]:
        shown = kept.get("CUDA_VISIBLE_DEVICES")
        kept["CUDA_VISIBLE_DEVICES"] = shown.split(",")[int(card)] if shown else card
    return kept


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)  # with those that it has started
        process.wait()


def _plain(value: Any, image: Callable[[np.ndarray], Any]) -> Any:
    """What JSON holds in the place of an item or an image. Raises TypeError for all else."""
    if isinstance(value, Item):
        return value.to_dict()
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 3:
        return image(value)
    raise TypeError(f"JSON cannot hold {type(value).__name__}")
