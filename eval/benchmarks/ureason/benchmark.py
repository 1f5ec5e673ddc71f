"""UReason (Yang et al. 2026, arXiv 2602.08336): is what a model reasons out in words also what it draws?

The same instance is asked in three settings: *direct* (the plain instruction), *reasoning-guided* (think, then draw in
the same context) and *de-contextualized* (draw from the refined prompt of that same thought alone; equations 1 to 3).
Visual verification accuracy is equation 4. The gains of equation 5 are paired: direct to reasoning-guided is what
reasoning brings, reasoning-guided to de-contextualized is what the rest of the context costs (contextual interference).

Further settings: `reasoning_chain` scores the thought itself (Table 3), `decontextualized_4x` and `_8x` repeat the
refined prompt (Table 4), `external_prompt` has another model write it (Figure 3). All thoughtful settings of a case
share one thought, and all settings its noise.

How the refined prompt is found is `compat` (`extraction`). With "paper" the prompt asks for it between tags, or as
published (`options.ureason.prompt=published`, with strict extraction all the same); "official" asks as published.

Images of nano are checked by program, others by a judge (Figures 25 and 26).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.data_gen import sprites
from uni_train.data_gen.seeds import derive_seed
from uni_train.data_gen.task import Check, Verdict
from uni_train.data_gen.ureason.outcomes import Outcome, Sprites, outcome_from
from uni_train.data_gen.ureason.taxonomy import TASKS
from uni_train.errors import UsageError, did_you_mean
from uni_train.eval.benchmark import (
    Ask,
    Benchmark,
    Case,
    JudgeAsk,
    Option,
    Respondent,
    Sample,
    Scored,
    Source,
    Table,
    Unparseable,
    benchmark,
    expect_known,
    note_of,
)
from uni_train.eval.benchmarks.ureason import counting, errors
from uni_train.eval.benchmarks.ureason.extraction import _LABEL, extract
from uni_train.eval.benchmarks.ureason.settings import (
    BARE,
    CHAIN,
    DIRECT,
    EXTERNAL,
    GUIDED,
    HEADLINE,
    LENGTHS,
    REASONING,
    SETTINGS,
)
from uni_train.eval.images import encoded, pixels
from uni_train.eval.prompts import ureason as prompts
from uni_train.eval.submission import file_name, first_draws, json_lines
from uni_train.models.pictures import encode_png

if TYPE_CHECKING:
    from uni_train.data_gen.ureason.files import Row
    from uni_train.eval.calls import StoredModel
    from uni_train.models.base import OnStep, Request

# Where the released scripts keep the images of a setting.
_RELEASED = {DIRECT: "direct/direct_{task}", GUIDED: "think/{task}", BARE: "think-generated_prompts/{task}"}
COMPATS = ("paper", "official")
VERIFIERS = ("program", "judge")
PROMPTS = ("tagged", "published")
PROTOCOL = "ureason/1"  # what is asked; a change makes another revision
LEVELS = (1, 2, 3)
SIZES = ((100,), (300,))  # instances of each task in testmini and in test
_CAUSES = {"unreadable": "image unreadable", "unparseable": "judge unreadable"}


@benchmark("ureason")
class UReason(Benchmark):
    """The benchmark over the files in `data`, or over instances of our own.

    data: a folder with `<task>.jsonl` and `direct_<task>.jsonl`, as published or as `data make --task ureason` writes
    them; None for `n` instances of each task of `world` ("nano" or "everyday"), of all `levels` alike, from `split` and
    `seed`. sets: which tasks; None: all that `data` or the world has. settings: None for all, but `external_prompt`
    only where there is an `external` model, which writes the refined prompts of that setting (behind a store of its
    own). prompt: "published" asks as published, with strict extraction (compat "official" always asks so). errors_by:
    "judge" has the judge tell error types apart. tokenizer: see `lengths.measure`. verifier: "judge" leaves nano's
    images to the judge too, to compare it with the program.

    Raises UsageError for an unknown name, DataError for files that cannot be used.
    """

    name = "ureason"
    published: bool
    known_sets = tuple(TASKS)
    headline = HEADLINE
    options = (
        Option("prompt_model", "", "also draw from refined prompts that this model writes"),
        Option(
            "prompt", "tagged", "what thoughtful settings are asked: with a request for tags, or as published", PROMPTS
        ),
        Option("errors", "program", "who tells error types of setting 2 apart", VERIFIERS),
        Option("tokenizer", "", "folder with tokenizer.json that counts contexts; empty: words"),
    )

    @classmethod
    def open(cls, source: Source, *, prompt_model: str, prompt: str, errors: str, tokenizer: str) -> UReason:
        external = source.open_model(prompt_model) if prompt_model and source.open_model is not None else None
        return cls(
            source.data, external=external, prompt=prompt, errors_by=errors, tokenizer=tokenizer, **source.arguments
        )

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        world: str = "nano",
        n: int = 100,
        split: str = "test",
        seed: int = 0,
        levels: Sequence[int] = LEVELS,
        settings: Sequence[str] | None = None,
        sets: Sequence[str] | None = None,
        compat: str = "paper",
        verifier: str = "program",
        external: StoredModel | None = None,
        prompt: str = "tagged",
        errors_by: str = "program",
        tokenizer: str = "",
    ) -> None:
        known = SETTINGS if external is not None else tuple(name for name in SETTINGS if name != EXTERNAL)
        expect_known("UReason", "setting", settings or (), SETTINGS)
        expect_known("UReason", "set", sets or (), TASKS)
        expect_known("UReason", "compat", (compat,), COMPATS)
        expect_known("UReason", "verifier", (verifier,), VERIFIERS)
        expect_known("UReason", "prompt", (prompt,), PROMPTS)
        expect_known("UReason", "errors", (errors_by,), VERIFIERS)
        if external is None and EXTERNAL in (settings or ()):
            raise UsageError(
                f"the setting {EXTERNAL} needs a model that writes the refined prompts",
                "Name one (an endpoint or a checkpoint), or leave the setting out.",
            )
        rows = _generated(world, n, levels, split, seed, sets) if data is None else _published(Path(data), sets)
        self.compat, self.verifier, self.external = compat, verifier, external
        self.prompt, self.errors_by, self.tokenizer = prompt, errors_by, tokenizer
        self._cases = tuple(_case(row) for row in rows)
        sizes = set(Counter(case.set for case in self._cases).values())
        own = any("outcome" in case.facts for case in self._cases)
        self.whose(None if own else data, published=sizes in map(set, SIZES))
        self.whole = len(TASKS) * max(sizes, default=0)
        self.world = str(self._cases[0].facts.get("world", world)) if self._cases else world
        self.sets = tuple(task for task in TASKS if any(case.set == task for case in self._cases))
        self.settings = tuple(name for name in known if settings is None or name in settings)
        self.revision = _revision(self._cases, compat, verifier, external, prompt)

    def cases(self) -> Sequence[Case]:
        return self._cases

    def helpers(self) -> Mapping[str, StoredModel]:
        return {} if self.external is None else {"answer": self.external}

    def told(self) -> Mapping[str, Any]:
        """What the writer of prompts is, and not what it was called; who tells errors apart."""
        told: dict[str, Any] = {} if self.errors_by == "program" else {"errors": self.errors_by}
        if self.external is not None:
            identity = self.external.identity
            told["prompt_model"] = {"content": identity.content, "settings": dict(identity.settings)}
        return told

    @classmethod
    def complexity(cls, case: Case) -> tuple[str, float] | None:
        """The level of our own instances: how many steps the story or snippet has."""
        level = case.facts.get("level")
        return None if level is None else (f"level of {case.set}", float(level))

    @classmethod
    def submission(cls, scored: Iterable[Scored]) -> Iterator[tuple[str, bytes]]:
        """The folders that the released scripts write and score: ID.png of each setting and task, the thoughts in
        TASK.jsonl, the refined prompts in prompts.jsonl."""
        thoughts: dict[str, list[dict[str, Any]]] = {}
        for one in first_draws(scored):
            sample, case, setting = one.sample, one.sample.ask.case, one.sample.ask.setting
            folder = _RELEASED.get(setting)
            if folder is None:
                continue
            place = folder.format(task=case.set)
            image = sample.image
            if image is not None:
                yield f"{place}/{file_name(case.id)}.png", image
            if setting == GUIDED and sample.thought is not None:
                row = {"id": case.id, "thought": sample.thought}
                thoughts.setdefault(f"{place}/{case.set}.jsonl", []).append(row)
            if setting == BARE and sample.status == "ok":
                row = {"id": case.id, "prompt": sample.prompt}
                thoughts.setdefault(f"{place}/prompts.jsonl", []).append(row)
        for name, rows in thoughts.items():
            yield name, json_lines(rows)

    def reference(self, case: Case) -> bytes | None:
        outcome = _outcome(case)
        if not isinstance(outcome, Sprites):
            return None
        return encode_png(outcome.render(derive_seed(0, "reference", case.id)))

    def calls(self, asks: Sequence[Ask]) -> dict[str, int]:
        """A thought once for all settings that share it; at most one judgement of it beside those of the images."""
        thinks = {(ask.case.id, ask.k) for ask in asks if _thinks(ask.setting)}
        pictures = [ask for ask in asks if ask.setting != CHAIN]
        by_program = {ask.case.id for ask in asks if ask.case.facts.get("world") == "nano"}
        judged = [ask for ask in pictures if ask.case.id not in by_program or self.verifier == "judge"]
        chains = {place for place in thinks if place[0] not in by_program}
        answers = sum(ask.setting == EXTERNAL for ask in asks)
        return {
            "think": len(thinks), "draw": len(pictures), "answer": answers, "judge": len(judged) + len(chains),
        }  # fmt: skip

    # --- asking --------------------------------------------------------------------------------------------------

    def respond(self, model: Respondent, asks: Sequence[Ask], on_step: OnStep | None = None) -> list[Sample]:
        """Think where a setting needs it, find the refined prompts, draw."""
        thoughts = self._thoughts(model, asks, on_step)
        samples = [self._prepared(ask, thoughts) for ask in asks]
        rows = [row for row, sample in enumerate(samples) if sample.status == "ok" and sample.ask.setting != CHAIN]
        pictures = model.draw([_drawing(samples[row]) for row in rows], on_step=on_step) if rows else []
        for row, picture in zip(rows, pictures, strict=True):
            if isinstance(picture, Exception):
                samples[row] = replace(samples[row], status="generation_failed", note=note_of(picture))
            else:
                samples[row] = replace(samples[row], parts=(encoded(picture),))
        return samples

    def _thoughts(
        self, model: Respondent, asks: Sequence[Ask], on_step: OnStep | None
    ) -> dict[tuple[str, int, bool], str | Exception]:
        """(case id, k, external) -> what was thought."""
        own = {_place_of(ask): _request(ask, self._asked(ask.case)) for ask in asks if _thinks(ask.setting)}
        other = {
            _place_of(ask): _request(ask, prompts.external_prompt(ask.case.facts["direct"]))
            for ask in asks
            if ask.setting == EXTERNAL
        }
        found: dict[tuple[str, int, bool], str | Exception] = {}
        if own:
            texts = model.think(list(own.values()), on_step=on_step)
            found.update(((*place, False), text) for place, text in zip(own, texts, strict=True))
        if other:
            assert self.external is not None, "the setting is not offered without a model"
            texts = self.external.answer(list(other.values()), on_step=on_step)
            found.update(((*place, True), text) for place, text in zip(other, texts, strict=True))
        return found

    def _asked(self, case: Case) -> str:
        """The prompt of the thoughtful settings. nano is asked in its own words, and always says its label."""
        plain = self.compat == "official" or self.prompt == "published" or case.facts.get("world") == "nano"
        return case.prompt if plain else f"{case.prompt}\n{prompts.ASK_FOR_REFINED_PROMPT}"

    def _prepared(self, ask: Ask, thoughts: Mapping[tuple[str, int, bool], str | Exception]) -> Sample:
        """What is known before drawing."""
        case = ask.case
        if ask.setting == DIRECT:
            return Sample(ask, prompt=case.facts["direct"])
        thought = thoughts[*_place_of(ask), ask.setting == EXTERNAL]
        if isinstance(thought, Exception):
            return Sample(ask, status="generation_failed", note=f"no thought: {note_of(thought)}")
        refined = extract(thought, self.compat, case.facts.get("world", "everyday"))
        facts = {"extraction": refined.how, "refined": refined.text}
        if ask.setting in (GUIDED, CHAIN):
            return Sample(ask, prompt=self._asked(case), thought=thought, facts=facts)
        if not refined.text:
            note = "the thought has no refined prompt" if thought.strip() else "the thought is empty"
            return Sample(ask, status="not_extracted", note=note, thought=thought, facts=facts)
        prompt = " ".join([refined.text] * LENGTHS.get(ask.setting, 1))
        return Sample(ask, prompt=prompt, thought=thought, facts=facts)

    # --- scoring -------------------------------------------------------------------------------------------------

    def check(self, sample: Sample) -> Verdict | None:
        """nano's images are read by program; of thoughts, those whose conclusion leaves no doubt."""
        outcome = _outcome(sample.ask.case)
        if outcome is None:
            return None
        if sample.ask.setting == CHAIN:
            right = _concludes(sample, outcome)
            return None if right is None else _chain_verdict(right, sample, outcome)
        if isinstance(outcome, Sprites) and sample.drawn and self.verifier == "program":
            return self._typed(sample, outcome)
        return None

    async def judge(self, sample: Sample, ask: JudgeAsk) -> Verdict:
        """Figure 25 of an image, Figure 26 of a thought.

        Of a wrong image the thought behind it is judged too, for the attribution, unless a program knows. The
        question is the one that `reasoning_chain` asks, so that it is paid for once.
        """
        from uni_train.eval.judges import caption_matches, image_satisfies, thought_satisfies
        from uni_train.eval.judges.questions import dialect

        case, thought = sample.ask.case, sample.thought
        criterion = str(case.facts["criterion"])
        if sample.ask.setting == CHAIN:
            return await thought_satisfies(ask, case.prompt, thought or "", criterion)
        image = sample.image
        assert image is not None, "only samples with an image are judged"
        outcome = _outcome(case)
        if dialect(ask) == "nano":
            if not isinstance(outcome, Sprites):
                raise UsageError("nano can judge no images but those of its own world", "Choose another judge.")
            if len(outcome.groups) > 1:
                return Verdict((Check("caption", "unreadable", "nano captions one kind of object"),))
            return await caption_matches(ask, image, str(outcome), kind="maths")
        verdict = await image_satisfies(ask, image, criterion)
        known = outcome is not None and _concludes(sample, outcome) is not None
        if verdict.status == "fail" and outcome is not None and known and _concludes(sample, outcome):
            return await self._judged_type(sample, verdict, image, ask)
        if verdict.status != "fail" or thought is None or known:
            return verdict
        try:
            chain = await thought_satisfies(ask, case.prompt, thought, criterion)
        except Unparseable:
            return verdict
        verdict = Verdict((*verdict.checks, *chain.checks))
        if not chain.passed:
            return verdict
        return await self._judged_type(sample, verdict, image, ask)

    def _typed(self, sample: Sample, outcome: Sprites) -> Verdict:
        """A program's verdict; of a wrong image in setting 2 whose thought is right with the type of its error."""
        shown = pixels(sample.drawn[-1])
        verdict = outcome.verify(shown)
        if sample.ask.setting != GUIDED or verdict.status != "fail" or not _concludes(sample, outcome):
            return verdict
        kind = errors.by_program(outcome, sample.ask.case.prompt, sprites.read(shown).name)
        return Verdict((*verdict.checks, Check(errors.CHECK, "fail", kind)))

    async def _judged_type(self, sample: Sample, verdict: Verdict, image: bytes, ask: JudgeAsk) -> Verdict:
        """The same with the type of the error, where the judge is to tell it."""
        if self.errors_by != "judge" or sample.ask.setting != GUIDED:
            return verdict
        case = sample.ask.case
        try:
            kind = await errors.judged(ask, image, case.prompt, str(case.facts["criterion"]))
        except Unparseable:
            return verdict
        return Verdict((*verdict.checks, Check(errors.CHECK, "fail", kind)))

    def attribute(self, scored: Scored) -> str:
        """ "reasoning wrong", "not extracted", "drawn wrong", "judge unreadable", ...; "" for a sample that is right.

        A wrong image of a right thought is drawn wrong; of a wrong one, the reasoning is to blame. "wrong, no
        thought" is setting 1; "wrong, reasoning not judged" where neither a program nor the judge knows of the thought.
        """
        if scored.passed:
            return ""
        sample = scored.sample
        if scored.outcome != "fail":
            return _CAUSES.get(scored.outcome, scored.outcome.replace("_", " "))
        if sample.ask.setting == CHAIN:
            return "reasoning wrong"
        if sample.thought is None:
            return "wrong, no thought"
        right = self.right(scored)
        if right is None and scored.verdict is not None:
            right = next((c.status == "pass" for c in scored.verdict.checks if c.name == REASONING), None)
        return {True: "drawn wrong", False: "reasoning wrong", None: "wrong, reasoning not judged"}[right]

    def right(self, scored: Scored) -> bool | None:
        """Whether the thought behind a sample concludes rightly, as far as a program can tell."""
        outcome = _outcome(scored.sample.ask.case)
        return None if outcome is None else _concludes(scored.sample, outcome)

    # --- counting ------------------------------------------------------------------------------------------------

    def scores(self, scored: Iterable[Scored]) -> dict[str, Any]:
        """setting -> task or "overall" -> Estimate, and beside the settings:

        "gains": (reasoning | interference | length_4x | length_8x | external) -> task or "overall" ->
        PairedComparison. "of_right_thoughts": setting -> task or "overall" -> Estimate. "subcategories": setting ->
        task -> subcategory -> Estimate. "extraction": how -> share of the thoughts. "outcomes": setting -> outcome ->
        share of the samples. "errors": type -> share of the wrong images of setting 2.
        """
        return counting.scores(self.count(scored))

    def tables(self, scored: Iterable[Scored]) -> list[Table]:
        """The layouts of Tables 2 (or 7), 11, 3, 4 and 8, error types and Figure 3, then what the paper leaves out."""
        return [table for table in counting.tables(self.count(scored)) if table.rows]

    def count(self, scored: Iterable[Scored]) -> counting.Count:
        """The samples, with what their numbers depend on beside them."""
        return counting.Count(
            scored,
            self.right,
            published=self.published,
            cases=self.whole or 0,
            compat=self.compat,
            tokenizer=self.tokenizer,
            writer=getattr(self.external, "name", "external model"),
        )


