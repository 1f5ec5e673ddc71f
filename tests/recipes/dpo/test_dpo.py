"""Preferences from prompts or from a file to a report: which images are paired, killed starts, models, refusals."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.models.bagel.conftest import FOLDER
from tests.models.bagel.published import published
from tests.test_run_stages import assert_clear
from tests.tiny import MODEL, finish, fit, save_drawer
from tests.training.keys import killed_after
from uni_train.config.compose import compose
from uni_train.core.errors import UsageError
from uni_train.data_gen.task import Verdict
from uni_train.eval.benchmark import Scored
from uni_train.eval.scored import read_folder
from uni_train.recipes.dpo.config import DpoConfig
from uni_train.recipes.dpo.training import Matched, matched
from uni_train.recipes.stars.filters import FILTERS, Asking, accept, reject
from uni_train.recipes.stars.finetune import kept_samples
from uni_train.training.metric_log import read_metrics

RECIPE = "dpo_mapping"
PROMPT = "Draw 3 apples ."


@pytest.fixture(scope="module")
def first() -> Iterator[None]:
    """A filter that keeps the first candidates of a prompt: one of the first, two of the second, and so on."""

    @FILTERS.register("first")
    def first(samples: list[Scored], asking: Asking) -> list[Verdict]:
        """Keep the first candidates."""
        names = sorted({one.sample.ask.case.id for one in samples})
        keeps = [one.sample.ask.k < names.index(one.sample.ask.case.id) % 4 for one in samples]
        return [accept("first") if keep else reject("first", "late") for keep in keeps]

    yield
    del FILTERS._entries["first"]


@pytest.fixture(scope="module")
def quick(first: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    drawer = save_drawer(tmp_path_factory.mktemp("models") / "drawer")
    replay = "replay:{mapping1:0.25,pretrain:0.25}"
    rounds = ",".join(f"{{task:mapping,level:{n},prompts:8,updates:3{r}}}" for n, r in ((1, ""), (2, f",{replay}")))
    return (
        *MODEL, f"rounds=[{rounds}]", f"model.checkpoint={drawer}", "model.draw_batch=12", "filter=first",
        "candidates=3",
        "batch.prompts=8", "batch.noise_draws=1", "checkpoint_every=2", "evaluation.n=2", "evaluation.sets=[mapping1]",
        "evaluation.modes=[normal]",
    )  # fmt: skip


@pytest.fixture(scope="module")
def unbroken(quick: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two rounds; read-only."""
    return finish(tmp_path_factory.mktemp("unbroken"), *quick, recipe=RECIPE)


