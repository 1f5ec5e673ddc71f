"""`fit_flow_grpo`: one resumable reinforced fit, from wherever its folder says it stopped.

directory/checkpoints/step=00000100/    see checkpoint_io; in the middle of an epoch with its rollouts
directory/metrics.jsonl                 a line an update, the same whether interrupted or not
directory/rollouts.jsonl                a line an epoch: rewards, pictures, seconds
directory/held_out.jsonl                scores on prompts that are not trained on
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.loggers import Logger
from rich.progress import Progress

from uni_train.distributed.ranks import Ranks
from uni_train.errors import UsageError
from uni_train.models.base import UnifiedModel
from uni_train.rewards.contract import Reward
from uni_train.training.callbacks import Evaluate
from uni_train.training.fit import CHECKPOINTS, METRICS, FitResult, Run, run
from uni_train.training.flow_grpo.batches import RolloutLoader
from uni_train.training.flow_grpo.callbacks import Alarms, Epochs, OnDrawn
from uni_train.training.flow_grpo.module import FlowGrpoModule
from uni_train.training.flow_grpo.prompts import Prompt, Prompts
from uni_train.training.flow_grpo.rollouts import Drawn, Rollouts, collect
from uni_train.training.flow_grpo.settings import FlowGrpoSettings, with_layout
from uni_train.training.held_out import HELD_OUT, HeldOut
from uni_train.training.metric_log import truncate_metrics
from uni_train.training.settings import SHARDED, SupervisedSettings
from uni_train.training.strategies.choice import check_second_weights, here, on_ranks
from uni_train.training.strategies.sharding import unsharded

ROLLOUTS = "rollouts.jsonl"


def fit_flow_grpo(
    model: UnifiedModel,
    prompts: Prompts,
    rewards: Sequence[Reward],
    grpo: FlowGrpoSettings,
    settings: SupervisedSettings,
    directory: Path,
    *,
    evaluate: Evaluate | None = None,
    evaluate_every: int = 10,
    on_drawn: OnDrawn | None = None,
    logger: Logger | None = None,
    progress: bool | Progress = True,
    description: str | None = None,
) -> FitResult:
    """Train `model` in place; afterwards it has the final weights, averaged ones if `settings.ema`.

    Running it again with the same arguments continues from the newest intact checkpoint, also in the middle of an
    epoch, and ends with the same weights and the same metrics.jsonl, bit for bit. The model stays in eval mode: a
    dropout that differs between drawing and training would be taken for a change of policy.

    Args:
        settings: optimizer, precision, EMA, checkpoints; its updates and micro-batches follow from `grpo`.
        evaluate: updates done -> scores on held-out prompts ("held_out" is what the alarm watches), every
            `evaluate_every` epochs.
        on_drawn: is shown every epoch's pictures.

    Raises:
        UsageError: settings that do not fit together.
        UserError: a reward that fails, the parity gate, an alarm, a damaged checkpoint, a diverged loss.
    """
    settings = on_ranks(settings)
    grpo.check(settings.devices * settings.num_nodes)
    _check_strategy(model, grpo, settings)
    settings = with_layout(settings, grpo)
    directory = Path(directory)

    def parts(made: Run) -> FlowGrpoModule:
        here().from_main(lambda: truncate_metrics(directory / ROLLOUTS, made.done))
        module = FlowGrpoModule(model, settings, grpo)
        epochs = Epochs(directory / ROLLOUTS, grpo, on_drawn)
        held_out = None
        if evaluate is not None:
            held_out = HeldOut(evaluate, evaluate_every * grpo.updates_per_epoch, directory / HELD_OUT)
        alarms = Alarms(grpo.alarms, epochs, held_out, made.log, directory / CHECKPOINTS)
        made.callbacks += [epochs, *([held_out] if held_out is not None else []), alarms]
        made.data = RolloutData(model, prompts, rewards, grpo, module, epochs)
        model.eval()
        return module

    return run(
        model, settings, directory, parts, logger=logger, progress=progress, description=description or grpo.stage
    )


def _check_strategy(model: UnifiedModel, grpo: FlowGrpoSettings, settings: SupervisedSettings) -> None:
    """Raises UsageError for what weights that are sharded among devices cannot do."""
    what = None
    if grpo.variant == "diffusion_nft":
        what = "variant=diffusion_nft"
    elif grpo.kl and settings.trained != "lora":
        what = f"a kl penalty with trained={settings.trained}"
    check_second_weights(settings, what)
    guided = getattr(model, "guided", False) and settings.devices * settings.num_nodes > 1
    if guided and settings.strategy in SHARDED:
        raise UsageError(
            f"strategy={settings.strategy} cannot train under guidance: it acts at some noise levels alone, so devices "
            "that hold parts of one another's weights would ask for them unequally often",
            "Set model.sampling.cfg_text_scale=1 and edit_text_scale=1, or use strategy=deepspeed_zero2.",
        )


class RolloutData(pl.LightningDataModule):
    """Makes the loader once Lightning has restored its checkpoint."""

    def __init__(
        self,
        model: UnifiedModel,
        prompts: Prompts,
        rewards: Sequence[Reward],
        grpo: FlowGrpoSettings,
        module: FlowGrpoModule,
        epochs: Epochs,
    ) -> None:
        super().__init__()
        self.model, self.prompts, self.rewards, self.grpo = model, prompts, rewards, grpo
        self.module, self.epochs = module, epochs

    def train_dataloader(self) -> RolloutLoader:
        trainer = self.trainer
        assert trainer is not None

        ranks = Ranks(trainer.global_rank, trainer.world_size)

        def draw(prompts: Sequence[Prompt], epoch: int) -> tuple[Rollouts, Any, Drawn]:
            with unsharded(self.model), self.module.sampling():
                found = collect(self.model, prompts, self.rewards, self.grpo, epoch, ranks)
            self.epochs.drawn(self.module, epoch, found[2])
            return found

        loader = RolloutLoader(
            self.model, self.prompts, self.grpo, draw, lambda: trainer.global_step, ranks, lambda: unsharded(self.model)
        )
        self.epochs.attach(loader)
        return loader


__all__ = ["CHECKPOINTS", "HELD_OUT", "METRICS", "ROLLOUTS", "fit_flow_grpo"]
