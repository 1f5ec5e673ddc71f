"""Reference answers as a folder of answers, which `eval FOLDER` scores like a model's: the bound that a benchmark's own
answers reach with its judge (UEval, Tables 3 and 4, row Reference)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from uni_train.core.errors import UserError
from uni_train.eval.benchmark import Ask, Benchmark
from uni_train.eval.images import bytes_of
from uni_train.eval.submission import json_lines
from uni_train.models.pictures import decode_picture, encode_png


def reference_answers(benchmark: Benchmark, asks: Sequence[Ask]) -> Iterator[tuple[str, bytes]]:
    """Paths and contents: the images, then manifest.jsonl with a row an ask, of which a setting reads what it asks for.

    Raises UserError: there are none.
    """
    rows = []
    names: dict[str, list[str]] = {}  # by number: of the ids "a/b" and "a-b" the files would be one
    for ask in asks:
        given = {key: part for key, part in benchmark.reference_answer(ask).items() if part}
        if (images := given.get("images")) and ask.case.id not in names:
            names[ask.case.id] = [f"images/{len(names) + 1:05d}-{number}.png" for number in range(len(images))]
            for name, image in zip(names[ask.case.id], images, strict=True):
                yield name, encode_png(decode_picture(bytes_of(image), f"the reference of {ask.case.id}"))
        if given:
            own = {"images": names[ask.case.id]} if images else {}
            rows.append({"id": ask.case.id, "setting": ask.setting, "k": ask.k, **given, **own})
    if not rows:
        hint = f"Published questions may have them: data.{benchmark.name}=FOLDER."
        raise UserError(f"none of the {len(benchmark.cases()):,} questions of {benchmark.name} has a reference", hint)
    yield "manifest.jsonl", json_lines(rows)
