"""Think-distillation from prompts to a report: all sources of states, filters of thoughts, killed starts, refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.eval.judges.server import JudgeServer
from tests.models.bagel.conftest import FOLDER
from tests.models.bagel.published import published
from tests.recipes.stars.test_judged import opinion
from tests.test_run_stages import assert_clear
from tests.tiny import MODEL, QUICK, finish, fit, save_drawer, save_talker
from tests.training.keys import Killed, killed_after
from uni_train.config.compose import compose
from uni_train.core.errors import UsageError
from uni_train.data_gen.registry import get_task
from uni_train.eval.scored import read_folder
from uni_train.eval.task_benchmark import TaskBenchmark
from uni_train.models.base import Example, Request, States
from uni_train.models.load import build_model
from uni_train.models.nano.nano import Nano
from uni_train.models.pictures import encode_png
from uni_train.recipes.distil import drawing, thinking
from uni_train.recipes.distil.config import DistilConfig
from uni_train.stages.first_update import describe
from uni_train.training.metric_log import read_metrics

RECIPE = "distil_curriculum"
ROUNDS = "rounds=[{task:mapping,level:1},{task:mapping,level:2,replay:{mapping1:0.25,thoughts:0.25}}]"


@pytest.fixture(scope="module")
def drawer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_drawer(tmp_path_factory.mktemp("models") / "drawer")


@pytest.fixture(scope="module")
def quick(drawer: Path) -> tuple[str, ...]:
    longer = ("rounds.0.updates=12", "optimizer.lr=0.003", "optimizer.warmup_updates=0")
    return (*QUICK, ROUNDS, *longer, f"model.checkpoint={drawer}", "batch.noise_draws=2")


@pytest.fixture(scope="module")
def by_teacher(quick: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two rounds that learns at the teacher's states; read-only."""
    return finish(tmp_path_factory.mktemp("teacher"), *quick, "states=teacher", recipe=RECIPE)


def summary(run: Path) -> dict[str, Any]:
    return json.loads((run / "summary.json").read_text(encoding="utf-8"))


def errors(run: Path) -> list[float]:
    """The mse of all updates of the first round."""
    log = min(run.glob("stages/*-distil-*/metrics.jsonl"))
    return [line["mse"] for line in read_metrics(log)]


# --- what is learned ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("states", "images", "velocities", "rollout"),
    [("teacher", 8, 16, 0), ("noised", 8, 16 + 12 * 8 * 2, 0), ("student", 0, 12 * 8 * 2, 12 * 8)],
)
def test_every_source_of_states_brings_the_student_nearer(
    quick: tuple[str, ...], by_teacher: Path, tmp_path: Path, states: str, images: int, velocities: int, rollout: int
) -> None:
    more = ["teacher=ema"] if states == "student" else ["rounds=[{task:mapping,level:1,updates:12}]"]
    run = by_teacher if states == "teacher" else finish(tmp_path, *quick, f"states={states}", *more, recipe=RECIPE)
    (first, *later) = summary(run)["rounds"]
    calls = {"thoughts": 8, "answers": 0, "images": images, "velocities": velocities, "rollout": rollout}
    assert first["calls"] == calls and first["kept"] == 8 and len(later) == (states != "noised")
    assert len(list(read_folder(run / "stages/01-think-mapping1/shards"))) == 8
    losses = errors(run)
    assert 0 < sum(losses[-4:]) < 0.5 * sum(losses[:4]), losses
    assert "distil-mapping1" in (run / "report.html").read_text(encoding="utf-8")


