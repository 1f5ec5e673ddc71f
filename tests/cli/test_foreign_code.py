"""No command that reads a folder runs code that lies in it or that it names; which commands there are, click says."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

import uni_train.view
from tests.commands import commands
from tests.eval.sample_evaluation import sample_evaluation
from uni_train import api
from uni_train.cli.main import uni_train as program
from uni_train.config.build import to_plain
from uni_train.config.compose import compose
from uni_train.config.kinds import code_of
from uni_train.core import registry
from uni_train.core.errors import UserError
from uni_train.data_gen.task import Item
from uni_train.models.nano.family import ASSETS

ROOT = Path(__file__).parents[2]
EVAL = "-b ureason --subset 1 world=nano"
COMMANDS: dict[str, tuple[str, ...]] = {
    "data audit": ("{}/items.jsonl",),
    "data audit-verifier": (),  # FUNCTION is code that the user types
    "data knowledge": (),
    "data make": (),
    "data show": ("{} --out sheet.png",),
    "data tasks": (),
    "data verify": ("--items {}/items.jsonl --images {} --out verdicts.jsonl",),
    "doctor": ("{}",),
    "eval": (f"{{}} {EVAL}", f"-c {{}} {EVAL} --plan"),
    "eval calibrate": (f"-c {{}} {EVAL} judge.model=http://127.0.0.1:9/v1#judge",),
    "eval compare": ("{} {}",),
    "eval export": ("{} --to lighteval", "{} --to model_card"),
    "eval leaderboard": ("{}",),
    "eval pool": ("{} {}",),
    "eval questions": (f"{EVAL} data.ureason={{}}",),
    "export": ("{} exported",),
    "fit": ("--recipe {}/config.yaml --dry-run",),
    "generate": ("-m {} -p x",),
    "insight attention": ("{} task=mapping n=1",),
    "insight links": ("{} task=mapping n=1",),
    "insight states": ("{} task=mapping n=1",),
    "launch": ("--nodes 1 --gpus 1 --torchrun --hosts a -- fit --recipe {}/config.yaml",),
    "models": (),
    "models inspect": ("{}",),
    "plan": ("--recipe {}/config.yaml",),
    "recipes": ("{}/config.yaml",),
    "report": ("{}",),
    "serve": ("-m {}",),
    "view": ("{} --port 0",),
    "watch": (f"{{}} --once {EVAL}",),
}
"""Command -> what is typed behind it, with the folder for {}; none where it reads no folder of others."""


def test_every_command_is_walked() -> None:
    alone = [words for words, one in commands() if not isinstance(one, click.Group) or one.invoke_without_command]
    assert sorted(alone) == sorted(COMMANDS)


class Pickled:
    def __init__(self, ran: Path) -> None:
        self.ran = ran

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.ran), "w")


def run(folder: Path) -> Path:
    """A finished run whose plug-in and reward are code of its author."""
    shutil.copytree(ASSETS, folder / "stages" / "00-train" / "model")
    (folder / "stages" / "00-train" / "manifest.json").write_text(
        json.dumps({"stage": "train", "status": "done", "key": "", "seconds": 1.0, "outputs": [], "result": {}})
    )
    values = to_plain(compose("flow_grpo_math"))
    values["plugins"] = ["evil"]
    values["rewards"] = {"mine": {"function": f"{folder / 'evil.py'}:score"}, "other": {"function": "evil:score"}}
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    return folder


def step(folder: Path) -> Path:
    saved = run(folder) / "stages" / "01-train" / "checkpoints" / "step=00000001"
    saved.mkdir(parents=True)
    (saved / "state.json").write_text('{"content": {"files": []}, "sha256": "0"}')
    return saved


def evaluation(folder: Path) -> Path:
    sample_evaluation(folder, 4)
    for file in (folder / "evaluation.json", folder / "scores.json"):
        file.write_text(file.read_text().replace('"sums"', '"evil"'))
    return folder


def pipeline(folder: Path, name: str | list[str] = "QwenImageEditPipeline") -> Path:
    """In diffusers' layout, of a library that happens to be installed."""
    parts = {part: ["evil", "Part"] for part in ("unet", "transformer", "vae", "scheduler")}
    (folder / "unet").mkdir(parents=True)
    (folder / "model_index.json").write_text(json.dumps({"_class_name": name, **parts}))
    shutil.copy(ASSETS / "model.safetensors", folder / "unet" / "diffusion_pytorch_model.safetensors")
    return folder


def own_pipeline(folder: Path) -> Path:
    return pipeline(folder, ["evil", "Pipeline"])


