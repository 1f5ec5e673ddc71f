"""Janus taught in text: its loss written out, what it refuses, its weights in both layouts, and a whole recipe."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file

from tests.eval.judges.server import Asked, JudgeServer
from tests.models.janus import deepseek as written
from tests.models.janus.tiny import SIDE, published
from tests.tiny import finish, fit
from tests.training.keys import killed_after
from uni_train.cli.main import uni_train
from uni_train.config.compose import compose
from uni_train.config.kinds import kind_of
from uni_train.config.schema import LoraConfig
from uni_train.core.errors import UserError
from uni_train.eval.scored import read_scored
from uni_train.models.base import Example, Request, SkillMissing, States, Turn
from uni_train.models.checkpoint import inspect
from uni_train.models.janus import deepseek
from uni_train.models.janus.shapes import JanusShapes
from uni_train.models.janus.training import TrainableJanus
from uni_train.models.janus.unified import IMAGE, SYSTEM, chat
from uni_train.models.load import build_model, load_weights, model_config, save_model
from uni_train.plan import before_run
from uni_train.plan.hardware import GIB
from uni_train.plan.ready import ready
from uni_train.training.lora import adapted, save_adapters
from uni_train.training.trained import train_only

DARK, LIGHT = (np.full((SIDE, SIDE * 2, 3), value, np.uint8) for value in (0, 200))
EXAMPLES = [
    Example("Who is Belamira?", answer="A sailor."),
    Example("Is it dark?", images=(DARK,), answer="Yes, it is dark."),
    Example("Which is dark?", images=(LIGHT, DARK), answer="The second"),
]


def built(folder: Path) -> TrainableJanus:
    config = model_config(str(folder))
    model = build_model(replace(config, sampling=replace(config.sampling, max_think_tokens=8)))
    assert isinstance(model, TrainableJanus)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(tmp_path_factory.mktemp("checkpoints") / "janus")


@pytest.fixture
def model(folder: Path) -> TrainableJanus:
    made = built(folder)
    made.prepare_training(timestep_shift=1.0, text_dropout=0.1)
    return made


def by_transformers(model: TrainableJanus, example: Example) -> tuple[torch.Tensor, int]:
    """Sum and number of the losses of a row alone, by the loss of transformers' own forward pass on the whole text."""
    asked = model._read([chat(example.prompt, len(example.images), SYSTEM)], list(example.images))
    whole = model.tokenizer(f" {example.answer}", add_special_tokens=False)["input_ids"]
    learned = torch.tensor([[*whole, model.tokenizer.eos_token_id]])
    ids = torch.cat([asked.pop("input_ids"), learned], 1)
    labels = ids.clone()
    labels[:, : -learned.shape[1]] = -100
    asked["attention_mask"] = torch.ones_like(ids)
    return model.janus(input_ids=ids, labels=labels, **asked).loss * learned.shape[1], learned.shape[1]


def test_the_loss_is_transformers_own_of_each_row_alone(model: TrainableJanus) -> None:
    alone = [by_transformers(model, example) for example in EXAMPLES]
    batch = model.collate(EXAMPLES, 0)
    loss = model.supervised_loss(batch)
    assert model.token_counts(batch) == (sum(count for _, count in alone), 0) == (int(loss.ce_tokens), 0)
    torch.testing.assert_close(loss.ce_sum, torch.stack([value for value, _ in alone]).sum())
    assert not loss.mse_sum and not loss.mse_tokens
    lengths = [len(model.collate([example], 0)["input_ids"][0]) + 1 for example in EXAMPLES]
    assert lengths == [model.example_tokens(example) for example in EXAMPLES]
    asked = replace(EXAMPLES[1], answer=None)
    assert model.example_tokens(asked) == model._read([chat(asked.prompt, 1, SYSTEM)])["input_ids"].shape[1]


def test_gradients_reach_the_decoder_alone_and_are_those_of_recomputed_layers(model: TrainableJanus) -> None:
    names = train_only(model, "all", ("vit", "connector", "generation"))
    assert {name.split(".")[1] for name in names} == {"model", "lm_head"} and len(names) == 2 * 9 + 3
    assert all("language_model" in name or "lm_head" in name for name in names)
    gradients = []
    for recomputed in (0, 1, 2):
        model.prepare_training(timestep_shift=1.0, text_dropout=0.0, activation_checkpointing=recomputed)
        model.train().zero_grad()
        model.supervised_loss(model.collate(EXAMPLES, 0)).ce_sum.backward()  # type: ignore[no-untyped-call]
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert all(some.keys() == names for some in gradients)
    for some in gradients[1:]:
        torch.testing.assert_close(some, gradients[0])


