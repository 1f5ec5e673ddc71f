"""`uni_train eval`: score, compare, pool, rank and export evaluations, calibrate a judge, write questions out."""

from uni_train.cli.evaluation.calibrate import calibrate
from uni_train.cli.evaluation.command import evaluate
from uni_train.cli.evaluation.compare import compare
from uni_train.cli.evaluation.export import export
from uni_train.cli.evaluation.leaderboard import leaderboard
from uni_train.cli.evaluation.pool import pool
from uni_train.cli.evaluation.questions import questions

for _command in (compare, pool, calibrate, leaderboard, questions, export):
    evaluate.add_command(_command)

__all__ = ["evaluate"]
