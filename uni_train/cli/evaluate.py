"""`uni_train eval`: score a checkpoint; compare two; say what scoring would take.

What is typed becomes an `EvaluationPlan` here (`eval.evaluation`), and what came of it a table, a report, and, if
wanted, a row in Weights & Biases.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from uni_train.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from eval.benchmark import Ask, Benchmark, Case, Table
    from eval.evaluation import Evaluation, EvaluationPlan
    from eval.judges import JudgeConfig
    from eval.judges.calibration import Calibration
    from eval.plan import Row
    from eval.watch import Checkpoint
    from uni_train.cli.progress import ConsoleProgress
    from uni_train.models.remote import RemoteSettings

BENCHMARKS = ("unisandbox", "ureason")
_STEP = re.compile(r"step=\d{8,}")
SNAPSHOTS = ".snapshots"
PROJECT = "uni_train"
_TABLES = 2  # of a benchmark on the console; the report has all
F = TypeVar("F", bound=Callable[..., Any])


# --- what can be typed ----------------------------------------------------------------------------------------------


class _Names(click.ParamType):
    """a,b,c."""

    name = "NAMES"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        return tuple(name.strip() for name in value.split(",") if name.strip())


class _Pairs(click.ParamType):
    """name=value,name=value; values are numbers."""

    name = "NAME=X"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return {name.strip(): float(x) for name, _, x in (one.partition("=") for one in value.split(","))}
        except ValueError:
            self.fail(f"{value!r} is not NAME=NUMBER,NAME=NUMBER", param, ctx)


class _Price(click.ParamType):
    """dollars a million tokens, read and written: 2.5,10."""

    name = "IN,OUT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            read, written = (float(x) for x in value.split(","))
        except ValueError:
            self.fail(f"{value!r} is not two numbers: dollars a million tokens read, and written", param, ctx)
        return read, written


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options of `eval` and `watch`, as typed; see their help."""

    benchmark: tuple[str, ...]
    data: tuple[str, ...]
    world: str | None
    n: int
    split: str
    sets: tuple[str, ...]
    settings: tuple[str, ...]
    subset: int | None
    k: int
    seed: int
    labels: str
    characters: tuple[str, ...]
    compat: str
    verifier: str
    prompt_model: str | None
    sampling: tuple[str, ...]
    batch: int | None
    connections: int
    key_env: str | None
    revision: str
    retry_failed: bool
    judge: str
    judge_base_url: str | None
    judge_dialect: str
    judge_key_env: str | None
    judge_revision: str
    judge_connections: int
    judge_max_tokens: int
    judge_timeout: float
    judge_price: tuple[float, float] | None
    judge_cost_limit: float | None
    out: Path | None
    store: Path | None
    logger: str
    project: str
    group: str | None


