"""A run that another interpreter rewards is the run that our own does, number by number."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.tiny import MODEL, finish, fit

GIVEN = (
    *(*MODEL, "rewards.right=null", "evaluate=false", "held_out.n=0", "epochs=2", "rows=16", "trained=all"),
    *("rollout.prompts_per_epoch=4", "rollout.group_size=4", "rollout.steps=4", "rollout.last_step=2"),
)


@pytest.mark.slow
def test_a_run_is_the_same_to_the_bit_and_one_without_the_interpreter_does_not_begin(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "def red(prompts, completions, item, **_):\n"
        "    dicts = [one if isinstance(one, dict) else one.to_dict() for one in item]\n"
        "    return [float(np.sin(x.mean())) + len(one['prompt']) for x, one in zip(completions, dicts)]\n"
    )
    function, logs = f"function: '{tmp_path / 'mine.py'}:red'", []
    for name, more in (("here", ""), ("there", f", python: {sys.executable}, batch: 3, background: true")):
        run = finish(tmp_path / name, *GIVEN, f"rewards.mine={{{function}{more}}}", recipe="flow_grpo_math")
        lines = [json.loads(line) for line in (run / "stages/00-grpo/metrics.jsonl").read_text().splitlines()]
        logs.append([{key: value for key, value in line.items() if "second" not in key} for line in lines])
        assert (run / "stages/00-grpo/rewards/rank0/mine.log").exists() == (name == "there")
    assert logs[0] == logs[1] and len(logs[0]) == 2 and logs[0][0]["reward"] > 1
    wrong = fit(
        tmp_path, *GIVEN, f"rewards.mine={{{function}, python: /no/python}}", "--dry-run", recipe="flow_grpo_math"
    )
    assert wrong.exit_code == 1 and "rewards.mine.python=/no/python cannot be run" in wrong.output, wrong.output
