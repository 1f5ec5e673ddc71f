"""Stage (II) of STARS, rejection: keep what the filter accepts (paper 004, eq. 2).

The paper's filter is the model's own understanding, asked with the prompt of Table 13 (for mapping with a twin of it).
The reply must end in "Final Answer: YES"; a reply that cannot be read is a rejection, with its own status. Whatever
filters, its precision and recall are reported against the exact verifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from data_gen.seeds import derive_seed
from data_gen.task import Check, Verdict
from eval.benchmarks.unisandbox import Reliability, filter_reliability
from eval.prompts.unisandbox import filter_prompt, parse_final_answer
from eval.sample import ScoredSample, decode_png
from eval.store import read_shard, read_shards, shard_path, write_shard
from uni_train.config.schema import StarsConfig
from uni_train.models.base import Request, UnifiedModel
from uni_train.models.load import build_model
from uni_train.stages.work import StageRun, Work


def run(work: Work[StarsConfig], stage: StageRun, sampled: StageRun) -> None:
    """Judge every sample of the stage before."""
    config = work.config
    total, size = int(sampled.facts()["sampled"]), config.model.draw_batch
    mine, done = work.missing(stage.shards, -(-total // size))
    judge = None
    with work.bar("judge", min(total, len(mine) * size), min(total, len(done) * size)) as bar:
        for index in mine:
            samples = read_shard(shard_path(sampled.shards, index))
            if config.filter in ("self", "judge"):
                judge = judge or _judge(work)
                samples = self_check(judge, samples, config.model.think_batch)
            elif config.filter == "none":
                samples = [replace(s, self_verdict=Verdict((Check("no_filter", "pass"),))) for s in samples]
            else:
                samples = [replace(s, self_verdict=s.verdict) for s in samples]
            write_shard(shard_path(stage.shards, index), samples)
            bar.advance(len(samples))
    work.ranks.wait()
    found = reliability(stage)
    stage.outputs = sorted(stage.shards.glob("*.parquet"))
    stage.result = {"sampled": found.n, "kept": found.kept, "correct": found.correct}
    work.progress.say(
        f"  kept {found.kept} of {found.n}: precision {found.precision.value:.3f}, recall {found.recall.value:.3f}"
        if found.kept and found.correct
        else f"  kept {found.kept} of {found.n}"
    )


def accepted(samples: Sequence[ScoredSample]) -> list[ScoredSample]:
    """The samples that the filter keeps."""
    return [s for s in samples if s.image is not None and s.self_verdict is not None and s.self_verdict.passed]


def _judge(work: Work[StarsConfig]) -> UnifiedModel:
    """Whose understanding filters: the teacher's own, or that of another checkpoint."""
    config = work.config
    if config.filter == "self":
        return work.model(None if config.teacher == "base" else work.weights)
    return work.placed(build_model(replace(config.model, checkpoint=config.judge), config.seed))


def outcomes(stage: StageRun) -> list[tuple[bool, bool]]:
    """For each sample of a filter stage: did the filter keep it, and was it right."""
    samples = read_shards(stage.shards, images=False)
    return [(s.self_verdict is not None and s.self_verdict.passed, s.passed) for s in samples]


def reliability(stage: StageRun) -> Reliability:
    """How far the filter of a finished stage agrees with the verifier."""
    pairs = outcomes(stage)
    return filter_reliability([kept for kept, _ in pairs], [right for _, right in pairs])


def self_check(model: UnifiedModel, samples: Sequence[ScoredSample], batch: int) -> list[ScoredSample]:
    """Ask the model whether each picture is what its prompt asks for (Table 13)."""
    judged: list[ScoredSample] = []
    for start in range(0, len(samples), batch):
        part = samples[start : start + batch]
        requests = [
            Request(
                s.item.id,
                model.verification_prompt(s.item.prompt) or filter_prompt(s.item.task, s.item.prompt),
                images=(decode_png(s.image),) if s.image is not None else (),
                seed=derive_seed(s.seed, "self_check"),
            )
            for s in part
        ]
        replies = model.answer(requests)
        judged += [replace(s, self_verdict=_verdict(reply)) for s, reply in zip(part, replies, strict=True)]
    return judged


def _verdict(reply: str) -> Verdict:
    said = parse_final_answer(reply)
    if said is None:
        return Verdict((Check("self_check", "unreadable", reply),))
    return Verdict((Check("self_check", "pass" if said else "fail", reply),))
