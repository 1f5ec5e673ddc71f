"""Settings of all tests: no time limits inside hypothesis, no debug mode, no logger online."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("uni_train", deadline=None, derandomize=True)
settings.load_profile("uni_train")

os.environ.pop("UNI_TRAIN_DEBUG", None)
os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the models are tiny, and a file of tests runs on each core
