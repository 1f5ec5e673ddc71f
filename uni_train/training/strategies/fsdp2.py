"""FSDP2 of PyTorch (`fully_shard`) under Lightning: every layer's weights, gradients and moments sharded.

The units that are gathered and freed together are the layers of the model's stacks, the outermost `nn.ModuleList`s. All
other weights form one more unit. Lightning's own ModelParallelStrategy wants the model to share itself out, and pickles
checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from uni_train.models.parts import Parts
from uni_train.training.strategies.plain import Plain, load_trained
from uni_train.training.strategies.sharding import cut, layers, part


class Fsdp2(DDPStrategy):
    """Each rank takes its part of the model's weights, in whatever memory they are: no device ever holds them whole."""

    def __init__(self, *, dtype: torch.dtype, offload_weights: bool = False, replicas: int = 1) -> None:
        """
        Args:
            dtype: of the weights; in bfloat16 the VAE keeps its own.
            offload_weights: weights, gradients and the optimizer's state in the memory of the CPU.
            replicas: copies of the sharded weights, each on ranks in a row; a divisor of their number (one rank: any).
        """
        super().__init__()
        self.dtype, self.offload_weights, self.replicas = dtype, offload_weights, replicas
        self.plain: Plain | None = None

    def setup(self, trainer: pl.Trainer) -> None:
        assert self.lightning_module is not None
        vae = self.dtype if self.dtype == torch.float32 else None
        self.plain = Plain(self.lightning_module, self.root_device, vae)
        super().setup(trainer)

    def model_to_device(self) -> None:
        """Left to `configure_ddp`."""

    @torch.no_grad()
    def configure_ddp(self) -> None:
        """Shard the module on the meta device, then copy this rank's part of every weight."""
        module = self.lightning_module
        assert module is not None
        before = dict(module.named_parameters())
        empty = {
            weight: nn.Parameter(weight.to("meta", self._dtype(weight)), requires_grad=weight.requires_grad)
            for weight in before.values()
        }
        for submodule in module.modules():
            submodule._parameters.update(
                {name: empty[weight] for name, weight in submodule._parameters.items() if weight in empty}
            )
        hybrid = self.replicas > 1 and self.world_size > 1
        shape = (self.replicas, self.world_size // self.replicas) if hybrid else (self.world_size,)
        names = ("replicate", "shard") if hybrid else ("shard",)
        mesh = init_device_mesh(self.root_device.type, shape, mesh_dim_names=names)
        policy = (
            CPUOffloadPolicy(pin_memory=self.root_device.type == "cuda") if self.offload_weights else OffloadPolicy()
        )
        for layer in layers(module):
            fully_shard(layer, mesh=mesh, offload_policy=policy)
        fully_shard(module, mesh=mesh, offload_policy=policy)
        register_fsdp_forward_method(module, "training_step")
        device = torch.device("cpu") if self.offload_weights else self.root_device
        module._apply(
            lambda value: (
                torch.empty_like(value, device=device)
                if value.is_meta
                else value.to(self.root_device)  # buffers, as precision.py leaves them
            )
        )
        for name, weight in module.named_parameters():
            part(weight).copy_(cut(weight, before[name]))
            before[name].data = before[name].data.new_empty(0)

    def _dtype(self, value: Tensor) -> torch.dtype:
        return self.dtype if value.is_floating_point() else value.dtype

    # --- checkpoints ------------------------------------------------------------------------------------------------

    @property
    def restore_checkpoint_after_setup(self) -> bool:
        return True

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        """On every rank."""
        self.checkpoint_io.save_checkpoint(checkpoint, filepath)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        assert self.lightning_module is not None
        load_trained(self.lightning_module, checkpoint["state_dict"])

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """PyTorch's `set_optimizer_state_dict` begins with an update, which gives every weight moments."""
        (saved,), (optimizer,) = checkpoint["optimizer_states"], self.optimizers
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        state: dict[int, dict[str, Any]] = {}
        for number, entry in saved["state"].items():
            weight = weights[number]
            of = {"run_check": False, "shape": weight.shape, "stride": weight.stride()}
            state[number] = {
                name: DTensor.from_local(
                    cut(weight, value).to(weight.to_local().device), weight.device_mesh, weight.placements, **of
                )
                if isinstance(value, Parts) or (isinstance(value, Tensor) and value.ndim)
                else value
                for name, value in entry.items()
            }
        optimizer.load_state_dict({"state": state, "param_groups": saved["param_groups"]})

    # --- ending -----------------------------------------------------------------------------------------------------

    def unshard(self) -> None:
        """Plain parameters, whose whole weights the first rank has."""
        assert self.plain is not None
        self.plain.again(self.plain.values())
        self.plain = None

    def teardown(self) -> None:
        """After an error weights may be fetched or not: they are left as they are, to be freed with the model."""
        if self.plain is None:
            super().teardown()
            return
        assert self.cluster_environment is not None and self.accelerator is not None
        self.cluster_environment.teardown()
        self.precision_plugin.teardown()
        self.accelerator.teardown()
