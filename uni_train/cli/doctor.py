"""`uni_train doctor`: check a checkpoint for common defects."""

from __future__ import annotations

from pathlib import Path

import click

from uni_train.errors import UserError


@click.command()
@click.argument("model", metavar="PATH|NAME")
@click.option("--image", type=click.Path(dir_okay=False, path_type=Path), help="Write the probe image there, as PNG.")
def doctor(model: str, image: Path | None) -> None:
    """Check a checkpoint for common defects before a long run.

    It checks layout, dtypes, averages, adapters that do nothing, memory, NaN by layer, tokenizer and markers. It also
    computes the first losses, one thought and one image. The exit code is 1 if something is wrong.

    \b
    Examples:
      uni_train doctor nano
      uni_train doctor checkpoints/BAGEL-7B-MoT --image probe.png
    """
    from uni_train.models.checkpoint import expect_model

    expect_model(model)  # before torch is imported, which takes seconds
    if image is not None and not image.parent.is_dir():
        raise UserError(f"{image.parent} is no folder", "Give --image a file in a folder that is there.")
    from uni_train.models.doctor import examine

    seen = examine(model)
    for one in seen.findings:
        print(f"  {one.verdict:<6}{one.check:<12}{one.said}")
    if image is not None and seen.image is not None:
        from uni_train.files import atomic_path
        from uni_train.models.pictures import encode_png

        with atomic_path(image) as temporary:
            Path(temporary).write_bytes(encode_png(seen.image))
    wrong = [one.check for one in seen.findings if one.verdict == "wrong"]
    print(f"{model}: {'wrong: ' + ', '.join(wrong) if wrong else 'nothing wrong was found'}")
    if wrong:
        raise SystemExit(1)
