"""The selectors of a connection, together."""

from __future__ import annotations

import pytest

from broker.engine.delivery import redelivery
from broker.engine.filter.limits import NODES_MAX as ONE_MAX
from broker.engine.model.errors import TooManySelectors
from broker.engine.model.limits import Limits
from broker.engine.model.message import RoutingType
from protocols.amqp.types import Described, Symbol
from tests.broker.engine.engine_harness import Bench, Taker
from tests.simulation.world import small
from tests.support.amqp_client import AmqpSim
from tests.support.sim_broker import SimBroker


class Connected(Taker):
    """A sink of one of two connections."""

    def __init__(self, transport: object) -> None:
        super().__init__()
        self.transport = transport


def wide(n: int) -> str:
    """A selector of the largest size but for some nodes, different for each `n`."""
    return " OR ".join([f"p{n} = 1", *["a = 1"] * (ONE_MAX // 3 - 1)])


WIDE_NODES = ONE_MAX // 3 * 3 + 1
TERMS_MAX = Limits().selector_terms_max
FIT = TERMS_MAX // WIDE_NODES


@pytest.mark.parametrize("destination", ["q", "t"])
def test_those_of_a_connection_are_bounded_together(bench: Bench, destination: str) -> None:
    routing_type = RoutingType.ANYCAST if destination == "q" else RoutingType.MULTICAST
    takers = [bench.attach(Connected("one"), destination, routing_type, selector=wide(n)) for n in range(FIT)]
    with pytest.raises(TooManySelectors, match=f"of at most {TERMS_MAX}"):
        bench.attach(Connected("one"), destination, routing_type, selector=wide(FIT))
    same = bench.attach(Connected("one"), destination, routing_type, selector=wide(0))
    other = bench.attach(Connected("other"), destination, routing_type, selector=wide(FIT))
    bench.close(takers[0], redelivery.CLOSED)
    with pytest.raises(TooManySelectors):
        bench.attach(Connected("one"), destination, routing_type, selector=wide(FIT))
    bench.close(same, redelivery.CLOSED)
    last = bench.attach(Connected("one"), destination, routing_type, selector=wide(FIT))
    bench.close(last, redelivery.CLOSED)
    for taker in takers[1:]:
        if destination == "t":
            bench.enter().delete_queue(taker.consumer.queue)
        else:
            bench.close(taker, redelivery.CLOSED)
    bench.close(other, redelivery.CLOSED)
    assert not len(bench.engine._state.selectors)


def test_the_setting_is_the_most_that_a_connection_may_have() -> None:
    limits = small().limits.model_copy(update={"selector_terms_per_connection_max": 6})
    client = SimBroker(small(limits=limits)).connect()
    client.subscribe("/topic/a", id="1", selector="a = 1")
    client.subscribe("/topic/a", id="2", selector="b = 1")
    assert not client.take("ERROR"), "as much as is allowed"
    client.subscribe("/topic/a", id="3", selector="b = 1")
    assert not client.take("ERROR"), "the same selector counts once"
    client.subscribe("/topic/a", id="4", selector="c = 1")
    (error,) = client.take("ERROR")
    assert "limits.selector-terms-per-connection-max" in str(error)


def test_stomp_clients_are_told() -> None:
    broker = SimBroker(small())
    broker.engine._state.selectors.most = 5
    client = broker.connect()
    client.subscribe("/topic/a", id="1", selector="a = 1")
    client.subscribe("/topic/a", id="2", selector="b = 1")
    (error,) = client.take("ERROR")
    assert "operators, names and constants, of at most 5" in str(error)
    assert not len(broker.engine._state.selectors)


def test_amqp_clients_are_told() -> None:
    broker = SimBroker(small())
    broker.engine._state.selectors.most = 5
    client = AmqpSim(broker)
    links = []
    for name in ("a", "b"):
        wanted = {Symbol("s"): Described(Symbol("apache.org:selector-filter:string"), f"{name} = 1")}
        links.append(client.receiver("t", "topic", name=name, filter=wanted))
    assert client.refused(links[1]).condition == "amqp:resource-limit-exceeded"
    assert len(broker.engine._state.selectors) == 1
