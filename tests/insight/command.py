"""The command `insight`, and the golden files of the tiny BAGEL."""

from __future__ import annotations

import os
from pathlib import Path

from click.testing import CliRunner

from uni_train.cli.main import uni_train

GOLDEN = Path(os.environ.get("UNI_TRAIN_GOLDEN", Path(__file__).parents[1] / "data" / "golden")) / "bagel"


def insight(*arguments: str | Path):  # type: ignore[no-untyped-def]
    return CliRunner().invoke(uni_train, ["insight", *map(str, arguments)])
