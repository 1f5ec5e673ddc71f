"""nano_edit: pictures of any size go in and come out as they are; recipes of mazes and puzzles, one after the other."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from tests.tiny import finish, fit
from uni_train.cli.main import uni_train
from uni_train.config.compose import compose
from uni_train.core.errors import UsageError, UserError
from uni_train.data_gen.puzzle import Puzzle
from uni_train.data_gen.registry import get_task
from uni_train.eval.scored import read_scored
from uni_train.models.base import Example, Request, Turn
from uni_train.models.load import build_model, model_config, save_model
from uni_train.models.nano.edit import STEPS, NanoEdit, SentenceTokenizer
from uni_train.training.metric_log import read_metrics

SMALL = ("model.architecture.layers=1", "model.architecture.hidden_size=32", "model.architecture.intermediate_size=32")


def test_pictures_of_every_size_are_edited_at_their_size_and_latents_are_pixels() -> None:
    model = build_model(compose("sft_maze", SMALL).model)
    task = get_task("maze", "nano")
    items = [task.sample(0, level, "test")[0] for level in (2, 4, 7)]
    images = [np.asarray(task.input_image(item)) for item in items]
    requests = [Request(i.id, i.prompt, (image,), seed=1) for i, image in zip(items, images, strict=True)]
    assert [picture.shape for picture in model.draw(requests)] == [image.shape for image in images]
    condition = model.encode(requests)
    x = model.noise(requests)
    assert x.shape == (3, 64, 48) and bool((x[0, 9:] == 0).all())
    alone = model.velocity(model.noise(requests[:1]), 0.5, condition.select([0]))
    assert torch.allclose(model.velocity(x, 0.5, condition)[0, :9], alone[0], atol=1e-4)
    with pytest.raises(UserError, match="does not know the instruction"):
        model.draw([Request("x", "Draw a cat", (images[0],))])


def test_the_loss_is_that_of_the_clean_picture_and_attention_begins_nearby() -> None:
    model = build_model(compose("sft_maze").model)
    task = get_task("maze", "nano")
    item = task.sample(0, 4, "train")[0]
    shown, target = np.asarray(task.input_image(item)), np.asarray(task.render(item))
    model.prepare_training(timestep_shift=3.0, text_dropout=0.0)
    batch = model.collate([Example(item.prompt, (shown,), target=target, noise_draws=2)], 0)
    found = model.supervised_loss(batch)
    # A fresh head puts out zeros: what it misses is the picture itself, whatever the noise and its level.
    pixels = torch.from_numpy(target.copy()).float() / 127.5 - 1
    assert found.mse_tokens == 50
    torch.testing.assert_close(found.mse_sum / found.mse_tokens, pixels.square().mean())

    attention = model.bagel.language_model.model.layers[0].self_attn
    places = [row * 8 + column for row in range(5) for column in range(5)]
    x = torch.nn.functional.normalize(model.bagel.latent_pos_embed(torch.tensor(places)), dim=-1)
    assert torch.equal(attention.q_proj_moe_gen(x), attention.k_proj_moe_gen(x))
    heads = torch.nn.functional.normalize(attention.q_proj_moe_gen(x).unflatten(-1, (2, 32)).transpose(0, 1), dim=-1)
    match = (heads @ heads.transpose(1, 2)).mean(0)
    row, column = torch.tensor(places) // 8, torch.tensor(places) % 8
    far = (row[:, None] - row).abs() + (column[:, None] - column).abs()
    assert bool((match.diagonal() > match[far == 1].max()).all())
    assert float(match[far == 1].min()) > float(match[far >= 4].max())


PUZZLES = compose("sft_puzzle").model.puzzles


@cache
def puzzle_editor() -> NanoEdit:
    model = build_model(compose("sft_puzzle", [*SMALL, "model.sampling.steps=2"]).model)
    assert isinstance(model, NanoEdit)
    model.prepare_training(timestep_shift=3.0, text_dropout=0.0)
    return model


@pytest.mark.parametrize("name", PUZZLES)
def test_puzzles_of_each_level_are_read_learned_and_drawn_at_their_size(name: str) -> None:
    model, task = puzzle_editor(), get_task(name, "nano")
    assert isinstance(task, Puzzle)
    items = [task.sample(7, level, "test")[0] for level in task.nano_levels or task.levels]
    assert [len(model.tokenizer.encode(item.prompt)) for item in items] == [1] * len(items)
    assert {item.prompt for item in items} == set(task.prompts())
    shown = [task.input_image(item) for item in items]
    examples = [
        Example(item.prompt, (image,), target=task.render(item), noise_draws=2)
        for item, image in zip(items, shown, strict=True)
    ]
    assert all(model.example_tokens(example) for example in examples)
    loss = model.supervised_loss(model.collate(examples, 0))
    assert loss.mse_tokens == sum(2 * image.shape[0] * image.shape[1] // 16 for image in shown)
    assert float(loss.mse_sum) > 0
    requests = [Request(item.id, item.prompt, (image,)) for item, image in zip(items, shown, strict=True)]
    assert [drawn.shape for drawn in model.draw(requests)] == [image.shape for image in shown]


def test_what_nano_edit_cannot_read_is_refused() -> None:
    with pytest.raises(UsageError, match=r"model.puzzles.0: unknown puzzle sudoko"):
        compose("sft_puzzle", ["model.puzzles=[sudoko]"])
    with pytest.raises(UsageError, match=r"model.puzzles.0: the prompts of clock differ"):
        compose("sft_puzzle", ["model.puzzles=[clock]"])
    with pytest.raises(UsageError, match=r"model.puzzles has no meaning for model=nano"):
        build_model(compose("sft_nano", ["model.puzzles=[sudoku]"]).model)
    with pytest.raises(UserError, match="does not know the instruction 'Draw a cat'") as error:
        puzzle_editor().tokenizer.encode("Draw a cat")
    assert error.value.hint and "the nano prompts of sudoku" in error.value.hint
    task = get_task("sudoku", "nano")
    (item,) = task.sample(0, 3)
    given = task.input_image(item)
    small = build_model(compose("sft_maze", [*SMALL, "model.puzzles=[sudoku]"]).model)
    for ask in (
        lambda: small.draw([Request(item.id, item.prompt, (given,))]),
        lambda: small.example_tokens(Example(item.prompt, (given,), target=task.render(item))),
        lambda: small.example_tokens(Example(turns=(Turn(image=given), Turn(item.prompt, learn=True)))),
    ):
        with pytest.raises(UserError, match="48 x 48 pixels is too large for nano_edit") as error:
            ask()
        assert error.value.hint == "Train it with model.architecture.image_size=48."


def test_sizes_that_do_not_fit_are_refused_before_anything_runs() -> None:
    for recipe, override in (
        ("flow_grpo_maze", "prompts.levels=[4,8]"),
        ("sft_maze", "held_out.levels=[8]"),
        ("stars_maze", "rounds.2.level=8"),
        ("stars_maze", "evaluation.sets=[maze4,maze8]"),
    ):
        with pytest.raises(UsageError, match=r"nano_edit has 32 x 32 pixels, on which maze of level 8") as refused:
            compose(recipe, [override])
        assert refused.value.hint and refused.value.hint.startswith("Levels that fit: 2, 3, 4, 5, 6, 7.")
    with pytest.raises(UsageError, match=r"prompts.levels: .* on which maze of level 4 does not fit"):
        compose("flow_grpo_maze", ["data.maze_side=40"])


def made(folder: Path, *options: str) -> Path:
    """Items of a task in nano's style."""
    result = CliRunner().invoke(uni_train, ["data", "make", "--style", "nano", *options, "--out", str(folder)])
    assert result.exit_code == 0, result.output
    return folder / "items.jsonl"


