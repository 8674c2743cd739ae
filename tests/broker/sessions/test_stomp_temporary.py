"""Destinations of a connection's own: requests and replies."""

from __future__ import annotations

import pytest

from broker.sessions.stomp_temporary import TEMPORARY_MAX
from tests.broker.sessions.test_stomp_consume import error, started
from tests.simulation.world import small
from tests.support.sim_broker import SimBroker, SimClient


def replier(broker: SimBroker) -> SimClient:
    """Somebody who answers what is sent to the queue `service`."""
    client = broker.connect()
    client.subscribe("/queue/service", ack="auto")
    return client


def answer(client: SimClient) -> list[str]:
    """Answer everything that came; where to."""
    requests = client.messages()
    for request in requests:
        client.send(request.headers["reply-to"], b"re: " + request.body)
    return [request.headers["reply-to"] for request in requests]


@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_request_and_its_reply_with_a_subscription(kind: str, version: str) -> None:
    """ActiveMQ Classic's way."""
    broker = SimBroker(small())
    service, client, other = replier(broker), broker.connect(version), broker.connect(version)
    for each in (client, other):
        each.subscribe(f"/temp-{kind}/mine", ack="auto")
    client.send("/queue/service", b"1", **{"reply-to": f"/temp-{kind}/mine", "colour": "red"})
    other.send("/queue/service", b"2", **{"reply-to": f"/temp-{kind}/mine"})
    first, second = answer(service)
    assert first != second, "the same name, another connection"
    assert first.startswith(f"/{kind}/")
    (reply,) = client.messages()
    assert (reply.body, reply.headers["subscription"]) == (b"re: 1", "s")
    assert other.bodies() == [b"re: 2"]


def test_a_request_and_its_reply_without_a_subscription() -> None:
    """RabbitMQ's way."""
    broker, client = started()
    service = replier(broker)
    for body in (b"1", b"2"):
        client.send("/queue/service", body, **{"reply-to": "/temp-queue/mine"})
    assert len(set(answer(service))) == 1
    replies = client.messages()
    assert [reply.body for reply in replies] == [b"re: 1", b"re: 2"]
    assert {reply.headers["subscription"] for reply in replies} == {"/temp-queue/mine"}


def test_who_subscribes_after_all_gets_the_replies_there() -> None:
    broker, client = started()
    service = replier(broker)
    client.send("/queue/service", b"1", **{"reply-to": "/temp-queue/mine"})
    client.subscribe("/temp-queue/mine", id="mine")
    answer(service)
    (reply,) = client.messages()
    assert reply.headers["subscription"] == "mine"
    client.ack(reply)
    client.do("UNSUBSCRIBE", {"id": "mine"})
    client.send("/queue/service", b"2", **{"reply-to": "/temp-queue/mine"})
    answer(service)
    (reply,) = client.messages()
    assert reply.headers["subscription"] == "/temp-queue/mine"


def test_a_connection_may_send_to_its_own() -> None:
    _, client = started()
    client.send("/temp-queue/mine", b"1", receipt="r")
    client.subscribe("/temp-queue/mine", ack="auto")
    client.send("/temp-queue/mine", b"2")
    assert client.bodies() == [b"1", b"2"]


@pytest.mark.parametrize("end", ["DISCONNECT", "drop", "error"])
def test_they_go_with_the_connection(end: str) -> None:
    broker, client = started()
    before = set(broker.engine.router.addresses)
    client.send("/temp-queue/a", b"1", receipt="r")
    client.subscribe("/temp-topic/b")
    assert len(set(broker.engine.router.addresses) - before) == 2
    if end == "DISCONNECT":
        client.do("DISCONNECT", {"receipt": "bye"})
        assert client.take("RECEIPT")
    elif end == "drop":
        client.drop()
    else:
        client.raw(b"NONSENSE\n\n\0")
    assert set(broker.engine.router.addresses) == before


def test_a_reply_to_in_a_transaction_and_with_rare_headers() -> None:
    broker, client = started()
    service = replier(broker)
    client.do("BEGIN", {"transaction": "t"})
    client.send("/queue/service", b"1", transaction="t", **{"reply-to": "/temp-queue/mine"})
    client.send("/queue/service", b"2", AMQ_SCHEDULED_DELAY="5", **{"reply-to": "/temp-queue/mine"})
    client.do("COMMIT", {"transaction": "t"})
    broker.advance(10)
    assert len(set(answer(service))) == 1
    assert client.bodies() == [b"re: 1", b"re: 2"]


def test_any_other_reply_to_stays_as_it_is() -> None:
    broker, client = started()
    service = replier(broker)
    for reply_to in ("/queue/known", "/temp-thing/x", "a:b"):
        client.send("/queue/service", b"", **{"reply-to": reply_to})
    assert [request.headers["reply-to"] for request in service.messages()] == ["/queue/known", "/temp-thing/x", "a:b"]


@pytest.mark.parametrize(("more", "fails"), [(0, False), (1, True)])
def test_there_is_a_limit(more: int, fails: bool) -> None:
    _, client = started()
    for n in range(TEMPORARY_MAX + more):
        client.send(f"/temp-queue/{n}", b"x")
    if fails:
        assert error(client) == "too many temporary destinations"
    else:
        assert not client.closed


def test_they_need_permission() -> None:
    broker = SimBroker(small(), users={"joe": "secret"})
    client = broker.connect(login="joe", passcode="secret")
    client.subscribe("/temp-queue/mine", ack="auto")
    client.send("/temp-queue/mine", b"1")
    assert client.bodies() == [b"1"]
