"""Another model as the teacher: of nano, BAGEL and a pipeline of diffusers; what cannot teach is refused by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.eval.judges.server import JudgeServer
from tests.models.bagel.conftest import FOLDER
from tests.models.bagel.published import published
from tests.recipes.stars.test_judged import opinion
from tests.test_run_stages import assert_clear
from tests.tiny import MODEL, QUICK, finish, fit, save_drawer
from tests.training.keys import killed_after
from uni_train.config.compose import compose
from uni_train.core.errors import UsageError
from uni_train.models.load import build_model, save_model
from uni_train.stages.first_update import describe
from uni_train.training.metric_log import read_metrics

RECIPE = "distil_curriculum"
ROUND = "rounds=[{task:mapping,level:1,prompts:8,updates:12}]"
PLAIN = ("states=student", "thoughts=none")
Models = Callable[[str], Path]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """A folder of a model by its name, made when it is asked for."""
    place = tmp_path_factory.mktemp("models")

    def changed(folder: Path, file: str, part: str) -> Path:
        """The folder with other numbers in the tensors whose names begin with `part`."""
        generator = torch.Generator().manual_seed(1)
        weights = load_file(folder / file)
        for name, tensor in weights.items():
            if name.startswith(part):
                weights[name] = tensor + 0.1 * torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)
        save_file(weights, folder / file)
        return folder

    def sized(folder: Path, *keys: str) -> Path:
        save_model(build_model(compose("stars_curriculum", [*MODEL, *keys]).model), folder)
        return folder

    @cache
    def made(name: str) -> Path:
        folder, kind = place / name, name.partition("-")[0]
        if kind == "flux":
            from tests.models.diffusers.tiny import pipeline

            pipeline("flux", seed=int(name == "flux-other")).save_pretrained(folder)
            if name == "flux-other":
                shutil.copytree(made("flux") / "vae", folder / "vae", dirs_exist_ok=True)
        elif kind == "bagel":
            published(FOLDER, folder)
            if name == "bagel-other":
                changed(folder, "ema.safetensors", "llm2vae")
            if name == "bagel-speechless":
                (folder / "tokenizer.json").unlink()
        elif name == "nano-vae":
            changed(Path(shutil.copytree(made("nano-other"), folder)), "model.safetensors", "vae.")
        elif name == "nano-narrow":
            sized(folder, "model.architecture.latent_channels=4")
        elif name == "nothing":
            folder.mkdir()
        elif name != "absent":
            save_drawer(folder, seed=len(name))
        return folder

    return made


def nano(models: Models, *overrides: str) -> tuple[str, ...]:
    faster = ("batch.noise_draws=2", "optimizer.lr=0.003", "optimizer.warmup_updates=0")
    return (*QUICK, ROUND, *faster, f"model.checkpoint={models('nano')}", *overrides)


def only_round(run: Path) -> dict[str, Any]:
    (entry,) = json.loads((run / "summary.json").read_text(encoding="utf-8"))["rounds"]
    return entry


def errors(run: Path) -> list[float]:
    """The mean squared distance of velocities at each update."""
    return [line["mse"] for line in read_metrics(next(run.glob("stages/*-distil-*/metrics.jsonl")))]


@pytest.fixture(scope="module")
def followed(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that follows another nano on the student's own states; read-only."""
    overrides = nano(models, *PLAIN, f"teacher={models('nano-other')}")
    return finish(tmp_path_factory.mktemp("followed"), *overrides, recipe=RECIPE)


