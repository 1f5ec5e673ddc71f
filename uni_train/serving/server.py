"""The server: LitServe's processes and queues, with OpenAI's paths and a loop that batches whatever has queued up.

One process answers HTTP and decodes images, one holds the model. The batch is what has arrived while the model was
busy, so that it grows with the load by itself; no more is sent to the model than makes a batch. Children end when their
parent does.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty
from typing import Any

import litserve
from fastapi import HTTPException
from fastapi.responses import JSONResponse, Response, StreamingResponse
from litserve.loops.base import LitLoop
from litserve.specs.base import LitSpec
from litserve.utils import LitAPIStatus, LoopResponseType, ResponseBufferItem
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from uni_train.config.schema import ModelConfig
from uni_train.core.addresses import HEADERS, foreign
from uni_train.core.errors import UserError
from uni_train.core.http_client import parsed
from uni_train.distributed.watchdog import end_with_parent
from uni_train.models.family import family_of
from uni_train.models.identity import ModelIdentity, identify
from uni_train.serving.protocol import (
    BadRequest,
    Limits,
    ParsedRequest,
    Refusal,
    Reply,
    Task,
    chat_chunks,
    chat_reply,
    drawing_reply,
    error_body,
    parse_chat,
    parse_drawing,
    refusal_of,
)

logger = logging.getLogger(__name__)
Parse = Callable[[Any, Limits], ParsedRequest]
_IDLE = 1.0  # seconds between two checks whether the server is to stop
_GATHER = 0.005  # seconds that a batch waits for requests that were sent at the same time
_RETRY_AFTER = 2  # seconds that a client is told to wait for a place
_WATCH = 0.2  # seconds between two looks at the process that holds the model
_GONE = 499  # nginx's status for a client that did not wait; nobody reads it


@dataclass(frozen=True, slots=True)
class Served:
    """What is offered. key: what clients must show as a bearer token; None: nothing."""

    config: ModelConfig
    identity: ModelIdentity
    bfloat16: bool
    key: str | None = field(default=None, repr=False)
    limits: Limits = field(default_factory=Limits)

    @classmethod
    def from_config(cls, config: ModelConfig, key: str | None = None, limits: Limits | None = None) -> Served:
        """A configuration as this machine serves it: on a GPU in bfloat16, if its family says so. Raises UserError."""
        import torch

        bfloat16 = torch.cuda.is_available() and family_of(config.family).bfloat16
        return cls(config, identify(config, "bfloat16" if bfloat16 else "stored"), bfloat16, key, limits or Limits())

    @property
    def most(self) -> int:
        """Tasks that are done together."""
        return max(self.config.think_batch, self.config.draw_batch)


class ModelAPI(litserve.LitAPI):
    """The process that holds the model."""

    def __init__(self, served: Served) -> None:
        super().__init__(
            max_batch_size=served.most, loop=TaskLoop(served.most, served.limits.seconds), spec=OpenAIPaths(served)
        )
        self.served = served

    def setup(self, device: str) -> None:
        """Load the model onto `device` ("cpu", "cuda:0")."""
        import torch

        from uni_train.models.load import build_model
        from uni_train.stages.cpu import prepare_cpu

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
        end_with_parent()
        prepare_cpu(self.served.config.threads)
        dtype = torch.bfloat16 if self.served.bfloat16 else None
        self.model = build_model(self.served.config, dtype=dtype, device=device)

    def predict(self, x: Sequence[Task], **kwargs: Any) -> list[Reply | Refusal]:
        from uni_train.serving.perform import perform

        config = self.served.config
        return perform(self.model, x, config.think_batch, config.draw_batch)

    def authorize(self, request: HttpRequest) -> None:
        """Whether the client may ask: by "Authorization: Bearer KEY", without a key if no other site's page asks."""
        if self.served.key is None and (reason := foreign(request.headers.get("Host"), request.headers.get("Origin"))):
            raise HTTPException(403, reason)
        given = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        if self.served.key is not None and not hmac.compare_digest(given.encode(), self.served.key.encode()):
            raise HTTPException(401, "wrong or missing key")


class TaskLoop(LitLoop):
    """Waits for a message of tasks, takes all others that have queued up, and does them together.

    seconds: after which nobody waits for a message any more.
    """

    def __init__(self, most: int, seconds: float = float("inf")) -> None:
        super().__init__()
        self.most, self.seconds = most, seconds

    def run(
        self,
        lit_api: ModelAPI,
        device: str,
        worker_id: int,
        request_queue: Any,
        transport: Any,
        workers_setup_status: Any,
        callback_runner: Any,
    ) -> None:
        messages = list(self._messages(request_queue))
        if not messages:
            return
        tasks = [task for *_, requested in messages for task in requested]
        try:
            done: list[Reply | Refusal] = lit_api.predict(tasks)
        except Exception as error:
            # A defect of ours: the server lives on, whoever asked is told, and the log has the traceback.
            logger.exception("tasks failed")
            done = [Refusal(500, f"internal error ({type(error).__name__})")] * len(tasks)
        start = 0
        for consumer, uid, _, requested in messages:
            part = done[start : start + len(requested)]
            start += len(requested)
            self.put_response(transport, consumer, uid, part, LitAPIStatus.OK, LoopResponseType.REGULAR)

    def _messages(self, queue: Any) -> Iterator[tuple[int, str, float, list[Task]]]:
        count, wait = 0, _IDLE
        while count < self.most:
            try:
                message = queue.get(timeout=wait)
            except Empty:
                return
            except (EOFError, ConnectionError):  # the process with the queues has ended, and so has the server
                raise SystemExit(1) from None
            wait = _GATHER
            if time.monotonic() - message[2] <= self.seconds:
                count += len(message[3])
                yield message


