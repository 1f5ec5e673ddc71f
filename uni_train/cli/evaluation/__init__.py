"""`uni_train eval`: score a checkpoint, compare, pool and rank evaluations, calibrate a judge."""

from uni_train.cli.evaluation.calibrate import calibrate
from uni_train.cli.evaluation.command import evaluate
from uni_train.cli.evaluation.compare import compare
from uni_train.cli.evaluation.leaderboard import leaderboard
from uni_train.cli.evaluation.pool import pool

for _command in (compare, pool, calibrate, leaderboard):
    evaluate.add_command(_command)

__all__ = ["evaluate"]
