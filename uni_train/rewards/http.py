"""A reward behind an address of one's own: images, prompts and references go there, a number for each image comes back.

    POST ADDRESS
    {"prompts": ["..."], "images": ["<PNG, base64>"], "inputs": [["<PNG>"]], "references": ["<PNG>" or null],
     "items": [{...} or null], "ids": ["..."]}
    -> {"scores": [0.7]}

`inputs` are the images shown with the prompt, `references` the right image where a task can draw it, `items` what our
tasks know of the prompt. A score of null says that the reward does not apply. Limits are those of judges
(uni_train.http_client); whatever else comes back ends the run with the address: it would be learned silently.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from uni_train.addresses import key_for
from uni_train.data_gen.registry import task_of
from uni_train.data_gen.seeds import derive_seed
from uni_train.data_gen.task import Item
from uni_train.errors import UsageError, UserError
from uni_train.http_client import BadReply, Client, NoReply, get_json
from uni_train.models.pictures import encode_png
from uni_train.rewards.registry import Trained, reward

if TYPE_CHECKING:
    from uni_train.config.schema import RewardConfig

_ABOUT = 10.0  # seconds for the first sign that somebody is there
_MOST = 1e100  # of a score; neither NaN nor an infinity is below it, nor a whole number that is no float
_HINT = "See that it runs and answers; rewards.NAME.http.timeout and .retries say how long it is waited for."


@reward("http")
class Http:
    """The scores that an address gives.

    Raises:
        UsageError: no such address. UserError: nobody is there.
    """

    def __init__(self, config: RewardConfig, trained: Trained | None = None) -> None:
        assert config.http is not None  # config.build has checked
        self.config, self.url = config.http, config.http.address
        if not self.url.startswith(("http://", "https://")):
            raise UsageError(f"the reward's address {self.url} is none", "Write http://HOST:PORT/PATH.")
        self.key = key_for(self.url, config.http.key_env)
        try:
            get_json(self.url, self.key, replace(config.http, retries=0, timeout=_ABOUT))
        except NoReply as error:
            raise UserError(f"the reward cannot be asked: {error}", _HINT) from None
        except BadReply:
            pass  # somebody is there, and may answer POST alone

    def __call__(
        self,
        prompts: Sequence[str],
        completions: Sequence[np.ndarray],
        *,
        id: Sequence[str],
        images: Sequence[Sequence[np.ndarray]],
        item: Sequence[Item | None] | None = None,
        **_: object,
    ) -> list[float | None]:
        """A score an image.

        Raises:
            UserError: no reply within the limits, or one that has not a finite number or null for each image.
        """
        items = item if item is not None else [None] * len(prompts)
        rows = list(zip(id, prompts, completions, images, items, strict=True))
        parts = [rows[begin : begin + self.config.batch] for begin in range(0, len(rows), self.config.batch)]
        try:
            replies = asyncio.run(self._replies(parts))
        except (NoReply, BadReply) as error:
            raise UserError(f"the reward failed: {error}", _HINT) from None
        return [value for part, reply in zip(parts, replies, strict=True) for value in self._read(part, reply)]

    async def _replies(self, parts: Sequence[Sequence[Any]]) -> list[Any]:
        """The replies about all parts, `connections` at a time. Raises the first NoReply or BadReply."""
        slots = asyncio.Semaphore(self.config.connections)

        async def ask(part: Sequence[Any]) -> Any:
            async with slots:
                return await client.ask(self.url, _body(part))

        async with Client(self.key, self.config) as client:
            return await asyncio.gather(*map(ask, parts))

    def _read(self, part: Sequence[Any], reply: Any) -> list[float | None]:
        scores = reply.get("scores") if isinstance(reply, dict) else None
        if not isinstance(scores, list) or len(scores) != len(part):
            received = f"{len(scores)} scores" if isinstance(scores, list) else "no list of scores"
            raise UserError(
                f"{self.url} sent {received} for {len(part)} images", 'It must send {"scores": [...]}, one each.'
            )
        for name, value in zip((row[0] for row in part), scores, strict=True):
            number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST
            if value is not None and not number:
                raise UserError(
                    f"{self.url} scored an image of {name} {value!r:.60}", "A score is a finite number, or null."
                )
        return scores


def _body(rows: Sequence[Any]) -> dict[str, Any]:
    ids, prompts, completions, images, items = zip(*rows, strict=True)
    return {
        "prompts": prompts,
        "images": [_png(image) for image in completions],
        "inputs": [[_png(image) for image in shown] for shown in images],
        "references": [_reference(item) for item in items],
        "items": [None if item is None else item.to_dict() for item in items],
        "ids": ids,
    }


def _reference(item: Item | None) -> str | None:
    """The right image of an item, where its task can draw it."""
    if item is None or not task_of(item).has_image(item):
        return None
    return _png(task_of(item).render(item, derive_seed("reference", item.id)))


def _png(image: np.ndarray) -> str:
    return base64.b64encode(encode_png(image)).decode("ascii")