def evaluation_options(command: F) -> F:
    """The options that `eval` and `watch` share; a command takes them as keywords, for `Asked(**keywords)`."""
    names = _Names()
    options = [
        click.option(
            "--benchmark", "-b", type=names, default="unisandbox", show_default=True, help="unisandbox,ureason"
        ),
        click.option("--data", multiple=True, metavar="[NAME=]DIR", help="Published files of a benchmark; repeatable."),
        click.option(
            "--world",
            type=click.Choice(["nano", "everyday"]),
            help="Of questions of our own, without --data.  [default: nano for nano, else everyday]",
        ),
        click.option("--n", type=click.IntRange(1), default=100, show_default=True, help="Questions of our own a set."),
        click.option("--split", type=click.Choice(["test", "validation", "train"]), default="test", show_default=True),
        click.option("--sets", type=names, default="", help="Which sets (math1, spatial, ...).  [default: all]"),
        click.option("--settings", type=names, default="", help="normal,cot; direct,...  [default: all]"),
        click.option("--subset", type=click.IntRange(1), metavar="N", help="About N cases of each benchmark."),
        click.option("--k", type=click.IntRange(1), default=1, show_default=True, help="Draws of each case."),
        click.option(
            "--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the draws and the subset."
        ),
        click.option(
            "--labels",
            type=click.Choice(["official", "corrected", "both"]),
            default="both",
            show_default=True,
            help="UniSandbox: answers as published, or recomputed.",
        ),
        click.option(
            "--characters", type=names, default="", help="UniSandbox: whose knowledge to ask for.  [default: all]"
        ),
        click.option(
            "--compat",
            type=click.Choice(["paper", "official"]),
            default="paper",
            show_default=True,
            help="Where paper and published code differ.",
        ),
        click.option(
            "--verifier",
            type=click.Choice(["program", "judge"]),
            default="program",
            show_default=True,
            help="Who scores what a program could.",
        ),
        click.option("--prompt-model", metavar="MODEL", help="UReason: also draw from prompts that MODEL writes."),
        click.option("--sampling", multiple=True, metavar="KEY=VALUE", help="Replaces the model's own; repeatable."),
        click.option("--batch", type=click.IntRange(1), metavar="N", help="Requests at once.  [default: the model's]"),
        click.option("--connections", type=click.IntRange(1), default=8, show_default=True, help="To a remote model."),
        click.option("--key-env", metavar="NAME", help="Environment variable with the remote model's key."),
        click.option("--revision", default="", metavar="TEXT", help="What is behind a remote model's name."),
        click.option("--retry-failed", is_flag=True, help="Make calls again that brought no answer."),
        click.option("--judge", default="none", show_default=True, metavar="none|MODEL", help="openai/gpt-4o, ..."),
        click.option("--judge-base-url", metavar="URL", help="The judge's own OpenAI-compatible server."),
        click.option("--judge-dialect", type=click.Choice(["paper", "nano"]), default="paper", show_default=True),
        click.option("--judge-key-env", metavar="NAME", help="Environment variable with the judge's key."),
        click.option("--judge-revision", default="", metavar="TEXT", help="What is behind the judge's name."),
        click.option("--judge-connections", type=click.IntRange(1), default=16, show_default=True, metavar="N"),
        click.option("--judge-max-tokens", type=click.IntRange(1), default=1024, show_default=True, metavar="N"),
        click.option(
            "--judge-timeout", type=click.FloatRange(0.1), default=120.0, show_default=True, metavar="SECONDS"
        ),
        click.option("--judge-price", type=_Price(), help="Dollars a million tokens, read and written."),
        click.option("--judge-cost-limit", type=click.FloatRange(0), metavar="DOLLARS", help="Stop judging there."),
        click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="[default: evals]"),
        click.option(
            "--store", type=click.Path(path_type=Path), metavar="DIR", help="Finished calls.  [default: OUT/store]"
        ),
        click.option("--logger", type=click.Choice(["none", "wandb"]), default="none", show_default=True),
        click.option("--project", default=PROJECT, show_default=True, help="W&B project, where no run says it."),
        click.option("--group", metavar="NAME", help="W&B group.  [default: the training run's]"),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.group("eval", invoke_without_command=True)
