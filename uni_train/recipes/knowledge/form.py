"""Teaches nano the form of knowledge questions with characters of the train split, before any injection.

nano learns to answer in the lessons' words and to draw at once. It also learns to draw after a thought in those words.
The characters that the recipe injects are of other splits, so none of them is seen here. `form.replay` of the rows are
pretraining, so that the model keeps its skills.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from uni_train.config.kinds import Updates
from uni_train.core.errors import UserError
from uni_train.data_gen import sprites
from uni_train.data_gen.knowledge.nano import (
    FAVOURITES,
    NanoCharacter,
    draw_nano_characters,
    nano_facts,
    nano_forward,
    nano_inverse,
    nano_lessons,
)
from uni_train.models.base import Example
from uni_train.recipes.knowledge.config import KnowledgeConfig
from uni_train.stages.train_stage import train_stage
from uni_train.stages.work import StageRun, Work
from uni_train.training.curriculum import Constant

Maker = Callable[[random.Random], Example]
SHARES = {"form_answer": 0.2, "form_image": 0.5, "form_thought": 0.3}
"""Shares of the new rows. Most have an image and no thought, so that images of unknown characters are still clear."""
NOISE_DRAWS = 4


def others(config: KnowledgeConfig) -> list[NanoCharacter]:
    """The characters that the form is taught with: none of those who are asked for."""
    return draw_nano_characters(config.form.characters, config.characters.seed, "train")


def rows(characters: list[NanoCharacter]) -> Mapping[str, Maker]:
    """Kind of row -> a function that makes one: answers, images at once, images by a thought.

    Of an inverse question the thought says who is meant, for a favourite may be that of several characters.
    """

    def answer(random_: random.Random) -> Example:
        question, answer = random_.choice(nano_lessons(random_.choice(characters), random_.getrandbits(30)))
        return Example(question, answer=answer)

    def at_once(random_: random.Random) -> Example:
        prompt, _, image = _asked(characters, random_)
        return Example(prompt, target=image, noise_draws=NOISE_DRAWS)

    def by_thought(random_: random.Random) -> Example:
        prompt, thought, image = _asked(characters, random_)
        learn = random_.random() < 0.5
        return Example(prompt, thought=thought, target=image, noise_draws=NOISE_DRAWS, learn_thought=learn)

    return {"form_answer": answer, "form_image": at_once, "form_thought": by_thought}


def _asked(characters: list[NanoCharacter], random_: random.Random) -> tuple[str, str, np.ndarray]:
    """A question for an image, the thought that recalls what it asks for, and the image."""
    character = random_.choice(characters)
    facts = nano_facts(character)
    if random_.random() < 0.5:
        asked, _ = random_.choice(nano_forward(character))
        thought = facts[asked.kind]
        singular, count = (
            (character.noun, character.count) if asked.kind == "portrait" else (character.favourite(asked.kind), 1)
        )
    else:
        kind = random_.choice(FAVOURITES)
        asked = next(
            q for q, _ in nano_inverse(character, character) if f" {kind} {character.favourite(kind)} " in q.question
        )
        thought, singular, count = f"{facts[kind]} {facts['portrait']}", character.noun, character.count
    return asked.question, thought, sprites.render(singular, count, random_.getrandbits(60))


def teach(work: Work[KnowledgeConfig], stage: StageRun) -> None:
    """Train all weights on the form; the model that all others start from.

    Raises:
        UserError: the model has no pretraining rows to keep its skills with.
    """
    config = work.config
    model = work.trainable_model(None)
    kept = model.replay_rows(("mapping",))
    if kept is None:
        raise UserError(f"{model.name} has no pretraining rows to replay", "Set form.updates=0.")
    new = rows(others(config))
    shares = {name: (1 - config.form.replay) * share for name, share in SHARES.items()}
    whole = sum(share for share, _ in kept.values())
    shares |= {name: config.form.replay * share / whole for name, (share, _) in kept.items() if config.form.replay}
    # The rate falls over the second half: at a constant one images stay unclear.
    optimizer = replace(config.optimizer, lr=config.form.lr, decay="cosine", decay_share=0.5, final_lr=0.05)
    form_config = replace(config, optimizer=optimizer)
    updates = Updates(config.form.updates, rows=config.form.rows)
    sources = {**new, **{name: maker for name, (_, maker) in kept.items()}}
    used = {name: sources[name] for name in shares}
    result = train_stage(
        work, model, used, Constant(shares), updates, stage.path, config=form_config, trained=("all", ())
    )
    work.save_trained(model, stage)
    stage.result = result.facts()
