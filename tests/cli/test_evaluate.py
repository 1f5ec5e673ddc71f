"""`uni_train eval`, `eval compare` and `watch` as typed, with nano."""

from __future__ import annotations

import fcntl
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result
from safetensors.torch import load_file

from tests.eval.judges.server import JudgeServer, Refused
from tests.processes import python
from tests.tiny import MODEL
from uni_train.cli.evaluation.options import overrides_of
from uni_train.cli.main import main, uni_train
from uni_train.config.build import build_section, to_plain
from uni_train.config.compose import compose, compose_section
from uni_train.config.schema import EvalConfig
from uni_train.console.terminal import plain
from uni_train.eval.configured import plan_of
from uni_train.eval.store import Log, machine
from uni_train.eval.watch import evaluate
from uni_train.models.load import build_model, save_model
from uni_train.models.nano.family import ASSETS
from uni_train.run_folder import RunCheckpoint
from uni_train.training.checkpoint_io import checkpoint_name, save_folder

NORMAL = ("--n", "2", "--settings", "normal")
SMALL = ("--n", "2", "--sets", "math1,mapping1")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(uni_train, [str(one) for one in arguments], catch_exceptions=False, terminal_width=100)


def done(*arguments: str | Path) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A nano of ten thousand random weights, where a run would have left it."""
    config = compose("stars_curriculum", MODEL)
    run_folder = tmp_path_factory.mktemp("runs") / "tiny"
    folder = run_folder / "stages" / "00-made" / "model"
    save_model(build_model(config.model), folder)
    (run_folder / "config.yaml").write_text(yaml.safe_dump(to_plain(config)))
    return folder


def one_screen(result: Result, code: int, *parts: str) -> None:
    assert result.exit_code == code, result.output
    assert len(result.output.splitlines()) <= 6 and all(part in result.output for part in parts), result.output


@pytest.mark.slow
def test_a_checkpoint_is_scored_and_the_same_command_continues(model: Path, tmp_path: Path) -> None:
    command = ("eval", model, *SMALL, "-b", "unisandbox", "--out", tmp_path, "--name", "first")
    output = done(*command)
    assert "Reasoning generation" in output and output.count("6 samples") == 2  # 2 prompts, 2 pairs
    report = tmp_path / "first" / "report.html"
    assert str(report) in output and ", after made" in report.read_text(encoding="utf-8")
    scores = (tmp_path / "first" / "scores.json").read_bytes()
    assert json.loads(scores)["calls"]["draw"]["made"] == 12
    done(*command)
    again = json.loads((tmp_path / "first" / "scores.json").read_bytes())
    assert again["calls"]["draw"] == {"made": 0, "stored": 12, "failed": 0}
    assert again["results"] == json.loads(scores)["results"]
    report.unlink()
    assert str(report) in done("report", tmp_path / "first") and report.is_file()
    one_screen(run(*command, "k=2"), 1, "holds another evaluation: k was 1, now 2")


@pytest.mark.slow
def test_a_judge_that_is_broken_ends_eval_and_calibrate_with_1_and_without_a_score(model: Path, tmp_path: Path) -> None:
    broken = "not scored: judge failed 2 of 2 (HTTP 400): math1 (normal)"
    with JudgeServer(lambda asked: Refused(400, "no")) as server:
        judge = [f"judge.model={server.url}#judge", "judge.dialect=nano", "verifier=judge", "--sets", "math1"]
        result = run("eval", "-c", model, *judge, *NORMAL, "--out", tmp_path, "--name", "a")
        assert result.exit_code == 1 and f"error: unisandbox: {broken}" in result.output, result.output
        assert "Math1" not in result.output and "judge failed 2 (100.0%)" in result.output
        assert broken in done("report", tmp_path / "a") + (tmp_path / "a" / "report.html").read_text(encoding="utf-8")
        refused = run("eval", "calibrate", *judge, "--n", "2", "--out", tmp_path)
        assert refused.exit_code == 1 and "is not calibrated for unisandbox: judge failed" in refused.output
        assert not list(tmp_path.rglob("calibrations/*.json"))


@pytest.mark.slow
def test_two_evaluations_are_compared(model: Path, tmp_path: Path) -> None:
    evaluation = ("eval", "-c", model, *SMALL, *NORMAL, "--out", tmp_path)
    done(*evaluation, "sampling.temperature=0", "--name", "a")
    done(*evaluation, "sampling.steps=1", "--name", "b")
    page, plain = tmp_path / "flips.html", tmp_path / "flips.json"
    output = done("eval", "compare", tmp_path / "a", tmp_path / "b", "--html", page, "--json", plain)
    assert "unisandbox: b (second) against a (first)" in output and "different sampling settings" in output
    assert [row["n"] for row in json.loads(plain.read_text())["rows"]] == [2, 2]
    assert page.read_text(encoding="utf-8").count('"answers":') == 6
    done(*evaluation, "--subset", "2", "--name", "c")
    one_screen(run("eval", "compare", tmp_path / "a", tmp_path / "c"), 1, "--subset was all and 2")


def planned(output: str) -> dict[str, str]:
    rows = (re.split("  +", line.strip()) for line in output.splitlines())
    return {cells[0]: cells[1] for cells in rows if len(cells) == 2}


def test_a_plan_asks_nobody_and_multiplies_right(tmp_path: Path) -> None:
    output = done(
        "eval", "-c", "shipped", "-b", "unisandbox", "--n", "5", "--plan", "costs.seconds={draw:3600,think:1800}",
        "costs.gpu_hour=2", "--out", tmp_path,
    )  # fmt: skip
    # 5 prompts in each of three sets and 5 pairs in each of three others, in two settings: 90 draws, 45 thoughts.
    rows = planned(output)
    assert (rows["draw calls"], rows["think calls"], rows["judge calls"]) == ("90", "45", "0")
    assert (rows["GPU hours"], rows["GPU, dollars"]) == ("112.50", "225.00")
    assert list(tmp_path.iterdir()) == []
    rows = planned(done("eval", "-c", "shipped", "world=everyday", "--n", "5", "--plan", "judge.price=[1,10]"))
    assert rows["judge calls"] == "180"  # a caption of each picture, and its comparison with the answer
    read, written = (int(rows[f"judge {what}, tokens"].replace(",", "")) for what in ("reads", "writes"))
    assert read > 180 * 1000 and written == 180 * 200
    assert rows["judge, dollars"] == f"{(read + 10 * written) / 1e6:.2f}" and rows["GPU hours"] == "–"
    absent = "eval -c checkpoints/BAGEL-7B-MoT -b ureason --n 1 --plan"  # as its page shows
    assert planned(done(*absent.split()))["draw calls"] == "25"
    one_screen(run("eval", "-c", "shipped", "--plan", "costs.seconds.drow=1"), 2, "Did you mean draw?")


def test_a_plan_knows_what_earlier_evaluations_of_the_model_have_measured(model: Path, tmp_path: Path) -> None:
    command = ("eval", "-c", model, *SMALL, "--out", tmp_path)
    assert planned(done(*command, "--plan"))["GPU hours"] == "–"
    done(*command)
    (folder,) = tmp_path.glob("store/calls/*")
    batches, where = list(Log(folder).read(dict)), machine()
    for file in folder.glob("*.jsonl"):
        file.unlink()
    for batch in batches:  # a thought and its image are made together
        assert batch["machine"] == where
        Log(folder).append(batch | {"seconds": 36.0 * len(batch["calls"])})
    output = done(*command, "--plan")
    assert planned(output)["GPU hours"] == "0.18"  # 12 draws and 6 thoughts of 36 seconds
    said = " ".join(output.split())
    assert "draw 36 s (of 12), think 36 s (of 6)" in said and f"on this machine ({where})" in said
    assert planned(done(*command, "--plan", "costs.seconds.draw=360"))["GPU hours"] == "1.26"  # what is typed counts
    assert planned(done(*command, "sampling.steps=1", "--plan"))["GPU hours"] == "–"  # asked so, never


def test_a_prompt_model_is_known_by_what_it_is(model: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(model.parents[2], tmp_path / "moved") / model.relative_to(model.parents[2])

    def options(writer: Path) -> dict[str, object]:
        typed = ["benchmarks=[ureason]", f"out={tmp_path}", f"options.ureason.prompt_model={writer}"]
        asked = compose_section(EvalConfig, typed)
        return dict(plan_of(str(model), asked).options["ureason.prompt_model"])

    assert options(model) == options(copy) and "moved" not in json.dumps(options(copy))
    weights = copy / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-2] ^= 0x01
    weights.write_bytes(data)
    assert options(copy)["content"] != options(model)["content"]


def test_words_and_options_are_the_same_keys() -> None:
    options = {"benchmarks": "unisandbox,ureason", "subset": "5", "out": "some where", "sets": None}
    words = ("data.ureason=b", "judge.model=http://h:1/v1#m", "judge.price=[1,2.5]", "sampling.steps=3", "logger=wandb",
             "options.unisandbox.labels=official")  # fmt: skip
    config = compose_section(EvalConfig, overrides_of(words, options))
    assert (config.benchmarks, config.subset, config.out) == (("unisandbox", "ureason"), 5, "some where")
    assert config.judge is not None and (config.judge.name, config.judge.price) == ("m", (1.0, 2.5))
    assert (config.logger.kind, config.sampling, config.data) == ("wandb", {"steps": 3}, {"ureason": "b"})
    plain = {"subset": 5, "judge": {"model": "http://h:1/v1#m", "price": [1, 2.5]}, "logger": {"kind": "wandb"}}
    assert build_section(EvalConfig, {**to_plain(config), **plain}) == config  # as from Python


UFO_KEYS = ("sampling.temperature=0", "sampling.steps=100", "sampling.edit_text_scale=7.5")


@pytest.mark.parametrize(
    ("typed", "same"),
    [
        (["sampling=ufo"], UFO_KEYS),
        (["sampling=ufo", "sampling.steps=3"], ["sampling.steps=3", *UFO_KEYS[::2]]),  # a key wins over the preset
        (["sampling.steps=3", "sampling=ufo"], ["sampling.steps=3", *UFO_KEYS[::2]]),
        (["logger.project=mine", "logger=wandb"], ["logger=wandb", "logger.project=mine"]),
    ],
)
def test_a_preset_is_the_keys_that_it_stands_for(typed: list[str], same: list[str]) -> None:
    assert compose_section(EvalConfig, typed) == compose_section(EvalConfig, same)


def test_a_preset_continues_the_evaluation_of_its_keys(model: Path, tmp_path: Path) -> None:
    asked = ("eval", model, "-b", "ufo", "--n", "1", "--sets", "maths", "--settings", "visual", "--out", tmp_path)
    done(*asked, *UFO_KEYS)
    (document,) = tmp_path.glob("*/evaluation.json")
    typed = json.loads(document.read_text())
    done(*asked, "sampling=ufo")
    assert [*tmp_path.glob("*/evaluation.json")] == [document]  # the folder is named by all that was asked
    preset = json.loads(document.read_text())
    assert preset["model"] == typed["model"] and preset["model"]["settings"]["sampling"]["steps"] == 100
    assert {made["made"] for made in json.loads((document.parent / "scores.json").read_text())["calls"].values()} == {0}


def test_the_shell_completes_keys_models_and_benchmarks() -> None:
    shell = ShellComplete(uni_train, {}, "uni_train", "_UNI_TRAIN_COMPLETE")
    for words, found in {
        "eval ship": "shipped",
        "eval -c ship": "shipped",
        "eval shipped judge.mod": "judge.model=",
        "eval shipped verifier=": "verifier=judge",
        "eval shipped -b unisandbox,urea": "unisandbox,ureason",
        "eval shipped benchmarks=unisandbox,urea": "benchmarks=unisandbox,ureason",
        "fit stars_math optimizer.l": "optimizer.lr=",
        "fit stars_math model=na": "model=nano",
        "generate -m bagel": "bagel_7b",
        "data make --task ure": "ureason",
        "insight links shipped settings=said,th": "settings=said,thought",
    }.items():
        *typed, begun = words.split()
        assert found in [item.value for item in shell.get_completions(typed, begun)]


@pytest.mark.slow
def test_several_processes_give_the_same_numbers(model: Path, tmp_path: Path) -> None:
    command = ["eval", str(model), *SMALL, *NORMAL, "--name", "same"]
    done(*command, f"out={tmp_path / 'one'}")
    assert python("-m", "uni_train", *command, f"out={tmp_path / 'two'}", "devices=2").returncode == 0
    alone, both = (json.loads((tmp_path / name / "same" / "scores.json").read_text()) for name in ("one", "two"))
    assert alone["results"] == both["results"] and alone["calls"] == both["calls"]
    assert (tmp_path / "two" / "same" / "report.html").is_file()


def test_a_watch_waits_for_an_evaluation_that_outlived_a_killed_one(tmp_path: Path) -> None:
    with open(tmp_path / ".evaluating", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        orphan = subprocess.Popen(["sleep", "1"], pass_fds=(lock.fileno(),))
    gone = RunCheckpoint(tmp_path / "gone", tmp_path, "03-finetune", 1, 1, "key")
    outcome = evaluate(gone, tmp_path, [f"out={tmp_path}"], print)
    assert orphan.poll() == 0
    assert outcome.code == 1 and outcome.message == f"there is nothing at {gone.path}"


@pytest.mark.slow
def test_every_checkpoint_of_a_run_is_evaluated_once(model: Path, tmp_path: Path) -> None:
    # A run that is still training: its steps are all there is, and one of them is torn.
    folder = tmp_path / "seed0"
    stage = folder / "stages" / "03-finetune"
    trained = {f"model.{name}": value for name, value in load_file(model / "model.safetensors").items()}
    for step in (3, 6):
        save_folder({"state_dict": trained, "callbacks": {}}, stage / "checkpoints" / checkpoint_name(step))
    (stage / "checkpoints" / checkpoint_name(6) / "state.safetensors").write_bytes(b"torn")
    shutil.copyfile(model.parents[2] / "config.yaml", folder / "config.yaml")
    command = ("watch", folder, "--once", "--n", "1", "--sets", "math1", "settings=[normal]")
    output = done(*command)
    assert output.count(": done") == 1
    evaluations = [path.parent for path in (folder / "evals").glob("*/scores.json")]
    assert len(evaluations) == 1
    assert (evaluations[0] / "report.html").is_file()
    asked = json.loads((evaluations[0] / "evaluation.json").read_text())
    assert asked["model"]["name"] == "seed0-03-finetune-step3"
    assert done(*command) == ""  # nothing new
    one_screen(run("watch", tmp_path), 1, "is no run folder")


@pytest.mark.slow
def test_what_data_and_servers_say_steers_no_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results on a terminal without dashes, with an escape sequence in the name of a model."""
    named = shutil.copytree(ASSETS, tmp_path / "a\x1b[2Jb")
    asked = ("eval", "-c", str(named), "--sets", "math1", *NORMAL, "--out", str(tmp_path / "evals"))
    monkeypatch.setattr(sys, "argv", ["uni_train", *asked])
    written = [io.BytesIO(), io.BytesIO()]
    for name, stream in zip(("stdout", "stderr"), written, strict=True):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(stream, encoding="ascii", write_through=True))
    with pytest.raises(SystemExit) as ended:
        main()
    out, error = (stream.getvalue() for stream in written)
    assert ended.value.code == 0, error
    assert re.search(rb"\.\d\d\?", out) and b"report: " in out  # an interval without its dash
    assert b"\x1b" not in out + error and b"a[2Jb" in out
    assert plain("a\x1b]0;x\x07\tb\nc\u202e") == "a]0;x\tb\nc"
