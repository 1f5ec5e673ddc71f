"""The analyses from their keys to a page: who is asked about which items, what is written, what is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from uni_train.config.build import build_section
from uni_train.config.insight import InsightConfig, first_and_last
from uni_train.config.schema import EvalConfig, ModelConfig, SamplingConfig
from uni_train.core.errors import UsageError, UserError, did_you_mean
from uni_train.data_gen.registry import task_of
from uni_train.eval import evaluation as engine
from uni_train.eval.benchmark import Benchmark, Case, Table
from uni_train.eval.configured import judge_of, world_of
from uni_train.eval.evaluation import Evaluation
from uni_train.eval.progress import Progress
from uni_train.eval.report.evaluation import not_scored, report_of
from uni_train.eval.task_benchmark import cases_of_task, item_of
from uni_train.insight import page
from uni_train.models.base import UnifiedModel
from uni_train.models.checkpoint import resolve, source_of
from uni_train.models.load import model_config

KEYS = {
    "links": ("k", "settings"),
    "attention": ("layers", "tokens", "maps", "interventions"),
    "states": ("probes",),
}
"""Analysis -> the keys that no other has."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """What an analysis has found.

    Attributes:
        page: insight.html, with all analyses of its folder; the numbers are beside it in NAME.json.
        tables: its first two; none of links, whose tables are those of the evaluation.
        evaluation: of links and interventions, with a report of every sample.
    """

    page: Path
    tables: tuple[Table, ...] = ()
    evaluation: Evaluation | None = None


def analyse(
    analysis: str,
    checkpoint: str,
    config: InsightConfig,
    progress: Progress,
    load: Callable[[ModelConfig], UnifiedModel],
) -> Analysis:
    """Run an analysis; the same call again asks nothing twice of what is evaluated.

    Args:
        analysis: one of KEYS.
        load: builds the model whose layers are watched.

    Raises:
        UsageError: no such analysis, or a key of another one. UserError: no such checkpoint or items; a remote model
            whose layers are to be watched; images that nobody can score.
    """
    _expect_keys(analysis, config)
    if config.out is not None and Path(config.out).is_file():
        raise UsageError(f"out={config.out} is a file", "Give the name of a folder.")
    named = Path(checkpoint).name or "model"
    folder = Path(config.out or Path("insight") / f"{named}-{config.task}".replace("#", "-"))
    if analysis == "states" and config.task == "knowledge":
        from uni_train.insight import knowledge, states

        models, failed = knowledge.models_of(checkpoint, config)
        config = replace(config, probes=False)  # three or four questions a model
        result = states.joined([_observed(analysis, *asked, config, progress, load) for asked in models])
        sets = ", ".join(dict.fromkeys(case.set for _, cases in models for case in cases))
        result["asked"] |= {"sets": sets, "items": len(result["labels"])}
        result["asked"] |= {"exam not passed": "; ".join(failed)} if failed else {}
        return Analysis(page.keep(folder, analysis, result), tuple(states.sections(result)[0].tables[:2]))
    checkpoint = resolve(checkpoint)
    cases, files = _cases(analysis, checkpoint, config)
    if analysis == "links":
        from uni_train.insight.links import Links, found_of

        evaluation = _evaluated(Links(cases, config.settings), checkpoint, config, folder, progress)
        return Analysis(page.keep(folder, analysis, found_of(evaluation)), evaluation=evaluation)
    result, evaluated = _observed(analysis, checkpoint, cases, config, progress, load), None
    result["asked"] |= files
    if analysis == "attention" and config.interventions:
        from uni_train.insight.interventions import Interventions

        evaluated = _evaluated(Interventions(cases), checkpoint, config, folder, progress)
        (tampered,) = evaluated.results.values()
        result["tables"] = [table.to_dict() for table in tampered.tables]
    tables = import_module(f"uni_train.insight.{analysis}").sections(result)[0].tables[:2]
    return Analysis(page.keep(folder, analysis, result), tuple(tables), evaluated)


def _expect_keys(analysis: str, config: InsightConfig) -> None:
    if analysis not in KEYS:
        raise UsageError(f"there is no analysis {analysis}", did_you_mean(analysis, tuple(KEYS), "analyses"))
    for other, keys in KEYS.items():
        for key in keys:
            if other != analysis and getattr(config, key) != getattr(InsightConfig, key):
                raise UsageError(f"insight {analysis} takes no {key}", f"It is a key of insight {other}.")
    build_section(SamplingConfig, config.sampling)


def _cases(analysis: str, checkpoint: str, config: InsightConfig) -> tuple[list[Case], dict[str, str]]:
    """The questions, and where `data` names files what these are; all that can be refused before a model is loaded."""
    if analysis != "links" and source_of(checkpoint).kind == "endpoint":
        raise UserError("the layers of a remote model cannot be read", "Give its checkpoint.")
    n, files = config.n or (16 if analysis == "attention" else 50), {}
    if config.data:
        from uni_train.insight.published import published_cases

        cases, files["questions"] = published_cases(analysis, checkpoint, config, n)
    else:
        world = config.world or world_of(checkpoint)
        cases = cases_of_task(config.task, config.level, n, world=world, split=config.split, seed=config.seed)
    scored = analysis == "attention" and config.interventions and config.judge is None
    unread = {case.set for case in cases if scored and not task_of(item := item_of(case)).has_image(item)}
    if unread:
        raise UserError(
            f"no program can check the images of changed thoughts in {', '.join(sorted(unread))}",
            "Name a judge: judge.model=openai/gpt-4o. Or leave them out: interventions=false.",
        )
    return cases, files


def _observed(
    analysis: str,
    checkpoint: str,
    cases: list[Case],
    config: InsightConfig,
    progress: Progress,
    load: Callable[[ModelConfig], UnifiedModel],
) -> dict[str, Any]:
    """The result of an analysis that watches the model's layers."""
    from uni_train.insight import attention, states

    if analysis == "states":
        for case in cases:
            states.labels_of(case)  # before the model is loaded
    configured = model_config(checkpoint, config.weights)
    model = load(replace(configured, sampling=replace(configured.sampling, **config.sampling)))
    batch = config.batch or min(configured.draw_batch, configured.think_batch)
    with progress.bar(analysis, len(cases)) as bar:
        common: dict[str, Any] = {"seed": config.seed, "batch": batch, "on_item": bar.advance}
        if analysis == "states":
            result = states.observe(model, cases, probes=config.probes, **common)
        else:
            layers = [first_and_last(layer) for layer in config.layers]
            tokens = None if config.tokens is None else first_and_last(config.tokens)
            result = attention.observe(model, cases, maps=config.maps, layers=layers, tokens=tokens, **common)
    sets = ", ".join(dict.fromkeys(case.set for case in cases))
    return result | {"model": model.name, "asked": {"sets": sets, "items": len(cases), "seed": config.seed}}


def _evaluated(
    benchmark: Benchmark, checkpoint: str, config: InsightConfig, folder: Path, progress: Progress
) -> Evaluation:
    """The benchmark asked and scored by the engine of evaluations, with its report."""
    shared = {
        name: getattr(config, name) for name in ("sampling", "weights", "batch", "remote", "retry_failed", "judge")
    }
    evaluated = EvalConfig(out=str(folder / "evals"), seed=config.seed, k=config.k, **shared)
    plan = engine.EvaluationPlan(
        checkpoint=checkpoint,
        benchmarks=[benchmark],
        config=replace(evaluated, judge=judge_of(evaluated)),
        command=tuple(sys.argv),
    )
    done = engine.run(plan, progress)
    result = done.results[benchmark.name]
    if broken := not_scored(result):
        raise UserError("; ".join(broken), "Leave that setting out with settings=[...], or ask another model.")
    if result.unjudged:
        names = ", ".join(f"{name} ({setting})" for setting, name in result.unjudged)
        raise UserError(f"no program can check the images of {names}", "Name a judge: judge.model=openai/gpt-4o.")
    report_of(done)
    return done
