"""UReason (Yang et al. 2026, arXiv 2602.08336): is what a model reasons out in words also what it draws?

The same instance is asked in three settings: *direct* (the plain instruction), *reasoning-guided* (think, then draw in
the same context) and *de-contextualized* (draw from the refined prompt of that same thought alone; equations 1 to 3).
Visual verification accuracy is equation 4. The gains of equation 5 are paired: direct to reasoning-guided is what
reasoning brings, reasoning-guided to de-contextualized is what the rest of the context costs (contextual interference).

Further settings: `reasoning_chain` scores the thought itself (Table 3), `decontextualized_4x` and `_8x` repeat the
refined prompt (Table 4), `external_prompt` has another model write it (Figure 3). All thoughtful settings of a case
share one thought, and all settings its noise.

How the refined prompt is found is `compat`. "paper": the prompt asks for it between tags; a label as the published
prompts ask for ("refined prompt:", "Final Scene Prompt:") is taken too, and without either the sample is
`not_extracted`. "official", as the released code: prompts as published, and what follows the last word "prompt",
whatever it stands in, else the whole thought. All ways are counted. In nano's words the label is "So draw".

Pictures of nano are checked by program, others by a judge (Figures 25 and 26).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_gen.seeds import derive_seed
from data_gen.task import Check, Verdict
from data_gen.ureason.outcomes import Outcome, Sprites, outcome_from
from data_gen.ureason.taxonomy import SUBCATEGORIES, TASKS
from eval.benchmark import (
    OUTCOMES,
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
)
from eval.images import encoded, pixels
from eval.prompts import ureason as prompts
from eval.statistics import Estimate, PairedComparison, clustered_mean, paired, proportion
from eval.submission import file_name, first_draws, json_lines
from uni_train.errors import UsageError, did_you_mean
from uni_train.models.pictures import encode_png

if TYPE_CHECKING:
    from data_gen.ureason.files import Row
    from eval.calls import StoredModel
    from uni_train.models.base import OnStep, Request

DIRECT, GUIDED, BARE = "direct", "reasoning_guided", "decontextualized"
LENGTHS = {BARE: 1, "decontextualized_4x": 4, "decontextualized_8x": 8}
CHAIN, EXTERNAL = "reasoning_chain", "external_prompt"
HEADLINE = (DIRECT, GUIDED, BARE)
# Where the released scripts keep the images of a setting.
_RELEASED = {DIRECT: "direct/direct_{task}", GUIDED: "think/{task}", BARE: "think-generated_prompts/{task}"}
SETTINGS = (*HEADLINE, "decontextualized_4x", "decontextualized_8x", CHAIN, EXTERNAL)
COMPATS = ("paper", "official")
VERIFIERS = ("program", "judge")
PROTOCOL = "ureason/1"  # what is asked; a change makes another revision
EXTRACTIONS = ("tag", "label", "last match", "whole thought", "none")
LEVELS = (1, 2, 3)

# Table 2 on testmini, per cent, tasks in the order of TASKS: settings 1 to 3.
PAPER_TABLE_2: dict[str, dict[str, tuple[float, ...]]] = {
    "Bagel": {DIRECT: (10, 5, 3, 6, 9), GUIDED: (30, 14, 15, 19, 11), BARE: (58, 51, 58, 60, 86)},
    "UniCoT-v2": {DIRECT: (9, 2, 2, 5, 3), GUIDED: (27, 19, 29, 21, 21), BARE: (65, 45, 46, 67, 87)},
    "ThinkMorph": {DIRECT: (9, 1, 4, 3, 10), GUIDED: (19, 12, 15, 26, 5), BARE: (49, 37, 45, 55, 71)},
}
# Table 4: the refined prompt once, four and eight times; and Table 3, the reasoning chains.
PAPER_TABLE_4 = {
    BARE: (58, 51, 58, 60, 86),
    "decontextualized_4x": (63, 49, 52, 53, 85),
    "decontextualized_8x": (58, 46, 48, 47, 84),
}
PAPER_TABLE_3 = {"Bagel": (93, 94, 88, 96, 96), "ThinkMorph": (83, 82, 85, 96, 91)}


@dataclass(frozen=True, slots=True)
class Refined:
    """A refined prompt and how it was found: one of EXTRACTIONS; "none": there is none."""

    text: str
    how: str


_LABEL = re.compile(r"\b(?:refined|final(?:\s+scene)?)\s+prompt\b[\"'*_\s]*(?:is)?[\"'*_\s]*:", re.IGNORECASE)
_NANO_LABEL = "So draw"
# What the prompts show in the place of a description, in case a model says just that.
_PLACEHOLDERS = ("...", "your description", "your visual description here", "a direct description of the final state")


def extract(thought: str, compat: str, world: str = "everyday") -> Refined:
    """The refined prompt of a thought; see the head of this file for `compat`."""
    if compat == "official":
        found = prompts.published_refined_prompt(thought)
        text = prompts.without_markers(thought) if found is None else found
        return Refined(text, "none" if not text else "whole thought" if found is None else "last match")
    if world == "nano":
        _, label, rest = thought.rpartition(_NANO_LABEL)
        return Refined(f"Draw {rest.strip()}", "label") if label and rest.strip(" .") else Refined("", "none")
    tagged = prompts.parse_refined_prompt(thought)
    if tagged is not None and _said(tagged):
        return Refined(_said(tagged), "tag")
    labels = list(_LABEL.finditer(thought))
    text = _said(thought[labels[-1].end() :]) if labels else ""
    return Refined(text, "label") if text else Refined("", "none")


def _said(text: str) -> str:
    """Without asterisks, braces and quotes around the whole; "" for a placeholder."""
    text = prompts.without_markers(text).strip("* \n")
    for first, last in ("{}", '""', "''", "“”"):
        if text.startswith(first) and text.endswith(last) and first not in text[1:-1] and len(text) > 1:
            text = text[1:-1].strip("* \n")
    return "" if text.casefold() in _PLACEHOLDERS else text


@benchmark("ureason")
class UReason(Benchmark):
    """The benchmark over the files in `data`, or over instances of our own.

    data: a folder with `<task>.jsonl` and `direct_<task>.jsonl`, as published or as `data make --task ureason` writes
    them; None for `n` instances of each task of `world` ("nano" or "everyday"), of all `levels` alike, from `split` and
    `seed`. sets: which tasks; None: all that `data` or the world has. settings: None for all, but `external_prompt`
    only where there is an `external` model, which writes the refined prompts of that setting (behind a store of its
    own). verifier: "judge" leaves nano's pictures to the judge too, to compare it with the program.

    Raises UsageError for an unknown name, DataError for files that cannot be used.
    """

    name = "ureason"
    known_sets = tuple(TASKS)
    headline = HEADLINE
    options = (Option("prompt_model", "", "also draw from refined prompts that this model writes"),)

    @classmethod
    def open(cls, source: Source, *, prompt_model: str) -> UReason:
        external = source.open_model(prompt_model) if prompt_model and source.open_model is not None else None
        return cls(source.data, external=external, **source.arguments)

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
    ) -> None:
        known = SETTINGS if external is not None else tuple(name for name in SETTINGS if name != EXTERNAL)
        _check("setting", settings or (), SETTINGS)
        _check("set", sets or (), TASKS)
        _check("compat", (compat,), COMPATS)
        _check("verifier", (verifier,), VERIFIERS)
        if external is None and EXTERNAL in (settings or ()):
            raise UsageError(
                f"the setting {EXTERNAL} needs a model that writes the refined prompts",
                "Name one (an endpoint or a checkpoint), or leave the setting out.",
            )
        rows = _generated(world, n, levels, split, seed, sets) if data is None else _published(Path(data), sets)
        self.compat, self.verifier, self.external = compat, verifier, external
        self._cases = tuple(_case(row) for row in rows)
        self.published = all("outcome" not in case.facts for case in self._cases)
        self.sets = tuple(task for task in TASKS if any(case.set == task for case in self._cases))
        self.settings = tuple(name for name in known if settings is None or name in settings)
        self.revision = _revision(self._cases, compat, verifier, external)

    def cases(self) -> Sequence[Case]:
        return self._cases

    def helpers(self) -> Mapping[str, StoredModel]:
        return {} if self.external is None else {"answer": self.external}

    def told(self) -> Mapping[str, Any]:
        """What the writer of prompts is, and not what it was called."""
        if self.external is None:
            return {}
        identity = self.external.identity
        return {"prompt_model": {"content": identity.content, "settings": dict(identity.settings)}}

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
        """A thought once for all settings that share it; at most one judgement of it beside those of the pictures."""
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
                samples[row] = replace(samples[row], status="generation_failed", note=_note(picture))
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
        plain = self.compat == "official" or case.facts.get("world") == "nano"
        return case.prompt if plain else f"{case.prompt}\n{prompts.ASK_FOR_REFINED_PROMPT}"

    def _prepared(self, ask: Ask, thoughts: Mapping[tuple[str, int, bool], str | Exception]) -> Sample:
        """What is known before drawing."""
        case = ask.case
        if ask.setting == DIRECT:
            return Sample(ask, prompt=case.facts["direct"])
        thought = thoughts[*_place_of(ask), ask.setting == EXTERNAL]
        if isinstance(thought, Exception):
            return Sample(ask, status="generation_failed", note=f"no thought: {_note(thought)}")
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
        """nano's pictures are read by program; of thoughts, those whose conclusion leaves no doubt."""
        outcome = _outcome(sample.ask.case)
        if outcome is None:
            return None
        if sample.ask.setting == CHAIN:
            right = _concludes(sample, outcome)
            return None if right is None else _chain_verdict(right, sample, outcome)
        if isinstance(outcome, Sprites) and sample.drawn and self.verifier == "program":
            return outcome.verify(pixels(sample.drawn[-1]))
        return None

    async def judge(self, sample: Sample, ask: JudgeAsk) -> Verdict:
        """Figure 25 of a picture, Figure 26 of a thought.

        Of a wrong picture the thought behind it is judged too, for the attribution, unless a program knows. The
        question is the one that `reasoning_chain` asks, so that it is paid for once.
        """
        from eval.judges import caption_matches, image_satisfies, thought_satisfies
        from eval.judges.questions import dialect

        case, thought = sample.ask.case, sample.thought
        criterion = str(case.facts["criterion"])
        if sample.ask.setting == CHAIN:
            return await thought_satisfies(ask, case.prompt, thought or "", criterion)
        image = sample.image
        assert image is not None, "only samples with an image are judged"
        outcome = _outcome(case)
        if dialect(ask) == "nano":
            if not isinstance(outcome, Sprites):
                raise UsageError("nano can judge no pictures but those of its own world", "Choose another judge.")
            if len(outcome.groups) > 1:
                return Verdict((Check("caption", "unreadable", "nano captions one kind of object"),))
            return await caption_matches(ask, image, str(outcome), kind="maths")
        verdict = await image_satisfies(ask, image, criterion)
        known = outcome is not None and _concludes(sample, outcome) is not None
        if verdict.status != "fail" or thought is None or known:
            return verdict
        try:
            chain = await thought_satisfies(ask, case.prompt, thought, criterion)
        except Unparseable:
            return verdict
        return Verdict((*verdict.checks, *chain.checks))

    def attribute(self, scored: Scored) -> str:
        """ "reasoning wrong", "not extracted", "drawn wrong", "judge unreadable", ...; "" for a sample that is right.

        A wrong picture of a right thought is drawn wrong; of a wrong one, the reasoning is to blame. "wrong, no
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
        outcome = _outcome(sample.ask.case)
        right = None if outcome is None else _concludes(sample, outcome)
        if right is None and scored.verdict is not None:
            right = next((c.status == "pass" for c in scored.verdict.checks if c.name == _REASONING), None)
        return {True: "drawn wrong", False: "reasoning wrong", None: "wrong, reasoning not judged"}[right]

    # --- counting ------------------------------------------------------------------------------------------------

    def scores(self, scored: Iterable[Scored]) -> dict[str, Any]:
        """setting -> task or "overall" -> Estimate, and beside the settings:

        "gains": (reasoning | interference | length_4x | length_8x | external) -> task or "overall" ->
        PairedComparison. "of_right_thoughts": setting -> task or "overall" -> Estimate. "subcategories": setting ->
        task -> subcategory -> Estimate. "extraction": how -> share of the thoughts. "outcomes": setting -> outcome ->
        share of the samples.
        """
        count = _Count(scored)
        settings = count.settings
        return {
            **{s: {name: est.to_dict() for name, est in count.accuracies(s).items()} for s in settings},
            "gains": {
                gain: {name: pair.to_dict() for name, pair in count.gains(*pair_of).items()}
                for gain, pair_of in GAINS.items()
                if set(pair_of) <= set(settings)
            },
            "of_right_thoughts": {
                s: {name: est.to_dict() for name, est in count.of_right_thoughts(s).items()}
                for s in count.drawn_by_thought
            },
            "subcategories": {
                s: {
                    task: {sub: est.to_dict() for sub, est in by_sub.items()}
                    for task, by_sub in count.subcategories(s).items()
                }
                for s in settings
            },
            "extraction": {how: est.to_dict() for how, est in count.extraction().items()},
            "outcomes": {s: {name: e.to_dict() for name, e in count.outcomes(s).items()} for s in settings},
        }

    def tables(self, scored: Iterable[Scored]) -> list[Table]:
        """The layouts of Tables 2, 3 and 4 and of Figure 3, then subcategories, extraction and outcomes."""
        count = _Count(scored)
        return [table for table in _tables(count, self) if table.rows]


# later - earlier, paired by case.
GAINS = {
    "reasoning": (DIRECT, GUIDED),
    "interference": (GUIDED, BARE),
    "length_4x": (BARE, "decontextualized_4x"),
    "length_8x": (BARE, "decontextualized_8x"),
    "external": (BARE, EXTERNAL),
}
TITLES = {
    DIRECT: "1 Direct", GUIDED: "2 Reasoning-guided", BARE: "3 De-contextualized", CHAIN: "Reasoning chain",
    "decontextualized_4x": "4 x refined prompt", "decontextualized_8x": "8 x refined prompt",
    EXTERNAL: "External prompt model",
}  # fmt: skip
_REASONING = "reasoning"  # the check of a thought
_CAUSES = {"unreadable": "picture unreadable", "unparseable": "judge unreadable"}


_Row = tuple[str | Estimate | PairedComparison | None, ...]


class _Count:
    """Samples by setting and task, and what is computed of them."""

    def __init__(self, scored: Iterable[Scored]) -> None:
        self.by_cell: dict[str, dict[str, list[Scored]]] = defaultdict(lambda: defaultdict(list))
        for one in scored:
            self.by_cell[one.sample.ask.setting][one.sample.ask.case.set].append(one)

    @property
    def settings(self) -> tuple[str, ...]:
        """Those that were asked, in the order of SETTINGS."""
        return tuple(setting for setting in SETTINGS if setting in self.by_cell)

    @property
    def drawn_by_thought(self) -> tuple[str, ...]:
        """The settings that draw by the model's own thought, if that was judged too."""
        return tuple(s for s in self.settings if s in (GUIDED, *LENGTHS)) if CHAIN in self.settings else ()

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(task for task in TASKS if any(task in by_task for by_task in self.by_cell.values()))

    def of(self, setting: str) -> list[Scored]:
        return [one for task in self.tasks for one in self.by_cell[setting].get(task, ())]

    def accuracies(self, setting: str) -> dict[str, Estimate]:
        """task -> accuracy (equation 4); "overall" is the mean over tasks."""
        found = {task: _rate(some) for task, some in _in_order(self.by_cell[setting])}
        found["overall"] = _mean(self.of(setting))
        return found

    def subcategories(self, setting: str) -> dict[str, dict[str, Estimate]]:
        found: dict[str, dict[str, Estimate]] = {}
        for task, some in _in_order(self.by_cell[setting]):
            for name in SUBCATEGORIES[task]:
                members = [one for one in some if one.sample.ask.case.category == name]
                if members:
                    found.setdefault(task, {})[name] = _rate(members)
        return found

    def gains(self, earlier: str, later: str) -> dict[str, PairedComparison]:
        """task or "overall" -> later minus earlier (equation 5), on the cases and draws that both were asked."""
        before = {_place(one): one for one in self.of(earlier)}
        after = {_place(one): one for one in self.of(later)}
        shared = [place for place in before if place in after]
        found = {}
        for name in (*self.tasks, "overall"):
            both = [(before[p], after[p]) for p in shared if name in ("overall", _task(before[p]))]
            if both:
                found[name] = paired(
                    [first.passed for first, _ in both],
                    [second.passed for _, second in both],
                    [_unit(first) for first, _ in both],
                    [_task(first) for first, _ in both] if name == "overall" and len(self.tasks) > 1 else None,
                )
        return found

    def of_right_thoughts(self, setting: str) -> dict[str, Estimate]:
        """task or "overall" -> accuracy among the cases whose own thought `reasoning_chain` found right.

        What is left between it and 1 is lost between words and pixels alone.
        """
        right = {_place(one) for one in self.of(CHAIN) if one.passed}
        some = [one for one in self.of(setting) if _place(one) in right]
        by_task = {task: [one for one in some if _task(one) == task] for task in self.tasks}
        return {**{task: _rate(members) for task, members in by_task.items() if members}, "overall": _mean(some)}

    def extraction(self) -> dict[str, Estimate]:
        """How the refined prompts of the model's own thoughts were found, each thought counted once."""
        how: dict[Hashable, str] = {}
        for setting in self.settings:
            if setting != EXTERNAL:
                for one in self.of(setting):
                    if "extraction" in one.sample.facts:
                        how[_place(one)] = one.sample.facts["extraction"]
        return {
            kind: proportion(list(how.values()).count(kind), len(how)) for kind in EXTRACTIONS if kind in how.values()
        }

    def outcomes(self, setting: str) -> dict[str, Estimate]:
        seen = [one.outcome for one in self.of(setting)]
        return {name: proportion(seen.count(name), len(seen)) for name in OUTCOMES if name in seen}