def janus(folder: Path) -> Path:
    """In transformers' layout; its JSON files name classes of a Python file beside them."""
    pytest.importorskip("transformers")
    from tests.models.janus.tiny import published

    published(folder)
    for file in ("config.json", "tokenizer_config.json", "preprocessor_config.json"):
        values = json.loads((folder / file).read_text())
        classes = {one: "evil.Part" for one in ("AutoConfig", "AutoModel", "AutoImageProcessor")}
        values["auto_map"] = {**classes, "AutoTokenizer": ["evil.Part", "evil.Part"]}
        (folder / file).write_text(json.dumps(values | {"tokenizer_class": "PartTokenizer"}))
    return folder


def pickles(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "evil", "auto_map": {"AutoModel": "evil.Part"}}')
    return folder


KINDS: list[Callable[[Path], Path]] = [step, evaluation, pipeline, own_pipeline, janus, pickles]
ASK = ("step",)  # for a plug-in


@pytest.fixture
def hostile(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a kind; code that makes tmp_path/ran lies in it, in the current folder and where modules are."""
    folder: Path = request.param(tmp_path / "theirs")
    lines = f"open({str(tmp_path / 'ran')!r}, 'w').close()\ndef score(**_):\n    return [1.0]\nclass Part:\n    pass\n"
    for place in (folder, tmp_path / "theirs", tmp_path / "site", tmp_path / "here"):
        place.mkdir(exist_ok=True)
        for name in ("evil.py", "__init__.py", "setup.py", "conftest.py"):
            (place / name).write_text(lines)
        for name in ("pytorch_model.bin", "model.pt", "optimizer.ckpt", "items.pkl"):
            (place / name).write_bytes(pickle.dumps(Pickled(tmp_path / "ran")))
    item = Item("evil/train/1", "evil", 1, "train", "Draw.", "one", {}, "Think.")
    (folder / "items.jsonl").write_text(json.dumps(item.to_dict()) + "\n")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv(registry.ENVIRONMENT, "")
    monkeypatch.setattr(registry, "_named", set())
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    return folder


def stop(*_: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize("hostile", KINDS, indirect=True, ids=lambda kind: kind.__name__)
def test_no_command_runs_code_of_a_folder(
    hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(uni_train.view, "serve", stop)
    monkeypatch.setattr("uni_train.serving.server.serve_forever", stop)
    monkeypatch.setattr(sys, "executable", "/bin/false")  # `watch` starts `eval`, which is walked itself
    for name, all_words in COMMANDS.items():
        for words in all_words:
            typed = [*name.split(), *words.replace("{}", str(hostile)).split()]
            ended = CliRunner().invoke(program, typed, input="y\ny\n")
            assert not (tmp_path / "ran").exists(), f"{typed} ran it"
            assert ended.exception is None or isinstance(ended.exception, SystemExit), f"{typed}: {ended.exception!r}"
            assert "Usage:" not in ended.output, ended.output
            if request.node.callspec.id in ASK and name in ("doctor", "generate", "models inspect", "serve"):
                assert f"{registry.ENVIRONMENT}=evil python -m uni_train" in ended.output, ended.output
    for call in (api.load_model, lambda path: api.Run(path).summary):
        with pytest.raises((UserError, registry.PluginError)):
            call(hostile)
    assert not (tmp_path / "ran").exists() and "evil" not in sys.modules


@pytest.mark.parametrize("hostile", [run], indirect=True, ids=["run"])
def test_who_names_a_plug_in_has_it(hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.load_plugins(["evil"])  # as UNI_TRAIN_PLUGINS or the recipe in use does
    (tmp_path / "ran").unlink()
    assert CliRunner().invoke(program, ["models", "inspect", str(hostile)]).exit_code == 0
    told = CliRunner().invoke(program, ["fit", str(hostile / "config.yaml"), "--dry-run"])
    assert told.exit_code == 1 and f"asks for the code of '{hostile / 'evil.py'}'" in told.stderr
    assert not (tmp_path / "ran").exists()
    named = {"plugins": ["evil"], "rewards": {"r": {"function": "evil:f", "python": "/evil/python"}}}
    assert code_of(named) == ["evil", "evil", "/evil/python"]


@pytest.mark.parametrize("hostile", [run], indirect=True, ids=["run"])
def test_nothing_is_imported_from_the_current_folder(hostile: Path, tmp_path: Path) -> None:
    for name in ("click", "yaml", "torch", "pydantic", "omegaconf", "evil"):
        shutil.copy(tmp_path / "here" / "evil.py", hostile / f"{name}.py")
    command = [sys.executable, "-m", "uni_train", "models", "inspect", "."]
    place = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=hostile, env=place, capture_output=True, text=True)
    assert (done.returncode, "UNI_TRAIN_PLUGINS=evil python -m uni_train" in done.stderr) == (1, True), done.stderr
    assert not (tmp_path / "ran").exists()
