"""The figures of BAGEL on this machine, as markdown tables: `make bench-bagel` (about five minutes on one core).

    python bench/bagel.py [--only draw,guidance,write,train,read] [--models tiny,100m] [--sides 64,128]
        [--dtype float32]
    git clone https://github.com/ByteDance-Seed/Bagel official
    python bench/bagel.py --only official --official official
    git clone https://github.com/ThinkMorph/ThinkMorph thinkmorph
    python bench/bagel.py --only interleaved --official thinkmorph

Two models: the tiny official checkpoint (random weights of the released code, tests/data/golden/bagel, float32), and a
random one of 100 million parameters in the same architecture, in the bfloat16 that BAGEL is published in (--dtype
float32: not). Both have the tiny checkpoint's autoencoder. One request or example at a time, and 16.

Batches are measured in turn with single calls in the same minutes; times are medians. CPU seconds are the process's own
(of all its threads): the ones to quote from a machine that has other work. Memory is what the process needed at most
during the work, beyond what it holds with the model loaded. A square matrix product shows what the processor can do.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.choices import some_of
from bench.markdown import row, table
from bench.nano import SQUARE, Table
from bench.timing import Moment, interleaved, machine, peak_memory, taken
from uni_train.config.compose import compose
from uni_train.config.schema import SamplingConfig
from uni_train.models.bagel import generation
from uni_train.models.bagel.bagel import Bagel
from uni_train.models.bagel.caches import KVCache
from uni_train.models.bagel.checkpoint import PublishedBagel, load, open_folder
from uni_train.models.bagel.config import BagelConfig, LlmConfig, SpecialTokens, VitConfig
from uni_train.models.bagel.generation import Branch, Contexts, generate_text, prefill
from uni_train.models.bagel.packing import Text
from uni_train.models.bagel.prompts import THINK_THEN_ANSWER, THINK_THEN_DRAW
from uni_train.models.bagel.unified import BagelUnified, Speech
from uni_train.models.bagel.vae import AutoEncoder
from uni_train.models.base import Example, Request
from uni_train.models.family import family_of
from uni_train.stages.cpu import prepare_cpu

if TYPE_CHECKING:
    from bench.official_bagel import Official

ROOT = Path(__file__).resolve().parents[1]
TINY = ROOT / "tests" / "data" / "golden" / "bagel"
BATCH = 16
WRITTEN = 64  # tokens
SIDES = (64, 128)  # pixels; 128 is what the tiny checkpoint's position table reaches
SHORT_STEPS = 7  # of the larger model: a seventh of the released 49
SENTENCE = "a small red boat with two white sails lies on the quiet water of a lake between the green hills"
SPEECH = Speech(THINK_THEN_DRAW, answer_system=THINK_THEN_ANSWER)


class Letters:
    """A token a letter, in both directions: neither model has a vocabulary of words."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


# --- the two models -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Subject:
    """A model, and what it is called in the tables."""

    title: str
    model: BagelUnified

    @property
    def dtype(self) -> torch.dtype:
        return self.model.bagel.dtype

    def at(self, side: int, steps: int | None = None) -> BagelUnified:
        """The model, set to draw images of side x side pixels in so many steps."""
        self.model.image_size = side
        if steps is not None:
            self.model.sampling = replace(self.model.sampling, steps=steps)
        return self.model


def tiny() -> Subject:
    """The tiny official checkpoint, as far as possible read as a published folder is; it has no tokenizer."""
    opened = open_folder(TINY)
    ids = json.loads((TINY / "tiny_config.json").read_text(encoding="utf-8"))["new_token_ids"]
    marks = SpecialTokens(ids["bos_token_id"], ids["eos_token_id"], ids["start_of_image"], ids["end_of_image"])
    parts = Bagel(opened.config(marks)), AutoEncoder(opened.vae_config())
    model = PublishedBagel("tiny", *parts, Letters(), SPEECH, released_sampling(), SIDES[-1])
    load(model, TINY)
    return Subject("tiny official checkpoint", model.eval())


