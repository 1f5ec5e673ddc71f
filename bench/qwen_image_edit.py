"""The figures of Qwen-Image-Edit on this machine, as markdown tables: `make bench-qwen` (minutes on one core).

    python bench/qwen_image_edit.py [--only group,sft,grpo] [--rounds 5]

A pipeline with every part of the real one, random weights and tiny sizes (tests/models/qwen_image_edit/tiny.py), as
2511 with true CFG. Each figure stands beside one of plain diffusers, transformers and PyTorch, measured in turn with
it: the pipeline called once an image; a training step and an epoch of reinforcement written with the same model calls
and nothing else. What the real sizes cost is not measured here: where the transformer has 20 billion weights, the
framework's share is smaller and reading a condition once a group matters less.

Times are CPU seconds of the process (of all its threads), medians, because those suffer less from other work.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bagel import picture
from bench.choices import some_of
from bench.lightning_loop import lightning_steps
from bench.markdown import row, table
from bench.nano import Table
from bench.timing import interleaved, machine
from tests.models.qwen_image_edit import tiny
from uni_train.config.compose import compose
from uni_train.config.kinds import Updates
from uni_train.config.schema import OptimizerConfig, StrategyConfig
from uni_train.flow.guidance import true_cfg
from uni_train.flow.schedule import train_timestep
from uni_train.flow.steps import step_rule
from uni_train.models.base import Example
from uni_train.models.diffusers.latents import pack, unpack
from uni_train.models.load import build_model
from uni_train.models.qwen_image_edit.reading import draw_chat, template_tokens
from uni_train.models.qwen_image_edit.unified import QwenImageEdit
from uni_train.rewards.contract import Prompt, Reward
from uni_train.stages.cpu import prepare_cpu
from uni_train.training.curriculum import Constant
from uni_train.training.flow_grpo.config import AlarmsConfig, GrpoConfig, RolloutConfig
from uni_train.training.flow_grpo.rollout import PromptList, Sampling, ScoredImages, sample_epoch
from uni_train.training.flow_grpo.trainer import fit_flow_grpo
from uni_train.training.flow_grpo.variants import ObjectiveConfig
from uni_train.training.supervised import FitOptions

GROUP = 16
STEPS = 10
SIDES = (64, 128)
SIDE = SIDES[0]  # of training: the smallest, where the framework weighs most
ROWS = 8  # of a training step
UPDATES = 12
EPOCHS = 5
WORDS = "draw a red path from S to E"
GRPO = GrpoConfig(
    epochs=EPOCHS,
    rows=20,
    rollout=RolloutConfig(prompts_per_epoch=2, group_size=8, steps=6),
    objective=ObjectiveConfig(clip_low=0.2, clip_high=0.2),
    alarms=AlarmsConfig(log_ratio=None, diversity=None),
    optimizer=OptimizerConfig(lr=1e-5),
    checkpoint_every=1000,
    strategy=StrategyConfig(accelerator="cpu"),
)
MICROS = 4  # of 16 images x 5 random steps, by 20 rows


def editor(folder: Path, side: int) -> QwenImageEdit:
    """The tiny model that draws, shows and sees images of side x side pixels."""
    full = compose("sft", ["model=qwen_image_edit_2511"]).model
    assert full.editing is not None
    model = build_model(
        replace(
            full,
            checkpoint=str(folder),
            architecture=replace(full.architecture, image_size=side),
            editing=replace(full.editing, latent_size=side, look_size=side),
            sampling=replace(full.sampling, steps=STEPS, edit_text_scale=4.0),
        )
    )
    assert isinstance(model, QwenImageEdit)
    return model


def brightness(prompts: Sequence[str], completions: Sequence[np.ndarray], **columns: object) -> list[float]:
    return [float(image.mean()) for image in completions]


def cpu_seconds(run: Callable[[], object], times: int) -> list[float]:
    moments = [time.process_time()]
    for _ in range(times):
        run()
        moments.append(time.process_time())
    return [after - before for before, after in itertools.pairwise(moments)]


# --- a group of images --------------------------------------------------------------------------------------------


def group(folder: Path, rounds: int) -> Table:
    """16 images of one prompt: rolled out for reinforcement, one call of diffusers' pipeline for 16, and 16 calls."""
    from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit_plus as plus

    yield from table(
        f"{GROUP} images of one prompt, {STEPS} steps", "rollout, CPU s", "one diffusers call, CPU s",
        f"{GROUP} calls, CPU s", "rollout / one call", f"rollout / {GROUP} calls",
    )  # fmt: skip
    pipeline = tiny.pipeline(zero_cond_t=True)
    config = replace(GRPO, rollout=RolloutConfig(prompts_per_epoch=1, group_size=GROUP, steps=STEPS))
    for side in SIDES:
        model, shown = editor(folder, side), picture(0, side)
        asked = {
            "image": Image.fromarray(shown),
            "prompt": WORDS,
            "negative_prompt": " ",
            "true_cfg_scale": 4.0,
            "num_inference_steps": STEPS,
            "height": side,
            "width": side,
        }

        def ours(model: QwenImageEdit = model, shown: np.ndarray = shown) -> None:
            sample_epoch(model, [Prompt("it", WORDS, (shown,))], [Reward("brightness", brightness)], config, "grpo", 0)

        def theirs(asked: dict[str, object] = asked) -> None:
            for seed in range(GROUP):
                pipeline(**asked, generator=torch.Generator().manual_seed(seed))

        def at_once(asked: dict[str, object] = asked) -> None:
            each = [torch.Generator().manual_seed(seed) for seed in range(GROUP)]
            pipeline(**asked, num_images_per_prompt=GROUP, generator=each)

        with mock.patch.multiple(plus, VAE_IMAGE_SIZE=side**2, CONDITION_IMAGE_SIZE=side**2):  # not a megapixel
            runs = {"ours": ours, "at_once": at_once, "theirs": theirs}
            taken = interleaved(rounds, runs, clock="cpu")
        yield row(
            f"{side} x {side} pixels",
            *(f"{taken[name]:.2f}" for name in runs),
            f"**{taken['ours'] / taken['at_once']:.2f}**",
            f"{taken['ours'] / taken['theirs']:.2f}",
        )


