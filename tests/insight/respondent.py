"""A respondent that knows, plans and draws exactly what a test says."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from uni_train.data_gen.registry import task_of
from uni_train.data_gen.task import Item
from uni_train.models.base import Request


class Scripted:
    """Right in the settings `right` (said, thought, told, normal, cot); elsewhere it says and draws nothing clear."""

    name = "scripted"

    def __init__(self, items: Sequence[Item], right: Collection[str]) -> None:
        self.items, self.right = {item.id: item for item in items}, right
        self.asked: list[tuple[str, Request]] = []

    def think(self, requests: Sequence[Request], **_: Any) -> list[str | Exception]:
        return self._words("think", "thought", requests)

    def answer(self, requests: Sequence[Request], **_: Any) -> list[str | Exception]:
        return self._words("answer", "said", requests)

    def compose(self, requests: Sequence[Request], **_: Any) -> Any:
        raise NotImplementedError

    def draw(self, requests: Sequence[Request], **_: Any) -> list[np.ndarray | Exception]:
        self.asked += [("draw", one) for one in requests]
        found: list[np.ndarray | Exception] = []
        for one in requests:
            item = self.items[one.id]
            how = "cot" if one.thought is not None else "normal" if one.prompt == item.prompt else "told"
            image = task_of(item).render(item, one.seed)
            found.append(image if how in self.right else np.full_like(image, 127))
        return found

    def _words(self, skill: str, setting: str, requests: Sequence[Request]) -> list[str | Exception]:
        self.asked += [(skill, one) for one in requests]
        items = [self.items[one.id] for one in requests]
        if setting not in self.right:
            return ["nothing"] * len(items)
        return [item.thought if skill == "think" else item.answer for item in items]