def test_mazes_on_a_canvas_are_asked_and_drawn_at_its_size(tmp_path: Path) -> None:
    items = made(tmp_path / "mazes", "--task", "maze", "--pixels", "40", "--size", "4-6", "--n", "4")
    given = ["data.maze_side=40", "model.architecture.image_size=40", "model.threads=1", *SMALL]
    learns = [f"sources.mazes={{path: {items}, augment: symmetries}}", "updates=2", "batch.rows=4"]
    learns += ["batch.example_tokens=400", "model.sampling.steps=1"]
    asked = ["held_out.levels=[3,8]", "held_out.n=2", "held_out.split=test"]
    run = finish(tmp_path / "runs", *given, *learns, *asked, recipe="sft_maze")
    (last, *_) = sorted((run / "stages" / "00-sft").rglob("held_out/step=00000002/*.parquet"))
    scored = read_scored(last)
    assert len(scored) == 4 and all(one.verdict is not None and one.verdict.checks for one in scored)
    assert {Image.open(io.BytesIO(one.sample.image or b"")).size for one in scored} == {(40, 40)}


def test_puzzles_leave_the_ids_of_mazes_as_they_are() -> None:
    without, beside = SentenceTokenizer(steps=True), SentenceTokenizer(True, PUZZLES)
    assert without.pieces == beside.pieces[: len(without) - 4] and without.pieces[1:] == STEPS
    thought = "From S go right 2, down 1. That is E."
    assert without.encode(thought) == beside.encode(thought) == [5, 7, 20, 34]


def test_whatever_is_written_can_be_read_again() -> None:
    tokenizer = SentenceTokenizer(True, ["sliding_puzzle", "hanoi", "symmetry"])
    ids = [*range(4, len(tokenizer))]
    assert tokenizer.encode(tokenizer.decode(ids)) == ids and tokenizer.encode("") == []
    (item,) = get_task("sliding_puzzle", "nano").sample(0, 4)
    said = [tokenizer.pieces[i - 4] for i in tokenizer.encode(item.prompt)]
    assert said[2:-1] == [str(tile) for tile in item.facts["tiles"]] and len(said) == 3 + 6
    for text in ("Slide 16", "12, 16", "right 12", "From S goright 2", ".", "instructio"):
        with pytest.raises(UserError, match="does not know the instruction"):
            tokenizer.encode(text)


