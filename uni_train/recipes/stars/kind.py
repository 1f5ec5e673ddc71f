"""The stages of STARS: sample, filter and fine-tune for each round, or for all rounds before one training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from uni_train.config.kinds import PlannedStage, recipe_kind
from uni_train.config.messages import Where
from uni_train.data_gen.registry import TASKS
from uni_train.recipes.stars.config import RoundConfig, StarsConfig, check
from uni_train.recipes.stars.filters import about
from uni_train.recipes.stars.rounds import RoundsKind, round_entry, said_updates
from uni_train.stages.kind import Stages

if TYPE_CHECKING:
    from uni_train.eval.summary import Round
    from uni_train.models.base import Example, Trainable
    from uni_train.stages.work import StageRun, Work


@recipe_kind("stars")
class Stars(RoundsKind[StarsConfig]):
    """STARS. A round that samples until enough is kept has one stage for sampling and filtering."""

    config = StarsConfig
    training = "finetune"
    keeps_rows = True
    trains_editors = True

    def check(self, config: StarsConfig, where: Where) -> None:
        check(config, where)

    def asks_judge(self, config: StarsConfig) -> bool:
        return config.filter == "judge"

    def sampling(self, config: StarsConfig, i: int) -> Iterator[PlannedStage]:
        round_ = config.rounds[i]
        images = f", {config.candidates} images each" if config.candidates > 1 else ""
        whole = ", whole pairs alone" if config.whole_pairs and TASKS.get(round_.task).items_per_draw == 2 else ""
        keep = f"{about(config.filter)}{whole}"
        draw = "think, draw" if config.mode == "cot" else "draw"
        draw += f" up to {config.redraw} times until it accepts its image" if config.redraw > 1 else ""
        drawn = round_.prompts * config.candidates * config.redraw
        if config.teacher == "reference":
            draw, drawn = "take the solution", 0
        if round_.kept is not None:
            summary = f"at most {round_.prompts} prompts{images}: {draw}, {keep}, until {round_.kept} samples are kept"
            yield PlannedStage("sample", f"sample-{round_.set_name}", summary, (i,), images=drawn)
            return
        summary = f"{round_.prompts} prompts{images}: {draw.replace(', ', ', then ')}"
        yield PlannedStage("sample", f"sample-{round_.set_name}", summary, (i,), images=drawn)
        yield PlannedStage("filter", f"filter-{round_.set_name}", keep, (i,))

    def learned(self, config: StarsConfig, rounds: Sequence[int]) -> str:
        epochs = {config.rounds[i].epochs for i in rounds}
        counted = len(epochs) == 1 and any(config.rounds[i].updates is None for i in rounds)
        return f"{said_updates(config, rounds)}{f' ({epochs.pop():g} epochs)' if counted else ''} on prompt -> image"

    def run(self, work: Work[StarsConfig], planned: PlannedStage, stage: StageRun, before: Stages) -> None:
        from uni_train.recipes.stars import filtering, finetune, sampling

        round_ = work.config.rounds[planned.rounds[0]]
        if planned.kind == "sample":
            known: dict[str, Any] = {}
            if planned.rounds == (0,) and work.config.filter not in ("none", "verifier"):
                from uni_train.recipes.stars import anchors

                known = {"anchors": anchors.measure(work, stage, before[0][1])}
            sampling.run(work, stage, round_)
            stage.result |= known
        elif planned.kind == "filter":
            filtering.run(work, stage, before[-1][1], round_)
        else:
            filtered: finetune.Filtered = {of.set_name: (of, s) for of, s in _filtered(work.config, before)}
            finetune.run(work, stage, planned.rounds, filtered)

    def rounds(self, work: Work[StarsConfig], runs: Stages) -> list[Round]:
        """One entry a fine-tuning; the rounds that it serves are summed."""
        from uni_train.recipes.stars import filtering

        config, entries = work.config, []
        for planned, stage in runs:
            if planned.kind != self.training:
                continue
            served = [config.rounds[i] for i in planned.rounds]
            members = [
                (p, s) for p, s in runs if p.kind in ("sample", "filter") and set(p.rounds) <= set(planned.rounds)
            ]
            judged = [pair for _, s in _filtered(config, members) for pair in filtering.outcomes(s)]
            drawn, own = 0 if config.teacher == "reference" else len(judged), 0
            if config.redraw > 1:
                from uni_train.eval.redraw import counted_below

                drawn, own = counted_below(s.shards for _, s in _filtered(config, members))
            calls = {
                "thoughts": drawn if config.mode == "cot" else 0,
                "answers": own + (len(judged) if config.filter == "self" else 0),
                "images": drawn,
                "velocities": drawn * config.model.sampling.steps,
            }
            entries.append(round_entry(config.filter, served, judged, [*(s for _, s in members), stage], calls))
        return entries

    def first_update(self, config: StarsConfig, model: Trainable, most: int | None = None) -> list[Sequence[Example]]:
        from uni_train.recipes.stars.finetune import blank, first_update

        return first_update(config, model, self.training, partial(blank, config), most)


def _filtered(config: StarsConfig, runs: Stages) -> Iterator[tuple[RoundConfig, StageRun]]:
    """Rounds, and their stages that hold the filter's verdicts."""
    for run, stage in runs:
        if run.kind in ("sample", "filter"):
            of = config.rounds[run.rounds[0]]
            if run.kind == ("filter" if of.kept is None else "sample"):
                yield of, stage