def test_a_given_state_is_learned_as_a_noised_image_is() -> None:
    model = build_model(compose(RECIPE, MODEL).model)
    assert isinstance(model, Nano)
    torch.nn.init.normal_(model.bagel.llm2vae.weight, generator=torch.Generator().manual_seed(0))
    model.prepare_training(timestep_shift=4.0, text_dropout=0.0)
    picture = np.random.default_rng(0).integers(0, 255, (24, 24, 3)).astype(np.uint8)
    (noised,) = model.collate([Example("Draw 3 apples .", target=picture, noise_draws=2, seed=5)], 0)
    t = 4 * torch.sigmoid(noised.logit) / (1 + 3 * torch.sigmoid(noised.logit))
    clean, noise = (x.reshape(2, 9, -1).numpy() for x in (noised.clean_BGC, noised.noise_BGC))
    given = Example("Draw 3 apples .", states=States(t.double().numpy(), clean, noise, (24, 24)))
    assert model.example_tokens(given) == model.example_tokens(
        Example("Draw 3 apples .", target=picture, noise_draws=2)
    )
    one, other = (model.supervised_loss(batch) for batch in ([noised], model.collate([given], 0)))
    torch.testing.assert_close(one.mse_sum, other.mse_sum)
    assert int(one.mse_tokens) == int(other.mse_tokens) == 18


# --- thoughts and filters -------------------------------------------------------------------------------------------


class Thinker:
    """Thinks what it is told to, and says the same answer to all questions."""

    def __init__(self, thoughts: Sequence[str], says: str) -> None:
        self.thoughts, self.says = thoughts, says

    def think(self, requests: Sequence[Request], temperature: float | None = None) -> list[str]:
        return [self.thoughts[i % len(self.thoughts)] for i in range(len(requests))]

    def answer(self, requests: Sequence[Request]) -> list[str]:
        return [self.says] * len(requests)


@pytest.mark.parametrize(
    ("filter_", "kept"),
    [("none", [1, 1, 1, 1]), ("agreement", [1, 0, 1, 1]), ("self", [0, 1, 0, 0]), ("verifier", [1, 0, 1, 1])],
)
def test_filters_keep_what_they_say(filter_: str, kept: list[int]) -> None:
    config = compose(RECIPE, [f"filter={filter_}", "candidates=4", "temperature=1"])
    assert isinstance(config, DistilConfig)
    item = get_task("mapping", "nano").sample(1, 1)[0]
    right = item.thought.rpartition("So draw ")[2]
    model = Thinker([item.thought, "A means B . So draw 6 fish .", f"So draw {right}", item.thought], "6 fish")
    asks = TaskBenchmark.from_items([item], "cot").asks(0, 4)
    samples = thinking.decided(config, model, thinking.thoughts(model, asks, None))  # type: ignore[arg-type]
    assert [one.passed for one in samples] == [True, False, True, True]
    assert [int(one.filter_verdict.passed) for one in samples if one.filter_verdict is not None] == kept
    assert thinking.spread(samples) == 1.0 and thinking.spread([samples[0], *samples[2:]]) == 0.0
    nothing = Thinker(["the sky", "So draw 6 fish .", "So draw 5 fish .", f"So draw {right}"], "?")
    for filter__ in ("agreement", "self"):
        config = compose(RECIPE, [f"filter={filter__}", "candidates=4", "temperature=1"])
        assert isinstance(config, DistilConfig)
        found = thinking.decided(config, nothing, thinking.thoughts(nothing, asks, None))  # type: ignore[arg-type]
        verdicts = [one.filter_verdict for one in found if one.filter_verdict is not None]
        assert not any(verdict.passed for verdict in verdicts) and verdicts[0].reason == "concludes nothing"


@pytest.mark.slow
def test_thoughts_that_all_agree_are_kept_until_there_are_enough(tmp_path: Path) -> None:
    talker = save_talker(tmp_path / "talker", "So draw 3 apples .")
    overrides = ("filter=agreement", "candidates=4", "temperature=0.01", f"model.checkpoint={talker}")
    rounds = "rounds=[{task:mapping,level:1,prompts:40,kept:6,epochs:2}]"
    result = fit(tmp_path, *QUICK, *overrides, rounds, "model.think_batch=8", recipe=RECIPE)
    assert_clear(result, "nothing was learned")  # its layers write nothing, so a thought changes no velocity
    kept, drawn = (
        json.loads(next(tmp_path.glob(f"*/*/stages/*-{stage}-mapping1/manifest.json")).read_text())["result"]
        for stage in ("think", "draw")
    )
    assert (kept["sampled"], kept["kept"], kept["used"]) == (8, 8, 6) and drawn["images"] == 6


