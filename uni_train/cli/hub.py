"""Folders to the Hugging Face hub."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from uni_train.errors import UserError

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_HINT = "Log in with `hf auth login`, or set HF_TOKEN to a token that may write there."


def check_repository(name: str) -> None:
    """Raises UserError for what is no OWNER/NAME, and where the hub does not know the token or is not reached."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise UserError(f"--push-to-hub {name}: {error}", "Give OWNER/NAME.") from None
    if "/" not in name:
        raise UserError(f"--push-to-hub {name} has no owner", "Give OWNER/NAME.")
    with _refusals("nothing was written, because the hub does not answer as it should"):
        _hub().whoami()


def push(folder: Path, name: str, *, private: bool) -> str:
    """Upload a folder as one commit to the model repository `name`, made if it is not there; its address.

    `HF_ENDPOINT` names another hub, `HF_TOKEN` the token.

    Raises:
        UserError: no permission, no network, or a refused file. The folder stays.
    """
    hub = _hub()
    with _refusals(f"{folder} was not pushed to {name}"):
        hub.create_repo(name, private=private, exist_ok=True)
        hub.upload_folder(folder_path=folder, repo_id=name, commit_message="Exported by uni_train")
    return f"{hub.endpoint}/{name}"


def _hub() -> HfApi:
    from huggingface_hub import HfApi

    return HfApi(endpoint=os.environ.get("HF_ENDPOINT"), token=os.environ.get("HF_TOKEN"))


@contextmanager
def _refusals(what: str) -> Iterator[None]:
    # HTTPError is that of the library beneath (requests, httpx): no OSError in all of them.
    from huggingface_hub.errors import HTTPError

    try:
        yield
    except (HTTPError, OSError, ValueError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{what}: {reason}", _HINT) from error