def hundred(dtype: torch.dtype) -> Subject:
    """Random weights in proportions like BAGEL's: MLP 5.25 widths, four query heads to a key head."""
    vae = AutoEncoder(open_folder(TINY).vae_config())
    vae.load_state_dict(tiny().model.vae.state_dict())
    with torch.device("meta"):
        bagel = Bagel(hundred_config())
    bagel.to_empty(device="cpu")
    bagel.init_weights(0)
    torch.nn.init.normal_(bagel.llm2vae.weight, std=0.02, generator=torch.Generator().manual_seed(1))
    model = BagelUnified("100M", bagel.to(dtype), vae, Letters(), SPEECH, released_sampling(), SIDES[-1])
    return Subject(f"100M, {_name(dtype)}", model.eval())


def hundred_config() -> BagelConfig:
    return BagelConfig(
        LlmConfig(
            vocab_size=16384,
            hidden_size=512,
            intermediate_size=2688,
            num_hidden_layers=8,
            num_attention_heads=8,
            num_key_value_heads=2,
        ),
        VitConfig(
            hidden_size=288,
            intermediate_size=1152,
            num_hidden_layers=4,
            num_attention_heads=6,
            patch_size=14,
            image_size=140,
        ),
        SpecialTokens(300, 301, 302, 303),
        max_latent_size=8,
        vit_max_num_patch_per_side=10,
    )


def released_sampling() -> SamplingConfig:
    return compose("stars_curriculum", ["model=bagel_7b"]).model.sampling


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def requests(count: int, **about: object) -> list[Request]:
    """Prompts of 5 to 20 words; one alone has 12, the middle."""
    lengths = [12] if count == 1 else [5 + number % 16 for number in range(count)]
    return [
        Request(f"r{number}", " ".join(SENTENCE.split()[:length]), seed=number, **about)  # type: ignore[arg-type]
        for number, length in enumerate(lengths)
    ]


def picture(seed: int, side: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), np.uint8)


# --- measuring ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Of one call: median wall and CPU seconds, and MB beyond those of the idle process (None: not known here)."""

    wall: float
    cpu: float
    memory: float | None

    @property
    def megabytes(self) -> str:
        return "?" if self.memory is None else f"{self.memory:.0f}"


def measure(repeats: int, runs: Mapping[str, Callable[[], object]]) -> dict[str, Cost]:
    """Each once for its memory, then in turn so that a slow moment meets all alike."""
    memory = {name: peak_memory(run) for name, run in runs.items()}
    medians = {name: Moment.median(moments) for name, moments in taken(repeats, runs).items()}
    return {name: Cost(one.wall, one.cpu, memory[name]) for name, one in medians.items()}


def count_flops(run: Callable[[], object]) -> float:
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def peak_rate(dtype: torch.dtype) -> float:
    """FLOP of a square matrix product in a CPU second."""
    a, b = (torch.randn(SQUARE, SQUARE).to(dtype) for _ in range(2))
    out = a @ b
    return 2 * SQUARE**3 / measure(5, {"square": lambda: torch.matmul(a, b, out=out)})["square"].cpu


# --- images -------------------------------------------------------------------------------------------------------


def draw(subjects: Sequence[Subject], sides: Sequence[int]) -> Table:
    """Images from text by one request and by 16 at once."""
    yield from table(
        "images from text", "at once", "s an image", "CPU s", "of it decoding", "times single calls", "by CPU s",
        "GFLOP a CPU s", "MB",
    )  # fmt: skip
    met = []
    for subject in subjects:
        for side in sides:
            small = subject.model.name == "tiny"
            model = subject.at(side, released_sampling().steps if small else SHORT_STEPS)
            asked = {count: requests(count) for count in (1, BATCH)}
            latents = {count: model.noise(one) for count, one in asked.items()}
            cost = measure(
                3 if small else 2,
                {f"draw {count}": partial(model.draw, one) for count, one in asked.items()}
                | {f"decode {count}": partial(model.decode, x) for count, x in latents.items()},
            )
            flops = count_flops(partial(model.draw, asked[1]))
            alone = cost["draw 1"]
            title = f"{subject.title}, {side} x {side}, {model.sampling.steps} steps"
            for count in (1, BATCH):
                own, decoding = cost[f"draw {count}"], cost[f"decode {count}"]
                times, by_cpu = count * alone.wall / own.wall, count * alone.cpu / own.cpu
                yield row(
                    title if count == 1 else "",
                    count,
                    f"{own.wall / count:.3f}",
                    f"{own.cpu / count:.3f}",
                    f"{decoding.cpu / count:.3f}",
                    f"{times:.1f}",
                    f"**{by_cpu:.1f}**",
                    f"{flops * count / own.cpu / 1e9:.0f}",
                    own.megabytes,
                )
            met.append((title, by_cpu if torch.get_num_threads() == 1 else times))
    yield ""
    short = [title for title, times in met if times < 4]
    yield f"At least 4 times single calls: {len(met) - len(short)} of {len(met)}." + (
        f" Not: {'; '.join(short)}." if short else ""
    )
    for dtype in dict.fromkeys([torch.float32, *(subject.dtype for subject in subjects)]):
        rate = peak_rate(dtype) / 1e9
        yield f"A square product of {SQUARE} x {SQUARE} in {_name(dtype)}: {rate:.0f} GFLOP a CPU second."
    yield f"Guidance by text in {released_sampling().cfg_interval}, as released; the autoencoder in float32."


