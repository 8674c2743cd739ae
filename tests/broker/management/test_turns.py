"""Who parses what was read, and how much of it in one turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from broker.management import turns
from broker.management.turns import PART_BYTES, TURN_US, WOKEN_MAX, Turns, in_turns


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


async def test_a_closed_call_has_no_turn(clock: Clock) -> None:
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


class Calls:
    """Calls that have so many steps each, every one of which takes `cost` microseconds; done in `seen`, by turn."""

    def __init__(self, clock: Clock, cost: int) -> None:
        self.turns = Turns()
        self._clock = clock
        self._cost = cost
        self._tasks: list[asyncio.Task[None]] = []
        self._done = ""

    def begin(self, name: str, steps: int, *, probe: bool = False) -> asyncio.Task[None]:
        """Begin one."""

        async def run() -> None:
            await self.turns.run(self._call(name, steps), probe=probe)

        self._tasks.append(asyncio.create_task(run()))
        return self._tasks[-1]

    async def _call(self, name: str, steps: int) -> None:
        for step in range(steps):
            if step:
                await asyncio.sleep(0)
            self._clock.used += self._cost
            self._done += name

    async def seen(self) -> list[str]:
        """What is done in each turn, until nothing is left."""
        found = []
        while not all(task.done() for task in self._tasks):
            await asyncio.sleep(0)
            if self._done:
                found.append(self._done)
            self._done = ""
        return found


async def test_calls_share_the_time_of_a_turn(clock: Clock) -> None:
    calls = Calls(clock, TURN_US // 2)
    for name in "abcde":
        calls.begin(name, 1)
    assert await calls.seen() == ["ab", "cd", "e"]


async def test_a_call_that_goes_on_is_behind_those_that_wait(clock: Clock) -> None:
    calls = Calls(clock, TURN_US)
    calls.begin("a", 3)
    calls.begin("b", 1)
    assert await calls.seen() == ["a", "b", "a", "a"]


async def test_more_calls_than_are_woken_together(clock: Clock) -> None:
    calls = Calls(clock, 0)
    for _ in range(2 * WOKEN_MAX + 1):
        calls.begin("a", 1)
    assert await calls.seen() == ["a" * WOKEN_MAX, "a" * WOKEN_MAX, "a"]


async def test_a_probe_goes_before_calls_and_holds_up_none(clock: Clock) -> None:
    calls = Calls(clock, TURN_US)
    for name in "ab":
        calls.begin(name, 1)
    for name in "PQR":
        calls.begin(name, 1, probe=True)
    assert await calls.seen() == ["Pa", "Qb", "R"]


async def test_one_call_goes_on_though_parsing_takes_the_turn(clock: Clock) -> None:
    calls = Calls(clock, 1)
    calls.turns.enter(Sender("parsed", 1_000, TURN_US, clock, []))
    for name in "ab":
        calls.begin(name, 1)
    assert await calls.seen() == ["a", "b"]


async def test_a_call_is_cancelled_while_it_waits_for_a_turn(clock: Clock) -> None:
    calls = Calls(clock, TURN_US)
    calls.begin("a", 1)
    cancelled = calls.begin("b", 1)
    calls.begin("c", 1)
    await asyncio.sleep(0)
    cancelled.cancel()
    assert await calls.seen() == ["a", "c"]
    assert cancelled.cancelled()


async def test_a_call_waits_for_something_else_and_may_time_out(clock: Clock) -> None:
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    found = []

    async def call() -> None:
        try:
            async with asyncio.timeout(0):
                await never
        except TimeoutError:
            found.append("late")
        found.append(await asyncio.to_thread(lambda: "thread"))

    await Turns().run(call())
    assert found == ["late", "thread"]


async def test_a_call_fails(clock: Clock) -> None:
    async def call() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        await Turns().run(call())


async def test_a_part_of_a_stream_takes_what_is_left_of_a_turn(clock: Clock) -> None:
    calls = Calls(clock, 1)
    streams = [asyncio.create_task(calls.turns.next()) for _ in range(3)]
    done = []
    while not all(stream.done() for stream in streams):
        await asyncio.sleep(0)
        done.append(sum(stream.done() for stream in streams))
    assert [count for count in dict.fromkeys(done) if count] == [1, 2, 3]


async def test_a_fault_at_one_connection_does_not_stop_the_others(clock: Clock) -> None:
    class Faulty:
        def parse_part(self) -> bool:
            raise RuntimeError("planted")

    faults, done = [], list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["exception"]))
    each = Turns()
    each.enter(Faulty())
    each.enter(Sender("a", 1, 1, clock, done))
    for _ in range(2):
        await each.next()
    assert (done, len(faults)) == (["a"], 1)
