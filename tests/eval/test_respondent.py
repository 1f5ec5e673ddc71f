from __future__ import annotations

from pathlib import Path

import pytest

from tests.models.test_remote import Reply, endpoint, says
from uni_train.core.errors import UsageError, UserError
from uni_train.eval.respondent import open_model
from uni_train.eval.store import Store
from uni_train.models.base import Request
from uni_train.models.batches import ModelDown
from uni_train.models.remote import RemoteConfig

SETTINGS = RemoteConfig(retries=0)


def painter(path: str, content: str) -> Reply:
    """One that says what it serves, and "blue"."""
    about = {"content": content, "settings": {"steps": 10}}
    if path.endswith("/models"):
        return 200, {"object": "list", "data": [{"id": "painter", "object": "model", "uni_train": about}]}
    return says("blue")


def test_what_is_stored_of_a_remote_model_outlives_it(tmp_path: Path) -> None:
    store, said = Store(tmp_path), list[str]()
    with endpoint(lambda path, body: painter(path, "first")) as one:
        address = f"{one.url}#painter"
        model = open_model(address, store, remote=SETTINGS)
        assert model.answer([Request("a", "which colour")]) == ["blue"]
    # Connections are settings that change no answer.
    later = open_model(address, store, remote=RemoteConfig(retries=0, connections=2), say=said.append)
    assert later.identity == model.identity and later.answer([Request("a", "which colour")]) == ["blue"]
    assert len(said) == 1 and "what is stored of painter is used" in said[0]
    with pytest.raises(ModelDown, match="does not answer"):
        later.answer([Request("b", "another")])
    with pytest.raises(ModelDown, match="does not answer"):
        open_model(address, Store(tmp_path / "elsewhere"), remote=SETTINGS)


def test_a_remote_model_that_comes_back_as_another_is_not_asked_in_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, up = "first", True

    def reply(path: str, body: bytes) -> Reply:
        return painter(path, content) if up else (500, {"error": {"message": "busy"}})

    with endpoint(reply) as one:
        address = f"{one.url}#painter"
        open_model(address, Store(tmp_path), remote=SETTINGS)
        up = False
        model = open_model(address, Store(tmp_path), remote=SETTINGS)
        up, content = True, "second"
        with pytest.raises(UserError, match="is another model now"):
            model.answer([Request("a", "which colour")])
        fresh = open_model(address, Store(tmp_path), remote=SETTINGS)
        assert fresh.identity.content == "second" and fresh.answer([Request("a", "which colour")]) == ["blue"]


def test_quantised_weights_are_another_model_here_and_none_at_an_address(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert open_model("shipped", store).identity.key != open_model("shipped", store, weights="int8").identity.key
    with pytest.raises(UsageError, match="a remote model takes no weights"):
        open_model("http://127.0.0.1:9/v1#painter", store, weights="int8")


def test_another_model_behind_the_same_name_is_told_by_what_the_server_reports(tmp_path: Path) -> None:
    root, fingerprint = "/weights/one", "fp_1"

    def reply(path: str, body: bytes) -> Reply:
        if path.endswith("/models"):
            return 200, {"object": "list", "data": [{"id": "vlm", "created": 1, "root": root}, {"id": "mute"}]}
        status, answer = says(root)
        return status, {**answer, "system_fingerprint": fingerprint}

    store, said = Store(tmp_path), list[str]()
    with endpoint(reply) as one:

        def answers(name: str, question: str, **settings: str) -> list[str | Exception]:
            remote = RemoteConfig(retries=0, **settings)  # type: ignore[arg-type]
            model = open_model(f"{one.url}#{name}", store, remote=remote, say=said.append)
            return model.answer([Request("a", question)])

        assert answers("vlm", "q") == answers("mute", "q") == ["/weights/one"] and said == []
        root, fingerprint = "/weights/two", "fp_2"
        assert answers("vlm", "q") == ["/weights/two"], "vLLM says where its weights lie"
        said.clear()
        assert answers("mute", "q") == ["/weights/one"]
        assert "does not say which weights" in said[0] and "remote.revision" in said[0]
        assert answers("mute", "another") == ["/weights/two"] and "system_fingerprint fp_2" in said[-1]
        assert answers("mute", "q", revision="two") == ["/weights/two"]
