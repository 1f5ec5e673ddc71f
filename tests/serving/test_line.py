from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from uni_train.serving.line import Full, Line


def lined_up(
    clients: str, *, at_once: int = 1, places: int = 100, weights: dict[str, int] | None = None
) -> tuple[list[str], list[str]]:
    """Requests of clients (one a letter) that arrive in this order while one of client "-" is at work: the order in
    which they had their turn, and those that were sent away."""
    turns: list[str] = []
    away: list[str] = []

    async def request(line: Line, client: str, work: Callable[[], Awaitable[object]]) -> None:
        try:
            async with line.place(client) as place:
                await place.turn((weights or {}).get(client, 1))
                turns.append(client)
                assert line.working <= at_once
                await work()
        except Full:
            away.append(client)

    async def all_of_them() -> None:
        line, finish = Line(places, at_once), asyncio.Event()
        first = asyncio.create_task(request(line, "-", finish.wait))
        await asyncio.sleep(0)
        tasks = [asyncio.create_task(request(line, client, lambda: asyncio.sleep(0))) for client in clients]
        await asyncio.sleep(0)
        finish.set()
        await asyncio.gather(first, *tasks)
        assert (len(line), line.working) == (0, 0)

    asyncio.run(asyncio.wait_for(all_of_them(), 10))
    return turns[1:], away


def test_clients_take_turns() -> None:
    turns, away = lined_up("aaaaabbc")
    assert "".join(turns) == "abcabaaa" and away == []


def test_a_full_line_sends_the_newest_of_the_busiest_client_away() -> None:
    assert lined_up("aaaa", places=3) == (["a"] * 3, ["a"])
    turns, away = lined_up("aaabc", places=3)
    assert sorted(turns) == ["a", "b", "c"] and away == ["a", "a"]  # the newcomers have their place
    assert lined_up("abcd", places=3) == (["a", "b", "c"], ["d"])  # nobody has more than another


def test_a_large_request_is_alone_and_overtaken_by_nobody() -> None:
    turns, _ = lined_up("aaLbb", at_once=2, weights={"L": 2, "-": 2})
    assert "".join(turns) == "aLbab"
    assert lined_up("L", at_once=2, weights={"L": 99, "-": 2})[0] == ["L"]  # larger than all: alone, not never


def test_who_leaves_gives_the_place_back() -> None:
    async def left() -> None:
        line = Line(1, 1)

        async def request() -> None:
            async with line.place("a") as place:
                await place.turn(1)
                await asyncio.sleep(60)

        for _ in range(3):
            task = asyncio.create_task(request())
            await asyncio.sleep(0.01)
            assert line.working == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (len(line), line.working) == (0, 0)

    asyncio.run(left())