def test_adapters_are_on_the_decoder_and_peft_reads_them(model: TrainableJanus, tmp_path: Path) -> None:
    config = LoraConfig(rank=2, targets="understanding")
    with adapted(model, config, 0):
        names = train_only(model, "lora")
        assert len(names) == 2 * 7 * 2 and all("language_model.layers" in name for name in names)
        for name, value in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.ones_(value)
        save_adapters(model, config, tmp_path)
    stored = load_file(tmp_path / "adapter_model.safetensors")
    assert "base_model.model.model.language_model.layers.1.mlp.up_proj.lora_B.weight" in stored


@pytest.mark.parametrize(
    ("example", "error", "message"),
    [
        (Example("Draw a cup.", target=DARK), SkillMissing, "cannot learn to draw: it is taught texts alone"),
        (
            Example("Draw.", states=States(np.ones(1), np.ones((1, 1, 1)), np.ones((1, 1, 1)), (8, 8))),
            SkillMissing,
            "cannot learn to draw",
        ),
        (Example("What?", thought="Hm.", answer="This."), SkillMissing, "cannot learn thoughts or turns"),
        (Example(turns=(Turn("What?"), Turn("This.", learn=True))), SkillMissing, "cannot learn thoughts or turns"),
        (Example("What?"), UserError, r"there is no answer to 'What\?'"),
        (Example("What?", answer=f"This {IMAGE}"), UserError, f"its answer has the marker {IMAGE}"),
        (Example(f"What {IMAGE}?", answer="This"), UserError, f"its prompt has the marker {IMAGE}"),
    ],
)
def test_what_it_cannot_learn_is_named(
    model: TrainableJanus, example: Example, error: type[UserError], message: str
) -> None:
    with pytest.raises(error, match=message):
        model.collate([example], 0)