class OpenAIPaths(LitSpec):
    """The paths that clients of OpenAI's protocol know."""

    def __init__(self, served: Served) -> None:
        super().__init__()
        self.served = served
        self._places = asyncio.Semaphore(served.limits.queue)  # of requests that wait or are answered
        self._turns = asyncio.Semaphore(served.most)
        self.api_path = "/predict"  # LitServe's name of the queue

    def pre_setup(self, lit_api: litserve.LitAPI) -> None:
        self.add_endpoint("/v1/models", self.models, ["GET"])
        self.add_endpoint("/v1/chat/completions", self.chat, ["POST"])
        self.add_endpoint("/v1/images/generations", self.draw, ["POST"])
        self.add_endpoint("/v1/images/edits", self.edit, ["POST"])

    def decode_request(self, request: Any, context_kwargs: Any) -> Any:
        return request

    def encode_response(self, output: Any, context_kwargs: Any) -> Any:
        return output

    async def models(self) -> Response:
        """What is served; `uni_train` says which checkpoint it is, by content."""
        identity = self.served.identity
        about = {"content": identity.content, "settings": dict(identity.settings)}
        entry = {"id": identity.name, "object": "model", "created": 0, "owned_by": "uni_train", "uni_train": about}
        return JSONResponse({"object": "list", "data": [entry]})

    async def chat(self, request: HttpRequest) -> Response:
        return await self._answer(request, _json_body, parse_chat, self._chat_response)

    async def draw(self, request: HttpRequest) -> Response:
        parse: Parse = lambda body, limits: parse_drawing(body, limits=limits)  # noqa: E731
        return await self._answer(request, _json_body, parse, self._drawing_response)

    async def edit(self, request: HttpRequest) -> Response:
        parse: Parse = lambda form, limits: parse_drawing(form[0], form[1], limits)  # noqa: E731
        return await self._answer(request, _form_body, parse, self._drawing_response)

    async def _answer(
        self,
        request: HttpRequest,
        read: Callable[[HttpRequest], Awaitable[Any]],
        parse: Parse,
        respond: Callable[[Any, Sequence[Reply]], Response],
    ) -> Response:
        """Read, wait for a turn, ask the model, and answer; what the client can put right is a 4xx with a sentence."""
        limits = self.served.limits
        try:
            body = await self._received(request, read)
            if self._places.locked():
                raise HTTPException(429, f"{limits.queue} requests are waiting: try again later")
            async with self._places, asyncio.timeout(limits.seconds):
                fields = body[0] if isinstance(body, tuple) else body
                wanted, name = fields.get("model") if isinstance(fields, Mapping) else None, self.served.identity.name
                if wanted not in (None, name):
                    raise BadRequest(f"there is no model {wanted!r} here, but {name}")
                requested = await asyncio.to_thread(parse, body, limits)
                async with self._turns:
                    if await request.is_disconnected():
                        raise ClientDisconnect
                    done = await self._do(await asyncio.to_thread(requested.tasks))
        except HTTPException as error:
            # 413 is of litserve, which counts the body's bytes.
            more = f"; this server takes {limits.body:g} MiB" if error.status_code == 413 else ""
            return _refuse(Refusal(error.status_code, error.detail + more))
        except UserError as error:
            return _refuse(refusal_of(error))
        except ClientDisconnect:
            return Response(status_code=_GONE)
        except TimeoutError:
            return _refuse(Refusal(504, f"not answered within {limits.seconds:g} s, which is this server's limit"))
        refused = next((reply for reply in done if isinstance(reply, Refusal)), None)
        if refused is not None:
            return _refuse(refused)
        return respond(body, [reply for reply in done if isinstance(reply, Reply)])

    async def _received(self, request: HttpRequest, read: Callable[[HttpRequest], Awaitable[Any]]) -> Any:
        """The body. While it comes, the request has no place among those that wait."""
        kind = "application/json" if read is _json_body else "multipart/form-data"
        if request.headers.get("Content-Type", "").partition(";")[0].strip().lower() != kind:
            raise HTTPException(415, f"the body must be {kind}, and its Content-Type say so")
        patience = 10 + self.served.limits.body
        try:
            async with asyncio.timeout(patience):
                await request.body()
        except TimeoutError:
            raise HTTPException(408, f"the body did not come within {patience:g} s") from None
        return await read(request)

    async def _do(self, tasks: list[Task]) -> list[Reply | Refusal]:
        uid, arrived = str(uuid.uuid4()), asyncio.Event()
        self.response_buffer[uid] = item = ResponseBufferItem(event=arrived)
        try:
            self.request_queue.put((self.response_queue_id, uid, time.monotonic(), tasks))
            await arrived.wait()
        finally:
            self.response_buffer.pop(uid, None)
        replies, _status = item.response
        return list(replies)

    def _chat_response(self, body: Mapping[str, Any], replies: Sequence[Reply]) -> Response:
        name = self.served.identity.name
        if not body.get("stream"):
            return JSONResponse(chat_reply(name, replies))
        lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chat_chunks(name, replies)]
        return StreamingResponse(iter([*lines, "data: [DONE]\n\n"]), media_type="text/event-stream")

    def _drawing_response(self, body: Any, replies: Sequence[Reply]) -> Response:
        return JSONResponse(drawing_reply(replies))