# --- what is learned ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_student_comes_nearer_on_its_own_states_and_the_run_says_who_taught(models: Models, followed: Path) -> None:
    losses, entry = errors(followed), only_round(followed)
    assert 0 < sum(losses[-4:]) < 0.5 * sum(losses[:4]), losses
    calls = {"thoughts": 0, "answers": 0, "images": 0, "velocities": 12 * 8 * 2, "rollout": 12 * 8}
    assert entry["calls"] == calls and (entry["sampled"], entry["kept"]) == (8, 8)
    assert entry["precision"] is None, "nothing is filtered, so no filter is measured"
    (teacher,) = entry["teachers"].values()
    assert (teacher["name"], teacher["source"]) == ("nano-other", str(models("nano-other")))
    manifest = json.loads(next(followed.glob("stages/*-distil-mapping1/manifest.json")).read_text())
    assert manifest["result"]["teachers"] == {"teacher": teacher}
    assert f"teacher: nano-other ({teacher['content']})" in (followed / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_two_teachers_are_followed_at_once(models: Models, tmp_path: Path) -> None:
    two = f"teachers={{large:{{checkpoint:{models('nano-other')},weight:3}},small:{{checkpoint:{models('nano-3')}}}}}"
    run = finish(tmp_path, *nano(models, *PLAIN, two), recipe=RECIPE)
    losses, entry = errors(run), only_round(run)
    assert 0 < sum(losses[-4:]) < 0.5 * sum(losses[:4]), losses
    assert entry["calls"]["velocities"] == 2 * 12 * 8 * 2
    assert {key: who["name"] for key, who in entry["teachers"].items()} == {
        "teachers.large": "nano-other",
        "teachers.small": "nano-3",
    }


@pytest.mark.slow
def test_killed_while_it_follows_another_model_it_ends_as_the_unbroken_run(
    models: Models, followed: Path, tmp_path: Path
) -> None:
    overrides = nano(models, *PLAIN, f"teacher={models('nano-other')}")
    with killed_after(7):
        fit(tmp_path, *overrides, recipe=RECIPE)
    killed = finish(tmp_path, *overrides, recipe=RECIPE)
    files = [*followed.glob("stages/*/model/*.safetensors"), *followed.glob("stages/*/metrics.jsonl")]
    assert len(files) == 2
    for file in files:
        assert (killed / file.relative_to(followed)).read_bytes() == file.read_bytes(), file


BAGEL = (
    *("model=bagel_7b", "model.threads=1", "model.draw_batch=4", "model.sampling.steps=3", "batch.prompts=4"),
    *("model.sampling.max_think_tokens=2", "strategy.precision=32-true", "evaluation.n=1", "data.distractors=0"),
    *("evaluation.sets=[mapping1]", "rounds=[{task:mapping,level:1,prompts:4,kept:4,updates:2}]", "batch.accumulate=2"),
)
FLUX = (
    *("model=diffusers", "scale=nano", "model.threads=1", "model.architecture.image_size=32", "model.draw_batch=4"),
    *("model.sampling.steps=3", "model.sampling.cfg_text_scale=1", "trained=all", "batch.prompts=4", *QUICK[-2:]),
    *("evaluation.n=1", "pretrain_replay=0", "rounds=[{task:mapping,level:1,prompts:4,updates:2}]", "filter=none"),
)


@pytest.fixture(scope="module")
def judge() -> Iterator[str]:
    with JudgeServer(opinion) as server:
        yield f"judge.model='{server.url}#judge'"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("student", "overrides"),
    [
        ("nano", ("states=teacher", "thoughts=model")),
        ("nano", ("states=noised", "thoughts=reference")),
        ("nano", (*PLAIN, "guidance=3")),
        ("bagel", (*PLAIN, "weighting=kl")),
        ("bagel", ("states=noised", "thoughts=model", "trained=lora")),
        ("flux", PLAIN),
        ("flux", ("states=teacher", "thoughts=none")),
    ],
)
def test_every_family_follows_another_checkpoint_of_its_latent_space(
    models: Models, judge: str, tmp_path: Path, student: str, overrides: tuple[str, ...]
) -> None:
    given = {"nano": nano(models), "bagel": (*BAGEL, judge), "flux": FLUX}[student]
    whom = (f"model.checkpoint={models(student)}", f"teacher={models(f'{student}-other')}")
    run = finish(tmp_path, *given, *whom, *overrides, recipe=RECIPE)
    losses = errors(run)
    assert all(np.isfinite(losses)) and min(losses) > 0, losses
    assert only_round(run)["teachers"]["teacher"]["name"] == f"{student}-other"


