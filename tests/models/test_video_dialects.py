"""Dialects whose request starts a job: a fake server for each, as strict as its protocol."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email import message_from_bytes
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image, ImageOps

from tests.eval.test_video import greys, walk, write
from tests.models.test_doctor import doctor
from tests.models.test_remote import KEY, Endpoint, Reply, endpoint, models, refused
from uni_train.cli.main import uni_train
from uni_train.config.schema import RemoteConfig
from uni_train.core.errors import UserError
from uni_train.eval.benchmark import Source
from uni_train.eval.benchmarks.vigor import Vigor
from uni_train.eval.images import bytes_of
from uni_train.models.base import Request, SkillMissing
from uni_train.models.batches import ModelDown
from uni_train.models.dialects.videos import LANDSCAPE, _without_margin
from uni_train.models.pictures import decode_data_url, decode_picture
from uni_train.models.remote import RemoteModel

Film = Callable[[str, np.ndarray | None], list[np.ndarray]]
"""Prompt and first frame to all frames."""
SQUARE = np.full((40, 40, 3), (250, 10, 10), np.uint8)
ROOTS = {"videos": "v1", "veo": "v1beta", "seedance": "api/v3"}
RUNNING: dict[str, Any] = {"videos": {"status": "in_progress"}, "veo": {}, "seedance": {"status": "running"}}


class Studio:
    """A server of all three protocols, which looks each job up twice before it is done.

    Attributes:
        bodies: of requests that start a job, forms as JSON. ends: job -> what replaces the reply of one that is done.
    """

    def __init__(self, film: Film, folder: Path) -> None:
        self.film, self.folder = film, folder
        self.lock = Lock()
        self.bodies: list[dict[str, Any]] = []
        self.clips: list[bytes] = []
        self.looks: dict[str, int] = {}
        self.ends: dict[str, Callable[[int], Reply]] = {}
        self.clip_url = self.url = ""

    def reply(self, path: str, body: bytes) -> Reply:
        """Of any of the three."""
        if path.endswith("/models"):
            return models(path, body)
        if body:
            with self.lock:
                return self.start(path, body)
        number = int("".join(filter(str.isdigit, path.rpartition("job")[2])) or -1)
        if path.endswith(("/content", "/file")):
            return 200, self.clips[number]
        dialect = next(name for name, root in ROOTS.items() if path.startswith(f"/{root}/"))
        self.looks[path] = self.looks.get(path, 0) + 1
        return self.look(dialect, number, self.looks[path])

    def start(self, path: str, body: bytes) -> Reply:
        """A job; its clip is filmed at once."""
        if path == "/v1/videos":
            asked, image = form(body)
            if "seed" in asked and asked["prompt"] == "words alone":
                return refused(400, "Unknown parameter: 'seed'.")
            if image is not None and "{1}x{0}".format(*image.shape) != asked["size"]:
                return refused(400, "Inpaint image must match the requested width and height")
            prompt, started = asked["prompt"], {"id": f"job{len(self.clips)}", "status": "queued"}
        elif path.endswith(":predictLongRunning"):
            asked = json.loads(body)
            (instance,) = asked["instances"]
            if "seed" in asked["parameters"]:
                return refused(400, "`seed` isn't supported by this model.")
            data = instance.get("image", {"bytesBase64Encoded": ""})["bytesBase64Encoded"]
            image = decode_picture(base64.b64decode(data), "it") if data else None
            prompt, started = instance["prompt"], {"name": f"models/painter/operations/job{len(self.clips)}"}
        elif path == "/api/v3/contents/generations/tasks":
            asked = json.loads(body)
            urls = [part["image_url"]["url"] for part in asked["content"] if part["type"] == "image_url"]
            image = decode_picture(decode_data_url(urls[0], "it"), "it") if urls else None
            prompt, started = asked["content"][0]["text"], {"id": f"job{len(self.clips)}"}
        else:
            return refused(404, "Not Found")
        self.bodies.append(asked)
        file = write(self.folder / "clip.avi", self.film(prompt, image), "FFV1")
        self.clips.append(b"no video" if "broken" in prompt else file.read_bytes())
        return 200, started

    def look(self, dialect: str, number: int, looks: int) -> Reply:
        """The state of a job."""
        name = {"name": f"models/painter/operations/job{number}"} if dialect == "veo" else {"id": f"job{number}"}
        if looks < 2:
            return 200, name | RUNNING[dialect]
        if dialect in self.ends:
            status, answer = self.ends[dialect](looks)
            return status, name | answer if isinstance(answer, dict) and status == 200 else answer
        return 200, name | ended(dialect, f"{self.clip_url or self.url}/job{number}/file")


def ended(dialect: str, url: str) -> dict[str, Any]:
    """What is said of a job that is done."""
    if dialect == "veo":
        return {"done": True, "response": {"generateVideoResponse": {"generatedSamples": [{"video": {"uri": url}}]}}}
    return {"status": "completed"} if dialect == "videos" else {"status": "succeeded", "content": {"video_url": url}}


def form(body: bytes) -> tuple[dict[str, Any], np.ndarray | None]:
    """The fields of a form and its image; without one it is sent as a query."""
    if not body.startswith(b"--"):
        return dict(parse_qsl(body.decode(), strict_parsing=True)), None
    kind = b"Content-Type: multipart/form-data; boundary=" + body.split(b"\r\n")[0][2:] + b"\r\n\r\n"
    parts = {
        part.get_param("name", header="content-disposition"): part for part in message_from_bytes(kind + body).walk()
    }
    data = {str(name): part.get_payload(decode=True) for name, part in parts.items() if name}
    image = decode_picture(data.pop("input_reference"), "it")  # type: ignore[arg-type]
    return {name: value.decode() for name, value in data.items()}, image  # type: ignore[union-attr]


def fading(prompt: str, image: np.ndarray | None) -> list[np.ndarray]:
    """Seventeen frames that become dark, or one."""
    if image is None:
        return greys(17)
    return [image // (number + 1) for number in range(1 if "still" in prompt else 17)]


@contextmanager
def studio(folder: Path, film: Film = fading) -> Iterator[tuple[Studio, Endpoint]]:
    made = Studio(film, folder)
    with endpoint(made.reply) as server:
        made.url = server.url.removesuffix("/v1")
        yield made, server


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uni_train.models.dialects.videos.POLL", 0.01)
    monkeypatch.setattr("uni_train.core.http_client.FIRST_PAUSE", 0.01)
    monkeypatch.setenv("PAINTER_KEY", KEY)


def opened(made: Studio, dialect: str, **settings: Any) -> RemoteModel:
    settings = {"retries": 0, "key_env": "PAINTER_KEY", "image_hosts": (made.url.removeprefix("http://"),), **settings}
    return RemoteModel.open(f"{made.url}/{ROOTS[dialect]}#painter", RemoteConfig(drawing=dialect, **settings))


@pytest.mark.parametrize(
    ("dialect", "extra", "found"),
    [
        ("videos", {"seconds": 8}, {"prompt": "fade\n\nslowly", "size": "1280x720", "seconds": "8"}),
        ("videos", {"size": "1024x1792"}, {"model": "painter", "size": "1024x1792", "seed": "7"}),
        ("veo", {"parameters": {"resolution": "720p"}},
         {"parameters": {"aspectRatio": "16:9", "resolution": "720p"}}),
        ("veo", {"parameters": {"aspectRatio": "9:16"}}, {"parameters": {"aspectRatio": "9:16"}}),
        ("seedance", {"resolution": "480p"}, {"model": "painter", "seed": 7, "resolution": "480p"}),
        ("seedance", {"ratio": "16:9"}, {"ratio": "16:9"}),
    ],
)  # fmt: skip
def test_a_job_becomes_frames_without_their_margin(
    dialect: str, extra: dict[str, Any], found: dict[str, Any], tmp_path: Path
) -> None:
    request = Request("a", "fade", (SQUARE,), seed=7, thought="slowly")
    with studio(tmp_path) as (made, server):
        model = opened(made, dialect, extra_body=extra)
        (frames,), (last,) = model.compose([request]), model.draw([request])
        (words,) = model.draw([Request("b", "words alone")])
        with pytest.raises(SkillMissing, match="painter cannot draw from several images"):
            model.draw([Request("c", "fade", (SQUARE, SQUARE))])
    assert len(frames) == 8 and {frame.shape for frame in frames} == {last.shape}  # type: ignore[union-attr]
    assert last.shape[0] == last.shape[1] and np.array_equal(last, frames[-1])
    expected = [250 // (number + 1) for number in range(2, 17, 2)]
    assert [int(np.median(np.asarray(frame)[..., 0])) for frame in frames] == expected
    assert np.abs(np.asarray(frames[0]).astype(int) - (250 // 3, 10 // 3, 10 // 3)).max() <= 2, "no margin is left"
    assert words.shape == (48, 64, 3)
    if dialect == "seedance":
        (first,) = [part for part in made.bodies[0]["content"] if part["type"] == "image_url"]
        shape = decode_picture(decode_data_url(first["image_url"]["url"], "it"), "it").shape
        assert shape == ((720, 1280, 3) if "ratio" in extra else (960, 960, 3))
    sent = {name: value for name, value in made.bodies[0].items() if name in found}
    assert sent == found and len(made.bodies) == 3
    assert {key for *_, key in server.asked} == {f"Bearer {KEY}"}


@pytest.mark.parametrize("shape", [(163, 308), (40, 40), (101, 57), (9, 200)])
def test_no_line_of_the_margin_is_left_whatever_the_shape(shape: tuple[int, int]) -> None:
    image = np.zeros((*shape, 3), np.uint8)
    frame = np.asarray(ImageOps.pad(Image.fromarray(image), LANDSCAPE, color="white"))
    cut = _without_margin(frame, image)
    assert not cut.any() and abs(cut.shape[0] * shape[1] / (cut.shape[1] * shape[0]) - 1) < 0.05


def test_a_start_that_may_be_billed_is_sent_once_and_a_refused_key_stops_all(tmp_path: Path) -> None:
    requests = [Request(name, "fade") for name in "abcdefgh"]
    with studio(tmp_path) as (made, server):
        reply = made.reply
        busy = [refused(429, "slow down")]
        server.reply = lambda path, body: busy.pop() if body and busy else reply(path, body)
        (image,) = opened(made, "videos", retries=3).draw(requests[:1])
        assert isinstance(image, np.ndarray), "a start that was refused is sent again"
        server.reply = lambda path, body: refused(502, "lost") if body and reply(path, body) else reply(path, body)
        before = len(made.bodies)
        with pytest.raises(ModelDown, match="answers none of 1 requests"):
            opened(made, "videos", retries=3).draw(requests[:1])
        assert len(made.bodies) == before + 1
        for ending in ("/content", ""):
            server.reply = lambda path, body, ending=ending: (  # type: ignore[misc]
                refused(403, "no") if not body and path.startswith("/v1/videos/") and path.endswith(ending)
                else reply(path, body)
            )  # fmt: skip
            before = len(made.bodies)
            with pytest.raises(ModelDown, match="refuses the key"):
                opened(made, "videos", connections=1).draw(requests)
            assert len(made.bodies) == before + 1, "no further clip is paid"


SORA_FILTER = {"status": "failed", "error": {"code": "moderation_blocked", "message": "Your request\nwas blocked."}}
ARK_FILTER = {"code": "OutputVideoSensitiveContentDetected", "message": "The output video may be sensitive."}
VEO_FILTER = {"generateVideoResponse": {"raiMediaFilteredCount": 1, "raiMediaFilteredReasons": ["Names a celebrity."]}}


@pytest.mark.parametrize(
    ("dialect", "end", "message"),
    [
        ("videos", (200, {"status": "failed", "error": {"message": "No\nluck."}}), "the job failed: No luck."),
        ("videos", (200, SORA_FILTER), "its server's filter ended the job: Your request was blocked."),
        ("videos", (200, {"status": "expired"}), "the job failed: expired"),
        ("videos", (200, {"id": ""}), 'its job is {"id": ""}; expected {"id": "...", "status": "completed"}'),
        ("videos", (200, {"status": "in_progress"}), "job videos/job0 is not done after 1 s: raise remote.patience"),
        ("videos", (404, refused(404, "gone")[1]), "the job videos/job0 or its clip is lost: http"),
        ("videos", (200, b"<html>"), "job0 or its clip is lost: http"),
        ("veo", (200, {"done": True, "error": {"code": 3, "message": "Bad image."}}), "the job failed: Bad image."),
        ("veo", (200, {"done": True, "response": VEO_FILTER}), "its server's filter ended the job: ['Names a"),
        ("veo", (200, {"done": True, "response": {}}), "the job failed: it has no clip"),
        ("veo", (200, ended("veo", "file:///etc/passwd")), "'file:///etc/passwd' is no http(s) address"),
        ("seedance", (200, {"status": "failed", "error": ARK_FILTER}), "its server's filter ended the job: The output"),
        ("seedance", (200, {"status": "succeeded"}), 'expected {"status": "succeeded", "content": {"video_url"'),
        ("seedance", (200, ended("seedance", "ftp://x/y.mp4")), "'ftp://x/y.mp4' is no http(s) address"),
    ],
)  # fmt: skip
def test_a_job_that_fails_fails_alone_and_by_name(dialect: str, end: Reply, message: str, tmp_path: Path) -> None:
    patience = 1 if "not done" in message else 300
    with studio(tmp_path) as (made, _):
        made.ends[dialect] = lambda looks: end
        (error,) = opened(made, dialect, patience=patience).draw([Request("a", "fade")])
    assert isinstance(error, UserError) and message in str(error)
    assert len(made.bodies) == 1, "no job is started twice"


@pytest.mark.parametrize(
    ("prompt", "message"),
    [("still", "a video of one frame, which is an image"), ("broken", "no video that can be read; MP4, MOV")],
)
def test_a_clip_that_is_none_is_named(prompt: str, message: str, tmp_path: Path) -> None:
    with studio(tmp_path) as (made, _):
        bad, good = opened(made, "videos").compose([Request("a", prompt, (SQUARE,)), Request("b", "fade", (SQUARE,))])
    assert f"the clip of videos/job{0 if 'job0' in str(bad) else 1} cannot be read: {message}" in str(bad)
    assert len(good) == 8


def test_a_server_that_is_busy_while_the_job_runs_is_asked_again(tmp_path: Path) -> None:
    with studio(tmp_path) as (made, _):
        made.ends["videos"] = lambda looks: refused(503, "busy") if looks < 5 else (200, ended("videos", ""))
        (image,) = opened(made, "videos", retries=3).draw([Request("a", "fade")])
        assert isinstance(image, np.ndarray) and len(made.bodies) == 1
        made.ends["videos"] = lambda looks: refused(503, "busy")
        with pytest.raises(ModelDown, match="answers none of 1 requests: busy"):
            opened(made, "videos", retries=1).draw([Request("b", "fade")])


def test_a_clip_at_another_host_is_fetched_without_the_key_where_that_is_permitted(tmp_path: Path) -> None:
    """By its address or by a redirect."""
    request = Request("a", "fade")
    with studio(tmp_path) as (made, server), endpoint(lambda path, body: made.reply(path, body)) as other:
        away = other.url.removesuffix("/v1")
        host = away.removeprefix("http://")
        with pytest.raises(ModelDown, match=r"another host\n.*remote.image_hosts=\[.volces.com\]"):
            opened(made, "seedance", image_hosts=()).draw([request])
        assert made.bodies == [], "before it is paid"
        made.clip_url = away
        with pytest.raises(ModelDown, match=rf"another host, {host}\n.*remote.image_hosts=\[{host}\]"):
            opened(made, "seedance", image_hosts=(".volces.com",)).draw([request])
        assert other.asked == []
        port = host.rpartition(":")[2]
        for hosts in ((host,), (f".0.1:{port}",)):
            (image,) = opened(made, "seedance", image_hosts=hosts).draw([request])
            assert isinstance(image, np.ndarray)
        whole = made.reply
        server.reply = lambda path, body: (
            (302, f"{away}{path}".encode()) if "content" in path and "job" in path else whole(path, body)
        )
        made.clip_url = ""
        with pytest.raises(ModelDown, match=rf"another host, {host}"):
            opened(made, "videos").draw([request])
        (image,) = opened(made, "videos", image_hosts=(host,)).draw([request])
        assert isinstance(image, np.ndarray)
    assert len(other.asked) == 3 and {key for *_, key in other.asked} == {""}
    assert {key for *_, key in server.asked} == {f"Bearer {KEY}"}


def test_doctor_pays_no_video(tmp_path: Path) -> None:
    with studio(tmp_path) as (made, server):
        code, said = doctor(f"{server.url}#painter", "remote.drawing=videos")
        assert code == 2 and "doctor makes no videos" in said and server.asked == []
        _, said = doctor(f"{server.url}#painter")
        assert made.bodies == [] and "videos" not in said


def test_vigor_scores_the_clips_of_an_endpoint_and_pays_each_once(tmp_path: Path) -> None:
    """One solves its maze, one stops early, one is filtered; a program decides."""
    cases = Vigor(Source(world="everyday", n=3, sets=("maze_navigation",)), video="yes").cases()
    shown = [decode_picture(bytes_of(case.images[0]), case.id) for case in cases]

    def film(prompt: str, image: np.ndarray | None) -> list[np.ndarray]:
        assert image is not None
        padded = [np.asarray(ImageOps.pad(Image.fromarray(one), image.shape[1::-1], color="white")) for one in shown]
        number = min(range(3), key=lambda number: np.abs(padded[number].astype(int) - image).mean())
        order.append(number)
        frames = walk(cases[number], 9)[: 9 if number != 1 else 3]
        return [np.asarray(ImageOps.pad(Image.fromarray(one), image.shape[1::-1], color="white")) for one in frames]

    order: list[int] = []
    words = ["-b", "vigor", "--n", "3", "sets=[maze_navigation]", "world=everyday", "options.vigor.video=yes"]
    with studio(tmp_path, film) as (made, server):
        reply = made.reply

        def filtered(path: str, body: bytes) -> Reply:
            job = path.rpartition("/job")[2]
            if not body and job.isdigit() and order[int(job)] == 2:
                return 200, {"id": f"job{job}", **SORA_FILTER}
            return reply(path, body)

        server.reply = filtered
        command = ["eval", f"{server.url}#painter", *words, "remote.drawing=videos", f"out={tmp_path}"]
        for name in ("it", "again"):
            done = CliRunner().invoke(uni_train, [*command, f"name={name}"])
            assert done.exit_code == 0, done.output
            (scores,) = json.loads((tmp_path / name / "scores.json").read_text())["results"]
            outcomes = {setting: outcome["maze_navigation"] for setting, outcome in scores["outcomes"].items()}
            assert outcomes["video"] == {"pass": 1, "fail": 1, "generation_failed": 1}
            assert outcomes["process"] == {"pass": 2, "generation_failed": 1}
        assert len(made.bodies) == 3, "settings and runs share their clips"
