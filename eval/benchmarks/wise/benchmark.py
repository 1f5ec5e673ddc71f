"""WISE as a Benchmark: a prompt that takes knowledge, an image, and a judge that is told what it must show.

    direct: draw(prompt)                    cot: think(prompt) -> thought, draw(prompt, thought)

The judge's protocol is that of the files. WISE_Verified has one binary score; the original edition has consistency,
realism and aesthetic quality. A program checks our own questions in nano's world.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from uni_train.core.errors import UsageError
from uni_train.data_gen.registry import task_of
from uni_train.data_gen.task import Verdict
from uni_train.eval.benchmark import Ask, Benchmark, JudgeAsk, Sample, Scored, Source, benchmark
from uni_train.eval.benchmarks.wise.cases import GENERATED, has_program, questions
from uni_train.eval.benchmarks.wise.editions import SETS
from uni_train.eval.images import pixels
from uni_train.eval.paper import Column, TableSpec, mean_of
from uni_train.eval.prompts import filled
from uni_train.eval.results import Metric, Results
from uni_train.eval.submission import file_name, first_draws
from uni_train.eval.task_benchmark import item_of

PROTOCOL = "wise/1"  # what is asked; a change makes another revision
SETTINGS = {"direct": "Direct", "cot": "CoT"}


@benchmark("wise")
class Wise(Benchmark):
    """The benchmark over the published files of WISE_Verified or of the original edition, or over questions of our own.

    Raises UsageError for an unknown name, DataError for files that cannot be used.
    """

    name, title = "wise", "WISE"
    known_sets = (*SETS, *GENERATED)
    overall = Metric(over=None)

    def __init__(self, source: Source) -> None:
        self.edition, every = questions(source)
        cases = [case for case in every if source.sets is None or case.set in source.sets]
        sizes = Counter(case.set for case in every)
        if not cases:
            raise UsageError("there are no questions of these sets", f"{source.data} has {', '.join(sizes)}.")
        super().__init__(source, cases, settings=tuple(SETTINGS), asked=(PROTOCOL, self.edition.question))
        sets = [name for name, n in zip(SETS, self.edition.sizes, strict=True) for _ in range(n)]
        paper = (f"{number} {name}" for number, name in enumerate(sets, 1))
        self.set_origin(source.data, (f"{case.id} {case.set}" for case in every), paper)
        self.total_cases = len(every)

    def calls(self, asks: Sequence[Ask]) -> dict[str, int]:
        judged = sum(self.verifier == "judge" or not has_program(ask.case) for ask in asks)
        return {**super().calls(asks), "judge": judged}

    def check(self, sample: Sample) -> Verdict | None:
        """Object and count, of our own questions in nano's world."""
        if self.verifier == "judge" or not has_program(sample.ask.case):
            return None
        item = item_of(sample.ask.case)
        return task_of(item).verify(item, pixels(sample.drawn[-1]))

    async def judge(self, sample: Sample, ask: JudgeAsk) -> Verdict:
        """The edition's question, with the prompt and its explanation. nano captions, and a program compares."""
        from uni_train.eval.judges import caption_matches, dialect

        case, image = sample.ask.case, sample.image
        assert image is not None, "only samples with an image are judged"
        answer = str(case.facts["answer"])
        if dialect(ask) == "nano":
            if "item" not in case.facts:
                raise UsageError("nano cannot judge WISE's published questions", "Choose another judge.")
            return await caption_matches(ask, image, answer, kind=str(case.facts["task"]))
        question = filled(self.edition.question, prompt=case.prompt, explanation=answer)
        return await ask(question, (image,), parse=self.edition.read)  # type: ignore[no-any-return]

    @classmethod
    def submission(cls, scored: Iterable[Scored]) -> Iterator[tuple[str, bytes]]:
        """SETTING/ID.png: each setting's folder is an IMAGE_DIR of the released scripts."""
        for draw in first_draws(scored):
            if draw.sample.image is not None:
                yield f"{draw.sample.ask.setting}/{file_name(draw.sample.ask.case.id)}.png", draw.sample.image

    def specs(self, results: Results) -> Sequence[TableSpec]:
        """The leaderboard's table; its overall score stands there where all of its categories are asked."""
        printed = {name: itemgetter(name) for name in SETS}
        columns = [Column(name.capitalize(), mean_of("set", name), printed.get(name, "")) for name in self.sets]
        columns += [
            Column("Overall", self.overall, itemgetter("overall") if self.sets == SETS else ""),
            Column("Mean of categories", lambda some: some.mean("set")),
        ]
        title, table = f"WiScore, {self.edition.name.lower()} edition", self.edition.name
        note = "Overall is the mean over questions, which is what the published weights of categories give."
        return [TableSpec(title, columns, order=SETTINGS, names=SETTINGS, paper=table, note=note)]
