from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from uni_train.models.base import Request, UnifiedModel
from uni_train.models.load import build_model, model_config
from uni_train.models.nano import language
from uni_train.models.pictures import decode_picture, encode_png
from uni_train.serving.perform import perform
from uni_train.serving.protocol import Refusal, Reply, Task


@pytest.fixture(scope="module")
def nano() -> UnifiedModel:
    return build_model(model_config("nano"))


def draw(prompt: str, seed: int) -> Task:
    return Task("draw", Request("picture", prompt, seed=seed))


def test_tasks_of_a_kind_share_a_call_and_keep_their_places(
    nano: UnifiedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, int]] = []
    for skill in ("draw", "think", "answer"):
        own = getattr(nano, skill)

        def counted(requests: Sequence[Request], *, skill: str = skill, own: object = own, **more: object) -> object:
            calls.append((skill, len(requests)))
            return own(requests, **more)  # type: ignore[operator]

        monkeypatch.setattr(nano, skill, counted)
    picture = nano.draw([Request("a", "Draw 2 apples .", seed=1)])[0]
    calls.clear()
    tasks = [
        draw("Draw 2 apples .", 1),
        Task("think", Request("chat", "Draw 2 apples .")),
        draw("Draw 4 apples .", 2),
        Task("answer", Request("chat", language.CAPTION_PROMPT, (picture,))),
        draw("Draw a dragon .", 3),
        Task("draw", Request("picture", "Draw 2 apples .", seed=4), thinking=True),
    ]
    done = perform(nano, tasks, think_batch=8, draw_batch=8)
    assert [isinstance(one, Reply) for one in done] == [True, True, True, True, False, True]
    first, thought, _, caption, refused, thoughtful = done
    assert isinstance(first, Reply) and first.image == encode_png(picture)
    assert isinstance(thought, Reply) and thought.text == nano.think([Request("chat", "Draw 2 apples .")])[0]
    assert isinstance(caption, Reply) and (caption.text or "").startswith("Caption: ")
    assert isinstance(refused, Refusal) and refused.status == 400 and "does not know the word" in refused.message
    assert isinstance(thoughtful, Reply) and thoughtful.thought and decode_picture(thoughtful.image or b"", "x").any()
    assert calls[0] == ("draw", 3)  # all three that draw alike; then by halves, for the one that is refused
    assert calls.count(("answer", 1)) == 1


def test_interleaved_answers_are_of_a_model_that_takes_turns(nano: UnifiedModel) -> None:
    task = Task("compose", Request("chat", "Draw 2 apples ."))
    (refused,) = perform(nano, [task], think_batch=8, draw_batch=8)
    assert isinstance(refused, Refusal) and (refused.status, refused.code) == (400, "skill_missing")
    turns = build_model(replace(model_config("nano"), sampling=replace(nano.sampling, interleaving="chain")))
    (answered,) = perform(turns, [task], think_batch=8, draw_batch=8)
    assert isinstance(answered, Reply) and list(answered.parts or ()) == turns.compose([task.request])[0]


def test_a_requests_own_settings_are_its_own(nano: UnifiedModel) -> None:
    sampling = nano.sampling
    request = Request("chat", "Draw 2 apples .", seed=5)
    tasks = [Task("think", request), Task("think", request, max_tokens=3), Task("think", request, temperature=8.0)]
    plain, short, hot = perform(nano, tasks, think_batch=8, draw_batch=8)
    assert isinstance(plain, Reply) and isinstance(short, Reply) and isinstance(hot, Reply)
    assert (plain.text or "").startswith(short.text or "?") and short.completion_tokens < plain.completion_tokens
    assert hot.text != plain.text
    assert nano.sampling is sampling


def test_batches_are_no_larger_than_the_models_and_a_large_request_is_done_alone(
    nano: UnifiedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    own = nano.draw
    monkeypatch.setattr(nano, "draw", lambda requests: sizes.append(len(requests)) or own(requests))
    monkeypatch.setattr(nano, "think", lambda requests: sizes.append(len(requests)) or ["x"] * len(requests))
    texts = ("apples", "apples " * 501, "trees")
    perform(nano, [Task("think", Request("a", text)) for text in texts], 4, 2)
    assert sorted(sizes) == [1, 2]
    sizes.clear()
    done = perform(nano, [draw("Draw 2 apples .", seed) for seed in range(7)], think_batch=8, draw_batch=3)
    assert sizes == [3, 3, 1] and len(done) == 7
