"""How long the context is that an image was drawn in (UReason, Table 8), and cases by its length."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

from uni_train.core.errors import UserError
from uni_train.eval.benchmark import Sample, Scored

Size = Callable[[Sample], int]
LEAST = 9  # cases that are cut into thirds


def measure(tokenizer: str) -> tuple[Size, str]:
    """What counts the prompt and the thought of a sample, and the name of its unit.

    tokenizer: a folder with tokenizer.json (Qwen3-8B's for the paper's numbers), or that file; "" counts words. Raises
    UserError where it cannot be read.
    """
    if not tokenizer:
        return lambda sample: len(_context(sample).split()), "words"
    count = _tokens(tokenizer)
    return lambda sample: count(_context(sample)), "tokens"


def mean_and_spread(sizes: Sequence[int]) -> str:
    """Mean and standard deviation, in the paper's form."""
    return f"{statistics.fmean(sizes):.1f} ({statistics.pstdev(sizes):.1f})"


def thirds(scored: Sequence[Scored], size: Size) -> list[tuple[str, list[Scored]]]:
    """Short, middle and long contexts, named by their sizes; [] of too few."""
    if len(scored) < LEAST:
        return []
    ranked = sorted(scored, key=lambda answer: (size(answer.sample), answer.sample.ask.case.id, answer.sample.ask.k))
    cuts = [0, len(ranked) // 3, 2 * len(ranked) // 3, len(ranked)]
    parts = [ranked[start:end] for start, end in pairwise(cuts)]
    named = {f"{size(some[0].sample)} to {size(some[-1].sample)}": some for some in parts}
    return list(named.items()) if len(named) == len(parts) else []


def _context(sample: Sample) -> str:
    return f"{sample.prompt}\n{sample.thought or ''}"


@cache
def _tokens(tokenizer: str) -> Callable[[str], int]:
    from tokenizers import Tokenizer

    file = Path(tokenizer)
    file = file / "tokenizer.json" if file.is_dir() else file
    try:
        found = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exceptions
        raise UserError(
            f"{file} is no tokenizer that can be read ({error})",
            "Name the folder of a model with tokenizer.json: options.ureason.tokenizer=Qwen3-8B.",
        ) from error
    return lambda text: len(found.encode(text, add_special_tokens=False).ids)
