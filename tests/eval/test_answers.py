"""Answers that somebody has already, in every layout; and models that are Python functions."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from PIL import Image

import uni_train
from tests.eval.benchmarks.published import PNG
from tests.eval.benchmarks.published import write as write_rows
from tests.eval.test_passage import recording
from uni_train.cli.main import uni_train as command_line
from uni_train.config.schema import EvalConfig
from uni_train.core.errors import UserError
from uni_train.data_gen.ureason.outcomes import outcome_from
from uni_train.eval.answers import FolderAnswers
from uni_train.eval.benchmark import Ask, Scored, Source
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.benchmarks.ureason import UReason
from uni_train.eval.configured import benchmarks_of
from uni_train.eval.generation import cases_of
from uni_train.eval.submission import file_name, write_submission
from uni_train.models.checkpoint import source_of
from uni_train.models.pictures import encode_png

KEYS: dict[str, Any] = {"world": "nano", "n": 2}
ROOT = Path(__file__).resolve().parents[2]
Images = dict[str, bytes]


def opened(name: str) -> Any:
    (found,) = benchmarks_of("", EvalConfig(benchmarks=(name,), **KEYS))
    return found


@pytest.fixture(scope="module")
def ureason() -> UReason:
    return opened("ureason")


@pytest.fixture(scope="module")
def images(ureason: UReason) -> Images:
    """Id -> an image that is right."""
    return {case.id: ureason.reference(case) or b"" for case in ureason.cases()}


def jpeg(image: bytes) -> bytes:
    file = io.BytesIO()
    Image.open(io.BytesIO(image)).save(file, "JPEG", quality=98)
    return file.getvalue()


def write(folder: Path, files: dict[str, bytes]) -> Path:
    write_submission(folder, files.items())
    return folder


@pytest.mark.parametrize(
    "layout", ["jsonl", "csv", "flat", "setting", "jpeg", "geneval", "below", "linked", "snapshot"]
)
def test_right_images_pass_in_every_layout(ureason: UReason, images: Images, layout: str, tmp_path: Path) -> None:
    names = {id_: f"{file_name(id_)}.png" for id_ in images}
    rows = [{"id": id_, "setting": "direct", "image": f"pictures/{i}.png"} for i, id_ in enumerate(images)]
    listed = {f"pictures/{i}.png": image for i, image in enumerate(images.values())}
    table = "\n".join(",".join(row) for row in (rows[0], *(one.values() for one in rows)))
    folder = write(tmp_path / "mine", {
        "jsonl": {"manifest.jsonl": "".join(json.dumps(row) + "\n" for row in rows).encode(), **listed},
        "csv": {"manifest.csv": table.encode(), **listed},
        "flat": {names[id_]: image for id_, image in images.items()},
        "setting": {f"direct/{names[id_]}": image for id_, image in images.items()},
        "jpeg": {names[id_].replace("png", "jpg"): jpeg(image) for id_, image in images.items()},
        "geneval": {f"{i:05d}/samples/0000.png": image for i, image in enumerate(images.values())},
        "below": {f"ureason/{names[id_]}": image for id_, image in images.items()},
        "linked": {"notes.jsonl": b""},
        "snapshot": {"notes.jsonl": b""},
    }[layout])  # fmt: skip
    if layout == "linked":  # a folder of images
        elsewhere = write(tmp_path / "elsewhere", {names[id_]: image for id_, image in images.items()})
        (folder / "direct").symlink_to(elsewhere)
        (elsewhere / "circle").symlink_to(folder)
    if layout == "snapshot":  # of the Hub, whose files are links
        for id_, image in images.items():
            blob = write(tmp_path / "blobs", {names[id_]: image}) / names[id_]
            (folder / names[id_]).symlink_to(blob)
    assert source_of(folder).holds_answers
    result = uni_train.evaluate(folder, "ureason", out=str(tmp_path / "evals"), **KEYS).results["ureason"]
    assert {setting for setting, _, _ in result.no_skill} == set(ureason.settings) - {"direct"}
    if layout != "jpeg":  # whose colours differ from the sprites'
        assert all(counts == {"pass": sum(counts.values())} for counts in result.outcomes["direct"].values())


@pytest.mark.parametrize("name", ["ureason", "unisandbox", "ueval", "ufo", "vigor", "wise"])
def test_what_submissions_hold_is_read_back(name: str, tmp_path: Path) -> None:
    """All but thoughts and prompts, which some layouts have no place for."""
    benchmark = opened(name)
    asks = [Ask(case, setting, 0, 1) for setting in benchmark.settings[:2] for case in benchmark.cases()]
    samples = benchmark.respond(recording(), asks)
    write_submission(tmp_path / name, benchmark.submission(map(Scored, samples)))
    read = FolderAnswers(tmp_path).respond(benchmark, asks)
    assert [(one.ask, one.status, one.parts) for one in read] == [(one.ask, one.status, one.parts) for one in samples]
    assert name != "ufo" or [one.facts for one in read] == [one.facts for one in samples]


def lines(*rows: dict[str, Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.mark.parametrize(
    ("words", "row", "outcome"),
    [
        ("Answer: {right}", {}, "pass"), ("({right}) because of it.", {}, "pass"), ("{wrong}", {}, "fail"),
        ("I cannot tell.", {}, "not_extracted"), ("{wrong}", {"facts": {"choice": "{right}"}}, "fail"),
        ("{right}", {"status": "not_extracted"}, "pass"), ("{right}", {"status": "generation_failed"}, "no_skill"),
    ],
)  # fmt: skip
def test_a_letter_in_a_folder_is_read_as_a_model_s_is(
    words: str, row: dict[str, Any], outcome: str, tmp_path: Path
) -> None:
    """And nothing else that somebody says of his answer counts."""
    (benchmark,) = benchmarks_of("", EvalConfig(benchmarks=("ufo",), world="everyday", n=2, sets=("maths",)))
    asks = [Ask(case, "direct", 0, 1) for case in benchmark.cases()]
    rows = []
    for ask in asks:
        right = ask.case.facts["answer"]
        filled = json.dumps({"id": ask.case.id, "text": words, **row})
        rows.append(json.loads(filled.replace("{right}", right).replace("{wrong}", "B" if right == "A" else "A")))
    extra = {"id": asks[0].case.id, "setting": "visual", "text": "A"}  # so that there is an answer
    folder = write(tmp_path / "mine", {"manifest.jsonl": lines(*rows, extra)})
    read = FolderAnswers(folder).respond(benchmark, asks)
    assert {Scored(one, benchmark.check(one) if one.status == "ok" else None).outcome for one in read} == {outcome}


@pytest.mark.parametrize("settings", [("reasoning_chain",), ("reasoning_chain", "decontextualized"), ()], ids=len)
@pytest.mark.parametrize("layout", ["no setting", "reasoning_chain", "reasoning_guided", "released"])
def test_thoughts_alone_are_the_reasoning_chain(
    ureason: UReason, layout: str, settings: tuple[str, ...], tmp_path: Path
) -> None:
    """As they are asked once for all thoughtful settings; those that draw by them have no answer."""
    thoughts: dict[str, list[dict[str, Any]]] = {}
    for case in ureason.cases():
        thought = f"So draw {outcome_from(case.facts['outcome'])} ."
        thoughts.setdefault(case.set, []).append({"id": case.id, "thought": thought})
    released = {f"think/{name}/{name}.jsonl": lines(*rows) for name, rows in thoughts.items()}
    named = {} if layout == "no setting" else {"setting": layout}
    rows = [{**row, **named} for some in thoughts.values() for row in some]
    folder = write(tmp_path / "mine", released if layout == "released" else {"manifest.jsonl": lines(*rows)})
    keys = {**KEYS, "settings": settings, "out": str(tmp_path / "evals")}
    result = uni_train.evaluate(folder, "ureason", **keys).results["ureason"]
    assert all(counts == {"pass": 2} for counts in result.outcomes["reasoning_chain"].values())
    assert {setting for setting, _, _ in result.no_skill} == {*(settings or ureason.settings)} - {"reasoning_chain"}
    assert not result.not_scored


def test_thoughts_beside_some_images_leave_the_others_missing(ureason: UReason, images: Images, tmp_path: Path) -> None:
    """A setting that has images is asked, and those that lack count."""
    (first, image), *_ = images.items()
    rows = [{"id": id_, "setting": "reasoning_guided", "thought": "So draw 1 cup ."} for id_ in images]
    rows[0]["image"] = "a.png"
    folder = write(tmp_path / "mine", {"manifest.jsonl": lines(*rows), "a.png": image})
    asks = [Ask(case, "reasoning_guided", 0, 1) for case in ureason.cases()]
    samples = FolderAnswers(folder).respond(ureason, asks)
    assert {one.status for one in samples if one.ask.case.id != first} == {"generation_failed"}


def test_numbers_count_the_questions_that_are_asked(images: Images, tmp_path: Path) -> None:
    (benchmark,) = benchmarks_of("", EvalConfig(benchmarks=("ureason",), world="nano", n=6))
    asked = [Ask(case, "direct", 0, 1) for case in cases_of(benchmark, subset=4)]
    right = {f"{at:05d}/samples/0000.png": benchmark.reference(one.case) or b"" for at, one in enumerate(asked)}
    folder = write(tmp_path / "asked", right)
    assert all(benchmark.check(one).passed for one in FolderAnswers(folder).respond(benchmark, asked))  # type: ignore[union-attr]
    every = {f"{at:05d}/samples/0000.png": benchmark.reference(one) or b"" for at, one in enumerate(benchmark.cases())}
    with pytest.raises(UserError, match="numbered up to 00011, but 4 questions are asked"):
        FolderAnswers(write(tmp_path / "all", every)).respond(benchmark, asked)
    both = UniSandbox(Source(data=write_rows(tmp_path / "data", "unisandbox", *(
        {"Question": f"Draw as many chairs as {n} + 1.", "Answer": "3 chairs", "id": str(n)} for n in (1, 2, 3)
    ))), labels="both")  # fmt: skip
    folder = write(tmp_path / "labels", {f"{at:05d}/samples/0000.png": PNG for at in range(3)})
    read = FolderAnswers(folder).respond(both, [Ask(case, "normal", 0, 1) for case in both.cases()])
    assert len(read) == 5 and {one.status for one in read} == {"ok"}  # two labels are wrong


@pytest.mark.parametrize("name", ["Normal", "CoT", "process", "3"])
@pytest.mark.parametrize("layout", ["manifest", "folder", "samples"])
def test_a_setting_that_there_is_not_is_named(name: str, layout: str, tmp_path: Path) -> None:
    benchmark = opened("vigor")
    first, second = (case.id for case in benchmark.cases()[:2])
    rows = lines(
        {"id": first, "setting": "direct", "image": "a.png"}, {"id": second, "setting": name, "image": "a.png"}
    )
    folder = write(tmp_path / "mine", {
        "manifest": {"manifest.jsonl": rows, "a.png": PNG}, "samples": {"samples.jsonl": rows, "a.png": PNG},
        "folder": {f"direct/{file_name(first)}.png": PNG, f"{name}/{file_name(second)}.png": PNG},
    }[layout])  # fmt: skip
    with pytest.raises(UserError, match=f"vigor asks no setting {name}"):
        FolderAnswers(folder).respond(benchmark, [Ask(case, "direct", 0, 1) for case in benchmark.cases()])


def test_where_most_answers_are_missing_there_is_no_score(images: Images, tmp_path: Path) -> None:
    """Of what was asked: the same subset as that of the questions."""
    words = f"-b ureason world=nano --n 6 --sets code --settings direct --out {tmp_path / 'e'}".split()
    (benchmark,) = benchmarks_of("", EvalConfig(benchmarks=("ureason",), world="nano", n=6, sets=("code",)))
    asked = {file_name(case.id): benchmark.reference(case) or b"" for case in cases_of(benchmark, subset=3)}
    folder = write(tmp_path / "mine", {f"{name}.png": image for name, image in asked.items()})
    command = ["eval", str(folder), *words]
    done = CliRunner().invoke(command_line, [*command, "--subset", "3"], catch_exceptions=False)
    assert done.exit_code == 0 and "no answer" not in done.output
    next(folder.iterdir()).unlink()
    done = CliRunner().invoke(command_line, command, catch_exceptions=False)
    assert done.exit_code == 1 and "no answer to 4 of 6 questions" in done.output
    assert "the model failed 4 of 6 (no answer in mine: no image)" in " ".join(done.output.split())


def test_missing_and_damaged_answers_count_and_others_are_said(
    ureason: UReason, images: Images, tmp_path: Path
) -> None:
    first, second, third = list(images)[:3]
    files = {f"{file_name(id_)}.png": image for id_, image in images.items() if id_ != first}
    folder = write(tmp_path / "mine", {**files, f"{file_name(second)}.png": b"no image", "sunset.png": images[third]})
    said: list[str] = []
    (folder / "gone.png").symlink_to(tmp_path / "nothing")
    asks = [Ask(case, "direct", 0, 1) for case in ureason.cases()]
    samples = FolderAnswers(folder, said.append).respond(ureason, asks)
    assert f"{folder}: links to nothing, or closed folders: {folder / 'gone.png'}" in said
    failed = {one.ask.case.id: one.note for one in samples if one.status == "generation_failed"}
    assert list(failed) == [first, second]
    assert "no answer in mine" in failed[first] and file_name(second) in failed[second]
    assert any("sunset.png" in line for line in said) and any(first in line for line in said)


def test_two_answers_to_a_question_are_refused_and_none_to_any(ureason: UReason, tmp_path: Path) -> None:
    id_ = ureason.cases()[0].id
    row = json.dumps({"id": id_, "image": "a.png"}) + "\n"
    for number, (files, said) in enumerate((
        ({"manifest.jsonl": (row * 2).encode()}, re.escape(id_)),
        ({"a.png": b"", "a.jpg": b""}, r"a\.jpg and a\.png"),
        ({"manifest.jsonl": lines({"id": id_, "text": "a"}, {"id": id_, "text": "b"})}, "two answers"),
        ({"manifest.jsonl": lines({"id": id_, "k": "first", "text": "a"})}, "k or step of .* is no number"),
        ({"1.png": b""}, "no answer to any"),
    )):  # fmt: skip
        with pytest.raises(UserError, match=said) as error:
            FolderAnswers(write(tmp_path / str(number), files)).respond(ureason, [])
    assert "data.ureason=FOLDER" in error.value.hint and "eval questions -b ureason" in error.value.hint


def test_questions_are_answered_in_rounds_by_a_manifest(ureason: UReason, tmp_path: Path) -> None:
    """Thoughts first, then what is drawn by them. A row may be answered as it stands, with its own images."""
    out = tmp_path / "answers"
    options = ["-b", "ureason", "world=nano", "--n", "2"]
    asked, answers = [], []
    for words in (["--out", str(out)], *[["--from", str(out)]] * 3):
        done = CliRunner().invoke(command_line, ["eval", "questions", *options, *words], catch_exceptions=False)
        assert done.exit_code == 0 and str(out) in done.output.replace("\n", "")
        rows = [json.loads(line) for line in (out / "ureason/questions.jsonl").read_text().splitlines()]
        asked.append({(row["setting"], row["skill"], "system" in row) for row in rows})
        for row in rows:
            outcome = outcome_from({case.id: case for case in ureason.cases()}[row["id"]].facts["outcome"])
            answers.append(
                {**row, row["reply"]: f"So draw {outcome} ." if row["reply"] == "thought" else f"{len(answers)}.png"}
            )
            if row["reply"] == "image":
                write(out / "ureason", {answers[-1]["image"]: encode_png(outcome.render(1))})  # type: ignore[union-attr]
        write(out / "ureason", {"manifest.jsonl": lines(*answers)})
    drawn = {(name, "draw", False) for name in ureason.settings if name not in ("direct", "reasoning_chain")}
    assert asked == [{("direct", "draw", False), ("reasoning_guided", "think", True)}, drawn, set(), set()]
    assert "nothing is left to ask" in done.output
    done = CliRunner().invoke(
        command_line, ["eval", str(out), *options, "--out", str(tmp_path / "e")], catch_exceptions=False
    )
    assert done.exit_code == 0
    assert done.output.count(f"right {len(ureason.cases())} (100.0%)") == len(ureason.settings), done.output


def test_a_function_is_a_model_as_the_example_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "examples/my_model/README.md").read_text(), re.DOTALL)
    exec(code.replace("n=4", "n=1"), {"__name__": "example"})


def test_the_exception_of_a_function_keeps_its_type_and_place(tmp_path: Path, capsys: Any) -> None:
    def painter(prompt: str, images: list[Any], seed: int) -> Any:
        asked.append(prompt)
        return {}["nothing"] if len(asked) == 1 else Image.new("RGB", (8, 8))

    asked: list[str] = []
    keys = KEYS | {"sets": ["math1"], "settings": ["normal"]}
    done = uni_train.evaluate(painter, "unisandbox", out=str(tmp_path), **keys)
    notes = {one.sample.note for one in done.scored("unisandbox") if one.outcome == "generation_failed"}
    (note,) = notes
    assert "KeyError: 'nothing' (" in note and f"{Path(__file__).name}, line" in note and 'return {}["nothing"]' in note
    assert "unisandbox: no answer to 1 of 2 (50%); the first: no image: KeyError" in capsys.readouterr().out


def test_a_benchmark_that_no_setting_fits_is_refused_at_once_with_those_that_fit(tmp_path: Path) -> None:
    asked: list[str] = []

    def painter(prompt: str, images: list[Any], seed: int) -> Any:
        asked.append(prompt)
        return Image.new("RGB", (8, 8))

    def writer(prompt: str, images: list[Any], seed: int) -> str:
        asked.append(prompt)
        return "1 fish"

    for function, names, skill, fitting in (
        (painter, "ueval", "write text: it returned Image", "ufo,unisandbox,ureason,vigor,wise"),
        (writer, "unisandbox,vigor", "draw: it returned str", "ufo,ureason"),
    ):
        asked.clear()
        with pytest.raises(UserError, match=f"{function.__name__} cannot {skill}, and all settings") as error:
            uni_train.evaluate(function, names.split(","), out=str(tmp_path), **KEYS)
        hinted = set((error.value.hint or "").rpartition("-b ")[2].split(","))
        ours = {"unisandbox", "ureason", "ufo", "vigor", "ueval", "wise"}  # tests of plug-ins register others
        assert hinted & ours == set(fitting.split(",")) and len(asked) <= 8
    done = uni_train.evaluate(painter, ["wise", "ueval"], out=str(tmp_path), **KEYS)
    assert {setting for setting, _, _ in done.results["wise"].no_skill} == {"cot"}
    assert {setting for setting, _, _ in done.results["ueval"].no_skill} == {"two_passes", "think_first"}
