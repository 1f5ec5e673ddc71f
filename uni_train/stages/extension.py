"""More updates for a training that has ended: the same command, with a larger `updates` (or `epochs`).

The training goes on where it ended, with the optimizer's state, averages and position in the data that it had then. Its
learning rate is that of a run of the new length. What is new is a stage of its own: `sft-from-100` beside `sft`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from uni_train.config.build import to_plain
from uni_train.config.kinds import PlannedStage, evaluation, kind_of, stage_list
from uni_train.config.training import ExtendableConfig
from uni_train.core.errors import UserError
from uni_train.core.files import atomic_write_text
from uni_train.core.reading_limits import read_yaml
from uni_train.run_folder import RunFolder, decisive, stage_key, stored_config
from uni_train.stages.kind import Stages
from uni_train.stages.work import CHECKPOINTS, StageRun, Work

C = TypeVar("C", bound=ExtendableConfig)


def spans(config: ExtendableConfig, name: str, summary: Callable[[int], str], unit: int = 1) -> Iterator[PlannedStage]:
    """The stages of a training and of what it was extended by, between evaluations where the recipe asks for them.

    summary: what a training of so many updates (or epochs) is. unit: updates in one of these.
    """
    evaluates = kind_of(config).evaluates(config)
    if evaluates:
        yield evaluation(config, "before")
    for i, (start, end) in enumerate(config.spans):
        begun = f"-from-{start * unit}" if start else ""
        yield PlannedStage(name, f"{name}{begun}", summary(end - start), (i,))
        if evaluates:
            yield evaluation(config, "after")


def begin(config: Any, run: RunFolder, argv: Sequence[str]) -> tuple[bool, Any]:
    """`run.begin`, and `config` with the lengths that the run had before. Raises UserError as that.

    Its key is that of the run before it was extended, from which those of its finished stages follow.
    """
    config = _extended(config, run)
    continues = run.begin(config, argv)
    values = read_yaml(run.path / "config.yaml")
    first = {config.length: config.spans[0][1], "extended_from": []} if config.extended_from else {}
    run.key = stage_key(config=decisive(values | first))
    return continues, config


def _extended(config: C, run: RunFolder) -> C:
    """With the earlier lengths of the run in this folder, and one more where `config` raises the length.

    config.yaml then says so. A run that cannot go on is left as it is, which `RunFolder.begin` refuses by name.
    """
    file = run.path / "config.yaml"
    if not file.exists():
        return config
    stored, length = stored_config(run.path), config.length
    if not isinstance(stored, type(config)):
        return config
    known = replace(config, extended_from=stored.extended_from)
    was, now = getattr(stored, length), getattr(config, length)
    alike = decisive(to_plain(_of_length(known, was))) == decisive(to_plain(stored))
    if now <= was or not alike or not _state_of(stored, run):
        return known
    import yaml

    lengths = (*stored.extended_from, was)
    values = read_yaml(file) | {length: now, "extended_from": list(lengths)}
    atomic_write_text(file, yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100))
    return replace(known, extended_from=lengths)


def _of_length(config: C, length: int) -> C:
    changed: dict[str, Any] = {config.length: length}
    return replace(config, **changed)


def _state_of(config: ExtendableConfig, run: RunFolder) -> Path | None:
    """The checkpoint that the last training of a finished run has left."""
    planned = [stage for stage in stage_list(config) if stage.kind != "evaluate"][-1]
    folder = run.path / "stages" / f"{planned.index:02d}-{planned.name}"
    return _last(folder) if (folder / "manifest.json").is_file() else None


def _last(folder: Path) -> Path | None:
    """The newest checkpoint of a stage."""
    return max((folder / CHECKPOINTS).glob("step=*"), default=None)


@contextmanager
def span(work: Work[Any], planned: PlannedStage, stage: StageRun, before: Stages) -> Iterator[str]:
    """Within it `work` trains from the beginning to the end of one span; yields the stage name that decides seeds.

    Raises:
        UserError: the state of the training before is gone.
    """
    config: ExtendableConfig = work.config
    earlier = [run for other, run in before if other.kind == planned.kind]
    (start, end), weights = config.spans[planned.rounds[0]], work.weights
    if start:
        work.ranks.from_main(lambda: _take_over(earlier[-1].path, stage.path))
        work.weights = None  # the checkpoint holds what has been trained since
        work.progress.say(
            f"  goes on after {start} {config.length} with the optimizer's state; {_rates(config, start, end)}"
        )
    work.config = _of_length(config, end)
    try:
        yield (earlier or [stage])[0].path.name
    finally:
        work.config, work.weights = config, weights
    for fact in ("updates", "seconds"):
        stage.result[fact] -= sum(run.facts()[fact] for run in earlier)
    work.ranks.from_main(lambda: _keep_last(stage.path))


def _rates(config: ExtendableConfig, start: int, end: int) -> str:
    """What happens to the learning rate, which is that of a run of the new length."""
    from uni_train.training.optimizer import learning_rate_factor

    kind = kind_of(config)
    done, total = (kind.updates(_of_length(config, most)).total for most in (start, end))
    last, next_ = (
        learning_rate_factor(*step) for step in ((done - 1, config.optimizer, done), (done, config.optimizer, total))
    )
    return f"its learning rate was {last * config.optimizer.lr:.3g} and is {next_ * config.optimizer.lr:.3g} now"


def _take_over(earlier: Path, folder: Path) -> None:
    """Move the last checkpoint of a stage to the next one; its held-out prompts are where the next one begins."""
    if _last(folder) is not None:
        return
    if (state := _last(earlier)) is None:
        hint = "Start over with --fresh, or train its model further: name=..., model.checkpoint=RUN."
        raise UserError(f"{earlier} has no checkpoint left from which the training could go on", hint)
    for shown in earlier.glob(f"held_out/{state.name}"):
        shutil.copytree(shown, folder / "held_out" / shown.name, dirs_exist_ok=True)
    for log in earlier.glob("held_out*.jsonl"):
        shutil.copy(log, folder / log.name)
    (folder / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
    for path in (*earlier.glob(f"{CHECKPOINTS}/best-*"), state):  # the state last: where it is, all is
        os.replace(path, folder / CHECKPOINTS / path.name)


def _keep_last(folder: Path) -> None:
    """Remove all checkpoints of a finished training but the newest, and all best updates but the best."""
    last = _last(folder)
    for best in sorted((folder / CHECKPOINTS).glob("best-*"))[:-1]:
        best.unlink()
    for path in (folder / CHECKPOINTS).glob("*=*"):
        if path != last:
            shutil.rmtree(path, ignore_errors=True)
