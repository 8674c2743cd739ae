"""Routes over AMQP between two simulated Bartlebys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from broker.engine.model.message import Message
from broker.sessions.links.model import State
from tests.simulation.world import held
from tests.support.amqp_client import AmqpSim, message
from tests.support.bodies import body_of
from tests.support.sim_broker import SimBroker, configured
from tests.support.sim_links import SimLinks, linked

SEND = {"send": {"orders": {"queue": "orders.out", "address": "orders"}}}


def pair(
    routes: Mapping[str, Any] = SEND, *settings: dict[str, object], there: tuple[dict[str, object], ...] = ()
) -> tuple[SimBroker, SimBroker, SimLinks]:
    """Two brokers; the first has a link to the second."""
    a = SimBroker(linked(*settings, **routes))
    b = SimBroker(configured(*there))
    links = SimLinks(a, {"b": b})
    links.run()
    return a, b, links


def send(broker: SimBroker, address: str, *bodies: str, **more: Any) -> None:
    client = AmqpSim(broker)
    client.send(client.sender(address, "queue"), *[message(body, durable=True, **more) for body in bodies])


def bodies(broker: SimBroker, queue: str) -> list[str]:
    """What lies on a queue."""
    if queue not in broker.engine.queues:
        return []
    return sorted(content(each).decode() for each, _ in broker.engine.messages.browse(broker.engine.queue(queue)))


def content(each: Message) -> bytes:
    """A message's content."""
    return each.header.format.content(body_of(each))


def test_what_is_on_the_queue_goes_to_the_address_there() -> None:
    a, b, links = pair()
    assert links.link().shown is State.RUNNING
    assert links.route("orders").state is State.RUNNING
    send(a, "orders.out", "1", "2", "3")
    links.run()
    assert bodies(b, "orders") == ["1", "2", "3"]
    assert held(a, "orders.out") == []
    assert links.route("orders").passed == 3
    assert links.route("orders").unsettled == 0


def test_what_waited_goes_when_the_link_is_up() -> None:
    a, b, links = pair({"enabled": False, **SEND})
    send(a, "orders.out", "1")
    links.run()
    assert links.link().state is State.STOPPED
    assert bodies(b, "orders") == []
    links.do(links.links.start, "b")
    links.run()
    assert bodies(b, "orders") == ["1"]


def test_a_queue_there_fills_an_address_here() -> None:
    a, b, links = pair({"receive": {"invoices": {"queue": "invoices", "address": "invoices.in"}}})
    send(b, "invoices", "1", "2")
    links.run()
    assert bodies(a, "invoices.in") == ["1", "2"]
    assert held(b, "invoices") == []
    assert links.route("invoices").passed == 2


def test_a_remote_queue_stands_for_one_there() -> None:
    a, b, links = pair({"remote-queues": {"b.orders": {"queue": "orders"}}})
    links.down.add("b")
    links.cut()
    send(a, "b.orders", "1", "2")
    assert bodies(a, "link.b") == ["1", "2"], "they wait on the transmission queue"
    links.down.clear()
    links.advance(5_000)
    assert bodies(b, "orders") == ["1", "2"]


def test_remote_queues_may_share_a_transmission_queue() -> None:
    remote = {name: {"queue": f"{name}.there", "transmission-queue": "outbox"} for name in ("x", "y")}
    a, b, links = pair({"remote-queues": remote})
    send(a, "x", "1", "2")
    send(a, "y", "3")
    links.run()
    assert bodies(b, "x.there") == ["1", "2"]
    assert bodies(b, "y.there") == ["3"]
    assert held(a, "outbox") == []


def test_a_lost_connection_is_nobody_s_fault() -> None:
    a, b, links = pair()
    for _ in range(15):
        links.wires["b"].holding = True
        send(a, "orders.out", "1") if not held(a, "orders.out") and not held(b, "orders") else None
        links.cut()
        links.down.add("b")
        links.advance(1_000)
        links.down.clear()
        links.advance(40_000)
    assert bodies(b, "orders") == ["1"]
    assert held(a, "DLQ") == []


def test_what_is_refused_is_a_dead_letter_with_the_other_end_s_words() -> None:
    full = {"match": "orders", "max-size-bytes": 1, "address-full-policy": "FAIL"}
    a, _b, links = pair(SEND, there=(full,))
    send(a, "orders.out", "1", "2")
    links.run()
    [letter] = [each for each, _ in a.engine.messages.browse(a.engine.queue("DLQ"))]
    assert content(letter) == b"2"
    text = str((letter.header.annotations or {})["_AMQ_DL_TEXT"])
    assert "amqp:resource-limit-exceeded" in text
    assert "link b at amqp://b:5672" in text
    assert "orders" in text
    assert links.route("orders").refused == 1
    assert links.route("orders").state is State.RUNNING


