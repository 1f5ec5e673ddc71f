"""The stages of STARS: sample, filter and fine-tune for each round, or for all rounds before one training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from data_gen.registry import TASKS
from uni_train.config.kinds import PlannedStage, RecipeKind, Stages, Updates, evaluation, recipe_kind
from uni_train.config.messages import Where
from uni_train.recipes.stars.config import RoundConfig, StarsConfig, check
from uni_train.recipes.stars.filters import about
from uni_train.recipes.stars.rounds import fill_rounds, most_kept, most_updates

if TYPE_CHECKING:
    from eval.summary import Round
    from uni_train.models.base import Example, UnifiedModel
    from uni_train.stages.work import StageRun, Work


@recipe_kind("stars")
class Stars(RecipeKind[StarsConfig]):
    """STARS. A round that samples until enough is kept has one stage for sampling and filtering."""

    config = StarsConfig
    keeps_rows = True
    trains_editors = True

    def complete(self, values: dict[str, Any]) -> None:
        fill_rounds(values)

    def check(self, config: StarsConfig, where: Where) -> None:
        check(config, where)

    def asks_judge(self, config: StarsConfig) -> bool:
        return config.filter == "judge"

    def trained(self, config: StarsConfig) -> tuple[str, tuple[str, ...]]:
        return config.trained, ()

    def stages(self, config: StarsConfig) -> Iterator[PlannedStage]:
        yield evaluation(config, "before")
        if config.schedule.kind == "sequential":
            for i, one in enumerate(config.rounds):
                yield from _sampled(config, i)
                replay = ", ".join(f"{part:g} {name}" for name, part in one.replay.items() if part)
                summary = f"{_length(config, (i,))}{f', replay {replay}' if replay else ''}"
                yield PlannedStage("finetune", f"finetune-{one.set_name}", summary, (i,))
                if config.evaluation.every_round and i + 1 < len(config.rounds):
                    yield evaluation(config, f"round{i + 1}", (i,))
        else:
            everything = tuple(range(len(config.rounds)))
            for i in everything:
                yield from _sampled(config, i)
            sets = ", ".join(one.set_name for one in config.rounds)
            summary = f"{_length(config, everything)}, {config.schedule.kind} schedule over {sets}"
            yield PlannedStage("finetune", f"finetune-{config.schedule.kind}", summary, everything)
        yield evaluation(config, "after")

    def prepare(self, work: Work[StarsConfig]) -> None:
        from uni_train.stages.evaluate import watched

        if work.config.schedule.kind == "threshold":
            for one in work.config.rounds:
                watched(work, one.set_name)

    def run(self, work: Work[StarsConfig], planned: PlannedStage, stage: StageRun, before: Stages) -> None:
        from uni_train.recipes.stars import filtering, finetune, sampling

        one = work.config.rounds[planned.rounds[0]]
        if planned.kind == "sample":
            sampling.run(work, stage, one)
        elif planned.kind == "filter":
            filtering.run(work, stage, before[-1][1], one)
        else:
            filtered: finetune.Filtered = {of.set_name: (of, s) for of, s in _filtered(work.config, before)}
            finetune.run(work, stage, planned.rounds, filtered)

    def rounds(self, work: Work[StarsConfig], runs: Stages) -> list[Round]:
        """One entry a fine-tuning; the rounds that it serves are summed."""
        from eval.summary import Round, filter_reliability
        from uni_train.recipes.stars import filtering

        config, entries = work.config, []
        for one, stage in runs:
            if one.kind != "finetune":
                continue
            served = [config.rounds[i] for i in one.rounds]
            members = [(p, s) for p, s in runs if p.kind in ("sample", "filter") and set(p.rounds) <= set(one.rounds)]
            kept = [pair for _, s in _filtered(config, members) for pair in filtering.outcomes(s)]
            entries.append(
                Round(
                    task="+".join(dict.fromkeys(r.task for r in served)),
                    level=served[0].level if len(served) == 1 else "+".join(str(r.level) for r in served),
                    sampled=len(kept),
                    kept=sum(accepted for accepted, _ in kept),
                    updates=int(stage.facts()["updates"]),
                    seconds=sum(s.manifest.seconds for _, s in [*members, (one, stage)] if s.manifest is not None),
                    reliability=filter_reliability([a for a, _ in kept], [c for _, c in kept]),
                    filter=config.filter,
                    calls={
                        "thoughts": len(kept),
                        "images": len(kept),
                        "velocities": len(kept) * config.model.sampling.steps,
                    },
                )
            )
        return entries

    def updates(self, config: StarsConfig) -> Updates:
        total = sum(most_updates(config, range(len(config.rounds))))
        notes: tuple[str, ...] = ()
        if any(one.updates is None for one in config.rounds):
            kept = sum(most_kept(config, one) for one in config.rounds)
            notes = (f"{total} updates in all, if all rounds together keep {kept:,} samples, the most they may",)
        return Updates(total, config.batch.accumulate, rows=config.batch.prompts, notes=notes)

    def first_update(self, config: StarsConfig, model: UnifiedModel) -> list[Sequence[Example]]:
        from uni_train.recipes.stars.finetune import first_update

        return first_update(config, model)

    def remarks(self, config: StarsConfig, model: UnifiedModel) -> list[str]:
        if model.replay_rows(()) is None and any(one.replay.get("pretrain") for one in config.rounds):
            return [f"model={config.model.name} has no pretraining rows: set pretrain_replay=0"]
        return []


def _filtered(config: StarsConfig, runs: Stages) -> Iterator[tuple[RoundConfig, StageRun]]:
    """Rounds, and their stages that hold the filter's verdicts."""
    for one, stage in runs:
        if one.kind in ("sample", "filter"):
            of = config.rounds[one.rounds[0]]
            if one.kind == ("filter" if of.kept is None else "sample"):
                yield of, stage


# --- summaries --------------------------------------------------------------------------------------------------------


def _sampled(config: StarsConfig, i: int) -> Iterator[PlannedStage]:
    one = config.rounds[i]
    images = f", {config.candidates} images each" if config.candidates > 1 else ""
    whole = ", whole pairs alone" if config.whole_pairs and TASKS.get(one.task).items_per_draw == 2 else ""
    keep = f"{about(config.filter)}{whole}"
    draw = "think, draw" if config.mode == "cot" else "draw"
    if one.kept is not None:
        asked = f"at most {one.prompts} prompts{images}: {draw}, {keep}, until {one.kept} samples are kept"
        yield PlannedStage("sample", f"sample-{one.set_name}", asked, (i,))
        return
    asked = f"{one.prompts} prompts{images}: {draw.replace(', ', ', then ')}"
    yield PlannedStage("sample", f"sample-{one.set_name}", asked, (i,))
    yield PlannedStage("filter", f"filter-{one.set_name}", keep, (i,))


def _length(config: StarsConfig, rounds: tuple[int, ...]) -> str:
    known = all(config.rounds[i].updates is not None for i in rounds)
    epochs = {config.rounds[i].epochs for i in rounds}
    said = f" ({epochs.pop():g} epochs)" if len(epochs) == 1 and not known else ""
    return f"{'' if known else 'at most '}{sum(most_updates(config, rounds))} updates{said} on prompt -> image"
