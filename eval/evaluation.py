"""An evaluation: a checkpoint asked by benchmarks, kept in a folder that can be continued, shown and compared.

    evals/<name>/
      evaluation.json    what was asked: model, benchmarks and their revisions, settings, subset, seed, k, judge
      scored/*.parquet   every sample with the hashes of its images, its verdict and the judge's words
      scores.json        the numbers and tables, written last
    evals/store/         calls of models, images and verdicts of judges, each once, shared by all evaluations

Training runs evaluate by the same `run`: a stage's folder is such a folder, with its calls in `store/` while it runs.

Two phases. *Generate*: the model answers, each call stored once. *Score*: programs check, then a judge is asked about
what no program can tell. Scoring reads the store alone, so it needs no model. It is repeated at every start: numbers
are never older than the code and the judge that they name.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.config.schema import EvalConfig, JudgeConfig
from uni_train.core.errors import UserError
from uni_train.core.files import atomic_write_json, below, disk_errors, remove_partials
from uni_train.core.reading_limits import read_json, read_yaml, reason
from uni_train.core.seeds import digest
from uni_train.distributed.ranks import ALONE, Ranks
from uni_train.eval.benchmark import BENCHMARKS, OUTCOMES, Ask, Benchmark, Case, Sample, Scored, Table
from uni_train.eval.calls import Counts, StoredModel
from uni_train.eval.generation import asks_of, cases_of, chunks, expect_skills, generate, settings_of
from uni_train.eval.images import ImageStore
from uni_train.eval.progress import Bar, Progress, Silent
from uni_train.eval.results import Results
from uni_train.eval.sample import mostly_failed
from uni_train.eval.scored import DamagedShard, read_scored, stored, write_scored
from uni_train.eval.store import Skill, Store
from uni_train.models.identity import ModelIdentity
from uni_train.run_folder import flat, git_state, versions

if TYPE_CHECKING:
    from uni_train.eval.answers import FolderAnswers

ASKED = "evaluation.json"
SCORES = "scores.json"
SCORED = "scored"
CPU = "generate, CPU"  # of `seconds`, over all processes
FORMAT = "uni_train.evaluation/1"
_SHARD_ROWS = 256
_NOTE = 200  # letters of why a model failed
_SAME = ("subset", "seed", "k")
"""Beside the revision, what must be equal for two evaluations to have asked the same questions."""
_FREE = ("command", "versions", "code", "started", "judge_settings")
"""What may differ between two starts of one evaluation: it changes no number."""


@dataclass(frozen=True, kw_only=True)
class EvaluationPlan:
    """What is asked of which model.

    Attributes:
        checkpoint: a folder, a run, a model's name, "shipped", or an endpoint "URL#MODEL" (`eval.respondent`).
        benchmarks: in the order of the report, opened; their names differ.
        config: all else, checked. Its judge is asked where no program can tell; its settings are taken by the
            benchmarks that have them.
        options: whatever else decides the numbers (labels, compat), JSON-able; recorded and compared.
        command: as typed, for the record.
    """

    checkpoint: str
    benchmarks: Sequence[Benchmark]
    config: EvalConfig = field(default_factory=EvalConfig)
    options: Mapping[str, Any] = field(default_factory=dict)
    command: Sequence[str] = ()

    @property
    def judge(self) -> JudgeConfig | None:
        return self.config.judge

    @property
    def out(self) -> Path:
        return Path(self.config.out)

    @property
    def store_folder(self) -> Path:
        return Path(self.config.store_folder)

    def asks(self, benchmark: Benchmark) -> tuple[tuple[str, ...], list[Case], list[Ask]]:
        """Settings, cases and asks of one benchmark. Raises as `settings_of` and `cases_of`."""
        config = self.config
        settings = settings_of(benchmark, config.settings or None)
        cases = cases_of(benchmark, subset=config.subset, seed=config.seed)
        return settings, cases, asks_of(cases, settings, k=config.k, seed=config.seed)


@dataclass(frozen=True, slots=True)
class Result:
    """What one benchmark found.

    Attributes:
        outcomes, causes: setting -> set -> name -> number of samples; all samples are counted in `outcomes`.
        scores: as `Benchmark.scores` gives them. tables: its paper's.
        unjudged: (setting, set) pairs that have no score, because nobody could judge some of their samples.
        not_scored: (setting, set, why) of those that have none for another reason. The judge failed for most of their
            samples, or the model for all samples of the setting.
        no_skill: (setting, set, what it cannot do) of those that the model lacks a skill for.
        shards: names of the files in scored/.
        questions: what was asked (`Benchmark.questions`), which stands in every table too.
        judge: where one was asked: its name and way, how many samples were judged and by whom. Further its last
            calibration for this benchmark (None: it was never calibrated), and its scores, raw and corrected
            (`uni_train.eval.judges.agreement.judged_scores`).
    """

    name: str
    revision: str
    settings: tuple[str, ...]
    sets: tuple[str, ...]
    n: int
    outcomes: Mapping[str, Mapping[str, Mapping[str, int]]]
    causes: Mapping[str, Mapping[str, Mapping[str, int]]]
    scores: Mapping[str, Any]
    tables: tuple[Table, ...]
    unjudged: tuple[tuple[str, str], ...]
    shards: tuple[str, ...]
    judge: Mapping[str, Any] | None = None
    not_scored: tuple[tuple[str, str, str], ...] = ()
    no_skill: tuple[tuple[str, str, str], ...] = ()
    questions: str = ""

    @property
    def without_score(self) -> set[tuple[str, str]]:
        """(setting, set) pairs, for either reason."""
        others = (*self.not_scored, *self.no_skill)
        return {*self.unjudged, *((setting, name) for setting, name, _ in others)}

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "tables": [table.to_dict() for table in self.tables]}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Result:
        known = {field.name: raw[field.name] for field in fields(cls)}
        known |= {name: tuple(raw[name]) for name in ("settings", "sets", "shards")}
        for name in ("unjudged", "not_scored", "no_skill"):
            known[name] = tuple(tuple(map(str, cell)) for cell in raw[name])
        return cls(**known | {"tables": tuple(map(Table.from_dict, raw["tables"]))})


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A finished evaluation.

    Attributes:
        asked: evaluation.json. results: by benchmark, in the order of the plan.
        calls: skill -> made, stored, failed, of the start that finished it. seconds: phase -> duration of that start.
    """

    folder: Path
    asked: Mapping[str, Any]
    results: Mapping[str, Result]
    calls: Mapping[str, Mapping[str, int]]
    seconds: Mapping[str, float]

    @property
    def model(self) -> str:
        """What pages and tables call its model."""
        return str(self.asked["model"].get("called", self.asked["model"]["name"]))

    def scored(self, benchmark: str) -> Iterator[Scored]:
        """Every sample of a benchmark, in the order of asking; images are read when they are asked for.

        Raises:
            UserError: a file is missing. DamagedShard: it is not what was written.
        """
        seen = set()
        for name in self.results[benchmark].shards:
            path = below(self.folder / SCORED, name)
            if not path.exists():
                raise UserError(
                    f"{path} is missing",
                    "Run the evaluation's command again in another folder: stored calls are shared.",
                )
            for answer in read_scored(path):
                if answer.sample.identity in seen:
                    case, setting, k = answer.sample.identity
                    raise DamagedShard(path, f"damaged shard (draw {k} of {case} in {setting} is there twice)")
                if answer.sample.ask.setting not in self.results[benchmark].settings:
                    raise DamagedShard(path, f"damaged shard ({SCORES} has no setting {answer.sample.ask.setting})")
                seen.add(answer.sample.identity)
                yield answer

    def units(
        self,
        benchmark: str,
        settings: Collection[str] | None = None,
        left_out: Collection[tuple[str, str]] | None = None,
    ) -> dict[str, Results]:
        """Label -> what counts under it.

        Args:
            settings: that are wanted; None: all.
            left_out: (setting, set) pairs; None: those that have no score.

        Raises:
            UserError: a file is missing, or the samples lack what the benchmark counts by.
        """
        kind, result = BENCHMARKS.get(benchmark), self.results[benchmark]
        left_out = result.without_score if left_out is None else left_out
        asks = ((answer, answer.sample.ask) for answer in self.scored(benchmark))
        scored = [
            answer
            for answer, ask in asks
            if (settings is None or ask.setting in settings) and (ask.setting, ask.case.set) not in left_out
        ]
        with counting(self.folder, benchmark):
            return {label: Results(kind.units(scored, label)) for label in kind.labels(result.scores)}

    def questions_identity(self, benchmark: str) -> dict[str, Any]:
        """Equal in two evaluations that asked the same questions of a benchmark."""
        return {"revision": self.results[benchmark].revision, **{key: self.asked.get(key) for key in _SAME}}


