from __future__ import annotations

import socket

from click.testing import CliRunner

from uni_train.cli.main import uni_train


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(uni_train, ["serve", "-m", "nano", "--port", str(port)])
    assert result.exit_code == 1 and f"127.0.0.1:{port} cannot be used" in result.output
