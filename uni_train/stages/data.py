"""The files of rows that a recipe names: what is read of them, and that a resumed run goes on with the same."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from uni_train.config.build import to_plain
from uni_train.config.paths import named_paths
from uni_train.config.schema import RunConfig
from uni_train.core.errors import UserError
from uni_train.core.files import atomic_write_json
from uni_train.core.reading_limits import read_json
from uni_train.run_folder import flat
from uni_train.stages.work import Work
from uni_train.training.data.digest import digests
from uni_train.training.data.rows import Joined, few, open_rows

DATA = "data.json"


def opened(config: RunConfig) -> dict[str, Joined]:
    """Key -> rows of every file or folder of data; those that cannot be opened are left to their reader."""
    keys = flat(to_plain(config))
    datasets: dict[str, Joined] = {}
    for key, value, path in named_paths(keys):
        section, _, name = key.rstrip(".0123456789").rpartition(".")
        images = keys.get(f"{section}.images")
        if name == "prompts_file" or (name == "path" and path.suffix.lower() == ".txt"):
            datasets[key] = Joined([], [path])
        elif name in ("path", "solved", "pairs"):
            with suppress(UserError):
                rows = open_rows(value, None if images is None else Path(images), section.startswith("held_out"))
                if folders := [keys[name] for name in keys if name.startswith(f"{section}.references") and keys[name]]:
                    from uni_train.training.data.pairs import referenced  # few recipes have such folders

                    rows = referenced(rows, folders)
                datasets[key] = rows
    return datasets


def described(data: Mapping[str, Joined]) -> list[str]:
    """Lines on rows, files and splits, and on what else lies in the folders."""
    lines = []
    for key, rows in data.items():
        lines.append(f"{key}: {f'{len(rows)} rows of ' if len(rows) else ''}{few(rows.files)}")
        lines += [f"  {remark}" for remark in rows.remarks]
    return lines


def expect_same_data(work: Work[Any]) -> None:
    """Say what is read, and note its digests; where a checkpoint was trained, compare with those of then.

    Raises:
        UserError: a file, or the number of rows is another.
    """
    data, stages = opened(work.config), work.folder.path / "stages"
    for line in described(data):
        work.progress.say(f"  {line}")
    now: dict[str, dict[str, Any]] = {key: {"rows": len(rows), "files": digests(rows)} for key, rows in data.items()}
    trained = any(any(stages.glob(f"*/{made}")) for made in ("checkpoints/step=*", "model", "shards/*.parquet"))
    before = read_json(stages / DATA) if trained and (stages / DATA).exists() else {}
    for key in now.keys() & before.keys():
        was, is_ = before[key]["files"], now[key]["files"]
        changed = [name for name in {**was, **is_} if was.get(name) != is_.get(name)]
        if changed:
            raise UserError(
                f"{key}: {changed[0]} has changed since this run began: {len(data[key])} rows now, "
                f"{before[key]['rows']} then",
                "Put the data back as it was, or start over with --fresh.",
            )
    if now:
        atomic_write_json(stages / DATA, {**now, **before})
