"""Digests of data: which changes they see, within a bound of bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.training.data.test_forms import png
from tests.training.data.test_own_data import write
from uni_train.training.data import digest
from uni_train.training.data.rows import open_rows


def _swap(file: Path) -> None:
    first, second, *rest = file.read_text().splitlines()
    file.write_text("\n".join([second, first, *rest]))


def _listed(folder: Path) -> None:
    rows = [{"image": "a.png", "text": "one"}, {"images": [{"path": "b.png"}], "text": "two"}, {"text": "three"}]
    write(folder, **{"rows.jsonl": "\n".join(map(json.dumps, rows)), "a.png": png(1), "b.png": png(2)})


def _captioned(folder: Path) -> None:
    write(folder, **{"a.png": png(1), "a.txt": "one", "b.png": png(2), "b.txt": "two"})


def _parquet(folder: Path) -> None:
    pq.write_table(pa.table({"image": ["a.png", "b.png"], "text": ["one", "two"]}), folder / "rows.parquet")
    write(folder, **{"a.png": png(1), "b.png": png(2)})


def _encoded(folder: Path) -> None:
    pq.write_table(pa.table({"image": [png(1), png(2)], "text": ["one", "two"]}), folder / "rows.parquet")


CHANGES: list[tuple[Callable[[Path], None], Callable[[Path], object], set[str]]] = [
    (_listed, lambda f: _swap(f / "rows.jsonl"), {"rows.jsonl"}),
    (_listed, lambda f: (f / "rows.jsonl").write_text((f / "rows.jsonl").read_text().replace("two", "six")),
     {"rows.jsonl"}),
    (_listed, lambda f: (f / "a.png").write_bytes(png(3)), {"a.png"}),
    (_listed, lambda f: (f / "b.png").write_bytes(png(3)), {"b.png"}),
    (_listed, lambda f: (f / "b.png").unlink(), {"b.png"}),
    (_captioned, lambda f: (f / "b.png").write_bytes(png(3)), {"b.png"}),
    (_captioned, lambda f: (f / "b.txt").write_text("six"), {"b.txt"}),
    (_captioned, lambda f: write(f, **{"c.png": png(1), "c.txt": "x"}), {"c.png", "c.txt", "."}),
    (_parquet, lambda f: (f / "b.png").write_bytes(png(3)), {"b.png"}),
    (_encoded, lambda f: pq.write_table(pa.table({"image": [png(2), png(1)], "text": ["one", "two"]}),
                                        f / "rows.parquet"), {"rows.parquet"}),
    (_listed, lambda f: (f / "unnamed.png").write_bytes(png(3)), set()),
]  # fmt: skip


@pytest.mark.parametrize("bound", [digest.BYTES, 1])
@pytest.mark.parametrize(("data", "change", "files"), CHANGES)
def test_each_change_is_seen_and_named(
    tmp_path: Path,
    data: Callable[[Path], None],
    change: Callable[[Path], object],
    files: set[str],
    bound: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(digest, "BYTES", bound)
    data(tmp_path)
    before = digest.digests(open_rows(str(tmp_path)))
    assert before == digest.digests(open_rows(str(tmp_path)))
    change(tmp_path)
    after = digest.digests(open_rows(str(tmp_path)))
    changed = {name for name in {**before, **after} if before.get(name) != after.get(name)}
    assert {Path(name).relative_to(tmp_path).as_posix() for name in changed} == files


def test_a_bounded_share_of_large_data_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "BYTES", 1 << 20)
    monkeypatch.setattr(digest, "ROWS", 200)
    file, image = tmp_path / "rows.jsonl", tmp_path / "a.png"
    row = json.dumps({"text": "x" * 1000})
    file.write_text(f"{row}\n" * 50 + json.dumps({"image": image.name}) + f"\n{row}" * 9_000)
    image.write_bytes(png(1))
    read = digest.open_file
    opened: list[Path] = []
    monkeypatch.setattr(digest, "open_file", lambda path: opened.append(path) or read(path))
    found = digest.digests(open_rows(str(file)))
    assert opened == [file] and list(found) == [str(file)], (
        "the row with an image is not among those whose files are read"
    )
    file.write_bytes(b"\n" + file.read_bytes()[:-1])  # all blocks are shifted by a byte
    assert digest.digests(open_rows(str(file))) != found
