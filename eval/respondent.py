"""From what a person types (a checkpoint, a model's name, an endpoint) to a model that can be asked, stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from eval.benchmark import Respondent
from eval.calls import CallStore, StoredModel
from uni_train.errors import UsageError, did_you_mean
from uni_train.models.identity import ModelIdentity, identify

if TYPE_CHECKING:
    from uni_train.config.schema import ModelConfig
    from uni_train.models.remote import RemoteSettings


def is_remote(checkpoint: str) -> bool:
    """Whether it is an endpoint, "http://HOST:PORT/v1#MODEL", and no path."""
    return checkpoint.startswith(("http://", "https://"))


def open_model(
    checkpoint: str,
    store: CallStore,
    *,
    sampling: Mapping[str, Any] | None = None,
    remote: RemoteSettings | None = None,
    batch: int | None = None,
    retry_failed: bool = False,
    say: Callable[[str], None] | None = None,
) -> StoredModel:
    """The model behind the store of its finished calls; its weights are loaded when the first call is missing.

    Args:
        checkpoint: as `uni_train.models.load.model_config` takes it, "shipped" (nano's own), or "URL#MODEL".
        sampling: values of SamplingConfig that replace the model's own. remote: how an endpoint is asked.
        batch: requests at once; None: as the model's configuration says, and four a connection of an endpoint.
        say: called with a line before something slow is loaded.

    Raises:
        UserError: no such checkpoint, a damaged one, an endpoint that cannot be reached. UsageError: no such name or
            setting.
    """
    if is_remote(checkpoint):
        from uni_train.models.remote import RemoteModel, RemoteSettings

        if sampling:
            raise UsageError(
                f"a remote model takes no {next(iter(sampling))}=...", "Its server decides how it draws and writes."
            )
        model = RemoteModel.open(checkpoint, remote or RemoteSettings())
        size = batch or 4 * model.settings.connections  # a batch waits for its slowest call
        return StoredModel(
            model.identity, store, lambda: model, think_batch=size, draw_batch=size, retry_failed=retry_failed
        )
    from uni_train.models.load import model_config

    config = model_config(checkpoint)
    config = replace(config, sampling=_changed(config, sampling or {}))
    dtype = _dtype(config)
    identity = identify(config, dtype)
    return StoredModel(
        identity,
        store,
        lambda: _load(config, dtype, identity, say),
        think_batch=batch or config.think_batch,
        draw_batch=batch or config.draw_batch,
        retry_failed=retry_failed,
    )


def _changed(config: ModelConfig, changes: Mapping[str, Any]) -> Any:
    known = [field.name for field in fields(config.sampling)]
    for name in changes:
        if name not in known:
            raise UsageError(f"there is no sampling setting {name}", did_you_mean(name, known, "settings"))
    return replace(config.sampling, **changes)


def _dtype(config: ModelConfig) -> str:
    """A GPU takes what is large in bfloat16."""
    if config.name.startswith("nano"):
        return "stored"
    import torch

    return "bfloat16" if torch.cuda.is_available() else "stored"


def _load(config: ModelConfig, dtype: str, identity: ModelIdentity, say: Callable[[str], None] | None) -> Respondent:
    import torch

    from uni_train.models.load import build_model

    if say is not None:
        say(f"loading {identity.name} from {identity.source}")
    model = build_model(config, dtype=torch.bfloat16 if dtype == "bfloat16" else None)
    return model.to("cuda") if torch.cuda.is_available() else model
