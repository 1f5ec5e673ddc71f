"""`uni_train serve`: a model as an endpoint that OpenAI's clients can ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from uni_train.cli.commands import completer
from uni_train.cli.numbers import INTERLEAVING, QUANTISED, Finite
from uni_train.config import places
from uni_train.console.terminal import echo
from uni_train.core.errors import UsageError, UserError

if TYPE_CHECKING:
    from uni_train.config.schema import Quantised


@click.command()
@click.option(
    "--model", "-m", required=True, metavar="PATH|NAME", shell_complete=completer("models"),
    help="A checkpoint, a run, or a name of `models`.",
)  # fmt: skip
@click.option("--port", type=click.IntRange(1024, 65535), default=8000, show_default=True, metavar="N")
@click.option(
    "--host",
    type=click.Choice(["127.0.0.1", "0.0.0.0", "::"]),
    default="127.0.0.1",
    show_default=True,
    help="Accept clients of this machine, or of all (IPv4, IPv6).",
)
@click.option("--weights", type=click.Choice(QUANTISED), help="Hold the decoder in 4 or 8 bits.  [default: as stored]")
@click.option(
    "--compile", is_flag=True, help="Compile the denoising steps by torch.compile: slower at first, then faster."
)
@click.option(
    "--sampling", type=click.Choice([option.name for option in places.options("sampling")]),
    help="A preset of sampling settings; an option that is given beside it wins.",
)  # fmt: skip
@click.option("--steps", type=click.IntRange(1, 1_000), metavar="N", help="Denoising steps.  [default: the model's]")
@click.option("--temperature", type=Finite(0, 2), metavar="X", help="Temperature of requests that set none.")
@click.option(
    "--interleaving", type=click.Choice(INTERLEAVING),
    help="How BAGEL's layout answers with texts and images in turns.  [default: it does not]",
)  # fmt: skip
@click.option(
    "--key-env", metavar="NAME", help="The variable with the key that clients must send; required for another --host."
)
@click.option(
    "--max-body", type=Finite(0.001, 1024), default=32.0, show_default=True, metavar="MIB", help="The largest request."
)
@click.option(
    "--max-images",
    type=click.IntRange(0, 1000),
    default=16,
    show_default=True,
    metavar="N",
    help="Most images in a request.",
)
@click.option(
    "--max-megapixels",
    type=Finite(0.001, 4096),
    default=32.0,
    show_default=True,
    metavar="X",
    help="Most megapixels of a request's images.",
)
@click.option("--max-words", type=click.IntRange(1, 1_000_000), default=4000, show_default=True, help="Longest prompt.")
@click.option(
    "--timeout",
    type=Finite(0.1, 86400),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest wait for a reply.",
)
@click.option(
    "--queue",
    type=click.IntRange(1, 100_000),
    default=256,
    show_default=True,
    help="Most requests that wait; further ones get status 429.",
)
def serve(
    model: str,
    port: int,
    host: str,
    weights: Quantised | None,
    compile: bool,
    sampling: str | None,
    steps: int | None,
    temperature: float | None,
    interleaving: str | None,
    key_env: str | None,
    max_body: float,
    max_images: int,
    max_megapixels: float,
    max_words: int,
    timeout: float,
    queue: int,
) -> None:
    """Serve a model by OpenAI's protocol.

    /v1/chat/completions answers, with images as data URLs; /v1/images/generations draws; /v1/images/edits draws from
    images. docs/serving.md says what can be asked beside the protocol (seeds, thoughts).

    \b
    Examples:
      uni_train serve -m nano
      uni_train serve -m checkpoints/BAGEL-7B-MoT --port 8001
    """
    import os

    if host != "127.0.0.1" and key_env is None:
        raise UsageError(
            f"--host {host} lets everyone who can reach this machine use the model",
            "Require a key from clients: export SERVE_KEY=..., and add --key-env SERVE_KEY.",
        )
    _check_address(host, port)
    key = os.environ.get(key_env, "") if key_env else None
    if key == "":
        raise UserError(f"the environment variable {key_env} is empty", f"Put the key there: export {key_env}=...")
    from dataclasses import replace

    from uni_train.config.compose import compose_section
    from uni_train.config.schema import EvalConfig
    from uni_train.models.checkpoint import model_config

    config = model_config(model, weights, compile)
    changes = compose_section(EvalConfig, [f"sampling={sampling}"]).sampling if sampling else {}
    given = {"steps": steps, "temperature": temperature, "interleaving": interleaving}
    changes |= {name: value for name, value in given.items() if value is not None}
    if config.checkpoint != "shipped":
        _check_loads(model)
    try:
        import litserve  # noqa: F401
    except ImportError as error:
        raise UserError(f"{error.name} is not installed", "pip install -e '.[serve]'") from error
    from uni_train.serving.protocol import Limits
    from uni_train.serving.server import Served, serve_forever

    limits = Limits(
        body=max_body, images=max_images, megapixels=max_megapixels, words=max_words, seconds=timeout, queue=queue
    )
    served = Served.from_config(replace(config, sampling=replace(config.sampling, **changes)), key, limits)
    shown = f"[{host}]" if ":" in host else host
    echo(f"loading {served.identity.name} for http://{shown}:{port}/v1", err=True)
    serve_forever(served, host, port, lambda: echo(f"ready: http://{shown}:{port}/v1  (Ctrl-C stops it)", err=True))


def _check_loads(model: str) -> None:
    """Raises UserError for a checkpoint with missing or misshapen tensors, before processes are started."""
    from uni_train.models.checkpoint import inspect

    inspection = inspect(model)
    if not inspection.loads:
        problem = inspection.problems[0] if inspection.problems else f"it is {inspection.what}"
        raise UserError(f"{model} cannot be loaded: {problem}", inspection.hint or None)


def _check_address(host: str, port: int) -> None:
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise UserError(
                f"{host}:{port} cannot be used: {error.strerror or error}", "Choose another port with --port."
            ) from error
