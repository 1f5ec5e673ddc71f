from __future__ import annotations

import socket
from dataclasses import fields

import click
import pytest
from click.testing import CliRunner

from uni_train.cli.main import uni_train
from uni_train.cli.serve import serve
from uni_train.serving.protocol import Limits


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "0.0.0.0"], "add --key-env SERVE_KEY"),
        (["--host", "::"], "lets everyone who can reach"),
        (["--temperature", "nan"], "no finite number"),
        (["--timeout", "inf"], "not in the range"),
        (["--max-body", "nan"], "no finite number"),
    ],
)
def test_what_cannot_be_meant_is_said_before_anything_is_loaded(options: list[str], message: str) -> None:
    result = CliRunner().invoke(uni_train, ["serve", "-m", "nano", *options])
    assert result.exit_code == 2 and message in str(result.exception) + result.output


def test_the_options_have_the_defaults_of_the_limits() -> None:
    names = {"body": "max_body", "images": "max_images", "megapixels": "max_megapixels", "words": "max_words"}
    options = {names.get(f.name, {"seconds": "timeout"}.get(f.name, f.name)): f.default for f in fields(Limits)}
    typed = {one.name: one.default for one in serve.params if isinstance(one, click.Option)}
    assert {name: typed[name] for name in options} == options


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(uni_train, ["serve", "-m", "nano", "--port", str(port)])
    assert result.exit_code == 1 and f"127.0.0.1:{port} cannot be used" in result.output