def run(
    plan: EvaluationPlan,
    progress: Progress | None = None,
    *,
    model: StoredModel | FolderAnswers | None = None,
    ranks: Ranks = ALONE,
) -> Evaluation:
    """Do what is planned, or what is left of it; the same plan again continues.

    Args:
        model: who is asked, where it is open already. ranks: processes that share the asking; all call this.

    Raises:
        UserError: no checkpoint; duplicate ids; a damaged shard (named); a full disk; an endpoint that is down; a
            folder that another process works in, or that holds another evaluation; no skill for any setting.
        UsageError: settings, sets or names that do not exist.
    """
    progress = progress or Silent()
    names = [benchmark.name for benchmark in plan.benchmarks]
    if not names or len(set(names)) < len(names):
        raise UserError("an evaluation needs benchmarks, each once", f"Given: {', '.join(names) or 'none'}.")
    jobs = [_Job.planned(benchmark, plan) for benchmark in plan.benchmarks]
    model = model or _opened(plan, progress)
    if plan.config.redraw > 1:
        from uni_train.eval.redraw import Redrawing

        settings = model.identity.settings
        family = str(settings.get("server", settings).get("family", ""))  # of a server of ours, as it says itself
        model = Redrawing(model, plan.config.redraw, family)  # type: ignore[assignment]
    if model.damaged:
        progress.say(f"  damaged in the store: {', '.join(model.damaged)}; calls that are missing are made again")
    asked = describe(plan, jobs, model)
    folder = _evaluation_folder(plan, asked)
    with ExitStack() as held:

        def begin() -> None:
            held.enter_context(_claimed(folder))
            _write_asked(folder, asked, plan.judge)

        ranks.barrier()  # `begin` removes what killed writers have left: none may be opening its store below the folder
        ranks.from_main(begin)
        seconds: dict[str, float] = {}
        began = time.process_time()
        with _timed(seconds, "generate"):
            for job in jobs:
                mine = list(chunks(job.asks, _chunk(model)))[ranks.rank :: ranks.world_size]
                with progress.bar(f"generate {job.name}", sum(map(len, mine))) as bar:
                    for samples in generate(job.benchmark, model, mine, _steps_of(bar)):
                        bar.advance(len(samples))
                        if job is jobs[0] and samples[0].ask == job.asks[0] and ranks.world_size == 1:
                            _expect_skills(jobs, model, samples)
            calls = _summed(ranks.gather(model.counts))  # when all ranks are here
        seconds[CPU] = sum(ranks.gather(time.process_time() - began))
        model.release()
        return ranks.from_main(lambda: _conclude(plan, jobs, model, folder, asked, calls, seconds, progress))


