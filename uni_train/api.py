"""uni_train from Python: each function does what the command of its name does.

Examples:
    >>> import uni_train
    >>> model = uni_train.load_model("nano")
    >>> uni_train.generate(model, "Draw the number of trees equal to 3 + 2.", think=True).image  # uint8 [24, 24, 3]
    >>> run = uni_train.fit("stars_curriculum", {"seed": 1, "model.threads": 1})
    >>> run.summary["scores"]["after"]["normal"]["mapping1"]["value"]
    >>> uni_train.evaluate(run.path, "unisandbox", subset=60).results["unisandbox"].scores

All functions raise `UserError` for what a person can put right. Not here: exporting, launching on several nodes and
serving, which have commands alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.core.errors import UsageError, UserError, did_you_mean
from uni_train.data_gen.registry import get_task

if TYPE_CHECKING:
    import numpy as np

    from uni_train.config.insight import InsightConfig
    from uni_train.config.schema import EvalConfig, LoggerConfig, ModelConfig, Quantised
    from uni_train.distributed.ranks import Ranks
    from uni_train.eval.calls import StoredModel
    from uni_train.eval.evaluation import Evaluation
    from uni_train.eval.progress import Progress
    from uni_train.eval.sample import Respondent
    from uni_train.insight.analyses import Analysis
    from uni_train.models.base import UnifiedModel
    from uni_train.run_folder import RunCheckpoint

__all__ = [
    "Generated", "Run", "analyse", "answer", "evaluate", "fit", "generate", "get_reward", "get_task", "load_model",
]  # fmt: skip

# OpenMP reads this once, when torch is loaded: threads that spin while they wait make small models slow (docs/nano.md).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@contextmanager
def _user_errors() -> Iterator[None]:
    """Mistakes in data and what a disk refuses as UserError, as the command line shows them."""
    try:
        yield
    except (ValueError, OSError, ModuleNotFoundError) as error:
        from uni_train.console.failures import as_user_error

        user_error = as_user_error(error)
        if user_error is None:
            raise
        raise user_error from error


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run of a recipe. `load_model(run.path)` and `evaluate(run.path)` take the model that it trained.

    Attributes:
        path: the run folder, `<out>/<recipe>/<name>`.
    """

    path: Path

    @property
    def summary(self) -> dict[str, Any]:
        """summary.json: scores before and after, rounds, seconds, memory.

        Raises:
            UserError: the recipe measures nothing (`sft`), or the file is damaged.
        """
        from uni_train.eval import summary

        return dict(summary.read(self.path))

    @property
    def report(self) -> Path:
        """report.html: tables, curves and images in one file that needs no network."""
        return self.path / "report.html"


@dataclass(frozen=True, slots=True)
class Generated:
    """An image, uint8 [H, W, 3], and the thought behind it (None where the model drew at once)."""

    image: np.ndarray
    thought: str | None = None


@_user_errors()
def load_model(
    name_or_folder: str | Path, *, weights: Quantised | None = None, compile: bool = False, **sampling: Any
) -> UnifiedModel:
    """A model with its weights: on the GPU in bfloat16 where there is one, else on the CPU as stored.

    Args:
        name_or_folder: "nano", another name of `uni_train models`, a checkpoint's folder, a run's, or a Hub id
            ("hf://org/name@revision").
        weights: "nf4", "int8" or "fp8" hold the decoder in 4 or 8 bits; None: as stored, or as its run has it.
        compile: torch.compile makes the steps of writing and drawing; minutes at the first use of a shape.
        sampling: replaces sampling settings of the model (`steps=10`, `temperature=0.0`, `cfg_text_scale=4.0`).

    Raises:
        UserError: no weights there, or damaged ones. UsageError: no such name or setting.
    """
    from uni_train.models.checkpoint import model_config

    config = model_config(str(name_or_folder), weights, compile)
    known = [field.name for field in fields(config.sampling)]
    for name in sampling:
        if name not in known:
            raise UsageError(f"there is no sampling setting {name}", did_you_mean(name, known, "settings"))
    return build_here(replace(config, sampling=replace(config.sampling, **sampling)))


