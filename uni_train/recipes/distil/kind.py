"""The stages of think-distillation: think, draw where states need it, and distil, for each round or for all at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from uni_train.config.kinds import PlannedStage, recipe_kind
from uni_train.config.messages import Where
from uni_train.data_gen.registry import TASKS
from uni_train.recipes.distil.config import DistilConfig, check
from uni_train.recipes.stars.rounds import RoundsKind, round_entry, said_updates
from uni_train.stages.kind import Stages

if TYPE_CHECKING:
    from uni_train.eval.summary import Round
    from uni_train.models.base import Example, Trainable
    from uni_train.recipes.distil.training import RoundStages
    from uni_train.stages.work import StageRun, Work


@recipe_kind("distil")
class Distil(RoundsKind[DistilConfig]):
    """Think-distillation."""

    config = DistilConfig
    training = "distil"
    trains_editors = True

    def check(self, config: DistilConfig, where: Where) -> None:
        check(config, where)

    def sampling(self, config: DistilConfig, i: int) -> Iterator[PlannedStage]:
        round_ = config.rounds[i]
        each = f", {config.candidates} thoughts each" if config.candidates > 1 else ""
        whole = ", whole pairs alone" if config.whole_pairs and TASKS.get(round_.task).items_per_draw == 2 else ""
        until = f", until {round_.kept} are kept" if round_.kept is not None else ""
        most = "at most " if round_.kept is not None else ""
        keep = f"keep {_FILTERS[config.filter]}{whole}{until}"
        thought = {"model": f"think, {keep}", "reference": f"tell the reference, {keep}", "none": "without thoughts"}
        summary = f"{most}{round_.prompts} prompts{each}: {thought[config.thoughts]}"
        yield PlannedStage("think", f"think-{round_.set_name}", summary, (i,))
        if config.states != "student":
            drawn = f"the teacher draws by each {'prompt' if config.thoughts == 'none' else 'kept thought'}"
            yield PlannedStage("draw", f"draw-{round_.set_name}", drawn, (i,), images=round_.prompts)

    def learned(self, config: DistilConfig, rounds: Sequence[int]) -> str:
        return f"{said_updates(config, rounds)}, states: {_STATES[config.states]}"

    def run(self, work: Work[DistilConfig], planned: PlannedStage, stage: StageRun, before: Stages) -> None:
        from uni_train.recipes.distil import drawing, thinking, training
        from uni_train.recipes.stars import teachers

        round_ = work.config.rounds[planned.rounds[0]]
        if planned.kind == "think":
            if planned.rounds == (0,) and work.config.other_teachers:
                training.expect_same_latents(work.config, teachers.load(work), work.model(work.weights))
            thinking.run(work, stage, round_)
        elif planned.kind == "draw":
            drawing.run(work, stage, training.TeacherRequests(work, before[-1][1], round_))
        else:
            taught = _stages_of_rounds(work.config, before)
            training.run(work, stage, planned.rounds, {of.round.set_name: of for of in taught.values()})

    def rounds(self, work: Work[DistilConfig], runs: Stages) -> list[Round]:
        """One entry a training; the rounds that it serves are summed."""
        from uni_train.recipes.stars.filtering import outcomes

        config, entries = work.config, []
        taught = _stages_of_rounds(config, runs)
        for planned, stage in runs:
            if planned.kind != self.training:
                continue
            served = [taught[i] for i in planned.rounds]
            judged = [pair for member in served for pair in outcomes(member.thinking)]
            drawn = [member.drawing for member in served if member.drawing is not None]
            stages = [*(member.thinking for member in served), *drawn, stage]
            counts = {
                name: sum(int(s.facts().get(name, 0)) for s in stages) for name in ("images", "velocities", "rollout")
            }
            thoughts = len(judged) if config.thoughts == "model" else 0
            answers = len(judged) // config.candidates if config.filter == "self" else 0
            calls = {"thoughts": thoughts, "answers": answers, **counts}
            entry = round_entry(config.filter, [member.round for member in served], judged, stages, calls)
            entries.append(replace(entry, reliability=None) if config.thoughts == "none" else entry)
        return entries

    def prepare(self, work: Work[DistilConfig]) -> None:
        from uni_train.recipes.distil.training import expect_same_latents
        from uni_train.recipes.stars import teachers

        if others := teachers.expect(work.config):
            expect_same_latents(work.config, others)

    def first_update(self, config: DistilConfig, model: Trainable, most: int | None = None) -> list[Sequence[Example]]:
        from uni_train.recipes.distil.training import blank
        from uni_train.recipes.stars.finetune import first_update

        return first_update(config, model, self.training, partial(blank, config, model), most)

    def remarks(self, config: DistilConfig, model: Trainable) -> list[str]:
        if config.other_teachers:
            return super().remarks(config, model)
        total = sum(weight.numel() for weight in model.parameters())
        return [f"the teacher is a second model in memory: {total:,} parameters more", *super().remarks(config, model)]


def _stages_of_rounds(config: DistilConfig, runs: Stages) -> dict[int, RoundStages]:
    """Round -> its finished stages."""
    from uni_train.recipes.distil.training import RoundStages

    thinking = {run.rounds[0]: stage for run, stage in runs if run.kind == "think"}
    drawing = {run.rounds[0]: stage for run, stage in runs if run.kind == "draw"}
    return {i: RoundStages(config.rounds[i], stage, drawing.get(i)) for i, stage in thinking.items()}


_FILTERS = {
    "none": "every thought",
    "agreement": "thoughts that conclude what most do",
    "self": "thoughts that conclude what the model says at once",
    "verifier": "thoughts whose conclusion is right",
}
_STATES = {
    "noised": "noised images of the teacher",
    "teacher": "the teacher's trajectories",
    "student": "the student's own trajectories",
}
