"""Asks on their way through the steps of their benchmark, with the replies that somebody has.

A reply of a folder passes the same `Step.put` as that of a model. A letter, a refined prompt or a plan is read there.
What is asked next is the request of the first step without a reply.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from uni_train.core.errors import UserError
from uni_train.core.files import below
from uni_train.eval.images import StoredImage, digest_of
from uni_train.eval.submission import json_lines
from uni_train.models import video
from uni_train.models.pictures import decode_picture, decode_png, encode_png

if TYPE_CHECKING:
    from uni_train.eval.benchmark import Ask, Benchmark, Sample, Step
    from uni_train.models.base import Request

SHOWN = "questions"  # the folder of images that questions show
Key = tuple[str, str, int]
"""Id, setting, draw."""
Answer = dict[str | int, Any]
"""What there is of an ask: "thought", "text", "prompt", and by the number of their reply the names of images."""


class Passage:
    """Asks with what there is of them, through all steps but `Benchmark.finish`.

    A step without a reply is passed over, for few keep what was in between. Requests that are one call share a reply.
    A model beside the evaluated one is asked where there is no reply of it.

    Attributes:
        samples: of each ask. unanswered: row -> the last step, of those that have no reply to it. waiting: of these
            the first step without a reply, and the sample before it.
    """

    def __init__(self, benchmark: Benchmark, asks: Sequence[Ask], answers: Mapping[Key, Answer], root: Path) -> None:
        """root: the folder of the images."""
        others = {setting for _, setting, _ in answers} - {ask.setting for ask in asks}  # may share a reply with these
        more = {(ask.case.id, other, ask.k): replace(ask, setting=other) for other in sorted(others) for ask in asks}
        every = [*asks, *(ask for key, ask in more.items() if key in answers)]
        self._root, self._answers = root, [answers.get((ask.case.id, ask.setting, ask.k), {}) for ask in every]
        self.samples = [benchmark.begin(ask) for ask in every]
        self.unanswered: dict[int, Step] = {}
        lacking: dict[int, tuple[Step, Sample]] = {}
        for step in chain.from_iterable(stage.singly() for stage in benchmark.steps()):
            for row, replies in self._replies(step).items():
                self.unanswered.pop(row, None)
                if not replies:
                    self.unanswered[row] = step
                    lacking.setdefault(row, (step, self.samples[row]))
                for reply in replies:
                    put = step.failed if isinstance(reply, Exception) else step.put
                    self.samples[row] = put(self.samples[row], reply)
        for row in lacking:  # without a thought only who drew by its prompt knows that
            prompt = self.samples[row].prompt or self._answers[row].get("prompt", "")
            self.samples[row] = replace(self.samples[row], prompt=prompt)
        self.unanswered = {row: step for row, step in sorted(self.unanswered.items()) if row < len(asks)}
        self.waiting = [lacking[row] for row in self.unanswered]
        del self.samples[len(asks) :]

    def _replies(self, step: Step) -> dict[int, list[Any]]:
        """Row -> the replies of those for which the step is due, [] for none; a helper's are put at once."""
        rows = [row for row, sample in enumerate(self.samples) if sample.status == "ok" and step.due(sample)]
        found = {row: self._reply(step, row) for row in rows}
        lacking = [row for row in rows if not found[row]]
        if step.model is not None:
            samples = [self.samples[row] for row in lacking]
            step.take(step.model, samples, None)
            for row, self.samples[row] in zip(lacking, samples, strict=True):
                del found[row]
        elif step.once and 0 < len(lacking) < len(rows):
            calls = {row: _call(step.request(self.samples[row])) for row in rows}
            known = {calls[row]: replies for row, replies in found.items() if replies}
            found |= {row: known.get(calls[row], []) for row in lacking}
        return found

    def _reply(self, step: Step, row: int) -> list[Any]:
        answer = self._answers[row]
        if step.reply in ("thought", "text"):
            return [answer[step.reply]] if step.reply in answer else []
        names = [name for key in sorted(key for key in answer if isinstance(key, int)) for name in answer[key]]
        images = [image for name in names for image in _images(self._root, name, last=step.reply == "image")]
        if step.reply == "frame":
            return images[len(self.samples[row].drawn) :][:1]
        if step.reply != "parts":
            return images
        broken = [[image] for image in images if isinstance(image, Exception)]
        parts = [*filter(None, [answer.get("text")]), *images]
        return broken[0] if broken else [parts] if parts else []


def _call(request: Request) -> Request:
    """Equal for requests of a `once` step that are one call."""
    return replace(request, images=())


def image_names(row: Mapping[str, Any]) -> list[str]:
    """The names of images in a row, without those that its question shows."""
    for given in (row.get("images"), row.get("image_answer"), row.get("image")):
        names = given.split(";") if isinstance(given, str) else given if isinstance(given, list) else []
        if own := [name for entry in names if (name := str(entry).strip()) and not name.startswith(f"{SHOWN}/")]:
            return own
    return []


def _images(root: Path, name: str, last: bool) -> list[StoredImage | Exception]:
    """Found to be images, and read again when they are looked at. last: of a video, the last frame alone."""
    try:
        path = below(root, name, links=True)
        reads: list[Callable[[], bytes]] = [partial(_png, path, name)]
        if video.is_video(path):
            count = len(video.frames(path))
            reads = [partial(_frame, path, number) for number in range(count - 1 if last else 0, count)]
        return [StoredImage(read, digest_of(read())) for read in reads]
    except (UserError, ValueError, OSError) as error:
        return [error]


def _frame(path: Path, number: int) -> bytes:
    return encode_png(video.frames(path)[number])


def _png(path: Path, name: str) -> bytes:
    data = path.read_bytes()
    image = decode_picture(data, name)
    same = data.startswith(b"\x89PNG") and np.array_equal(decode_png(data), image)
    return data if same else encode_png(image)


def questions_of(waiting: Iterable[tuple[Step, Sample]], system: str) -> Iterator[tuple[str, bytes]]:
    """questions.jsonl, a row for each request that is due, and before it the images that are shown with it.

    waiting: as `Passage.waiting` has it; of requests that are one call, the first is asked. system: said before the
    prompt where a thought is asked for, as an endpoint is told it.
    """
    rows: dict[Any, Mapping[str, Any]] = {}
    there = set()
    for step, sample in waiting:
        request, ask, names = step.request(sample), sample.ask, []
        for image in request.images:
            digest = hashlib.blake2b(repr(image.shape).encode() + image.tobytes(), digest_size=16)
            names.append(f"{SHOWN}/{digest.hexdigest()}.png")
            if names[-1] not in there:
                yield names[-1], encode_png(image)
            there.add(names[-1])
        row = {
            "id": ask.case.id, "setting": ask.setting, "k": ask.k, "step": len(sample.drawn), "seed": request.seed,
            "set": ask.case.set, "skill": step.skill, "reply": step.reply.replace("frame", "image"),
            "system": system if step.skill == "think" else None, "prompt": request.prompt, "images": names,
            "thought": request.thought,
        }  # fmt: skip
        call = (step.skill, _call(request)) if step.once else len(rows)
        rows.setdefault(call, {key: value for key, value in row.items() if value is not None})
    yield "questions.jsonl", json_lines(rows.values())
