"""The keys of knowledge injection (UniSandbox 4), and their rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Interval

from uni_train.config.messages import Where, check_rules
from uni_train.config.schema import Count, CountOrZero, Few, Mode, Positive, Rows, RunConfig, Seed, Share

FROZEN = ("vit", "connector", "generation")  # parts: nothing that draws is taught


@dataclass(frozen=True, kw_only=True)
class CharactersConfig:
    """Who is invented. Forward trains a model a character, inverse one a pair: n and n / 2 models."""

    n: Annotated[int, Interval(ge=1, le=10_000)] = 10
    # Which names: choose settings on validation, report test. paper: the ten people of Table 12.
    split: Literal["train", "validation", "test", "paper"] = "test"
    seed: Seed = 0  # who they are, the same whatever the run's seed
    path: str | None = None  # a folder in the published layout: its first n characters instead


@dataclass(frozen=True, kw_only=True)
class FormConfig:
    """Other characters, told of and drawn by the same sentences before anybody is taught: then an image that is wrong
    lacks knowledge, and not the form of the request. nano's alone."""

    updates: CountOrZero = 0  # 0: no such stage
    characters: Annotated[int, Interval(ge=1, le=200)] = 120  # of the train split
    rows: Rows = 48  # an update
    replay: Share = 0.4  # of the rows: pretraining, so that old skills stay
    lr: Positive = 1e-3


@dataclass(frozen=True, kw_only=True)
class KnowledgeConfig(RunConfig):
    """Knowledge injected in text, asked for in images (UniSandbox 4)."""

    kind: Literal["knowledge"] = "knowledge"
    characters: CharactersConfig = CharactersConfig()
    directions: tuple[Literal["forward", "inverse"], ...] = ("forward", "inverse")
    modes: tuple[Mode, ...] = ("normal", "cot")
    both_ways: bool = False  # the inverse search's control: its pairs are taught from favourites to characters too
    form: FormConfig = FormConfig()
    draws: Few = 1  # images of each question in each mode
    epochs: Count  # through the lessons, at most
    least_epochs: CountOrZero = 0  # before the exam may end the training
    exam_every: Count = 10  # updates between two exams
    rows: Rows  # lessons an update
    accumulate: Rows = 1  # micro-batches an update is made of, shared by the ranks: less memory
    trained: Literal["understanding", "lora"] = "understanding"
    keep_models: bool = True  # each model's weights, after its images are drawn


def check(config: KnowledgeConfig, where: Where) -> None:
    """Rules between the keys. Raises UsageError."""
    people, form, everyday = config.characters, config.form, config.data.world == "everyday"
    check_rules([
        ("model", config.model.edits or not config.model.thinks,
         f"model={config.model.name} answers no questions, and whoever is taught in text must",
         "Choose model=nano, model=bagel_7b or model=janus_pro_7b."),
        ("directions", not config.directions, "directions is empty: nothing would be asked", None),
        ("modes", not config.modes, "modes is empty: nothing would be asked", None),
        ("characters.n", config.directions == ("inverse",) and people.n < 2,
         "characters.n must be at least 2: the inverse search is within a pair", None),
        ("characters.split", people.split == "paper" and (not everyday or people.n > 10),
         "characters.split=paper: Table 12 has ten people of the everyday world",
         "data.world=everyday characters.n=10."),
        ("form.updates", form.updates and (config.data.world != "nano" or people.split == "train"),
         "form.updates: the form is taught with nano's characters of the train split, and of others",
         "data.world=nano characters.split=test, or form.updates=0."),
        ("least_epochs", config.least_epochs > config.epochs,
         f"least_epochs {config.least_epochs} is more than epochs {config.epochs}", None),
        ("accumulate", config.accumulate > config.rows,
         f"accumulate {config.accumulate} is more than rows {config.rows}", None),
        ("ema", config.ema is not None, "ema has no meaning here: the exam is of the weights as they are", "ema=null."),
        ("lora.targets", config.trained == "lora" and config.lora.targets != "understanding",
         f"lora.targets={config.lora.targets}: knowledge goes into the understanding weights alone",
         "lora.targets=understanding."),
        ("characters.path", people.path is not None and not everyday,
         "characters.path: the published characters are people of the everyday world", "data.world=everyday."),
        ("judge.dialect", config.judge is not None and config.judge.dialect == "nano",
         "judge.dialect=nano: nano has no words for portraits and flowers", None),
    ], where)  # fmt: skip
