"""Knowledge injection (Niu et al. 2025, section 4 and appendix D): taught in text, asked for in images.

Each character, and each pair, has one stage, which starts from the recipe's first weights. The understanding weights
learn the lessons, in text alone, until the model passes its exam, a question about every attribute. Then it draws. A
model that never passes also draws and is listed, but is not counted.

The folder of an unfinished stage holds `checkpoints/` (training), then `model/` and `taught.json` (drawing), then
`drawn/` (judging). At its end it holds `scored/`. A restart after a kill continues from there.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from uni_train.config.kinds import Updates
from uni_train.core.errors import DataError, UserError
from uni_train.core.files import atomic_write_json
from uni_train.core.reading_limits import read_json
from uni_train.data_gen.knowledge.injection import Subject, TextQuestion, read_subjects, subjects
from uni_train.eval.benchmark import BENCHMARKS, Scored, Table
from uni_train.eval.generation import asks_of
from uni_train.eval.scored import read_scored, write_scored
from uni_train.eval.sets.benchmark import SetBenchmark
from uni_train.models.base import Example, Request, TextGenerator, UnifiedModel, expect_skill
from uni_train.models.batches import fitting
from uni_train.recipes.knowledge import injected
from uni_train.recipes.knowledge.config import KnowledgeConfig
from uni_train.recipes.knowledge.injected import InjectedModel, Reply
from uni_train.stages import judging
from uni_train.stages.kind import Stages
from uni_train.stages.train_stage import train_stage
from uni_train.stages.work import ADAPTERS, MODEL, StageRun, Work, in_batches
from uni_train.training.curriculum import Constant

TAUGHT = "taught.json"
DRAWN = "drawn"
SCORED = "scored"


def people(config: KnowledgeConfig) -> list[Subject]:
    """The subjects of the recipe, one model each: characters first, then pairs.

    Raises:
        UserError: the split has too few names, or the folder of published characters cannot be used.
    """
    asked = config.characters
    try:
        if asked.path is not None:
            return read_subjects(Path(asked.path), asked.n, config.directions, both_ways=config.both_ways)
        return subjects(
            config.data.world, asked.n, asked.seed, asked.split, config.directions, both_ways=config.both_ways
        )
    except DataError as error:
        raise UserError(str(error), "Set characters.n, characters.split or characters.path otherwise.") from error


def lessons(subject: Subject) -> list[Example]:
    """What a model is taught about a subject: questions and answers, in text alone."""
    return [Example(question, answer=answer) for question, answer in subject.lessons]


def updates(config: KnowledgeConfig, epochs: int, n: int) -> int:
    """Of so many epochs of `n` lessons, rounded up."""
    return -(-epochs * n // config.rows)


def before(work: Work[KnowledgeConfig], stage: StageRun) -> None:
    """What the model draws and says before it is taught."""
    model, whom = work.model(work.weights), people(work.config)
    taught = []
    for subject in whom:
        twins = _replies(work, model, subject.twins)
        named = dict(zip((question.id for question in subject.pictures), twins, strict=True))
        taught.append(InjectedModel(subject.names, subject.direction, 0, (), named))
    scored = _pictures(work, stage, work.weights, whom, taught)
    stage.outputs = [stage.path / SCORED / "00000.parquet"]
    stage.result = {"taught": [taught_model.to_dict() for taught_model in taught]}
    rights = sum(answer.passed for answer in scored)
    work.progress.say(f"  before the lessons {rights} of {len(scored)} images are right")


def inject(work: Work[KnowledgeConfig], stage: StageRun, place: int) -> None:
    """Teach one model about `people(config)[place]`, then have it draw."""
    subject = people(work.config)[place]
    work.progress.say(f"  {' and '.join(subject.names)}: {len(subject.lessons)} lessons")
    if not work.ranks.from_main((stage.path / TAUGHT).is_file):
        _teach(work, stage, subject)
    taught = _read(stage.path / TAUGHT)
    wrong = [reply for reply in taught.exam if not reply.right]
    work.progress.say(
        f"  {taught.updates} updates; exam: {len(taught.exam) - len(wrong)} of {len(taught.exam)}"
        + (f"; not injected, not counted: {wrong[0].question} -> {wrong[0].reply.strip()}" if wrong else "")
    )
    scored = _pictures(work, stage, stage.path / MODEL, [subject], [taught])
    if not work.config.keep_models:
        work.ranks.from_main(lambda: shutil.rmtree(stage.path / MODEL, ignore_errors=True))
    stage.outputs = sorted(file for file in stage.path.rglob("*") if file.is_file() and _lasting(file, stage.path))
    stage.result = {"taught": [taught.to_dict()]}
    for setting in work.config.modes:
        rights = [answer.passed for answer in scored if answer.sample.ask.setting == setting]
        work.progress.say(f"  {setting}: {sum(rights)} of {len(rights)} images are right")


# --- teaching ---------------------------------------------------------------------------------------------------------


def _teach(work: Work[KnowledgeConfig], stage: StageRun, subject: Subject) -> None:
    """Train, store the model, and write taught.json last."""
    # Lightning takes seconds to import, which --dry-run need not wait for.
    from uni_train.training.callbacks import EarlyStop

    config = work.config
    model = work.trainable_model(work.weights)

    def passed(step: int) -> bool:
        del step  # a function of the weights alone
        return all(reply.right for reply in _replies(work, model, subject.exam))

    n, sources, schedule = len(subject.lessons), {"lessons": lessons(subject)}, Constant({"lessons": 1.0})
    most = Updates(updates(config, config.epochs, n), config.accumulate, rows=config.rows)
    until = EarlyStop(passed, config.exam_every, updates(config, config.least_epochs, n))
    train_stage(work, model, sources, schedule, most, stage.path, callbacks=[until], keep=1, log_every=1)
    work.save_trained(model, stage)
    after = work.model(stage.path / MODEL)
    exam, twins = _replies(work, after, subject.exam), _replies(work, after, subject.twins)
    named = dict(zip((question.id for question in subject.pictures), twins, strict=True))
    taught = InjectedModel(subject.names, subject.direction, until.ended or most.total, exam, named)
    work.ranks.from_main(lambda: atomic_write_json(stage.path / TAUGHT, taught.to_dict()))


def _replies(work: Work[KnowledgeConfig], model: UnifiedModel, asked: Sequence[TextQuestion]) -> tuple[Reply, ...]:
    """What the model says; all ranks ask, for their weights may be whole only together."""
    requests = [Request(f"text{number}", question.question) for number, question in enumerate(asked)]
    batches = in_batches(requests, work.config.model.think_batch)
    answer = expect_skill(model, TextGenerator).answer
    texts = [text for _, batch in batches for text in fitting(answer, batch)]
    return tuple(
        Reply(question.question, text, question.right(text)) for question, text in zip(asked, texts, strict=True)
    )


def _read(file: Path) -> InjectedModel:
    try:
        return InjectedModel.from_dict(read_json(file))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{file} is damaged ({error!r})", f"Delete the folder {file.parent} to redo this stage."
        ) from error


# --- images ---------------------------------------------------------------------------------------------------------


def benchmark(config: KnowledgeConfig, subjects_: Iterable[Subject]) -> SetBenchmark:
    """UniSandbox over the images of some subjects."""
    pictures = [picture for subject in subjects_ for picture in subject.pictures]
    path = config.characters.path
    files = path is not None and not (Path(path) / "characters.jsonl").is_file()
    unisandbox: Any = BENCHMARKS.get("unisandbox")
    return cast(SetBenchmark, unisandbox.about(pictures, config.data.world, config.modes, files))


def _pictures(
    work: Work[KnowledgeConfig],
    stage: StageRun,
    weights: Path | None,
    whom: Sequence[Subject],
    taught: Sequence[InjectedModel],
) -> list[Scored]:
    """Draw, check and judge the images of the taught subjects with the model of `weights`; ranks share the drawing.

    The result is in scored/ of the stage. If it exists it is only read: the weights may be deleted by then."""
    config, file = work.config, stage.path / SCORED / "00000.parquet"
    if not work.ranks.from_main(file.is_file):
        model: Any = work.model(weights)
        asked = benchmark(config, whom)
        asks = asks_of(asked.cases(), asked.settings, k=config.draws, seed=config.seed)
        batches = [batch for _, batch in in_batches(asks, config.model.draw_batch)]
        places = [stage.path / DRAWN / f"{index:05d}.parquet" for index in range(len(batches))]
        done = work.ranks.from_main(lambda: {index for index, place in enumerate(places) if place.is_file()})
        mine = work.share(len(batches), done)
        finished = sum(len(batches[index]) for index in done)
        with work.bar("ask and draw", sum(len(batches[index]) for index in mine), finished) as bar:
            for index in mine:
                samples = asked.respond(model, batches[index])
                write_scored(
                    places[index],
                    [Scored(sample, asked.check(sample) if sample.status == "ok" else None) for sample in samples],
                )
                bar.advance(len(samples))
        work.ranks.barrier()
        work.ranks.from_main(lambda: _conclude(work, stage, asked, places, file, taught))
    return read_scored(file, images=False)


def _conclude(
    work: Work[KnowledgeConfig],
    stage: StageRun,
    asked: SetBenchmark,
    places: Sequence[Path],
    file: Path,
    taught: Sequence[InjectedModel],
) -> None:
    """Judge the samples that no program could check, attribute errors, and write all samples to one file."""
    scored = [answer for place in places for answer in read_scored(place)]
    if work.config.judge is not None:
        scored = judging.judged(work, stage.path, asked, scored)
    taught_by_case = {name: taught_model for taught_model in taught for name in taught_model.twins}
    write_scored(
        file, [injected.attributed(asked, answer, taught_by_case[answer.sample.ask.case.id]) for answer in scored]
    )
    shutil.rmtree(stage.path / DRAWN, ignore_errors=True)


def _lasting(file: Path, folder: Path) -> bool:
    return file.name == TAUGHT or file.relative_to(folder).parts[0] in (MODEL, ADAPTERS, SCORED)


# --- all models together ----------------------------------------------------------------------------------------------


def conclude(work: Work[KnowledgeConfig], runs: Stages) -> tuple[dict[str, Any], list[Table]]:
    """What summary.json says of the models, and the tables: Table 4 first."""
    asked = benchmark(work.config, people(work.config))
    by_kind: dict[str, tuple[list[InjectedModel], list[Scored]]] = {"ask": ([], []), "inject": ([], [])}
    for run, stage in runs:
        if run.kind not in by_kind:  # the form: nobody was asked
            continue
        taught, scored = by_kind[run.kind]
        taught += [InjectedModel.from_dict(raw) for raw in stage.facts()["taught"]]
        scored += read_scored(stage.path / SCORED / "00000.parquet", images=False)
    scores = {kind: injected.scores(asked, *by_kind[kind]) for kind in by_kind}
    tables = injected.tables(asked, *by_kind["inject"], scores["ask"], scores["inject"])
    return (
        {
            "scores": {"before": scores["ask"], "after": scores["inject"]},
            "revision": asked.revision,
            "models": [injected_model.to_dict() for injected_model in by_kind["inject"][0]],
            "tables": [table.to_dict() for table in tables],
        },
        tables,
    )
