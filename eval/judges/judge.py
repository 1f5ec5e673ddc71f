"""Judging samples: what is stored is read again, the rest asked, and logged in inspect-ai's format (`inspect view`).

    scored = run(samples, benchmark, JudgeConfig(model="openai/gpt-4o"), folder)

`folder`/judge then holds logs/*.eval, one a run, and record.json (what was asked, what it cost). It holds replies/ too
unless a `store` of several evaluations does. Run again, it asks for nothing that was answered. A
sample without a reply is "judge_failed", one of blank replies "judge_blank": the next run asks both again. Replies
that never answer are "judge_refused", "judge_filtered" or "unparseable", and are kept. No sample is dropped.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.config.schema import JudgeConfig
from uni_train.core.addresses import key_for, key_variable
from uni_train.core.errors import UserError
from uni_train.core.files import atomic_write_json
from uni_train.core.http_client import (
    LETTERS_A_TOKEN,
    REDIRECTS,
    BadReply,
    Client,
    Refused,
    ask_all,
    get_json,
    served_content,
    without_refused,
)
from uni_train.core.http_client import NoReply as NothingCame
from uni_train.core.reading_limits import read_json
from uni_train.eval.benchmark import Benchmark, Sample, Scored, Unparseable
from uni_train.eval.judges.agreement import citation
from uni_train.eval.judges.log import write_log
from uni_train.eval.judges.replies import Reply, ReplyStore, Turn, reply_key
from uni_train.eval.judges.ways import Questioner, judged, least_confidence
from uni_train.eval.progress import Progress, Silent
from uni_train.eval.store import LastSeen
from uni_train.models import completions
from uni_train.models.family import family_of
from uni_train.models.pictures import data_url, encode_png

if TYPE_CHECKING:
    import anyio

DEAD_AFTER = 8
"""So many questions in a row that found no server, each after all its retries, end the asking of this run."""
_WORDS_OF_IMAGE = 1000  # tokens that an image is reckoned at before the server has counted one
_PATIENCE = 5.0  # seconds for what a server says of its weights
_LIMITS = (1, 2, 4)  # times max_tokens, each where the one before has cut a reply off
_LONGEST = 300  # letters of a reason


class NotStored(Exception):
    """A question that nobody has answered yet, where only stored replies are looked at."""


class NoReply(Exception):
    """The judge did not answer this question; says why, without secrets. gone: it seems to be answering nobody."""

    def __init__(self, why: str, gone: bool = False) -> None:
        super().__init__(why)
        self.gone = gone


class Stopped(NoReply):
    """No further question is asked in this run: a limit is reached, or the judge is gone."""


# --- many samples ----------------------------------------------------------------------------------------------------


def run(
    samples: Sequence[Sample],
    benchmark: Benchmark,
    judge: JudgeConfig,
    folder: Path,
    progress: Progress | None = None,
    *,
    store: Path | None = None,
) -> list[Scored]:
    """Judge the samples by `benchmark.judge`; one Scored a sample, in their order, without a cause.

    A judge with `small` ones is a cascade, and is asked only about what they do not settle. They settle a sample where
    each draw of each of them says the same, pass or fail. Where the way asks for a confidence, none may state less than
    `JudgeConfig.sure`. Draws are asked one after the other, each only about what is still unanimous. `Scored.by` names
    who gave the verdict, several small ones joined by "+".

    Args:
        samples: those that no program can check; one whose status is not "ok" is returned as it is.
        folder: of the evaluation; small judges keep their logs below `folder`/small. Its record counts what earlier
            calls spent on other samples of it, for the limits.
        store: where replies lie, for any number of evaluations and processes; None: in the evaluation's folder.

    Raises:
        UserError: a wrong or missing key, no such model, a disk that is full: what was judged so far is kept; a
            tournament in which no case has two samples.
    """
    progress, folder = progress or Silent(), Path(folder)
    store = folder / "judge" if store is None else Path(store)
    if not judge.small:
        return _run_alone(samples, benchmark, judge, folder, progress, store)
    opinions: dict[int, list[Scored]] = {i: [] for i, sample in enumerate(samples) if sample.status == "ok"}
    for number, member in enumerate(_panel(judge)):
        places = list(opinions)
        small_folder = folder / "small" / str(number)
        by_member = _run_alone([samples[i] for i in places], benchmark, member, small_folder, progress, store)
        for place, opinion in zip(places, by_member, strict=True):
            opinions[place].append(opinion)
            if not _settles(opinions[place], member, judge.sure):
                del opinions[place]
    left = [i for i in range(len(samples)) if i not in opinions]
    large = replace(judge, small=())
    by_large = _run_alone([samples[i] for i in left], benchmark, large, folder, progress, store) if left else []
    asked = sum(samples[i].status == "ok" for i in left)
    progress.say(f"  the large judge was asked about {asked} of {len(samples)} samples")
    scored = dict(zip(left, by_large, strict=True)) | {i: _joined(some) for i, some in opinions.items()}
    return [scored[i] for i in range(len(samples))]


def _panel(judge: JudgeConfig) -> list[JudgeConfig]:
    """The small judges, each of their draws by itself, at the temperature of all of them."""
    return [
        replace(
            small,
            way="published" if small.way == "majority" else small.way,
            draws=1,
            first_draw=draw,
            temperature=small.effective_temperature,
        )
        for small in judge.small
        for draw in range(small.first_draw, small.first_draw + small.votes)
    ]


def _settles(opinions: Sequence[Scored], member: JudgeConfig, sure: float) -> bool:
    last = opinions[-1]
    if last.outcome not in ("pass", "fail") or last.outcome != opinions[0].outcome:
        return False
    return member.way != "confidence" or least_confidence(last.replies) >= sure


def _joined(opinions: Sequence[Scored]) -> Scored:
    names = "+".join(dict.fromkeys(opinion.by for opinion in opinions))
    return replace(opinions[0], by=names, replies=tuple(reply for opinion in opinions for reply in opinion.replies))


def _run_alone(
    samples: Sequence[Sample], benchmark: Benchmark, judge: JudgeConfig, folder: Path, progress: Progress, store: Path
) -> list[Scored]:
    """All verdicts by one judge: first those whose replies are stored, then the others."""
    import anyio

    record = _Record(folder / "judge" / "record.json", samples, benchmark)
    scored: dict[int, Scored] = {i: Scored(sample) for i, sample in enumerate(samples) if sample.status != "ok"}
    todo = [i for i in range(len(samples)) if i not in scored]
    rivals = _rivals(samples, todo) if judge.way == "tournament" else {}
    log = None
    with ReplyStore(store / "replies") as replies:
        session = Session(judge, replies, record.spent_elsewhere())

        async def judge_sample(place: int) -> None:
            verdict = await _judge(samples[place], rivals.get(place, ()), benchmark, session)
            if verdict is not None:
                scored[place] = verdict

        async def read_stored() -> None:
            for place in todo:
                await judge_sample(place)

        anyio.run(read_stored)
        session.raise_fatal()
        left = [i for i in todo if i not in scored]
        if len(left) < len(todo) and judge.base_url and not (judge.revision or judge.served):
            progress.say(
                f"  {judge.base_url} does not say which weights {judge.name} has: {len(todo) - len(left)} stored "
                "verdicts are used. If it is another model by now, give it a judge.revision."
            )
        started = time.monotonic()
        if left:
            with progress.bar(f"judge {benchmark.name}", len(samples), len(samples) - len(left)) as bar:

                async def ask_about(client: Client, place: int) -> None:
                    session.client = client
                    await judge_sample(place)
                    bar.advance()

                ask_all(
                    left, ask_about, _key(judge), judge,
                    workers=2 * judge.connections,  # each connection finds its next question waiting
                    beat=lambda: bar.advance(0),
                )  # fmt: skip
            log = write_log(folder / "judge" / "logs", benchmark, judge, [scored[i] for i in left])
        in_order = [scored[i] for i in range(len(samples)) if i in scored]
        cited = citation(store, judge, benchmark)
        record.write(judge, session, in_order, len(left), time.monotonic() - started, log, cited)
    session.raise_fatal()
    if session.refused:
        progress.say(f"  {judge.name} refuses {', '.join(sorted(session.refused))}: it was asked without")
    if session.stopped:
        without = sum(answer.failure == "judge_failed" for answer in in_order)
        progress.say(
            f"  {session.stopped}: {without} of {len(samples)} samples have no verdict; the same command continues"
        )
    return in_order


async def _judge(sample: Sample, rivals: Sequence[Sample], benchmark: Benchmark, session: Session) -> Scored | None:
    """The verdict on a sample; None where a reply is not in the store and there is nobody to ask."""
    name, ask = session.config.name, Questioner(session.config, session.reply)
    try:
        return Scored(sample, await judged(benchmark, sample, rivals, ask), name, "", tuple(ask.replies))
    except Exception as error:
        # A benchmark that asks several things at once wraps in a group what one of them raised.
        problem = ask.raised if isinstance(error, ExceptionGroup) and ask.raised else error
    if isinstance(problem, NotStored):
        return None
    if isinstance(problem, Unparseable):
        note = [f"[unparseable: {problem}]"] if problem.outcome == "unparseable" else []
        return Scored(sample, None, name, problem.outcome, (*ask.replies, *note))
    if not isinstance(problem, NoReply):  # a mistake of ours or of the configuration: every sample would meet it
        session.stop(str(problem), problem)
    return Scored(sample, None, name, "judge_failed", (*ask.replies, f"[no reply: {problem}]"))


def _rivals(samples: Sequence[Sample], places: Sequence[int]) -> dict[int, list[Sample]]:
    """Place of a sample -> the others of its case and setting."""
    alike: dict[tuple[str, str], list[int]] = {}
    for place in places:
        alike.setdefault((samples[place].ask.case.id, samples[place].ask.setting), []).append(place)
    if places and all(len(group) == 1 for group in alike.values()):
        raise UserError("a tournament needs several samples of a case, and there is one of each", "Ask with --k 2.")
    return {place: [samples[i] for i in group if i != place] for group in alike.values() for place in group}


# --- one run's contact with a judge ----------------------------------------------------------------------------------


@dataclass(slots=True)
class Spent:
    """What judging has cost, by the replies that it used, asked for in this run or in an earlier one."""

    questions: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class Session:
    """One run's contact with a judge, shared by all samples.

    Attributes:
        client: who sends questions; None while only stored replies are looked at.
        spent: on the samples of this session. elsewhere: on others that the limits count too.
        stopped: why no more is asked, "" while all is well.
        fatal: what a person must put right (a wrong key); whoever runs the session raises it.
        refused: keys of the request that the server refused, so that used replies were made without them.
    """

    def __init__(self, config: JudgeConfig, store: ReplyStore, elsewhere: Spent) -> None:
        self.config, self.store, self.elsewhere = config, store, elsewhere
        self.client: Client | None = None
        self.spent = Spent()
        self.stopped = ""
        self.fatal: BaseException | None = None
        self.refused: set[str] = set()
        self._judge = config.key
        self._counted: set[str] = set()
        self._under_way: dict[str, anyio.Event] = {}
        self._slots: anyio.Semaphore | None = None
        self._reserved: list[tuple[int, int]] = []
        self._settled: anyio.Event | None = None
        self._largest_input = 0
        self._failures = 0

    async def reply(self, turns: Sequence[Turn], schema: Mapping[str, Any] | None, draw: int = 0) -> Reply:
        """The reply to a conversation; without a client, from the store. Raises NotStored, NoReply or Stopped."""
        import anyio

        key = reply_key(self._judge, turns, schema, draw)
        while (running := self._under_way.get(key)) is not None:  # another sample asks just the same
            await running.wait()
        reply = self.store.get(key)
        if reply is None:
            if self.client is None:
                raise NotStored(key)
            self._under_way[key] = anyio.Event()
            self._slots = self._slots or anyio.Semaphore(self.config.connections)
            try:
                async with self._slots:
                    reply = await self._whole(self.client, key, turns, schema, draw)
            finally:
                self._under_way.pop(key).set()
        else:
            self._count(key, reply)
        return reply

    def stop(self, why: str, fatal: BaseException | None = None) -> None:
        """Ask nothing more in this run."""
        self.stopped = self.stopped or why
        self.fatal = self.fatal or fatal

    def raise_fatal(self) -> None:
        """Raises what a person must put right, if there is anything."""
        if self.fatal is not None:
            raise self.fatal

    def _count(self, key: str, reply: Reply) -> None:
        if key not in self._counted:
            self._counted.update([] if reply.blank else [key])  # each blank one is paid for
            self.spent.questions += 1
            self.refused.update(reply.refused)
            self.spent.input_tokens += reply.input_tokens
            self.spent.output_tokens += reply.output_tokens
            self._largest_input = max(self._largest_input, reply.input_tokens)

    async def _whole(
        self, client: Client, key: str, turns: Sequence[Turn], schema: Mapping[str, Any] | None, draw: int
    ) -> Reply:
        """A new reply, stored. One that was cut off is asked for again with twice as many tokens, and twice those."""
        whole = Reply("")
        for times in _LIMITS:
            config = replace(self.config, max_tokens=times * self.config.max_tokens)
            try:
                async with self._within_limits(turns, config.max_tokens):
                    reply = await self._ask(client, config, turns, schema, draw)
                    self._count(f"{key} {times}", reply)
            except NoReply as error:
                if times == 1 or isinstance(error, Stopped):
                    raise
                break  # the server allows no more tokens
            spent = (whole.input_tokens + reply.input_tokens, whole.output_tokens + reply.output_tokens)
            whole = replace(reply, input_tokens=spent[0], output_tokens=spent[1])
            if reply.stop != "max_tokens" or len(reply.text) >= config.max_tokens * LETTERS_A_TOKEN:
                break
        self._counted.update([] if whole.blank else [key])
        self.store.put(key, whole)
        return whole

    async def _ask(
        self, client: Client, config: JudgeConfig, turns: Sequence[Turn], schema: Mapping[str, Any] | None, draw: int
    ) -> Reply:
        try:
            reply = await ask(client, config, turns, schema, draw)
        except UserError as error:
            self.stop(error.message, error)
            raise Stopped(self.stopped) from error
        except NoReply as error:
            self._failures = self._failures + 1 if error.gone else 0
            if self._failures >= DEAD_AFTER:
                self.stop(f"the judge does not answer: {error}")
            raise
        self._failures = 0
        return reply

    @asynccontextmanager
    async def _within_limits(self, turns: Sequence[Turn], tokens: int) -> AsyncIterator[None]:
        """Wait until the dearest reply, of `tokens`, still fits below the limits; Stopped where it never will."""
        import anyio

        words = sum(len(turn.text) // 3 + _WORDS_OF_IMAGE * len(turn.images) for turn in turns)
        worst = (max(words, self._largest_input), tokens)
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
        read = self.elsewhere.input_tokens + self.spent.input_tokens + sum(tokens for tokens, _ in coming)
        written = self.elsewhere.output_tokens + self.spent.output_tokens + sum(tokens for _, tokens in coming)
        if config.cost_limit is not None and (config.dollars(read, written) or 0.0) > config.cost_limit:
            return f"the limit of ${config.cost_limit:,} is reached"
        return ""


class _Record:
    """record.json: a part a set of samples, each with what its judging took; written when a call ends."""

    def __init__(self, path: Path, samples: Sequence[Sample], benchmark: Benchmark) -> None:
        self.path, self.benchmark = path, benchmark
        keys = json.dumps([benchmark.name, [sample.key for sample in samples]])
        self.part = hashlib.blake2b(keys.encode(), digest_size=8).hexdigest()
        try:
            self.parts: dict[str, Any] = read_json(path)["parts"]
        except (OSError, ValueError, KeyError, TypeError):  # none yet, or damaged: replies are what counts
            self.parts = {}

    def spent_elsewhere(self) -> Spent:
        others = [part for name, part in self.parts.items() if name != self.part]
        return Spent(**{name: sum(part[name] for part in others) for name in asdict(Spent())})

    def write(
        self, judge: JudgeConfig, session: Session, scored: Sequence[Scored], asked: int, seconds: float,
        log: str | None, cited: Mapping[str, Any] | None,
    ) -> None:  # fmt: skip
        """asked: samples that were not in the store. cited: what is known of the judge."""
        spent, before = session.spent, self.parts.get(self.part, {})
        latest = {
            "samples": asked,
            "seconds": round(seconds, 3),
            "stopped": session.stopped,
            "logs": [log] if log else [],
        }
        self.parts[self.part] = {
            "benchmark": self.benchmark.name,
            "benchmark_revision": self.benchmark.revision,
            "samples": len(scored),
            "outcomes": dict(Counter(answer.outcome for answer in scored)),
            **asdict(spent),
            "dollars": judge.dollars(spent.input_tokens, spent.output_tokens),
            **({"refused": sorted(session.refused)} if session.refused else {}),
            "damaged_replies": session.store.damaged,
            "calibration": cited,
            "runs": [*before.get("runs", []), *([latest] if asked else [])],
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_json(self.path, {"judge": judge.to_dict(), "parts": self.parts})


# --- one question over HTTP ------------------------------------------------------------------------------------------


def expect_answer(judge: JudgeConfig) -> None:
    """Show the judge a grey image: one that cannot be asked is known before anything is drawn.

    Raises:
        UserError: no reply, after all retries; a wrong or missing key; no such model.
    """
    import numpy as np

    nano = judge.dialect == "nano"
    side = 24 if nano else 64
    shown = encode_png(np.full((side, side, 3), 128, np.uint8))
    words = family_of(judge.dialect).phrases()["caption"] if nano else "What does this image show? Answer in one word."

    async def show(client: Client, turn: Turn) -> None:
        await ask(client, judge, [turn], None)

    try:
        ask_all([Turn("user", words, (shown,))], show, _key(judge), judge)
    except NoReply as error:
        raise UserError(
            f"the judge {judge.name}{judge.where} does not answer ({error})",
            "Start it, or wait until it is up, and run the same command again.",
        ) from None


def with_served_revision(judge: JudgeConfig, seen: LastSeen | None = None) -> JudgeConfig:
    """The judge, and its small ones, with what their servers say of their weights as `served`.

    Replies then outlive the port of `uni_train serve`, and not its weights. Of a server that does not answer, what it
    said last. Unchanged where a revision is given, for services, and where the server says nothing: `run` warns then.
    """
    judge = replace(judge, small=tuple(with_served_revision(small, seen) for small in judge.small))
    if judge.revision or judge.base_url is None:
        return judge
    server = {"judge": judge.name, "at": judge.base_url}
    content = ""
    try:
        about = get_json(f"{judge.base_url}/models", _key(judge), replace(judge, retries=0, timeout=_PATIENCE))
        listed = next(model for model in about["data"] if model["id"] == judge.name)
        content = served_content(listed)
        if content and "uni_train" not in listed:  # no hash of the weights: it may not tell two servers apart
            content = f"{judge.base_url}@{content}"
    except (BadReply, NothingCame, LookupError, TypeError, StopIteration) as error:
        # A gateway before it answers 502.
        if isinstance(error, NothingCame) or (isinstance(error, Refused) and error.passes):
            return replace(judge, served=((seen and seen.report_of(server)) or {}).get("content", ""))
    if seen is not None:
        seen.keep(server, {"content": content})
    return replace(judge, served=content)


def _key(judge: JudgeConfig) -> str:
    """Raises UserError: the variable with the judge's key is empty."""
    return key_for(judge.address, judge.key_env)


