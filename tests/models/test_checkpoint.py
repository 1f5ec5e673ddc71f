"""What a text stands for where a checkpoint is wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from uni_train.models.checkpoint import Source, source_of


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [
        *("run/config.yaml", "run/stages/00-first/checkpoints/step=00000004/state.json", "run/evals/images/1.png"),
        *("answers/1.png", "listed/manifest.csv", "listed/config.json"),
        *("model/config.json", "model/1.png", "a+b/x.bin"),
    ]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "kind", "adapters"),
    [
        ("http://127.0.0.1:8000/v1#nano", "endpoint", 0),
        ("shipped", "model", 0),
        ("nano+model+hf://org/lora", "model", 2),
        ("run", "run", 0),
        ("run/stages/00-first/checkpoints/step=00000004", "step", 0),
        ("answers", "path", 0),
        ("listed", "path", 0),
        ("model", "path", 0),
        ("a+b", "path", 0),
        ("model/no", "path", 0),
        ("org/name@main", "hub", 0),
        ("hf://model/name+answers", "hub", 1),
    ],
)
@pytest.mark.usefixtures("here")
def test_each_form_of_a_checkpoint_is_told(text: str, kind: str, adapters: int) -> None:
    source = source_of(text)
    assert (source.kind, len(source.adapters)) == (kind, adapters)
    assert source.holds_answers is (text in ("answers", "listed"))
    assert source.base == text.split("+")[0] or not adapters


@pytest.mark.parametrize(("text", "absent"), [("org/name", True), ("model/no", True), ("mistyped", False)])
@pytest.mark.usefixtures("here")
def test_absent_weights_may_be_planned_for(text: str, absent: bool) -> None:
    assert source_of(text).is_absent is absent
    assert not Source("model", "nano").is_absent