def _in_order(by_task: Mapping[str, list[Scored]]) -> list[tuple[str, list[Scored]]]:
    """In the paper's order of tasks."""
    return [(task, by_task[task]) for task in TASKS if by_task.get(task)]


def _tables(count: _Count, benchmark: UReason) -> Iterable[Table]:
    """Where the published cases are asked, the paper's own rows stand below ours."""
    heads = tuple(task.capitalize() for task in count.tasks)
    asked = [setting for setting in HEADLINE if setting in count.settings]
    rows: list[_Row] = []
    before = ""
    for setting in asked:
        accuracies = count.accuracies(setting)
        gains = count.gains(before, setting) if before else {}
        cells = [cell for name in (*count.tasks, "overall") for cell in (accuracies.get(name), gains.get(name))]
        rows.append((TITLES[setting], *cells))
        before = setting
    for name, by_setting in PAPER_TABLE_2.items() if benchmark.published else ():
        for setting in asked:
            printed = [cell for text in _paper(by_setting[setting], count) for cell in (text, None)]
            rows.append((f"{name} in the paper, {TITLES[setting]}", *printed))
    columns = ("Setting", *(cell for head in (*heads, "Overall") for cell in (head, "Δ")))
    yield Table(
        "Visual verification accuracy (Table 2)", columns, tuple(rows),
        "Δ: the gain over the setting above, on the same cases. Overall: the mean over tasks.",
    )  # fmt: skip
    if CHAIN in count.settings:
        chain = count.accuracies(CHAIN)
        chains: list[_Row] = [("Reasoning chain", *(chain.get(name) for name in (*count.tasks, "overall")))]
        if benchmark.published:
            chains += [(f"{name} in the paper", *_paper(found, count)) for name, found in PAPER_TABLE_3.items()]
        yield Table("Quality of the reasoning chain (Table 3)", ("", *heads, "Overall"), tuple(chains))
    if count.drawn_by_thought:
        given = {setting: count.of_right_thoughts(setting) for setting in count.drawn_by_thought}
        lines = [(TITLES[s], *(given[s].get(name) for name in (*count.tasks, "overall"))) for s in given]
        note = "Only cases whose reasoning chain is right: what is missing is lost between words and pixels."
        yield Table("Accuracy where the reasoning is right", ("", *heads, "Overall"), tuple(lines), note)
    lengths = [setting for setting in LENGTHS if setting in count.settings]
    if len(lengths) > 1:
        named = [f"{LENGTHS[setting]} x refined prompt" for setting in lengths]
        table = _plain("Length-controlled ablation (Table 4)", count, heads, lengths, named)
        paper = [(f"Bagel in the paper, {name}", *_paper(PAPER_TABLE_4[setting], count))
                 for setting, name in zip(lengths, named, strict=True) if benchmark.published]  # fmt: skip
        yield replace(table, rows=(*table.rows, *paper))
    if EXTERNAL in count.settings:
        who = getattr(benchmark.external, "name", "external model")
        own = [setting for setting in (BARE, EXTERNAL) if setting in count.settings]
        names = {BARE: "the model itself", EXTERNAL: who}
        yield _plain("Who writes the refined prompt (Figure 3)", count, heads, own, [names[s] for s in own])
    by_sub = {setting: count.subcategories(setting) for setting in count.settings}
    shown = [(task, name) for task in count.tasks for name in SUBCATEGORIES[task]
             if any(name in by_sub[setting].get(task, {}) for setting in by_sub)]  # fmt: skip
    yield Table(
        "Subcategories",
        ("Task", "Subcategory", *(TITLES[setting] for setting in by_sub)),
        tuple((task, name, *(by_sub[s].get(task, {}).get(name) for s in by_sub)) for task, name in shown),
    )
    found = count.extraction()
    yield Table(
        f"How the refined prompt was found (compat={benchmark.compat})",
        tuple(found),
        (tuple(found.values()),) if found else (),
        "Shares of the model's own thoughts. none: not_extracted in setting 3.",
    )
    ends = {setting: count.outcomes(setting) for setting in count.settings}
    known = [name for name in OUTCOMES if any(name in by_name for by_name in ends.values())]
    yield Table(
        "What became of the samples",
        ("Setting", *(name.replace("_", " ") for name in known)),
        tuple((TITLES[s], *(ends[s].get(name) for name in known)) for s in ends),
        "All of them are in the denominators above.",
    )