def build_here(config: ModelConfig) -> UnifiedModel:
    """A configured model on this machine's device, in the dtype that suits it."""
    import torch

    from uni_train.models.family import family_of
    from uni_train.models.load import build_model
    from uni_train.stages.cpu import prepare_cpu

    prepare_cpu(config.threads)
    gpu = torch.cuda.is_available()
    dtype = torch.bfloat16 if gpu and family_of(config.family).bfloat16 else None
    return build_model(config, dtype=dtype, device="cuda" if gpu else "cpu")


@_user_errors()
def generate(
    model: UnifiedModel | str | Path,
    prompt: str,
    *,
    think: bool = False,
    images: Sequence[np.ndarray] = (),
    seed: int = 0,
    size: tuple[int, int] | None = None,
    redraw: int = 1,
) -> Generated:
    """Draw one image.

    Args:
        model: loaded, or what `load_model` takes. Load it once to draw several images.
        think: reason in text first, and draw by that thought.
        images: uint8 [H, W, 3] each, to be edited.
        seed: decides everything random.
        size: height and width in pixels; None: of the last image, or the model's own.
        redraw: the most images: the model judges its own, and draws again by another seed until it accepts one.

    Raises:
        UserError: an empty prompt; `redraw` of a model that judges no images. SkillMissing: the model cannot think, or
            not draw from text alone.
    """
    from uni_train.models.base import ImageGenerator, Request, expect_skill

    requests = [Request("prompt", _spoken(prompt), tuple(images), seed=seed, size=size)]
    loaded: Any = expect_skill(_loaded(model), ImageGenerator)
    if redraw > 1:
        from uni_train.eval.redraw import Redrawing

        loaded = Redrawing(loaded, redraw, loaded.family)
    if not think:
        return Generated(loaded.draw(requests)[0])
    thoughts, drawn = loaded.think_and_draw(requests)
    return Generated(drawn[0], thoughts[0])


@_user_errors()
def answer(
    model: UnifiedModel | str | Path,
    prompt: str,
    *,
    images: Sequence[np.ndarray] = (),
    think: bool = False,
    seed: int = 0,
) -> str:
    """Answer one prompt, about `images` where there are any, in text. Arguments and errors as of `generate`."""
    from uni_train.models.base import Request, TextGenerator, expect_skill

    requests = [Request("prompt", _spoken(prompt), tuple(images), seed=seed)]
    return expect_skill(_loaded(model), TextGenerator).answer(requests, think=think)[0]


def get_reward(name: str) -> Any:
    """The reward of a name as recipes have it, with the errors of `uni_train.rewards.registry.find_reward`."""
    from uni_train.rewards.registry import find_reward

    return find_reward(name)


@_user_errors()
def fit(recipe: str | Path, overrides: Mapping[str, Any] | Sequence[str] = ()) -> Run:
    """Run a recipe to its end; the same call again continues it, or returns at once.

    Args:
        recipe: a name of `uni_train recipes`, or the path of a YAML file.
        overrides: `{"seed": 1, "optimizer": {"lr": 1e-4}}` or `["seed=1", "optimizer.lr=1e-4"]`: any keys of the
            recipe. Strings are read as on the command line.

    Raises:
        UserError: whatever a person can put right. UsageError: no such recipe, key or value. SystemExit: processes that
            the run has started (`strategy.devices`) have failed, and have said why.
    """
    from uni_train.fitting import run_recipe

    typed = list(_typed(overrides)) if isinstance(overrides, Mapping) else list(overrides)
    config = run_recipe(str(recipe), typed, fresh=False)
    return Run(Path(config.out) / config.recipe / config.run_name)