@pytest.mark.slow
def test_thoughts_that_are_all_filtered_out_are_an_error_that_says_why(quick: tuple[str, ...], tmp_path: Path) -> None:
    said = "keeps none of the 8 thoughts about mapping1"
    result = fit(tmp_path, *quick, "filter=verifier", recipe=RECIPE)
    assert_clear(result, "filter=verifier", said, "concludes nothing: ", "filter=none")
    before = sorted(tmp_path.rglob("*.parquet"))
    assert len(before) == 2 and not list(tmp_path.rglob("*think*/manifest.json"))
    assert_clear(fit(tmp_path, *quick, "filter=verifier", recipe=RECIPE), said)
    assert sorted(tmp_path.rglob("*.parquet")) == before, "nothing is lost or made again"


# --- killed starts --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_killed_while_drawing_and_training_it_ends_as_the_unbroken_one(
    quick: tuple[str, ...], by_teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the teacher's states; tests/multinode kills one that learns by the student's."""
    wrote, overrides = drawing.save_file, (*quick, "states=teacher")

    def die_drawing(tensors, path) -> None:
        wrote(tensors, path)
        if "00001" in str(path):
            raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(drawing, "save_file", die_drawing)
        fit(tmp_path, *overrides, recipe=RECIPE)
    with killed_after(10):
        fit(tmp_path, *overrides, recipe=RECIPE)
    killed = finish(tmp_path, *overrides, recipe=RECIPE)
    files = [*by_teacher.glob("stages/*/model/*.safetensors"), *by_teacher.glob("stages/*/metrics.jsonl")]
    files += by_teacher.glob("stages/*/shards/*.safetensors")
    assert len(files) >= 2
    for file in files:
        assert (killed / file.relative_to(by_teacher)).read_bytes() == file.read_bytes(), file
    assert summary(killed)["rounds"][0]["calls"] == summary(by_teacher)["rounds"][0]["calls"]


# --- editing --------------------------------------------------------------------------------------------------------

MAZE = (
    *("model.architecture.layers=1", "model.architecture.hidden_size=32", "model.architecture.intermediate_size=32"),
    *("model.threads=1", "model.sampling.steps=3", "model.draw_batch=4", "batch.prompts=4", "checkpoint_every=2"),
    *("optimizer.warmup_updates=0", "evaluation.n=2", "rounds=[{task:maze,level:4,prompts:6,updates:4}]"),
)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A teacher that has seen mazes with and without their steps, two updates long."""
    place, task = tmp_path_factory.mktemp("told"), get_task("maze", "nano")
    rows = []
    for number, item in enumerate(task.generate(6, 4, "train", 0)):
        (place / f"in{number}.png").write_bytes(encode_png(task.input_image(item)))
        (place / f"out{number}.png").write_bytes(encode_png(task.render(item)))
        rows.append(item.to_dict() | {"images": [f"in{number}.png"], "image": f"out{number}.png"})
    (place / "items.jsonl").write_text("\n".join(map(json.dumps, rows)))
    given = [f"sources.{name}.path={place / 'items.jsonl'}" for name in ("mazes", "told")]
    short = ("updates=2", "batch.rows=4", "held_out.task=null", "optimizer.warmup_updates=0")
    return finish(place, *MAZE[:4], *given, *short, recipe="sft_maze_told") / "stages/00-sft/model"


@pytest.mark.slow
@pytest.mark.parametrize("states", ["teacher", "student"])
def test_an_editor_learns_to_draw_what_it_was_told_in_steps(told: Path, tmp_path: Path, states: str) -> None:
    whole = finish(tmp_path, *MAZE, f"model.checkpoint={told}", f"states={states}", recipe="distil_maze")
    (entry,) = summary(whole)["rounds"]
    assert (entry["sampled"], entry["kept"], entry["calls"]["thoughts"]) == (6, 6, 0)
    samples = list(read_folder(whole / "stages/01-think-maze4/shards"))
    assert all(one.passed and one.sample.thought.startswith("From S go ") for one in samples)
    losses = errors(whole)
    assert all(np.isfinite(losses)) and max(losses) > 0, "told and untold the velocities differ"


