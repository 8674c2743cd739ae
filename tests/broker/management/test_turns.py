"""Who parses what was read, and how much of it in one turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from broker.management import turns
from broker.management.turns import PART_BYTES, TURN_US, Turns, in_turns


class Clock:
    """The CPU time of the thread, in microseconds."""

    def __init__(self) -> None:
        self.used = 0

    def __call__(self) -> int:
        return self.used


class Sender:
    """A connection that has read so many parts, each of which takes `cost` microseconds to parse."""

    def __init__(self, name: str, parts: int, cost: int, clock: Clock, done: list[str]) -> None:
        self._name = name
        self._parts = parts
        self._cost = cost
        self._clock = clock
        self._done = done

    def parse_part(self) -> bool:
        """Parse one."""
        self._parts -= 1
        self._clock.used += self._cost
        self._done.append(self._name)
        return self._parts > 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that turns read."""
    clock = Clock()
    monkeypatch.setattr(turns, "thread_cpu_us", clock)
    return clock


async def test_a_turn_ends_when_its_time_is_used_up(clock: Clock) -> None:
    done: list[str] = []
    each = Turns()
    for name in "abc":
        each.enter(Sender(name, 2, TURN_US // 2, clock, done))
    seen = []
    while len(done) < 6:
        await asyncio.sleep(0)
        seen.append("".join(done))
    assert seen == ["ab", "abca", "abcabc"]
    await asyncio.sleep(0)
    assert len(done) == 6


async def test_who_is_closed_has_no_turn(clock: Clock) -> None:
    done: list[str] = []
    each = Turns()
    closed = Sender("closed", 1, 1, clock, done)
    each.enter(closed)
    each.enter(Sender("open", 1, 1, clock, done))
    each.leave(closed)
    await asyncio.sleep(0)
    assert done == ["open"]


def test_a_part_of_the_dearest_bytes_fits_a_turn_twice() -> None:
    assert PART_BYTES * 0.6 < 2 * TURN_US  # a chunk of one byte has six, and takes 3.6 us


async def test_others_are_served_while_a_long_answer_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, seen = Clock(), list[int]()
    monkeypatch.setattr(turns, "thread_cpu_us", clock)

    def work() -> Iterator[int | None]:
        for number in range(6):
            clock.used += TURN_US // 2
            yield number if number % 2 else None

    async def other() -> None:
        while True:
            seen.append(clock.used)
            await asyncio.sleep(0)

    served = asyncio.create_task(other())
    assert await in_turns(work()) == [1, 3, 5]
    served.cancel()
    assert seen == [TURN_US, 2 * TURN_US, 3 * TURN_US]
