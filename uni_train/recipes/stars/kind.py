"""The stages of STARS: sample, filter and fine-tune for each round, or for all rounds before one training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from uni_train.config.kinds import PlannedStage, recipe_kind
from uni_train.config.messages import Where
from uni_train.data_gen.registry import TASKS
from uni_train.recipes.stars.config import RoundConfig, StarsConfig, check
from uni_train.recipes.stars.filters import about, label
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
        if config.early_rejection is not None:
            from uni_train.recipes.stars import early_rejection

            early_rejection.check(config, where)

    def asks_judge(self, config: StarsConfig) -> bool:
        return config.filter == "judge"

    def sampling(self, config: StarsConfig, i: int) -> Iterator[PlannedStage]:
        if sampled_by(config, i) != i:
            return
        round_ = config.rounds[i]
        prompts = f"{round_.prompts} prompts{f' of {round_.prompts_file}' if round_.prompts_file else ''}"
        images = f", {config.candidates} images each" if config.candidates > 1 else ""
        whole = ", whole pairs alone" if config.whole_pairs and TASKS.get(round_.task).items_per_draw == 2 else ""
        keep = f"{about(config.filter)}{whole}"
        draw = "think, draw" if config.mode == "cot" else "draw"
        draw += f", rejected early by its {config.early_rejection}" if config.early_rejection else ""
        draw += f" up to {config.redraw} times until it accepts its image" if config.redraw > 1 else ""
        drawn = round_.prompts * config.candidates * config.redraw
        if config.teacher == "reference":
            draw, drawn = "take the solution", 0
        if round_.kept is not None:
            summary = f"at most {prompts}{images}: {draw}, {keep}, until {round_.kept} samples are kept"
        else:
            summary = f"{'at most ' if round_.prompts_file else ''}{prompts}{images}: {draw.replace(', ', ', then ')}"
        yield PlannedStage("sample", f"sample-{round_.set_name}", summary, (i,), images=drawn)
        if round_.kept is None:
            yield PlannedStage("filter", f"filter-{round_.set_name}", keep, (i,))

    def learned(self, config: StarsConfig, rounds: Sequence[int]) -> str:
        epochs = {config.rounds[i].epochs for i in rounds}
        counted = len(epochs) == 1 and any(config.rounds[i].updates is None for i in rounds)
        earlier = sorted({sampled_by(config, i) + 1 for i in rounds} - {i + 1 for i in rounds})
        samples = f" of the samples of round {earlier[0]}" if earlier else ""
        length = f" ({epochs.pop():g} epochs)" if counted else ""
        return f"{said_updates(config, rounds)}{length} on prompt -> image{samples}"

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
            finetune.run(work, stage, planned.rounds, filtered(work.config, planned.rounds, before))

    def rounds(self, work: Work[StarsConfig], runs: Stages) -> list[Round]:
        """One entry a fine-tuning; the rounds that it serves are summed."""
        from uni_train.recipes.stars import filtering

        config, entries = work.config, []
        for planned, stage in runs:
            if planned.kind != self.training:
                continue
            served = [config.rounds[i] for i in planned.rounds]
            sources = {sampled_by(config, i) for i in planned.rounds}
            stages = [s for i, s in _filtered(config, runs).items() if i in sources]
            judged = [pair for s in stages for pair in filtering.outcomes(s)]
            fresh = [s for p, s in runs if p.kind in ("sample", "filter") and p.rounds[0] in planned.rounds]
            answers = len(judged) if fresh and config.filter == "self" else 0
            drawn = len(judged) if fresh and config.teacher != "reference" else 0
            if fresh and config.redraw > 1:
                from uni_train.eval.redraw import counted_below

                drawn, own = counted_below(s.shards for s in stages)
                answers += own
            undrawn, steps = sum(int(s.facts().get("undrawn", 0)) for s in fresh), config.model.sampling.steps
            velocities = drawn * steps
            if config.early_rejection == "image":
                answers += drawn + undrawn
                velocities += undrawn * (steps // 2)
            thoughts = drawn + undrawn if config.mode == "cot" else 0
            calls = {"thoughts": thoughts, "answers": answers, "images": drawn, "velocities": velocities}
            entries.append(round_entry(label(config), served, judged, [*fresh, stage], calls))
        return entries

    def first_update(self, config: StarsConfig, model: Trainable, most: int | None = None) -> list[Sequence[Example]]:
        from uni_train.recipes.stars.finetune import blank, first_update

        return first_update(config, model, self.training, partial(blank, config), most)


def sampled_by(config: StarsConfig, i: int) -> int:
    """The round whose samples round `i` trains on: the first with the same prompts, where the base is the teacher."""
    samples = [round_.sample for round_ in config.rounds]
    return i if config.teacher == "current" else samples.index(samples[i])


def filtered(config: StarsConfig, rounds: Sequence[int], runs: Stages) -> dict[str, tuple[RoundConfig, StageRun]]:
    """What a training of these rounds may draw, as `finetune.Filtered`: of them, and of all before."""
    stages, until = _filtered(config, runs), config.rounds[: rounds[-1] + 1]
    return {of.set_name: (of, stages[sampled_by(config, i)]) for i, of in enumerate(until)}


def _filtered(config: StarsConfig, runs: Stages) -> dict[int, StageRun]:
    """Round -> its stage that holds the filter's verdicts, of the rounds that sampled."""
    last = {i: "filter" if round_.kept is None else "sample" for i, round_ in enumerate(config.rounds)}
    return {p.rounds[0]: stage for p, stage in runs if p.rounds and p.kind == last[p.rounds[0]]}
