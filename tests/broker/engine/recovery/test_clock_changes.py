"""The wall clock is set, by a second or ten years, forward or back: nothing comes early, nothing waits for ever."""

from __future__ import annotations

import pytest

from broker.engine.delivery.redelivery import CLOSED
from broker.engine.model.errors import TransactionClosed
from broker.engine.recovery.clock_changes import JUMP_MS_MIN, JumpDetectingClock
from tests.broker.engine.engine_harness import Bench
from tests.simulation.world import check_accounts, small
from tests.support.mqtt_world import SimWorld
from tests.support.sim_files import SimFiles

YEARS = 10 * 365 * 86_400_000
JUMPS = [JUMP_MS_MIN, -JUMP_MS_MIN, 3_600_000, -3_600_000, YEARS, -YEARS]

DELAY = 60_000


def waiting() -> Bench:
    """A message that waits for its redelivery."""
    bench = Bench({"match": "a", "redelivery-delay": DELAY})
    bench.sent("a", b"1")
    taker = bench.take("a")
    bench.nack(taker, *taker.taken)
    bench.close(taker, CLOSED)
    assert bench.places("a") == {b"1": "scheduled"}
    return bench


@pytest.mark.parametrize("jump", JUMPS)
@pytest.mark.parametrize("restart", [False, True])
def test_a_redelivery_comes_after_its_delay(jump: int, restart: bool) -> None:
    bench = waiting()
    bench.broker.advance(DELAY // 2)
    bench.broker.jump(jump)
    assert bench.broker.reported("clock.jumped") == [{"milliseconds": jump}]
    if restart:
        bench = bench.restart()
    bench.broker.advance(DELAY // 2 - 1)
    assert bench.places("a") == {b"1": "scheduled"}
    bench.broker.advance(1)
    assert bench.places("a") == {b"1": "ready"}
    check_accounts(bench.broker)


def test_a_clock_that_was_set_back_while_the_broker_was_down_holds_up_no_redelivery() -> None:
    bench = waiting()
    bench.broker.now -= YEARS
    bench = bench.restart()
    bench.broker.advance(10 * DELAY)
    assert bench.places("a") == {b"1": "ready"}


@pytest.mark.parametrize("jump", JUMPS)
def test_a_timestamp_of_a_sender_stays(bench: Bench, jump: int) -> None:
    now = bench.broker.now
    bench.sent("a", b"later", scheduled=now + 7_200_000)
    bench.sent("a", b"brief", expiration=now + 7_200_000)
    bench.broker.jump(jump)
    bench.broker.advance(30_000)
    gone = jump >= 7_200_000
    assert bench.places("a") == ({b"later": "ready"} if gone else {b"later": "scheduled", b"brief": "ready"})
    if not gone:
        bench.broker.jump(now + 7_200_000 - bench.broker.now)  # it is set right again
        bench.broker.advance(30_000)
    assert bench.places("a") == {b"later": "ready"}, "each at its time, not before and not never"


@pytest.mark.parametrize("jump", JUMPS)
def test_a_transaction_ends_after_its_timeout(jump: int) -> None:
    section = small().broker.model_copy(update={"transaction_timeout": 10_000})
    bench = Bench(broker=section)
    tx = bench.begin()
    bench.send("a", b"1", tx=tx)
    bench.run()
    bench.broker.jump(jump)
    bench.broker.advance(9_999)
    tx.check_open()
    bench.broker.advance(1)
    with pytest.raises(TransactionClosed):
        tx.check_open()


@pytest.mark.parametrize("jump", JUMPS)
def test_a_queue_that_nobody_uses_goes_after_its_delay(jump: int) -> None:
    bench = Bench({"match": "a", "auto-delete-queues": True, "auto-delete-queues-delay": 600_000})
    taker = bench.take("a")
    bench.sent("a", b"1")
    bench.ack(taker, *taker.taken)
    bench.close(taker, CLOSED)
    bench.broker.jump(jump)
    bench.broker.advance(599_000)
    assert "a" in bench.engine.queues
    bench.broker.advance(120_000)
    assert "a" not in bench.engine.queues


@pytest.mark.parametrize("jump", JUMPS)
def test_an_mqtt_session_and_its_will_last_as_long_as_they_were_meant_to(jump: int) -> None:
    sim = SimWorld()
    sim.connect("away", expiry=100).drop()
    sim.broker.jump(jump)
    sim.advance(99)
    assert sim.broker.engine.sessions.get("away") is not None
    sim.advance(2)
    assert sim.broker.engine.sessions.get("away") is None


@pytest.mark.parametrize("jump", JUMPS)
def test_a_queue_that_opens_after_a_delay(jump: int) -> None:
    setting = {"match": "a", "default-consumers-before-dispatch": 2, "default-delay-before-dispatch": 5_000}
    bench = Bench(setting)
    bench.sent("a", b"1")
    taker = bench.take("a")
    bench.broker.jump(jump)
    bench.broker.advance(4_999)
    assert taker.taken == []
    bench.broker.advance(1)
    assert taker.take() == [b"1"]


@pytest.mark.parametrize("jump", JUMPS)
def test_nobody_is_slow_because_of_a_clock(jump: int) -> None:
    bench = Bench({"match": "a", "slow-consumer-threshold": 2, "slow-consumer-policy": "KILL"})
    taker = bench.take("a")
    bench.sent("a", *[b"x"] * 100)
    for _ in range(4):
        bench.broker.advance(2_500)
        bench.ack(taker, *[taker.taken.pop(0) for _ in range(10)])
        bench.broker.advance(2_500)
        bench.broker.jump(jump)
    assert bench.broker.reported("consumer.slow") == []


@pytest.mark.parametrize("jump", JUMPS)
def test_the_disk_is_looked_at_all_the_same(jump: int) -> None:
    files = SimFiles(capacity=10 << 20)
    bench = Bench(running=type(Bench().broker)(small(), files=files))
    files.put("/elsewhere", bytes(95 * (10 << 20) // 100 - files.used()))
    bench.broker.jump(jump)
    bench.broker.advance(5_000)
    assert bench.engine.usage.disk.full


def test_a_slewed_clock_has_not_jumped() -> None:
    wall, steady, jumps = [0], [0.0], list[int]()
    clock = JumpDetectingClock(lambda: wall[0], lambda: steady[0])
    clock.follow = jumps.append
    for step in (0, 500, -900, 999, -999, JUMP_MS_MIN, 0, -JUMP_MS_MIN):
        steady[0] += 1.0
        wall[0] += 1_000 + step
        assert clock() == wall[0]
    assert jumps == [JUMP_MS_MIN, -JUMP_MS_MIN]
