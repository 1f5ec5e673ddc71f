"""`uni_train export`: a trained model in the layout that others read."""

from __future__ import annotations

from pathlib import Path

import click

_DTYPES = ("float32", "bfloat16", "float16")


@click.command()
@click.argument("source", type=click.Path(path_type=Path), metavar="RUN_OR_FOLDER")
@click.argument("out", type=click.Path(path_type=Path), metavar="OUT")
@click.option("--dtype", type=click.Choice(_DTYPES), help="Of the weights; the default keeps theirs.")
@click.option("--shard-gb", type=click.FloatRange(min=0, min_open=True), help="Split into files of at most this size.")
def export(source: Path, out: Path, dtype: str | None, shard_gb: float | None) -> None:
    """Write a model to the folder OUT: BAGEL in its official layout, Qwen-Image-Edit in diffusers', nano in its own.

    RUN_OR_FOLDER is a run's folder (its last finished model is taken) or a checkpoint's. The tokenizer, the
    autoencoder and the JSON files go along, so that OUT is complete.

    \b
    Examples:
      uni_train export runs/stars_curriculum/seed0 exports/mine
      uni_train export checkpoints/Bagel-Zebra-CoT exports/zebra --dtype bfloat16 --shard-gb 5
    """
    from uni_train.models.recognise import recognise

    recognise(source)  # before torch is imported, which takes seconds

    import contextlib
    from collections.abc import Callable

    import torch

    from uni_train.cli.progress import ConsoleProgress
    from uni_train.models.export import export_model

    progress = ConsoleProgress()
    with contextlib.ExitStack() as stack:

        def start(tensors: int) -> Callable[[], object]:
            return stack.enter_context(progress.bar("tensors", tensors)).advance

        found = export_model(
            source,
            out,
            start,
            None if dtype is None else getattr(torch, dtype),
            None if shard_gb is None else int(shard_gb * 1e9),
        )
    progress.say(f"{found.what}: {found.path} -> {out}")
