"""The table of docs/training.md: its rows as files, and each command on them."""

from __future__ import annotations

import io
import json
import re
import shlex
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tests.core.test_hub import SHA, Hub, hub  # noqa: F401
from tests.models.bagel.conftest import FOLDER
from tests.models.bagel.published import published
from tests.recipes.sft.test_sft import QUICK, png
from tests.test_docs import ROOT
from uni_train import fitting
from uni_train.cli.main import uni_train
from uni_train.config.compose import compose
from uni_train.config.kinds import kind_of
from uni_train.core.errors import UsageError
from uni_train.models.family import family_of
from uni_train.recipes.sft.config import SftConfig, named_sources

TABLE = [
    [cell.strip() for cell in line.split(" | ")]
    for line in (ROOT / "docs/training.md").read_text(encoding="utf-8").splitlines()
    if line.endswith("` |") and "sources=" in line
]


def with_bytes(value: object, folder: Path) -> object:
    """A row of the table as Parquet has it: images as bytes."""
    if isinstance(value, list):
        return [with_bytes(one, folder) for one in value]
    return (folder / value).read_bytes() if isinstance(value, str) and value.endswith(".png") else value


def lay_out(cell: str) -> None:
    """The files of a cell below the working folder (those of a data set of the Hub, too), and images that they name."""
    contents: dict[Path, list[str]] = {}
    for span in re.findall(r"`([^`]+)`", cell):
        if span.startswith(("data/", "hf://")):
            file = Path(span.removeprefix("hf://datasets/"))
            contents.setdefault(file, [])
        else:
            contents[file].append(span)
    for file, lines in contents.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        images = (
            [f"{file.stem}.png"] if file.suffix in (".txt", ".png") else re.findall(r"[\w/]+\.png", " ".join(lines))
        )
        for i, name in enumerate(images):
            (file.parent / name).parent.mkdir(parents=True, exist_ok=True)
            (file.parent / name).write_bytes(png(i, 40, 50))
        if not lines:  # an image
            continue
        if file.suffix == ".parquet":
            rows = [json.loads(line) for line in lines]
            columns = {key: [with_bytes(row[key], file.parent) for row in rows] for key in rows[0]}
            pq.write_table(pa.table(columns), file)
        elif file.suffix == ".tar":
            with tarfile.open(file, "w") as tar:
                for i, (image, text, content) in enumerate(re.split(", |: ", line, maxsplit=2) for line in lines):
                    for name, data in ((image, png(i, 40, 50)), (text, content.encode())):
                        info = tarfile.TarInfo(name)
                        info.size = len(data)
                        tar.addfile(info, io.BytesIO(data))
        elif file.suffix == ".json":
            file.write_text(f"[{', '.join(lines)}]", encoding="utf-8")
        else:
            file.write_text("\n".join(lines), encoding="utf-8")


@pytest.fixture(scope="module")
def bagel(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A BAGEL that is small: the override that takes it."""
    return f"model.checkpoint={published(FOLDER, tmp_path_factory.mktemp('own_data') / 'BAGEL')}"


@pytest.mark.parametrize(("cell", "command"), [cells[1:3] for cells in TABLE], ids=[cells[0] for cells in TABLE])
def test_a_command_of_the_table_reads_the_data_beside_it(
    cell: str,
    command: str,
    bagel: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hub: Hub,  # noqa: F811
) -> None:
    assert len(TABLE) == 14
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    lay_out(cell)
    if "hf://" in command:
        offered = Path("org").rename(tmp_path / "org") / "name"
        files = [file for file in offered.rglob("*") if file.is_file()]
        hub.offered = {file.relative_to(offered).as_posix(): file.read_bytes() for file in files}
    words = shlex.split(command.strip("` |"))[4:]
    result = CliRunner().invoke(uni_train, ["fit", *words, bagel, *QUICK, "--dry-run"], catch_exceptions=False)
    assert result.exit_code == 0 and re.search(r"one update: \d+ examples", result.output), result.output
    assert result.output.count(": 2 rows of ") == 1

    config = compose("sft", [*words[1:], bagel, *QUICK])
    model, _ = family_of(config.model.family).skeleton(config.model, config.seed)
    model.prepare_training(timestep_shift=1.0, text_dropout=1.0)
    for example in kind_of(config).first_update(config, model)[0]:
        left = sum(sum(map(sum, batch.sample_lengths)) for batch in model.examples.blank([example]))
        drawn = example.target is not None or any(turn.learn and turn.image is not None for turn in example.turns)
        assert (left < model.example_tokens(example)) == drawn, "texts are left out where an image is drawn"


def test_a_run_records_the_commit_of_its_data(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(fitting, "_run", lambda config, ranks, fresh: None)
    monkeypatch.setattr(fitting, "missing", lambda config: iter(()))
    monkeypatch.chdir(tmp_path)
    hub.offered = {"a.jsonl": b"{}"}
    given = ["sources=[hf://datasets/org/name@main]", "held_out.path=hf://datasets/org/name/a.jsonl"]
    config = fitting.run_recipe("sft", [*given, "strategy.accelerator=cpu"], fresh=False)
    assert isinstance(config, SftConfig) and config.held_out.path is not None
    assert str(config.used_sources["name"].path).endswith(SHA) and config.held_out.path.endswith(f"{SHA}/a.jsonl")


def test_sources_are_named_by_their_files() -> None:
    given = ["a/cats", {"path": "b/cats", "weight": 2}, {"path": ["x", "y"]}]
    named = named_sources(given)
    assert named == {"cats": {"path": "a/cats"}, "source2": given[1], "source3": given[2]}
    assert named_sources("x/v1.0.jsonl") == {"v1_0": {"path": "x/v1.0.jsonl"}}
    for path in ("data/My photos (2), new", "データ"):
        (source,) = compose("sft", [f"sources={path}"]).used_sources.values()
        assert source.path == path
    assert compose("sft", ["sources=[{path: a, form: edit},b]"]).used_sources["a"].form == "edit"


@pytest.mark.parametrize(
    ("below", "used"),
    [
        ("sources.editing=null", {"cats": 1}),
        ("sources.cats.weight=2", {"cats": 2}),
        ("sources.mine.path=x.jsonl", {"cats": 1, "mine": 1}),
        ("sources.mine={path:x.jsonl,weight:3}", {"cats": 1, "mine": 3}),
        ("sources.cats=null", {}),
    ],
)
def test_a_source_is_named_beside_all_of_them_in_either_order(below: str, used: dict[str, int]) -> None:
    for overrides in (["sources=d/cats", below], [below, "sources=[d/cats]"]):
        if not used:
            with pytest.raises(UsageError, match="sources is empty"):
                compose("sft", overrides)
        else:
            config = compose("sft", overrides)
            assert isinstance(config, SftConfig)
            assert {name: source.weight for name, source in config.used_sources.items()} == used


def test_nano_says_what_it_cannot_learn_and_what_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for size, said in ((24, "does not know the word 'a'"), (30, "draws 24 x 24 pixels, and this image has 30 x 30")):
        Path("a.png").write_bytes(png(0, size, size))
        Path("rows.jsonl").write_text('{"image": "a.png", "text": "a red cat"}')
        given = ("sft_nano", "sources=rows.jsonl", "evaluate=false", "out=runs", "--fresh")
        result = CliRunner().invoke(uni_train, ["fit", *given], terminal_width=200)
        assert result.exit_code == 1
        for expected in (f"rows.jsonl, line 1: nano {said}", "model is bagel_7b", "model=qwen_image_edit_2511"):
            assert expected in " ".join(result.output.split())
