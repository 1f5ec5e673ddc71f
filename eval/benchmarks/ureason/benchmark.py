"""UReason (Yang et al. 2026, arXiv 2602.08336): is what a model reasons out in words also what it draws?

The same instance is asked in three settings (equations 1 to 3). *Direct*: the plain instruction. *Reasoning-guided*:
think, then draw in the same context. *De-contextualized*: draw from the refined prompt of that same thought alone.
Visual verification accuracy is equation 4. The gains of equation 5 are paired: direct to reasoning-guided is what
reasoning brings, reasoning-guided to de-contextualized is what the rest of the context costs (contextual interference).

Further settings: `reasoning_chain` scores the thought itself (Table 3). `decontextualized_4x` and `_8x` repeat the
refined prompt (Table 4). `external_prompt` has another model write it (Figure 3). All thoughtful settings of a case
share one thought, and all settings its noise.

How the refined prompt is found is `compat` (`extraction`). Both ways the prompt is the published one; with
`options.ureason.prompt=tagged` (ours) and "paper" it also asks for the refined prompt between tags.

Images of nano are checked by program, others by a judge (Figures 25 and 26).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from uni_train.core.errors import UsageError, did_you_mean
from uni_train.core.seeds import derive_seed
from uni_train.data_gen import sprites
from uni_train.data_gen.task import Check, Verdict
from uni_train.data_gen.ureason.outcomes import Outcome, Sprites, outcome_from
from uni_train.data_gen.ureason.taxonomy import TASKS
from uni_train.eval.benchmark import (
    VERIFIERS,
    Ask,
    Benchmark,
    Case,
    JudgeAsk,
    Option,
    Sample,
    Scored,
    Source,
    Step,
    Unit,
    Unparseable,
    benchmark,
    described,
    failed,
    request_of,
    verdict_of,
    with_image,
)
from uni_train.eval.benchmarks.ureason import counting, errors
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
from uni_train.eval.extraction import LABEL, extract
from uni_train.eval.images import pixels
from uni_train.eval.paper import TableSpec
from uni_train.eval.prompts import ureason as prompts
from uni_train.eval.results import Results, unit_of
from uni_train.models.pictures import encode_png

if TYPE_CHECKING:
    from uni_train.data_gen.ureason.files import Row
    from uni_train.eval.calls import StoredModel
    from uni_train.models.base import Request

# Where the released scripts keep the images of a setting.
_RELEASED = {DIRECT: "direct/direct_{task}", GUIDED: "think/{task}", BARE: "think-generated_prompts/{task}"}
PROMPTS = ("published", "tagged")
PROTOCOL = "ureason/1"  # what is asked; a change makes another revision
LEVELS = (1, 2, 3)
SIZES = (100, 300)  # instances of each task in testmini and in test
NUMBERED = ("text", "code", "attribute", "spatial", "arithmetic")  # whose ids count on in this order
_CAUSES = {"unreadable": "image unreadable", "unparseable": "judge unparseable"}


@benchmark("ureason")
class UReason(Benchmark):
    """The benchmark over published files, or over instances of our own.

    source.data: a folder with `<task>.jsonl` and `direct_<task>.jsonl`, as published or as `data make --task ureason`
    writes them; None for `n` instances of each task of `world` ("nano" or "everyday"), of all `levels` alike.
    prompt_model: writes the refined prompts of the setting `external_prompt`. prompt: "tagged" asks for the refined
    prompt between tags, behind the published prompt (compat "official" never does). errors: "judge" has the judge tell
    error types apart.
    tokenizer: see `lengths.measure`. verifier: "judge" leaves nano's images to the judge too, to compare it with the
    program.

    Raises UsageError for an unknown name, DataError for files that cannot be used.
    """

    name, title = "ureason", "UReason"
    known_sets = tuple(TASKS)
    hashed = ("id", "set", "prompt", "category", "facts")
    headline = HEADLINE
    options = (
        Option("prompt_model", "", "also draw from refined prompts that this model writes"),
        Option("prompt", "published", "what thoughtful settings are asked: that, or with a request for tags", PROMPTS),
        Option("errors", "program", "who tells error types of setting 2 apart", VERIFIERS),
        Option("tokenizer", "", "folder with tokenizer.json that counts contexts; empty: words"),
    )

    def __init__(
        self,
        source: Source,
        *,
        prompt_model: str = "",
        prompt: str = "published",
        errors: str = "program",
        tokenizer: str = "",
        levels: Sequence[int] = LEVELS,
    ) -> None:
        self.prompt, self.errors_by, self.tokenizer = prompt, errors, tokenizer
        self.external = source.other(prompt_model)
        writer = None if self.external is None else _identity(self.external)
        asked = [PROTOCOL, source.compat, source.verifier, writer, LABEL.pattern, prompts.ASK_FOR_REFINED_PROMPT]
        settings = [name for name in SETTINGS if name != EXTERNAL or self.external is not None]
        cases = [*map(_case, _generated(source, levels) if source.data is None else _published(source))]
        if source.compat == "paper" and prompt == "published" and any(_world(case) != "nano" for case in cases):
            asked.append(prompt)
        super().__init__(source, cases, settings=settings, asked=asked)
        ours = any("outcome" in case.facts for case in self._cases)
        there = [(task, at) for at, task in enumerate(NUMBERED) if task in self.sets]
        paper = [[f"{task} {at * n + i}" for task, at in there for i in range(1, n + 1)] for n in SIZES]
        self.set_origin(None if ours else source.data, (f"{case.set} {case.id}" for case in self._cases), *paper)
        self.total_cases = len(TASKS) * max(Counter(case.set for case in self._cases).values(), default=0)
        self.world = str(self._cases[0].facts.get("world", source.world)) if self._cases else source.world

    def helpers(self) -> Mapping[str, StoredModel]:
        return {} if self.external is None else {"answer": self.external}

    def recorded_options(self) -> Mapping[str, Any]:
        """What the writer of prompts is, and not what it was called; who tells errors apart."""
        errors_by = {} if self.errors_by == "program" else {"errors": self.errors_by}
        return errors_by if self.external is None else {**errors_by, "prompt_model": described(self.external)}

    @classmethod
    def complexity(cls, case: Case) -> tuple[str, float] | None:
        """The level of our own instances: how many steps the story or snippet has."""
        level = case.facts.get("level")
        return None if level is None else (f"level of {case.set}", float(level))

    @classmethod
    def submission(cls, scored: Iterable[Scored]) -> Iterator[tuple[str, bytes]]:
        """The folders that the released scripts write and score: ID.png of each setting and task, the thoughts in
        TASK.jsonl, the refined prompts in prompts.jsonl."""
        from uni_train.eval.submission import file_name, first_draws, json_lines

        thoughts: dict[str, list[dict[str, Any]]] = {}
        for draw in first_draws(scored):
            sample, case, setting = draw.sample, draw.sample.ask.case, draw.sample.ask.setting
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
        by_program = {ask.case.id for ask in asks if _world(ask.case) == "nano"}
        thinks = {(ask.case.id, ask.k) for ask in asks if _thinks(ask.setting)}
        pictures = [ask.case.id for ask in asks if ask.setting != CHAIN]
        judged = sum(self.verifier == "judge" or case not in by_program for case in pictures)
        chains = sum(case not in by_program for case, _ in thinks)
        answers = sum(ask.setting == EXTERNAL for ask in asks)
        return {"think": len(thinks), "draw": len(pictures), "answer": answers, "judge": judged + chains}

    # --- asking --------------------------------------------------------------------------------------------------

    def begin(self, ask: Ask) -> Sample:
        return Sample(ask, prompt=str(ask.case.facts["direct"]) if ask.setting == DIRECT else "")

    def steps(self) -> Iterable[Step]:
        """Think where a setting needs it, find the refined prompts, draw."""
        failing = partial(failed, lacking="no thought: ")

        def question(sample: Sample) -> Request:
            return request_of(sample.ask, self._asked(sample.ask.case))

        def written(sample: Sample) -> Request:
            return request_of(sample.ask, prompts.external_prompt(sample.ask.case.facts["direct"]))

        def drawing(sample: Sample) -> Request:
            """Setting 2 draws in the context of its thought, all others from their prompt alone."""
            return request_of(sample.ask, sample.prompt, sample.thought if sample.ask.setting == GUIDED else None)

        yield Step(
            "think", lambda sample: _thinks(sample.ask.setting), question, self._with_thought, failing, once=True
        )
        if self.external is not None:
            yield Step(
                "answer", lambda sample: sample.ask.setting == EXTERNAL, written, self._with_thought, failing,
                model=self.external, makes="thought",
            )  # fmt: skip
        yield Step("draw", lambda sample: sample.ask.setting != CHAIN, drawing, with_image)

    def _asked(self, case: Case) -> str:
        """The prompt of the thoughtful settings. nano is asked in its own words, and always says its label."""
        plain = self.compat == "official" or self.prompt != "tagged" or _world(case) == "nano"
        return case.prompt if plain else f"{case.prompt}\n{prompts.ASK_FOR_REFINED_PROMPT}"

    def _with_thought(self, sample: Sample, thought: str) -> Sample:
        """What is drawn from after a thought."""
        case, setting = sample.ask.case, sample.ask.setting
        refined = extract(thought, self.compat, _world(case))
        sample = replace(sample, thought=thought, facts={"extraction": refined.how, "refined": refined.text})
        if setting in (GUIDED, CHAIN):
            return replace(sample, prompt=self._asked(case))
        if not refined.text:
            note = "the thought has no refined prompt" if thought.strip() else "the thought is empty"
            return replace(sample, status="not_extracted", note=note)
        return replace(sample, prompt=" ".join([refined.text] * LENGTHS.get(setting, 1)))

    # --- scoring -------------------------------------------------------------------------------------------------

    def check(self, sample: Sample) -> Verdict | None:
        """nano's images are read by program; of thoughts, those whose conclusion leaves no doubt."""
        outcome = _outcome(sample.ask.case)
        if outcome is None:
            return None
        if sample.ask.setting == CHAIN:
            right = _concludes(sample, outcome)
            reason = f"the thought does not end in: {outcome.criterion()}"
            return None if right is None else verdict_of(REASONING, right, reason)
        if isinstance(outcome, Sprites) and sample.drawn and self.verifier == "program":
            return self._typed(sample, outcome)
        return None

    async def judge(self, sample: Sample, ask: JudgeAsk) -> Verdict:
        """Figure 25 of an image, Figure 26 of a thought.

        Of a wrong image the thought behind it is judged too, for the attribution, unless a program knows. The
        question is the one that `reasoning_chain` asks, so that it is paid for once.
        """
        from uni_train.eval.judges import caption_matches, dialect, image_satisfies, thought_satisfies

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
        right = self.right(Scored(sample))
        if verdict.status != "fail" or thought is None or right is False:
            return verdict
        if right is None:
            try:
                chain = await thought_satisfies(ask, case.prompt, thought, criterion)
            except Unparseable:
                return verdict
            verdict = Verdict((*verdict.checks, *chain.checks))
            right = chain.passed
        if not right or self.errors_by != "judge" or sample.ask.setting != GUIDED:
            return verdict
        try:
            kind = await errors.judged(ask, image, case.prompt, criterion)
        except Unparseable:
            return verdict
        return Verdict((*verdict.checks, Check(errors.CHECK, "fail", kind)))

    def _typed(self, sample: Sample, outcome: Sprites) -> Verdict:
        """A program's verdict; of a wrong image in setting 2 whose thought is right with the type of its error."""
        shown = pixels(sample.drawn[-1])
        verdict = outcome.verify(shown)
        if sample.ask.setting != GUIDED or verdict.status != "fail" or not _concludes(sample, outcome):
            return verdict
        kind = errors.by_program(outcome, sample.ask.case.prompt, sprites.read(shown).name)
        return Verdict((*verdict.checks, Check(errors.CHECK, "fail", kind)))

    def attribute(self, scored: Scored) -> str:
        """ "reasoning wrong", "not extracted", "drawn wrong", "judge unparseable", ...; "" for a sample that is right.

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
        right = errors.thought_right(scored, self.right(scored))
        return {True: "drawn wrong", False: "reasoning wrong", None: "wrong, reasoning not judged"}[right]

    def right(self, scored: Scored) -> bool | None:
        """Whether the thought behind a sample concludes rightly, as far as a program can tell."""
        outcome = _outcome(scored.sample.ask.case)
        return None if outcome is None else _concludes(scored.sample, outcome)

    # --- counting ------------------------------------------------------------------------------------------------

    @classmethod
    def units(cls, scored: Iterable[Scored], label: str) -> list[Unit]:
        """Equation 4 counts images that are right: a graded verdict (a tournament's) is right or not."""
        return [unit_of(answer) for answer in scored]

    def details(self, results: Results) -> Mapping[str, Any]:
        """ "gains": (reasoning | interference | length_4x | length_8x | external) -> task or "overall" ->
        PairedComparison. "of_right_thoughts": setting -> task or "overall" -> Estimate. "subcategories": setting ->
        task -> subcategory -> Estimate. "extraction": how -> share of the thoughts. "outcomes": setting -> outcome ->
        share of the samples. "errors": type -> share of the wrong images of setting 2.
        """
        return counting.details(counting.Count(self, results))

    def specs(self, results: Results) -> Iterable[TableSpec]:
        """Tables 2 (or 7), 3, 4, 8 and 11, error types and Figure 3; then what the paper leaves out."""
        return counting.specs(counting.Count(self, results))


def _published(source: Source) -> list[Row]:
    from uni_train.data_gen.ureason.published import read_folder

    folder = source.data
    assert folder is not None
    there = source.sets or [task for task in TASKS if (folder / f"{task}.jsonl").is_file()]
    return read_folder(folder, [task for task in TASKS if task in (there or TASKS)])


def _generated(source: Source, levels: Sequence[int]) -> list[Row]:
    from uni_train.data_gen.objects import get_world
    from uni_train.data_gen.ureason.files import row_of
    from uni_train.data_gen.ureason.task import UReason as Task
    from uni_train.data_gen.ureason.taxonomy import subcategories

    world = get_world(source.world)
    there = subcategories(world.name)
    lacking = [task for task in source.sets or () if task not in there]
    if lacking:
        raise UsageError(f"the {world.name} world has no {lacking[0]}", did_you_mean(lacking[0], there, "sets"))
    shares = [source.n // len(levels) + (index < source.n % len(levels)) for index in range(len(levels))]
    return [
        row_of(item)
        for task in source.sets or there
        for level, share in zip(levels, shares, strict=True)
        if share
        for item in Task(world, (task,)).generate(share, level, source.split, 0)
    ]


def _identity(model: StoredModel) -> str:
    """A stored model says what it is, others have but a name."""
    identity = getattr(model, "identity", None)
    return model.name if identity is None else identity.key


def _case(row: Row) -> Case:
    facts = {**row.facts, "criterion": row.criterion, "direct": row.direct}
    return Case(id=row.id, set=row.task, prompt=row.prompt, category=row.subcategory, facts=facts)


def _world(case: Case) -> str:
    return str(case.facts.get("world", "everyday"))


def _thinks(setting: str) -> bool:
    return setting not in (DIRECT, EXTERNAL)


def _outcome(case: Case) -> Outcome | None:
    return outcome_from(case.facts["outcome"]) if "outcome" in case.facts else None


def _concludes(sample: Sample, outcome: Outcome) -> bool | None:
    """Whether the conclusion of the sample's thought is right, as far as a program can tell.

    nano always says its conclusion in the same words, so that one without them has none.
    """
    conclusion = extract(sample.thought or "", "paper", _world(sample.ask.case)).text
    if not conclusion:
        return False if isinstance(outcome, Sprites) else None
    return outcome.find(conclusion)
