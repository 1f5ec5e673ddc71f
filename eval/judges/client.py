"""Asking a judge over HTTP: the request of a conversation, its reply, and what a failure means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from uni_train.addresses import key_for, key_variable
from uni_train.config.schema import JudgeConfig
from uni_train.errors import UserError
from uni_train.eval.judges.asking import NoReply
from uni_train.eval.judges.replies import Reply, Turn
from uni_train.http_client import LETTERS_A_TOKEN, REDIRECTS, BadReply, Client, Refused
from uni_train.http_client import NoReply as NothingCame
from uni_train.models.pictures import data_url

_STOPS = {"length": "max_tokens", "content_filter": "content_filter", "refusal": "refusal"}
_MOST_TOKENS = 10_000_000  # of a reply that a server is believed
_LONGEST = 300  # letters of a reason


def client_of(judge: JudgeConfig) -> Client:
    """Raises UserError: the variable with its key is empty."""
    return Client(key_for(judge.address, judge.key_env), judge)


async def ask(
    client: Client, judge: JudgeConfig, turns: Sequence[Turn], schema: Mapping[str, Any] | None, draw: int = 0
) -> Reply:
    """The judge's reply; draw: which of several to one question.

    What a server refuses by name (a schema, a temperature) is left out, and named in `Reply.refused`: the prompt asks
    for its form in words too.

    Raises:
        UserError: what no other question helps (a wrong key, no such model). NoReply: this one has no reply.
    """
    url, _, name = judge.address.rpartition("#")
    body = _body(judge, name, turns, schema, draw)
    refused: list[str] = []
    while True:
        try:
            reply = _read(await client.ask(f"{url}/chat/completions", body), judge)
            return replace(reply, refused=tuple(refused)) if refused else reply
        except Refused as error:
            if error.status in (400, 422) and (key := _without_what_it_refuses(body, error.reason)):
                refused += [] if key == "max_tokens" else [key]  # sent under its newer name
                continue
            raise _understood(error, judge) from None
        except (NothingCame, BadReply) as error:
            raise NoReply(str(error)[:_LONGEST], gone=True) from None


def _body(
    judge: JudgeConfig, name: str, turns: Sequence[Turn], schema: Mapping[str, Any] | None, draw: int
) -> dict[str, Any]:
    # A server of one's own is sent a seed from the second draw on: `uni_train serve` gives one reply a seed.
    seed = judge.seed + draw if judge.seed is not None else (draw or None) if judge.base_url else None
    body = {"model": name, "messages": [_message(turn) for turn in turns], "max_tokens": judge.max_tokens}
    body |= {"temperature": judge.heat} | ({} if seed is None else {"seed": seed})
    if schema is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "reply", "schema": dict(schema)}}
    return body | judge.extra_body


def _message(turn: Turn) -> dict[str, Any]:
    """Images come before the words."""
    if not turn.images:
        return {"role": turn.role, "content": turn.text}
    images = [{"type": "image_url", "image_url": {"url": data_url(image)}} for image in turn.images]
    return {"role": turn.role, "content": [*images, {"type": "text", "text": turn.text}]}


def _without_what_it_refuses(body: dict[str, Any], reason: str) -> str:
    """Take out of `body` what the server's reason is about, and name it; "" where that may not be missing."""
    if "max_tokens" in body and "max_completion_tokens" in reason:  # OpenAI's newer name
        body["max_completion_tokens"] = body.pop("max_tokens")
        return "max_tokens"
    key = next((name for name in ("temperature", "seed") if name in body and name in reason), "response_format")
    return key if body.pop(key, None) is not None else ""


def _read(answer: Any, judge: JudgeConfig) -> Reply:
    """Raises NoReply for what is no chat completion."""
    try:
        choice, usage = answer["choices"][0], answer.get("usage") or {}
        message = choice["message"]
        refusal, text = message.get("refusal"), message.get("content") or ""
        if not isinstance(refusal or text, str):
            raise TypeError
        stop = "refusal" if refusal else _STOPS.get(choice.get("finish_reason") or "", "stop")
        read, written = (_tokens(usage.get(name)) for name in ("prompt_tokens", "completion_tokens"))
    except (KeyError, TypeError, IndexError, AttributeError):
        raise NoReply(f"no chat completion{judge.where} but {str(answer)[:200]!r}", gone=True) from None
    text, longest = str(refusal or text), judge.max_tokens * LETTERS_A_TOKEN
    return Reply(text[:longest], stop if len(text) <= longest else "max_tokens", read, written)


def _tokens(count: Any) -> int:
    """As the server counts them, where that can be."""
    return int(count) if isinstance(count, int | float) and 0 <= count <= _MOST_TOKENS else 0


def _understood(error: Refused, judge: JudgeConfig) -> UserError | NoReply:
    """A UserError for what no retry and no other question helps, else why this question has no reply."""
    who, reason = f"{judge.name}{judge.where}", error.reason[:_LONGEST]
    if error.status in (401, 403):
        variable = key_variable(judge.address, judge.key_env)
        if variable is None:
            hint = "Put its key into a variable and name that: judge.key_env=NAME."
            return UserError(f"the judge {who} wants a key ({error.status})", hint)
        return UserError(
            f"the judge {who} refuses the key in {variable} ({error.status})",
            "Put a valid key there and run the same command again; what was judged is kept.",
        )
    if error.status == 404:
        return UserError(
            f"there is no judge {who} (404: {reason})",
            "Check the model's name and the address (most servers want it to end in /v1).",
        )
    if error.status in REDIRECTS:
        return UserError(
            f"the judge {who} is elsewhere ({error.status}: {reason})",
            "Give the address that it redirects to, if you trust it with the key.",
        )
    return NoReply(f"{error.status}: {reason}", gone=error.passes)