def png(seed: int, height: int = 24, width: int = 24) -> bytes:
    made = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 255, (height, width, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(made, "PNG")
    return made.getvalue()


def pairs_file(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """As Parquet with encoded images."""
    pq.write_table(pa.Table.from_pylist(rows), folder / "pairs.parquet")
    return folder / "pairs.parquet"


# --- rounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_each_pair_is_an_accepted_and_a_refused_image_of_one_prompt(unbroken: Path) -> None:
    config = compose(RECIPE, ["filter=verifier"])
    assert isinstance(config, DpoConfig)
    shards = unbroken / "stages/02-filter-mapping1/shards"
    (used, counts), samples = matched(shards, config, config.rounds[0]), list(read_folder(shards))
    assert counts["prompts"] == 8 and len(samples) == 24
    assert len(set(used)) == len(used) == 2 * counts["pairs"], "no image is in two pairs"
    by_prompt: dict[str, list[bool]] = {}
    for one in samples:
        assert one.filter_verdict is not None
        by_prompt.setdefault(one.sample.ask.case.id, []).append(one.filter_verdict.passed)
    assert counts["pairs"] == sum(min(sum(of), len(of) - sum(of)) for of in by_prompt.values()) > 0
    assert counts["mixed"] == sum(0 < sum(of) < len(of) for of in by_prompt.values()) < 8
    rows = Matched(kept_samples(shards, used))
    for row, chosen, rejected in zip((rows[i] for i in range(len(rows))), used[::2], used[1::2], strict=True):
        right, wrong = samples[chosen], samples[rejected]
        assert right.sample.ask.case == wrong.sample.ask.case and row.values["prompt"] == right.sample.prompt
        assert right.filter_verdict.passed and not wrong.filter_verdict.passed  # type: ignore[union-attr]
        assert (row.values["chosen"], row.values["rejected"]) == (right.sample.image, wrong.sample.image)


@pytest.mark.slow
def test_a_run_counts_its_pairs_and_logs_what_became_of_both_images(unbroken: Path) -> None:
    (stage,) = unbroken.glob("stages/*-dpo-mapping2")
    result = json.loads((stage / "manifest.json").read_text())["result"]
    assert {"mapping1", "mapping2"} == result["preferences"].keys()
    assert all(0 < of["mixed"] <= of["pairs"] and of["prompts"] == 8 for of in result["preferences"].values())
    lines = read_metrics(stage / "metrics.jsonl")
    assert len(lines) == 3 and lines[-1]["margin"] != 0 and lines[-1]["ce"] > 0, "pretraining rows are replayed"
    assert result["margin"] == pytest.approx(np.mean([line["margin"] for line in lines]))
    report = (unbroken / "report.html").read_text(encoding="utf-8")
    assert "dpo-mapping1" in report and "Chosen image preferred" in report
    rounds = json.loads((unbroken / "summary.json").read_text())["rounds"]
    assert [one["calls"]["images"] for one in rounds] == [24, 24]


@pytest.mark.slow
def test_a_killed_run_ends_as_the_unbroken_one(quick: tuple[str, ...], unbroken: Path, tmp_path: Path) -> None:
    with killed_after(2):
        fit(tmp_path, *quick, recipe=RECIPE)
    killed = finish(tmp_path, *quick, recipe=RECIPE)
    files = [*unbroken.glob("stages/*/model/*.safetensors"), *unbroken.glob("stages/*/metrics.jsonl")]
    assert len(files) >= 4
    for file in files:
        assert (killed / file.relative_to(unbroken)).read_bytes() == file.read_bytes(), file


@pytest.mark.slow
def test_no_prompt_with_both_images_is_an_error_that_counts(quick: tuple[str, ...], tmp_path: Path) -> None:
    result = fit(tmp_path, *quick, "filter=verifier", recipe=RECIPE)
    assert_clear(result, "of 8 prompts of mapping1 0 have a right and a wrong image", "Sample more prompts")


# --- pairs of a file --------------------------------------------------------------------------------------------------

ROW = {"prompt": PROMPT, "chosen": {"bytes": png(0), "path": None}, "rejected": {"bytes": png(1), "path": None}}
FILE = ("rounds=[]", "updates=5", "evaluate=false", "batch.prompts=2", "optimizer.warmup_updates=0")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["trl", "Pick-a-Pic"])
def test_pairs_of_a_file_are_learned(quick: tuple[str, ...], tmp_path: Path, form: str) -> None:
    rows = [{**ROW, "chosen": {"bytes": png(n), "path": None}} for n in range(2, 7)]
    if form == "Pick-a-Pic":
        rows = [{"caption": PROMPT, "jpg_0": png(n), "jpg_1": png(n + 9), "label_0": n % 2} for n in range(5)]
    file = pairs_file(tmp_path, rows)
    run = finish(tmp_path, *quick, *FILE, f"pairs={file}", recipe=RECIPE)
    (stage,) = run.glob("stages/0*")
    assert stage.name == "00-dpo-pairs" and len(read_metrics(stage / "metrics.jsonl")) == 5
    printed = fit(tmp_path, *quick, *FILE, f"pairs={file}", "--dry-run", recipe=RECIPE).output
    assert "one update: 4 examples" in printed and "5 rows of" in printed, printed


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**ROW, "rejected": ROW["chosen"]}, "chosen and rejected are the same image"),
        ({**ROW, "rejected": None}, "has no rejected; its keys: prompt, chosen"),
        ({**ROW, "prompt": ""}, "prompt is empty"),
        ({**ROW, "rejected": {"bytes": png(1, 24, 16), "path": None}}, "have 24 x 24 and 16 x 24 pixels"),
        ({**ROW, "rejected": {"bytes": b"no image", "path": None}}, "rejected"),
        ({"caption": PROMPT, "jpg_0": png(0), "jpg_1": png(1), "label_0": 0.5}, "label_0 is 0.5: neither image"),
        ({**ROW, "extra": png(3)}, "its key extra holds an image, which is not read"),
    ],
)
def test_a_bad_row_is_named(quick: tuple[str, ...], tmp_path: Path, row: dict[str, Any], message: str) -> None:
    file = pairs_file(tmp_path, [row])
    assert_clear(fit(tmp_path, *quick, *FILE, f"pairs={file}", recipe=RECIPE), "pairs.parquet, row 1: ", message)


