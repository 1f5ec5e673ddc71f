"""Bad inputs are refused in one message: cases of the corpus, and what the message must say of a command as typed.

The cheap cases of the corpus are asked here; all of them: `python bench/bad_inputs.py`.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.bad_inputs_corpus import MOST_SAID, Case, cases, outcome
from uni_train.cli.main import uni_train

ROOT = Path(__file__).parents[1]
AROUND = re.compile(
    r"json\.load\(|json\.loads\([^)]*read_|yaml\.(safe_)?load|Image\.open\((?!io\.BytesIO)"
    r"|(pq|parquet)\.(read_|ParquetFile)|\bpa\.ipc|\b(zipfile|gzip|bz2|lzma|zlib)\.\w*(open|File|decompress)|np\.load\("
    r"|torch\.load\(|pickle\.load|trust_remote_code=True"
)


@pytest.mark.parametrize("case", [case for case in cases() if case.cheap], ids=str)
def test_a_bad_input_is_refused_in_one_message(case: Case, tmp_path: Path) -> None:
    result = outcome(case, tmp_path)
    assert result.what in ("refused", "taken"), f"{result.what}\n{result.said[-3000:]}"


def test_files_are_read_through_the_gate() -> None:
    """What goes around it would have to know all of this corpus; a server of our own on this machine may."""
    own = {"uni_train/core/reading_limits.py", "uni_train/stages/judging.py"}
    files = [file for package in ("uni_train", "data_gen", "eval") for file in (ROOT / package).rglob("*.py")]
    names = {str(file.relative_to(ROOT)) for file in files if AROUND.search(file.read_text(encoding="utf-8"))}
    assert names - own == set()


def refusal(command: str) -> str:
    """The message of a command, without its line breaks. The command leaves nothing in the current folder."""
    ended = CliRunner().invoke(uni_train, shlex.split(command), catch_exceptions=False)
    assert ended.exit_code in (1, 2), ended.output
    assert not [*Path().iterdir()] and len(ended.output) < MOST_SAID
    return " ".join(ended.output.split())


OVERRIDES = [
    # recipe and override, what the message says, what it proposes
    ("stars_curriculum model=nan0", "unknown model nan0", "Did you mean nano?"),
    ("stars_curriculum optimizer.lrr=1", "unknown key optimizer.lrr", "Did you mean optimizer.lr?"),
    ("stars_curriculum lr=1e-4", "unknown key lr", "Did you mean optimizer.lr?"),
    ("stars_curriculum rounds.0.taks=maths", "unknown key rounds.0.taks", "Did you mean rounds.0.task?"),
    ("stars_curriculum hydra.run.dir=x", "unknown key hydra.run.dir", ""),
    ("stars_curriculum model.threads=many", "model.threads must be a whole number or auto", ""),
    ("stars_curriculum optimizer.lr=fast", "optimizer.lr must be a number, not 'fast'", ""),
    ("stars_curriculum checkpoint_every=2.5", "checkpoint_every must be a whole number, not 2.5", ""),
    ("stars_curriculum seed=true", "seed must be a whole number, not true", ""),
    ("stars_curriculum optimizer=3", "optimizer must be a section", ""),
    ("stars_curriculum evaluation.sets=math1", "evaluation.sets must be a list", ""),
    ("stars_curriculum filter=slef", "filter: unknown filter slef", "Did you mean self?"),
    ("stars_curriculum optimizer.betas=[0.9]", "optimizer.betas must be a list of 2 values", ""),
    ("stars_curriculum optimizer.lr=0", "optimizer.lr must be greater than 0", ""),
    ("stars_curriculum candidates=0", "candidates must be at least 1", ""),
    ("stars_curriculum rounds.0.level=4", "rounds.0.level must be one of 1, 2, 3, not 4", ""),
    ("stars_curriculum rounds.7.updates=1", "cannot apply the override rounds.7.updates=1", ""),
    ("stars_curriculum rounds.0.replay.mapping3=0.1", "no earlier round samples it", ""),
    ("stars_curriculum rounds.1.replay.mapping1=1.0", "nothing is left for mapping2", ""),
    ("stars_curriculum rounds.1.replay.maping1=0.1", "unknown set maping1", "Did you mean mapping1?"),
    ("stars_curriculum rounds=[]", "rounds is empty", ""),
    ("stars_curriculum name=../elsewhere", "name must be usable as a folder name", ""),
    ("stars_curriculum level=2", "takes no level", "level=1, 2 or 3"),
    ("stars_curriculum kind=pretrain", "cannot be overridden", ""),
    ("stars_curriculum seed=1,2", "one run takes one value", "[a,b]"),
    ("stars_curriculum seed={", "cannot read the override", "key=value"),
    ("stars_curriculum out=${nowhere}", "nowhere", ""),
    ("stars_math level=4", "level must be one of 1, 2, 3, not 4", ""),
    ("stars_mixed teacher=current", "teacher=current needs schedule.kind=sequential", ""),
    ("flow_grpo_math rewards=ocr rewards.right.weight=2", "rewards.right.weight=2", "rewards has a value"),
    ("flow_grpo_math prompts=a.txt prompts.levels=[1]", "prompts.levels=[1]", "prompts has a value"),
    # beyond the limit of a number
    ("stars_curriculum model.architecture.layers=100000000", "must be at most", ""),
    ("stars_curriculum rounds.0.prompts=1000000000000", "must be at most", ""),
    ("stars_curriculum evaluation.n=1000000000000", "must be at most", ""),
    ("stars_curriculum model.sampling.temperature=nan", "must be", ""),
    ("stars_curriculum model.sampling.cfg_text_scale=inf", "must be", ""),
    ("stars_curriculum seed=" + "9" * 5001, "seed", ""),
    ("flow_grpo_maze rollout.group_size=1000000000", "must be at most", ""),
    ("flow_grpo_maze rewards.solved.weight=1e308", "must be at most", ""),
    ("sft_nano batch.rows=1000000000", "must be at most", ""),
    ("knowledge characters.n=100000000", "must be at most", ""),
    ("nano_pretrain vae.updates=100000000000", "must be at most", ""),
]


@pytest.mark.parametrize(("typed", "said", "hint"), OVERRIDES, ids=[typed[:60] for typed, _, _ in OVERRIDES])
def test_a_wrong_override_is_named_with_what_was_meant(
    typed: str, said: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    message = refusal(f"fit {typed}")
    assert said in message and hint in message
    key = typed.split()[-1].partition("=")[0]
    assert key in message or "${" in typed


COMMANDS = [
    ("fit stars_curriculum seed", "cannot read the override seed Overrides look like key=value"),
    ("fit flow_grpo_maze prompts.levels=[25]", "prompts.levels: maze has no level 25"),
    ("fit flow_grpo_maze prompts.levels=[9]", "prompts.levels: maze of level 9 has no set"),
    ("fit flow_grpo_maze rewards.solved.function=nothing", "no reward"),
    ("fit flow_grpo_maze rewards.solved.function=gone.py:score", "gone.py"),
    ("fit sft_maze held_out.levels=[2] held_out.split=test", "Levels with a set: 3, 4, 5, 6, 7, 8."),
    ("fit sft_maze held_out.levels=[99]", "held_out.levels: maze has no level 99"),
    ("fit stars_curriculum evaluation.n=3000 evaluation.sets=[math1]", "evaluation.n 3000 is too many for math1"),
    (
        "fit sft_nano held_out.task=maths held_out.levels=[1] held_out.n=999",
        "for the validation split, 999 were asked for",
    ),
    ("fit unigrpo_math rollout.size=7", "error: rollout.size=7: nano cannot draw 7 x 7 pixels"),
    ("plan flow_grpo_math held_out.n=128", "found only 71 different maths1 expressions"),
    ("plan sft --gpu t4-16gb", "t4-16gb computes no bfloat16, and strategy.precision is bf16-true"),
    ("plan sft --gpu a100-80gb,l4-24gb", "a plan is for cards of one kind"),
    ("plan sft --gpu 4", "CUDA and its libraries alone take 4 GiB"),
    ("plan sft --gpu rtx4090", "Did you mean rtx4090-24gb"),
]


@pytest.mark.parametrize(("command", "said"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_a_run_or_plan_that_cannot_be_is_refused_by_its_dry_run_too(
    command: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("uni_train.fitting.missing", lambda config: [])  # sources that nobody has made here
    assert said in refusal(command)
    if command.startswith("fit"):
        assert said in refusal(f"{command} --dry-run")