def _expect_skills(jobs: Sequence[_Job], model: StoredModel | FolderAnswers, first: Sequence[Sample]) -> None:
    """Raises UserError where the first samples and the skills that all settings need say that none can be asked."""
    if not model.partial and all(answer.status == "no_skill" for answer in first):
        expect_skills(model, {job.benchmark: job.asks for job in jobs}, first[0])  # type: ignore[arg-type]


def _opened(plan: EvaluationPlan, progress: Progress) -> StoredModel | FolderAnswers:
    from uni_train.eval.respondent import open_respondent

    return open_respondent(plan.checkpoint, plan.config, Store(plan.store_folder), progress.say)


def _conclude(
    plan: EvaluationPlan,
    jobs: Sequence[_Job],
    model: StoredModel | FolderAnswers,
    folder: Path,
    asked: Mapping[str, Any],
    calls: Mapping[str, Mapping[str, int]],
    seconds: dict[str, float],
    progress: Progress,
) -> Evaluation:
    """Score what is stored, and write scores.json."""
    model.reread()
    with _timed(seconds, "score"):
        results = [_score(job, model, plan, folder, progress) for job in jobs]
    with disk_errors(folder):
        document = {"format": FORMAT, "results": [result.to_dict() for result in results]}
        atomic_write_json(folder / SCORES, {**document, "calls": calls, "seconds": seconds})
        kept = {name for result in results for name in result.shards}
        for path in (folder / SCORED).glob("*.parquet"):
            if path.name not in kept:
                path.unlink()
    return Evaluation(folder, asked, {result.name: result for result in results}, calls, seconds)


