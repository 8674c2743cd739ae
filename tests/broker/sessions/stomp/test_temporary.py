"""Destinations of a connection's own: requests and replies."""

from __future__ import annotations

import pytest

from broker.engine.model.permissions import Permission
from broker.sessions.stomp.temporary import TEMPORARY_MAX
from tests.broker.security.verbs import NAME, PASSWORD, permissions, restrict, stomp
from tests.broker.sessions.stomp.harness import error
from tests.simulation.world import held, small
from tests.support.sim_broker import SimBroker, SimClient


def replier(broker: SimBroker) -> SimClient:
    """Somebody who answers what is sent to the queue `service`."""
    client = broker.subscriber("/queue/service", ack="auto")
    return client


def answer(client: SimClient) -> list[str]:
    """Answer everything that came; where to."""
    requests = client.messages()
    for request in requests:
        client.send(request.headers["reply-to"], b"re: " + request.body)
    return [request.headers["reply-to"] for request in requests]


@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_request_and_its_reply_with_a_subscription(broker: SimBroker, kind: str, version: str) -> None:
    """ActiveMQ Classic's way."""
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


def test_a_request_and_its_reply_without_a_subscription(broker: SimBroker, client: SimClient) -> None:
    """RabbitMQ's way."""
    service = replier(broker)
    for body in (b"1", b"2"):
        client.send("/queue/service", body, **{"reply-to": "/temp-queue/mine"})
    assert len(set(answer(service))) == 1
    replies = client.messages()
    assert [reply.body for reply in replies] == [b"re: 1", b"re: 2"]
    assert {reply.headers["subscription"] for reply in replies} == {"/temp-queue/mine"}


def test_a_client_that_subscribes_after_all_gets_the_replies_there(broker: SimBroker, client: SimClient) -> None:
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


def test_a_connection_may_send_to_its_own(client: SimClient) -> None:
    client.send("/temp-queue/mine", b"1", receipt="r")
    client.subscribe("/temp-queue/mine", ack="auto")
    client.send("/temp-queue/mine", b"2")
    assert client.bodies() == [b"1", b"2"]


@pytest.mark.parametrize("end", ["DISCONNECT", "drop", "error"])
def test_they_go_with_the_connection(broker: SimBroker, client: SimClient, end: str) -> None:
    before = set(broker.engine.addresses)
    client.send("/temp-queue/a", b"1", receipt="r")
    client.subscribe("/temp-topic/b")
    assert len(set(broker.engine.addresses) - before) == 2
    if end == "DISCONNECT":
        client.do("DISCONNECT", {"receipt": "bye"})
        assert client.take("RECEIPT")
    elif end == "drop":
        client.drop()
    else:
        client.raw(b"NONSENSE\n\n\0")
    assert set(broker.engine.addresses) == before


def test_a_reply_to_in_a_transaction_and_with_rare_headers(broker: SimBroker, client: SimClient) -> None:
    service = replier(broker)
    client.do("BEGIN", {"transaction": "t"})
    client.send("/queue/service", b"1", transaction="t", **{"reply-to": "/temp-queue/mine"})
    client.send("/queue/service", b"2", AMQ_SCHEDULED_DELAY="5", **{"reply-to": "/temp-queue/mine"})
    client.do("COMMIT", {"transaction": "t"})
    broker.advance(10)
    assert len(set(answer(service))) == 1
    assert client.bodies() == [b"re: 1", b"re: 2"]


def test_any_other_reply_to_stays_as_it_is(broker: SimBroker, client: SimClient) -> None:
    service = replier(broker)
    for reply_to in ("/queue/known", "/temp-thing/x", "a:b"):
        client.send("/queue/service", b"", **{"reply-to": reply_to})
    assert [request.headers["reply-to"] for request in service.messages()] == ["/queue/known", "/temp-thing/x", "a:b"]


@pytest.mark.parametrize(("more", "fails"), [(0, False), (1, True)])
def test_there_is_a_limit(client: SimClient, more: int, fails: bool) -> None:
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


def asked(broker: SimBroker, service: SimClient, kind: str = "queue") -> tuple[SimClient, str]:
    """Somebody who has asked the service for something, and where he wants the answer."""
    client = broker.connect()
    client.send("/queue/service", b"1", **{"reply-to": f"/temp-{kind}/mine"})
    (request,) = service.messages()
    return client, request.headers["reply-to"]


def nothing_is_kept(broker: SimBroker) -> bool:
    """Whether all that there was for replies goes by itself."""
    broker.advance(120_000)
    state = broker.engine._state
    return not [name for name in [*state.queues, *state.addresses] if name.startswith("temporary-")]


@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize("size", [1, 200_000])
def test_a_late_reply_is_unroutable(broker: SimBroker, kind: str, size: int) -> None:
    service = replier(broker)
    client, where = asked(broker, service, kind)
    client.drop()
    for n in range(2):
        service.send(where, bytes(size), persistent="true", receipt=str(n))
    assert [receipt.headers["receipt-id"] for receipt in service.take("RECEIPT")] == ["0", "1"]
    assert not service.closed
    assert broker.engine._state.totals.unrouted == 2
    assert where.removeprefix(f"/{kind}/") not in broker.engine.addresses
    assert nothing_is_kept(broker)


@pytest.mark.parametrize("crash", [True, False])
def test_nobody_is_waited_for_after_a_restart(broker: SimBroker, crash: bool) -> None:
    _, where = asked(broker, replier(broker))
    broker = broker.restart(crash=crash)
    broker.connect().confirmed(where, b"late")
    assert where.removeprefix("/queue/") not in broker.engine.queues
    assert nothing_is_kept(broker)


def test_a_late_reply_in_a_transaction_does_not_keep_back_the_rest(broker: SimBroker) -> None:
    service = replier(broker)
    client, where = asked(broker, service)
    service.do("BEGIN", {"transaction": "t"})
    for destination in (where, "/queue/done"):
        service.send(destination, b"x", transaction="t", persistent="true")
    client.drop()
    service.do("COMMIT", {"transaction": "t", "receipt": "r"})
    assert service.take("RECEIPT")
    assert held(broker, "done") == [b"x"]
    assert nothing_is_kept(broker)


def test_a_client_that_may_not_make_addresses_may_reply_all_the_same() -> None:
    """An ERROR would end the service's connection, and bring the request again."""
    broker = SimBroker(permissions(), users={NAME: PASSWORD})
    service, client = stomp(broker), stomp(broker)
    service.subscribe("/queue/service", ack="auto")
    client.send("/queue/service", b"1", **{"reply-to": "/temp-queue/mine"})
    client.drop()
    restrict(broker, permissions(Permission.CREATE_ADDRESS, Permission.CREATE_DURABLE_QUEUE))
    answer(service)
    service.send("/queue/service", b"", receipt="r")
    assert service.take("RECEIPT")
    assert not service.closed


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_nobody_subscribes_to_what_is_gone(broker: SimBroker, kind: str) -> None:
    service = replier(broker)
    client, where = asked(broker, service, kind)
    client.drop()
    service.subscribe(where, id="late")
    assert b"is gone" in service.take("ERROR")[0].body


def test_a_destination_whose_owner_is_there_stays(broker: SimBroker, client: SimClient) -> None:
    """Also while nobody subscribes."""
    client.subscribe("/temp-topic/mine", id="mine")
    client.do("UNSUBSCRIBE", {"id": "mine"})
    made = set(broker.engine.addresses)
    broker.advance(120_000)
    assert set(broker.engine.addresses) == made
