"""inspect-ai's way to an OpenAI-compatible server of one's own, for judges that are given by an address.

inspect-ai has a provider for such servers ("openai-api/...", and it can be named). This one does less and costs less:
the openai client takes several times the processor time a request (`python bench/judging.py` prints both), which at
hundreds of replies a second is what bounds judging. It waits as long as a server that is rate limiting asks for, within
the limits of `uni_train.http_limits`, and what it raises never holds the key, even where the server sends it back.
"""

from __future__ import annotations

import json
import random
import secrets
from typing import Any

import aiohttp
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    StopReason,
    modelapi,
)
from inspect_ai.tool import ToolChoice, ToolInfo

from uni_train.http_limits import (
    LONGEST_WAIT,
    PASSING,
    REDIRECTS,
    Body,
    asked_wait,
    parsed,
    reason,
    redirected,
    too_long,
)

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0  # seconds between retries: twice as long each time
_STOPS: dict[str, StopReason] = {"length": "max_tokens", "content_filter": "content_filter"}
_MOST_TOKENS = 10_000_000  # of a reply that a server is believed


class Refusal(Exception):
    """The server answered with an error, or with what is no answer. retry_after: seconds that it asks to wait."""

    def __init__(self, status_code: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status_code, self.retry_after = status_code, retry_after


@modelapi(name="served")
class Endpoint(ModelAPI):
    """POST `base_url`/chat/completions. `aclose` belongs into the loop that used it."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        **extra: Any,
    ) -> None:
        """extra: further keys of the request's body."""
        super().__init__(model_name, base_url, api_key, [], config or GenerateConfig())
        if base_url is None:
            raise ValueError("a served judge needs the address of its server")
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._extra = extra
        self._client: aiohttp.ClientSession | None = None

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """The reply to a conversation. Raises Refusal, BadReply, and aiohttp's errors of connections."""
        if self._client is None:
            connector = aiohttp.TCPConnector(limit=0)  # inspect-ai limits connections
            self._client = aiohttp.ClientSession(
                connector=connector, timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False
            )
        pictures: dict[str, str] = {}
        body = {
            "model": self.model_name,
            "messages": [_message(one, pictures) for one in input],
            **_settings(config),
            **self._extra,
        }
        headers = {
            "Authorization": f"Bearer {self.api_key}",
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
        }
        data = _encoded(body, pictures)
        async with self._client.post(self._url, data=data, headers=headers, allow_redirects=False) as response:
            if response.status in REDIRECTS:
                raise Refusal(response.status, redirected(self._url, response.headers.get("Location")))
            found = Body(self._url)
            async for part in response.content.iter_any():
                found.add(part)
            data = found.decoded(response.headers.get("Content-Encoding"))
            if response.status != 200:
                wait = asked_wait(response.headers.get("Retry-After"))
                why = f" ({too_long(wait)})" if wait is not None and wait > LONGEST_WAIT else ""
                raise Refusal(response.status, self._without_key(reason(data)) + why, wait)
        try:
            return self._output(parsed(data))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            said = self._without_key(data[:200].decode("utf-8", errors="replace"))
            raise Refusal(502, f"no chat completion from {self._url} but {said!r}") from error

    def _output(self, answer: dict[str, Any]) -> ModelOutput:
        choice, usage = answer["choices"][0], answer.get("usage") or {}
        message = choice["message"]
        refusal = message.get("refusal")
        stop = "content_filter" if refusal else _STOPS.get(choice.get("finish_reason") or "", "stop")
        said = ChatMessageAssistant(content=refusal or message.get("content") or "", source="generate")
        read, written = _tokens(usage, "prompt_tokens"), _tokens(usage, "completion_tokens")
        return ModelOutput(
            model=self.model_name,
            choices=[ChatCompletionChoice(message=said, stop_reason=stop)],
            usage=ModelUsage(input_tokens=read, output_tokens=written, total_tokens=read + written),
        )

    def should_retry(self, ex: BaseException) -> bool:
        """Whether the reason may pass: no connection, too many requests, an error of the server's own."""
        if isinstance(ex, Refusal):
            waits = ex.retry_after is None or ex.retry_after <= LONGEST_WAIT
            return waits and (ex.status_code in PASSING or ex.status_code >= 500)
        return isinstance(ex, aiohttp.ClientConnectionError | aiohttp.ClientPayloadError | TimeoutError)

    def retry_wait(self) -> Any:
        """As long as the server asks; without a wish, 0.5 s and twice as long each time, at random up to half more."""

        def wait(state: Any) -> float:
            error = state.outcome.exception() if state.outcome is not None else None
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (state.attempt_number - 1)) * random.uniform(1.0, 1.5)
            return max(pause, getattr(error, "retry_after", None) or 0.0)

        return wait

    def max_tokens(self) -> int | None:
        return None

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    def _without_key(self, text: str) -> str:
        return text.replace(self.api_key, "[key]") if self.api_key else text


def _tokens(usage: dict[str, Any], name: str) -> int:
    """As the server counts them, where that can be."""
    found = usage.get(name)
    return int(found) if isinstance(found, int | float) and 0 <= found <= _MOST_TOKENS else 0


def _message(message: ChatMessage, pictures: dict[str, str]) -> dict[str, Any]:
    """As the protocol has it, with a mark in the place of each image; `pictures` is given what it stands for."""
    if isinstance(message.content, str):
        return {"role": message.role, "content": message.content}
    parts: list[dict[str, Any]] = []
    for part in message.content:
        if part.type == "image":
            mark = f"<image {len(pictures)} {secrets.token_hex(8)}>"
            pictures[mark] = part.image
            parts.append({"type": "image_url", "image_url": {"url": mark}})
        elif part.type == "text":
            parts.append({"type": "text", "text": part.text})
    return {"role": message.role, "content": parts}


def _encoded(body: dict[str, Any], pictures: dict[str, str]) -> bytes:
    """The body as JSON. Looking through a megabyte of base64 for what to escape takes longer than making it: there is
    nothing, so it is put in afterwards."""
    data = json.dumps(body).encode()
    for mark, url in pictures.items():
        data = data.replace(mark.encode(), url.encode() if url.startswith("data:") else json.dumps(url)[1:-1].encode())
    return data


def _settings(config: GenerateConfig) -> dict[str, Any]:
    said = {"max_tokens": config.max_tokens, "temperature": config.temperature, "seed": config.seed}
    settings: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    if config.response_schema is not None:
        schema = config.response_schema.json_schema.model_dump(exclude_none=True)
        wanted = {"name": config.response_schema.name, "schema": schema}
        settings["response_format"] = {"type": "json_schema", "json_schema": wanted}
    return settings