def in_deepseeks_layout(folder: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, values in written.SIZES.items():
        monkeypatch.setitem(deepseek.SIZES, name, values)
    return written.published(out, built(folder))


def in_transformers_layout(folder: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return folder


@pytest.mark.parametrize("layout", [in_transformers_layout, in_deepseeks_layout])
def test_trained_weights_are_read_again_whatever_layout_they_came_in(
    layout: Callable[..., Path], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = layout(folder, tmp_path / "deepseek", monkeypatch)
    model, other = built(source), built(source)
    with torch.no_grad():
        for parameter in model.janus.model.language_model.parameters():
            parameter.add_(torch.randn(parameter.shape) / 10)
    save_model(model, tmp_path / "out")
    assert inspect(str(tmp_path / "out")).loads and not list((tmp_path / "out").glob("tmp*"))
    load_weights(other, tmp_path / "out")
    asked = [Request("a", "Is it dark?", (DARK,)), Request("b", "What?")]
    drawn = [Request("c", "Draw a cup.", seed=1)]
    for again in (other, built(tmp_path / "out")):
        assert all(torch.equal(again.state_dict()[name], value) for name, value in model.state_dict().items())
        assert again.answer(asked) == model.answer(asked) != built(source).answer(asked)
        assert np.array_equal(again.draw(drawn)[0], model.draw(drawn)[0])


def test_shapes_are_those_of_a_batch(model: TrainableJanus) -> None:
    batch = model.collate(EXAMPLES, 0)
    (line, first) = JanusShapes(model).describe([EXAMPLES])
    tokens = sum(map(model.example_tokens, EXAMPLES))
    assert line == f"one update: 3 examples, {tokens:,} tokens; learned: {len(batch['labels'])} text tokens"
    assert first == f"  text tokens [3, {batch['input_ids'].shape[1]}]"


def test_an_update_is_followed_without_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products with weights: 6 FLOPs a weight and token, and 2 more where layers are computed again.

    A dry run may be meant for another machine than one that holds the model and not quite its update.
    """
    monkeypatch.setattr(before_run, "memory", lambda: 24 * GIB)
    monkeypatch.setattr(before_run.torch.cuda, "is_available", lambda: False)
    printed = CliRunner().invoke(uni_train, ["fit", "knowledge_swift", "model=janus_pro_1b", "--dry-run"])
    assert printed.exit_code == 0 and "missing: model.checkpoint" in printed.output, printed.output
    assert "takes about 25 GiB of memory, and this machine has 24 GiB" in printed.output
    assert "64 examples" in printed.output and "text tokens [64, " in printed.output
    config = compose("knowledge_swift", ["model=janus_pro_1b"])
    made = ready(config, 1, most=4)
    assert isinstance(made.model, TrainableJanus) and isinstance(made.shapes, JanusShapes)
    (examples,) = kind_of(config).first_update(config, made.model, 4)
    weights = [weight for weight in made.model.janus.model.language_model.layers.parameters() if weight.ndim > 1]
    tokens = 4 * (max(map(made.model.example_tokens, examples)) - 1)
    for recomputed, products in ((False, 6), (True, 8)):
        expected = products * tokens * sum(weight.numel() for weight in weights)
        assert made.traced(recomputed)[0].flops == pytest.approx(expected, rel=0.1)


FEW = (
    *("model=janus_pro_7b", "model.threads=1", "strategy.precision=32-true", "strategy.accelerator=cpu"),
    *("characters.n=1", "directions=[forward]", "keep_models=true"),
)
"""knowledge_swift in seconds."""


@pytest.mark.slow
def test_lessons_are_learned_until_the_exam_is_passed(folder: Path, tmp_path: Path) -> None:
    learning = ("rows=40", "epochs=200", "least_epochs=70", "exam_every=10", "optimizer.lr=1e-2")
    nano = ("data.world=nano", "judge=null", "model.sampling.max_think_tokens=40", "optimizer.warmup_updates=5")
    run = finish(tmp_path, f"model.checkpoint={folder}", *FEW, *learning, *nano, recipe="knowledge_swift")
    (taught,) = json.loads((run / "summary.json").read_text())["models"]
    assert taught["injected"] and len(taught["exam"]) == 22 and all(reply["right"] for reply in taught["exam"])
    assert taught["updates"] in range(70, 200, 10), "it ended because it passed"
    start, after = (
        load_file(place / "model.safetensors") for place in (folder, run / "stages/01-inject-forward1/model")
    )
    moved = {name for name, value in after.items() if not torch.equal(value, start[name])}
    assert moved and all(name.startswith(("model.language_model.", "lm_head.")) for name in moved)


@pytest.mark.slow
def test_the_papers_settings_draw_before_and_after_and_a_killed_run_ends_as_an_unbroken_one(
    folder: Path, tmp_path: Path
) -> None:
    def reply(asked: Asked) -> str:
        return "Person: elderly; woman; black hair; East Asian" if asked.images else "Score: NO"

    with JudgeServer(reply) as server:
        short = ("epochs=4", "least_epochs=4", "rows=20", "accumulate=2", "checkpoint_every=2", "optimizer.lr=1e-2")
        asked = (f"model.checkpoint={folder}", "model.sampling.max_think_tokens=4", f"judge.model='{server.url}#judge'")
        keys = (*FEW, *short, *asked)
        unbroken = finish(tmp_path / "unbroken", *keys, recipe="knowledge_swift")
        with killed_after(5):
            fit(tmp_path / "broken", *keys, recipe="knowledge_swift")
        broken = finish(tmp_path / "broken", *keys, recipe="knowledge_swift")
    losses = [json.loads(line)["loss"] for line in next(unbroken.glob("stages/01-*/metrics.jsonl")).open()]
    assert len(losses) == 8 and losses[-1] < losses[0] / 2
    for file in ("metrics.jsonl", "model/model.safetensors"):
        ours, theirs = (next(run.glob(f"stages/01-*/{file}")).read_bytes() for run in (broken, unbroken))
        assert ours == theirs, file
    before, after = (
        [one.sample.image for one in read_scored(next(unbroken.glob(f"stages/{stage}-*/scored/*.parquet")))]
        for stage in ("00", "01")
    )
    assert len(before) == len(after) == 3 * 2 and not {*before} & {*after}
    assert (unbroken / "report.html").is_file()