async def ask(
    client: Client, judge: JudgeConfig, turns: Sequence[Turn], schema: Mapping[str, Any] | None, draw: int = 0
) -> Reply:
    """The judge's reply; draw: which of several to one question.

    What a server refuses by name (a schema, a temperature) is left out, and named in `Reply.refused`: the prompt asks
    for its form in words too.

    Raises:
        UserError: what no other question helps (a wrong key, no such model). NoReply: this one has no reply.
    """
    url, _, name = judge.address.rpartition("#")
    body = _body(judge, name, turns, schema, draw)
    refused: list[str] = []
    while True:
        try:
            reply = _read(await client.ask(f"{url}/chat/completions", body), judge)
            return replace(reply, refused=tuple(refused)) if refused else reply
        except Refused as error:
            if "content_filter" in str(error.code) or "content_policy" in str(error.code):
                return Reply("", "content_filter")
            if error.status in (400, 422) and (key := _without_what_it_refuses(body, error.reason)):
                refused += [] if key == "max_tokens" else [key]  # sent under its newer name
                continue
            raise _understood(error, judge) from None
        except (NothingCame, BadReply) as error:
            raise NoReply(str(error)[:_LONGEST], gone=True) from None


def _body(
    judge: JudgeConfig, name: str, turns: Sequence[Turn], schema: Mapping[str, Any] | None, draw: int
) -> dict[str, Any]:
    # A server of one's own is sent a seed from the second draw on: `uni_train serve` gives one reply a seed.
    seed = judge.seed + draw if judge.seed is not None else (draw or None) if judge.base_url else None
    body = {"model": name, "messages": [_message(turn) for turn in turns], "max_tokens": judge.max_tokens}
    body |= {"temperature": judge.effective_temperature} | ({} if seed is None else {"seed": seed})
    if schema is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "reply", "schema": dict(schema)}}
    return body | judge.extra_body


