"""What happens to a send beside routing: no route, time of arrival, thresholds; plain addresses pay nothing."""

from __future__ import annotations

import pytest

from broker.engine.model.errors import AddressFull
from broker.engine.model.message import INGRESS_TIMESTAMP, RoutingType
from broker.engine.routing import registry
from tests.broker.engine.engine_harness import Bench

MULTICAST = RoutingType.MULTICAST


def test_a_plain_address_is_not_handled(bench: Bench) -> None:
    bench.sent("a", b"1")
    assert bench.engine.addresses["a"].extras is None


def test_what_no_queue_takes_goes_to_the_dead_letter_address() -> None:
    bench = Bench({"match": "t", "send-to-dla-on-no-route": True})
    (message,) = bench.sent("t", b"1", routing_type=MULTICAST)
    ((copy, _),) = bench.engine.messages.browse(bench.queue("DLQ"))
    assert copy.body == b"1"
    notes = copy.header.annotations or {}
    assert notes["_AMQ_ORIG_ADDRESS"] == "t"
    assert notes["_AMQ_ORIG_MESSAGE_ID"] == message.id
    assert notes["_AMQ_DL_REASON"] == "no-route"
    assert "_AMQ_ORIG_QUEUE" not in notes
    assert bench.engine.addresses["t"].unrouted == 0
    assert [told["address"] for told in bench.broker.reported("message.no_route")] == ["t"]


def test_no_route_keeps_only_what_none_took() -> None:
    bench = Bench({"match": "t", "send-to-dla-on-no-route": True})
    bench.take("t", MULTICAST, selector="k = 'v'")
    bench.sent("t", b"1", head=b"k:v\n", routing_type=MULTICAST)
    bench.sent("t", b"2", routing_type=MULTICAST)
    assert bench.bodies("DLQ") == [b"2"]


def test_no_route_makes_its_queue_if_told_to() -> None:
    bench = Bench({"match": "t", "send-to-dla-on-no-route": True, "auto-create-dead-letter-resources": True})
    bench.sent("t", b"1", routing_type=MULTICAST)
    assert bench.bodies("DLQ.t") == [b"1"]


@pytest.mark.parametrize("address", [None, "t"])
def test_no_route_without_a_dead_letter_address_is_unroutable(address: str | None) -> None:
    bench = Bench({"match": "t", "send-to-dla-on-no-route": True, "dead-letter-address": address or ""})
    bench.sent("t", b"1", routing_type=MULTICAST)
    assert bench.bodies("DLQ") == []
    assert bench.engine.addresses["t"].unrouted == 1


def test_no_route_survives_a_crash() -> None:
    bench = Bench({"match": "t", "send-to-dla-on-no-route": True})
    bench.sent("t", b"1", routing_type=MULTICAST)
    assert bench.restart().bodies("DLQ") == [b"1"]


def test_the_time_of_arrival_is_noted() -> None:
    bench = Bench({"match": "a", "enable-ingress-timestamp": True})
    bench.sent("a", b"1", b"2")
    bench.sent("b", b"3")
    noted = [
        (m.header.annotations or {}).get(INGRESS_TIMESTAMP) for m, _ in bench.engine.messages.browse(bench.queue("a"))
    ]
    assert noted == [bench.broker.now] * 2
    assert [m.header.annotations for m, _ in bench.engine.messages.browse(bench.queue("b"))] == [None]


def test_the_time_of_arrival_survives_restart_and_death() -> None:
    bench = Bench({"match": "a", "enable-ingress-timestamp": True, "max-delivery-attempts": 1})
    bench.sent("a", b"1")
    then = bench.broker.now
    bench = bench.restart()
    bench.broker.advance(1_000)
    taker = bench.take("a")
    bench.nack(taker, *taker.taken)
    ((copy, _),) = bench.engine.messages.browse(bench.queue("DLQ"))
    assert (copy.header.annotations or {})[INGRESS_TIMESTAMP] == then


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


def test_a_change_of_settings_takes_effect_at_once() -> None:
    from broker.daemon.wiring import settings_table
    from tests.simulation.world import small

    bench = Bench()
    bench.sent("a", b"1")
    registry.change_settings(
        bench.enter()._state, settings_table(small({"match": "a", "enable-ingress-timestamp": True}))
    )
    bench.sent("a", b"2")
    noted = [m.header.annotations for m, _ in bench.engine.messages.browse(bench.queue("a"))]
    assert noted == [None, {INGRESS_TIMESTAMP: bench.broker.now}]
