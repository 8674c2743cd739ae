"""A full disk in the middle of a read: nothing is accepted behind a refused SEND, which ends the connection."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import count

import pytest

from broker.engine.publish import producers
from broker.engine.publish.send import Send
from tests.simulation.world import held, small
from tests.support.interpreted import interpreted
from tests.support.sim_broker import SimBroker, SimClient
from tests.support.sim_files import SimFiles
from tests.support.stomp_client import ServerFrame, frame

#: A read of so many messages.
MESSAGES = 12

BALLAST = b"x" * 1000


def begun() -> SimBroker:
    """A broker with a small disk, and messages on the queue `in`."""
    broker = SimBroker(small(retained=False), files=SimFiles(capacity=100 << 10))
    client = broker.connect()
    for _ in range(MESSAGES):
        client.send("/queue/in", b"order", persistent="true")
    return broker


@cache
def ballast() -> int:
    """How many messages fit beside those."""
    client = begun().connect()
    for number in count():
        client.send("/queue/ballast", BALLAST, persistent="true")
        if client.closed:
            return number
    raise AssertionError


def nearly_full(more: int) -> SimBroker:
    """A broker whose disk has room for two more ballast messages, less so many small ones."""
    broker = begun()
    client = broker.connect()
    for _ in range(ballast() - 2):
        client.send("/queue/ballast", BALLAST, persistent="true")
    for _ in range(more):
        client.send("/queue/ballast", b"x", persistent="true")
    assert not client.closed
    return broker


def sends(*destinations: str) -> list[bytes]:
    """Durable messages, numbered, to these destinations in turn."""
    found = []
    for number in range(MESSAGES):
        headers = {"destination": destinations[number % len(destinations)], "persistent": "true"}
        found.append(frame("SEND", headers, b"%d" % number))
    return found


def answered(orders: list[ServerFrame], *destinations: str) -> list[bytes]:
    """Each order answered, to these destinations in turn, and acknowledged behind that."""
    read = []
    for answer, order in zip(sends(*destinations), orders, strict=True):
        read += [answer, frame("ACK", {"id": order.headers["ack"]})]
    return read


def accepted(broker: SimBroker, *queues: str) -> list[int]:
    """The numbers of the messages on these queues."""
    return sorted([int(body) for queue in queues for body in held(broker, queue)])


@pytest.mark.parametrize("more", range(12))
@pytest.mark.parametrize("destinations", [("/queue/a",), ("/queue/a", "/queue/b")])
def test_the_accepted_part_of_a_read_is_its_beginning(destinations: tuple[str, ...], more: int) -> None:
    broker = nearly_full(more)
    client = broker.connect()
    client.raw(b"".join(sends(*destinations)))
    numbers = accepted(broker, "a", "b")
    assert numbers == list(range(len(numbers)))
    assert client.closed == (len(numbers) < MESSAGES)


@pytest.mark.parametrize("more", range(0, 12, 3))
@pytest.mark.parametrize("batched", [True, False])
def test_acknowledgements_behind_a_refused_send_come_again(batched: bool, more: int) -> None:
    """A client that answers each order before it acknowledges it loses none of them."""
    broker = nearly_full(more)
    client = broker.connect()
    client.subscribe("/queue/in", ack="client-individual")
    read = answered(client.take("MESSAGE"), "/queue/out")
    if batched:
        client.raw(b"".join(read))
    else:
        for each in read:
            if not client.closed:
                client.raw(each)
    done = accepted(broker, "out")
    assert done == list(range(len(done)))
    assert len(held(broker, "in")) == MESSAGES - len(done)


def a_new_queue(client: SimClient, number: int) -> None:
    client.send(f"/queue/new-{number}", b"x" * 1000, persistent="true")


def a_new_subscription(client: SimClient, number: int) -> None:
    client.subscribe(f"/topic/new-{number}", durable="true", **{"durable-subscription-name": f"new-{number}"})


def a_temporary_queue(client: SimClient, number: int) -> None:
    client.send("/queue/none", b"x" * 1000, persistent="true", **{"reply-to": f"/temp-queue/new-{number}"})


@pytest.mark.parametrize("attempt", [a_new_queue, a_new_subscription, a_temporary_queue])
def test_whoever_tries_again_and_again_leaves_consumers_their_part(attempt: Callable[[SimClient, int], None]) -> None:
    """What is made for a request needs room itself, however often it is refused."""
    broker = nearly_full(0)
    client = broker.connect()
    client.subscribe("/queue/in", ack="client-individual")
    for number in range(30):
        attempt(broker.connect(**{"client-id": f"client {number}"}), number)
    for order in client.take("MESSAGE")[:5]:
        client.ack(order, receipt="r")
        assert client.take("RECEIPT")
    assert broker.confirms


def test_a_send_that_its_address_refuses_keeps_what_is_acknowledged_behind_it() -> None:
    settings = {"match": "out", "max-size-messages": 4, "address-full-policy": "FAIL"}
    broker = SimBroker(small(settings))
    client = broker.connect()
    for _ in range(MESSAGES):
        client.send("/queue/in", b"order", persistent="true")
    client.subscribe("/queue/in", ack="client-individual")
    client.raw(b"".join(answered(client.take("MESSAGE"), "/queue/out")))
    assert client.closed
    assert accepted(broker, "out") == [0, 1, 2, 3]
    assert len(held(broker, "in")) == MESSAGES - 4


def test_acknowledgements_between_sends_that_cannot_be_refused_do_not_part_them() -> None:
    broker = SimBroker()
    client = broker.connect()
    for _ in range(MESSAGES):
        client.send("/queue/in", b"order", persistent="true")
    client.subscribe("/queue/in", ack="client-individual")
    read = answered(client.take("MESSAGE"), "/queue/out")
    before = broker.engine.journal.position
    client.raw(b"".join(read))
    assert accepted(broker, "out") == list(range(MESSAGES))
    assert held(broker, "in") == []
    assert broker.engine.journal.position - before <= MESSAGES + 6, "one record of removals, and definitions"


@interpreted
def test_sends_between_many_acknowledgements_are_examined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One read with sends to many queues: not each acknowledgement between them examines all of these."""
    examined: list[Send] = []
    monkeypatch.setattr(producers, "_may_refuse", lambda state, send: examined.append(send))
    broker = SimBroker()
    client = broker.connect()
    for _ in range(MESSAGES):
        client.send("/queue/in", b"order", persistent="true")
    client.subscribe("/queue/in", ack="client-individual")
    queues = [f"out-{number}" for number in range(MESSAGES)]
    client.raw(b"".join(answered(client.take("MESSAGE"), *[f"/queue/{queue}" for queue in queues])))
    assert len(examined) == MESSAGES
    assert accepted(broker, *queues) == list(range(MESSAGES))
    assert held(broker, "in") == []