@pytest.mark.slow
def test_steps_are_learned_drawn_in_turns_and_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop is closed: rows of steps, a training on them, and answers that read their own images."""
    monkeypatch.chdir(tmp_path)
    puzzles = ["--task", "sliding_puzzle", "--level", "1", "--n", "4", "--split", "train", "--format", "chain"]
    made(tmp_path / "data/steps", *puzzles)
    quick = ["model.threads=1", "updates=2", "batch.rows=2", "model.sampling.steps=1"]
    run = finish(tmp_path / "runs", *SMALL, *quick, recipe="sft_steps")
    asked = ["-b", "vigor", "world=nano", "sets=[klotski_puzzle]", "options.vigor.interleaved=yes", "--n", "3"]
    done = CliRunner().invoke(uni_train, ["eval", str(run), *asked, "--out", "evals"])
    assert done.exit_code == 0, done.output
    (scores,) = tmp_path.glob("evals/*/scores.json")
    (vigor,) = json.loads(scores.read_text())["results"]
    assert set(vigor["scores"]["sizes"]["interleaved"]["klotski_puzzle"]) == {"1", "2", "3"}
    alone = build_model(model_config(str(run / "stages/00-sft/model")))  # it says itself that it knows steps
    assert isinstance(alone, NanoEdit) and alone.tokenizer.thinks and alone.tokenizer.puzzles == ("sliding_puzzle",)


@pytest.mark.slow
def test_the_maze_recipes_follow_each_other(tmp_path: Path) -> None:
    items, runs = made(tmp_path / "maze4", "--task", "maze", "--size", "4", "--n", "6"), tmp_path / "runs"
    common = ["model.threads=1", *SMALL, "model.sampling.steps=2"]
    given = [f"sources.mazes.path={items}", "updates=1", "batch.rows=4", "held_out.n=2"]
    common.append(f"model.checkpoint={finish(runs, *common, *given, recipe='sft_maze') / 'stages/00-sft/model'}")
    rollout = {"prompts_per_epoch": 2, "group_size": 2, "steps": 3, "last_step": 2}
    quick = ["epochs=2", *(f"rollout.{key}={value}" for key, value in rollout.items())]
    quick += ["held_out.n=2", "rewards.solved.function=tests.training.flow_grpo.toy:bright"]
    stage = finish(runs, *common, *quick, recipe="flow_grpo_maze") / "stages" / "00-grpo"
    result = json.loads((stage / "manifest.json").read_text())["result"]
    assert result["held_out"]["after"]["level 4"]["n"] == 2 and set(result["split"]) == {"rollout", "reward", "update"}
    assert len(read_metrics(stage / "metrics.jsonl")) == 2
    galleries = [f"epoch-0000{epoch}{end}" for epoch in (0, 1) for end in ("", ".png")]
    assert sorted(path.name for path in (stage / "gallery").iterdir()) == galleries
    beside = [f"sft.path={items}", "updates_per_epoch=2", "epochs=1", "prompts.task=null", f"prompts.path={items}"]
    run = finish(runs, *common, *quick, *beside, recipe="nft_maze")
    lines = read_metrics(run / "stages" / "00-grpo" / "metrics.jsonl")
    assert len(lines) == 2 and all(line["sft"] > 0 for line in lines)

    rounds = "rounds=[{task: maze, level: 4, prompts: 4, updates: 1, replay: {solved: 0.5}}]"
    quick = ["batch.prompts=4", "filter=none", "evaluation.n=2", f"solved={items}"]
    run = finish(runs, *common, *quick, rounds, recipe="stars_maze")
    (shard,) = (run / "stages" / "02-filter-maze4" / "shards").glob("*.parquet")
    samples = read_scored(shard)
    assert len(samples) == 8 and all(one.verdict is not None and len(one.verdict.checks) == 4 for one in samples)
    assert len({one.sample.ask.case.images[0] for one in samples}) == 4, "each is shown its own maze"
    result = json.loads((run / "stages" / "03-finetune-maze4" / "manifest.json").read_text())["result"]
    assert result["examples"] == {"maze4": 8, "solved": 6}
    scores = json.loads((run / "summary.json").read_text())["scores"]
    assert scores["after"]["normal"]["maze4"]["n"] == 2

    with open(items, "a") as file:
        file.write('{"image": "no.png"}\n')
    stopped = fit(tmp_path / "bad", *common, *quick, rounds.replace("0.5", "0.01"), recipe="stars_maze")
    assert stopped.exit_code == 1 and "items.jsonl, line 7: " in stopped.output, stopped.output
    assert not list((tmp_path / "bad").rglob("metrics.jsonl")), "before the first update"


def test_a_stored_editor_knows_its_puzzles(tmp_path: Path) -> None:
    save_model(puzzle_editor(), tmp_path)
    assert model_config(str(tmp_path)).puzzles == PUZZLES
