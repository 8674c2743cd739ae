"""Messages that expire while others need the disk."""

from __future__ import annotations

import pytest

from broker.engine.delivery.dispatch import DISK_RETRY_MS
from broker.engine.moves.expiry import BYTES_TOGETHER
from store.record import RemovalReason
from tests.broker.engine.engine_harness import Bench

SIZE = 16 << 10
MANY = 200


def expired(bench: Bench) -> int:
    return bench.queue("a").left[RemovalReason.EXPIRED]


@pytest.fixture
def bench() -> Bench:
    """A queue of messages that expire in a second, and a disk that stands still."""
    bench = Bench(segment_bytes=4 << 20)
    for _ in range(MANY // 10):
        bench.sent("a", *[bytes(SIZE)] * 10, expiration=bench.broker.now + 1000)
    bench.broker.hold_disk()
    return bench


def most(bench: Bench) -> int:
    """The most bytes that expiry may add to what the disk has to do."""
    return bench.engine.limits.task_pending_max + BYTES_TOGETHER + 64 * 4096


def test_expiry_adds_little_to_what_a_disk_that_stands_still_has_to_do(bench: Bench) -> None:
    """Else all confirmations would wait behind it."""
    bench.broker.advance(2000)
    for _ in range(20):
        bench.enter()
        bench.broker.end_ticks()
    assert 0 < expired(bench) < MANY
    assert bench.broker.parts.journal.pending_bytes <= most(bench)
    assert not bench.engine.ticks.has_more
    due = bench.engine.ticks.next_due()
    assert due is None or due > bench.broker.now, "the broker does not wake itself meanwhile"


def test_expiry_goes_on_with_each_announcement_of_the_disk(bench: Bench) -> None:
    bench.broker.advance(2000)
    while expired(bench) < MANY:
        before = expired(bench)
        bench.broker.write()
        bench.broker.end_ticks()
        assert before < expired(bench)
        assert bench.broker.parts.journal.pending_bytes <= most(bench)
    bench.broker.release_disk()
    assert len(bench.bodies("ExpiryQueue")) == MANY


def test_expiry_goes_on_while_others_keep_the_disk_busy(bench: Bench) -> None:
    bench.broker.advance(2000)
    for _ in range(MANY):
        bench.sent("b", bytes(2 * bench.engine.limits.task_pending_max))
        bench.broker.write()
        bench.broker.end_ticks()
    assert expired(bench) == MANY


def test_a_delivery_that_finds_expired_messages_waits_for_a_busy_disk_too() -> None:
    bench = Bench(segment_bytes=4 << 20, engine_limits={"expiry_scan_period": 0})
    bench.sent("a", *[bytes(SIZE)] * MANY, expiration=bench.broker.now + 1000)
    bench.broker.hold_disk()
    bench.broker.now += 2000
    taker = bench.take("a")
    assert 0 < expired(bench) < MANY
    assert taker.taken == []
    bench.broker.release_disk()
    for _ in range(MANY):
        bench.broker.advance(DISK_RETRY_MS)
    assert expired(bench) == MANY
    assert taker.taken == []


def test_the_ends_of_sessions_wait_for_a_busy_disk() -> None:
    bench = Bench()
    bench.broker.hold_disk()
    rung: list[int] = []
    state = bench.engine._state

    def ring(number: int) -> None:
        rung.append(number)
        bench.send("a", bytes(SIZE))

    for number in range(MANY):
        state.schedule.session_alarms.at(number, bench.broker.now + 10, lambda number=number: ring(number))  # type: ignore[misc]
    bench.broker.advance(20)
    assert 0 < len(rung) < 10
    bench.broker.release_disk()
    assert rung == list(range(MANY))
