"""Producers with one message under way: what counts, and what is found to be wrong."""

from __future__ import annotations

import pytest

from bench import confirming, generator
from bench.confirming import Confirmed, Messages, run
from bench.generator import Target
from bench.link import BrokerFailed
from bench.messages import FrameTemplate
from bench.mqtt_messages import Checker, MqttPool
from tests.bench.fake_broker import FakeBroker

SHAPE = FrameTemplate(durable=True, receipt_every=1)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has lost a message is not waited for."""
    monkeypatch.setattr(confirming, "SETTLING_S", 0.0)
    monkeypatch.setattr(confirming, "STALL_S", 0.5)


def measured(broker: FakeBroker, producers: int) -> Confirmed:
    """A short run."""
    target = Target("127.0.0.1", broker.port)
    return run(target, "stomp", Messages(SHAPE), producers, 0.1, {"broker": lambda: 1.0})


@pytest.mark.parametrize("producers", [1, 2, 48])
def test_confirmations_are_counted_and_timed(producers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirming, "STALL_S", generator.STALL_S)
    with FakeBroker() as broker:
        found = measured(broker, producers)
    assert found.messages >= found.latency.count > 0
    assert 0 < found.latency.p50 <= found.latency.p99 < 1000 * found.seconds
    assert len(broker.acks) >= found.messages
    assert found.cpu_us["broker"] == 0
    assert found.cpu_us["generator"] > 0


def test_a_message_that_is_lost_fails_the_run() -> None:
    with FakeBroker(lambda frames: frames[:-1]) as broker, pytest.raises(BrokerFailed, match="messages received"):
        measured(broker, 1)


def test_a_message_that_is_repeated_fails_the_run() -> None:
    with FakeBroker(lambda frames: frames * 2) as broker, pytest.raises(BrokerFailed, match="comes again"):
        measured(broker, 4)


def test_producers_share_the_destinations_evenly() -> None:
    assert [SHAPE.lanes(producers) for producers in (1, 4, 16, 128)] == [16, 16, 16, 128]
    with pytest.raises(ValueError, match="3 producers"):
        SHAPE.lanes(3)


def packets(pool: MqttPool, *numbers: int) -> bytes:
    """These messages."""
    laps = confirming.Laps(pool.outgoing, pool.offsets.tolist())
    return b"".join([laps[number] for number in numbers])


def test_the_messages_of_different_producers_may_overtake_each_other() -> None:
    pool = MqttPool(SHAPE, 1)
    checker = Checker(pool, 32)
    answers = checker.take(packets(pool, 0, 2, 1, 33, 32))
    assert (checker.received, len(answers)) == (5, 5 * 4)
    with pytest.raises(BrokerFailed, match="message 97 came where 65 is due"):
        checker.take(packets(pool, 64, 97))


def test_each_message_comes_once_where_there_is_no_order() -> None:
    pool = MqttPool(SHAPE, 1)
    checker = Checker(pool, 16, ordered=False)
    checker.take(packets(pool, 0, 1, 32, 16))
    assert checker.received == 4
    for again in (1, 16):
        with pytest.raises(BrokerFailed, match=f"message {again} comes again"):
            checker.take(packets(pool, again))