def _texts(model: BagelUnified, prompts: Sequence[str]) -> None:
    cache = prefill(model.bagel, [[Text(model.tokenizer.encode(prompt))] for prompt in prompts])
    generate_text(model.bagel, cache, WRITTEN, stop=-1, close=False)


def beside_official(subjects: Sequence[Subject], sides: Sequence[int], folder: Path) -> Table:
    """Images and greedy texts, and the same by the released code with the same weights: measured in turn."""
    from bench.official_bagel import Official

    yield from table("CPU s", "at once", "ours", "released code", "ours / released")
    for subject in subjects:
        small = subject.model.name == "tiny"
        theirs = Official(folder, subject.model)

        def compared(title: str, count: int, ours: Callable[[], object], released: Callable[[], object]) -> str:
            found = interleaved(3, {"ours": ours, "released": released}, clock="cpu")
            return row(
                title, count, *(f"{x:.3f}" for x in found.values()), f"**{found['ours'] / found['released']:.2f}**"
            )

        for side in sides:
            model = subject.at(side, released_sampling().steps if small else SHORT_STEPS)
            for count in (1, BATCH):
                asked = requests(count)
                yield compared(
                    f"{subject.title}, {side} x {side}, {model.sampling.steps} steps",
                    count,
                    partial(model.draw, asked),
                    partial(theirs.draw, [one.prompt for one in asked], side),
                )
        for count in (1, BATCH):
            prompts = [one.prompt for one in requests(count)]

            yield compared(
                f"{subject.title}, {WRITTEN} tokens",
                count,
                partial(_texts, subject.model, prompts),
                partial(theirs.write, prompts, WRITTEN),
            )
        if subject.dtype == torch.bfloat16:  # released code trains in no other
            yield from _trained_beside(subject, theirs, compared)
    yield ""
    yield "The released code computes attention in bfloat16, here by PyTorch's: flash_attn has no CPU."
    yield "Updates are of prompts and images of 128 pixels; the released code is given its rows packed."


