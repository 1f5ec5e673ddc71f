"""Runs one reward function in an interpreter of its own: `PYTHON worker.py FUNCTION DESCRIPTOR`.

That interpreter needs Python 3.8 and numpy, and nothing of ours: this file is started by its path. The descriptor is
the socket of a `multiprocessing.Pipe`, whose messages are bytes behind their length. A request is JSON, and the pixels
of its images, which are {IMAGE: [first byte, shape]} in the JSON. A reply is JSON. What the function prints is no part.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import json
import os
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

IMAGE = "\0image"


def _find(name: str) -> Any:
    place, _, attribute = name.rpartition(":")
    if place.endswith(".py"):
        sys.path.insert(0, os.path.dirname(os.path.abspath(place)))
        spec: Any = importlib.util.spec_from_file_location(os.path.basename(place)[:-3], place)
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(place)
    function = getattr(module, attribute, None)
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"{place} has no function {attribute} (a class cannot be run by another interpreter)")
    return function


def _rewards(function: Any, text: bytes, pixels: bytearray) -> list[float | str | None]:
    """Numbers, None, or the words of what is no number."""
    import numpy

    def image(found: dict[str, Any]) -> Any:
        if IMAGE not in found:
            return found
        start, shape = found[IMAGE]
        return numpy.frombuffer(pixels, "uint8", int(numpy.prod(shape)), start).reshape(shape)

    content = json.loads(text, object_hook=image)
    values = function(prompts=content["prompts"], completions=content["images"], **content["columns"])
    if inspect.iscoroutine(values):
        values = asyncio.run(values)
    if isinstance(values, (str, bytes, dict)):
        raise TypeError(f"it returned {type(values).__name__}, not a list")
    return [
        value if value is None else repr(value) if isinstance(value, (str, bytes)) else float(value) for value in values
    ]


def _described(error: BaseException) -> dict[str, Any]:
    """Type, text and place of an error, all of which is printed."""
    traceback.print_exc()
    frames = [one for one in traceback.extract_tb(error.__traceback__) if one.line and one.filename != __file__]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno}: {frames[-1].line})" if frames else ""
    return {"error": f"{type(error).__name__}: {error!s:.500}{place}"}


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def main(name: str, descriptor: int) -> None:
    """Answer requests until nobody is there to ask."""
    os.set_inheritable(descriptor, False)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    here, pipe = os.path.dirname(os.path.abspath(__file__)), Connection(descriptor)
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != here]  # its modules have common names
    try:
        importlib.import_module("numpy")
        function = _find(name)
        reply = {}
    except BaseException as error:
        reply = _described(error)
    while True:
        pipe.send_bytes(json.dumps(reply).encode())
        try:
            text, pixels = pipe.recv_bytes(), bytearray(pipe.recv_bytes())
        except EOFError:
            return
        try:
            reply = {"rewards": _rewards(function, text, pixels)}
        except (Exception, SystemExit) as error:
            reply = _described(error)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
