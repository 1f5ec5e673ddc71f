"""The judge as inspect-ai's Model: made from its configuration, asked, its errors understood, its key hidden."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from uni_train.errors import UserError
from uni_train.eval.judges.asking import NoReply
from uni_train.eval.judges.config import JudgeConfig
from uni_train.eval.judges.failures import cleaned, hide_secrets, of_form, of_one_question, of_the_judge
from uni_train.eval.judges.replies import Reply, Turn
from uni_train.http_limits import LETTERS_A_TOKEN, limited
from uni_train.http_limits import clean as half_pairs_replaced

if TYPE_CHECKING:
    from inspect_ai.model import ChatMessage, Model

_LOCAL_KEY = "local"  # what a server of one's own is sent where no key is set
_KINDS_OF_IMAGE = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
)


def key_of(judge: JudgeConfig) -> str | None:
    """The key to send; None leaves it to the provider. Raises UserError where the named variable holds none."""
    if judge.key_env is not None:
        found = os.environ.get(judge.key_env, "").strip()
        if not found:
            raise UserError(
                f"the environment variable {judge.key_env} holds no key for the judge {judge.model}",
                f"export {judge.key_env}=... and run the same command again.",
            )
        return found
    if judge.base_url is not None:
        return os.environ.get("JUDGE_API_KEY", "").strip() or _LOCAL_KEY
    return None


def without_keys(judge: JudgeConfig) -> Callable[[str], str]:
    """Makes a server's text fit to be kept: without any key in the environment, for a server may send back the one it
    got, and without half surrogate pairs, which no file can hold."""
    named = [value for name, value in os.environ.items() if name.endswith(("_API_KEY", "_TOKEN", "_SECRET"))]
    own = os.environ.get(judge.key_env or "", "").strip()
    secrets = [value for value in {*named, own} if len(value) >= 8 or (value and value == own)]

    def clean(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, "[key]")
        return half_pairs_replaced(text)

    return clean


def model_of(judge: JudgeConfig, clean: Callable[[str], str]) -> Model:
    """The judge as inspect-ai's Model; `clean` takes keys out of what it raises.

    Raises UserError: no key, no such provider, a library that is missing.
    """
    from inspect_ai._util.error import PrerequisiteError
    from inspect_ai.model import GenerateConfig, get_model

    if judge.inspect_name.startswith("served/"):
        from uni_train.eval.judges import endpoint  # noqa: F401  # makes itself known to inspect-ai

    config = GenerateConfig(
        temperature=judge.temperature,
        max_tokens=judge.max_tokens,
        seed=judge.seed,
        max_connections=judge.max_connections,
        attempt_timeout=max(1, round(judge.timeout)),
        timeout=max(1, round(judge.patience)),
        max_retries=judge.retries,
    )
    try:
        model = get_model(
            judge.inspect_name,
            config=config,
            base_url=judge.base_url,
            api_key=key_of(judge),
            memoize=False,
            **judge.provider_args,
        )
        if hasattr(model.api, "http_client"):  # of the openai library; `endpoint` has the limits itself
            limited(model.api.http_client, judge.timeout)
        _hide_secrets(model, clean)
        return model
    except PrerequisiteError as error:
        said = str(error.message)
    except (ValueError, ImportError, TypeError) as error:
        said = str(error)
    raise UserError(
        f"the judge {judge.model} cannot be asked: {_plain(said)}", "See docs/judges.md for providers and keys."
    )


async def ask(
    model: Model,
    judge: JudgeConfig,
    clean: Callable[[str], str],
    turns: Sequence[Turn],
    schema: Mapping[str, Any] | None,
    draw: int = 0,
) -> Reply:
    """The model's reply, without keys; draw: which of several to one question.

    Raises:
        UserError: what no other question helps (a wrong key, no such model). NoReply: this one has no reply.
    """
    try:
        output = await model.generate(_messages(turns), config=_of_question(schema, _seed(judge, draw)))
    except Exception as error:
        fatal = of_the_judge(error, judge, clean)
        if fatal is not None:
            raise fatal from None
        if schema is not None and of_form(error):  # the server takes no schema; the prompt asks in words too
            return await ask(model, judge, clean, turns, None, draw)
        raise NoReply(*of_one_question(error, judge, clean)) from None
    usage, longest = output.usage, judge.max_tokens * LETTERS_A_TOKEN
    return Reply(
        clean(output.completion[:longest]),
        str(output.stop_reason) if len(output.completion) <= longest else "max_tokens",
        usage.input_tokens if usage else 0,
        usage.output_tokens if usage else 0,
        round(output.time or 0.0, 3),
    )


def data_url(image: bytes) -> str:
    """An encoded image as a data URL; what is none of PNG, JPEG, GIF and WebP is called a PNG."""
    kind = next((kind for start, kind in _KINDS_OF_IMAGE if image.startswith(start)), "image/png")
    return f"data:{kind};base64,{base64.b64encode(image).decode()}"


def _hide_secrets(model: Model, clean: Callable[[str], str]) -> None:
    """Have the provider raise and log no key, even where the server sends back the one it was given."""
    ask = model.api.generate

    async def generate(*args: Any, **kwargs: Any) -> Any:
        try:
            found = await ask(*args, **kwargs)
        except Exception as error:
            hide_secrets(error, clean)
            raise
        if isinstance(found, tuple) and isinstance(found[0], Exception):
            hide_secrets(found[0], clean)
            found[1].response = cleaned(found[1].response, clean)
        return found

    model.api.generate = generate  # type: ignore[method-assign]


def _messages(turns: Sequence[Turn]) -> list[ChatMessage]:
    from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, ContentImage, ContentText

    messages: list[ChatMessage] = []
    for turn in turns:
        if turn.role == "assistant":
            messages.append(ChatMessageAssistant(content=turn.text))
        elif turn.images:
            pictures = [ContentImage(image=data_url(image)) for image in turn.images]
            messages.append(ChatMessageUser(content=[*pictures, ContentText(text=turn.text)]))
        else:
            messages.append(ChatMessageUser(content=turn.text))
    return messages


def _seed(judge: JudgeConfig, draw: int) -> int | None:
    """Of a draw. A server with an address is sent one from the second draw on: ours gives one reply a seed."""
    if judge.seed is None and not judge.inspect_name.startswith("served/"):
        return None
    return (draw or None) if judge.seed is None else judge.seed + draw


def _of_question(schema: Mapping[str, Any] | None, seed: int | None) -> Any:
    from inspect_ai.model import GenerateConfig, ResponseSchema
    from inspect_ai.util import JSONSchema

    if schema is None:
        return GenerateConfig(seed=seed)
    wanted = ResponseSchema(name="reply", json_schema=JSONSchema.model_validate(dict(schema)))
    return GenerateConfig(seed=seed, response_schema=wanted)


def _plain(text: str) -> str:
    """inspect-ai's message without its markup, on one line."""
    from rich.text import Text

    return " ".join(Text.from_markup(text).plain.split())
