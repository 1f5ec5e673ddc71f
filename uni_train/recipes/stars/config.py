"""The keys of STARS, self-training with rejection sampling (UniSandbox 3.4), and their rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Interval

from uni_train.config.kinds import check_fits, reads_images
from uni_train.config.messages import Where, check_draws, check_known, check_rules, check_thinks, wrong
from uni_train.config.schema import (
    Augment,
    Count,
    Draws,
    Few,
    Positive,
    Prompts,
    Rows,
    RunConfig,
    Share,
    TaskLevel,
    Temperature,
)
from uni_train.data_gen.registry import TASKS, scoring, set_name, sources
from uni_train.recipes.stars.filters import FILTERS

PRETRAIN = "pretrain"
SOLVED = "solved"
THOUGHTS = "thoughts"
NOT_SETS = (PRETRAIN, SOLVED, THOUGHTS)
"""What a round may replay beside sets: rows of the model's pretraining, solved items, its samples with thoughts."""


@dataclass(frozen=True, kw_only=True)
class BudgetConfig:
    """How much one round samples and trains, where the round does not say so itself."""

    prompts: Count
    kept: Count | None = None
    updates: Count | None = None
    epochs: Positive | None = None


@dataclass(frozen=True, kw_only=True)
class RoundConfig:
    """Prompts, filter, finetune once. `replay`: set names, or of NOT_SETS -> share of each batch."""

    task: str  # one that has sets
    level: TaskLevel
    prompts: Count  # sampled, with `kept` at most; a mapping pair counts as two
    kept: Count | None = None  # sample until so many samples are kept; a whole mapping pair counts as two
    updates: Count | None = None  # one of updates and epochs
    epochs: Positive | None = None  # over the kept samples
    replay: dict[str, Share] = field(default_factory=dict)
    draw: Annotated[int, Interval(ge=0, le=1_000)] = 0  # rounds of one set ask the same prompts unless this differs
    prompts_file: str | None = None  # asked instead: published questions of maths or mapping, or an items.jsonl

    @property
    def set_name(self) -> str:
        return set_name(self.task, self.level)

    @property
    def sample(self) -> tuple[object, ...]:
        """What rounds with one sample have in common."""
        return self.set_name, self.prompts, self.kept, self.draw, self.prompts_file


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """How rounds follow one another.

    sequential: one after the other (the paper's curriculum). The others sample all rounds first, train once:
    mixed: all levels from the first update; ramp: the mixture moves linearly from the first level to the last;
    threshold: the next level joins when Normal accuracy on the current one reaches `threshold`.
    """

    kind: Literal["sequential", "mixed", "ramp", "threshold"] = "sequential"
    threshold: Share = 0.6
    check_every: Count = 50  # updates between two evaluations
    check_prompts: Prompts = 64


@dataclass(frozen=True, kw_only=True)
class BatchConfig:
    prompts: Rows  # an update
    noise_draws: Draws = 1  # noise levels drawn for each prompt's image
    accumulate: Rows = 1  # micro-batches an update is made of, shared by the ranks: less memory


@dataclass(frozen=True, kw_only=True)
class OtherModel:
    checkpoint: str  # of another model, as model.checkpoint is given; teacher=CHECKPOINT is short for it


@dataclass(frozen=True, kw_only=True)
class RoundsConfig(RunConfig):
    """What recipes have whose rounds sample prompts of a level, filter what the model makes of them, and train."""

    level: TaskLevel | None = None  # for recipes of one level: level=2
    rounds: tuple[RoundConfig, ...]
    # set name -> what a round of it does by default
    budget: dict[str, BudgetConfig] = field(default_factory=dict)
    pretrain_replay: Share = 0.0  # for rounds[].replay.pretrain in recipes; 0 where a model has no such rows
    thoughts_replay: Share = 0.0  # for rounds[].replay.thoughts in recipes
    schedule: ScheduleConfig = ScheduleConfig()
    candidates: Few = 1  # samples of a prompt, before the filter
    temperature: Temperature | None = None  # of thoughts while sampling; null = model.sampling.temperature
    whole_pairs: bool = False  # mapping: keep a sample only if the filter accepts its pair's other one too
    trained: Literal["all", "moe_gen", "lora"] = "all"
    timestep_shift: Positive = 1.0  # of the noise levels in training
    batch: BatchConfig

    @property
    def replays(self) -> set[str]:
        """The names of all that rounds replay."""
        return {name for round_ in self.rounds for name, share in round_.replay.items() if share}

    @property
    def other_teachers(self) -> dict[str, OtherModel]:
        """The teachers that are other models, by their keys."""
        return {"teacher": it} if isinstance(it := getattr(self, "teacher", None), OtherModel) else {}


@dataclass(frozen=True, kw_only=True)
class StarsConfig(RoundsConfig):
    """Self-training with rejection sampling (UniSandbox 3.4)."""

    kind: Literal["stars"] = "stars"
    mode: Literal["cot", "normal"] = "cot"  # of sampling; normal = draw without a thought
    solved: str | None = None  # a .jsonl or .parquet file of solved items, for rounds[].replay.solved
    augment: Augment | None = None  # another view of a row of `solved` each time it is drawn
    redraw: Few = 1  # the most images of a sample: the teacher judges its own, and draws again until it accepts one
    # thought: one that a program reads as wrong is not drawn; image: one that the teacher refuses half-way is left
    early_rejection: Literal["thought", "image"] | None = None
    filter: str = "self"  # self, judge, verifier, none, or a plug-in's; judge: the run's `judge`, asked as the model is
    # who samples later rounds: the model before or after training; reference = items' solutions; or a checkpoint
    teacher: Literal["base", "current", "reference"] | OtherModel = "base"


