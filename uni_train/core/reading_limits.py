"""Reads untrusted files and replies within limits on size, depth and encoding.

Whatever comes from outside (files that people edit, checkpoints, data, replies of servers) is read through here:

- ordinary files only: no folders, FIFOs or devices, which never end;
- at most so many bytes, before anything is parsed;
- UTF-8, with or without its mark; no NUL, no half surrogate pairs, which cannot be written again;
- JSON as the standard has it: no NaN, no infinity, no number that becomes one; at most 200 levels;
- YAML of plain values: keys once, no cycle, and no alias that stands for more than `YAML_VALUES` values;
- Parquet of row groups, and of rows written out, that take at most `PARQUET_BYTES`.

Limits of time are for servers: `uni_train.core.http_client` for those that are asked, `uni_train.serving.protocol` for
those who ask. An error is `Unreadable`: it names the file and, where it is known, the line.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import stat
import struct
import warnings
import zlib
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from uni_train.core.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import yaml
    from PIL import Image
    from pyarrow.parquet import FileMetaData

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")  # suffixes of files that can run any code, and are never read
MIB = 1 << 20
JSON_BYTES = 256 * MIB
"""Of a JSON file: manifests, summaries, indexes of weights, tokenizers."""
YAML_BYTES = MIB
"""Of a recipe or a run's config.yaml; the largest of ours has 4 KB."""
TEXT_BYTES = 1024 * MIB
"""Of a text that is read as a whole, such as a log of metrics."""
LINE_BYTES = 16 * MIB
"""Of a line of JSON lines; files of lines are read line by line and may have any length."""
IMAGE_BYTES = 256 * MIB
"""Of an encoded image."""
PIXELS = 1 << 26
"""Of an image: 8192 x 8192. A model takes far fewer."""
PARQUET_BYTES = 2048 * MIB
"""Of a row group of Parquet in memory, and of rows that are written out together; eight times the file, if it is larger
than that."""
DEPTH = 100
"""Levels of lists and sections within each other in YAML; of JSON the parser takes 200."""
YAML_VALUES = 100_000
"""Values of a YAML file, each counted wherever an alias repeats it."""

VIDEOS = (".mp4", ".mov", ".avi", ".webm", ".mkv")  # suffixes; a GIF is a video if it has several frames

_HUGE = re.compile(r"\d{300}|[eE]\+?\d{3}")  # perhaps a number that becomes an infinity


class Unreadable(DataError):
    """What was read is not what it should be. `where`: the file, address or place; `reason`: what is wrong there."""

    def __init__(self, where: object, reason: str) -> None:
        super().__init__(f"{where}{'' if reason.startswith(', line') else ': '}{reason}")
        self.where, self.reason = str(where), reason.removeprefix(", ")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.where, self.reason)


def reason(error: BaseException) -> str:
    """What is wrong, for a message that names the file itself."""
    if isinstance(error, Unreadable):
        return error.reason
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


# --- bytes and texts -------------------------------------------------------------------------------------------------


def open_file(path: Path | str) -> IO[bytes]:
    """An ordinary file, to be read. OSError as `open` raises it, Unreadable for a FIFO, a device, a socket."""
    if "\0" in str(path):
        raise Unreadable(repr(str(path)), "a name with a NUL character, which no file has")
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # of a folder, `open` says so
        raise Unreadable(path, "no ordinary file (a pipe or a device), which may never end")
    return open(path, "rb")