@pytest.mark.parametrize(
    ("recipe", "overrides"),
    [
        ("distil_maze", ["model.thinks=false"]),
        ("stars_maze", ["mode=cot"]),
        ("sft_maze", ["sources.mazes.show_thought=true"]),
        ("flow_grpo_maze", ["thoughts={}"]),
    ],
)
def test_an_editor_without_thoughts_is_refused_by_name(recipe: str, overrides: list[str]) -> None:
    with pytest.raises(UsageError, match="model=nano_edit cannot think"):
        compose(recipe, overrides)


# --- BAGEL in the published layout ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bagel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    folder = published(FOLDER, tmp_path_factory.mktemp("published") / "BAGEL")
    with JudgeServer(opinion) as server:
        yield (
            *("model=bagel_7b", f"model.checkpoint={folder}", f"judge.model='{server.url}#judge'", "model.threads=1"),
            *("model.draw_batch=4", "model.sampling.steps=3", "model.sampling.max_think_tokens=2"),
            *("strategy.precision=32-true", "batch.prompts=4", "batch.accumulate=2", "evaluation.n=1"),
        )


# A round draws 4 prompts in 3 steps and has 2 updates of 4 prompts at 1 state (mapping) or 2 (mazes).
MAPPING = ("data.distractors=0", "rounds=[{task:mapping,level:1,prompts:4,kept:4,updates:2}]")
EDITS = (
    *("data.world=everyday", "rounds=[{task:maze,level:4,prompts:4,updates:2}]", "pretrain_replay=0"),
    *("evaluation.sets=[maze4]", "thoughts=reference"),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "overrides", "velocities"),
    [
        (RECIPE, (*MAPPING, "states=teacher", "guidance=4", "model.sampling.cfg_text_scale=1"), 4 * 3),
        (RECIPE, (*MAPPING, "states=student", "trained=lora"), 2 * 4),
        ("distil_maze", (*EDITS, "trained=moe_gen"), 4 * 3 + 2 * 4 * 2),  # drawn with guidance, learned without
    ],
)
def test_a_tiny_bagel_distils_its_thoughts_and_edits(
    bagel: tuple[str, ...], tmp_path: Path, recipe: str, overrides: tuple[str, ...], velocities: int
) -> None:
    run = finish(tmp_path, *bagel, "evaluation.sets=[mapping1]", *overrides, recipe=recipe)
    (entry,) = summary(run)["rounds"]
    assert entry["calls"]["velocities"] == velocities
    assert all(np.isfinite(mse) and mse > 0 for mse in errors(run))


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model=qwen_image_edit"], "takes no model=qwen_image_edit"),
        (["model=nano_edit", "scale=nano"], "model=nano_edit edits images"),
        (["thoughts=reference", "filter=self"], "each prompt has one thought, and filter=self"),
        (["thoughts=reference", "candidates=2", "temperature=1"], "each prompt has one thought, and candidates=2"),
        (["candidates=4"], "at temperature 0 all thoughts of a prompt are the same"),
        (["filter=agreement", "candidates=2", "temperature=1"], "have no majority"),
        (["teacher=ema", "trained=lora"], "teacher=ema averages weights"),
        (["weighting=kl"], "states=noised has none"),
        (["teacher=ema", "strategy=fsdp2"], "strategy=fsdp2 shards them"),
        (["model=bagel_7b", "guidance=4"], "would guide it once more"),
        (["states=teachers"], "states"),
        (["rounds=[]"], "rounds is empty"),
    ],
)
def test_keys_that_do_not_fit_together(overrides: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        compose(RECIPE, overrides)
    assert message in caught.value.message


@pytest.mark.parametrize("overrides", [(), ("model=bagel_7b",)])
def test_the_first_update_is_told_without_weights(overrides: tuple[str, ...]) -> None:
    tiny = () if "model=bagel_7b" in overrides else (*MODEL, "batch.prompts=8")
    said = "\n".join(describe(compose(RECIPE, [*tiny, *overrides])))
    assert "one update: " in said and "unknown" not in said, said
    assert "the teacher is a second model in memory" in said
