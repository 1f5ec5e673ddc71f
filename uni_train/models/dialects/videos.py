"""OpenAI's Videos API, and the loop of all dialects whose request starts a job that makes a video.

OpenAI ended it on 24 September 2026; vLLM-Omni and gateways serve it:
https://docs.vllm.ai/projects/vllm-omni/en/latest/serving/videos_api/
"""

from __future__ import annotations

import json
import math
import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import anyio
import numpy as np

from uni_train.core.errors import SkillMissing, UserError
from uni_train.core.http_client import BadReply, Refused
from uni_train.core.reading_limits import Unreadable
from uni_train.models.base import Request
from uni_train.models.dialects import SEED_BITS, Ask, Call, Dialect, Endpoint, Fetch, Skill, dialect, whole_prompt
from uni_train.models.video import clip_frames

POLL = 5.0
"""Seconds between two looks at a job."""
LANDSCAPE, PORTRAIT = (1280, 720), (720, 1280)
_FILTER = re.compile(r"moderat|sensitive|safety|filter|polic", re.IGNORECASE)
_SIZE = re.compile(r"([1-9]\d{1,3})x([1-9]\d{1,3})")


class VideoDialect(Dialect):
    """An image becomes the first frame, in a white margin that gives it a frame's shape; frames lose that margin.

    Attributes:
        sizes: width and height of frames that there are, or others of their shapes. path: of jobs. done: the reply of
            one that is done.
    """

    writes, films = False, True
    sizes: ClassVar[tuple[tuple[int, int], ...]] = (LANDSCAPE, PORTRAIT)
    path: ClassVar[str] = ""
    done: ClassVar[str]

    def job(self, reply: Mapping[str, Any]) -> Any:
        """The path of the job in any reply."""
        return reply.get("id") and f"{self.path}/{reply['id']}"

    @abstractmethod
    def clip(self, reply: Mapping[str, Any]) -> Any:
        """The address of the clip, or None while the job runs. Raises UserError: the job has failed."""

    async def film(self, request: Request, reply: Any, ask: Ask, fetch: Fetch, patience: float) -> list[np.ndarray]:
        """As `Dialect.film`; the frames that stand for a video (`taken_frames`)."""
        job: Any = None
        try:
            with anyio.fail_after(patience):
                while True:
                    job = self.job(reply) if isinstance(reply, Mapping) else None
                    address = self.clip(reply) if job else None
                    if address is not None or not job:
                        break
                    await anyio.sleep(POLL)
                    reply = await ask(job)
            if not isinstance(address, str):
                raise UserError(f"its job is {json.dumps(reply)[:200]}; expected {self.done}")
            frames = await anyio.to_thread.run_sync(clip_frames, await fetch(address))
        except TimeoutError:
            raise UserError(f"the job {job} is not done after {patience:g} s: raise remote.patience") from None
        except BadReply as error:
            if isinstance(error, Refused) and error.passes:
                raise
            raise UserError(f"the job {job} or its clip is lost: {error}") from None
        except Unreadable as error:
            raise UserError(f"the clip of {job} cannot be read: {error.reason}") from None
        return [_without_margin(frame, *request.images) for frame in frames]

    def first_frame(
        self, request: Request, endpoint: Endpoint, size: tuple[int, int] | None = None
    ) -> tuple[tuple[int, int] | None, tuple[np.ndarray, ...]]:
        """A size, the one whose shape is nearest if none is given, and the image at that size. Raises SkillMissing."""
        from PIL import Image, ImageOps

        if len(request.images) > 1:
            raise SkillMissing(endpoint.model, "draw from several images")
        shape = request.images[0].shape[:2] if request.images else request.size
        if size is None and shape is not None:
            size = min(self.sizes, key=lambda one: abs(math.log(one[0] * shape[0] / (one[1] * shape[1]))))
        images = (ImageOps.pad(Image.fromarray(image), size or PORTRAIT, color="white") for image in request.images)
        return size, tuple(np.asarray(image) for image in images)


def _without_margin(frame: np.ndarray, image: np.ndarray | None = None) -> np.ndarray:
    if image is None:
        return frame
    outer, inner = np.array(frame.shape[:2]), np.array(image.shape[:2])
    inner = np.minimum(np.round(inner * (outer / inner).min()).astype(int), outer)
    top, left = np.round((outer - inner) / 2).astype(int)  # as ImageOps.pad places it
    return np.ascontiguousarray(frame[top : top + inner[0], left : left + inner[1]])


def at(reply: Any, *names: str) -> Any:
    """What is in a section of a section; None where there is none."""
    for name in names:
        reply = reply.get(name) if isinstance(reply, Mapping) else None
    return reply


def succeeded(reply: Mapping[str, Any]) -> bool:
    """Whether a job's `status` is that of success. Raises UserError for a failure."""
    if (status := reply.get("status")) in ("failed", "cancelled", "canceled", "expired", "error"):
        raise failure(reply.get("error") or status)
    return status in ("completed", "succeeded")


def failure(error: Any) -> UserError:
    """Of a job, with the server's message; a filter is named as one."""
    code, words = json.dumps(error), at(error, "message") or error
    ended = "its server's filter ended the job" if _FILTER.search(code) else "the job failed"
    return UserError(f"{ended}: {' '.join(str(words).split())[:500]}")


@dialect("videos")
class Videos(VideoDialect):
    """/videos. The image must have the very size of the frames: 720p, or `size` of `remote.extra_body`."""

    path, done = "videos", '{"id": "...", "status": "completed"}'

    def call(self, skill: Skill, request: Request, endpoint: Endpoint) -> Call:
        given = _SIZE.fullmatch(str(endpoint.settings.extra_body.get("size")))
        size, images = self.first_frame(request, endpoint, given and (int(given[1]), int(given[2])))
        body = {"model": endpoint.model, "prompt": whole_prompt(request), "seed": request.seed & SEED_BITS}
        body |= {} if size is None else {"size": f"{size[0]}x{size[1]}"}
        return Call(self.path, body, '{"id": "..."}', images, field="input_reference")

    def clip(self, reply: Mapping[str, Any]) -> Any:
        return f"{self.job(reply)}/content" if succeeded(reply) else None
