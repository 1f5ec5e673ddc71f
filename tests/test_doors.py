"""The table "which of these is your model?" of docs/evaluation.md: the command of each row, on such a model."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from safetensors.torch import save_file

import uni_train as library
from tests.core.test_hub import hub, nano  # noqa: F401  # fixtures
from tests.models.bagel.conftest import FOLDER
from tests.models.bagel.published import published
from tests.served import served
from tests.test_docs import ROOT
from uni_train.cli.main import uni_train
from uni_train.data_gen.jsonl import read_objects
from uni_train.models.load import build_model, model_config
from uni_train.models.nano.family import ASSETS

ROWS = dict(
    re.findall(r"^\| (.+?) \| `(.+?)`", (ROOT / "docs/evaluation.md").read_text(encoding="utf-8"), re.MULTILINE)
)
FEW = ["--subset", "4", "world=nano"]
"""Added to each command."""


def answers(place: Path, stack: ExitStack) -> dict[str, str]:
    """Grey images for the questions that a command writes."""
    typed(["eval", "questions", "-b", "ureason", *FEW, "--out", "answers"])
    for _, row in read_objects(Path("answers/ureason/questions.jsonl")):
        file = Path("answers/ureason", row["setting"], f"{row['id'].replace('/', '-')}.png")
        file.parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((24, 24, 3), 128, np.uint8)).save(file)
    return {"FOLDER": "answers"}


def endpoint(place: Path, stack: ExitStack) -> dict[str, str]:
    address, _ = stack.enter_context(served(place / "log"))
    return {"http://HOST:PORT/v1#MODEL": f"{address}#nano"}


def pair(place: Path, stack: ExitStack) -> dict[str, str]:
    return {"IMAGE_MODEL": "nano", "TEXT_MODEL": "shipped"}


def bagel(place: Path, stack: ExitStack) -> dict[str, str]:
    return {"FOLDER": str(published(FOLDER, place / "BAGEL"))}


def pipeline(place: Path, stack: ExitStack) -> dict[str, str]:
    pytest.importorskip("diffusers")
    from tests.models.diffusers import tiny

    tiny.pipeline("stable_diffusion_3").save_pretrained(place / "SD3")
    return {"FOLDER_OR_HUB_ID": str(place / "SD3")}


def repository(place: Path, stack: ExitStack) -> dict[str, str]:
    return {"ORG/NAME": "org/name"}


def adapter(place: Path, stack: ExitStack) -> dict[str, str]:
    """A LoRA as kohya's scripts write it, of one layer."""
    layer = "language_model.model.layers.0.self_attn.o_proj"
    out, inner = build_model(model_config("nano")).get_submodule(f"bagel.{layer}").weight.shape
    name = f"lora_unet_{layer.replace('.', '_')}"
    tensors = {f"{name}.lora_down.weight": torch.ones(2, inner), f"{name}.lora_up.weight": torch.ones(out, 2)}
    save_file(tensors | {f"{name}.alpha": torch.tensor(0.1)}, place / "mine.safetensors")
    return {"MODEL+ADAPTER": f"shipped+{place / 'mine'}"}


def trained(place: Path, stack: ExitStack) -> dict[str, str]:
    folder = Path("runs/stars_curriculum/seed0/stages/03-finetune")
    shutil.copytree(ASSETS, folder / "model")
    (folder / "manifest.json").write_text('{"outputs": [], "key": "", "result": {}}')
    model = (ROOT / "configs/model/nano.yaml").read_text(encoding="utf-8").replace("\n", "\n  ")
    (folder.parents[1] / "config.yaml").write_text(f"recipe: stars_curriculum\nmodel:\n  {model}")
    return {"-b all": "-b unisandbox,ureason"}


DOORS: dict[str, Callable[[Path, ExitStack], dict[str, str]]] = {
    "images or texts that you have already": answers,
    "an OpenAI-compatible server": endpoint,
    "two models: a language model before an image model": pair,
    "a BAGEL fine-tune, or Qwen-Image-Edit": bagel,
    "a pipeline of diffusers": pipeline,
    "a repository of the Hub": repository,
    "a LoRA of another trainer": adapter,
    "a run of uni_train": trained,
}
"""Row -> what lays a model out, and what the command says in its place."""


def typed(words: list[str]) -> str:
    result = CliRunner().invoke(uni_train, words, catch_exceptions=False, terminal_width=100)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.slow
@pytest.mark.usefixtures("nano")
@pytest.mark.parametrize("row", DOORS)
def test_the_command_of_a_row_scores_such_a_model(row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ROWS[row]
    with ExitStack() as stack:
        for word, said in DOORS[row](tmp_path, stack).items():
            assert word in command
            command = command.replace(word, said)
        draws_elsewhere = DOORS[row] in (endpoint, answers)
        quick = [] if draws_elsewhere else ["sampling.steps=1", "sampling.max_think_tokens=4"]
        typed([*shlex.split(command)[3:], *FEW, *quick])
    assert [*Path("evals").glob("*/scores.json")]


def test_a_function_is_scored_and_every_row_is_tested(tmp_path: Path) -> None:
    names = {"uni_train": library, "model": lambda prompt, images, seed: np.zeros((24, 24, 3), np.uint8)}
    row = "a Python object or function"
    code = ROWS[row].replace('"ureason")', f'"ureason", subset=4, world="nano", out="{tmp_path}")')
    assert eval(code, names).results["ureason"].scores
    models = {name for name, command in ROWS.items() if "eval" in command}
    assert models == {row, *DOORS}
