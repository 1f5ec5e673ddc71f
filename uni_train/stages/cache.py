"""Answers of dry runs and plans, kept on this machine: the next one needs no torch, and traces no update.

An answer counts while nothing that it depends on has changed:

- the composed configuration, and what else was asked;
- files: of this package, of plug-ins, beside or below every path that the configuration names, by size and time;
- the libraries beside torch, this machine's memory and its GPUs.

The newest answers are in plans.json of the folder `UNI_TRAIN_CACHE`, by default ~/.cache/uni_train or that below
XDG_CACHE_HOME; an empty `UNI_TRAIN_CACHE` keeps none.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from uni_train.config.build import to_plain
from uni_train.config.paths import named_paths
from uni_train.config.schema import RunConfig
from uni_train.core.cache import cache_folder
from uni_train.core.errors import PLUGINS
from uni_train.core.files import atomic_write_json
from uni_train.core.folders import walk
from uni_train.core.hub import split_adapters
from uni_train.core.reading_limits import read_json
from uni_train.run_folder import stage_key
from uni_train.stages.cpu import memory

T = TypeVar("T")
ANSWERS = 64  # that are kept
FILES = 10_000  # that an answer may depend on; beyond them looking takes long, and none is kept
_PACKAGE = Path(__file__).parents[1]


def cached(kind: type[T], config: RunConfig, asked: Sequence[object], make: Callable[[], T]) -> T:
    """What `make` returned when nothing was different, else what it returns now. Its errors are never kept.

    Args:
        kind: of the answer, a type that pydantic takes to JSON and back.
        asked: JSON values beside the configuration that the answer depends on.
    """
    folder = cache_folder()
    key = _key(config, asked) if folder is not None else None
    if folder is None or key is None:
        return make()
    from pydantic import TypeAdapter

    file, form = folder / "plans.json", TypeAdapter(kind)
    answers = _answers(file)
    with contextlib.suppress(ValueError, KeyError):
        return form.validate_python(answers[key])
    answer = make()
    answers = dict([*_answers(file).items()][1 - ANSWERS :]) | {key: form.dump_python(answer, mode="json")}
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write_json(file, answers)
    return answer


def _answers(file: Path) -> dict[str, Any]:
    """Key -> answer, the oldest first; none of a damaged file."""
    with contextlib.suppress(OSError, ValueError):
        answers = read_json(file)
        if isinstance(answers, dict):
            return answers
    return {}


def _key(config: RunConfig, asked: Sequence[object]) -> str | None:
    """None: too many files."""
    torch = find_spec("torch")
    assert torch is not None and torch.origin is not None
    plain = to_plain(config)
    files = [*islice(_files(_places(plain)), FILES + 1)]
    if len(files) > FILES:
        return None
    return stage_key(
        config=plain,
        asked=asked,
        files=files,
        libraries=[sys.version, Path(torch.origin).parents[1].stat().st_mtime_ns],
        machine=[
            memory(),
            os.environ.get("CUDA_VISIBLE_DEVICES"),
            *sorted(map(str, Path("/dev").glob("nvidia[0-9]*"))),
        ],
    )


def _places(plain: dict[str, Any]) -> Iterator[Path]:
    yield _PACKAGE
    plugins = [module for name, module in sys.modules.items() if name.partition(".")[0] in PLUGINS]
    yield from sorted(
        {Path(file).parent for plugin in plugins if (file := getattr(plugin, "__file__", None)) is not None}
    )
    for key, value, path in named_paths(plain):
        if key.endswith("function") and path.suffix != ".py":
            continue
        base, adapters = split_adapters(value) if key.endswith("checkpoint") else (path, [])
        yield from map(Path, [base, *adapters])


def _files(places: Iterable[Path]) -> Iterator[tuple[str, int, int]]:
    """Folders; name, bytes and time of all files below them, and of those beside files."""
    for place in places:
        for folder, _, names in walk(place.parent if place.is_file() else place, without=("__pycache__",)):
            yield str(folder), 0, 0
            for name in names:
                with contextlib.suppress(OSError):
                    stat = os.stat(folder / name)
                    yield str(folder / name), stat.st_size, stat.st_mtime_ns