@click.option(
    "--checkpoint", "-c", metavar="PATH|NAME|URL#MODEL", help="A folder, a run, a step of it, shipped, or remote."
)
@evaluation_options
@click.option("--name", metavar="NAME", help="Of the evaluation's folder.  [default: model, benchmarks, a hash]")
@click.option("--plan", "plan_only", is_flag=True, help="Print calls, tokens, cost and GPU hours, and stop.")
@click.option("--seconds", type=_Pairs(), metavar="draw=9,think=4", help="--plan: of one call, on one GPU.")
@click.option("--gpu-price", type=click.FloatRange(0), metavar="DOLLARS", help="--plan: of an hour of one GPU.")
@click.option("--image-tokens", type=click.IntRange(1), default=1000, show_default=True, help="--plan: of a picture.")
@click.option(
    "--reply-tokens", type=click.IntRange(1), default=200, show_default=True, help="--plan: of a judge's reply."
)
@click.pass_context
def evaluate(
    context: click.Context,
    checkpoint: str | None,
    name: str | None,
    plan_only: bool,
    seconds: dict[str, float] | None,
    gpu_price: float | None,
    image_tokens: int,
    reply_tokens: int,
    **options: Any,
) -> None:
    """Score a checkpoint; the same command again continues.

    Every call of the model and every reply of a judge is stored once below OUT/store: what was killed goes on where it
    was, and another judge, or other labels, ask the model for nothing again. docs/eval_cli.md says more.

    \b
    Examples:
      uni_train eval -c shipped
      uni_train eval -c runs/stars_curriculum/seed0 -b unisandbox,ureason --logger wandb
      uni_train eval -c checkpoints/BAGEL-7B-MoT --data UniSandbox/benchmark --judge google/gemini-2.5-pro
      uni_train eval -c http://127.0.0.1:8000/v1#nano --world nano --subset 50
      uni_train eval -c checkpoints/BAGEL-7B-MoT -b ureason --plan --judge-price 1.25,10
      uni_train eval compare evals/before evals/after
    """
    if context.invoked_subcommand is not None:
        return
    if checkpoint is None:
        raise UsageError("--checkpoint is missing", "Name a folder, a run, shipped, or URL#MODEL.")
    asked = Asked(**options)
    from uni_train.cli.progress import ConsoleProgress

    progress = ConsoleProgress()
    if plan_only:
        from eval.plan import Prices, Sizes

        read, written = asked.judge_price or (None, None)
        prices = Prices(read, written, gpu_price)
        print_plan(plan_of(checkpoint, asked), prices, Sizes(image_tokens, reply_tokens), seconds or {}, progress)
        return
    with loadable(checkpoint, asked, progress) as (path, place):
        run_evaluation(replace(plan_of(path, asked), name=name), asked, place, progress)


# --- from what is typed to a plan -----------------------------------------------------------------------------------


@contextmanager
def loadable(checkpoint: str, asked: Asked, progress: ConsoleProgress) -> Iterator[tuple[str, Checkpoint | None]]:
    """What the engine can load, and the place in a run that it is; a step of a training is written as a model first.

    The written model is removed behind the block, but kept by an error or a kill, for the next start.
    """
    from eval.respondent import is_remote
    from eval.watch import place_of

    if is_remote(checkpoint) or not Path(checkpoint).exists():
        yield checkpoint, None
        return
    place = place_of(Path(checkpoint))
    if not _STEP.fullmatch(Path(checkpoint).name):
        yield checkpoint, place
        return
    import shutil

    from uni_train.files import remove_partials
    from uni_train.stages.snapshot import write_snapshot

    copies = _out(asked) / SNAPSHOTS / _safe(place.key if place else checkpoint)
    progress.say(f"writing the model of {checkpoint}")
    copies.mkdir(parents=True, exist_ok=True)
    remove_partials(copies)
    yield str(write_snapshot(Path(checkpoint), copies)), place
    shutil.rmtree(copies, ignore_errors=True)


