"""Table 4 over several runs of the knowledge recipes: other seeds, other characters, all counted together.

    python bench/experiment.py knowledge runs/knowledge_form/seed0 runs/knowledge_form/seed1 runs/knowledge_form/seed2
    python bench/experiment.py knowledge runs/knowledge_form/seed0 -o states=true

Reads finished runs and stages of unfinished ones; trains nothing. Intervals are clustered by model, as in the report of
one run. A character of one run is none of another's, though their names may be equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bench.experiment import Lab
from bench.markdown import interval, row, table
from uni_train.core.errors import UserError
from uni_train.core.reading_limits import read_json, read_yaml
from uni_train.eval.benchmark import Scored, Source, Table
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.benchmarks.unisandbox.cases import Questions
from uni_train.eval.scored import read_scored
from uni_train.eval.statistics import Estimate, PairedComparison, share
from uni_train.recipes.knowledge import injected
from uni_train.recipes.knowledge.injected import InjectedModel
from uni_train.recipes.knowledge.injection import SCORED


def models_of(run: Path, kind: str) -> Iterator[tuple[list[InjectedModel], list[Scored]]]:
    """Who was taught in each finished stage of a kind, and what was drawn; names and questions marked by the run."""
    mark = f"{run.name}: "
    for manifest in sorted(run.glob(f"stages/*-{kind}*/manifest.json")):
        told = [InjectedModel.from_dict(one) for one in read_json(manifest)["result"]["taught"]]
        names = {name: f"{mark}{name}" for one in told for name in one.twins}
        taught = [
            replace(
                one,
                names=tuple(f"{mark}{name}" for name in one.names),
                twins={names[name]: reply for name, reply in one.twins.items()},
            )
            for one in told
        ]
        scored = list(read_scored(manifest.parent / SCORED / "00000.parquet", images=False))
        yield taught, [_marked(one, mark) for one in scored]


def _marked(one: Scored, mark: str) -> Scored:
    case = one.sample.ask.case
    facts = {
        **case.facts,
        "characters": [f"{mark}{name}" for name in case.facts["characters"]],
        "drawn_as": f"{mark}{case.facts['drawn_as']}",
    }
    ask = replace(one.sample.ask, case=replace(case, id=f"{mark}{case.id}", facts=facts))
    return replace(one, sample=replace(one.sample, ask=ask))


def pooled(runs: Sequence[Path]) -> tuple[list[Table], list[InjectedModel], list[Scored]]:
    """The tables of all runs together, who was taught, and what was drawn after the lessons."""
    found: dict[str, tuple[list[InjectedModel], list[Scored]]] = {"ask": ([], []), "inject": ([], [])}
    for run in runs:
        for kind, (taught, scored) in found.items():
            for more_taught, more_scored in models_of(run, kind):
                taught += more_taught
                scored += more_scored
    settings = tuple(read_yaml(runs[0] / "config.yaml")["modes"])
    cases = {one.sample.ask.case.id: one.sample.ask.case for _, scored in found.values() for one in scored}
    benchmark = UniSandbox(Source(), questions=Questions(tuple(cases.values()), {}, False), settings=settings)
    before, after = (injected.scores(benchmark, *found[kind]) for kind in ("ask", "inject"))
    return injected.tables(benchmark, *found["inject"], before, after), *found["inject"]


def unreadable(scored: Sequence[Scored]) -> Table:
    """Of all images of a column, those that show nothing clear; clustered by model."""
    cells: dict[tuple[str, str], list[Scored]] = {}
    for one in scored:
        cells.setdefault((one.sample.ask.case.set, one.sample.ask.setting), []).append(one)
    rows = []
    for (name, setting), some in sorted(cells.items()):
        clusters = [", ".join(one.sample.ask.case.facts["characters"]) for one in some]
        units = [f"{one.sample.ask.case.id}/{one.sample.ask.k}" for one in some]
        unclear = share([one.outcome == "unreadable" for one in some], units, clusters)
        causes = Counter(one.cause for one in some if one.cause)
        said = ", ".join(f"{cause} {count}" for cause, count in causes.most_common())
        rows.append((name, setting, str(len(some)), unclear, said))
    return Table("Unreadable images, and causes", ("Set", "Setting", "Images", "Unreadable", "Causes"), tuple(rows))


def held(runs: Sequence[Path]) -> Table:
    """Where the taught object is in the states of each model: forward questions that it draws at once.

    Raises UserError: runs without such models.
    """
    from uni_train.insight.states import appearance_table, joined, observe
    from uni_train.models.load import build_model, model_config

    stages = [stage for run in runs for stage in sorted(run.glob("stages/*-inject-forward*"))]
    if not stages:
        raise UserError("states=true: none of these runs taught forward", "Leave it out, or give one that did.")
    found, clusters = [], []
    for stage in stages:
        scored = read_scored(stage / SCORED / "00000.parquet", images=False)
        asked = {one.sample.ask.case.id: one.sample.ask.case for one in scored}
        model = build_model(model_config(str(stage / "model")))
        found.append(observe(model, list(asked.values()), probes=False))
        clusters += [str(stage)] * len(asked)
    return appearance_table(joined(found) | {"clusters": clusters}, "lens", "object")


def knowledge(lab: Lab, states: bool = False) -> Iterator[str]:
    """Of the runs whose folders were given. states: also where each model's states hold what it was taught."""
    tables, taught, scored = pooled(lab.folders)
    passed = Counter(one.direction for one in taught if one.injected)
    every = Counter(one.direction for one in taught)
    yield ", ".join(f"{name}: {passed[name]} of {count} models passed their exam" for name, count in every.items())
    tables = [*(one for one in tables if one.title != "The models"), unreadable(scored)]
    for one in (*tables, held(lab.folders)) if states else tables:
        yield from ("", f"{one.title}:", "", *table(*one.columns))
        for cells in one.rows:
            cells = [cell.difference if isinstance(cell, PairedComparison) else cell for cell in cells]
            yield row(*(interval(cell) if isinstance(cell, Estimate) else cell or "" for cell in cells))