# --- refusals -------------------------------------------------------------------------------------------------------

SPACE = "has another latent space than the student"


@pytest.mark.parametrize(
    ("teacher", "overrides", "said"),
    [
        ("absent", (), "teacher.checkpoint: there is nothing at"),
        ("nothing", (), "is an empty folder, not a model that can be loaded"),
        ("bagel", ("thoughts=none",), f"{SPACE}: pixels a side of a token (16, not 8)"),
        ("bagel-speechless", (), "there is no tokenizer in"),
        ("flux", ("thoughts=none",), f"{SPACE}: pixels a side of a token (4, not 8)"),
        ("flux", (), "thoughts=model needs thoughts, and model=diffusers cannot think"),
        ("nano-narrow", (), f"{SPACE}: numbers a token (4, not 8)"),
        pytest.param("nano-vae", (), f"{SPACE}: weights of the VAE", marks=pytest.mark.slow),
    ],
)
def test_a_checkpoint_that_cannot_teach_is_refused_before_training(
    models: Models, tmp_path: Path, teacher: str, overrides: tuple[str, ...], said: str
) -> None:
    result = fit(tmp_path, *nano(models, f"teacher={models(teacher)}", *overrides), recipe=RECIPE)
    assert_clear(result, "teacher", said)
    assert not list(tmp_path.rglob("*-distil-*/metrics.jsonl"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["teachers={a:{checkpoint:b,weight:0}}"], "teachers.a.weight must be greater than 0, not 0"),
        (["teachers={a:{checkpoint:b,weight:-1}}"], "teachers.a.weight must be greater than 0, not -1"),
        (["teachers={a:{weight:1}}"], "missing key teachers.a.checkpoint"),
        (["teacher={checkpoint:b,weight:2}"], "unknown key teacher.weight"),
        (["teacher=base"], "teacher must be one of start, ema or a section with keys, not 'base'"),
        (["teachers={a:{checkpoint:b}}", "teacher=ema"], "teachers and teacher both say who teaches"),
        (["teachers={a:{checkpoint:b}}", "teacher=b"], "teachers and teacher both say who teaches"),
        (["teachers={a:{checkpoint:b},b:{checkpoint:c}}", "thoughts=none"], "of 2 teachers none thinks or draws"),
        (["teachers={a:{checkpoint:b},b:{checkpoint:c}}", "states=student"], "of 2 teachers none thinks or draws"),
        (["thoughts=none"], "would be one model with one prompt"),
        (["thoughts=none", "teacher=b", "filter=self"], "each prompt has no thought, and filter=self"),
        (["thoughts=none", "teacher=b", "candidates=2", "temperature=1"], "has no thought, and candidates=2"),
        (["thoughts=none", "teacher=b", "rounds.0.replay.thoughts=0.1"], "leaves no thoughts to replay"),
        (["teacher=b", "model=bagel_7b", "guidance=4"], "would guide it once more"),
    ],
)
def test_keys_of_teachers_that_do_not_fit_together(overrides: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        compose(RECIPE, overrides)
    assert message in caught.value.message


def test_a_dry_run_counts_every_teacher_in_memory(models: Models) -> None:
    two = f"teachers={{a:{{checkpoint:{models('nano-other')}}},b:{{checkpoint:{models('nano-3')}}}}}"
    said = describe(compose(RECIPE, nano(models, *PLAIN, two)))
    counted = [line for line in said if "is another model in memory" in line]
    assert [line.partition(" is")[0] for line in counted] == ["teachers.a", "teachers.b"]


@pytest.mark.parametrize("recipe", [RECIPE, "stars_curriculum"])
def test_a_run_or_a_checkpoint_by_its_path_is_one_key_and_is_recorded_as_its_folder(recipe: str) -> None:
    config = compose(recipe, ["teacher=runs/a/b", "teacher.checkpoint='runs/a/b/stages/00-sft/model'"])
    assert {key: other.checkpoint for key, other in config.other_teachers.items()} == {  # type: ignore[attr-defined]
        "teacher": "runs/a/b/stages/00-sft/model"
    }