def read_bytes(path: Path | str, most: int = TEXT_BYTES) -> bytes:
    """The content of an ordinary file of at most `most` bytes. OSError as `open` raises it; Unreadable."""
    with open_file(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise Unreadable(path, _too_large(most))
        return file.read()


def read_unpacked(path: Path, most: int = TEXT_BYTES) -> bytes:
    """The content of an ordinary file, of one that ends in .gz unpacked: at most `most` bytes. OSError; Unreadable."""
    if path.suffix.lower() != ".gz":
        return read_bytes(path, most)
    with open_file(path) as file, gzip.open(file) as unpacked:
        try:
            data = unpacked.read(most + 1)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise Unreadable(path, f"it cannot be unpacked ({error})") from None
    if len(data) > most:
        raise Unreadable(path, f"unpacked it has {_too_large(most)}")
    return data


def read_text(path: Path | str, most: int = TEXT_BYTES) -> str:
    """A text in UTF-8. OSError as `open` raises it; Unreadable."""
    return decoded(read_bytes(path, most), path)


def decoded(data: bytes, where: object, first_line: int = 1) -> str:
    """Bytes as a text, without a byte order mark. Unreadable for what is no UTF-8 or holds NUL; names the line."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        raise Unreadable(where, f", line {line}: not UTF-8 text; save it as UTF-8") from None
    if "\0" in text:
        line = first_line + text.count("\n", 0, text.index("\0"))
        raise Unreadable(where, f", line {line}: it holds a NUL character: not text, or not in UTF-8")
    return text


def read_lines(path: Path | str) -> Iterator[tuple[int, str]]:
    """(number, line) of every line that is not blank; a file of any length. OSError; Unreadable, naming the line."""
    with open_file(path) as file:
        number = 0
        while line := file.readline(LINE_BYTES + 1):
            number += 1
            if len(line) > LINE_BYTES:
                raise Unreadable(path, f", line {number}: more than {LINE_BYTES // MIB} MiB")
            if number > 1 and line.startswith(b"\xef\xbb\xbf"):
                raise Unreadable(path, f", line {number}: a byte order mark within the text")
            text = decoded(line, path, number)
            if text.strip():
                yield number, text


def _too_large(most: int) -> str:
    return f"more than {most / MIB:g} MiB, which is too large for what it should be"


# --- JSON ------------------------------------------------------------------------------------------------------------


def read_json(path: Path | str) -> Any:
    """The value in a JSON file. OSError as `open` raises it; Unreadable."""
    return parse_json(read_text(path, JSON_BYTES), path)


def parse_json(text: str | bytes, where: object, line: int | None = None, *, nan: bool = False) -> Any:
    """The value of a JSON text. Unreadable, naming `where` and the line (`line`: of a text of one line).

    nan: NaN and infinities are taken, which Python writes where a loss is none.
    """
    from pydantic_core import from_json  # refuses what json takes: half surrogate pairs, endless digits, 200 levels

    text = decoded(text, where, line or 1) if isinstance(text, bytes) else text
    try:
        value = from_json(text, allow_inf_nan=nan)
        if not nan and _HUGE.search(text):
            json.dumps(value, allow_nan=False)
    except ValueError as error:
        problem, _, at = str(error).partition(" at line ")
        number, _, column = at.partition(" column ")
        column = f", column {column}" if column else ""
        raise Unreadable(where, f", line {line or number or 1}: not JSON ({problem}{column})") from None
    return value


# --- YAML ------------------------------------------------------------------------------------------------------------


def read_yaml(path: Path | str) -> Any:
    """The value in a YAML file. OSError as `open` raises it; Unreadable."""
    return parse_yaml(read_text(path, YAML_BYTES), path)


def parse_yaml(text: str, where: object) -> Any:
    """The value of a YAML text: lists, sections, texts, numbers, dates. Unreadable, naming the line."""
    import yaml

    try:
        value = yaml.load(text, Loader=_loader())
        _expect_plain(value)
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:  # of dates, too
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}: " if mark else ""
        problem = " ".join(str(getattr(error, "problem", None) or error).split())[:200]
        raise Unreadable(where, f"{line}not valid YAML: {problem}") from None
    return value


@cache
def _loader() -> type[yaml.SafeLoader]:
    import yaml

    class Once(yaml.SafeLoader):
        """A safe loader that refuses a key that is there twice."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
            keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and not key.tag.endswith(":merge")]
            times = Counter((key.tag, key.value) for key in keys)
            for key in keys:
                if times[key.tag, key.value] > 1:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {key.value[:60]} is there twice", problem_mark=key.start_mark
                    )
            return super().construct_mapping(node, deep)

    return Once


