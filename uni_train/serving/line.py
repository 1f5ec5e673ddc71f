"""A queue of limited length for requests; clients take turns.

Scheduling is round robin over clients: the next turn goes to the client that has waited longest since its last one.
If the queue is full, the client with the most waiting requests loses its last one.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from types import TracebackType


class Full(Exception):
    """The line has no place for this request now."""


class Place:
    """One request's place in a `Line`; a context manager of the task that answers it. Raises Full."""

    def __init__(self, line: Line, client: str) -> None:
        self._line, self.client = line, client
        self.weight = 0
        self.ready: asyncio.Future[None] | None = None
        self.pushed_out = False
        self._task: asyncio.Task[object] | None = None

    async def __aenter__(self) -> Place:
        self._task = asyncio.current_task()
        self._line._enter(self)
        return self

    async def turn(self, weight: int) -> None:
        """Wait until the model has room for so many tasks; they hold it until the place is left."""
        self.weight = min(weight, self._line.at_once)
        self.ready = asyncio.get_running_loop().create_future()
        self._line._advance()
        await self.ready

    def push_out(self) -> None:
        """Give the place to somebody else: whoever waits in it is interrupted, and meets Full."""
        assert self._task is not None
        self.pushed_out = True
        self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._line._leave(self)
        if self.pushed_out and isinstance(error, asyncio.CancelledError):
            assert self._task is not None
            self._task.uncancel()
            raise Full from None


class Line:
    """places: requests that may wait (being read included). at_once: tasks at work together."""

    def __init__(self, places: int, at_once: int) -> None:
        self.places, self.at_once = places, at_once
        self.working = 0  # tasks
        self._at_work: set[Place] = set()
        self._waiting: OrderedDict[str, list[Place]] = OrderedDict()  # clients, the next one to have a turn first

    def __len__(self) -> int:
        """Requests that wait."""
        return sum(map(len, self._waiting.values()))

    def place(self, client: str) -> Place:
        return Place(self, client)

    def _enter(self, place: Place) -> None:
        mine = len(self._waiting.get(place.client, ()))
        if len(self) >= self.places:
            longest = max(self._waiting.values(), key=len)
            if mine + 1 >= len(longest):
                raise Full
            last = longest[-1]
            self._remove(last)
            last.push_out()
        self._waiting.setdefault(place.client, []).append(place)

    def _remove(self, place: Place) -> None:
        mine = self._waiting.get(place.client, [])
        if place in mine:
            mine.remove(place)
            if not mine:
                del self._waiting[place.client]

    def _leave(self, place: Place) -> None:
        self._remove(place)
        if place in self._at_work:
            self._at_work.remove(place)
            self.working -= place.weight
        self._advance()

    def _advance(self) -> None:
        """Start waiting requests in round-robin order while there is room. A large request is never overtaken."""
        while True:
            ready = (place for mine in self._waiting.values() for place in mine if place.ready is not None)
            place = next(ready, None)
            if place is None or (self._at_work and self.working + place.weight > self.at_once):
                return
            self._remove(place)
            if place.client in self._waiting:
                self._waiting.move_to_end(place.client)
            self._at_work.add(place)
            self.working += place.weight
            assert place.ready is not None
            if not place.ready.done():
                place.ready.set_result(None)
