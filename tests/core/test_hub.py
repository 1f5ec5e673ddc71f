"""Uploads (`uni_train export --push-to-hub`) and downloads, against a local hub that answers as huggingface.co does."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from click.testing import CliRunner, Result
from huggingface_hub import constants

import uni_train as library
from tests.hostile import plain
from tests.models.bagel.conftest import FOLDER
from tests.models.bagel.published import published
from uni_train import fitting
from uni_train.cli.main import uni_train
from uni_train.core.errors import UserError
from uni_train.core.hub import local
from uni_train.core.hub_transfer import snapshot
from uni_train.models.nano.family import ASSETS

SHA = "0123456789abcdef0123456789abcdef01234567"


def etag(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


class Hub(ThreadingHTTPServer):
    """The four requests of an upload, and the four of a download. Files come inside the commit; large ones would go
    elsewhere, which is not played here."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.token, self.private = "right", False
        self.files: dict[str, bytes] = {}
        self.offered: dict[str, bytes] = {}
        self.gated, self.cut, self.declared, self.status = False, False, 0, 0
        self.asked: list[str] = []

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
        path = self.path.partition("?")[0]
        self.server.asked.append(path)
        if path == "/api/whoami-v2" and self.headers.get("Authorization") == f"Bearer {self.server.token}":
            self._say(200, {"name": "me", "type": "user"})
        elif path == "/api/whoami-v2":
            self._say(401, {"error": "Invalid username or password."})
        elif self.server.status:
            self._say(self.server.status, {"error": "no"}, message="Invalid credentials in Authorization header")
        elif self.server.gated and "/resolve/" in path:  # what it is may be asked by anybody
            self._say(403, {"error": "Access is restricted."}, "GatedRepo")
        elif path.rstrip("/").endswith(("/revision/v9", "/tree/v9")):
            self._say(404, {"error": "Invalid rev id: v9"}, "RevisionNotFound")
        elif path.startswith((f"/api/models/org/name/tree/{SHA}", f"/api/datasets/org/name/tree/{SHA}")):
            rows = [{"type": "file", "path": n, "size": len(c), "oid": etag(c)} for n, c in self.server.offered.items()]
            self._say(200, rows)
        elif path.startswith(("/api/models/org/name", "/api/datasets/org/name")):
            files = [{"rfilename": n, "size": self.server.declared or len(c)} for n, c in self.server.offered.items()]
            self._say(200, {"id": "org/name", "sha": SHA, "siblings": files, "cardData": {"license": "apache-2.0"}})
        elif f"org/name/resolve/{SHA}/" in path:
            self._send(path.rpartition("/resolve/")[2].partition("/")[2])
        else:
            self._say(404, {"error": "Repository not found"}, "RepoNotFound")

    do_HEAD = do_GET

    def _send(self, name: str) -> None:
        content = self.server.offered[name]
        begin = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        end = (begin + len(content)) // 2 if self.server.cut and name.endswith(".safetensors") else len(content)
        about = {"ETag": f'"{etag(content)}"', "X_Repo_Commit": SHA, "Content_Length": str(len(content) - begin)}
        plain(self, content[begin:end], 206 if begin else 200, **about)

    def _say(self, status: int, value: object, code: str = "", message: str = "") -> None:
        errors = {"X_Error_Code": code, "X_Error_Message": message}
        plain(self, json.dumps(value).encode(), status, **{name: said for name, said in errors.items() if said})

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    snapshot.cache_clear()
    with Hub() as running:
        Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
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
    bagel, out, kept = published(FOLDER, tmp_path / "BAGEL"), tmp_path / "out", tmp_path / "kept"

    def refused(name: str, said: str) -> None:
        result = export(bagel, out, "--push-to-hub", name)
        assert result.exit_code == 1 and said in result.output and not out.exists(), result.output

    refused("no name", "OWNER/NAME")
    refused("mine", "has no owner")
    result = export(bagel, kept, "--push-to-hub", "another/mine")  # the Hub alone knows who may write there
    assert result.exit_code == 1 and "was not pushed to another/mine" in result.output
    assert (kept / "ema.safetensors").is_file() and not hub.files
    hub.token = "another"
    refused("me/mine", "HF_TOKEN")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    refused("me/mine", "HF_TOKEN")


def test_folders_in_use_and_sizes_that_are_none_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bagel, out = published(FOLDER, tmp_path / "BAGEL"), tmp_path / "out"
    out.mkdir()
    monkeypatch.chdir(out)
    (out / "config.yaml").write_text("kind: stars\n")
    for target in (out, bagel, ""):
        result = export(bagel, target)
        assert result.exit_code == 1 and ("is not empty" in result.output or "holds a model" in result.output)
    assert [file.name for file in out.iterdir()] == ["config.yaml"]
    for size in ("nan", "inf", "0"):
        assert export(bagel, tmp_path / "new", "--shard-gb", size).exit_code == 2
    assert export(bagel, out, "--force").exit_code == 0 and (out / "ema.safetensors").is_file()
    assert export(bagel, out, "--force").exit_code == 1
    result = export(Path("bagel_7b"), tmp_path / "new")
    assert result.exit_code == 1 and "there is nothing at checkpoints/BAGEL-7B-MoT" in result.output


