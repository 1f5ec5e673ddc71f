"""Asking a judge: stored replies first, then the model; strict reading with re-asking; limits; what a failure is.

A `Session` is one run's contact with one judge, shared by all samples. A `Questioner` is the `JudgeAsk` of one
sample: it holds the conversation and keeps the judge's words.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from uni_train.config.schema import JudgeConfig
from uni_train.errors import UserError
from uni_train.eval.benchmark import Unparseable
from uni_train.eval.judges.replies import Reply, ReplyStore, Turn, reply_key
from uni_train.eval.judges.wording import reader, schema_of, worded

if TYPE_CHECKING:
    import anyio

Asker = Callable[[Sequence[Turn], Mapping[str, Any] | None, int], Awaitable[Reply]]
"""Sends a conversation to the judge, a schema for its reply and the draw's number.

Raises NoReply; UserError where no question helps."""
DEAD_AFTER = 8
"""So many questions in a row that found no server, each after all its retries, end the asking of this run."""
REMARK = "Your reply could not be read: {problem}. Answer the same question again, in exactly the format asked for."
_OUTCOMES = {"content_filter": "judge_filtered", "refusal": "judge_refused"}  # by why a reply ended
_WORDS_OF_IMAGE = 1000  # tokens that an image is reckoned at before the server has counted one


class NotStored(Exception):
    """A question that nobody has answered yet, where only stored replies are looked at."""


class NoReply(Exception):
    """The judge did not answer this question; says why, without secrets. gone: it seems to be answering nobody."""

    def __init__(self, why: str, gone: bool = False) -> None:
        super().__init__(why)
        self.gone = gone


class Stopped(NoReply):
    """No further question is asked in this run: a limit is reached, or the judge is gone."""


@dataclass(slots=True)
class Spent:
    """What judging has cost, by the replies that it used, asked for in this run or in an earlier one."""

    questions: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class Session:
    """One run's contact with a judge.

    Attributes:
        spent: on the samples of this session. elsewhere: on others that the limits count too.
        stopped: why no more is asked, "" while all is well.
        fatal: what a person must put right (a wrong key); whoever runs the session raises it.
        refused: keys of the request that the server refused, so that used replies were made without them.
    """

    def __init__(self, config: JudgeConfig, store: ReplyStore, elsewhere: Spent) -> None:
        self.config, self.store, self.elsewhere = config, store, elsewhere
        self.spent = Spent()
        self.stopped = ""
        self.fatal: BaseException | None = None
        self._judge = config.key
        self._counted: set[str] = set()
        self._asked: dict[str, anyio.Event] = {}
        self._slots: anyio.Semaphore | None = None
        self._reserved: list[tuple[int, int]] = []
        self._settled: anyio.Event | None = None
        self._largest_input = 0
        self._failures = 0
        self.refused: set[str] = set()

    async def reply(
        self, turns: Sequence[Turn], schema: Mapping[str, Any] | None, asker: Asker | None, draw: int = 0
    ) -> Reply:
        """The reply to a conversation; without an asker, from the store alone. Raises NotStored, NoReply or Stopped."""
        import anyio

        key = reply_key(self._judge, turns, schema, draw)
        while (running := self._asked.get(key)) is not None:  # another sample asks just the same
            await running.wait()
        found = self.store.get(key)
        if found is None:
            if asker is None:
                raise NotStored(key)
            self._asked[key] = anyio.Event()
            self._slots = self._slots or anyio.Semaphore(self.config.connections)
            try:
                async with self._slots, self._within_limits(turns):
                    found = await self._ask(asker, turns, schema, draw)
                    self._keep(key, found)
            finally:
                self._asked.pop(key).set()
        else:
            self._count(key, found)
        return found

    def _keep(self, key: str, reply: Reply) -> None:
        try:
            self.store.put(key, reply)
        except UserError as error:
            self.stop(str(error), error)
            raise Stopped(self.stopped) from error
        self._count(key, reply)

    def _count(self, key: str, reply: Reply) -> None:
        if key not in self._counted:
            self._counted.update([] if reply.blank else [key])  # each blank one is paid for
            self.spent.questions += 1
            self.refused.update(reply.refused)
            self.spent.input_tokens += reply.input_tokens
            self.spent.output_tokens += reply.output_tokens
            self._largest_input = max(self._largest_input, reply.input_tokens)

    def stop(self, why: str, fatal: BaseException | None = None) -> None:
        """Ask nothing more in this run."""
        self.stopped = self.stopped or why
        self.fatal = self.fatal or fatal

    async def _ask(self, asker: Asker, turns: Sequence[Turn], schema: Mapping[str, Any] | None, draw: int) -> Reply:
        try:
            reply = await asker(turns, schema, draw)
        except UserError as error:
            self.stop(error.message, error)
            raise Stopped(self.stopped) from None
        except NoReply as error:
            self._failures = self._failures + 1 if error.gone else 0
            if self._failures >= DEAD_AFTER:
                self.stop(f"the judge does not answer: {error}")
            raise
        self._failures = 0
        return reply

    @asynccontextmanager
    async def _within_limits(self, turns: Sequence[Turn]) -> AsyncIterator[None]:
        """Wait until the dearest reply still fits below the limits; Stopped where it never will."""
        import anyio

        words = sum(len(turn.text) // 3 + _WORDS_OF_IMAGE * len(turn.images) for turn in turns)
        worst = (max(words, self._largest_input), self.config.max_tokens)
        while not self.stopped and (limit := self._exceeded(worst)):
            if not self._reserved:
                self.stop(limit)
                break
            self._settled = self._settled or anyio.Event()
            await self._settled.wait()
        if self.stopped:
            raise Stopped(self.stopped)
        self._reserved.append(worst)
        try:
            yield
        finally:
            self._reserved.remove(worst)
            if self._settled is not None:
                self._settled.set()
                self._settled = None

    def _exceeded(self, worst: tuple[int, int]) -> str:
        """Which limit would be passed if this question and all under way came as dear as they can; "" for none."""
        config = self.config
        coming = [worst, *self._reserved]
        read = self.elsewhere.input_tokens + self.spent.input_tokens + sum(one for one, _ in coming)
        written = self.elsewhere.output_tokens + self.spent.output_tokens + sum(one for _, one in coming)
        if config.token_limit is not None and read + written > config.token_limit:
            return f"the limit of {config.token_limit:,} tokens is reached"
        if config.cost_limit is not None and (config.dollars(read, written) or 0.0) > config.cost_limit:
            return f"the limit of ${config.cost_limit:,} is reached"
        return ""


@dataclass(slots=True)
class Questioner:
    """The `JudgeAsk` of one sample; without an asker, of what is stored.

    replies: the judge's words, in order. raised: why a question has no answer. draw: the number of the replies that are
    asked for now. confidences: in [0, 1], of the questions answered, where the way of asking wants them.
    """

    session: Session
    asker: Asker | None = None
    replies: list[str] = field(default_factory=list)
    raised: Exception | None = None
    draw: int = 0
    confidences: list[float] = field(default_factory=list)

    @property
    def dialect(self) -> str:
        return self.session.config.dialect

    async def __call__(
        self,
        prompt: str,
        images: Sequence[bytes] = (),
        *,
        parse: Callable[[str], Any] | None = None,
        attempts: int = 3,
        schema: Mapping[str, Any] | None = None,
    ) -> Any:
        """As `JudgeAsk`; the configuration's `attempts` bounds those of the caller.

        nano is asked once: it has no words for a remark, and says the same again. So is a judge that refused. After a
        blank reply the same words are sent again.
        """
        way = self.session.config.way
        turns = [Turn("user", worded(way, prompt), tuple(images))]
        schema, read = schema_of(way, schema), reader(way, parse)
        reply = Reply("")
        for _ in range(1 if self.dialect == "nano" else min(attempts, self.session.config.attempts)):
            try:
                reply = await self.session.reply(turns, schema, self.asker, self.draw)
            except (NotStored, NoReply) as error:
                self.raised = error
                raise
            self.replies.append(reply.text)
            try:
                value, confidence = read(reply.text)
            except ValueError as error:
                problem = str(error)
            else:
                self.confidences += [] if confidence is None else [confidence]
                return value
            if reply.stop in _OUTCOMES:
                break
            if reply.blank:
                continue
            if reply.stop == "max_tokens":
                problem = f"it was cut off after {reply.output_tokens} tokens; {problem}"
            turns += [Turn("assistant", reply.text or "..."), Turn("user", REMARK.format(problem=problem))]
        outcome = _OUTCOMES.get(reply.stop, "judge_blank" if reply.blank else "unparseable")
        self.raised = Unparseable(reply.text, outcome)
        raise self.raised
