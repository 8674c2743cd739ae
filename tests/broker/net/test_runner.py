"""Slow things beside the event loop: what comes of them, or what they raise, is handed over within a tick."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import pytest

from broker.net.runner import LoopRunner
from tests.simulation.world import small
from tests.support.sim_broker import SimBroker


def fails() -> NoReturn:
    """Work that cannot be done."""
    raise MemoryError("planted")


async def ran(way: str) -> object:
    """What a runner hands over of work that fails."""
    tick = SimBroker(small()).parts.tick
    runner = LoopRunner(tick)
    told: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    getattr(runner, way)(fails, told.set_result)
    assert not told.done(), "never at once"
    try:
        return await told
    finally:
        runner.close()


@pytest.mark.parametrize("way", ["run", "aside"])
def test_exceptions_of_work_are_handed_over(way: str) -> None:
    found = asyncio.run(ran(way))
    assert isinstance(found, MemoryError)


@pytest.mark.parametrize("way", ["run", "aside"])
def test_a_thread_that_cannot_be_had_is_handed_over(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    def refused(*args: object) -> NoReturn:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refused)
    found = asyncio.run(ran(way))
    assert isinstance(found, RuntimeError)
