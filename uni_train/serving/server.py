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
import multiprocessing
import os
import signal
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
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

from uni_train.config.schema import ModelConfig
from uni_train.errors import UserError
from uni_train.http_client import parsed
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
_IDLE = 1.0  # seconds between two checks whether the server is to stop
_GATHER = 0.005  # seconds that a batch waits for requests that were sent at the same time
_RETRY_AFTER = 2  # seconds that a client is told to wait for a place
_WATCH = 0.5  # seconds between two checks whether the parent lives
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
        parent = multiprocessing.parent_process()
        if parent is not None and parent.pid is not None:
            _end_with(parent.pid)
        prepare_cpu(self.served.config.threads)
        dtype = torch.bfloat16 if self.served.bfloat16 else None
        self.model = build_model(self.served.config, dtype=dtype, device=device)

    def predict(self, x: Sequence[Task], **kwargs: Any) -> list[Reply | Refusal]:
        from uni_train.serving.perform import perform

        config = self.served.config
        return perform(self.model, x, config.think_batch, config.draw_batch)

    def authorize(self, request: HttpRequest) -> None:
        """Whether the client may ask, by "Authorization: Bearer KEY"."""
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
        self._open = 0  # requests that are read, wait, or are answered
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
        one = {"id": identity.name, "object": "model", "created": 0, "owned_by": "uni_train", "uni_train": about}
        return JSONResponse({"object": "list", "data": [one]})

    async def chat(self, request: HttpRequest) -> Response:
        return await self._answer(request, _json_body, parse_chat, self._chat_response)

    async def draw(self, request: HttpRequest) -> Response:
        return await self._answer(
            request, _json_body, lambda body, limits: parse_drawing(body, limits=limits), self._drawing_response
        )

    async def edit(self, request: HttpRequest) -> Response:
        parse: Callable[[Any, Limits], ParsedRequest] = lambda form, limits: parse_drawing(form[0], form[1], limits)  # noqa: E731
        return await self._answer(request, _form_body, parse, self._drawing_response)

    async def _answer(
        self,
        request: HttpRequest,
        read: Callable[[HttpRequest], Awaitable[Any]],
        parse: Callable[[Any, Limits], ParsedRequest],
        respond: Callable[[Any, Sequence[Reply]], Response],
    ) -> Response:
        """Read, wait for a turn, ask the model, and answer; what the client can put right is a 4xx with a sentence."""
        limits = self.served.limits
        if self._open >= limits.queue:
            return _refuse(Refusal(429, f"{limits.queue} requests are waiting: try again later"))
        self._open += 1
        try:
            async with asyncio.timeout(limits.seconds):
                body = await read(request)
                self._check_model(body[0] if isinstance(body, tuple) else body)
                requested = await asyncio.to_thread(parse, body, limits)
                async with self._turns:
                    if await request.is_disconnected():
                        raise ClientDisconnect
                    done = await self._do(await asyncio.to_thread(requested.tasks))
        except HTTPException as error:  # of litserve, which counts the body's bytes
            return _refuse(Refusal(error.status_code, f"{error.detail}; this server takes {limits.body:g} MiB"))
        except UserError as error:
            return _refuse(refusal_of(error))
        except ClientDisconnect:
            return Response(status_code=_GONE)
        except TimeoutError:
            return _refuse(Refusal(504, f"not answered within {limits.seconds:g} s, which is this server's limit"))
        finally:
            self._open -= 1
        refused = next((one for one in done if isinstance(one, Refusal)), None)
        if refused is not None:
            return _refuse(refused)
        return respond(body, [one for one in done if isinstance(one, Reply)])

    async def _do(self, tasks: list[Task]) -> list[Reply | Refusal]:
        uid, arrived = str(uuid.uuid4()), asyncio.Event()
        self.response_buffer[uid] = item = ResponseBufferItem(event=arrived)
        try:
            self.request_queue.put((self.response_queue_id, uid, time.monotonic(), tasks))
            await arrived.wait()
        finally:
            self.response_buffer.pop(uid, None)
        found, _status = item.response
        return list(found)

    def _check_model(self, body: Any) -> None:
        requested = body.get("model") if isinstance(body, Mapping) else None
        name = self.served.identity.name
        if requested not in (None, name):
            raise BadRequest(f"there is no model {requested!r} here, but {name}")

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


def _end_with(parent: int) -> None:
    """End this process when its parent, given by its number, has ended: nobody is left to hold the port."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def serve_forever(served: Served, host: str, port: int, when_ready: Callable[[], None]) -> None:
    """Serve until interrupted (Ctrl-C, SIGTERM). `when_ready` is called as soon as requests are answered.

    Raises:
        UserError: the model did not load (the log says why).
    """

    parent = os.getpid()

    def stop(*_: object) -> None:
        if (
            os.getpid() != parent
        ):  # the HTTP process, which inherits this: uvicorn has shut down and hands the signal on
            os._exit(0)
        raise KeyboardInterrupt

    os.register_at_fork(
        after_in_child=lambda: _end_with(os.getppid())
    )  # the HTTP process, and the one that holds queues
    server = litserve.LitServer(
        ModelAPI(served),
        accelerator="auto",
        devices=1,
        timeout=False,
        disable_openapi_url=True,
        max_payload_size=served.limits.body_bytes,
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    threading.Thread(target=_wait_until_ready, args=(host, port, when_ready), daemon=True).start()
    try:
        server.run(host=host, port=port, num_api_servers=1, log_level="warning", generate_client_file=False)
    except RuntimeError as error:
        raise UserError(f"{served.identity.name} could not be loaded", "The lines above say why.") from error


def _wait_until_ready(host: str, port: int, when_ready: Callable[[], None]) -> None:
    """HTTP is answered from the moment on when the model is loaded; a server with a key answers that one is needed."""
    local = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)
    while True:
        try:
            urllib.request.urlopen(f"http://{local}:{port}/health", timeout=5).close()
        except urllib.error.HTTPError:
            pass
        except OSError:
            time.sleep(0.1)
            continue
        when_ready()
        return
