"""Evaluation: benchmarks, stored samples, statistics, summaries, reports.

Only `uni_train.cli` and `uni_train.stages` import it, and `uni_train.rewards` its prompts.
"""
