"""What a model gains by looking at its image and drawing again, beside other uses of as many images.

    python bench/experiment.py redraw --base seeing=FOLDER --base shipped=shipped -o n=100 --seeds 0

Normal images of the test split. All arms choose among the same `most` images of each prompt, those that
`eval redraw=N` draws: *any* is the bound that a perfect judge would reach. *Best of M* draws M images at once, which
with their judgements are as many calls as redrawing took.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from bench.experiment import SETS, Lab
from bench.markdown import interval, row, table
from uni_train.config.compose import compose
from uni_train.core.seeds import derive_seed
from uni_train.data_gen import sprites
from uni_train.data_gen.registry import get_task
from uni_train.eval.benchmark import Ask, Scored
from uni_train.eval.images import pixels
from uni_train.eval.reading import caption
from uni_train.eval.redraw import accepts, seed_of
from uni_train.eval.statistics import share
from uni_train.eval.task_benchmark import TaskBenchmark, verification_request
from uni_train.models.base import Request, UnifiedModel
from uni_train.models.load import build_model
from uni_train.models.nano.language import CAPTION_PROMPT, UNCLEAR
from uni_train.stages.batched import Batched
from uni_train.stages.cpu import prepare_cpu
from uni_train.stages.work import in_batches


@dataclass(frozen=True)
class Prompt:
    """The images of one prompt, in the order in which they are drawn: whether each is right, whether the model accepts
    it, what the model says that it shows, and what a program reads (None: nothing clear)."""

    cluster: str
    right: Sequence[bool]
    accepted: Sequence[bool]
    captions: Sequence[str | None]
    readings: Sequence[str | None]


@dataclass(frozen=True)
class Arm:
    """Whether the image of each prompt is right, and the calls that all prompts took."""

    right: Sequence[bool]
    images: int
    judgements: int = 0
    captions: int = 0


def redraw(lab: Lab, n: int = 100, most: int = 8, sets: Sequence[tuple[str, int]] = SETS) -> Iterator[str]:
    """Shares of right images, with calls and CPU seconds a sample; n prompts a set and seed."""
    yield from table("model, set, arm", "right", "images", "calls", "CPU s")
    for name, overrides in (lab.bases or {"shipped": ()}).items():
        config = compose("stars_curriculum", [*lab.overrides, *overrides])
        prepare_cpu(config.model.threads)
        model = build_model(config.model)
        for task, level in sets:
            took: dict[str, float] = defaultdict(float)
            prompts: list[Prompt] = []
            thoughtful: list[Scored] = []
            for seed in lab.seeds:
                asks = _asks(task, level, n, seed)
                prompts += _prompts(model, config, [ask for ask in asks if ask.setting == "normal"], most, took)
                cot = [ask for ask in asks if ask.setting == "cot"]
                with _timed(took, "cot"):
                    thoughtful += _drawn(model, config, cot)
            clusters, drawn = [prompt.cluster for prompt in prompts], len(prompts) * most
            each = {kind: took[kind] / drawn for kind in ("images", "judgements", "captions")}
            for arm, of in arms(prompts, most).items():
                calls = (of.images + of.judgements + of.captions) / len(prompts)
                seconds = sum(each[kind] * getattr(of, kind) for kind in each) / len(prompts)
                right = interval(share(of.right, clusters), ".3f")
                yield row(f"{name}, {task}{level}, {arm}", right, f"{of.images / len(prompts):.2f}", f"{calls:.2f}",
                          f"{seconds:.3f}")  # fmt: skip
            right = share([answer.passed for answer in thoughtful], [a.sample.ask.case.cluster_id for a in thoughtful])
            yield row(f"{name}, {task}{level}, CoT once", interval(right, ".3f"), "1.00", "2.00",
                      f"{took['cot'] / len(thoughtful):.3f}")  # fmt: skip
    yield ""
    yield f"{n} prompts a set and seed ({', '.join(map(str, lab.seeds))}), at most {most} images each."
    yield "95 % intervals, clustered by item. Calls are images, judgements, captions and thoughts."


def arms(prompts: Sequence[Prompt], most: int) -> dict[str, Arm]:
    """Name -> what this use of the images of all prompts gives and takes."""
    tries = [next((k for k in range(most - 1) if prompt.accepted[k]), most - 1) for prompt in prompts]
    images, judgements = sum(k + 1 for k in tries), sum(min(k + 1, most - 1) for k in tries)
    best = min(max(1, round(((images + judgements) / len(prompts) + 1) / 2)), most)
    at_once = [next((k for k in range(best - 1) if prompt.accepted[k]), best - 1) for prompt in prompts]
    every = len(prompts) * most
    return {
        "once": Arm([prompt.right[0] for prompt in prompts], len(prompts)),
        "redrawn by its judgement": Arm(
            [prompt.right[k] for prompt, k in zip(prompts, tries, strict=True)], images, judgements
        ),
        f"best of {best} at once by its judgement": Arm(
            [prompt.right[k] for prompt, k in zip(prompts, at_once, strict=True)],
            len(prompts) * best,
            len(prompts) * (best - 1),
        ),
        f"majority of {most} by its captions": Arm(
            [prompt.right[majority(prompt.captions)] for prompt in prompts], every, captions=every
        ),
        f"majority of {most} by the program": Arm(
            [prompt.right[majority(prompt.readings)] for prompt in prompts], every
        ),
        f"any of {most}": Arm([any(prompt.right) for prompt in prompts], every),
    }


def majority(seen: Sequence[str | None]) -> int:
    """The first image that shows what most of them show; those that show nothing clear count where all do."""
    counts = Counter(what for what in seen if what is not None)
    return seen.index(counts.most_common(1)[0][0]) if counts else 0


def _asks(task: str, level: int, n: int, seed: int) -> list[Ask]:
    made = get_task(task, "nano")
    items = made.generate(n // made.items_per_draw, level, "test", derive_seed("redraw", seed, task, level))
    return TaskBenchmark.from_items(items).asks(seed)


def _prompts(model: UnifiedModel, config, asks: Sequence[Ask], most: int, took: dict[str, float]) -> list[Prompt]:
    """All images of all prompts, and what the model and the programs say of them."""
    tries = [replace(ask, seed=seed_of(ask.seed, k)) for ask in asks for k in range(most)]
    with _timed(took, "images"):
        scored = _drawn(model, config, tries)
    samples = [answer.sample for answer in scored]
    answer = Batched(model, config.model.think_batch).answer
    questions = [verification_request(model.family, sample) for sample in samples]
    with _timed(took, "judgements"):
        verdicts = list(map(accepts, answer(questions)))
    shown = [pixels(sample.drawn[-1]) for sample in samples]
    looked = [Request(str(k), CAPTION_PROMPT, (image,)) for k, image in enumerate(shown)]
    with _timed(took, "captions"):
        captions = list(map(caption, answer(looked)))
    readings = [sprites.read(image) for image in shown]
    seen = [f"{read.count} {read.name}" if read.readable else None for read in readings]
    return [
        Prompt(
            ask.case.cluster_id,
            [one.passed for one in scored[at : at + most]],
            verdicts[at : at + most],
            [None if said == UNCLEAR else said for said in captions[at : at + most]],
            seen[at : at + most],
        )
        for at, ask in zip(range(0, len(tries), most), asks, strict=True)
    ]


def _drawn(model: UnifiedModel, config, asks: Sequence[Ask]) -> list[Scored]:
    benchmark = TaskBenchmark(list({ask.case.id: ask.case for ask in asks}.values()))
    drawer = Batched(model, config.model.think_batch)
    return [one for _, some in in_batches(asks, config.model.draw_batch) for one in benchmark.verified(drawer, some)]


@contextmanager
def _timed(took: dict[str, float], kind: str) -> Iterator[None]:
    began = time.process_time()
    yield
    took[kind] += time.process_time() - began
