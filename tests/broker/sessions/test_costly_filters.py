"""A run of messages whose filters are costly is published in several ticks, in every protocol."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.engine.model.message import RoutingType
from broker.engine.queues import arrival
from broker.engine.queues.steps import BUDGET
from protocols.amqp.performatives import Properties
from tests.simulation.world import small
from tests.support.amqp_client import AmqpSim, message
from tests.support.interpreted import interpreted
from tests.support.sim_broker import SimBroker
from tests.support.stomp_client import frame

FILTERS = 10
MESSAGES = 200
WIDE = " OR ".join([f"p{n} < q{n}" for n in range(150)])


def by_stomp(broker: SimBroker) -> None:
    client = broker.connect()
    client.raw(b"".join([frame("SEND", {"destination": "/topic/t"}, b"%d" % n) for n in range(MESSAGES)]))


def by_amqp(broker: SimBroker) -> None:
    client = AmqpSim(broker)
    client.send(client.sender("t", "topic"), *[message(f"{n}") for n in range(MESSAGES)])


def by_relay(broker: SimBroker) -> None:
    client = AmqpSim(broker)
    client.send(client.sender(None), *[message(f"{n}", properties=Properties(to="topic://t")) for n in range(MESSAGES)])


@interpreted
@pytest.mark.parametrize("send", [by_stomp, by_amqp, by_relay])
def test_each_tick_gets_what_its_budget_allows(
    send: Callable[[SimBroker], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = SimBroker(small())
    with broker.turn():
        engine = broker.engine
        address = engine.configuration.declare("t", {RoutingType.MULTICAST})
        for n in range(FILTERS):
            selector = f"{WIDE} OR r = {n}"
            engine.configuration.declare_queue(
                address, f"q{n}", RoutingType.MULTICAST, durable=False, selector=selector
            )
        engine.configuration.declare_queue(address, "all", RoutingType.MULTICAST, durable=False, selector="")
    cost = broker.engine.producers.match_cost("t")
    routed = 0
    in_tick: list[int] = []
    route, end = arrival.route, broker.engine.ticks.end

    def counting(*args: object) -> object:
        nonlocal routed
        routed += len(args[1])  # type: ignore[arg-type]
        return route(*args)  # type: ignore[arg-type]

    def ended() -> None:
        nonlocal routed
        end()
        in_tick.append(routed)
        routed = 0

    monkeypatch.setattr(arrival, "route", counting)
    monkeypatch.setattr(broker.engine.ticks, "end", ended)
    send(broker)
    assert sum(in_tick) == MESSAGES
    assert max(in_tick) <= BUDGET // cost + 8
    got = broker.subscriber("t::all").bodies()
    assert got == [b"%d" % n for n in range(MESSAGES)]
