"""The task that README.md shows, as another package: made, audited, trained on by STARS, scored and shown by name."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.tiny import MODEL, fit
from uni_train.cli.main import uni_train
from uni_train.core import registry
from uni_train.data_gen.registry import TASKS, get_task
from uni_train.data_gen.task import Task

README = Path(__file__).parents[1] / "README.md"
AUDIT = """
    def audit(self, items):
        from uni_train.data_gen.findings import AuditRow

        halves = [int(one.prompt.split(" / ")[0].split()[-1]) // 2 for one in items]
        return [AuditRow(one.id, "ok" if one.answer.split()[0] == str(half) else "wrong", str(half), one.answer, "")
                for one, half in zip(items, halves)]
"""


def run(*words: object) -> Result:
    return CliRunner().invoke(uni_train, list(map(str, words)), catch_exceptions=False, terminal_width=100)


def forget(module: str) -> None:
    """A plug-in, as in a process that has not imported it."""
    sys.modules.pop(module, None)
    registry._named.discard(module)
    os.environ[registry.ENVIRONMENT] = ""
    for name in [name for name, entry in TASKS._entries.items() if entry.module == module]:
        del TASKS._entries[name]


@pytest.fixture
def halving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Task]:
    monkeypatch.setenv(registry.ENVIRONMENT, "")
    monkeypatch.setattr(registry, "_named", set())
    monkeypatch.syspath_prepend(tmp_path / "site")
    (code,) = re.findall(r"^```python\n((?:.*\n)+?)```", README.read_text(encoding="utf-8"), re.MULTILINE)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "my_task.py").write_text(code + AUDIT, encoding="utf-8")
    registry.load_plugins(["my_task"])
    yield get_task("halving")
    forget("my_task")


def test_it_is_made_audited_and_verified(halving: Task, tmp_path: Path) -> None:
    for split in halving.splits:
        halving.validate(1, split)
    train, test = (halving.generate(n, 1, split, 0) for n, split in ((20, "train"), (3, "test")))
    assert not {one.prompt for one in train} & {one.prompt for one in test}
    folder = tmp_path / "made"
    made = run("data", "make", "--task", "halving", "--level", "1", "--n", "12", "--out", folder)
    assert made.exit_code == 0 and "12 questions, 12 images" in made.output
    items, verdicts = folder / "items.jsonl", tmp_path / "verdicts.jsonl"
    audited = run("data", "audit", items)
    assert audited.exit_code == 0 and "12 labels: 12 ok" in audited.output
    assert run("data", "verify", "--items", items, "--images", folder / "images", "--out", verdicts).exit_code == 0
    assert [json.loads(line)["status"] for line in verdicts.read_text().splitlines()] == ["pass"] * 12
    items.write_text(items.read_text().replace('"answer": "', '"answer": "9', 1))
    assert run("data", "audit", items).exit_code == 1
    assert run("data", "make", "--task", "all", "--n", "2", "--out", tmp_path / "all").exit_code == 0
    assert (tmp_path / "all" / "halving" / "items.jsonl").is_file()
    assert "Draw half of 2, 4, ... 12 things." in (tmp_path / "all" / "index.html").read_text()
    assert "|`halving`|halving|Draw half of 2, 4, ... 12 things.|1|no|" in run("data", "tasks").output


@pytest.mark.slow
def test_stars_trains_on_it_and_its_tables_are_shown(halving: Task, tmp_path: Path) -> None:
    rounds = "rounds=[{task:halving,level:1,prompts:8,updates:2}]"
    small = ("batch.prompts=8", "batch.noise_draws=1", "checkpoint_every=2", "filter=none")
    ended = fit(tmp_path, *MODEL, *small, "evaluation.n=3", "evaluation.sets=[mapping1,halving1]", rounds)
    assert ended.exit_code == 0, ended.output
    folder = tmp_path / "stars_curriculum" / "seed0"
    assert {"01-sample-halving1", "03-finetune-halving1"} <= {path.name for path in (folder / "stages").iterdir()}
    summary = json.loads((folder / "summary.json").read_text())
    for when in ("before", "after"):
        assert set(summary["scores"][when]["normal"]) == {"mapping1", "halving1"}
    assert summary["scores"]["after"]["cot"]["halving1"]["n"] == 3 and "halving" in summary["average"]["after"]
    assert [one["task"] for one in summary["rounds"]] == ["halving"]
    assert "prompts; guessing the count gives 0.17" in " ".join(ended.output.split())
    assert "halving" in (folder / "report.html").read_text(encoding="utf-8")
    forget("my_task")
    again = run("report", folder)
    assert again.exit_code == 1 and "error: the set halving1 is of a plug-in that is not here" in again.output
    named = (folder / "config.yaml").read_text().replace("plugins: []", "plugins: [my_task]")
    (folder / "config.yaml").write_text(named)
    again = run("report", folder)
    assert again.exit_code == 1 and "UNI_TRAIN_PLUGINS=my_task python -m uni_train" in again.output
    registry.load_plugins(["my_task"])
    assert run("report", folder).exit_code == 0


@pytest.mark.parametrize("wrong", ["rounds=[{task:havling,level:1,prompts:8,updates:2}]", "evaluation.sets=[halving3]"])
def test_its_names_are_known_where_they_are_typed(wrong: str, halving: registry.Task) -> None:
    told = run("fit", "--recipe", "stars_curriculum", "--dry-run", wrong)
    assert told.exit_code == 2 and "Did you mean halving" in told.output