def _message(turn: Turn) -> dict[str, Any]:
    """Images come before the words."""
    if not turn.images:
        return {"role": turn.role, "content": turn.text}
    images = [{"type": "image_url", "image_url": {"url": data_url(image)}} for image in turn.images]
    return {"role": turn.role, "content": [*images, {"type": "text", "text": turn.text}]}


def _without_what_it_refuses(body: dict[str, Any], reason: str) -> str:
    """Take out of `body` what the server's reason is about, and name it; "" where that may not be missing."""
    key = without_refused(body, reason, ("temperature", "seed"))
    return key or ("response_format" if body.pop("response_format", None) is not None else "")


def _read(answer: Any, judge: JudgeConfig) -> Reply:
    """Raises NoReply for what is no chat completion."""
    completion = completions.read(answer)
    if completion is None:
        raise NoReply(f"no chat completion{judge.where} but {str(answer)[:200]!r}", gone=True)
    text, longest = completion.text, judge.max_tokens * LETTERS_A_TOKEN
    stop = completion.stop if len(text) <= longest else "max_tokens"
    return Reply(text[:longest], stop, completion.input_tokens, completion.output_tokens)


def _understood(error: Refused, judge: JudgeConfig) -> UserError | NoReply:
    """A UserError for what no retry and no other question helps, else why this question has no reply."""
    who, reason = f"{judge.name}{judge.where}", error.reason[:_LONGEST]
    if error.status in (401, 403):
        variable = key_variable(judge.address, judge.key_env)
        if variable is None:
            hint = "Put its key into a variable and name that: judge.key_env=NAME."
            return UserError(f"the judge {who} wants a key ({error.status})", hint)
        return UserError(
            f"the judge {who} refuses the key in {variable} ({error.status})",
            "Put a valid key there and run the same command again; what was judged is kept.",
        )
    if error.status == 404:
        return UserError(
            f"there is no judge {who} (404: {reason})",
            "Check the model's name and the address (most servers want it to end in /v1).",
        )
    if error.status in REDIRECTS:
        return UserError(
            f"the judge {who} is elsewhere ({error.status}: {reason})",
            "Give the address that it redirects to, if you trust it with the key.",
        )
    return NoReply(f"{error.status}: {reason}", gone=error.passes)