async def _json_body(request: HttpRequest) -> Any:
    try:
        return await asyncio.to_thread(parsed, await request.body())
    except ValueError:
        raise BadRequest("the body is no JSON") from None


async def _form_body(request: HttpRequest) -> tuple[dict[str, Any], list[bytes]]:
    """A form's fields, and its files `image` or `image[]`."""
    try:
        async with request.form() as form:
            fields = {name: value for name, value in form.items() if isinstance(value, str)}
            files = [*form.getlist("image"), *form.getlist("image[]")]
            images = [await file.read() for file in files if not isinstance(file, str)]
            if form.get("mask") is not None:
                fields["mask"] = "given"
    except HTTPException as error:
        if error.status_code != 400:
            raise
        raise BadRequest(f"the body is no form ({error.detail})") from None
    if not images:
        raise BadRequest("give at least one file as image")
    return fields, images


def _refuse(refusal: Refusal) -> Response:
    headers = {"Retry-After": str(_RETRY_AFTER)} if refusal.status == 429 else None
    return JSONResponse(error_body(refusal), status_code=refusal.status, headers=headers)


class HttpProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # whichever uvicorn has chosen
    """uvicorn's, which closes a connection whose headers do not come."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(HEADERS, self._look, None)

    def _look(self, before: object) -> None:
        """before: what has been answered last at the last look; itself while there was something to answer."""
        now = self.cycle if self.cycle is None or self.cycle.response_complete else self
        if now is before is not self:
            self.transport.close()
        elif not self.transport.is_closing():
            self.loop.call_later(HEADERS, self._look, now)


def serve_forever(served: Served, host: str, port: int, when_ready: Callable[[], None]) -> None:
    """Serve until interrupted (Ctrl-C, SIGTERM), or until the model's process has ended, which ends this one.

    when_ready: called as soon as requests are answered. Raises UserError: the model did not load (the log says why).
    """
    parent, stopping = os.getpid(), threading.Event()

    def stop(*_: object) -> None:
        if os.getpid() != parent:  # the HTTP process: uvicorn has shut down and hands on the signal
            os._exit(0)
        stopping.set()
        raise KeyboardInterrupt

    os.register_at_fork(after_in_child=end_with_parent)  # the HTTP process, and the one that holds queues
    server = litserve.LitServer(
        ModelAPI(served),
        accelerator="auto",
        devices=1,
        timeout=False,
        disable_openapi_url=True,
        max_payload_size=served.limits.body_bytes,
    )
    server._monitor_workers = False  # `_attend` does
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    name = served.identity.name
    threading.Thread(target=_attend, args=(server, name, host, port, when_ready, stopping), daemon=True).start()
    try:
        server.run(
            host=host, port=port, num_api_servers=1, log_level="warning", generate_client_file=False, http=HttpProtocol
        )
    except RuntimeError as error:
        raise UserError(f"{name} could not be loaded", "The lines above say why.") from error


def _attend(
    server: Any, name: str, host: str, port: int, when_ready: Callable[[], None], stopping: threading.Event
) -> None:
    """Call `when_ready` as soon as HTTP is answered, which is when the model is loaded. When the process that holds it
    has ended, end this one, and with it the others."""
    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    ready = False
    while not stopping.wait(_WATCH):
        code = next((worker.exitcode for worker in getattr(server, "inference_workers", ())), None)
        if code is not None and (ready or code < 0) and not stopping.wait(_WATCH):
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            hint = "Did memory run out? --weights nf4 needs less, lower --max-words and --max-megapixels too."
            print(f"error: the process that holds {name} {how}\n  {hint}", file=sys.stderr, flush=True)
            os._exit(1)
        with suppress(OSError):
            if not ready:
                socket.create_connection((local, port), 5).close()
                ready = True
                when_ready()
