"""From what a person types (a checkpoint, a model's name, an endpoint) to a model that can be asked, stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from uni_train.config.build import build_section
from uni_train.config.schema import EvalConfig
from uni_train.core.errors import UsageError, UserError
from uni_train.eval.calls import StoredModel
from uni_train.eval.sample import Respondent
from uni_train.eval.store import LastSeen, Store
from uni_train.models.batches import ModelDown
from uni_train.models.checkpoint import source_of
from uni_train.models.family import family_of
from uni_train.models.identity import ModelIdentity, identify

if TYPE_CHECKING:
    from uni_train.config.schema import ModelConfig, Quantised, RemoteConfig
    from uni_train.eval.answers import FolderAnswers
    from uni_train.models.base import UnifiedModel


OF_WEIGHTS = ("weights", "compile", "sampling")
"""Keys of an evaluation that only weights on this machine obey."""


def expect_unset(config: EvalConfig, keys: Sequence[str], why: str) -> None:
    """Raises UsageError for keys that would be ignored."""
    for key in keys:
        if (given := getattr(config, key)) != getattr(EvalConfig(), key):
            raise UsageError(f"{key}={given}: {why}", f"Leave {key} out.")


def open_respondent(
    checkpoint: str, config: EvalConfig, store: Store, say: Callable[[str], None]
) -> StoredModel | FolderAnswers:
    """Who an evaluation asks: a model, two as one, or a folder of answers. Raises as `open_model`."""
    if source_of(checkpoint).holds_answers:
        from uni_train.eval.answers import FolderAnswers

        expect_unset(config, (*OF_WEIGHTS, "redraw", "text_model"), f"{checkpoint} holds answers")
        return FolderAnswers(Path(checkpoint), say)
    own = {key: getattr(config, key) for key in OF_WEIGHTS}
    return paired(open_model(checkpoint, store, **own, **_asked(config), say=say), config, store, say)


def paired(
    model: StoredModel, config: EvalConfig, store: Store, say: Callable[[str], None] | None = None
) -> StoredModel:
    """The model, or a pair that is asked in the same way, whose texts come from `config.text_model`."""
    if config.text_model is None:
        return model
    from uni_train.eval.pair import Pair

    try:
        text = open_model(config.text_model, store, **_asked(config), say=say)
    except UserError as error:
        error.message = f"text_model={config.text_model}: {error.message}"
        raise
    return cast(StoredModel, Pair(text, model))


def _asked(config: EvalConfig) -> dict[str, Any]:
    """How any model is asked, of the arguments of `open_model`."""
    return {"remote": config.remote, "batch": config.batch, "retry_failed": config.retry_failed}


def open_model(
    checkpoint: str,
    store: Store,
    *,
    sampling: Mapping[str, Any] | None = None,
    weights: Quantised | None = None,
    compile: bool = False,
    remote: RemoteConfig | None = None,
    batch: int | None = None,
    retry_failed: bool = False,
    say: Callable[[str], None] | None = None,
) -> StoredModel:
    """The model behind the store of its finished calls; its weights are loaded when the first call is missing.

    Args:
        checkpoint: as `uni_train.models.load.model_config` takes it, "shipped" (nano's own), or "URL#MODEL".
        sampling: values of SamplingConfig that replace the model's own. remote: how an endpoint is asked.
        weights, compile: as of `uni_train.models.load.model_config`.
        batch: requests at once; None: as the model's configuration says, and four a connection of an endpoint.
        say: called with a line before something slow is loaded.

    Raises:
        UserError: no such checkpoint, a damaged one, an endpoint that cannot be reached and never was. UsageError: no
            such name or setting.
    """
    if source_of(checkpoint).kind == "endpoint":
        from uni_train.config.schema import RemoteConfig

        if given := [*(sampling or {}), *["weights"] * (weights is not None), *["compile"] * compile]:
            hint = "Its server decides: `uni_train serve --sampling`, or remote.temperature and remote.extra_body."
            raise UsageError(f"a remote model takes no {given[0]}=...", hint)
        settings = remote or RemoteConfig()
        size = batch or 4 * settings.connections  # a batch waits for its slowest call
        identity, load, identified = _remote(checkpoint, settings, LastSeen(store.folder), say)
        model = StoredModel(identity, store, load, think_batch=size, draw_batch=size, retry_failed=retry_failed)
        if model.finished and not identified and say is not None:
            say(
                f"{checkpoint} does not say which weights it has: {model.finished} stored answers are used. If it is "
                "another model by now, give it a remote.revision."
            )
        return model
    from uni_train.models.load import model_config

    config = model_config(checkpoint, weights, compile)
    config = replace(config, sampling=_changed(config.sampling, sampling or {}))
    dtype = _dtype(config.family)
    identity = identify(config, dtype)
    return StoredModel(
        identity,
        store,
        lambda: _load(config, dtype, identity, say),
        think_batch=batch or config.think_batch,
        draw_batch=batch or config.draw_batch,
        retry_failed=retry_failed,
    )


def identity_of(
    checkpoint: str, sampling: Mapping[str, Any], weights: Quantised | None = None, compile: bool = False
) -> ModelIdentity | None:
    """Which model `open_model` would open from a checkpoint here; None where no weights are here."""
    source = source_of(checkpoint)
    if source.kind == "endpoint" or source.holds_answers:
        return None
    from uni_train.models.load import model_config

    config = model_config(checkpoint, weights, compile)
    config = replace(config, sampling=_changed(config.sampling, sampling))
    try:
        return identify(config, _dtype(config.family))
    except UserError:
        return None


def _remote(
    address: str, settings: RemoteConfig, seen: LastSeen, say: Callable[[str], None] | None
) -> tuple[ModelIdentity, Callable[[], Respondent], bool]:
    """The identity of an endpoint's model, what opens it, and whether the endpoint says which weights it has. One that
    is down is what it was when it was last seen, so that what is stored of it is found."""
    from uni_train.models.remote import RemoteModel

    server = _server(address, settings)
    try:
        model = RemoteModel.open(address, settings)
    except ModelDown as error:
        report = seen.report_of(server)
        if report is None:
            raise
        identity = ModelIdentity.from_dict(report)
        if say is not None:
            say(f"{error.message}: what is stored of {identity.name} is used")
    else:
        seen.keep(server, model.identity.to_dict())
        model.on_fingerprint = _fingerprints(address, settings, seen, say)
        return model.identity, lambda: model, model.identified

    def load() -> Respondent:
        opened = RemoteModel.open(address, settings)
        if opened.identity.key != identity.key:
            raise UserError(f"{address} is another model now", "Run the same command again to evaluate that.")
        return opened

    return identity, load, True


def _fingerprints(
    address: str, settings: RemoteConfig, seen: LastSeen, say: Callable[[str], None] | None
) -> Callable[[str], None]:
    """Keeps the `system_fingerprint` of replies, and warns of one that differs from those of stored answers."""
    server = {**_server(address, settings), "kept": "fingerprints"}
    known = list((seen.report_of(server) or {}).get("fingerprints", []))

    def note(fingerprint: str) -> None:
        if fingerprint in known:
            return
        if known and say is not None:
            say(
                f"{address} reports the system_fingerprint {fingerprint[:80]}, stored answers {known[-1][:80]}: it may "
                "be another model by now. A new remote.revision asks it all again."
            )
        known.append(fingerprint)
        seen.keep(server, {"fingerprints": known})

    return note


def _server(address: str, settings: RemoteConfig) -> dict[str, Any]:
    """An endpoint and how it is asked, without what changes no answer."""
    passing = ("key_env", "connections", "timeout", "retries", "patience", "image_hosts")
    return {"model": address, **{name: value for name, value in asdict(settings).items() if name not in passing}}


def _changed(sampling: Any, changes: Mapping[str, Any]) -> Any:
    return build_section(type(sampling), {**asdict(sampling), **changes})  # 0 is 0.0, so that both are one model


def _dtype(family: str) -> str:
    """A GPU takes what is large in bfloat16."""
    if not family_of(family).bfloat16:
        return "stored"
    import torch

    return "bfloat16" if torch.cuda.is_available() else "stored"


def _load(config: ModelConfig, dtype: str, identity: ModelIdentity, say: Callable[[str], None] | None) -> UnifiedModel:
    import torch

    from uni_train.models.load import build_model

    if say is not None:
        say(f"loading {identity.name} from {identity.source}")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return build_model(config, dtype=torch.bfloat16 if dtype == "bfloat16" else None, device=device)
