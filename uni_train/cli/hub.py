"""Folders to the Hugging Face hub."""

from __future__ import annotations

import os
from pathlib import Path

from uni_train.errors import UserError

_HINT = "Log in with `hf auth login`, or set HF_TOKEN to a token that may write there."


def check_repository(name: str) -> None:
    """Raises UserError for what is no OWNER/NAME."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise UserError(f"--push-to-hub {name}: {error}", "Give OWNER/NAME.") from None


def push(folder: Path, name: str, *, private: bool) -> str:
    """Upload a folder as one commit to the model repository `name`, made if it is not there; its address.

    `HF_ENDPOINT` names another hub, `HF_TOKEN` the token.

    Raises:
        UserError: no permission, no network, or a refused file. The folder stays.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    hub = HfApi(endpoint=os.environ.get("HF_ENDPOINT"), token=os.environ.get("HF_TOKEN"))
    try:
        hub.create_repo(name, private=private, exist_ok=True)
        hub.upload_folder(folder_path=folder, repo_id=name, commit_message="Exported by uni_train")
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{folder} was not pushed to {name}: {reason}", _HINT) from error
    return f"{hub.endpoint}/{name}"
