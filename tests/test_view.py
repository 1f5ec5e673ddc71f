"""`uni_train view`: TensorBoard's own HTTP interface gives what our files hold, and sees them grow."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner

from uni_train.cli.main import uni_train as command

pytest.importorskip("tensorboard", reason="pip install -e '.[view]'")
from uni_train import view

RUN = "stars_curriculum/seed0"
STAGE = f"{RUN}/03-finetune-mapping1"


@pytest.fixture(scope="module")
def folder(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, and an evaluation of its model."""
    folder = tmp_path_factory.mktemp("runs")
    run = shutil.copytree(finished, folder / RUN)
    options = ["--n", "2", "--sets", "math1", "--settings", "normal", "--out", str(folder / "evals"), "--name", "mine"]
    done = CliRunner().invoke(command, ["eval", "-c", str(run), *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return folder


def ask(address: str, what: str, **query: str) -> object:
    with urlopen(f"{address}data/plugin/{what}?{urlencode(query)}") as reply:
        return json.load(reply)


@pytest.mark.slow
def test_curves_scores_and_tables_are_served(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "FRESH", 0.0)
    address = view.serve(folder, 0)
    assert address.startswith("http://127.0.0.1:")
    scalars = ask(address, "scalars/tags")
    assert isinstance(scalars, dict) and {"loss", "grad_norm", "lr"} <= scalars[STAGE].keys()

    log = next(folder.glob(f"{RUN}/stages/03-*/metrics.jsonl"))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    curve = ask(address, "scalars/scalars", run=STAGE, tag="loss")
    assert isinstance(curve, list)
    assert [(step, value) for _, step, value in curve] == [(line["step"], line["loss"]) for line in lines]

    summary = json.loads((folder / RUN / "summary.json").read_text())["scores"]
    scores = ask(address, "scalars/scalars", run=RUN, tag="scores/normal/mapping1")
    assert isinstance(scores, list)
    assert [p[2] for p in scores] == [summary[label]["normal"]["mapping1"]["value"] for label in ("before", "after")]

    texts = ask(address, "text/tags")
    assert isinstance(texts, dict)
    run = f"{RUN}/evals"  # evaluations of its checkpoints, each at the update that it was reached
    (point,) = ask(address, "scalars/scalars", run=run, tag="unisandbox/normal/math1")  # type: ignore[misc]
    assert point[1] == 9
    assert "<table>" in ask(address, "text/text", run=run, tag=texts[run][0])[0]["text"]  # type: ignore[index]


def test_folders_are_shown_however_they_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    tag = "unisandbox/normal/math1"
    for name in (".", "../" + folder.name):
        assert tag in view.read(Path(name)).scalars[f"{RUN}/evals"]
    assert tag in view.read(Path("evals")).scalars["mine"]  # its run is elsewhere
    assert tag in view.read(Path("./evals/mine")).scalars["mine"]


def test_linked_runs_are_shown_with_their_evaluations(folder: Path, tmp_path: Path) -> None:
    for name, place in {"a_evals": folder / "evals", "best": folder / RUN, "circle": tmp_path}.items():
        (tmp_path / name).symlink_to(place)
    shown = view.read(tmp_path).scalars
    assert {"loss", "grad_norm"} <= shown["best/03-finetune-mapping1"].keys()
    assert "unisandbox/normal/math1" in shown["best/evals"] and not any("circle" in run for run in shown)


def test_a_log_that_grows_or_is_cut_back_is_shown_as_it_is(folder: Path, tmp_path: Path) -> None:
    stage = tmp_path / "sft/seed0/stages/00-sft"
    stage.mkdir(parents=True)
    log = stage / "metrics.jsonl"
    log.write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.0}\n{"step": 3, "lo')
    points = {step: value for step, (_, value) in view.read(tmp_path).scalars["sft/seed0/00-sft"]["loss"].items()}
    assert points == {1: 2.0, 2: 1.0}  # without the line that is being written
    log.write_text('{"step": 1, "loss": 2.0}\n')  # continued from an earlier checkpoint
    assert list(view.read(tmp_path).scalars["sft/seed0/00-sft"]["loss"]) == [1]
    (tmp_path / "summary.json").write_text("{")
    shutil.copytree(folder / "evals/mine", tmp_path / "other")
    (tmp_path / "other/scores.json").write_text('{"results": 3}')
    assert list(view.read(tmp_path).scalars) == ["sft/seed0/00-sft"]  # damaged files hide nothing else


def test_only_so_many_points_are_sent(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("".join(f'{{"step": {i}, "loss": {i}}}\n' for i in range(5000)))
    runs = view.Runs(tmp_path)
    query = {"experiment_id": "", "plugin_name": "scalars", "downsample": 100}
    sent = runs.read_scalars(**query)[tmp_path.name]["loss"]
    assert len(sent) == 100 and sent[0].step == 0 and sent[-1].step == 4999
    assert runs.read_scalars(**{**query, "plugin_name": "images"}) == {}


def test_pages_of_other_sites_are_refused_and_silent_connections_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "HEADERS", 0.3)
    address = view.serve(tmp_path, 0)
    tags = f"{address}data/plugin/scalars/tags"
    for headers, status in (
        ({}, 200),
        ({"Host": "localhost:6006", "Origin": address.rstrip("/")}, 200),
        ({"Host": "evil.test:6006"}, 403),
        ({"Origin": "http://evil.test"}, 403),
        ({"Content-Type": "text/plain", "Origin": "null"}, 403),
    ):
        asked = Request(tags, headers=headers)
        if status == 200:
            assert urlopen(asked).status == 200
        else:
            with pytest.raises(HTTPError, match="403"):
                urlopen(asked)
    for sent in (b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n"):
        with socket.create_connection(("127.0.0.1", int(address.split(":")[2].strip("/")))) as connection:
            connection.sendall(sent)
            assert connection.recv(1) == b""


def test_what_cannot_be_shown_is_said(tmp_path: Path) -> None:
    port = view.serve(tmp_path, 0).rsplit(":", 1)[1].strip("/")
    taken = [str(tmp_path), "--port", port]
    for arguments, said in (
        (["runs"], "`fit` writes runs/"),
        (["--port", "x"], "not a valid"),
        (taken, f"port {port}"),
    ):
        result = CliRunner().invoke(command, ["view", *arguments])
        assert result.exit_code != 0 and said in result.output


def pressed(_: float) -> None:
    """Ctrl-C."""
    raise KeyboardInterrupt


@pytest.mark.parametrize("n", [view.MOST_TICKED, view.MOST_TICKED + 1])
def test_more_runs_than_tensorboard_ticks_are_shown_where_it_ticks_them(
    n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(n):
        (tmp_path / f"run{i}").mkdir()
        (tmp_path / f"run{i}" / "metrics.jsonl").write_text('{"step": 1, "loss": 0.5}\n')
    monkeypatch.setattr("uni_train.cli.view.time.sleep", pressed)
    monkeypatch.setattr(view, "serve", lambda folder, port: "http://here")
    said = CliRunner().invoke(command, ["view", str(tmp_path)]).output
    assert (f"{n} runs: Scalars, Images and Text open with none" in said) == (n > view.MOST_TICKED)
    listed = [loader for loader in view.Viewer(tmp_path).plugin_loaders if hasattr(loader, "plugin_class")]
    assert listed[0].plugin_class.plugin_name == "timeseries"  # the page that opens


def test_ctrl_c_ends_it_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uni_train.cli.view.time.sleep", pressed)
    result = CliRunner().invoke(command, ["view", str(tmp_path), "--port", "0"])
    assert result.exit_code == 0 and result.output.splitlines()[-1] == "ended"