# --- the same model calls, without the framework --------------------------------------------------------------------


class Bare:
    """The steps of supervised and reinforced training as a script would write them for exactly these sizes."""

    def __init__(self, model: QwenImageEdit, side: int) -> None:
        self.model, self.grid = model, (side // 16, side // 16)
        config = model.vae.config
        self.mean = torch.tensor(config.latents_mean).view(1, -1, 1, 1)
        self.std = torch.tensor(config.latents_std).view(1, -1, 1, 1)
        self.trained = [weight for weight in model.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.AdamW(self.trained, lr=GRPO.optimizer.lr, betas=GRPO.optimizer.betas, fused=True)
        self.random = torch.Generator().manual_seed(0)

    @torch.no_grad()
    def read(self, prompts: Sequence[str], images: Sequence[np.ndarray]) -> Tensor:
        """Hidden states [B, L, D] of prompts of one length."""
        chats = [draw_chat(prompt, 1, plus=True, edits=True) for prompt in prompts]
        states: Tensor = self.model.text_encoder.model(**self.model.processor(chats, list(images))).last_hidden_state
        return states[:, template_tokens(chats[0]) :]

    @torch.no_grad()
    def encode(self, images: Sequence[np.ndarray]) -> Tensor:
        x = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 255 * 2 - 1
        return pack((self.model.vae.encode(x.unsqueeze(2)).latent_dist.mode()[:, :, 0] - self.mean) / self.std)

    @torch.no_grad()
    def decode(self, x: Tensor) -> list[np.ndarray]:
        z = unpack(x, self.grid) * self.std + self.mean
        image = self.model.vae.decode(z.unsqueeze(2), return_dict=False)[0][:, :, 0]
        return list(((image / 2 + 0.5).clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy())

    def predict(self, x: Tensor, t: Tensor, text: Tensor, shown: Tensor) -> Tensor:
        found: Tensor = self.model.transformer(
            hidden_states=torch.cat([x, shown], dim=1),
            timestep=t.expand(len(x)),
            encoder_hidden_states=text,
            encoder_hidden_states_mask=None,
            img_shapes=[[(1, *self.grid)] * 2] * len(x),
            return_dict=False,
        )[0]
        return found[:, : x.shape[1]]

    def update(self) -> None:
        nn.utils.clip_grad_norm_(self.trained, GRPO.optimizer.clip, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def supervised(self, examples: Sequence[Example]) -> None:
        """One update of supervised training."""
        text = self.read([one.prompt for one in examples], [one.images[0] for one in examples])
        shown = self.encode([one.images[0] for one in examples])
        clean = self.encode([one.target for one in examples if one.target is not None])
        noise = torch.randn(clean.shape, generator=self.random)
        t = train_timestep(torch.randn(len(clean), generator=self.random), 1.0)
        x = clean + t[:, None, None] * (noise - clean)
        (self.predict(x, t, text, shown) - (noise - clean)).square().mean().backward()
        self.update()

    def reinforced(self, prompts: Sequence[Prompt]) -> None:
        """An epoch of Flow-GRPO: draw, reward, update."""
        k, steps = GRPO.rollout.group_size, GRPO.rollout.steps
        images = [one.images[0] for one in prompts]
        text, empty, shown = (
            one.repeat_interleave(k, 0)
            for one in (
                self.read([one.text for one in prompts], images),
                self.read([" "] * len(prompts), images),
                self.encode(images),
            )
        )
        schedule = self.model.shift.schedule(steps, self.grid[0] * self.grid[1])
        rule = step_rule("flow_grpo", 0.7)
        guided = lambda x, t, rows: true_cfg(  # noqa: E731
            self.predict(x, t, text[rows], shown[rows]), self.predict(x, t, empty[rows], shown[rows]), 4.0
        )
        with torch.no_grad():
            x = torch.randn(shown.shape, generator=self.random)
            everything, latents, log_probs = torch.arange(len(x)), [x], []
            for step in range(steps - 1):
                moved = rule.transition(x, guided(x, schedule.levels[step], everything), schedule, step)
                x = moved.sample(torch.randn(x.shape, generator=self.random))
                log_probs.append(moved.log_prob(x))
                latents.append(x)
            t, t_next = schedule.step(steps - 1)
            final = x - (t - t_next) * guided(x, t, everything)
            rewards = torch.tensor(brightness([], self.decode(final))).view(-1, k)
            advantages = ((rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)).flatten()
        trajectory, old = torch.stack(latents, 1), torch.stack(log_probs, 1)
        picked = torch.randperm(old.numel(), generator=self.random)
        for part in picked.chunk(MICROS):
            rows, step_of = part // (steps - 1), part % (steps - 1)
            x, after = trajectory[rows, step_of], trajectory[rows, step_of + 1]
            velocity = guided(x, schedule.levels[step_of], rows)
            ratio = (rule.transition(x, velocity, schedule, step_of).log_prob(after) - old[rows, step_of]).exp()
            terms = torch.maximum(-advantages[rows] * ratio, -advantages[rows] * ratio.clamp(0.8, 1.2))
            (terms.sum() / len(picked)).backward()
        self.update()


# --- training -------------------------------------------------------------------------------------------------------


def sft(folder: Path, rounds: int) -> Table:
    """A training step by `fit_supervised`, and the same calls without it."""
    yield from table(f"supervised step, {ROWS} edits", "framework, CPU s", "bare calls, CPU s", "ratio")
    model = editor(folder, SIDE)
    examples = [Example(WORDS, (picture(i, SIDE),), target=picture(99 - i, SIDE), seed=i) for i in range(ROWS)]
    updates = Updates(UPDATES, rows=ROWS)
    model.prepare_training(timestep_shift=1.0, text_dropout=0.0)
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        taken = lightning_steps(model, {"edits": examples}, Constant({"edits": 1.0}), GRPO, updates)
        ours += [one.cpu for one in taken]
        theirs += cpu_seconds(partial(Bare(model, SIDE).supervised, examples), UPDATES)[2:]
    yield compared(ours, theirs)


def grpo(folder: Path, rounds: int) -> Table:
    """An epoch by `fit_flow_grpo`, and the same calls without it."""
    pictures = GRPO.images
    title = f"epoch of Flow-GRPO, {pictures} images of {GRPO.rollout.steps} steps, {MICROS} micro-batches"
    yield from table(title, "framework, CPU s", "bare calls, CPU s", "ratio")
    model = editor(folder, SIDE)
    prompts = [Prompt(f"p{i}", WORDS, (picture(i, SIDE),)) for i in range(GRPO.rollout.prompts_per_epoch)]
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        ours += reinforced_epochs(model, prompts)
        theirs += cpu_seconds(partial(Bare(model, SIDE).reinforced, prompts), EPOCHS)[1:]
    yield compared(ours, theirs)


def reinforced_epochs(model: QwenImageEdit, prompts: Sequence[Prompt]) -> list[float]:
    """CPU seconds from the drawing of an epoch to the drawing of the next."""
    moments: list[float] = []

    def note(epoch: int, drawn: ScoredImages) -> None:
        moments.append(time.process_time())

    with tempfile.TemporaryDirectory() as directory:
        sampling = Sampling(PromptList(prompts, 0), [Reward("b", brightness)], on_images=note)
        fit_flow_grpo(model, sampling, GRPO, Path(directory), FitOptions(stage="grpo", progress=False))
    return [after - before for before, after in itertools.pairwise(moments)]


def compared(ours: Sequence[float], theirs: Sequence[float]) -> str:
    one, other = statistics.median(ours), statistics.median(theirs)
    return row(f"{SIDE} x {SIDE} pixels", f"{one:.4f}", f"{other:.4f}", f"**{one / other:.3f}**")


# --- all of it ------------------------------------------------------------------------------------------------------

SECTIONS: dict[str, Callable[[Path, int], Iterator[str]]] = {"group": group, "sft": sft, "grpo": grpo}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "--only", type=some_of(SECTIONS), default=",".join(SECTIONS), help="sections, with commas (default: all)"
    )
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--threads", type=int, help="CPU threads (default: the cores there are, at most four)")
    return made


def main() -> None:
    chosen = parser().parse_args()
    prepare_cpu(chosen.threads or "auto")
    print(machine())
    with tempfile.TemporaryDirectory() as directory:
        folder = tiny.published(Path(directory) / "tiny", zero_cond_t=True)
        for name in chosen.only:
            print(flush=True)
            for line in SECTIONS[name](folder, chosen.rounds):
                print(line, flush=True)


if __name__ == "__main__":
    main()
