"""What of a paging queue is in memory after a restart: all of it if it is short, nothing if it is long."""

from __future__ import annotations

import pytest

from broker.engine.model.message import MESSAGE_OVERHEAD_BYTES, RoutingType
from broker.engine.queues.paging.tail_restore import READ_MESSAGES_MAX
from broker.engine.recovery import restore
from tests.broker.engine.engine_harness import Bench
from tests.broker.engine.queues.paging.backlogs import bodies, consumed, filled, paging, settled
from tests.support.sim_files import SimFiles

MULTICAST = RoutingType.MULTICAST


def after_restart(count: int, **settings: object) -> tuple[int, int]:
    """Of so many messages, those in memory and those on disk only."""
    bench = paging(**{"max-size-messages": -1, "max-read-page-messages": -1} | settings)
    filled(bench, count)
    assert bench.bodies("q") == bodies(*range(count))
    bench = bench.restart()
    queue = bench.queue("q")
    found = queue.ready, queue.paged
    assert bench.engine.usage.messages == queue.address.size_messages == queue.ready
    assert queue.message_count == count
    assert bench.bodies("q") == bodies(*range(count))
    assert consumed(bench, bench.take("q")) == bodies(*range(count))
    settled(bench)
    return found


def test_a_short_queue_is_in_memory() -> None:
    assert after_restart(10) == (10, 0)


@pytest.mark.parametrize(("count", "found"), [(READ_MESSAGES_MAX, 0), (READ_MESSAGES_MAX + 1, READ_MESSAGES_MAX + 1)])
def test_a_restart_does_not_read_many(count: int, found: int) -> None:
    """Clients of a pair wait for the new owner meanwhile."""
    assert after_restart(count) == (count - found, found)


@pytest.mark.parametrize(("limit", "found"), [(11, (10, 0)), (10, (0, 10))])
def test_the_limit_of_the_address(limit: int, found: tuple[int, int]) -> None:
    """With as many as it may hold an address is full."""
    assert after_restart(10, **{"max-size-messages": limit}) == found


@pytest.mark.parametrize(("limit", "found"), [(10, (10, 0)), (9, (0, 10))])
def test_the_limit_of_messages_read_ahead(limit: int, found: tuple[int, int]) -> None:
    assert after_restart(10, **{"max-read-page-messages": limit}) == found


@pytest.mark.parametrize(("record_bytes", "found"), [(200, (10, 0)), (20, (0, 10)), (-1, (0, 10))])
def test_the_limit_of_bytes_read_ahead(record_bytes: int, found: tuple[int, int]) -> None:
    """For a message counts what its object and its record take, which is more than 20 bytes here."""
    limit = 10 * (MESSAGE_OVERHEAD_BYTES + record_bytes)
    assert after_restart(10, **{"max-read-page-bytes": limit}) == found


def test_the_limit_of_the_broker() -> None:
    bench = paging(**{"max-size-messages": -1, "max-read-page-messages": -1})
    filled(bench)
    usage = bench.engine.usage.bytes
    broker = bench.broker.config.broker
    for limit, found in ((2 * usage, (10, 0)), (usage, (0, 10))):
        bench.broker.config = bench.broker.config.model_copy(
            update={"broker": broker.model_copy(update={"global_max_size": limit})}
        )
        bench = bench.restart()
        assert (bench.queue("q").ready, bench.queue("q").paged) == found


def test_returned_messages_keep_their_place_in_a_short_queue() -> None:
    """By default a restart changes nothing of the order, for it leaves nothing on disk only."""
    bench = Bench()
    bench.sent("q", b"1")
    bench.sent("q", b"later", scheduled=bench.broker.now + 1_000)
    bench.sent("q", b"2")
    bench = bench.restart()
    bench.broker.advance(1_000)
    assert bench.take("q").take() == [b"1", b"later", b"2"]


def test_a_message_of_several_short_queues_is_one_object() -> None:
    bench = Bench()
    engine = bench.enter()
    address = engine.configuration.declare("a", {MULTICAST})
    for name in ("q1", "q2", "q3"):
        engine.configuration.declare_queue(address, name, MULTICAST, durable=True, selector="")
    bench.sent("a", b"1", routing_type=None)
    bench.sent("a", b"2", routing_type=None)
    bench = bench.restart()
    first, second, third = (bench.messages(name) for name in ("q1", "q2", "q3"))
    assert [id(message) for message in first] == [id(message) for message in second] == [id(m) for m in third]
    assert [message.refs for message in first] == [3, 3]
    assert bench.engine.usage.messages == 2
    for name in ("q1", "q2", "q3"):
        taker = bench.take(f"a::{name}", None)
        bench.ack(taker, *taker.taken)
    assert (bench.engine.usage.messages, bench.engine.usage.bytes) == (0, 0)
    bench.check()


def test_queues_with_few_messages_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    names = [f"q.{number}" for number in range(2 * restore._READ_TOGETHER + 1)]
    for name in names:
        bench.sent(name, name.encode())
    read_range = SimFiles.read_range
    reads: list[str] = []

    def counted(files: SimFiles, path: str, offset: int, nbytes: int) -> bytes:
        reads.append(path)
        return read_range(files, path, offset, nbytes)

    monkeypatch.setattr(SimFiles, "read_range", counted)
    bench = bench.restart()
    assert 0 < len(reads) <= 3 * bench.engine.journal.segment
    assert [(bench.queue(name).ready, bench.bodies(name)) for name in names] == [(1, [n.encode()]) for n in names]
