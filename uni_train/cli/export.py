"""`uni_train export`: a trained model in the layout that others read."""

from __future__ import annotations

from pathlib import Path

import click

from uni_train.cli.commands import completer
from uni_train.cli.numbers import Finite

_DTYPES = ("float32", "bfloat16", "float16")


@click.command()
@click.argument("source", metavar="CHECKPOINT", shell_complete=completer("models"))
@click.argument("out", type=click.Path(path_type=Path), metavar="OUT")
@click.option("--dtype", type=click.Choice(_DTYPES), help="The dtype of the written weights.  [default: theirs]")
@click.option("--shard-gb", type=Finite(min=0, min_open=True), help="Split into files of at most this size.")
@click.option("--force", is_flag=True, help="Write into OUT although it holds other files.")
@click.option("--push-to-hub", metavar="OWNER/NAME", help="Then upload OUT, with a model card, to this repository.")
@click.option("--private", is_flag=True, help="Make a new repository private.")
@click.option("--license", "licence", metavar="NAME", help="For the model card, as the hub names it: apache-2.0.")
def export(
    source: str,
    out: Path,
    dtype: str | None,
    shard_gb: float | None,
    force: bool,
    push_to_hub: str | None,
    private: bool,
    licence: str | None,
) -> None:
    """Write a model to the folder OUT: BAGEL in its official layout, Qwen-Image-Edit in diffusers', nano in its own.

    CHECKPOINT is a run's folder (its last finished model is taken), a checkpoint's, or MODEL+ADAPTER, whose LoRA is
    merged. The tokenizer, the autoencoder and the JSON files go along, so that OUT is complete.

    \b
    Examples:
      uni_train export runs/stars_curriculum/seed0 exports/mine
      uni_train export checkpoints/Bagel-Zebra-CoT exports/zebra --dtype bfloat16 --shard-gb 5
      uni_train export runs/stars_curriculum/seed0 exports/mine --push-to-hub me/mine --private
    """
    from uni_train.models.checkpoint import expect_there

    expect_there(source)  # before torch is imported, which takes seconds
    if push_to_hub is not None:
        from uni_train.core.hub_transfer import check_repository

        check_repository(push_to_hub)

    import contextlib
    from collections.abc import Callable

    import torch

    from uni_train.console.progress import ConsoleProgress
    from uni_train.models.load import export_model

    progress = ConsoleProgress()
    with contextlib.ExitStack() as stack:

        def start(tensors: int) -> Callable[[], object]:
            return stack.enter_context(progress.bar("tensors", tensors)).advance

        exported = export_model(
            source,
            out,
            start,
            None if dtype is None else getattr(torch, dtype),
            None if shard_gb is None else int(shard_gb * 1e9),
            force,
        )
    progress.say(f"{exported.what}: {exported.path} -> {out}")
    if push_to_hub is not None:
        from uni_train.core.files import atomic_path
        from uni_train.core.hub_transfer import push
        from uni_train.eval.model_card import model_card

        run = exported.path.parent.parent.parent
        known = run if (run / "config.yaml").is_file() else None
        with atomic_path(out / "README.md") as path:
            path.write_text(model_card(push_to_hub, exported.what, known, licence), encoding="utf-8")
        progress.say(f"pushed to {push(out, push_to_hub, private=private)}")
