"""A reasoning task of another package, one file: it is made, audited, trained on by STARS, evaluated and shown."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny import MODEL
from uni_train.data_gen.registry import GROUP

ROOT = Path(__file__).parents[1]
TASK = '''
"""Sums of letters: "A means 2 . B means 3 . Draw as many apples as A + B ." """

from dataclasses import dataclass
from typing import ClassVar

from uni_train.data_gen.audit.findings import AuditRow
from uni_train.data_gen.registry import task
from uni_train.data_gen.seeds import digest, rng
from uni_train.data_gen.splits import split_of
from uni_train.data_gen.sprite_task import SpriteTask
from uni_train.data_gen.task import Item, Question


@task("letters")
@dataclass(frozen=True)
class Letters(SpriteTask):
    name = "letters"
    title = "Sums of letters"
    levels = (1, 2)
    sets: ClassVar = {1: "letters1", 2: "letters2"}
    short = "L"
    chance = 1 / 6
    guess = "guessing the count"
    most_frequent = "most frequent count"

    def sample(self, seed, level, split="train"):
        self.check(level, split)
        random_ = rng(self.name, self.world.name, level, split, seed)
        while True:
            values = [random_.randint(1, 4) for _ in range(level + 1)]
            names = random_.sample("ABCDEFGHJK", level + 1)
            rules = " ".join(f"{name} means {value} ." for name, value in zip(names, values))
            if sum(values) <= 6 and split_of(self.name, rules) == split:
                break
        noun, count = random_.choice(self.world.nouns), sum(values)
        prompt = f"{rules} Draw as many {noun.plural} as {' + '.join(names)} ."
        facts = {"world": self.world.name, "object": noun.singular, "plural": noun.plural, "count": count,
                 "canonical": rules}
        thought = f"{' + '.join(map(str, values))} = {count} . So draw {noun.counted(count)} ."
        return (Item(f"letters{level}/{split}/{digest(prompt)}", self.name, level, split, prompt, noun.counted(count),
                     facts, thought),)

    def question(self, item):
        return Question(self.name, item.prompt, int(item.facts["count"]), item.id, str(item.facts["canonical"]))

    def audit(self, items):
        found = []
        for item in items:
            count = sum(int(word) for word in item.prompt.split() if word.isdigit())
            right = item.answer.split()[0] == str(count)
            found.append(AuditRow(item.id, "ok" if right else "wrong", str(count), item.answer, ""))
        return found
'''


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which a distribution with the task is installed."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "letters.py").write_text(TASK)
    info = folder / "letters-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: letters\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nletters = letters\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)]), "COLUMNS": "120"}


def run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "uni_train", *words]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
def test_it_is_made_and_audited(environment: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "letters2"
    made = run(environment, "data", "make", "--task", "letters", "--level", "2", "--n", "12", "--out", str(folder))
    assert made.returncode == 0, made.stderr
    assert "12 questions, 12 images" in made.stdout
    items = folder / "items.jsonl"
    audited = run(environment, "data", "audit", str(items))
    assert audited.returncode == 0, audited.stderr
    assert "12 labels: 12 ok" in audited.stdout and "most frequent count" in audited.stdout
    items.write_text(items.read_text().replace('"answer": "', '"answer": "9', 1))
    assert run(environment, "data", "audit", str(items)).returncode == 1
    judged = run(environment, "data", "verify", "--items", str(items), "--images", str(folder / "images"), "--out",
                 str(tmp_path / "verdicts.jsonl"))  # fmt: skip
    assert judged.returncode == 0, judged.stderr
    verdicts = (tmp_path / "verdicts.jsonl").read_text().splitlines()
    assert [json.loads(line)["status"] for line in verdicts] == ["pass"] * 12


@pytest.mark.slow
def test_stars_trains_on_it_and_its_tables_are_shown(environment: dict[str, str], tmp_path: Path) -> None:
    rounds = "rounds=[{task:letters,level:2,prompts:8,updates:2}]"
    small = ("batch.prompts=8", "batch.noise_draws=1", "checkpoint_every=2", "filter=none")
    sets = ("evaluation.n=3", "evaluation.sets=[mapping1,letters1,letters2]")
    fit = run(environment, "fit", "--recipe", "stars_curriculum", f"out={tmp_path}", *MODEL, *small, *sets, rounds)
    assert fit.returncode == 0, fit.stdout + fit.stderr
    (folder,) = (tmp_path / "stars_curriculum").iterdir()
    stages = sorted(path.name for path in (folder / "stages").iterdir())
    assert "01-sample-letters2" in stages and "03-finetune-letters2" in stages
    summary = json.loads((folder / "summary.json").read_text())
    for when in ("before", "after"):
        assert set(summary["scores"][when]["normal"]) == {"mapping1", "letters1", "letters2"}
    assert summary["scores"]["after"]["cot"]["letters1"]["n"] == 3
    assert summary["chance"]["letters"] == 1 / 6 and "letters" in summary["average"]["after"]
    assert [one["task"] for one in summary["rounds"]] == ["letters"]
    shown = " ".join(fit.stdout.split())
    assert "Sums of letters" in shown and "prompts; guessing the count gives 0.17" in shown
    assert "Sums of letters" in (folder / "report.html").read_text(encoding="utf-8")
    again = run(os.environ | {"PYTHONPATH": str(ROOT)}, "report", str(folder))  # where the plug-in is not installed
    assert again.returncode == 1 and "error: the set letters1 is of a plug-in that is not here" in again.stderr
    named = (folder / "config.yaml").read_text().replace("plugins: []", "plugins: [letters]")
    (folder / "config.yaml").write_text(named)  # as a recipe names it
    (module,) = {path for path in environment["PYTHONPATH"].split(os.pathsep) if Path(path, "letters.py").is_file()}
    shutil.copyfile(Path(module, "letters.py"), tmp_path / "letters.py")
    here = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    again = run(here, "report", str(folder))
    assert again.returncode == 0, again.stderr


@pytest.mark.slow
def test_its_names_are_known_where_they_are_typed(environment: dict[str, str]) -> None:
    wrong = run(environment, "fit", "--recipe", "stars_curriculum", "--dry-run",
                "rounds=[{task:leters,level:1,prompts:8,updates:2}]")  # fmt: skip
    assert wrong.returncode == 2 and "Did you mean letters?" in wrong.stderr
    wrong = run(environment, "fit", "--recipe", "stars_curriculum", "--dry-run", "evaluation.sets=[letters3]")
    assert wrong.returncode == 2 and "Did you mean letters" in wrong.stderr