@_user_errors()
def evaluate(
    model: str | Path | Respondent | Callable[..., Any],
    benchmark: str | Sequence[str] = "unisandbox",
    *,
    revision: str | None = None,
    **keys: Any,
) -> Evaluation:
    """Score a model by one or several benchmarks; the same call again continues, and asks nothing twice.

    Args:
        model: a checkpoint as `load_model` takes it, a step of a training, an endpoint `URL#MODEL` or a folder of
            answers. Also an object with `draw` (`uni_train.eval.sample.Respondent`) or a function
            `(prompt, images, seed)`. A function returns an image (uint8 [H, W, 3] or PIL) or a text.
        benchmark: "unisandbox", "ureason", or several.
        revision: of an object or a function, which weights answer: its calls are kept under it. None: asked anew.
        keys: those of `uni_train eval` (`uni_train.config.schema.EvalConfig`): `subset=60`, `settings=["normal"]`,
            `k=4`, `seed=1`, `judge={"model": "openai/gpt-4o"}`, `verifier="judge"`, `out="evals"`, `name=...`,
            `sampling={"steps": 4}`, `options={"unisandbox": {"labels": "official"}}`.

    Returns:
        The evaluation: `results[benchmark].scores` (each with n and its 95 % interval), `.tables`, and every sample by
        `scored(benchmark)`.

    Raises:
        UserError: whatever a person can put right, also a set without a score because the judge or the model failed.
        UsageError: no such benchmark or key. SystemExit: the processes of `devices` have failed, and have said why.
    """
    from uni_train.config.build import build_section
    from uni_train.config.schema import EvalConfig
    from uni_train.distributed.ranks import Ranks

    names = [benchmark] if isinstance(benchmark, str) else list(benchmark)
    config = build_section(EvalConfig, {"benchmarks": names, **keys})
    if isinstance(model, str | Path):
        if config.devices > 1 and Ranks.from_environment().world_size == 1:
            from uni_train.distributed.launch import start

            code = start(["eval", str(model), f"benchmarks={_text(names)}", *_typed(keys)], config.devices)
            if code:
                raise SystemExit(code)
        return run_evaluation(str(model), config)  # after `start`: of stored calls
    from uni_train.eval.python_model import python_model
    from uni_train.eval.respondent import OF_WEIGHTS, expect_unset, paired
    from uni_train.eval.store import Store

    expect_unset(config, OF_WEIGHTS, "an object or a function draws in its own way")
    store = Store(Path(config.store_folder))
    opened = paired(python_model(model, store, revision=revision, batch=config.batch), config, store)
    return run_evaluation(opened.name, replace(config, world=config.world or "everyday"), model=opened)


def run_evaluation(
    checkpoint: str,
    config: EvalConfig,
    progress: Progress | None = None,
    show: Callable[[Evaluation, Path], None] | None = None,
    *,
    model: StoredModel | None = None,
) -> Evaluation:
    """Evaluate as `evaluate` does, by a checked configuration: run, write the report, log to W&B.

    Args:
        show: called with the evaluation and its report before a set without a score becomes an error.
        model: who is asked, where it is open already.

    Raises:
        UserError: whatever a person can put right; last, where a set could not be scored.
    """
    from uni_train.distributed.ranks import Ranks, joined

    ranks = Ranks.from_environment()
    if ranks.world_size == 1:
        return _run_evaluation(checkpoint, config, progress, show, model, ranks)
    import torch

    from uni_train.console.ranks import one_message
    from uni_train.eval.progress import Silent

    with joined(ranks, cuda=torch.cuda.is_available()), one_message(ranks):
        return _run_evaluation(checkpoint, config, progress if ranks.is_main else Silent(), show, model, ranks)


def _run_evaluation(
    checkpoint: str,
    config: EvalConfig,
    progress: Progress | None,
    show: Callable[[Evaluation, Path], None] | None,
    model: StoredModel | None,
    ranks: Ranks,
) -> Evaluation:
    from uni_train.console.progress import ConsoleProgress
    from uni_train.eval import evaluation as engine
    from uni_train.eval.configured import plan_of
    from uni_train.eval.report.evaluation import not_scored, report_of, without_number
    from uni_train.models.checkpoint import resolve
    from uni_train.run_folder import place_of
    from uni_train.stages.cpu import prepare_cpu

    progress = progress or ConsoleProgress()
    if model is None:
        checkpoint = resolve(checkpoint)
    prepare_cpu("auto", ranks.local_world_size)
    done = engine.run(plan_of(checkpoint, config), progress, model=model, ranks=ranks)
    if not ranks.is_main:
        return done
    page = report_of(done)
    if show is not None:
        show(done, page)
    if config.logger.kind == "wandb":
        _track(done, config.logger, place_of(Path(checkpoint)) if model is None else None, progress)
    broken = [f"{name}: {cell}" for name, result in done.results.items() for cell in not_scored(result)]
    if broken:
        hint = (
            "Put it right and run the same command again (calls of the model: retry_failed=true). A judge's refusals "
            "and other words are kept: to ask it again give judge.revision=NAME."
        )
        raise UserError("; ".join(broken), hint)
    if why := without_number(done):
        judged = any(result.unjudged for result in done.results.values())
        hint = "Add judge.model=MODEL: nothing is drawn again." if judged else "Ask in settings that fit the model."
        raise UserError(f"nothing has a score: {why}", hint)
    return done