@pytest.fixture
def nano(hub: Hub) -> Hub:
    """Offers the weights of nano, and what is never fetched."""
    hub.offered = {file.name: file.read_bytes() for file in ASSETS.iterdir() if file.is_file()}
    hub.offered |= {"train.py": b"print()", "optimizer.pt": b"pickle"}
    return hub


@pytest.mark.slow
def test_a_hub_id_is_evaluated_from_its_cache(nano: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = {"n": 1, "subset": 1, "settings": ["normal"], "sampling": {"steps": 1}, "out": "evals"}
    done = library.evaluate("org/name", "unisandbox", **asked)
    assert done.asked["model"]["name"] == "name" and SHA in done.asked["checkpoint"]
    fetched = {file.name for file in Path(done.asked["checkpoint"]).iterdir()}
    assert {"model.safetensors", "config.json"} <= fetched and not {"train.py", "optimizer.pt"} & fetched
    same = library.evaluate("shipped", "unisandbox", **asked)
    assert same.asked["model"]["content"] == done.asked["model"]["content"]
    files = [path for path in nano.asked if "/resolve/" in path]
    snapshot.cache_clear()  # as another process
    assert local("hf://org/name@main") == local("org/name") == Path(done.asked["checkpoint"])
    assert [path for path in nano.asked if "/resolve/" in path] == files, "nothing is fetched twice"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    snapshot.cache_clear()
    assert local("org/name") == Path(done.asked["checkpoint"])


def test_commands_and_recipes_take_hub_ids(nano: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(uni_train, ["models", "inspect", "hf://org/name"], catch_exceptions=False)
    assert result.exit_code == 0 and SHA in "".join(result.output.split())
    assert export("hf://org/name", "out").exit_code == 0 and (tmp_path / "out" / "model.safetensors").is_file()
    monkeypatch.setattr(fitting, "_run", lambda config, ranks, fresh: None)
    config = fitting.run_recipe("stars_mapping", ["model.checkpoint=org/name@main"], fresh=False)
    assert config.model.checkpoint == str(local("org/name"))


def test_a_plain_path_asks_no_hub(nano: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org").mkdir()
    for path in ("org/name", "checkpoints/BAGEL-7B-MoT", "runs/one", "shipped", "./org/name", "/tmp/a/b", "a/b/c"):
        assert local(path) == Path(path)
    assert not nano.asked
    assert local("hf://org/name", "dataset") == local("hf://datasets/org/name", "dataset")
    assert local("hf://org/name", "dataset").name == SHA and "/api/datasets/org/name" in nano.asked[0]


def test_what_cannot_be_downloaded_says_what_to_do(nano: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(name: str, *said: str) -> None:
        with pytest.raises(UserError) as error:
            local(name)
        assert all(one in str(error.value) for one in said), str(error.value)

    refused("hf://org/other", "there is nothing at hf://org/other", "shows no model org/other", "HF_TOKEN")
    refused("org/name@v9", "has no revision v9", nano.url)
    nano.gated = True
    refused("org/name", "org/name is gated", f"Accept the licence at {nano.url}/org/name", "HF_TOKEN")
    nano.gated = False
    for nano.status, hint in ((401, "HF_TOKEN"), (403, "HF_TOKEN"), (503, "again")):
        refused("org/name", f"{nano.url} answers {nano.status}", hint)
    nano.status = 0
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    nano.cut = True
    refused("org/name", "the download of org/name broke off", "goes on")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    refused("org/name", "cannot be reached")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    refused("org/another", "HF_HUB_OFFLINE is set", "Unset")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_ENDPOINT", nano.url)
    nano.cut = False
    assert (local("org/name") / "model.safetensors").read_bytes() == nano.offered["model.safetensors"]
    snapshot.cache_clear()
    nano.offered = {"config.json": b"{}", "pytorch_model.bin": b"pickle"}
    refused("org/name", "has pickles alone (pytorch_model.bin)", "safetensors")
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.test")
    for proxy in ("http://me:s3cr3t@h:x", "ftp://me:s3cr3t@h:1"):
        monkeypatch.setenv("https_proxy", proxy)
        refused("org/new", "the proxy in https_proxy cannot be used for https://hub.test", "name hub.test in no_proxy")


def test_size_and_licence_are_told_before_a_large_download(nano: Hub, capfd: pytest.CaptureFixture[str]) -> None:
    nano.declared = 10**9
    local("org/name")
    assert "downloading org/name: " in (said := capfd.readouterr().err) and "licence 'apache-2.0'" in said
    snapshot.cache_clear()
    local("org/name")
    assert "downloading org/name: " not in capfd.readouterr().err
