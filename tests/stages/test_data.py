"""The data of every recipe: each key that names rows is told, noted and compared."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.training.data.test_forms import png
from uni_train.config.compose import compose
from uni_train.core.errors import UserError
from uni_train.stages.data import expect_same_data

KEYS = [
    ("sft_nano", "sources.mine.path", "sources={{mine: {{path: {}}}}}", "rows.jsonl"),
    ("sft_nano", "sources.mine.path.0", "sources={{mine: {{path: [{}]}}}}", "rows.jsonl"),
    ("sft_nano", "held_out.path", "held_out.path={}", "prompts.TXT"),
    ("flow_grpo_maze", "sft.path", "sft={{path: {}, rows: 1}}", "rows.jsonl"),
    ("flow_grpo_maze", "prompts.path", "prompts={{path: {}, task: null, levels: [1]}}", "rows.jsonl"),
    ("flow_grpo_maze", "held_out.path", "held_out.path={}", "rows.jsonl"),
    ("stars_puzzle", "solved", "solved={}", "rows.jsonl"),
]


@pytest.mark.parametrize(("recipe", "key", "override", "name"), KEYS, ids=[f"{one[0]} {one[1]}" for one in KEYS])
def test_other_data_is_refused_once_something_is_trained(
    recipe: str, key: str, override: str, name: str, tmp_path: Path
) -> None:
    file, image = tmp_path / "data" / name, tmp_path / "data" / "a.png"
    file.parent.mkdir()
    image.write_bytes(png(1))
    rows = "".join(json.dumps({"prompt": prompt, "image": "a.png"}) + "\n" for prompt in ("one", "two"))
    file.write_text(rows)
    said: list[str] = []
    (tmp_path / "stages").mkdir()
    work = SimpleNamespace(
        config=compose(recipe, [override.format(file)]),
        folder=SimpleNamespace(path=tmp_path),
        progress=SimpleNamespace(say=said.append),
    )

    def refused(what: Path) -> None:
        with pytest.raises(UserError, match=f"{key}: {what} has changed since this run began: . rows now, . then"):
            expect_same_data(work)  # type: ignore[arg-type]

    expect_same_data(work)  # type: ignore[arg-type]
    assert any(line.strip().startswith(f"{key}: ") and str(file) in line for line in said)
    file.write_text(rows + "\n")
    expect_same_data(work)  # type: ignore[arg-type]
    (tmp_path / "stages" / "00-x" / "checkpoints" / "step=00000001").mkdir(parents=True)
    file.write_text(rows.replace("two", "six") + "\n")
    refused(file)
    file.write_text(rows + "\n")
    expect_same_data(work)  # type: ignore[arg-type]
    if name.endswith("jsonl"):
        image.write_bytes(png(2))
        refused(image)