def _published(folder: Path, sets: Sequence[str] | None) -> list[Row]:
    from uni_train.data_gen.ureason.files import read_folder

    there = [task for task in TASKS if (folder / f"{task}.jsonl").is_file()]
    return read_folder(folder, [task for task in TASKS if task in (sets or there or TASKS)])


def _generated(
    world: str, n: int, levels: Sequence[int], split: str, seed: int, sets: Sequence[str] | None
) -> list[Row]:
    from uni_train.data_gen.objects import get_world
    from uni_train.data_gen.ureason.files import row_of
    from uni_train.data_gen.ureason.task import UReason as Task
    from uni_train.data_gen.ureason.taxonomy import subcategories

    there = subcategories(get_world(world).name)
    lacking = [task for task in sets or () if task not in there]
    if lacking:
        raise UsageError(f"the {world} world has no {lacking[0]}", did_you_mean(lacking[0], there, "sets"))
    shares = [n // len(levels) + (index < n % len(levels)) for index in range(len(levels))]
    return [
        row_of(item)
        for task in sets or there
        for level, share in zip(levels, shares, strict=True)
        if share
        for item in Task(get_world(world), (task,)).generate(share, level, split, seed)
    ]


def _revision(cases: Sequence[Case], compat: str, verifier: str, external: Respondent | None, prompt: str) -> str:
    rows = [[case.id, case.set, case.prompt, case.category, dict(case.facts)] for case in cases]
    # A stored model says what it is, others have but a name.
    identity = getattr(external, "identity", None)
    writer = None if external is None else external.name if identity is None else identity.key
    asked = [PROTOCOL, compat, verifier, writer, _LABEL.pattern, prompts.ASK_FOR_REFINED_PROMPT]
    asked += [prompt] if compat == "paper" and prompt != "tagged" else []
    text = json.dumps([*asked, rows], sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _case(row: Row) -> Case:
    facts = {**row.facts, "criterion": row.criterion, "direct": row.direct}
    return Case(id=row.id, set=row.task, prompt=row.prompt, category=row.subcategory, facts=facts)


def _thinks(setting: str) -> bool:
    return setting not in (DIRECT, EXTERNAL)


def _request(ask: Ask, prompt: str, thought: str | None = None) -> Request:
    from uni_train.models.base import Request

    # The id names the case and the draw, not the setting: equal calls of two settings are then one stored call.
    return Request(f"{ask.case.id}#{ask.k}", prompt, thought=thought, seed=ask.seed)


def _drawing(sample: Sample) -> Request:
    """Setting 2 draws in the context of its thought, all others from their prompt alone."""
    return _request(sample.ask, sample.prompt, sample.thought if sample.ask.setting == GUIDED else None)


def _outcome(case: Case) -> Outcome | None:
    return outcome_from(case.facts["outcome"]) if "outcome" in case.facts else None


def _concludes(sample: Sample, outcome: Outcome) -> bool | None:
    """Whether the conclusion of the sample's thought is right, as far as a program can tell.

    nano always says its conclusion in the same words, so that one without them has none.
    """
    thought = sample.thought or ""
    world = sample.ask.case.facts.get("world", "everyday")
    conclusion = extract(thought, "paper", world).text
    if not conclusion:
        return False if isinstance(outcome, Sprites) else None
    return outcome.find(conclusion)


def _chain_verdict(right: bool, sample: Sample, outcome: Outcome) -> Verdict:
    reason = "" if right else f"the thought does not end in: {outcome.criterion()}"
    return Verdict((Check(REASONING, "pass" if right else "fail", reason),))


def _place_of(ask: Ask) -> tuple[str, int]:
    return ask.case.id, ask.k