def _paper(found: Sequence[float], count: _Count) -> list[str]:
    """The paper's per cents as shares, for the tasks that were asked, and over all where those are all."""
    by_task = dict(zip(TASKS, found, strict=True))
    shown = [f"{by_task[task] / 100:.2f}" for task in count.tasks]
    return [*shown, f"{sum(found) / len(found) / 100:.3f}" if len(shown) == len(TASKS) else "–"]


def _plain(title: str, count: _Count, heads: tuple[str, ...], settings: Sequence[str], names: Sequence[str]) -> Table:
    rows = []
    for setting, name in zip(settings, names, strict=True):
        accuracies = count.accuracies(setting)
        rows.append((name, *(accuracies.get(task) for task in (*count.tasks, "overall"))))
    return Table(title, ("", *heads, "Overall"), tuple(rows))


def _published(folder: Path, sets: Sequence[str] | None) -> list[Row]:
    from data_gen.ureason.files import read_folder

    there = [task for task in TASKS if (folder / f"{task}.jsonl").is_file()]
    return read_folder(folder, [task for task in TASKS if task in (sets or there or TASKS)])


def _generated(
    world: str, n: int, levels: Sequence[int], split: str, seed: int, sets: Sequence[str] | None
) -> list[Row]:
    from data_gen.objects import get_world
    from data_gen.ureason.files import row_of
    from data_gen.ureason.task import UReason as Task
    from data_gen.ureason.taxonomy import subcategories

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


