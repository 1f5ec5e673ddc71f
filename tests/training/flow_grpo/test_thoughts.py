"""Thoughts learned with the images that are drawn by them: the published objective, by hand and in a run on nano."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.tiny import finish
from tests.training.flow_grpo.toy import GRPO, PROMPTS, ToyFlow
from uni_train.config.compose import compose
from uni_train.config.kinds import Updates
from uni_train.core.errors import UsageError
from uni_train.data_gen.registry import get_task
from uni_train.flow.grpo import token_loss
from uni_train.flow.schedule import bagel_schedule
from uni_train.models.bagel.generation import _feed, prefill
from uni_train.models.base import Request
from uni_train.models.load import build_model
from uni_train.rewards.contract import Prompt, Reward
from uni_train.training.flow_grpo import trainer
from uni_train.training.flow_grpo.batches import MicroBatch, ThoughtBatch
from uni_train.training.flow_grpo.config import ThoughtsConfig
from uni_train.training.flow_grpo.losses import Losses
from uni_train.training.flow_grpo.rollout import Sampling, sample_epoch, token_table
from uni_train.training.flow_grpo.trainer import EPOCH_METRICS, FlowGrpoModule, fit_flow_grpo
from uni_train.training.metric_log import read_metrics
from uni_train.training.steps import StepBatch
from uni_train.training.supervised import FitOptions
from uni_train.training.trained import select_parameters


@pytest.fixture(scope="module")
def nano() -> Any:
    return build_model(compose("unigrpo_math", ["model.sampling.max_think_tokens=12"]).model)


def test_the_loss_of_two_thoughts_is_that_of_the_paper_by_hand() -> None:
    old = reference = torch.tensor([[-1.0, -2.0, 0.0], [-0.5, -1.5, -0.2]])
    new = torch.tensor([[-0.7, -2.3, 9.0], [-0.5, -1.4, -0.6]])  # what is behind the end does not count
    ids = torch.tensor([[5, 7, -1], [3, 2, 9]])
    advantage = torch.tensor([2.0, -9.0])
    new.requires_grad_()
    loss, parts = token_loss(new, old, advantage, ids >= 0, reference, clip_low=0.2, clip_high=0.2, kl=0.5)

    def term(ratio: float, advantage: float) -> float:
        return max(-advantage * ratio, -advantage * min(max(ratio, 0.8), 1.2))

    first = (term(math.exp(0.3), 2) + term(math.exp(-0.3), 2)) / 2
    second = (term(1.0, -5) + term(math.exp(0.1), -5) + term(math.exp(-0.4), -5)) / 3
    apart = [[-0.3, 0.3], [0.0, -0.1, 0.4]]
    k3 = sum(sum(math.exp(q) - q - 1 for q in row) / len(row) for row in apart) / 2
    assert parts["thoughts/policy_loss"].item() == pytest.approx((first + second) / 2, rel=1e-6)
    assert loss.item() == pytest.approx((first + second) / 2 + 0.5 * k3, rel=1e-6)
    assert parts["thoughts/clip_ratio"].item() == pytest.approx((1 + 1 / 3) / 2)
    loss.backward()
    assert new.grad is not None and new.grad[0, 2] == 0
    # Clipped and improved already: only the penalty pulls at the first token.
    assert new.grad[0, 0].item() == pytest.approx(0.5 * (1 - math.exp(-0.3)) / 4, rel=1e-4)


def test_cross_entropy_and_weights_of_two_thoughts_by_hand() -> None:
    log_prob = torch.tensor([[-0.7, -2.3, 9.0], [-0.5, -1.4, -0.6]])
    written, advantage = torch.tensor([[True, True, False], [True] * 3]), torch.tensor([2.0, -9.0])
    clip: Any = {"clip_low": 0.2, "clip_high": 0.2}
    loss, _ = token_loss(log_prob, torch.zeros(2, 3), advantage, written, cross_entropy=True, **clip)
    assert loss.item() == pytest.approx(((0.7 + 2.3) / 2 + (0.5 + 1.4 + 0.6) / 3) / 2)
    weights = torch.tensor([[1.0, 3.0, 3.0], [1.0, 1.0, 3.0]])
    loss, _ = token_loss(log_prob, torch.zeros(2, 3), advantage, written, cross_entropy=True, weights=weights, **clip)
    assert loss.item() == pytest.approx(((0.7 + 3 * 2.3) / 4 + (0.5 + 1.4 + 3 * 0.6) / 5) / 2)


def test_tokens_behind_so_draw_have_the_weight_of_results(nano: Any) -> None:
    ids = [nano.tokenizer.encode(text) for text in ("1 + 2 = 3 . So draw 3 apples .", "1 + 2 = 3 .")]
    table = token_table(ids, 15)
    batch = ThoughtBatch((), table, torch.zeros(table.shape), torch.zeros(()), 1.0, torch.arange(2))
    config = replace(GRPO, thoughts=ThoughtsConfig(result_weight=3))
    weights = Losses(nano, config, set())._token_weights(batch)[batch.written].tolist()
    assert weights == [*[1] * 8, *[3] * 3, *[1] * 6]


RIVALS = {
    "joint": (),
    "thoughts": ("objective.image_weight=0",),
    "kept": ("objective.image_weight=0", "thoughts.loss=cross_entropy", "objective.baseline=batch"),
    "images": ("thoughts.weight=0", "trained=moe_gen"),
}


@pytest.mark.slow
def test_rivals_learn_what_they_say_from_the_same_rollouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, learned = dict[str, Any](), dict[str, tuple[set[str], list[float]]]()
    items = get_task("maths", "nano").generate(4, 2, "train", 0)
    prompts = [Prompt(item.id, item.prompt) for item in items]
    lit = Reward("lit", lambda prompts, completions, place, **_: [float(p % 3 == 0) for p in place])
    token_loss_of = Losses.token_loss
    for name, keys in RIVALS.items():
        small = ("epochs=1", "rollout.prompts_per_epoch=4", "rollout.group_size=3", "rollout.steps=3")
        given = ("rollout.last_step=2", "model.sampling.max_think_tokens=12", "model.threads=1", *keys)
        config: Any = compose("unigrpo_math", [*small, *given])
        model = build_model(config.model)
        generation = set(select_parameters(model, "moe_gen"))
        before, advantages = {name: p.detach().clone() for name, p in model.named_parameters()}, list[float]()

        def spy(self: Losses, batch: ThoughtBatch, seen: list[float] = advantages) -> Any:
            seen += batch.advantage.tolist()
            return token_loss_of(self, batch)

        monkeypatch.setattr(Losses, "token_loss", spy)
        fit_flow_grpo(
            model, Sampling(lambda epoch, count: prompts, [lit], on_images=lambda epoch, shown, name=name: drawn.update(
                {name: np.stack(shown.images)})), config, tmp_path / name,
            FitOptions(stage="grpo", trained=config.trained, progress=False),
        )  # fmt: skip
        moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
        learned[name] = (moved, advantages)
        assert bool(moved & generation) == (name in ("joint", "images"))
        assert bool(moved - generation) == (name != "images")
    far = {name: np.abs(images.astype(int) - drawn["joint"]).max() for name, images in drawn.items()}
    assert max(far.values()) <= 1, far  # frozen weights are read by another kernel
    assert len(learned["thoughts"][1]) == len(learned["joint"][1]) == 12 and not learned["images"][1]
    assert len(learned["kept"][1]) == 4 and min(learned["kept"][1]) > 0


def test_training_scores_thoughts_as_writing_drew_them(nano: Any) -> None:
    asked = get_task("maths", "nano").generate(2, 3, "train", 0)
    requests = [Request(item.id, item.prompt, seed=i) for i, item in enumerate(asked)]
    ids = nano.write_thoughts(requests)
    end = nano.bagel.config.tokens.eos
    assert all(len(row) <= nano.most_thought_ids and end not in row[:-1] for row in ids)
    table = token_table(ids, nano.most_thought_ids)
    batch = ThoughtBatch(requests, table, torch.zeros(table.shape), torch.zeros(()), 1.0, torch.arange(len(ids)))
    scored = Losses(nano, GRPO, set()).token_log_probs(batch)
    for row, (request, own) in enumerate(zip(requests, ids, strict=True)):
        cache = prefill(nano.bagel, [full for full, _, _ in nano._contexts([request], think=True)]).grown(len(own) + 1)
        fed = nano.bagel.config.tokens.bos
        for place, chosen in enumerate(own):
            with torch.no_grad():
                hidden = _feed(nano.bagel, cache, torch.tensor([[fed]]), torch.ones(1, 1, dtype=torch.bool))
                expected = nano.bagel.language_model.lm_head(hidden[:, -1]).float().log_softmax(-1)[0, chosen]
            assert scored[row, place].item() == pytest.approx(expected.item(), abs=1e-4)
            fed = chosen
        assert not scored[row, len(own) :].any()
    assert nano.write_thoughts(requests[:1])[0] == ids[0], "from the request's seed, whatever its batch"


def test_thoughts_have_a_batch_size_of_their_own(nano: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    write = nano.write_thoughts
    monkeypatch.setattr(nano, "write_thoughts", lambda some: (sizes.append(len(some)), write(some))[1])
    prompts = [Prompt(item.id, item.prompt) for item in get_task("maths", "nano").generate(2, 2, "train", 0)]
    reward = Reward("none", lambda prompts, **_: [0.0] * len(prompts))
    thoughtful = replace(GRPO, thoughts=ThoughtsConfig())
    sample_epoch(nano, prompts, [reward], thoughtful, "grpo", 0, draw_rows=8, think_rows=3)
    assert sizes == [3, 3, 2]


@pytest.mark.slow
def test_both_are_learned_in_one_update(tmp_path: Path) -> None:
    reward = tmp_path / "mine.py"
    reward.write_text("def lit(prompts, completions, place, **_): return [float(p * p % 5) for p in place]\n")
    run = finish(
        tmp_path,
        *("epochs=2", "rows=7", "rollout.prompts_per_epoch=2", "rollout.group_size=3", "rollout.steps=3"),
        *("rollout.last_step=2", "objective.kl=0.01", "held_out.n=2", "checkpoint_every=1", "model.threads=1"),
        *("model.sampling.max_think_tokens=12", "rewards.right=null", "alarms.log_ratio=null"),
        *(f"rewards.lit.function={reward}:lit", "optimizer.lr=1e-3"),
        *("objective.image_weight=0.5", "thoughts.weight=2"),
        recipe="unigrpo_math",
    )
    stage = run / "stages/00-grpo"
    lines = read_metrics(stage / "metrics.jsonl")
    assert [line["thoughts/ratio_off"] == 0 for line in lines] == [True, False, True, False]
    assert lines[0]["kl"] == lines[0]["thoughts/kl"] == 0 and lines[3]["kl"] > 0 and lines[3]["thoughts/kl"] > 0
    for line in lines:
        steps, thoughts = line["policy_loss"] + 0.01 * line["kl"], line["thoughts/policy_loss"]
        expected = 0.5 * steps + 2 * (thoughts + 0.01 * line["thoughts/kl"])
        assert line["loss"] == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert json.loads((stage / "manifest.json").read_text())["result"]["held_out"]


def test_thoughts_that_nothing_would_learn_are_refused() -> None:
    for override, says in (("trained=moe_gen", "leaves what thinks as it is"), ("variant=diffusion_nft", "has none")):
        with pytest.raises(UsageError, match=f"{override.split('=')[1]}.* {says}"):
            compose("unigrpo_math", [override])
    none = ["objective.image_weight=0"]
    for overrides, says in (
        ([*none, "thoughts.weight=0"], "there is nothing to learn"),
        ([*none, "thoughts=null"], "there is nothing to learn"),
        ([*none, "objective.kl=0.1"], "objective.kl is a penalty of the images' steps"),
        (["thoughts.loss=cross_entropy"], "good images only"),
        (["thoughts.weight=0", "thoughts.result_weight=3"], "thoughts.result_weight weighs tokens"),
    ):
        with pytest.raises(UsageError, match=says):
            compose("unigrpo_math", overrides)


@pytest.mark.parametrize("kind", ["thoughts", "steps"])
def test_ranks_with_different_rows_reduce_equally_often(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank whose micro-batch holds thoughts alone joins the sums and the check of the others: else these wait."""
    module = FlowGrpoModule(ToyFlow(), replace(GRPO, thoughts=ThoughtsConfig()), Updates(2, 1), Sampling(PROMPTS, []))
    module.rollouts = SimpleNamespace(statistics=dict.fromkeys(EPOCH_METRICS, 0.0))  # type: ignore[assignment]
    calls: list[str] = []

    def reduced(value: torch.Tensor, op: str = "sum") -> torch.Tensor:
        calls.append(op)
        return value

    monkeypatch.setattr(trainer, "reduced", reduced)
    module._trainer = SimpleNamespace(world_size=2, global_step=0)  # type: ignore[assignment]
    one = torch.zeros((), requires_grad=True)
    monkeypatch.setattr(module.losses, "step_loss", lambda rows: (one, {}, torch.zeros(1)))
    monkeypatch.setattr(module.losses, "token_loss", lambda rows: (one, {}))
    empty = torch.zeros(0)
    thoughts = ThoughtBatch((), empty, empty, empty, 1.0, empty) if kind == "thoughts" else None
    share = 0.0 if kind == "thoughts" else 1.0
    tensors = dict.fromkeys(("x", "t", "advantage", "mask"), empty)
    levels = bagel_schedule(6, 1.0)
    rows = MicroBatch(**tensors, condition=None, share=share, schedule=levels, thoughts=thoughts)
    module.training_step(StepBatch(0, 0, 1, rows), 0)
    assert calls == ["sum", "sum", "max"]
