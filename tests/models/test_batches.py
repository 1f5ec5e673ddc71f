"""Batches that a GPU's memory cannot hold, and batches with a request that is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from uni_train.core.errors import UserError
from uni_train.models.base import Request
from uni_train.models.batches import ModelDown, each_answered, fitting

REQUESTS = [Request(str(number), f"draw {number}") for number in range(5)]


class Card:
    """Answers so many requests at once."""

    def __init__(self, room: int) -> None:
        self.room, self.sizes = room, list[int]()

    def answer(self, requests: Sequence[Request]) -> list[str]:
        self.sizes.append(len(requests))
        if len(requests) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        if any(one.prompt == "draw 4" for one in requests):
            raise UserError("it knows no 4")
        return [one.id for one in requests]


def test_a_batch_that_memory_cannot_hold_is_halved_once_and_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    card = Card(2)
    assert fitting(card.answer, REQUESTS[:4]) == ["0", "1", "2", "3"] and card.sizes == [4, 2, 2]
    assert "out of GPU memory with 4 requests at once: halves are asked" in capsys.readouterr().err
    for room, asked in ((1, 4), (0, 1)):
        with pytest.raises(ModelDown, match="out of GPU memory") as caught:
            fitting(Card(room).answer, REQUESTS[:asked])
        assert caught.value.hint is not None and "model.draw_batch" in caught.value.hint


def test_a_refused_request_does_not_refuse_the_others_of_a_halved_batch() -> None:
    answers = each_answered(Card(3).answer, REQUESTS)
    assert answers[:4] == ["0", "1", "2", "3"] and isinstance(answers[4], UserError)
    with pytest.raises(ModelDown):  # of too little memory no request is to blame
        each_answered(Card(1).answer, REQUESTS[:4])