def check(config: StarsConfig, where: Where) -> None:
    """Rules between the keys. Raises UsageError."""
    check_rounds(config, where)
    if config.mode == "cot" and not config.other_teachers:
        check_thinks(config.model, "mode=cot", "mode", where)
    check_known(config.filter, FILTERS.names(), "filter", "filter", where)
    reading = reads_images(config)
    check_rules([
        ("solved", config.augment is not None and config.solved is None,
         "augment needs solved items to have views of", "augment=null, or solved=FILE."),
        ("filter", config.filter == "judge" and config.judge is None, "filter=judge needs to know who judges",
         "judge={model:'http://HOST:PORT/v1#MODEL'}, or judge={checkpoint:FOLDER}."),
        ("filter", config.filter == "verifier" and reading,
         "filter=verifier: no program can read images of the everyday world",
         "filter=self, or filter=judge with the run's judge."),
        ("redraw", config.redraw > 1 and config.teacher == "reference",
         f"redraw={config.redraw} has a model judge its images, and teacher=reference asks none", "redraw=1."),
        ("redraw", config.redraw > 1 and not config.model.thinks and not config.other_teachers,
         f"redraw={config.redraw} needs a model that judges its images in words, and model={config.model.name} "
         "writes none", "redraw=1, or choose another model."),
        ("teacher", config.teacher == "reference" and reading,
         "teacher=reference: no program can draw the solutions of the everyday world",
         "teacher=base, or tasks that programs draw: mazes, puzzles."),
        *((f"rounds.{i}.replay", config.mode == "normal" and round_.replay.get(THOUGHTS),
           f"rounds.{i}.replay.thoughts: mode=normal samples without thoughts", "mode=cot.")
          for i, round_ in enumerate(config.rounds)),
        ("teacher", config.teacher == "current" and config.schedule.kind != "sequential",
         "teacher=current needs schedule.kind=sequential: the other kinds sample all rounds before training", None),
    ], where)  # fmt: skip


def check_rounds(config: RoundsConfig, where: Where) -> None:
    """Rules between the keys of rounds. Raises UsageError."""
    check_rules([
        ("rounds", not config.rounds, "rounds is empty: there is nothing to train", None),
        ("schedule.kind", config.schedule.kind == "ramp" and len(config.rounds) < 2,
         "schedule.kind=ramp needs at least two rounds, a first and a last", None),
        ("batch.accumulate", config.batch.accumulate > config.batch.prompts,
         f"batch.accumulate {config.batch.accumulate} is more than batch.prompts {config.batch.prompts}", None),
    ], where)  # fmt: skip
    tasks = [name for name in TASKS.names() if scoring(name).sets]
    sets = [name for name, source in sources().items() if not source.variant]
    solved = getattr(config, "solved", None)
    replayed = (*sets, *NOT_SETS)
    for i, round_ in enumerate(config.rounds):
        check_known(round_.task, tasks, "task", f"rounds.{i}.task", where)
        check_draws(config.model, [round_.task], where)
        levels = scoring(round_.task).sets
        if round_.level not in levels:
            key, known = f"rounds.{i}.level", ", ".join(map(str, levels))
            raise wrong(f"{key} must be one of {known}, not {round_.level}", key, where)
        check_fits(config, round_.task, [round_.level], f"rounds.{i}.level", where)
        _check_round(config, i, where)
        key = f"rounds.{i}.replay"
        for name in round_.replay:
            check_known(name, replayed, "set", key, where)
            if name == round_.set_name:
                raise wrong(f"{key} names {name}, the round's own set: it gets what replay leaves", key, where)
            if name == SOLVED and solved is None:
                raise wrong(f"{key}.solved needs solved items", "solved", where, "solved=data/maze4/items.jsonl.")
            if name not in NOT_SETS and name not in {earlier.set_name for earlier in config.rounds[:i]}:
                raise wrong(f"{key} names {name}, but no earlier round samples it", key, where)
        if sum(round_.replay.values()) >= 1:
            raise wrong(f"the shares in {key} add up to 1 or more: nothing is left for {round_.set_name}", key, where)
    kind, of_sets = config.schedule.kind, {round_.set_name for round_ in config.rounds}
    if kind != "sequential" and len(of_sets) < len({round_.sample for round_ in config.rounds}):
        raise wrong(f"schedule.kind={kind} trains each set on one sample; rounds of a set differ in prompts, kept, "
                    "draw or prompts_file", "rounds", where, "schedule.kind=sequential.")  # fmt: skip
    for name in config.budget:
        check_known(name, sets, "set", "budget", where)


def _check_round(config: RoundsConfig, i: int, where: Where) -> None:
    round_, key = config.rounds[i], f"rounds.{i}"
    kept, images = round_.kept or 0, round_.prompts * config.candidates
    pairs = config.whole_pairs and TASKS.get(round_.task).items_per_draw == 2
    check_rules([
        (f"{key}.updates", (round_.updates is None) == (round_.epochs is None),
         f"{key} ({round_.set_name}) needs one of updates and epochs",
         f"{key}.updates=200, or {key}.epochs=6; budget.{round_.set_name}.epochs=null takes one back."),
        (f"{key}.kept", kept > images,
         f"{key}.kept {kept} is more than {round_.prompts} prompts x {config.candidates} candidates give",
         f"Raise {key}.prompts or budget.{round_.set_name}.prompts: the most that is sampled."),
        (f"{key}.draw", round_.draw and round_.prompts_file is not None,
         f"{key} has draw and prompts_file: a file has the same prompts in each draw", f"{key}.draw=0."),
        (f"{key}.kept", pairs and kept % 2, f"{key}.kept {kept} is odd: a whole pair has two samples", None),
    ], where)  # fmt: skip
