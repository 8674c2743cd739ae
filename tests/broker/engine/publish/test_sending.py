"""What happens to a send beside routing: time of arrival, thresholds; plain addresses pay nothing."""

from __future__ import annotations

import pytest

from broker.daemon.wiring import settings_table
from broker.engine.model.errors import AddressFull
from broker.engine.model.message import INGRESS_TIMESTAMP
from tests.broker.engine.engine_harness import Bench, notes
from tests.simulation.world import small


def test_a_plain_address_is_not_handled(bench: Bench) -> None:
    bench.sent("a", b"1")
    assert bench.engine._state.diverts.extras(bench.engine.addresses["a"]) is None


def test_the_time_of_arrival_is_noted() -> None:
    bench = Bench({"match": "a", "enable-ingress-timestamp": True})
    bench.sent("a", b"1", b"2")
    bench.sent("b", b"3")
    assert [notes(message)[INGRESS_TIMESTAMP] for message in bench.messages("a")] == [bench.broker.now] * 2
    assert bench.only("b").header.annotations is None


def test_the_time_of_arrival_survives_restart_and_death() -> None:
    bench = Bench({"match": "a", "enable-ingress-timestamp": True, "max-delivery-attempts": 1})
    bench.sent("a", b"1")
    then = bench.broker.now
    bench = bench.restart()
    bench.broker.advance(1_000)
    taker = bench.take("a")
    bench.nack(taker, *taker.taken)
    assert notes(bench.only("DLQ"))[INGRESS_TIMESTAMP] == then


def test_senders_that_do_not_stop_are_refused_beyond_the_threshold() -> None:
    settings = {"match": "a", "max-size-bytes": 1, "max-size-bytes-reject-threshold": 1_000}
    settings |= {"address-full-policy": "BLOCK"}
    bench = Bench(settings)
    while bench.engine.addresses.get("a") is None or bench.engine.addresses["a"].size_bytes < 1_000:
        bench.sent("a", b"x")
    held = bench.bodies("a")
    with pytest.raises(AddressFull, match="address a is full"):
        bench.send("a", b"x")
    bench.run()
    assert bench.bodies("a") == held


def test_a_change_of_settings_takes_effect_at_once(bench: Bench) -> None:
    bench.sent("a", b"1")
    settings = settings_table(small({"match": "a", "enable-ingress-timestamp": True}))
    bench.enter().configuration.change_settings(settings)
    bench.sent("a", b"2")
    assert [message.header.annotations for message in bench.messages("a")] == [
        None,
        {INGRESS_TIMESTAMP: bench.broker.now},
    ]
