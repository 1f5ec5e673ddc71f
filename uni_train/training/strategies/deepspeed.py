"""DeepSpeed ZeRO (Rajbhandari et al. 2020) under Lightning, on GPUs and on CPUs, with our own checkpoints.

What differs from Lightning's own strategy:

    accelerator    a CPU will do (gloo), so that all of it can be tested anywhere
    checkpoints    those of checkpoint_io, without pickle: any strategy goes on from any other's
    bf16-mixed     autocast over float32 weights, as with DDP; DeepSpeed's own would cast the weights
    bf16-true      bfloat16 weights with float32 master weights beside the optimizer's state
    accumulation   losses are divided once; Lightning and DeepSpeed both would
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, cast

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.pytorch.plugins import DeepSpeedPrecision
from lightning.pytorch.strategies import DeepSpeedStrategy, Strategy
from torch import Tensor, nn

from uni_train.core.errors import UserError
from uni_train.models.parts import Part, Parts, numbers
from uni_train.training.half_adamw import HalfAdamW
from uni_train.training.precision import cast_weights
from uni_train.training.strategies.plain import Plain, load_trained
from uni_train.training.strategies.sharding import cut, held

MOMENTS = ("exp_avg", "exp_avg_sq")
BUCKET = 200_000_000
"""Gradients are sent in buckets of at most so many numbers."""


class EnginePrecision(DeepSpeedPrecision):
    """Backward pass and update by DeepSpeed's engine; casts as precision.py does without it."""

    def convert_module(self, module: nn.Module) -> nn.Module:
        return cast_weights(module) if self.precision == "bf16-true" else module

    def convert_input(self, data: Any) -> Any:
        return data

    def tensor_init_context(self) -> Any:
        return nullcontext()

    def backward(self, tensor: Tensor, model: Any, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        zero = model.trainer.model.optimizer
        if hasattr(zero, "setup_buckets"):
            zero.setup_buckets()  # ZeRO-1 and 2 do so at the first gradient, which a micro-batch may not have
        model.trainer.model.backward(tensor, *args, scale_wrt_gas=False, **kwargs)

    def optimizer_step(self, optimizer: Any, model: Any, closure: Callable[[], Any], **kwargs: Any) -> Any:  # type: ignore[override]
        stepped = super().optimizer_step(optimizer, model, closure, **kwargs)
        norm = model.trainer.model.get_global_grad_norm()
        if norm is not None:
            # The engine has left out a step whose gradient is not finite.
            model.note_gradient(torch.as_tensor(norm, dtype=torch.float32, device=model.device))
        return stepped


class Zero(DeepSpeedStrategy):
    """ZeRO of a stage: 1 shares out the optimizer's state, 2 gradients as well, 3 weights as well."""

    def __init__(
        self,
        stage: int,
        *,
        trained: int,
        precision: EnginePrecision,
        offload_optimizer: bool = False,
        offload_weights: bool = False,
    ) -> None:
        """
        Args:
            trained: how many numbers are trained.

        Raises:
            UserError: DeepSpeed is not installed.
        """
        try:
            _import_deepspeed()
        except ImportError as error:
            raise UserError(
                f"strategy=deepspeed_zero{stage} needs deepspeed ({error})",
                "Install it with: DS_BUILD_OPS=0 pip install -e '.[deepspeed]'.",
            ) from error
        bucket = min(BUCKET, trained + trained % 2)  # even, as DeepSpeed wants it
        cuda = torch.cuda.is_available()
        zero: dict[str, Any] = {
            "stage": stage,
            "contiguous_gradients": True,
            "overlap_comm": cuda,
            "reduce_bucket_size": bucket,
            "allgather_bucket_size": bucket,
        }
        if stage == 3:
            zero |= {
                "memory_efficient_linear": False,  # it would replace torch's linear for the rest of the process
                "stage3_param_persistence_threshold": 0,  # else small weights would be kept whole
                "stage3_prefetch_bucket_size": bucket,
            }
        if offload_optimizer:
            zero["offload_optimizer"] = {"device": "cpu", "pin_memory": cuda}
        if offload_weights:
            zero["offload_param"] = {"device": "cpu", "pin_memory": cuda}
        config = {
            "zero_optimization": zero,
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
            "bf16": {"enabled": precision.precision == "bf16-true"},
            "train_micro_batch_size_per_gpu": 1,
            "steps_per_print": 2**31,
        }
        super().__init__(config=config, precision_plugin=precision, logging_level=logging.ERROR)
        self.stage, self.half = stage, precision.precision == "bf16-true"
        self.plain: Plain | None = None
        self.numbers: list[list[Any]] = []

    # --- starting ---------------------------------------------------------------------------------------------------

    def setup_environment(self) -> None:
        Strategy.setup_environment(self)
        self.setup_distributed()

    def setup_distributed(self) -> None:
        """The process group is there already (uni_train.distributed.ranks.joined)."""
        import deepspeed

        self.set_world_ranks()
        deepspeed.init_distributed(
            dist_backend=dist.get_backend(), auto_mpi_discovery=False, verbose=False, dist_init_required=True
        )

    def setup(self, trainer: pl.Trainer) -> None:
        assert self.lightning_module is not None
        whole = self.stage == 3 and not self.half
        self.plain = Plain(self.lightning_module, self.root_device, torch.float32 if whole else None)
        if self.stage == 3:
            self._init_config_if_needed()
            self._partition(self.lightning_module)
        super().setup(trainer)

    @torch.no_grad()
    def _partition(self, module: nn.Module) -> None:
        """Weight by weight, from the first rank to all: no device ever holds the model, others read none of it."""
        import deepspeed

        dtype = torch.bfloat16 if self.half else torch.float32
        first: Any = None
        for weight in module.parameters():
            kind = dtype if weight.is_floating_point() else weight.dtype
            if self.is_global_zero:
                weight.data = weight.data.to(self.root_device, kind)
            else:
                weight.data = torch.empty(weight.shape, dtype=kind, device=self.root_device)
            if first is None:
                deepspeed.zero.Init(nn.ParameterList([weight]), config_dict_or_path=self.config, dtype=dtype)
                first = weight
            else:
                first.convert_to_zero_parameters(param_list=[weight])
        for buffer in module.buffers():
            buffer.data = buffer.data.to(self.root_device)

    def _setup_model_and_optimizer(self, model: nn.Module, optimizer: Any, lr_scheduler: Any = None) -> Any:
        import deepspeed

        self.numbers = [list(group["params"]) for group in optimizer.param_groups]
        engine, wrapped, _, _ = deepspeed.initialize(
            args=None,
            config=self.config,
            model=model,
            model_parameters=[weight for weight in model.parameters() if weight.requires_grad],
            optimizer=optimizer,
            lr_scheduler=lr_scheduler,
            dist_init_required=False,
        )
        return engine, wrapped

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Through the engine's forward, under autocast where precision says so: the engine switches off what is
        outside."""
        module, engine = self.lightning_module, self.model
        assert module is not None and engine is not None

        def forward(*args: Any, **kwargs: Any) -> Any:
            del module.forward
            mixed = self.precision_plugin.precision == "bf16-mixed"
            with torch.autocast(self.root_device.type, torch.bfloat16) if mixed else nullcontext():
                return module.training_step(*args, **kwargs)

        module.forward = forward  # type: ignore[method-assign]
        return engine(*args, **kwargs)

    # --- checkpoints ------------------------------------------------------------------------------------------------

    @property
    def lightning_restore_optimizer(self) -> bool:
        return True

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Trained weights and buffers."""
        module = self.lightning_module
        assert module is not None
        weights = dict(module.named_parameters(remove_duplicate=False))
        buffers = {name: value for name, value in module.state_dict().items() if name not in weights}
        return {name: held(weight) for name, weight in weights.items() if weight.requires_grad} | buffers

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        """On every rank."""
        self.checkpoint_io.save_checkpoint(checkpoint, filepath)

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        return Strategy.load_checkpoint(self, checkpoint_path, weights_only)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        assert self.lightning_module is not None
        load_trained(self.lightning_module, checkpoint["state_dict"])
        for name, weight in self.lightning_module.named_parameters():
            if weight.requires_grad:
                self._set(weight, None, checkpoint["state_dict"][name])

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        """In PyTorch's form, numbers being places in `configure_optimizers`' groups, with this rank's parts.

        With bfloat16 weights `master` is beside the moments: the weights in float32.
        """
        del optimizer
        self._link()
        inner = self._inner()
        step = next(float(own["step"]) for own in inner.state.values() if "step" in own)
        state: dict[int, dict[str, Any]] = {}
        groups, first = [], 0
        for group, weights in zip(inner.param_groups, self.numbers, strict=True):
            for number, weight in enumerate(weights, first):
                names = [*MOMENTS, *([] if weight.dtype == torch.float32 else ["master"])]
                state[number] = {name: self._part(weight, None if name == "master" else name) for name in names}
                state[number]["step"] = torch.tensor(step)
            plain = {name: value for name, value in group.items() if name != "params"}
            groups.append({**plain, "params": list(range(first, first + len(weights)))})
            first += len(weights)
        return {"state": state, "param_groups": groups}

    @torch.no_grad()
    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Weights that have no state there (they never had a gradient) get none; all count the same steps."""
        assert self.lightning_module is not None
        (saved,) = checkpoint["optimizer_states"]
        inner, zero = self._inner(), self.deepspeed_engine.optimizer
        for group, before in zip(inner.param_groups, saved["param_groups"], strict=True):
            group.update({name: value for name, value in before.items() if name not in ("params", "fused", "foreach")})
        step = max((float(entry["step"]) for entry in saved["state"].values()), default=0.0)
        for flat in zero.fp32_partitioned_groups_flat if self.stage == 3 else zero.single_partition_of_fp32_groups:
            moments = {name: torch.zeros_like(flat.data) for name in MOMENTS}
            inner.state[flat] |= {"step": int(step) if isinstance(inner, HalfAdamW) else torch.tensor(step), **moments}
        self._link()
        names = {weight: name for name, weight in self.lightning_module.named_parameters()}
        for number, weight in enumerate(weight for group in self.numbers for weight in group):
            entry = saved["state"].get(number, {})
            for name in MOMENTS:
                if name in entry:
                    self._set(weight, name, entry[name])
            if "master" in entry:
                self._set(weight, None, entry["master"])
            elif "rest" in entry:
                self._set(weight, None, checkpoint["state_dict"][names[weight]], entry["rest"])

    def _inner(self) -> torch.optim.Optimizer:
        return self.deepspeed_engine.optimizer.optimizer

    def _link(self) -> None:
        """Weights to their moments. DeepSpeed 0.19 does so after the first group's step only, when others have none."""
        if self.stage < 3:
            zero = self.deepspeed_engine.optimizer
            zero._hp_optimizer_states_linked = False
            zero._lazy_init_hp_params_optimizer_state()

    def _part(self, weight: Any, moment: str | None) -> Part:
        """This rank's part of the float32 weight, or of a moment of it."""
        if self.stage == 3:
            return cast(Part, held(weight, self.deepspeed_engine.optimizer.get_local_fp32_param(weight, moment)))
        mapping = weight._hp_mapping
        if mapping is None:
            return Part(weight.new_empty(0, dtype=torch.float32), 0, weight.shape)
        return Part(mapping.get_hp_fragment(moment), mapping.lp_fragment_address.start, weight.shape)

    @torch.no_grad()
    def _set(self, weight: Any, moment: str | None, *values: Tensor | Parts) -> None:
        """Write this rank's part of a sum of tensors into the float32 weight, or into a moment of it."""
        if self.stage == 3:
            mine = sum(cut(weight, value).float() for value in values)
            self.deepspeed_engine.optimizer.set_local_hp_param(mine, weight, moment)
        elif weight._hp_mapping is not None:
            at = weight._hp_mapping.lp_fragment_address
            mine = sum(numbers(value, at.start, at.numel).float() for value in values)
            weight._hp_mapping.get_hp_fragment(moment).copy_(mine)

    # --- ending -----------------------------------------------------------------------------------------------------

    def unshard(self) -> None:
        """Plain parameters with whole weights, of ZeRO-3 on the first rank; DeepSpeed's buffers and hooks are gone."""
        assert self.plain is not None
        engine = self.deepspeed_engine
        values = self.plain.values()
        engine.destroy()
        self.plain.again(values)
        self.model = self.lightning_module


def _import_deepspeed() -> None:
    """Without a GPU: on the CPU, and without compiling for a minute what gloo does as well."""
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed

    if not torch.cuda.is_available():
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