def _expect_plain(value: Any) -> None:
    """Raises ValueError for what holds itself, is too deep, is too large with its aliases, or cannot be written."""
    sizes: dict[int, int] = {}

    def size(part: Any, depth: int) -> int:
        if not isinstance(part, dict | list):
            str(part).encode()
            return 1
        if depth > DEPTH:  # or without end
            raise ValueError(f"nested more than {DEPTH} levels deep, or within itself")
        if id(part) not in sizes:
            below = [*part.keys(), *part.values()] if isinstance(part, dict) else part
            sizes[id(part)] = 1 + sum(size(each, depth + 1) for each in below)
        if sizes[id(part)] > YAML_VALUES:
            raise ValueError(f"more than {YAML_VALUES:,} values, with its aliases written out")
        return sizes[id(part)]

    size(value, 0)


# --- images ----------------------------------------------------------------------------------------------------------

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "AVIF", "HEIF")
"""Of images that are decoded where Pillow can; some of its others start programs."""


@cache
def image_formats() -> tuple[str, ...]:
    """Those of FORMATS that this machine decodes: AVIF where Pillow is built with it, HEIF with pillow-heif."""
    from PIL import Image

    with suppress(ImportError):
        from pillow_heif import register_heif_opener

        register_heif_opener()
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


@cache
def image_suffixes() -> frozenset[str]:
    """Of files that are images here, in lower case: ".png", ".jfif", ".heic" where it is decoded."""
    from PIL import Image

    formats = image_formats()
    return frozenset(suffix for suffix, name in Image.registered_extensions().items() if name in formats)


_TURNS: dict[Any, int] = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}  # EXIF's orientation to Image.Transpose


@contextmanager
def open_image(source: Path | bytes, where: object) -> Iterator[Image.Image]:
    """An image that can be decoded within the `with`. OSError as `open` raises it; Unreadable, naming `where`."""
    from PIL import Image, UnidentifiedImageError

    data = source if isinstance(source, bytes) else read_bytes(source, IMAGE_BYTES)
    if len(data) > IMAGE_BYTES:
        raise Unreadable(where, _too_large(IMAGE_BYTES))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Pillow, about what is checked here
            with Image.open(io.BytesIO(data), formats=image_formats()) as image:
                if image.width * image.height > PIXELS:
                    raise Unreadable(where, f"too large ({image.width} x {image.height}; {PIXELS:,} pixels at most)")
                yield image
    except Image.DecompressionBombError:
        raise Unreadable(where, f"too large ({PIXELS:,} pixels at most)") from None
    except UnidentifiedImageError:
        raise Unreadable(where, "no image that can be read; PNG, JPEG and WebP can") from None
    except Unreadable:
        raise
    except (OSError, ValueError, SyntaxError, EOFError, IndexError, struct.error, zlib.error) as error:
        raise Unreadable(where, f"it cannot be read as an image ({error})") from None


def rgb(image: Image.Image) -> np.ndarray:
    """uint8 [H, W, 3] as a viewer shows it: turned as its EXIF says, 16 bits scaled to 8, transparent parts on white.

    Raises:
        ValueError: 32 bits or floats, which say nothing of what is white.
    """
    import numpy as np
    from PIL import Image

    image.load()  # of TIFF, Pillow turns it here
    if image.mode == "F" or (image.mode == "I" and image.format not in ("PNG", "PPM")):
        raise ValueError(f"32 bits a channel, mode {image.mode}: what is white is unknown; save it with 8 or 16 bits")
    turn = None
    with suppress(SyntaxError, ValueError, LookupError, OSError, struct.error):  # broken EXIF says nothing
        turn = _TURNS.get(image.getexif().get(0x0112))
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        seen = image.convert("RGBA")
        image = Image.new("RGB", seen.size, (255, 255, 255))
        image.paste(seen, mask=seen.getchannel("A"))
    image = image.convert("RGB")
    return np.asarray(image if turn is None else image.transpose(Image.Transpose(turn)))


