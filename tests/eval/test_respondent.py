from __future__ import annotations

from pathlib import Path

import pytest

from tests.models.test_remote import Reply, endpoint, says
from uni_train.errors import UserError
from uni_train.eval.calls import CallStore
from uni_train.eval.respondent import open_model
from uni_train.models.base import Request
from uni_train.models.batches import ModelDown
from uni_train.models.remote import RemoteSettings

SETTINGS = RemoteSettings(retries=0)


def test_what_is_stored_of_a_remote_model_outlives_it(tmp_path: Path) -> None:
    content = "first"

    def reply(path: str, body: bytes) -> Reply:
        about = {"content": content, "settings": {"steps": 10}}
        if path.endswith("/models"):
            return 200, {"object": "list", "data": [{"id": "painter", "object": "model", "uni_train": about}]}
        return says("blue")

    store, said = CallStore(tmp_path), list[str]()
    with endpoint(reply) as one:
        address = f"{one.url}#painter"
        model = open_model(address, store, remote=SETTINGS)
        assert model.answer([Request("a", "which colour")]) == ["blue"]
    # Connections are settings that change no answer.
    later = open_model(address, store, remote=RemoteSettings(retries=0, connections=2), say=said.append)
    assert later.identity == model.identity and later.answer([Request("a", "which colour")]) == ["blue"]
    assert len(said) == 1 and "what is stored of painter is used" in said[0]
    with pytest.raises(ModelDown, match="does not answer"):
        later.answer([Request("b", "another")])
    with pytest.raises(ModelDown, match="does not answer"):
        open_model(address, CallStore(tmp_path / "elsewhere"), remote=SETTINGS)


def test_a_remote_model_that_comes_back_as_another_is_not_asked_in_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, up = "first", True

    def reply(path: str, body: bytes) -> Reply:
        about = {"content": content, "settings": {}}
        if not up:
            return 500, {"error": {"message": "busy"}}
        if path.endswith("/models"):
            return 200, {"object": "list", "data": [{"id": "painter", "object": "model", "uni_train": about}]}
        return says("blue")

    with endpoint(reply) as one:
        address = f"{one.url}#painter"
        open_model(address, CallStore(tmp_path), remote=SETTINGS)
        up = False
        model = open_model(address, CallStore(tmp_path), remote=SETTINGS)
        up, content = True, "second"
        with pytest.raises(UserError, match="is another model now"):
            model.answer([Request("a", "which colour")])
        fresh = open_model(address, CallStore(tmp_path), remote=SETTINGS)
        assert fresh.identity.content == "second" and fresh.answer([Request("a", "which colour")]) == ["blue"]