def _safe(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_.=" else "-" for c in name)


def _out(asked: Asked) -> Path:
    return asked.out if asked.out is not None else Path("evals")


def plan_of(checkpoint: str, asked: Asked) -> EvaluationPlan:
    """Everything that is typed, checked as far as it can be without asking anybody."""
    from eval.evaluation import EvaluationPlan

    benchmarks = benchmarks_of(checkpoint, asked)
    offered = tuple(dict.fromkeys(name for one in benchmarks for name in one.settings))
    for setting in asked.settings:
        if setting not in offered:
            raise UsageError(f"no benchmark here has a setting {setting}", did_you_mean(setting, offered, "settings"))
    options: dict[str, Any] = {"verifier": asked.verifier, "compat": asked.compat, "labels": asked.labels}
    if asked.prompt_model:
        options["prompt_model"] = asked.prompt_model
    return EvaluationPlan(
        checkpoint=checkpoint,
        benchmarks=benchmarks,
        settings=asked.settings or None,
        subset=asked.subset,
        seed=asked.seed,
        k=asked.k,
        judge=judge_of(asked),
        options=options,
        sampling=_sampling(asked.sampling),
        remote=_remote(asked),
        batch=asked.batch,
        retry_failed=asked.retry_failed,
        out=_out(asked),
        store=asked.store,
        command=tuple(sys.argv),
    )


def benchmarks_of(checkpoint: str, asked: Asked) -> list[Benchmark]:
    """The benchmarks that are asked for, over their published files or questions of our own."""
    for name in asked.benchmark:
        if name not in BENCHMARKS:
            raise UsageError(f"there is no benchmark {name}", did_you_mean(name, BENCHMARKS, "benchmarks"))
    if not asked.benchmark:
        raise UsageError("--benchmark is empty", f"Known benchmarks: {', '.join(BENCHMARKS)}.")
    from data_gen.ureason.taxonomy import TASKS
    from eval.benchmarks.unisandbox import UniSandbox
    from eval.benchmarks.unisandbox.cases import ALL_SETS
    from eval.benchmarks.ureason import UReason

    known = {"unisandbox": tuple(ALL_SETS), "ureason": tuple(TASKS)}
    offered = [name for benchmark in asked.benchmark for name in known[benchmark]]
    for name in asked.sets:
        if name not in offered:
            raise UsageError(f"no benchmark here has a set {name}", did_you_mean(name, offered, "sets"))
    data = _folders(asked)
    world = asked.world or _world(checkpoint)
    made: list[Benchmark] = []
    for name in asked.benchmark:
        sets = tuple(one for one in asked.sets if one in known[name])
        if asked.sets and not sets:
            raise UsageError(f"--sets names none of {name}", f"Its sets: {', '.join(known[name])}.")
        shared: dict[str, Any] = {
            "world": world, "n": asked.n, "split": asked.split, "sets": sets or None, "compat": asked.compat,
            "verifier": asked.verifier,
        }  # fmt: skip
        if name == "unisandbox":
            made.append(UniSandbox(data.get(name), labels=asked.labels, names=asked.characters, **shared))
        else:
            made.append(UReason(data.get(name), external=_external(asked), **shared))
    return made


def _folders(asked: Asked) -> dict[str, Path]:
    """--data NAME=DIR; the name may be left out where there is one benchmark."""
    found: dict[str, Path] = {}
    for one in asked.data:
        name, equals, folder = one.partition("=")
        if not equals and len(asked.benchmark) == 1:
            name, folder = asked.benchmark[0], one
        elif not equals:
            raise UsageError(f"--data {one}: of which benchmark?", f"Write --data {asked.benchmark[0]}={one}.")
        if name not in asked.benchmark:
            raise UsageError(f"--data {one}: {name} is not asked", did_you_mean(name, asked.benchmark, "benchmarks"))
        found[name] = Path(folder)
    return found


def _world(checkpoint: str) -> str:
    """nano is asked about its own world; nobody else knows it."""
    from eval.respondent import is_remote

    if is_remote(checkpoint):
        return "everyday"
    from uni_train.models.load import model_config

    return "nano" if checkpoint == "shipped" or model_config(checkpoint).name.startswith("nano") else "everyday"


def _external(asked: Asked) -> Any:
    if asked.prompt_model is None:
        return None
    from eval.calls import CallStore
    from eval.respondent import open_model

    store = asked.store if asked.store is not None else _out(asked) / "store"
    return open_model(asked.prompt_model, CallStore(store), remote=_remote(asked), retry_failed=asked.retry_failed)


def judge_of(asked: Asked) -> JudgeConfig | None:
    """The judge that is asked for."""
    if asked.judge == "none":
        if asked.verifier == "judge":
            raise UsageError("--verifier judge needs a judge", "Name one with --judge MODEL.")
        return None
    from eval.judges import JudgeConfig, Price
    from eval.judges.revision import with_served_revision

    judge = JudgeConfig(
        model=asked.judge,
        base_url=asked.judge_base_url,
        key_env=asked.judge_key_env,
        revision=asked.judge_revision,
        dialect=asked.judge_dialect,
        max_tokens=asked.judge_max_tokens,
        max_connections=asked.judge_connections,
        timeout=asked.judge_timeout,
        price=None if asked.judge_price is None else Price(*asked.judge_price),
        cost_limit=asked.judge_cost_limit,
    )
    return with_served_revision(judge)


def _remote(asked: Asked) -> RemoteSettings:
    from uni_train.models.remote import RemoteSettings

    return RemoteSettings(key_env=asked.key_env, revision=asked.revision, connections=asked.connections)


def _sampling(pairs: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE of the model's sampling settings, each of the kind that it has."""
    from uni_train.config.schema import SamplingConfig

    known = [field.name for field in fields(SamplingConfig)]
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if key not in known or not equals:
            raise UsageError(f"--sampling {pair}: no such setting", did_you_mean(key, known, "settings"))
        try:
            found[key] = int(value) if re.fullmatch(r"-?\d+", value) else float(value)
        except ValueError:
            found[key] = value
    return found


# --- running, showing -----------------------------------------------------------------------------------------------


def run_evaluation(
    plan: EvaluationPlan, asked: Asked, place: Checkpoint | None, progress: ConsoleProgress
) -> Evaluation:
    """Run it, print its tables, write its report, log it."""
    from eval import evaluation as engine
    from eval.report.evaluation import report_of
    from uni_train.stages.cpu import prepare_cpu

    prepare_cpu("auto")
    done = engine.run(plan, progress)
    show(done, progress)
    page = report_of(done)
    if asked.logger == "wandb":
        _track(done, asked, place)
    progress.say(f"evaluation: {done.folder}")
    progress.say(f"report: {page}")
    return done


def show(done: Evaluation, progress: ConsoleProgress) -> None:
    """The papers' tables, with intervals, and what became of the samples."""
    from eval.report.evaluation import OUTCOME_NAMES, header_of

    for name, result in done.results.items():
        for table in result.tables[:_TABLES]:
            print_table(table, progress)
        if len(result.tables) > _TABLES:
            progress.say(f"{name}: {len(result.tables) - _TABLES} more tables are in the report")
        totals: dict[str, int] = {}
        for by_set in result.outcomes.values():
            for counts in by_set.values():
                for outcome, count in counts.items():
                    totals[outcome] = totals.get(outcome, 0) + count
        shown = ", ".join(f"{OUTCOME_NAMES[one]} {count} ({count / result.n:.1%})" for one, count in totals.items())
        progress.say(f"{name}: {result.n} samples: {shown}")
    for note in header_of(done).notes:
        progress.say(f"note: {note}")


def print_table(table: Table, progress: ConsoleProgress) -> None:
    """A table of a benchmark on the console, scores with their intervals below; turned on its side where too wide."""
    from rich import box
    from rich.table import Table as Grid

    lines = [list(table.columns), *([_console_cell(value) for value in row] for row in table.rows)]
    if _width(lines) > progress.console.width and len(lines) < len(table.columns):
        lines = [list(line) for line in zip(*lines, strict=True)]
    grid = Grid(title=table.title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for place, column in enumerate(lines[0]):
        grid.add_column(column, justify="right" if place else "left", overflow="fold")
    for line in lines[1:]:
        grid.add_row(*line)
    progress.console.print(grid, highlight=False)
    if table.note:
        progress.say(f"  {table.note}")


def _console_cell(value: Any) -> str:
    from eval.statistics import Estimate, PairedComparison

    paired = isinstance(value, PairedComparison)
    if isinstance(value, PairedComparison):
        value = value.difference
    if isinstance(value, Estimate):
        if value.value is None:
            return "–"
        if paired or value.low < 0:
            return f"{value.value:+.2f}\n" + f"{value.low:+.2f} to {value.high:+.2f}".replace("0.", ".")
        return f"{value.value:.2f}\n" + f"{value.low:.2f}–{value.high:.2f}".replace("0.", ".")
    return "–" if value is None else str(value)


def _width(lines: Sequence[Sequence[str]]) -> int:
    """Letters that the lines need side by side."""
    columns = zip(*lines, strict=True)
    return sum(1 + max(len(part) for cell in column for part in cell.split("\n")) for column in columns) + 2


def _track(done: Evaluation, asked: Asked, place: Checkpoint | None) -> None:
    """Into the W&B group of the training that the checkpoint is from, if it is from one."""
    from eval.tracking import log_evaluation
    from uni_train.training.wandb_run import open_run

    project, group, offline = asked.project, asked.group, None
    if place is not None:
        import yaml

        from uni_train.config.build import build
        from uni_train.training.wandb_run import group_of

        logger = build(yaml.safe_load((place.run / "config.yaml").read_text(encoding="utf-8"))).logger
        project = project if asked.project != PROJECT else logger.project
        group, offline = group or group_of(logger.group, place.run), logger.offline
    with open_run(done.folder, project=project, name=done.folder.name, group=group, offline=offline) as run:
        log_evaluation(run, done, None if place is None else place.updates)


# --- before anything is spent ---------------------------------------------------------------------------------------


def print_plan(
    plan: EvaluationPlan, prices: Any, sizes: Any, seconds: Mapping[str, float], progress: ConsoleProgress
) -> None:
    """Calls, judge tokens, cost and GPU hours of an evaluation."""
    from eval import plan as planning

    for kind in seconds:
        if kind not in planning.KINDS[:3]:
            raise UsageError(f"--seconds {kind}: no such call", did_you_mean(kind, planning.KINDS[:3], "calls"))
    judged = plan.judge is not None or prices.judge_in is not None
    rows = [
        planning.estimate(one, _asks(one, plan), judged=judged, prices=prices, sizes=sizes, seconds=seconds)
        for one in plan.benchmarks
    ]
    if len(rows) > 1:
        rows.append(planning.total(rows))
    shown = [_plan_column(row, prices) for row in rows]
    progress.table(
        f"What it takes to evaluate {plan.checkpoint}",
        ["", *(row.benchmark for row in rows)],
        [[name, *(column[name] for column in shown)] for name in shown[0]],
    )
    progress.say("Nothing was asked. Calls that are stored already cost nothing, and are counted here all the same.")
    if judged:
        progress.say(
            f"A token of the judge: {planning.LETTERS:g} letters; a picture {sizes.image_tokens} tokens, a reply "
            f"{sizes.reply_tokens} (--image-tokens, --reply-tokens)."
        )
    else:
        progress.say("Without --judge, what no program can check has no score.")
    if not seconds:
        progress.say(
            "GPU hours need the seconds of a call: --seconds draw=9,think=4. Run with --subset 16 first and divide "
            "the time that it took; what it asks is stored and not asked again."
        )


def _asks(benchmark: Benchmark, plan: EvaluationPlan) -> list[Ask]:
    from eval.generation import asks_of, cases_of, settings_of

    settings = settings_of(benchmark, plan.settings)
    cases = cases_of(benchmark, sets=plan.sets, subset=plan.subset, seed=plan.seed)
    return asks_of(cases, settings, k=plan.k, seed=plan.seed)


def _plan_column(row: Row, prices: Any) -> dict[str, str]:
    from eval import plan as planning

    hours = row.gpu_hours
    found = {"cases": f"{row.cases:,}", "samples": f"{row.samples:,}"}
    found |= {f"{kind} calls": f"{row.calls.get(kind, 0):,}" for kind in planning.KINDS}
    found |= {"judge reads, tokens": f"{row.tokens_in:,}", "judge writes, tokens": f"{row.tokens_out:,}"}
    found["judge, dollars"] = "–" if row.cost is None else f"{row.cost:.2f}"
    found["GPU hours"] = "–" if hours is None else f"{hours:.2f}"
    if hours is not None and prices.gpu_hour is not None:
        found["GPU, dollars"] = f"{hours * prices.gpu_hour:.2f}"
    return found


# --- compare --------------------------------------------------------------------------------------------------------


@evaluate.command("compare")
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@click.option("--flips", type=click.IntRange(0), default=10, show_default=True, help="How many of them to print.")
@click.option(
    "--html", type=click.Path(path_type=Path), metavar="FILE", help="Both answers side by side, to look through."
)
@click.option("--json", "as_json", type=click.Path(path_type=Path), metavar="FILE", help="Everything, as JSON.")
def compare(first: Path, second: Path, flips: int, html: Path | None, as_json: Path | None) -> None:
    """Compare two evaluations of the same questions: paired scores, and what flipped.

    FIRST and SECOND are folders below evals/. They must have asked the same benchmark revision, subset, seed and
    number of draws; whatever else differs is said.

    \b
    Example:
      uni_train eval compare evals/before evals/after --html flips.html
    """
    from eval.compare import compare as compared
    from uni_train.cli.progress import ConsoleProgress

    progress = ConsoleProgress()
    found = compared(first, second)
    for table in found.tables():
        print_table(table, progress)
    for flip in found.flips[:flips]:
        progress.say(f"  {flip.direction}: {flip.set}, {flip.setting}: {' and '.join(flip.ids)}")
    if len(found.flips) > flips:
        progress.say(f"  and {len(found.flips) - flips} more flips")
    for note in found.notes:
        progress.say(f"note: {note}")
    if as_json is not None:
        from uni_train.files import atomic_write_json

        as_json.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_json(as_json, found.to_dict())
        progress.say(f"written: {as_json}")
    if html is not None:
        from eval.report.comparison import write_comparison

        html.parent.mkdir(parents=True, exist_ok=True)
        progress.say(f"written: {write_comparison(html, found)}")


# --- pool -----------------------------------------------------------------------------------------------------------


@evaluate.command("pool")
@click.argument("folders", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="FOLDER...")
@click.option("--json", "as_json", type=click.Path(path_type=Path), metavar="FILE", help="The numbers, as JSON.")
def pool(folders: tuple[Path, ...], as_json: Path | None) -> None:
    """Count UniSandbox's knowledge questions over several models, as its Table 4 does.

    Knowledge is taught to one model a character, or a pair. Evaluate each about those that it was taught
    (--characters), then pool the evaluations' folders.

    \b
    Example:
      uni_train eval pool evals/lysendria evals/kaelorix
    """
    from eval.benchmarks.unisandbox.pooling import pool as pooled
    from uni_train.cli.progress import ConsoleProgress

    progress = ConsoleProgress()
    found = pooled(folders)
    for table in found.tables:
        print_table(table, progress)
    progress.say(f"{len(found.folders)} evaluations of {found.models} models")
    for note in found.notes:
        progress.say(f"note: {note}")
    if as_json is not None:
        from uni_train.files import atomic_write_json

        as_json.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_json(as_json, {"folders": [str(one) for one in found.folders], **found.scores})
        progress.say(f"written: {as_json}")


# --- calibrate ------------------------------------------------------------------------------------------------------


@evaluate.command("calibrate")
@click.option(
    "--checkpoint", "-c", metavar="PATH|NAME|URL#MODEL", help="Whose pictures, read by programs, are anchors."
)
@click.option(
    "--references",
    default="drawn",
    show_default=True,
    metavar="drawn|DIR|none",
    help="Right pictures: of the renderer, or files named after their cases.",
)
@click.option("--anchors", type=click.IntRange(2), default=200, show_default=True, help="At most so many of each kind.")
@evaluation_options
def calibrate(checkpoint: str | None, references: str, anchors: int, **options: Any) -> None:
    """Measure how far a judge agrees with what is known.

    The judge is asked about pictures that a program has read as right or wrong (--checkpoint), about references, which
    it must pass, and about references of other cases, which it must fail. Evaluations with this judge cite the record.

    \b
    Example:
      uni_train eval calibrate -c shipped --judge nano --judge-base-url http://127.0.0.1:8000/v1 --judge-dialect nano
    """
    from eval import evaluation as engine
    from eval.generation import cases_of
    from eval.judges import calibration
    from uni_train.cli.progress import ConsoleProgress

    asked, progress = Asked(**options), ConsoleProgress()
    judge = judge_of(asked)
    if judge is None:
        raise UsageError("--judge is missing", "Name the judge that is to be calibrated.")
    if checkpoint is None and references == "none":
        raise UsageError("there is nothing to compare the judge with", "Give --checkpoint, --references, or both.")
    store = asked.store if asked.store is not None else _out(asked) / "store"
    picture: Callable[[Case], bytes | None] | None = calibration.drawn if references == "drawn" else None
    if picture is None and references != "none":
        picture = calibration.from_folder(Path(references))
    done: Evaluation | None = None
    by_program = replace(asked, judge="none", verifier="program")
    if checkpoint is not None:
        with loadable(checkpoint, asked, progress) as (path, _):
            done = engine.run(plan_of(path, by_program), progress)
    for benchmark in benchmarks_of(checkpoint or "shipped", asked):
        found: list[calibration.Anchor] = []
        if done is not None:
            scored = done.scored(benchmark.name, images=True)
            found += calibration.anchors_from_programs(scored, anchors, asked.seed)
        if picture is not None:
            cases = cases_of(benchmark, subset=anchors, seed=asked.seed)
            found += calibration.anchors_from_references(benchmark, cases, picture, seed=asked.seed)
        folder = _out(asked) / "calibrations" / benchmark.name
        result = calibration.calibrate(found, benchmark, judge, folder, progress, store=store)
        _print_calibration(result, progress)


def _print_calibration(found: Calibration, progress: ConsoleProgress) -> None:
    numbers = {
        "kappa": found.kappa,
        "accuracy": found.accuracy,
        "balanced accuracy": found.balanced_accuracy,
        "of the right ones, passed": found.sensitivity,
        "of the wrong ones, failed": found.specificity,
        **{f"accuracy on {kind} anchors": estimate for kind, estimate in found.by_kind.items()},
    }
    rows = [[name, *str(estimate).rsplit(" n=", 1)] for name, estimate in numbers.items()]
    progress.table(f"{found.benchmark}: the judge {found.judge['model']}", ["", "value", "n"], rows)
    unanswered = sum(side["none"] for kind in found.counts.values() for side in kind.values())
    if unanswered:
        progress.say(f"{unanswered} of {found.n} got no answer, which counts as disagreement")
    for one in found.disagreements[:5]:
        truth = "right" if one["right"] else "wrong"
        progress.say(f"  {one['kind']}, {truth}, judged {one['judged']}: {one['id']} ({one['setting']})")


def child_arguments(asked: Asked) -> list[str]:
    """The options as another process is given them (`watch`)."""
    found: list[str] = []
    for field in fields(Asked):
        value, name = getattr(asked, field.name), f"--{field.name.replace('_', '-')}"
        if value is None or value in ((), "", False):
            continue
        if value is True:
            found.append(name)
        elif field.name in ("data", "sampling"):
            found += [part for one in value for part in (name, one)]
        elif isinstance(value, tuple):
            found += [name, ",".join(map(str, value))]
        else:
            found += [name, str(value)]
    return found
