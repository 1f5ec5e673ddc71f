"""Plans of whole recipes: on small models of the published kinds, through the command too."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from uni_train.cli.main import uni_train
from uni_train.config.compose import compose
from uni_train.console.progress import ConsoleProgress
from uni_train.core.errors import UserError
from uni_train.data_gen.mapping.task import Mapping
from uni_train.fitting import expect_items
from uni_train.models.bagel.prefixes import MOST_BYTES
from uni_train.plan import plan as planning
from uni_train.plan.hardware import GPUS, RESERVED
from uni_train.plan.shown import facts_of, tables_of
from uni_train.plan.trace import KINDS
from uni_train.recipes.dpo.kind import Dpo

H100 = GPUS["h100-80gb"]
SIZES = "{layers:1,hidden_size:256,heads:4,kv_heads:2,intermediate_size:512,image_size:256,vit_layers:1}"
BAGEL = ("strategy.precision=bf16-true", "model=bagel_7b", f"model.architecture={SIZES}")
EDITOR = ("model=qwen_image_edit_2511", "model.architecture={layers:1,vit_layers:1}")
FEW = "rounds=[{task: mapping, level: 1, prompts: 100, updates: 3}]"
FEW_KEPT = "rounds=[{task: mapping, level: 1, prompts: 100, kept: 50}]"  # of a large model
EVERYDAY = ("data.world=everyday",)


def planned(recipe: str, *overrides: str, gpus: int = 8, nodes: int = 1) -> planning.Plan:
    return planning.plan(compose(recipe, overrides), H100, nodes, gpus, 0.4)


@pytest.fixture(scope="module")
def sft() -> planning.Plan:
    return planned("sft", *BAGEL, nodes=4)


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
    parts = sft.rows[0].share.parts
    assert parts["weights"] == pytest.approx(2 * (sft.parameters - parts["vae"] // 4), rel=1e-6)


def test_activations_grow_at_most_as_the_largest_micro_batch_takes_it(sft):
    """What does not grow with the micro-batch (a gradient of the embeddings while it is made) is scaled, too."""
    twice = planned("sft", *BAGEL, "batch.tokens=20480", nodes=4)
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


def test_stages_that_ask_the_model_need_all_weights_on_each_gpu_whatever_shards_them():
    deep = "{layers:8,hidden_size:2048,heads:16,kv_heads:2,intermediate_size:8192,image_size:256,vit_layers:1}"
    sharded = ("strategy=fsdp2", "strategy.offload_weights=true", f"model.architecture={deep}")
    config = compose("stars_math", [*BAGEL[:2], *sharded, FEW_KEPT, "evaluation.n=2"])
    whole = planning.plan(config, H100, 1, 8, 0.4).whole
    small = replace(H100, memory=RESERVED + whole)
    fits, less = (planning.plan(config, replace(small, memory=small.memory - by), 1, 8, 0.4) for by in (0, 1))
    assert fits.rows[fits.chosen].fits and not any(row.fits for row in less.rows)
    assert any("hold all weights on each GPU" in one for one in less.advice)
    assert fits.models == pytest.approx(whole, rel=0.1)  # of its one training; the VAE has float32


def test_images_of_samples_and_evaluations_are_counted_at_most_and_timed():
    evaluated = ("evaluation.sets=[math1,mapping2]", "evaluation.modes=[normal,said]", "evaluation.n=10")
    keys = (*evaluated, FEW, "filter=none", "batch.prompts=8", "batch.noise_draws=1")
    few, more = (planned("stars_curriculum", *keys, f"candidates={n}") for n in (1, 3))
    assert (few.images, more.images) == (160, 360)  # 10 and 10 pairs, before and after
    slow = planned("stars_curriculum", *keys, "model.sampling.steps=30")
    assert slow.image_seconds == pytest.approx(3 * few.image_seconds) and few.image_seconds > 0


def test_kept_texts_are_counted_where_what_reads_them_is_frozen():
    counted = [planned("sft", *BAGEL, f"trained={kind}", "ema=null") for kind in ("all", "moe_gen")]
    texts = [{row.choice.kind: row.share.parts["texts"] for row in one.rows} for one in counted]
    assert set(texts[0].values()) == {0}
    assert (texts[1]["ddp"], texts[1]["fsdp2"]) == (MOST_BYTES, 0)


def test_a_quantised_recipe_is_planned_as_such():
    lora = (*BAGEL, "trained=lora", "ema=null")
    plain, light = (planned("sft", *lora, *more, gpus=1) for more in ((), ("model.weights=nf4",)))
    assert light.rows[0].share.parts["weights"] < plain.rows[0].share.parts["weights"] - 2**20


def test_what_does_not_fit_says_what_would_help():
    small = replace(H100, memory=RESERVED + 100 * 2**20)
    found = planning.plan(compose("sft", [*BAGEL, "activation_checkpointing=false"]), small, 1, 8, 0.4)
    assert found.chosen is None
    words = "\n".join(found.advice)
    assert "does not fit" in words and "activation_checkpointing=true" in words and "trained=lora" in words


def test_a_strategy_that_the_recipe_does_not_name_is_said_as_keys(sft):
    assert sft.rows[sft.chosen].choice.name == "ddp" and not any("To train so" in one for one in sft.advice)
    assert any(
        one.startswith("hours are of training alone") for one in planned("stars_math", *BAGEL, FEW_KEPT).assumptions
    )
    least = min(row.share.peak for row in sft.rows if not row.share.host)
    small = replace(H100, memory=RESERVED + least + 2**20)
    found = planning.plan(compose("sft", BAGEL), small, 4, 8, 0.4)
    assert found.rows[found.chosen].choice.kind != "ddp"
    assert found.advice[0].startswith(f"To train so add {found.rows[found.chosen].choice.keys}: without")


def test_adapters_need_less_than_the_weights_they_are_on(sft):
    lora = planned("sft", *BAGEL, "trained=lora", "strategy=deepspeed_zero2", nodes=4)
    assert lora.rows[lora.chosen].choice.name == "deepspeed_zero2"
    assert lora.trained < sft.trained / 10
    few, all_ = lora.rows[0].share, sft.rows[0].share
    assert few.parts["optimizer"] == 10 * lora.trained
    assert few.wire["all-reduce of gradients"] < all_.wire["all-reduce of gradients"] / 10


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["guard", "diffusion_nft"])
def test_reinforcement_counts_drawing_references_and_rollouts(variant):
    rollout = "rollout={prompts_per_epoch:64,group_size:8,steps:6,first_step:0,last_step:3,window:null}"
    more = ("rows=8", "updates_per_epoch=1", f"variant={variant}", "objective.kl=0.1", "trained=all")
    found = planned("flow_grpo_maze", *BAGEL, rollout, *more, nodes=4)
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


def test_rows_of_nano_that_are_not_there_are_assumed_in_its_words_and_float32_keeps_two_moments_a_weight():
    printed = CliRunner().invoke(uni_train, ["plan", "sft_nano", "--gpus", "2"], catch_exceptions=False)
    assert printed.exit_code == 0 and "no such file: examples of one" in printed.stdout, printed.output
    nano = planned("sft_nano", gpus=2)
    assert nano.rows[0].share.parts["optimizer"] == pytest.approx(8 * nano.trained, rel=1e-3)


def test_strategies_that_a_recipe_refuses_are_left_out_and_its_reference_takes_memory_and_a_forward_pass(monkeypatch):
    found = planned("dpo_maze")
    monkeypatch.setattr(Dpo, "reference", False)
    assert found.flops == pytest.approx(4 / 3 * planned("dpo_maze").flops, rel=0.02), "a backward pass is worth two"
    assert [row.choice.kind for row in found.rows] == ["ddp"] and found.rows[0].share.parts["reference"] > 0
    assert any("strategy=fsdp2 shards the weights" in note for note in found.assumptions)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "overrides", "units"),
    [
        # 1024 latent tokens of the picture and as many of the shown one, and the text; 10240 tokens asked for.
        ("sft", (*EDITOR, "sources.vlm=null"), 5),
        (
            "flow_grpo_math",
            (*BAGEL, *EVERYDAY, "evaluate=false", "held_out.n=0", "rewards.right={function:self_check}"),
            0,
        ),
        ("unigrpo_math", (*BAGEL, *EVERYDAY, "held_out.n=0"), 0),
        ("distil_maze", (*BAGEL, *EVERYDAY), 0),
        ("distil_maze", (*EDITOR, *EVERYDAY, "trained=lora"), 0),
        ("stars_maze", (*EDITOR, *EVERYDAY, "trained=lora"), 0),
        ("flow_grpo_maze_qwen", (*EDITOR, "rows=2"), 2),
    ],
)
def test_recipes_of_every_kind_are_planned_on_eight_gpus(recipe, overrides, units):
    found = planned(recipe, *overrides)
    assert found.gpus == 8 and found.units >= 1 and any(row.fits for row in found.rows)
    assert (found.draw_seconds > 0) == ("grpo" in recipe)
    assert found.units == (units or found.units)


def test_the_command_prints_json_and_tables(sft):
    arguments = ["plan", "--recipe", "sft", "--nodes", "2", "--price", "2.5", "--json", *BAGEL]
    printed = CliRunner().invoke(uni_train, arguments)
    assert printed.exit_code == 0, printed.output
    values = json.loads(printed.stdout)
    assert values["gpus"] == 16
    first = values["rows"][0]
    assert first["cost"] == pytest.approx(2.5 * first["gpu_hours"])
    assert set(first["share"]["parts"]) == {*KINDS, "buffers", "texts"}
    assert "following one update of bagel_7b" in printed.stderr and "3/3" in printed.stderr
    lines = facts_of(sft)
    assert f"  assumed: {sft.assumptions[0]}" in lines and "on 4 x 8 h100-80gb" in lines[0]
    strategies, _ = tables_of(sft, 2.5, ())
    names = [str(row[0]) for row in strategies.rows]
    assert "deepspeed_zero3 + offload_optimizer" in names and sum(name.endswith("*") for name in names) == 1
    assert strategies.columns[-1] == "cost" and {len(row) for row in strategies.rows} == {len(strategies.columns)}


def test_what_is_offloaded_costs_the_time_that_it_travels(sft):
    rows = {row.choice.name: row for row in sft.rows}
    away, kept = rows["deepspeed_zero2 + offload_optimizer"], rows["deepspeed_zero2"]
    assert away.step_seconds - kept.step_seconds == pytest.approx(away.share.bus / H100.bus) and away.share.bus > 0


def test_a_card_of_which_only_the_memory_is_known_has_no_times():
    arguments = ["plan", "sft", "--gpu", "24gb", "--price", "2", *BAGEL]
    values = json.loads(CliRunner().invoke(uni_train, [*arguments, "--json"]).stdout)
    assert values["gpu"]["memory"] == GPUS["rtx4090-24gb"].memory and values["compute_seconds"] is None
    assert all(row["fits"] and row["step_seconds"] is row["cost"] is None for row in values["rows"])
    printed = CliRunner().invoke(uni_train, arguments)
    assert printed.exit_code == 0 and "so no times" in printed.stdout and " ? " in printed.stdout


def test_layers_whose_activations_fit_need_not_be_computed_twice():
    deep = (*BAGEL, f"model.architecture={SIZES.replace('layers:1,h', 'layers:8,h')}", "strategy=ddp")
    full, half = planned("sft", *deep), planned("sft", *deep, "activation_checkpointing_every=2")
    assert any(one.startswith("activation_checkpointing=false fits too: ") for one in full.advice)
    used, extra = full.rows[full.chosen].share.peak, half.activations["checkpointed"] - full.activations["checkpointed"]
    assert extra > 0 and half.flops < full.flops
    small = replace(H100, memory=RESERVED + used + int(1.1 * extra))
    (advice,) = (one for one in planning.plan(compose("sft", deep), small, 1, 8, 0.4).advice if "fits too" in one)
    assert advice.startswith("activation_checkpointing_every=2 fits too: ")
    assert float(advice.split()[-7]) == pytest.approx(half.flops / full.flops, abs=0.01)