def _trained_beside(subject: Subject, theirs: Official, compared: Callable[..., str]) -> Table:
    side = SIDES[-1]
    model = subject.at(side)
    model.prepare_training(timestep_shift=model.sampling.timestep_shift, text_dropout=0.0)
    asked = [Example(one.prompt, target=picture(one.seed, side), seed=one.seed) for one in requests(BATCH)]
    images, packed = [one.target for one in asked if one.target is not None], theirs.packed(asked)

    def optimizer(module: torch.nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW([x for x in module.parameters() if x.requires_grad], lr=1e-6, fused=True)

    ours, released = optimizer(model), optimizer(theirs.model)
    yield compared(
        f"{subject.title}, an update",
        BATCH,
        partial(update, model, ours, asked),
        partial(theirs.update, released, packed, images),
    )


class GoingOn:
    """A token a letter, and an image behind every text that was written."""

    def encode(self, text: str) -> list[int]:
        written = text.endswith("<image_start>")
        return [ord(x) - ord("a") for x in text.removesuffix("<image_start>")] if written else [ord(x) for x in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(ord("a") + i) for i in ids) + "<image_start>"


def beside_loop(subjects: Sequence[Subject], sides: Sequence[int], folder: Path) -> Table:
    """Interleaved answers of three images, and those of the loop released with ThinkMorph: measured in turn."""
    from bench.official_bagel import OfficialLoop

    yield from table("CPU s of an answer", "ours", "released code", "ours / released", "texts equal", "pixels off by")
    for subject in subjects:
        model = subject.model
        model.tokenizer = GoingOn()
        for side in sides:
            model.image_size = side
            model.vae_transform = replace(model.vae_transform, max_size=side, min_size=side)
            steps = 10 if model.name == "tiny" else released_sampling().steps
            model.sampling = replace(
                model.sampling, interleaving="thinkmorph", temperature=0.0, max_think_tokens=24, steps=steps
            )
            theirs = OfficialLoop(folder, model, subject.dtype)
            shown = np.random.default_rng(0).integers(0, 256, (side, side, 3), np.uint8)
            asked = [Request(str(i), SENTENCE[i:16], (shown,) if i % 2 else (), seed=i) for i in range(4)]
            ours = [answer for request in asked for answer in model.compose([request])]
            released = [theirs.compose(request, 3) for request in asked]
            pairs = [pair for one, two in zip(ours, released, strict=True) for pair in zip(one, two, strict=True)]
            texts = [one == two for one, two in pairs if isinstance(one, str)]
            off = max(int(np.abs(x.astype(int) - y).max()) for x, y in pairs if not isinstance(x, str))
            runs = {"ours": partial(model.compose, asked[1:2]), "released": partial(theirs.compose, asked[1], 3)}
            found = interleaved(3, runs, "cpu")
            yield row(
                f"{subject.title}, {side} x {side}, {steps} steps", *(f"{x:.3f}" for x in found.values()),
                f"**{found['ours'] / found['released']:.2f}**", f"{sum(texts)} of {len(texts)}", off,
            )  # fmt: skip
    yield ""
    yield "Three texts of 24 tokens, three images. In bfloat16 texts differ by rounding, and images with them."


def guidance(subjects: Sequence[Subject], sides: Sequence[int]) -> Table:
    """The branches of guidance in one pass and in separate ones: in turn, a ratio a pair."""
    yield from table("images from text", "at once", "latent tokens", "CPU s apart", "one pass", "from", "to", "off by")
    for subject in subjects:
        for side in sides:
            model = subject.at(side, 20 if subject.model.name == "tiny" else 3)
            for count in (1, 4, BATCH):
                asked = requests(count)
                taken: dict[int, list[float]] = {-1: [], sys.maxsize: []}
                drawn: dict[int, list[np.ndarray]] = {}
                for _ in range(4):
                    for limit, times in taken.items():
                        with mock.patch.object(generation, "ONE_PASS", limit):
                            before = time.process_time()
                            drawn[limit] = model.draw(asked)
                            times.append(time.process_time() - before)
                apart, together = (times[1:] for times in taken.values())  # the first pair warms up
                ratios = [one / two for one, two in zip(together, apart, strict=True)]
                off = max(int(np.abs(a.astype(int) - b).max()) for a, b in zip(*drawn.values(), strict=True))
                tokens = count * (side // model.stride) ** 2
                yield row(
                    f"{subject.title}, {side} x {side}", count, tokens, f"{statistics.median(apart):.3f}",
                    f"**{statistics.median(ratios):.2f}**", f"{min(ratios):.2f}", f"{max(ratios):.2f}", off,
                )  # fmt: skip
    yield ""
    yield f"Chosen up to {generation.ONE_PASS} latent tokens. Off by: of 255, the largest difference of a pixel."


# --- texts ----------------------------------------------------------------------------------------------------------


def write(subjects: Sequence[Subject]) -> Table:
    """64 tokens behind one context and behind 16; no end marker stops them."""
    yield from table(
        f"{WRITTEN} tokens", "at once", f"s for {WRITTEN} each", "CPU s", "times single calls", "by CPU s", "MB",
    )  # fmt: skip
    for subject in subjects:
        bagel = subject.model.bagel
        with torch.inference_mode():
            caches = {
                count: prefill(bagel, [[Text(subject.model.tokenizer.encode(one.prompt))] for one in requests(count)])
                for count in (1, BATCH)
            }
            cost = measure(
                3,
                {
                    str(count): partial(generate_text, bagel, cache, WRITTEN, stop=-1, close=False)
                    for count, cache in caches.items()
                },
            )
        for count in (1, BATCH):
            own, alone = cost[str(count)], cost["1"]
            yield row(
                subject.title if count == 1 else "",
                count,
                f"{own.wall:.3f}",
                f"{own.cpu:.3f}",
                f"{count * alone.wall / own.wall:.1f}",
                f"{count * alone.cpu / own.cpu:.1f}",
                own.megabytes,
            )


# --- training -------------------------------------------------------------------------------------------------------


def train(subjects: Sequence[Subject]) -> Table:
    """Whole updates: make the batch (the autoencoder included), both losses, gradients, clipping, AdamW."""
    side = SIDES[-1]
    yield from table(
        f"training step, prompt to {side} x {side}", "examples", "tokens", "s a step", "CPU s", "of it the batch",
        "times single examples", "by CPU s", "GFLOP a CPU s", "of the square", "MB",
    )  # fmt: skip
    for subject in subjects:
        model = subject.at(side)
        model.prepare_training(timestep_shift=model.sampling.timestep_shift, text_dropout=0.0)
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        optimizer = torch.optim.AdamW(weights, lr=1e-6, fused=True)
        examples = {
            count: [Example(one.prompt, target=picture(one.seed, side), seed=one.seed) for one in requests(count)]
            for count in (1, BATCH)
        }
        update(model, optimizer, examples[1])  # makes the optimizer's state: part of the model from here on
        cost = measure(
            2,
            {f"step {count}": partial(update, model, optimizer, some) for count, some in examples.items()}
            | {f"batch {count}": partial(model.collate, some, 0) for count, some in examples.items()},
        )
        peak = peak_rate(subject.dtype)
        for count, some in examples.items():
            own, alone = cost[f"step {count}"], cost["step 1"]
            tokens = sum(model.example_tokens(example) for example in some)
            rate = count_flops(partial(update, model, optimizer, some)) / own.cpu
            yield row(
                subject.title if count == 1 else "",
                count,
                tokens,
                f"{own.wall:.3f}",
                f"{own.cpu:.3f}",
                f"{cost[f'batch {count}'].cpu:.3f}",
                f"{count * alone.wall / own.wall:.1f}",
                f"{count * alone.cpu / own.cpu:.1f}",
                f"{rate / 1e9:.0f}",
                f"{rate / peak:.2f}",
                own.megabytes,
            )
        optimizer.zero_grad(set_to_none=True)


def update(model: BagelUnified, optimizer: torch.optim.Optimizer, examples: Sequence[Example]) -> None:
    loss = model.supervised_loss(model.collate(examples, 0))
    total = loss.ce_sum / loss.ce_tokens.clamp(min=1) + loss.mse_sum / loss.mse_tokens.clamp(min=1)
    optimizer.zero_grad()
    total.backward()
    torch.nn.utils.clip_grad_norm_(
        [weight for group in optimizer.param_groups for weight in group["params"] if weight.grad is not None], 1.0
    )
    optimizer.step()


# --- what is read ---------------------------------------------------------------------------------------------------


@dataclass
class Reading:
    """What one call had the model do.

    Attributes:
        passes: of the decoder over new context, for all rows at once. tokens: in them, without padding.
        written: tokens of text a row, one pass each. velocities: passes over the latents.
        seen: images through the ViT. encoded: through the autoencoder.
    """

    passes: int = 0
    tokens: int = 0
    written: int = 0
    velocities: int = 0
    seen: int = 0
    encoded: int = 0


@contextmanager
def counting(model: BagelUnified) -> Iterator[Reading]:
    """Counts what enters caches, what is denoised, and what the two image encoders get."""
    found = Reading()
    commit, velocity = KVCache.commit, Branch.__call__

    def counted_commit(self: KVCache, valid: torch.Tensor, *more: Any) -> None:
        if valid.shape[1] == 1:  # a context has two markers at least
            found.written += 1
        else:
            found.passes += 1
            found.tokens += int(valid.sum())
        commit(self, valid, *more)

    def counted_velocity(self: Branch, x: torch.Tensor, t: torch.Tensor | float) -> torch.Tensor:
        found.velocities += 1
        return velocity(self, x, t)

    def count_seen(_: object, arguments: tuple[torch.Tensor, torch.Tensor, Sequence[int]]) -> None:
        found.seen += len(arguments[2])

    def count_encoded(_: object, arguments: tuple[torch.Tensor]) -> None:
        found.encoded += len(arguments[0])

    hooks = [
        model.bagel.vit_model.register_forward_pre_hook(count_seen),
        model.vae.encoder.register_forward_pre_hook(count_encoded),
    ]
    with (
        mock.patch.object(KVCache, "commit", counted_commit),
        mock.patch.object(Branch, "__call__", counted_velocity),
    ):
        yield found
    for hook in hooks:
        hook.remove()


def read(subject: Subject) -> Table:
    """One reading a request: counted, beside the tokens of all contexts that its image is drawn under."""
    model = subject.at(SIDES[-1], released_sampling().steps)
    model.sampling = replace(model.sampling, max_think_tokens=WRITTEN)
    text, batch = requests(1), requests(BATCH)
    editing = requests(1, images=(picture(0, SIDES[-1]),))
    yield from table(
        "asked of the tiny checkpoint", "readings", "tokens read", "read apart", "tokens written", "velocities",
        "images through ViT", "through VAE",
    )  # fmt: skip
    for title, asked, think in (
        ("an image from text", text, False),
        (f"{BATCH} images from text", batch, False),
        ("a thought and an image", text, True),
        (f"{BATCH} thoughts and images", batch, True),
        ("an image from an image and text", editing, False),
        ("a thought and an image from an image", editing, True),
    ):
        with counting(model) as found:
            if think:
                thoughts, _ = model.think_and_draw(asked)
            else:
                model.draw(asked)
        apart = 0
        if think:
            apart += _context_tokens(model.encode([replace(one, thought="") for one in asked]), 1)
            asked = [replace(one, thought=thought) for one, thought in zip(asked, thoughts, strict=True)]
        apart += _context_tokens(model.encode(asked), 3)
        yield row(title, found.passes, found.tokens, apart, found.written, found.velocities, found.seen, found.encoded)
    yield ""
    yield "Read apart: every context of guidance for itself, and all of them again after the thought. Where an image"
    yield "guides, the texts without it are a context of their own: the second reading. Written: with two markers."


def _context_tokens(contexts: Contexts, most: int) -> int:
    caches = (contexts.full, contexts.no_text, contexts.no_images)[:most]
    return sum(int(cache.valid.sum()) for cache in caches if cache is not None)


# --- all of it ------------------------------------------------------------------------------------------------------

SECTIONS = {
    "draw": "Images",
    "guidance": "Guidance in one pass",
    "write": "Texts",
    "train": "Training",
    "read": "Readings",
    "official": "Beside the released code",
    "interleaved": "Beside the released loop",
}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "--only", type=some_of(SECTIONS), default="draw,guidance,write,train,read", help="sections, with commas"
    )
    made.add_argument(
        "--official", type=Path, metavar="FOLDER", help="a checkout of the released code, for its section"
    )
    made.add_argument(
        "--models", type=some_of(("tiny", "100m")), default="tiny,100m", help="with commas (default: both)"
    )
    sides = [str(side) for side in SIDES]
    made.add_argument(
        "--sides", type=some_of(sides), default=",".join(sides), help="of drawn images, 64 and 128 pixels"
    )
    made.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16", help="of the 100M model")
    made.add_argument("--threads", type=int, help="CPU threads (default: the cores there are, at most four)")
    return made


def main() -> None:
    chosen = parser().parse_args()
    sides = [int(side) for side in chosen.sides]
    if {"official", "interleaved"} & {*chosen.only} and chosen.official is None:
        parser().error("these sections need --official FOLDER, a checkout of ByteDance-Seed/Bagel or of ThinkMorph")
    prepare_cpu(chosen.threads or "auto")
    print(machine())
    began = time.perf_counter()
    made = {"tiny": tiny, "100m": lambda: hundred(getattr(torch, chosen.dtype))}
    subjects = [made[name]() for name in chosen.models]
    for subject in subjects:
        shapes = {name: tuple(weight.shape) for name, weight in subject.model.bagel.named_parameters()}
        counts = family_of("bagel").by_part(shapes)
        parts = ", ".join(f"{part} {count:,}" for part, count in counts.items() if count)
        print(f"\n{subject.title}: {sum(counts.values()):,} parameters ({parts})")
    makers: dict[str, Callable[[], Table]] = {
        "draw": lambda: draw(subjects, sides),
        "guidance": lambda: guidance(subjects, sides),
        "write": lambda: write(subjects),
        "train": lambda: train(subjects),
        "read": lambda: read(tiny()),
        "official": lambda: beside_official(subjects, sides, chosen.official),
        "interleaved": lambda: beside_loop(subjects, sides, chosen.official),
    }
    for name in chosen.only:
        print(f"\n### {SECTIONS[name]}\n", flush=True)
        for line in makers[name]():
            print(line, flush=True)
    print(f"\nmeasured in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