@_user_errors()
def analyse(analysis: str, model: str | Path, **keys: Any) -> Analysis:
    """Analyse a model, as `uni_train insight` does; the page is `analyse(...).page`.

    Args:
        analysis: "links", "attention" or "states".
        model: a checkpoint as `load_model` takes it; for "links" also an endpoint `URL#MODEL`.
        keys: those of `uni_train insight` (`uni_train.config.insight.InsightConfig`): `task="mapping"`, `level=[2]`.

    Raises:
        UserError: whatever a person can put right. UsageError: no such analysis or key.
    """
    from uni_train.config.build import build_section
    from uni_train.config.insight import InsightConfig

    return run_analysis(analysis, str(model), build_section(InsightConfig, keys))


def run_analysis(analysis: str, checkpoint: str, config: InsightConfig, progress: Progress | None = None) -> Analysis:
    """Analyse as `analyse` does, by a checked configuration."""
    from uni_train.models.checkpoint import expect_there

    expect_there(checkpoint)  # before torch is imported, which takes seconds
    from uni_train.console.progress import ConsoleProgress
    from uni_train.insight.analyses import analyse as analysed
    from uni_train.stages.cpu import prepare_cpu

    prepare_cpu("auto")
    return analysed(analysis, checkpoint, config, progress or ConsoleProgress(), build_here)


def _track(done: Evaluation, logger: LoggerConfig, place: RunCheckpoint | None, progress: Progress) -> None:
    """Into the W&B group of the training that the checkpoint is from, if it is from one."""
    from uni_train.config.build import build_section
    from uni_train.config.schema import LoggerConfig
    from uni_train.core.reading_limits import read_yaml
    from uni_train.eval.tracking import log_evaluation
    from uni_train.training.wandb_run import group_of, offline_folders, open_run

    project, group, offline = logger.project, logger.group, logger.offline
    if place is not None:
        of_run = build_section(LoggerConfig, read_yaml(place.run / "config.yaml").get("logger"))
        project = project if project != LoggerConfig().project else of_run.project
        group = group or group_of(of_run.group, place.run)
        offline = of_run.offline if offline is None else offline
    with open_run(done.folder, project=project, name=done.folder.name, group=group, offline=offline) as run:
        log_evaluation(run, done, None if place is None else place.updates)
    for folder in offline_folders(done.folder):
        progress.say(f"W&B, offline: {folder}; `wandb sync` uploads it")


def _loaded(model: UnifiedModel | str | Path) -> UnifiedModel:
    return load_model(model) if isinstance(model, str | Path) else model


def _spoken(prompt: str) -> str:
    if not prompt.strip():
        raise UserError("the prompt is empty", "Say what is to be drawn or answered.")
    return prompt


def _typed(values: Mapping[str, Any], prefix: str = "") -> list[str]:
    """{"optimizer": {"lr": 0.1}} -> ["optimizer.lr=0.1"]."""
    texts: list[str] = []
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            texts += _typed(value, f"{prefix}{key}.")
        else:
            texts.append(f"{prefix}{key}={_text(value)}")
    return texts


def _text(value: Any, within: bool = False) -> str:
    """A value as an override has it; texts `within` lists and sections are in quotes."""
    from uni_train.config.compose import quoted

    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_text(part, True)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{','.join(_text(part, True) for part in value)}]"
    return quoted(str(value)) if within and isinstance(value, str | Path) else str(value)
