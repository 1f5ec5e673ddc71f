"""`uni_train export --push-to-hub`: what a hub is sent, against a local one that answers as huggingface.co does."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from click.testing import CliRunner, Result

from tests.models.bagel.conftest import FOLDER
from tests.models.bagel.published import published
from uni_train.cli.main import uni_train


class Hub(ThreadingHTTPServer):
    """The four requests of an upload. Files come inside the commit; large ones would go elsewhere, which is not
    played here."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.token, self.private = "right", False
        self.files: dict[str, bytes] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answers(BaseHTTPRequestHandler):
    server: Hub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Authorization") != f"Bearer {self.server.token}":
            self._say(401, {"error": "Invalid username or password."})
        elif self.path == "/api/repos/create" and json.loads(body).get("organization") == "another":
            self._say(403, {"error": "You don't have the rights."})
        elif self.path == "/api/repos/create":
            self.server.private = "private" in (json.loads(body).get("visibility"), *json.loads(body))
            self._say(200, {"url": f"{self.server.url}/me/mine"})
        elif self.path == "/api/validate-yaml":
            self._say(200, {"errors": [], "warnings": []})
        elif self.path.startswith("/api/models/me/mine/preupload/"):
            names = [one["path"] for one in json.loads(body)["files"]]
            self._say(200, {"files": [{"path": n, "uploadMode": "regular", "shouldIgnore": False} for n in names]})
        else:
            assert self.path.startswith("/api/models/me/mine/commit/")
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.server.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self._say(200, {"commitUrl": f"{self.server.url}/me/mine/commit/1", "commitOid": "1", "hookOutput": ""})

    def do_GET(self) -> None:
        if self.path == "/api/whoami-v2" and self.headers.get("Authorization") == f"Bearer {self.server.token}":
            self._say(200, {"name": "me", "type": "user"})
        else:
            self._say(401, {"error": "Invalid username or password."})

    def _say(self, status: int, value: object) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub() as running:
        Thread(target=running.serve_forever, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        monkeypatch.setenv("HF_TOKEN", running.token)
        yield running
        running.shutdown()


def export(*arguments: object) -> Result:
    return CliRunner().invoke(uni_train, ["export", *map(str, arguments)], catch_exceptions=False, terminal_width=200)


def test_an_exported_folder_is_pushed_with_its_card(hub: Hub, tmp_path: Path) -> None:
    bagel, out = published(FOLDER, tmp_path / "BAGEL"), tmp_path / "out"
    result = export(bagel, out, "--push-to-hub", "me/mine", "--private", "--license", "apache-2.0")
    assert result.exit_code == 0 and f"{hub.url}/me/mine" in result.output
    assert hub.files == {file.name: file.read_bytes() for file in out.iterdir()} and hub.private
    card = hub.files["README.md"].decode()
    assert card.startswith("---\ntags: [uni_train]\nlicense: apache-2.0\n---\n# me/mine\n")


def test_what_cannot_be_pushed_is_told_before_anything_is_written(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bagel, out = published(FOLDER, tmp_path / "BAGEL"), tmp_path / "out"

    def refused(name: str, said: str) -> None:
        result = export(bagel, out, "--push-to-hub", name)
        assert result.exit_code == 1 and said in result.output and not out.exists(), result.output

    refused("no name", "OWNER/NAME")
    refused("mine", "has no owner")
    hub.token = "another"
    refused("me/mine", "HF_TOKEN")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    refused("me/mine", "HF_TOKEN")


def test_a_refused_push_keeps_the_folder(hub: Hub, tmp_path: Path) -> None:
    bagel, out = published(FOLDER, tmp_path / "BAGEL"), tmp_path / "out"
    result = export(bagel, out, "--push-to-hub", "another/mine")
    assert result.exit_code == 1 and "was not pushed to another/mine" in result.output
    assert (out / "ema.safetensors").is_file() and not hub.files


def test_folders_in_use_and_sizes_that_are_none_are_refused(tmp_path: Path) -> None:
    bagel, out = published(FOLDER, tmp_path / "BAGEL"), tmp_path / "out"
    out.mkdir()
    (out / "config.yaml").write_text("kind: stars\n")
    for target in (out, bagel, ""):
        result = export(bagel, target)
        assert result.exit_code == 1 and ("is not empty" in result.output or "holds a model" in result.output)
    assert [file.name for file in out.iterdir()] == ["config.yaml"]
    for size in ("nan", "inf", "0"):
        assert export(bagel, tmp_path / "new", "--shard-gb", size).exit_code == 2
    assert export(bagel, out, "--force").exit_code == 0 and (out / "ema.safetensors").is_file()
    assert export(bagel, out, "--force").exit_code == 1


def test_a_model_s_name_is_no_folder_to_export(tmp_path: Path) -> None:
    result = export(Path("nano"), tmp_path / "out")
    assert result.exit_code == 2 and "nano is a model's name" in result.output and "mean" not in result.output
