"""Plans of whole recipes: on small models of the published kinds, through the command too."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from uni_train.cli import plan as cli
from uni_train.cli.main import uni_train
from uni_train.config import places
from uni_train.config.compose import compose
from uni_train.console.progress import ConsoleProgress
from uni_train.data_gen.mapping.task import Mapping
from uni_train.errors import UserError
from uni_train.plan import plan as planning
from uni_train.plan.hardware import GPUS, RESERVED
from uni_train.plan.trace import KINDS
from uni_train.stages.run import expect_items

H100 = GPUS["h100-80gb"]
SMALL = (
    "model.architecture.layers=1",
    "model.architecture.hidden_size=256",
    "model.architecture.heads=4",
    "model.architecture.intermediate_size=512",
    "model.architecture.image_size=256",
)
BAGEL = (
    "strategy.precision=bf16-true",
    "model=bagel_7b",
    *SMALL,
    "model.architecture.kv_heads=2",
    "model.architecture.vit_layers=1",
)


@pytest.fixture(scope="module")
def sft() -> planning.Plan:
    return planning.plan(compose("sft", BAGEL), H100, 4, 8, 0.4)


def test_rows_that_are_not_there_are_assumed_and_said_so(sft):
    # An example has 16 x 16 latent tokens and 32 of text, and markers; 10240 tokens are asked for.
    assert (sft.gpus, sft.units, sft.unit, sft.micros) == (32, 36, "examples", 1)
    assert any("data/bagel_example/t2i" in one for one in sft.assumptions)
    assert sft.trained < sft.parameters


def test_every_strategy_has_a_row_whose_parts_make_its_peak(sft):
    for row in sft.rows:
        assert row.share.peak == sum(row.share.parts.values())
        assert row.fits and row.largest >= sft.units
        assert row.step_seconds >= sft.compute_seconds > 0
    assert sft.rows[sft.chosen].step_seconds == min(row.step_seconds for row in sft.rows)


def test_activations_grow_at_most_as_the_largest_micro_batch_takes_it(sft):
    """What does not grow with the micro-batch (a gradient of the embeddings while it is made) is scaled, too."""
    twice = planning.plan(compose("sft", [*BAGEL, "batch.tokens=20480"]), H100, 4, 8, 0.4)
    grown = twice.units / sft.units
    for key, size in sft.activations.items():
        assert size < twice.activations[key] < 1.02 * size * grown
    assert sft.activations["checkpointed"] < sft.activations["kept"]
    assert twice.flops / sft.flops == pytest.approx(grown, rel=1e-3)  # short examples have rows of their own


def test_ways_onto_one_card_need_less_and_less():
    ways = {way.keys: way for way in planning.one_card(compose("sft", BAGEL))}
    assert list(ways) == [
        "trained=all",
        "trained=all optimizer.state=8bit",
        "trained=all strategy=deepspeed_zero2 strategy.offload_optimizer=true",
        "trained=lora",
        "trained=lora model.weights=int8",
        "trained=lora model.weights=nf4",
        "trained=lora model.weights=nf4 optimizer.state=8bit",
    ]
    peaks = [way.peak for way in ways.values()]
    assert peaks[0] > peaks[1] and peaks[3] > peaks[4] > peaks[5] >= peaks[6]
    assert planning.one_card(compose("nano_pretrain")) == ()


def test_a_quantised_recipe_is_planned_as_such():
    lora = [*BAGEL, "trained=lora", "ema=null"]
    plain, light = (
        planning.plan(compose("sft", [*lora, *more]), H100, 1, 1, 0.4).rows[0].share.parts["weights"]
        for more in ((), ("model.weights=nf4",))
    )
    assert light < plain - 2**20


def test_what_does_not_fit_says_what_would_help():
    small = replace(H100, memory=RESERVED + 100 * 2**20)
    found = planning.plan(compose("sft", [*BAGEL, "activation_checkpointing=false"]), small, 1, 8, 0.4)
    assert found.chosen is None
    words = "\n".join(found.advice)
    assert "does not fit" in words and "activation_checkpointing=true" in words and "trained=lora" in words


def test_adapters_need_less_than_the_weights_they_are_on(sft):
    lora = planning.plan(compose("sft", [*BAGEL, "trained=lora", "strategy=deepspeed_zero2"]), H100, 4, 8, 0.4)
    assert lora.rows[lora.chosen].choice.name == "deepspeed_zero2"
    assert lora.trained < sft.trained / 10
    few, all_ = lora.rows[0].share, sft.rows[0].share
    assert few.parts["optimizer"] == 10 * lora.trained
    assert few.wire["all-reduce of gradients"] < all_.wire["all-reduce of gradients"] / 10


@pytest.mark.slow
def test_float32_training_keeps_two_moments_a_weight():
    plan = planning.plan(compose("stars_math", []), H100, 1, 1, 0.4)
    assert plan.rows[0].share.parts["optimizer"] == pytest.approx(8 * plan.trained, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["guard", "diffusion_nft"])
def test_reinforcement_counts_drawing_references_and_rollouts(variant):
    rollout = [
        "rollout.prompts_per_epoch=48",
        "rollout.group_size=8",
        "rollout.steps=6",
        "rollout.first_step=0",
        "rows=8",
    ]
    rollout += ["rollout.window=null", "rollout.last_step=3", "updates_per_epoch=1"]
    asked = [*BAGEL, *rollout, f"variant={variant}", "objective.kl=0.1", "trained=all"]
    found = planning.plan(compose("flow_grpo_maze", asked), H100, 4, 8, 0.4)
    assert any("planned with 64 prompts" in one for one in found.assumptions)
    assert found.units == 8 and found.unit == "random steps of images"
    assert found.micros == 64 * 8 // 32 * (4 if variant == "diffusion_nft" else 3) // 8
    assert found.draw_seconds > 0
    assert {row.choice.kind for row in found.rows} == {"ddp", "deepspeed_zero1", "deepspeed_zero2"}
    parts = found.rows[0].share.parts
    copies = 2 if variant == "diffusion_nft" else 1  # the reference, and the weights that draw
    assert parts["reference"] == 2 * copies * found.trained
    assert parts["rollouts"] > 0


def test_a_round_with_more_prompts_than_its_task_has_is_told_before_anything_runs(monkeypatch):
    sample = Mapping.sample
    monkeypatch.setattr(Mapping, "sample", lambda self, seed, *of: sample(self, seed % 300, *of))
    with pytest.raises(UserError, match="1024 prompts of mapping1 are too many: found only 300"):
        expect_items(compose("stars_mapping", ["evaluation.n=2"]), ConsoleProgress())


EDITOR = ("model=qwen_image_edit_2511", "model.architecture.layers=1", "model.architecture.vit_layers=1")
EVERYDAY = ("data.world=everyday",)
LARGE = {"bagel_7b": BAGEL, "qwen_image_edit_2511": EDITOR}


@pytest.mark.parametrize("recipe", [recipe.name for recipe in places.recipes()])
def test_every_shipped_recipe_has_its_items_and_an_update_to_plan(recipe):
    config = compose(recipe, LARGE.get(compose(recipe).model.name, ()))
    expect_items(config, ConsoleProgress())
    assert planning.ready(config, 2).work.units >= 1


@pytest.mark.parametrize("recipe", ["sft_nano", "sft_maze"])
def test_rows_of_nano_that_are_not_there_are_assumed_in_its_words(recipe):
    printed = CliRunner().invoke(uni_train, ["plan", recipe, "--gpus", "2"], catch_exceptions=False)
    assert printed.exit_code == 0, printed.output
    assert "no such file: examples of one" in printed.stdout


@pytest.mark.parametrize("command", [["plan"], ["fit", "--dry-run"]], ids=" ".join)
@pytest.mark.parametrize(
    ("recipe", "given", "said"),
    [
        ("flow_grpo_math", "held_out.n=128", "maths1 expressions for the validation split"),
        ("flow_grpo_math", "evaluation.n=100000", "evaluation.n 100000 is too many for math1"),
        ("sft_maze", "held_out.levels=[2]", "the mazes of 2 x 2 rooms are too few"),
    ],
)
def test_too_few_items_are_told_before_anything_runs(command, recipe, given, said):
    printed = CliRunner().invoke(uni_train, [*command, recipe, given], catch_exceptions=False)
    assert printed.exit_code == 1 and said in " ".join(printed.output.split()), printed.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "model", "more"),
    [
        ("flow_grpo_maze", BAGEL, EVERYDAY),
        ("flow_grpo_math", BAGEL, (*EVERYDAY, "evaluate=false", "held_out.n=0", "rewards.right={function:self_check}")),
        ("unigrpo_math", BAGEL, (*EVERYDAY, "held_out.n=0")),
        ("stars_maze", BAGEL, EVERYDAY),
        ("distil_maze", BAGEL, EVERYDAY),
        ("distil_maze", EDITOR, (*EVERYDAY, "trained=lora")),
        ("stars_maze", EDITOR, (*EVERYDAY, "trained=lora")),
        ("flow_grpo_maze_qwen", EDITOR, ()),
    ],
)
def test_recipes_of_reinforcement_and_distillation_are_planned_on_eight_gpus(recipe, model, more):
    found = planning.plan(compose(recipe, [*model, *more]), H100, 1, 8, 0.4)
    assert found.gpus == 8 and found.units >= 1 and any(row.fits for row in found.rows)
    assert (found.draw_seconds > 0) == ("grpo" in recipe)


@pytest.mark.slow
def test_an_editor_is_planned_for_supervised_and_reinforced():
    small = ["model=qwen_image_edit_2511", "model.architecture.layers=1", "model.architecture.vit_layers=1"]
    learnt = planning.plan(compose("sft", [*small, "sources.vlm=null"]), H100, 1, 8, 0.4)
    # 4096 latent tokens of the picture and as many of the shown one, and the text; 10240 tokens asked for.
    assert learnt.units == 2
    drawn = planning.plan(compose("flow_grpo_maze", [*small, "data.world=everyday", "rows=2"]), H100, 1, 8, 0.4)
    assert drawn.units == 2 and drawn.draw_seconds > 0


def test_the_command_prints_json_and_tables(sft):
    arguments = ["plan", "--recipe", "sft", "--nodes", "2", "--price", "2.5", "--json", *BAGEL]
    printed = CliRunner().invoke(uni_train, arguments)
    assert printed.exit_code == 0, printed.output
    values = json.loads(printed.stdout)
    assert values["gpus"] == 16
    first = values["rows"][0]
    assert first["cost"] == pytest.approx(2.5 * first["gpu_hours"])
    assert set(first["share"]["parts"]) == {*KINDS, "buffers"}
    lines = "\n".join(cli._lines(sft, 2.5))
    assert "following one update of bagel_7b" in printed.stderr and "3/3" in printed.stderr
    folded = cli._table(cli._summary(sft, 2.5), width=100)
    assert max(map(len, folded)) <= 100 and sum("strategy" in line for line in folded) == 2
    assert "deepspeed_zero3 + offload_optimizer" in lines and "on 4 x 8 h100-80gb" in lines and "cost" in lines


def test_wrong_names_are_told():
    result = CliRunner().invoke(uni_train, ["plan", "--recipe", "sft", "--gpu", "h10", *BAGEL])
    assert result.exit_code == 2 and "h100-80gb" in result.output
    edits = CliRunner().invoke(uni_train, ["plan", "--recipe", "stars_math", "model=qwen_image_edit"])
    assert edits.exit_code == 2 and "takes no model=qwen_image_edit" in edits.output


def test_a_blank_model_holds_what_it_is_said_to(sft):
    weights = sft.rows[0].share.parts["weights"] + sft.rows[0].share.parts["vae"]
    vae = sft.rows[0].share.parts["vae"]
    assert np.isclose(weights - vae, 2 * (sft.parameters - vae // 4), rtol=1e-6)