# --- models -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("trained", ["all", "lora"])
def test_a_tiny_bagel_prefers(tmp_path: Path, trained: str) -> None:
    place = published(FOLDER, tmp_path / "BAGEL")
    rows = [{"prompt": f"{n} 2", "chosen": png(n, 32, 32), "rejected": png(n + 9, 32, 32)} for n in range(4)]
    run = finish(
        tmp_path, "model=bagel_7b", f"model.checkpoint={place}", "model.threads=1", "strategy.precision=32-true",
        f"pairs={pairs_file(tmp_path, rows)}", *FILE, "batch.accumulate=2", f"trained={trained}", "judge=null",
        recipe=RECIPE,
    )  # fmt: skip
    (log,) = run.glob("stages/*/metrics.jsonl")
    lines = read_metrics(log)
    assert lines[0]["dpo"] == pytest.approx(np.log(2), rel=1e-3) and lines[-1]["margin"] != 0


@pytest.mark.slow
def test_a_tiny_pipeline_of_diffusers_prefers(tmp_path: Path) -> None:
    pytest.importorskip("diffusers")
    from tests.models.diffusers import tiny

    tiny.pipeline("flux").save_pretrained(tmp_path / "flux")
    rows = [{"prompt": f"{n} cups", "chosen": png(n, 32, 32), "rejected": png(n + 9, 64, 64)} for n in range(3)]
    run = finish(
        tmp_path, "model=diffusers", f"model.checkpoint={tmp_path / 'flux'}", "model.architecture.image_size=32",
        "model.threads=1", "strategy.precision=32-true", f"pairs={pairs_file(tmp_path, rows)}", *FILE,
        "batch.accumulate=1", "lora.rank=2", "optimizer.lr=0.01", "solved=null", "augment=null", recipe="dpo_maze",
    )  # fmt: skip
    (stage,) = run.glob("stages/0*")
    assert read_metrics(stage / "metrics.jsonl")[-1]["margin"] != 0
    assert (stage / "adapter" / "pytorch_lora_weights.safetensors").is_file()


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["pairs=x.parquet"], "kind=dpo takes one of rounds and pairs"),
        (["rounds=[]"], "kind=dpo takes one of rounds and pairs"),
        (["rounds=[]", "pairs=x.parquet"], "updates belongs to pairs, which need it"),
        (["updates=2"], "updates belongs to pairs, which need it"),
        (["evaluate=false"], "evaluate=false belongs to pairs"),
        (["candidates=1"], "a right and a wrong image of a prompt are two"),
        (["filter=none"], "filter=none refuses no image"),
        (["filter=judge"], "filter=judge needs to know who judges"),
        (["teacher=reference"], "teacher=reference draws no wrong images"),
        (["rounds.0.replay={thoughts: 0.1}"], "kind=dpo learns images alone"),
        (["strategy=fsdp2", "trained=all"], "the reference needs whole ones"),
        (["strategy=fsdp2", "trained=lora", "rounds.0.replay={pretrain: 0.1}"], "cannot replay rows beside pairs"),
        (["batch.accumulate=100"], "batch.accumulate 100 is more than batch.prompts"),
        (["beta=0"], "beta"),
    ],
)
def test_keys_that_do_not_fit_together(overrides: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        compose(RECIPE, overrides)
    assert message in caught.value.message


def test_a_missing_file_of_pairs_is_named_before_anything_runs(tmp_path: Path) -> None:
    result = fit(tmp_path, *MODEL, *FILE, f"pairs={tmp_path}/none.parquet", recipe=RECIPE)
    assert_clear(result, "pairs: there is nothing at")
