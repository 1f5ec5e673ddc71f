"""Editing rows as BAGEL and its descendants are trained on: Parquet with `image_list` and `instruction_list`.

`image_list` holds the encoded images of a chain of edits. `instruction_list[i]` holds phrasings of the step from image
i to i + 1 (a list of texts, or one text). Each use of the row draws one or two consecutive steps: either one after the
other, the image between them learned as well, or the two instructions as one.

With `output_text_list` the row is an interleaved chain of thought (ThinkMorph): the first image and instruction are
shown, then texts and images take turns, all of them learned.

One edit may also be a row of `input_image`, `image` and `instruction`. Other names are those of InstructPix2Pix,
MagicBrush, UltraEdit, HQ-Edit, OmniEdit, SEED-Data-Edit, ImgEdit, ShareGPT-4o-Image, Pico-Banana and DiffSynth-Studio.
"""

from __future__ import annotations

import random

import numpy as np

from uni_train.models.base import Example, Turn
from uni_train.training.data.rows import BadRow, Row, caption_of, text_of
from uni_train.training.data.text_to_image import CAPTIONS

INPUTS = (
    "input_image", "source_image", "images", "input_images", "source_images", "original_image", "local_input_image",
    "edit_image", "source_img", "src_img",
)  # fmt: skip
"""Names of what is shown, in published data and here; also `image`, where another name says what is drawn."""
DRAWN = ("target_image", "output_image", "edited_image", "output_images", "target_img", "edited_img")
INSTRUCTIONS = ("instruction", "edit_instruction", "edit_prompt", "edited_prompt_list", "input_prompt", "edit")
KEYS = {"image_list", "instruction_list", *INPUTS, *DRAWN} - {"images"}
"""Each of these alone says that a row is an edit."""


def parse(row: Row, random_: random.Random) -> Example:
    """Images and instructions in turns. Raises BadRow."""
    if row.find("image_list", "instruction_list") is None:
        return _pair(row, random_)
    images, instructions = row.get("image_list"), row.get("instruction_list")
    if not isinstance(images, list) or not isinstance(instructions, list):
        raise BadRow("image_list and instruction_list must be lists")

    def image(i: int) -> np.ndarray:
        return row.image(images[i], f"image {i + 1} of image_list")

    steps = [  # all phrasings of all steps, whichever is drawn
        [text_of(text, f"instruction {i} of instruction_list") for text in (step if isinstance(step, list) else [step])]
        for i, step in enumerate(instructions, start=1)
    ]
    if not all(steps):
        raise BadRow(f"instruction {steps.index([]) + 1} of instruction_list has no text")

    def instruction(i: int) -> str:
        return row.choose(steps[i], random_)

    texts = row.values.get("output_text_list")
    if texts is not None:
        if not isinstance(texts, list):
            raise BadRow("output_text_list must be a list")
        if len(images) > len(texts) + 1 or len(instructions) > 1:
            raise BadRow(
                f"has {len(images)} images and {len(instructions)} instructions; with {len(texts)} texts there may be "
                f"{len(texts) + 1} images and 1 instruction"
            )
        turns = [Turn(image=image(0)), Turn(instruction(0))]
        for i, text in enumerate(texts, start=1):
            turns.append(Turn(text_of(text, f"text {i} of output_text_list"), learn=True))
            if i < len(images):
                turns.append(Turn(image=image(i), learn=True))
        if len(turns) == 2:
            raise BadRow("output_text_list is empty")
        return Example(turns=tuple(turns))

    if len(images) < 2:
        raise BadRow("image_list has one image: there is no edit")
    if len(instructions) != len(images) - 1:
        raise BadRow(f"has {len(images)} images, but instructions for {len(instructions)} steps")
    start = row.choose(range(len(images) - 1), random_)
    end = row.choose(range(start + 1, min(start + 3, len(images))), random_)
    turns = [Turn(image=image(start))]
    if end - start > 1 and random_.random() < 0.5:
        turns.append(Turn(". ".join(instruction(i).rstrip(". ") for i in range(start, end)) + "."))
        turns.append(Turn(image=image(end), learn=True))
    else:
        for i in range(start, end):
            turns += [Turn(instruction(i)), Turn(image=image(i + 1), learn=True)]
    return Example(turns=tuple(turns))


def _pair(row: Row, random_: random.Random) -> Example:
    """One edit, from the image or images that are shown to the one that is drawn."""
    instruction = caption_of(row, (*INSTRUCTIONS, *CAPTIONS), random_)
    drawn, target = row.first(*DRAWN, "image", "file_name")
    key, _ = row.first(*INPUTS, *(() if drawn == "image" else ("image",)))
    return Example(instruction, images=row.images(key), target=row.image(target, drawn))
