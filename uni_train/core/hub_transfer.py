"""Downloads from the Hugging Face hub and uploads to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from uni_train.core.addresses import proxy_for
from uni_train.core.errors import UserError
from uni_train.core.reading_limits import PICKLES

if TYPE_CHECKING:
    from huggingface_hub import HfApi

Kind = Literal["model", "dataset"]
ANNOUNCED = 1_000_000_000  # bytes from which a download is told before it starts
_HINT = "Log in with `hf auth login`, or set HF_TOKEN to a token that may write there."


@cache  # what a process has looked up stays the same commit
def snapshot(given: str, name: str, revision: str | None, kind: Kind, patterns: tuple[str, ...]) -> Path:
    """A folder of a repository's files of these patterns. given: as messages name it. Raises UserError as `local`."""
    with _explained(partial(_advice, given, name, revision, kind)):
        _announce(name, revision, kind, patterns)
        return Path(_hub().snapshot_download(name, repo_type=kind, revision=revision, allow_patterns=[*patterns]))


def _announce(name: str, revision: str | None, kind: Kind, patterns: tuple[str, ...]) -> None:
    """Print size and licence before a large download. Raises UserError: the weights are pickles."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HTTPError, OfflineModeIsEnabled
    from huggingface_hub.utils import filter_repo_objects

    try:
        info: Any = _hub().repo_info(name, revision=revision, repo_type=kind, files_metadata=True)
    except (HTTPError, OfflineModeIsEnabled):
        return  # the download says why, or the cache has it
    files = {sibling.rfilename: sibling.size or 0 for sibling in info.siblings or ()}
    wanted = list(filter_repo_objects(files, allow_patterns=[*patterns]))
    pickles = [file for file in files if file.endswith(PICKLES)]
    if pickles and kind == "model" and not any(file.endswith(".safetensors") for file in files):
        raise UserError(
            f"{name} has pickles alone ({pickles[0]})",
            "Pickles can run any code and are never read. Choose a repository with safetensors files.",
        )
    missing = sum(
        files[file]
        for file in wanted
        if not isinstance(try_to_load_from_cache(name, file, revision=info.sha, repo_type=kind), str)
    )
    if missing > ANNOUNCED:
        licence = getattr(info.card_data, "license", None) or "not named"
        click.echo(f"downloading {name}: {missing / 1e9:.1f} GB, licence {licence!r}", err=True)


@contextmanager
def _explained(advice: Callable[[Exception], tuple[str, str]]) -> Iterator[None]:
    """Errors of the hub as UserError: what is wrong, and what to do."""
    # HTTPError is that of the library beneath (requests, httpx): no OSError in all of them.
    from huggingface_hub import constants
    from huggingface_hub.errors import HTTPError

    proxy_for(os.environ.get("HF_ENDPOINT") or constants.ENDPOINT, ("http", "https", "socks5", "socks5h"))
    try:
        yield
    except (HTTPError, OSError, ValueError, RuntimeError, ImportError) as error:  # the last: a SOCKS proxy needs more
        raise UserError(*advice(error)) from error


def _advice(given: str, name: str, revision: str | None, kind: Kind, error: Exception) -> tuple[str, str]:
    """Of a download."""
    from huggingface_hub import constants, errors

    hub = os.environ.get("HF_ENDPOINT") or constants.ENDPOINT
    page = f"{hub}/{'datasets/' if kind == 'dataset' else ''}{name}"
    nothing, again = f"there is nothing at {given}", "Run the same command again: it goes on with what is missing."
    answer = error.__cause__ if isinstance(error, errors.LocalEntryNotFoundError) else error
    if isinstance(error, errors.GatedRepoError):
        hint = f"Accept the licence at {page}, then log in with `hf auth login` or set HF_TOKEN."
        return f"{name} is gated: its owner asks for consent", hint
    if isinstance(error, errors.RepositoryNotFoundError):
        hint = "Check the spelling. A private one needs `hf auth login` or HF_TOKEN."
        return f"{nothing}, and {hub} shows no {kind} {name}", hint
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{name} has no revision {revision}", f"Branches and tags are listed at {page}."
    if isinstance(answer, errors.HfHubHTTPError):
        status = answer.response.status_code
        token = "Your token is not accepted: `hf auth login` again, or set HF_TOKEN."
        return f"{name} was not downloaded: {hub} answers {status}", token if status in (401, 403) else again
    if isinstance(error, errors.LocalEntryNotFoundError) and constants.HF_HUB_OFFLINE:
        hint = "Unset HF_HUB_OFFLINE to download it, or give a folder."
        return f"{nothing}, and HF_HUB_OFFLINE is set: the cache lacks it, or a part of it", hint
    if isinstance(error, errors.LocalEntryNotFoundError):
        hint = "Check the network (HF_ENDPOINT names another hub), or give a folder."
        return f"{nothing}, and {hub} cannot be reached", hint
    return f"the download of {name} broke off: {_reason(error)}", again


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
    with _explained(partial(_refusal, "nothing was written, because the hub does not answer as it should")):
        _hub().whoami()


def push(folder: Path, name: str, *, private: bool) -> str:
    """Upload a folder as one commit to the model repository `name`, made if it is not there; its address.

    Raises:
        UserError: no permission, no network, or a refused file. The folder stays.
    """
    hub = _hub()
    with _explained(partial(_refusal, f"{folder} was not pushed to {name}")):
        hub.create_repo(name, private=private, exist_ok=True)
        hub.upload_folder(folder_path=folder, repo_id=name, commit_message="Exported by uni_train")
    return f"{hub.endpoint}/{name}"


def _hub() -> HfApi:
    from huggingface_hub import HfApi

    return HfApi(endpoint=os.environ.get("HF_ENDPOINT"), token=os.environ.get("HF_TOKEN"))


def _refusal(what: str, error: Exception) -> tuple[str, str]:
    return f"{what}: {_reason(error)}", _HINT


def _reason(error: Exception) -> str:
    return (str(error).strip() or repr(error)).splitlines()[0]
