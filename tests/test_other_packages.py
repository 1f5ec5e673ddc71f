"""A folder with packages of its own called eval and data_gen, as research repositories have: ours are imported all the
same. The wheel is tried likewise by .ci/wheel-check."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["-m", "uni_train", "eval", "--help"], "--benchmark"),
        (
            ["-c", "import uni_train.eval.evaluation as e, uni_train.data_gen.registry; print(e.__name__)"],
            "uni_train.eval",
        ),
        (["-c", "import uni_train; print(uni_train.get_task('maths').generate(1, 1, 'train', 0)[0].task)"], "maths"),
    ],
)
def test_packages_of_the_folder_do_not_stand_in_the_way(words: list[str], printed: str, tmp_path: Path) -> None:
    for name in ("eval", "data_gen"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise ImportError('this {name} is not of uni_train')\n")
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0 and printed in done.stdout, done.stderr