def test_without_dead_letters_the_route_waits_and_goes_on() -> None:
    full = {"match": "orders", "max-size-bytes": 1, "address-full-policy": "FAIL"}
    sends = {
        "orders": {"queue": "orders.out", "address": "orders", "use-dead-letter": False},
        "other": {"queue": "q", "address": "q"},
    }
    a, b, links = pair({"send": sends}, there=(full,))
    send(a, "orders.out", "1", "2", "3")
    links.run()
    route = links.route("orders")
    assert links.route("orders").state is State.RETRYING
    assert "resource-limit-exceeded" in route.error
    send(a, "q", "other")
    links.run()
    assert bodies(b, "q") == ["other"], "the other routes go on"
    links.advance(30_000)
    assert bodies(a, "orders.out") == ["2", "3"]
    client = AmqpSim(b)
    client.receiver("orders", "queue")
    for _ in range(40):
        client.settle(*client.take())
        links.advance(1_000)
    assert held(a, "orders.out") == []
    assert held(a, "DLQ") == []
    assert route.state is State.RUNNING


def test_an_address_that_is_not_there_costs_attempts() -> None:
    nowhere = {"match": "orders", "auto-create-addresses": False, "auto-create-queues": False}
    a, _b, links = pair(SEND, there=(nowhere,))
    assert links.route("orders").state is State.RETRYING
    assert "amqp:not-found" in links.route("orders").error
    send(a, "orders.out", "1")
    links.advance(5_000)
    assert bodies(a, "orders.out") == ["1"]
    links.advance(10_000)
    assert held(a, "orders.out") == []
    [letter] = [each for each, _ in a.engine.messages.browse(a.engine.queue("DLQ"))]
    assert "amqp:not-found" in str((letter.header.annotations or {})["_AMQ_DL_TEXT"])


@pytest.mark.parametrize("durable", [True, False])
def test_without_a_dead_letter_address_durable_messages_wait(durable: bool) -> None:
    full = {"match": "orders", "max-size-bytes": 1, "address-full-policy": "FAIL"}
    a, _b, links = pair(SEND, {"match": "orders.out", "dead-letter-address": ""}, there=(full,))
    client = AmqpSim(a)
    client.send(client.sender("orders.out", "queue"), *[message(body, durable=durable) for body in "12"])
    links.run()
    assert bodies(a, "orders.out") == (["2"] if durable else [])
    assert (links.route("orders").state is State.RETRYING) is durable


def test_fast_messages_leave_at_once() -> None:
    sends = {"orders": {"queue": "orders.out", "address": "orders", "non-durable": "fast"}}
    a, b, links = pair({"send": sends})
    links.wires["b"].holding = True
    client = AmqpSim(a)
    client.send(
        client.sender("orders.out", "queue"), message("1", durable=False), message("2"), message("3", durable=False)
    )
    assert bodies(a, "orders.out") == ["2"], "the durable one waits for its answer"
    links.wires["b"].holding = False
    links.run()
    assert bodies(b, "orders") == ["1", "2", "3"]
    assert held(a, "orders.out") == []


def test_pause_stop_and_start() -> None:
    a, b, links = pair()
    links.do(links.links.pause, "b")
    assert links.link().shown is State.PAUSED
    assert links.route("orders").state is State.PAUSED
    send(a, "orders.out", "1")
    links.run()
    assert bodies(a, "orders.out") == ["1"]
    links.do(links.links.start, "b")
    assert bodies(b, "orders") == ["1"]
    links.do(links.links.stop, "b")
    assert links.link().shown is State.STOPPED
    send(a, "orders.out", "2")
    links.advance(60_000)
    assert bodies(a, "orders.out") == ["2"]
    links.do(links.links.start, "b")
    assert bodies(b, "orders") == ["1", "2"]


def test_a_paused_link_stays_paused_when_it_is_connected_again() -> None:
    a, b, links = pair()
    links.do(links.links.pause, "b")
    links.cut()
    links.advance(5_000)
    assert links.link().shown is State.PAUSED
    send(a, "orders.out", "1")
    links.advance(5_000)
    assert bodies(a, "orders.out") == ["1"]
    links.do(links.links.start, "b")
    assert bodies(b, "orders") == ["1"]


def test_back_off_doubles_up_to_its_limit() -> None:
    a, _b, links = pair({"retry-interval": "1s", "retry-interval-max": "8s", **SEND})
    links.down.add("b")
    links.cut()
    waits = []
    for _ in range(5):
        waits.append(links.link().retry_at - a.now)
        attempts = links.link().attempts
        while links.link().attempts == attempts:
            links.advance(250)
    assert [-(-wait // 1_000) for wait in waits] == [1, 2, 4, 8, 8]
    assert links.link().state is State.RETRYING
    assert "connection refused" in links.link().error
    links.down.clear()
    links.advance(9_000)
    assert links.link().shown is State.RUNNING


def test_messages_are_fetched_for_consumers_that_wait() -> None:
    route = {"queue": "orders", "address": "orders", "only-with-consumers": True, "priority": -1}
    a, b, links = pair({"receive": {"orders": route}})
    send(b, "orders", *map(str, range(10)))
    links.advance(1_000)
    assert len(held(b, "orders")) == 10
    client = AmqpSim(a)
    client.receiver("orders", "queue", credit=3)
    links.advance(1_000)
    assert len(client.take()) == 3
    assert len(held(b, "orders")) == 7, "no more than it asked for"
    other = AmqpSim(b)
    other.receiver("orders", "queue", credit=100)
    assert len(other.take()) == 7, "consumers there come first"
