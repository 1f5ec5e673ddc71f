"""A model behind the store: every call is made once, stored under a hash of all that decides its answer, then read.

The unit of storage is the call and not the sample, so that protocols of several steps (think, extract, draw; a prompt
that another model writes) resume with no code of their own. `eval.store` says what is in a call's key and on disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from uni_train.core.errors import SkillMissing, UserError, described
from uni_train.eval.images import StoredImage
from uni_train.eval.sample import Respondent, think_then_draw
from uni_train.eval.store import Call, Skill, Store, call_key
from uni_train.models.identity import ModelIdentity
from uni_train.models.pictures import encode_png

if TYPE_CHECKING:
    from uni_train.models.base import OnStep, Request, UnifiedModel


class CallFailed(Exception):
    """A call that brought no answer, now or in an earlier run; the message says why."""


@dataclass
class Counts:
    """Calls of one skill since the start: made now, read from the store, and those without an answer."""

    made: int = 0
    stored: int = 0
    failed: int = 0


class StoredModel:
    """A respondent whose finished calls come from the store; only the missing ones reach the model, in batches.

    Batches are cut from all requests, not only from the missing ones. So a resumed run has the same batches, and
    bit-identical images. Each batch is stored as soon as it is finished.

    Args:
        identity: of the model, without which no call is found.
        load: makes the model; called when the first call is missing, so that scoring again needs no GPU.
        think_batch, draw_batch: requests a batch (answers count as thoughts).
        retry_failed: make calls again that brought no answer in an earlier run.
    """

    partial = False  # it answers all sets of a setting, or fails as a whole

    def __init__(
        self,
        identity: ModelIdentity,
        store: Store,
        load: Callable[[], Respondent | UnifiedModel],
        *,
        think_batch: int = 128,
        draw_batch: int = 256,
        retry_failed: bool = False,
    ) -> None:
        self.name = identity.name
        self.identity = identity
        self.think_batch, self.draw_batch = think_batch, draw_batch
        self.counts: dict[Skill, Counts] = {"think": Counts(), "draw": Counts(), "answer": Counts()}
        self._load = load
        self._model: Respondent | UnifiedModel | None = None
        self._calls = store.calls(identity)
        self._retry = retry_failed
        self._tried: set[str] = set()
        self._lacking: dict[str, UserError] = {}  # calls for which the model said that it lacks the skill
        self._made_together: set[str] = set()  # and not asked for yet

    @property
    def finished(self) -> int:
        """Calls in the store."""
        return len(self._calls)

    @property
    def damaged(self) -> list[str]:
        """Files and lines of the store that cannot be read; their calls are made again."""
        return [f"{self._calls.log.folder}/{line}" for line in self._calls.log.damaged]

    def think(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[str | Exception]:
        return [cast(str | Exception, _single(call)) for call in self._ask("think", requests, on_step)]

    def draw(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[StoredImage | Exception]:
        """Images of the store, which nobody has read yet."""
        return [cast(StoredImage | Exception, _single(call)) for call in self._ask("draw", requests, on_step)]

    def answer(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[str | Exception]:
        return [cast(str | Exception, _single(call)) for call in self._ask("answer", requests, on_step)]

    def compose(
        self, requests: Sequence[Request], *, on_step: OnStep | None = None
    ) -> list[list[str | StoredImage] | Exception]:
        """Texts and images in order, images as by `draw`."""
        calls = self._ask("compose", requests, on_step)
        return [list(call.parts) if call.error is None else CallFailed(call.error) for call in calls]

    def think_and_draw(
        self, requests: Sequence[Request], *, on_step: OnStep | None = None
    ) -> tuple[list[str | Exception], list[np.ndarray | StoredImage | Exception]]:
        """As `think` and then `draw`, two calls a request.

        Where no thought is stored yet, the model does both at once if it can. Both calls are then stored together: a
        run that was killed never draws by a thought that it reads again.
        """
        size = min(self.think_batch, self.draw_batch)
        for start in range(0, len(requests), size):
            batch = requests[start : start + size]
            self._draw_with_thought({call_key(self.identity, "think", request): request for request in batch}, on_step)
        return think_then_draw(self, requests, on_step)

    def _draw_with_thought(self, batch: Mapping[str, Request], on_step: OnStep | None) -> None:
        """Have the model think and draw in one pass where no thought is stored; store both calls of each request.

        A batch that the model refuses is left to the single calls.
        """
        requests = [request for key, request in batch.items() if not self._finished(key)]
        if not requests:
            return
        if self._model is None:
            self._model = self._load()
        from uni_train.models.batches import ModelDown, fitting

        both = getattr(self._model, "think_and_draw", None)
        if both is None:
            return
        began = time.perf_counter()
        try:
            pairs = fitting(lambda some: [*zip(*both(some, on_step=on_step), strict=True)], requests)
        except ModelDown:
            raise
        except UserError:
            return
        fresh = []
        for request, (thought, image) in zip(requests, pairs, strict=True):
            drawn = replace(request, thought=thought)
            fresh.append(self._finished_call("think", request, thought))
            fresh.append(self._finished_call("draw", drawn, image))
        self._calls.add(fresh, time.perf_counter() - began)
        keys = {call.key for call in fresh}
        self._tried |= keys
        self._made_together |= keys

    def reread(self) -> None:
        """Take note of what other processes have stored meanwhile."""
        self._calls.reread()

    def release(self) -> None:
        """Let go of the model and its memory; a later missing call loads it again."""
        self._model = None

    def _finished(self, key: str) -> bool:
        call = self._calls.get(key)
        return call is not None and (call.error is None or key in self._tried or not self._retry)

    def _ask(self, skill: Skill, requests: Sequence[Request], on_step: OnStep | None) -> Iterator[Call]:
        size = self.draw_batch if skill in ("draw", "compose") else self.think_batch
        counts = self.counts.setdefault(skill, Counts())
        for start in range(0, len(requests), size):
            batch = requests[start : start + size]
            keys = [call_key(self.identity, skill, request) for request in batch]
            # A request that is asked twice in a batch is one call.
            missing = {key: request for key, request in zip(keys, batch, strict=True) if not self._finished(key)}
            fresh: dict[str, Call] = {}
            if missing:
                answers, seconds = self._forward(skill, missing, on_step)
                for (key, request), answer in zip(missing.items(), answers, strict=True):
                    fresh[key] = self._finished_call(skill, request, answer)
                self._calls.add(list(fresh.values()), seconds)
                self._tried.update(fresh)
            earlier = self._made_together.intersection(keys)
            self._made_together -= earlier
            counts.made += len(fresh) + len(earlier)
            counts.stored += len(set(keys)) - len(fresh) - len(earlier)
            counts.failed += sum(call.error is not None for call in fresh.values())
            for key in keys:
                call = self._calls.get(key)
                assert call is not None
                yield call

    def _forward(self, skill: Skill, missing: Mapping[str, Request], on_step: OnStep | None) -> tuple[list[Any], float]:
        """The answers, an exception in the place of each that failed, and the seconds they took. A missing skill is no
        answer and not stored; it is remembered, so that scoring does not load the model to hear it again."""
        from uni_train.models.base import SKILLS, expect_skill
        from uni_train.models.batches import each_answered

        requests = list(missing.values())
        if error := next((self._lacking[key] for key in missing if key in self._lacking), None):
            raise error
        if self._model is None:
            self._model = self._load()
        began = time.perf_counter()
        try:
            model = expect_skill(self._model, SKILLS[skill])
            answers = each_answered(partial(getattr(model, skill), on_step=on_step), requests)
        except SkillMissing as error:
            if len(requests) == 1:
                self._lacking |= dict.fromkeys(missing, error)
            raise
        return answers, time.perf_counter() - began

    def _finished_call(
        self,
        skill: Skill,
        request: Request,
        answer: str | np.ndarray | Sequence[str | np.ndarray] | Exception,
    ) -> Call:
        key = call_key(self.identity, skill, request)
        call = Call(key, skill, request.id, request.prompt, request.seed, request.thought)
        if isinstance(answer, Exception):
            return replace(call, error=getattr(answer, "message", "") or described(answer))
        parts = [answer] if isinstance(answer, str | np.ndarray) else answer
        put = self._calls.images.put
        return replace(call, parts=tuple(part if isinstance(part, str) else put(encode_png(part)) for part in parts))


def _single(call: Call) -> str | StoredImage | Exception:
    return call.parts[0] if call.error is None else CallFailed(call.error)