# --- Parquet ---------------------------------------------------------------------------------------------------------


def parquet_footer(path: Path | str) -> FileMetaData:
    """What a Parquet file says of itself. OSError, ArrowException: no such file, or none of Parquet."""
    from pyarrow import parquet

    return parquet.read_metadata(path)


def read_group(path: Path, group: int, columns: list[str] | None = None, footer: Any = None) -> pa.Table:
    """A row group, in which equal texts and bytes are in memory once, as in the file: `rows_of` writes them out.

    Raises:
        OSError, ArrowException: it is damaged. Unreadable: it is too large, by what it declares or by what it holds.
    """
    import pyarrow as pa
    from pyarrow import parquet

    footer = footer or parquet_footer(path)
    leaves = [footer.schema.column(number) for number in range(footer.num_columns)]
    stored = footer.row_group(group)  # not of its columns: pyarrow aborts where a damaged footer lacks one
    declared = max(stored.total_byte_size, 8 * stored.num_rows * len(leaves))
    _expect_size(path, declared)
    if declared < 1 << 31 and not any(leaf.logical_type.type == "JSON" for leaf in leaves):  # no longer dictionary
        once = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
        with (
            suppress(OSError, pa.ArrowNotImplementedError),  # of some encodings Arrow makes none
            parquet.ParquetFile(path, metadata=footer, read_dictionary=once) as file,
        ):
            return file.read_row_group(group, columns)
    batches, size = [], 0  # which Arrow writes out: a value may repeat all that is stored
    with parquet.ParquetFile(path, metadata=footer) as file:
        for batch in file.iter_batches(max(1, min(1024, PARQUET_BYTES // max(declared, 1))), [group], columns):
            size += batch.nbytes
            _expect_size(path, size)
            batches.append(batch)
        return pa.Table.from_batches(batches) if batches else file.read_row_group(group, columns)


def read_batches(path: Path, rows: int) -> Iterator[pa.RecordBatch]:
    """All rows of a Parquet file in order, at most `rows` at once, in little memory. Raises as `read_group`."""
    from pyarrow import parquet

    with parquet.ParquetFile(path, pre_buffer=False, buffer_size=MIB) as file:
        for batch in file.iter_batches(rows, use_threads=False):
            _expect_size(path, batch.nbytes)
            yield batch


def rows_of(path: Path, tables: Iterable[pa.Table]) -> list[dict[str, Any]]:
    """Rows of `read_group`, key -> value. Unreadable: all of them together are too large."""
    rows, size = [], 0
    for table in tables:
        size += written_out(table)
        _expect_size(path, size)
        rows += table.to_pylist()
    return rows


def written_out(values: pa.Table | pa.Array) -> int:
    """Bytes of values as objects of Python, each as often as it stands there; ten times as slow as reading a row."""
    import pyarrow as pa
    from pyarrow import compute

    if isinstance(values, pa.Table):
        return sum(written_out(part) for column in values.columns for part in column.chunks)
    kind, size = values.type, 64 * len(values)
    if pa.types.is_dictionary(kind):
        times = values.indices.value_counts()
        lengths = compute.binary_length(values.dictionary).take(times.field("values"))
        return size + (compute.sum(compute.multiply(lengths, times.field("counts"))).as_py() or 0)
    if pa.types.is_map(kind):
        return size + written_out(values.keys) + written_out(values.items)
    if pa.types.is_nested(kind):
        parts = values.flatten()
        return size + (sum(map(written_out, parts)) if isinstance(parts, list) else written_out(parts))
    return size + int(values.nbytes)


def _expect_size(path: Path, size: int) -> None:
    if size > max(PARQUET_BYTES, 8 * os.stat(path).st_size):
        raise Unreadable(path, f"it unpacks to {size / MIB:,.0f} MiB at once, which is too large for what it should be")
