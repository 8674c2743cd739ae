"""Names in their order, while queues and addresses come and go."""

from __future__ import annotations

import asyncio

import pytest

from broker.management import names as names_of_all
from broker.management import turns
from broker.management.names import Names
from tests.broker.engine.engine_harness import Bench


async def test_they_are_in_order_whatever_comes_and_goes() -> None:
    bench = Bench()
    names = Names(bench.engine)
    bench.sent("b", b"1")
    assert await names.queues() == await names.addresses() == ["DLQ", "ExpiryQueue", "b"]
    bench.sent("a", b"1")
    assert await names.queues() == await names.addresses() == ["DLQ", "ExpiryQueue", "a", "b"]
    assert await names.queues() is await names.queues(), "sorted once"
    bench.enter().delete_temporary(bench.engine.addresses["b"])
    bench.run()
    assert await names.queues() == await names.addresses() == ["DLQ", "ExpiryQueue", "a"]


async def test_one_may_come_again() -> None:
    bench = Bench()
    names = Names(bench.engine)
    bench.sent("a", b"1")
    await names.queues()
    bench.enter().delete_temporary(bench.engine.addresses["a"])
    bench.run()
    bench.sent("a", b"1")
    assert await names.queues() == ["DLQ", "ExpiryQueue", "a"]


async def test_many_are_sorted_in_turns_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what comes and goes meanwhile, nor with a caller who leaves."""
    monkeypatch.setattr(names_of_all, "PART", 10)
    monkeypatch.setattr(turns, "TURN_US", 0)
    bench = Bench()
    names = Names(bench.engine)
    for n in range(50):
        bench.sent(f"q{n:02}", b"1")
    leaving = asyncio.create_task(names.queues())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    bench.enter().delete_temporary(bench.engine.addresses["q10"])
    bench.run()
    leaving.cancel()
    asking = asyncio.create_task(names.queues())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not asking.done()
    bench.enter().delete_temporary(bench.engine.addresses["q20"])
    bench.run()
    bench.sent("new", b"1")
    left = [f"q{n:02}" for n in range(50) if n not in (10, 20)]
    assert await asking == ["DLQ", "ExpiryQueue", "new", *left]