def _revision(cases: Sequence[Case], compat: str, verifier: str, external: Respondent | None) -> str:
    rows = [[case.id, case.set, case.prompt, case.category, dict(case.facts)] for case in cases]
    # A stored model says what it is, others have but a name.
    identity = getattr(external, "identity", None)
    writer = None if external is None else external.name if identity is None else identity.key
    asked = [PROTOCOL, compat, verifier, writer, _LABEL.pattern, prompts.ASK_FOR_REFINED_PROMPT]
    text = json.dumps([*asked, rows], sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _check(noun: str, given: Sequence[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise UsageError(f"UReason has no {noun} {name}", did_you_mean(name, known, f"{noun}s"))


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
    return Verdict((Check(_REASONING, "pass" if right else "fail", reason),))


def _note(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


def _place_of(ask: Ask) -> tuple[str, int]:
    return ask.case.id, ask.k


def _place(one: Scored) -> tuple[str, int]:
    return _place_of(one.sample.ask)


def _unit(one: Scored) -> str:
    return one.sample.ask.case.cluster or one.sample.ask.case.id


def _task(one: Scored) -> str:
    return one.sample.ask.case.set


def _rate(some: Sequence[Scored]) -> Estimate:
    """The share that is right; Wilson's interval for one draw a case, else clustered by case."""
    units = [_unit(one) for one in some]
    if len(set(units)) == len(units):
        return proportion(sum(one.passed for one in some), len(some))
    return clustered_mean([float(one.passed) for one in some], units)


def _mean(some: Sequence[Scored]) -> Estimate:
    """The unweighted mean over tasks of the share that is right."""
    return clustered_mean(
        [float(one.passed) for one in some], [_unit(one) for one in some], [_task(one) for one in some]
    )