def _summed(counts: Sequence[Mapping[Skill, Counts]]) -> dict[str, dict[str, int]]:
    total: dict[str, Counter[str]] = {}
    for by_skill in counts:
        for skill, tally in by_skill.items():
            total.setdefault(skill, Counter()).update(asdict(tally))
    return {skill: dict(tally) for skill, tally in total.items()}


def load(folder: Path) -> Evaluation:
    """A finished evaluation. Raises UserError: there is none, it is not finished, or its files are damaged."""
    folder = Path(folder)
    if not (folder / ASKED).is_file():
        raise UserError(f"{folder} is no evaluation: it has no {ASKED}", "Evaluations are evals/<name>/.")
    if not (folder / SCORES).is_file():
        raise UserError(f"{folder} is not finished: it has no {SCORES}", "Run its command again to continue it.")
    asked, document = _read(folder / ASKED), _read(folder / SCORES)
    for file, content in ((ASKED, asked), (SCORES, document)):
        if content.get("format") != FORMAT:
            raise UserError(
                f"{folder / file} is of the format {content.get('format')}, not {FORMAT}",
                "Another version of uni_train wrote it: run the evaluation's command again, under another name.",
            )
    _expect_asked(asked, folder / ASKED)
    try:
        results = [Result.from_dict(raw) for raw in document["results"]]
        return Evaluation(folder, asked, {r.name: r for r in results}, document["calls"], document["seconds"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{folder / SCORES} is damaged ({error!r})", "Run the evaluation's command again.") from error


_KINDS: Mapping[str, type] = {
    "model": dict, "benchmarks": dict, "options": dict, "seed": int, "k": int, "command": list, "started": str,
}  # fmt: skip


def _expect_asked(asked: Mapping[str, Any], file: Path) -> None:
    """Raises UserError where somebody has edited evaluation.json such that it no longer says what was asked."""
    wrong = [key for key, kind in _KINDS.items() if not isinstance(asked.get(key), kind)]
    wrong += [
        f"model.{key}" for key in ("name", "content", "settings") if "model" not in wrong and key not in asked["model"]
    ]
    judge = asked.get("judge")
    wrong += ["judge"] if judge is not None and not (isinstance(judge, dict) and "model" in judge) else []
    subset = asked.get("subset", 0)
    wrong += ["subset"] if subset is not None and not (isinstance(subset, int) and subset > 0) else []
    if wrong:
        raise UserError(
            f"{file} is damaged: {', '.join(wrong)} is missing or of another kind",
            "Run the evaluation's command again in another folder: stored calls are shared.",
        )


@dataclass(frozen=True, slots=True)
class _Job:
    """One benchmark and what it is asked."""

    benchmark: Benchmark
    settings: tuple[str, ...]
    cases: int
    asks: list[Ask]

    @property
    def name(self) -> str:
        return self.benchmark.name

    @classmethod
    def planned(cls, benchmark: Benchmark, plan: EvaluationPlan) -> _Job:
        settings, cases, asks = plan.asks(benchmark)
        return cls(benchmark, settings, len(cases), asks)


def describe(plan: EvaluationPlan, jobs: Sequence[_Job], model: StoredModel | FolderAnswers) -> dict[str, Any]:
    """evaluation.json."""
    judge = None if plan.judge is None else plan.judge.protocol
    asked = {
        "format": FORMAT,
        "model": {**model.identity.to_dict(), "called": called(model.identity)},
        "checkpoint": plan.checkpoint,
        "benchmarks": {
            job.name: {"revision": job.benchmark.revision, "settings": list(job.settings), "cases": job.cases}
            for job in jobs
        },
        "sets": None,
        "subset": plan.config.subset,
        "seed": plan.config.seed,
        "k": plan.config.k,
        "options": dict(plan.options) | ({"redraw": plan.config.redraw} if plan.config.redraw > 1 else {}),
        "judge": judge,
        "judge_settings": None if plan.judge is None else plan.judge.to_dict(),
        "command": list(plan.command),
        "versions": versions(),
        "code": git_state(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    return json.loads(json.dumps(asked))  # type: ignore[no-any-return]  # as it will be read back: tuples are lists


def called(model: ModelIdentity) -> str:
    """Recipe and stage of a run's checkpoint ("stars_curriculum, after mapping3"), else the model's name."""
    stage = Path(model.source).resolve().parent
    try:
        recipe = read_yaml(stage.parent.parent / "config.yaml")["recipe"]
    except (OSError, ValueError, KeyError, TypeError):
        return model.name
    return f"{recipe}, after {stage.name.partition('-')[2].removeprefix('finetune-')}"


def default_name(asked: Mapping[str, Any], judge: JudgeConfig | None = None) -> str:
    """The checkpoint's name, the benchmarks', and six digits of all that was asked: other questions, another folder.

    Of a served judge the address counts, not its checkpoint, which it tells only while it is up.
    """
    compared = _compared(asked)
    if judge is not None:
        compared["judge"] = judge.configured.protocol
    plain = json.dumps(compared, sort_keys=True, default=str)
    digest = hashlib.blake2b(plain.encode(), digest_size=3).hexdigest()
    model = "".join(c if c.isalnum() or c in "-_." else "-" for c in asked["model"]["name"]).strip(".-") or "model"
    return f"{model}-{'+'.join(asked['benchmarks'])}-{digest}"


def _evaluation_folder(plan: EvaluationPlan, asked: Mapping[str, Any]) -> Path:
    """The folder by its given name, or by default_name; a judge that has another checkpoint by now gets a new one."""
    if plan.config.name is not None:
        return plan.out / plan.config.name
    folder = plan.out / default_name(asked, plan.judge)
    if plan.judge is None or not plan.judge.served or not (folder / ASKED).is_file():
        return folder
    before = (_read(folder / ASKED).get("judge") or {}).get("revision", "")
    other = before not in ("", plan.judge.served)
    return folder.with_name(f"{folder.name}-{digest(plan.judge.served)[:6]}") if other else folder


def _compared(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What makes two evaluations the same: not where the checkpoint lay, but what it is."""
    kept = {key: value for key, value in asked.items() if key not in (*_FREE, "checkpoint", "model")}
    model = asked["model"]
    return {**kept, "model": {"content": model["content"], "settings": model["settings"]}}


def _write_asked(folder: Path, asked: Mapping[str, Any], judge: JudgeConfig | None = None) -> None:
    """Write evaluation.json. Raises UserError: the one that is there asked something else."""
    file = folder / ASKED
    if file.exists():
        noted = _read(file)
        if noted.get("format") == FORMAT:
            _expect_asked(noted, file)
        there, here = _compared(noted), _compared(asked)
        unserved = json.loads(json.dumps(judge.configured.protocol)) if judge is not None and judge.served else None
        if unserved and there.get("judge") == unserved:
            there["judge"] = here["judge"]  # its server was down then
        before, now = flat(there), flat(here)
        differing = [key for key in dict.fromkeys([*now, *before]) if before.get(key) != now.get(key)]
        if differing:
            shown = "; ".join(f"{key} was {before.get(key)}, now {now.get(key)}" for key in differing[:3])
            more = f"; and {len(differing) - 3} more" if len(differing) > 3 else ""
            raise UserError(
                f"{folder} holds another evaluation: {shown}{more}",
                "Give another name, or none: then each evaluation gets a folder of its own. Stored calls are shared.",
            )
    with disk_errors(file):
        atomic_write_json(file, asked)


@contextmanager
def counting(folder: Path, benchmark: str) -> Iterator[None]:
    """While a benchmark counts samples that were read. Raises UserError where these lack what it counts by."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{folder / SCORED}: damaged samples, which {benchmark} cannot count ({error!r})",
            "Run the evaluation's command again in another folder: stored calls are shared.",
        ) from error


@contextmanager
def _claimed(folder: Path) -> Iterator[None]:
    """The folder for this process alone; a killed one leaves no lock behind."""
    from filelock import FileLock, Timeout

    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise UserError(
                f"another process works on the evaluation {folder}", "Wait for it, or give this one another name."
            ) from None
    try:
        remove_partials(folder)
        yield
    finally:
        lock.release()


def _score(
    job: _Job, model: StoredModel | FolderAnswers, plan: EvaluationPlan, folder: Path, progress: Progress
) -> Result:
    """Check and judge all samples of a benchmark; write them, and count. Their images stay in the store."""
    store = Store(plan.store_folder).images
    parts = generate(job.benchmark, model, chunks(job.asks, _chunk(model)))
    scored = _verdicts(job.benchmark, (stored(sample, store) for part in parts for sample in part), len(job.asks), plan,
                       folder, progress)  # fmt: skip
    scored = [replace(answer, cause=job.benchmark.attribute(answer)) for answer in scored]
    shards = [
        _write(folder / SCORED, job.name, index, scored[start : start + _SHARD_ROWS], store)
        for index, start in enumerate(range(0, len(scored), _SHARD_ROWS))
    ]
    outcomes = _count(scored, lambda answer: answer.outcome)
    failed = [answer.sample.note for answer in scored if answer.outcome == "generation_failed"]
    if failed:
        first = " ".join(failed[0].split())[:_NOTE]
        rate = len(failed) / len(scored)
        progress.say(f"  {job.name}: no answer to {len(failed)} of {len(scored)} ({rate:.0%}); the first: {first}")
    causes = _count((answer for answer in scored if answer.cause), lambda answer: answer.cause)
    unjudged = {_cell(answer) for answer in scored if answer.outcome == "unjudged"}
    lacking = _no_skill(scored)
    without = _not_scored(scored, model.partial)
    broken = {cell: why for cell, why in without.items() if cell not in lacking}
    counted = [answer for answer in scored if not {_cell(answer)} & {*unjudged, *broken, *lacking}]
    judge, judged_tables = _about_judge(job.benchmark, plan, scored)
    questions = job.benchmark.questions(ask.case for ask in job.asks)
    return Result(
        name=job.name,
        revision=job.benchmark.revision,
        settings=job.settings,
        sets=tuple(dict.fromkeys(ask.case.set for ask in job.asks)),
        n=len(scored),
        outcomes=outcomes,
        causes=causes,
        scores=job.benchmark.scores(counted),
        tables=tuple(
            replace(table, questions=questions)
            for table in (*_no_skill_tables(lacking), *job.benchmark.tables(counted), *judged_tables)
            if table.rows
        ),
        unjudged=tuple(sorted(unjudged)),
        shards=tuple(shards),
        judge=judge,
        not_scored=tuple((*cell, why) for cell, why in sorted(broken.items())),
        no_skill=tuple((*cell, why) for cell, why in sorted(lacking.items())),
        questions=questions,
    )


def _cell(answer: Scored) -> tuple[str, str]:
    return answer.sample.ask.setting, answer.sample.ask.case.set


def _no_skill(scored: Sequence[Scored]) -> dict[tuple[str, str], str]:
    """(setting, set) -> what the model cannot do, where it lacks a skill for all of its samples."""
    cells: dict[tuple[str, str], list[Scored]] = defaultdict(list)
    for answer in scored:
        cells[_cell(answer)].append(answer)
    return {cell: some[0].sample.note for cell, some in cells.items() if all(row.outcome == "no_skill" for row in some)}


def _no_skill_tables(lacking: Mapping[tuple[str, str], str]) -> list[Table]:
    sets: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (setting, name), why in lacking.items():
        sets[setting, why].append(name)
    rows = tuple((setting, ", ".join(names), f"no such skill: {why}") for (setting, why), names in sets.items())
    return [Table("Not asked: no such skill", ("Setting", "Sets", "Why"), rows)]


def _not_scored(scored: Sequence[Scored], partial: bool = False) -> dict[tuple[str, str], str]:
    """(setting, set) -> why it has no score: a number there would be about the judge's or the model's server, or about
    answers that are lacking. partial: as of `FolderAnswers`."""
    cells: dict[tuple[str, str], list[Scored]] = defaultdict(list)
    settings: dict[str, list[Scored]] = defaultdict(list)
    for answer in scored:
        cells[_cell(answer)].append(answer)
        settings[answer.sample.ask.setting].append(answer)
    reasons = {cell: why for cell, some in cells.items() if (why := mostly_failed(some))}
    groups: Mapping[Any, list[Scored]] = cells if partial else settings
    for group, some in groups.items():
        failed = [answer for answer in some if answer.outcome == "generation_failed"]
        if len(failed) == len(some) or (partial and 2 * len(failed) > len(some)):
            ((note, _),) = Counter(" ".join(answer.sample.note.split())[:_NOTE] for answer in failed).most_common(1)
            why = f"the model failed {len(failed)} of {len(some)} ({note or 'no image'})"
            reasons |= {cell: why for cell in cells if group in (cell, cell[0])}
    return reasons


def _about_judge(
    benchmark: Benchmark, plan: EvaluationPlan, scored: Sequence[Scored]
) -> tuple[dict[str, Any] | None, list[Table]]:
    """How well the judge of these samples is known, and its scores beside corrected ones."""
    by = Counter(answer.by for answer in scored if answer.by not in ("", "program"))
    if plan.judge is None or not by:
        return None, []
    from uni_train.eval.judges import agreement

    record = agreement.find(plan.store_folder, plan.judge, benchmark.name)
    cited = agreement.citation(plan.store_folder, plan.judge, benchmark)
    judged = agreement.judged_scores(scored, plan.judge, record)
    about = {"name": plan.judge.name, "way": plan.judge.label, "samples": by.total(), "by": dict(by.most_common())}
    return about | {"calibration": cited, "scores": judged}, [agreement.table_of(judged, agreement.sentence_of(cited))]


def _verdicts(
    benchmark: Benchmark, samples: Iterable[Sample], n: int, plan: EvaluationPlan, folder: Path, progress: Progress
) -> list[Scored]:
    """Each sample's verdict: a program's where one can tell, else the judge's."""
    scored: list[Scored] = []
    open_: list[int] = []
    with progress.bar(f"check {benchmark.name}", n) as bar:
        for sample in samples:
            verdict = benchmark.check(sample) if sample.status == "ok" else None
            if verdict is None and sample.status == "ok":
                open_.append(len(scored))
            scored.append(Scored(sample, verdict))
            bar.advance()
    if open_ and plan.judge is not None:
        from uni_train.eval import judges

        asked = [scored[i].sample for i in open_]
        answers = judges.run(asked, benchmark, plan.judge, folder, progress, store=plan.store_folder)
        for i, answer in zip(open_, answers, strict=True):
            scored[i] = answer
    elif open_:
        for i in open_:
            scored[i] = replace(scored[i], by="", failure="unjudged")
    return scored


def _write(folder: Path, benchmark: str, index: int, scored: Sequence[Scored], images: ImageStore) -> str:
    """One shard, named by its content: an older scores.json keeps the files that it names until it is replaced."""
    words = [[row.sample.key, row.sample.ask.seed, row.sample.note, row.by, row.failure, row.cause, list(row.replies),
              None if row.verdict is None else row.verdict.to_dict()] for row in scored]  # fmt: skip
    digest = hashlib.blake2b(json.dumps(words).encode(), digest_size=6).hexdigest()
    name = f"{benchmark}-{index:05d}-{digest}.parquet"
    write_scored(folder / name, scored, images)
    return name


def _count(scored: Iterable[Scored], of: Callable[[Scored], str]) -> dict[str, dict[str, dict[str, int]]]:
    counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for answer in scored:
        counts[answer.sample.ask.setting][answer.sample.ask.case.set][of(answer)] += 1
    order = {name: i for i, name in enumerate(OUTCOMES)}
    return {
        setting: {
            name: dict(sorted(counts.items(), key=lambda item: (order.get(item[0], len(order)), item[0])))
            for name, counts in by_set.items()
        }
        for setting, by_set in counts.items()
    }


def _chunk(model: StoredModel | FolderAnswers) -> int:
    return max(model.think_batch, model.draw_batch)


def _steps_of(bar: Bar) -> Callable[[int, int], None]:
    """Shows that a slow model is at work: the step of the call under way."""
    return lambda done, total: bar.advance(0, step=done)


@contextmanager
def _timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    seconds[phase] = time.perf_counter() - began


def _read(file: Path) -> dict[str, Any]:
    try:
        loaded = read_json(file)
    except (ValueError, OSError) as error:
        raise UserError(
            f"{file} is damaged ({reason(error)})", "Delete it and run the command again: calls are kept."
        ) from error
    if not isinstance(loaded, dict):
        raise UserError(f"{file} is damaged: it is not a JSON object", "Delete it and run the command again.")
    return loaded
