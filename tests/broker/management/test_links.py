"""Links over HTTP: how they are, what their routes have to say, and who starts, stops, pauses and resolves them."""

from __future__ import annotations

from typing import Any

import pytest

from broker.engine import NewQueue
from broker.engine.delivery.subscribe import SubscribeRequest
from broker.engine.model.message import PropertyView, RoutingType, Value
from broker.engine.model.notes import NOTIFICATIONS
from broker.engine.moves.transfer import MOVED_BYTES_MAX
from broker.engine.queues.consumer import AckMode
from broker.log_events import EVENTS
from broker.sessions.links.links import Links
from broker.sessions.links.model import Kind, LinkSettings, RouteSettings
from store.record import RemovalReason
from tests.broker.management.harness import NOW, Client, Inbox, TestBroker
from tests.broker.management.linked import Session, linked


@pytest.fixture
def session(broker: TestBroker) -> Session:
    """Of the link to Paris, which has yet to connect."""
    linked(broker)
    return Session(broker)


async def test_links_are_listed_by_name(broker: TestBroker, client: Client, session: Session) -> None:
    first = await client.get("/api/v1/links?limit=1")
    assert ([each["name"] for each in first["links"]], first["total"]) == (["paris"], 2)
    rest = await client.get(f"/api/v1/links?after={first['next']}")
    assert ([each["name"] for each in rest["links"]], rest["next"]) == (["rome"], None)
    [rome] = rest["links"]
    assert (rome["state"], rome["enabled"], rome["connected"], rome["routes"]) == ("stopped", False, False, [])
    assert rome["urls"] == ["amqps://rome:5671"]


async def test_a_link_tells_of_the_other_broker(broker: TestBroker, client: Client, session: Session) -> None:
    assert (await client.get("/api/v1/links/paris"))["state"] == "starting"
    session.lose("connection refused")
    broker.now += 100
    lost = await client.get("/api/v1/links/paris")
    assert (lost["state"], lost["error"], lost["error_at"]) == ("retrying", "connection refused", NOW)
    assert (lost["attempts"], lost["since"]) == (1, NOW)
    assert NOW + 500 <= lost["retry_at"] <= NOW + 1_000
    broker.now += 1_000
    session.open()
    found = await client.get("/api/v1/links/paris")
    assert (found["state"], found["connected"], found["since"]) == ("running", True, broker.now)
    assert (found["peer"], found["remote"]) == ("Bartleby 1.0, container paris", "amqp://paris:5672")
    assert (found["attempts"], found["retry_at"], found["error"]) == (0, 0, "")


async def test_a_route_tells_what_waits_and_for_how_long(broker: TestBroker, client: Client, session: Session) -> None:
    async def routes() -> list[dict[str, object]]:
        found: list[dict[str, object]] = (await client.get("/api/v1/links/paris"))["routes"]
        return found

    async def waiting() -> tuple[object, object]:
        orders, _ = await routes()
        return orders["depth"], orders["lag"]

    orders, invoices = await routes()
    assert (orders["depth"], orders["lag"]) == (0, 0), "its queue has not been made"
    assert (orders["kind"], orders["local"], orders["remote"]) == ("send", "orders.out", "orders")
    assert (invoices["kind"], invoices["depth"], invoices["lag"]) == ("receive", None, None)
    await broker.sent("orders.out", [b"1", b"2"])
    broker.now += 5_000
    await broker.sent("orders.out", [b"3"])
    assert await waiting() == (3, 5_000)
    consumer = broker.read("orders.out")
    await broker.settled()
    assert len(consumer.unacked) == 3
    assert await waiting() == (3, 5_000), "they are under way"
    broker.tick.enter()
    for id in sorted(consumer.unacked)[:2]:
        broker.engine.consumers.acknowledge(consumer, id)
    await broker.settled()
    assert await waiting() == (1, 0)
    broker.read("orders.out", selector="country = 'FR'")
    assert await waiting() == (1, 0), "also beside a consumer with a selector"


async def test_a_route_tells_what_it_joins(broker: TestBroker, client: Client) -> None:
    topics: dict[str, Any] = {"topic": "sensors/#", "local_prefix": "garden/", "remote_prefix": "site1/"}
    linked(
        broker,
        LinkSettings(
            "garden",
            ("mqtt://garden:1883",),
            (
                RouteSettings("out", Kind.MQTT, "link.garden.out", outward=True, **topics),
                RouteSettings("in", Kind.MQTT, "link.garden.in", inward=True, **topics),
                RouteSettings("both", Kind.MQTT, "link.garden.both", inward=True, outward=True, **topics),
                RouteSettings("send", Kind.SEND, "orders.out", "orders"),
                RouteSettings("fetch", Kind.RECEIVE, "invoices.in", "invoices"),
                RouteSettings("remote", Kind.REMOTE_QUEUE, "link.garden", "orders"),
                RouteSettings("news", Kind.TOPICS, "link.garden.news"),
            ),
        ),
    )
    broker.send("link.garden.out", [b"1"])
    broker.tick.enter()
    wanted = NewQueue("link.garden.news", "news.#", RoutingType.MULTICAST, make_address=True)
    broker.engine.operators.make_queue(wanted)
    await broker.settled()
    routes = (await client.get("/api/v1/links/garden"))["routes"]
    told = [[each[name] for name in ("name", "direction", "local", "remote", "queue", "depth")] for each in routes]
    assert told == [
        ["out", "out", "garden/sensors/#", "site1/sensors/#", "link.garden.out", 1],
        ["in", "in", "garden/sensors/#", "site1/sensors/#", "", None],
        ["both", "both", "garden/sensors/#", "site1/sensors/#", "link.garden.both", 0],
        ["send", "out", "orders.out", "orders", "orders.out", 0],
        ["fetch", "in", "invoices.in", "invoices", "", None],
        ["remote", "out", "link.garden", "orders", "link.garden", 0],
        ["news", "out", "news.#", "news.#", "link.garden.news", 0],
    ]


async def test_a_link_is_paused_started_and_stopped(broker: TestBroker, client: Client, session: Session) -> None:
    async def told(verb: str) -> tuple[str, list[str]]:
        answer = await client.call("POST", f"/api/v1/links/paris:{verb}")
        assert answer.status == 200, answer.body
        return answer.json["state"], [route["state"] for route in answer.json["routes"]]

    session.open()
    assert await told("pause") == ("paused", ["paused", "paused"])
    assert await told("start") == ("running", ["running", "running"])
    assert await told("stop") == ("stopped", ["stopped", "stopped"])
    assert session.ended == ["the link is stopped by an operator"]
    assert await told("start") == ("starting", ["stopped", "stopped"])
    operated = broker.reported("link.operated")
    assert [(each["link"], each["verb"]) for each in operated] == [
        ("paris", "pause"),
        ("paris", "start"),
        ("paris", "stop"),
        ("paris", "start"),
    ]
    assert operated[0]["token"] == "management.token"
    assert str(operated[0]["remote"]).startswith("127.0.0.1:")
    assert EVENTS["link.operated"].audited


async def test_a_link_stays_paused_when_it_connects(broker: TestBroker, client: Client, session: Session) -> None:
    answer = await client.call("POST", "/api/v1/links/paris:pause")
    assert (answer.json["state"], answer.json["pausing"]) == ("starting", True)
    session.open()
    found = await client.get("/api/v1/links/paris")
    assert (found["state"], [route["state"] for route in found["routes"]]) == ("paused", ["stopped", "stopped"])


async def test_a_link_is_connected_at_once_that_waits(broker: TestBroker, client: Client, session: Session) -> None:
    session.lose("connection refused")
    assert broker.links.due() == []
    answer = await client.call("POST", "/api/v1/links/paris:start")
    assert answer.json["state"] == "starting"
    assert [link.name for link in broker.links.due()] == ["paris"]


@pytest.mark.parametrize("verb", ["stop", "pause"])
async def test_an_operation_that_a_link_does_not_have_is_refused(
    broker: TestBroker, client: Client, session: Session, verb: str
) -> None:
    answer = await client.call("POST", f"/api/v1/links/rome:{verb}")
    assert (answer.status, answer.json["code"]) == (409, "wrong-state")
    assert answer.json["detail"] == "link rome is stopped"
    assert not broker.reported("link.operated")


async def test_a_running_link_cannot_start(client: Client, session: Session) -> None:
    session.open()
    answer = await client.call("POST", "/api/v1/links/paris:start")
    assert (answer.status, answer.json["detail"]) == (409, "link paris is running already")


async def test_an_absent_link_is_not_found(client: Client, session: Session) -> None:
    for method, path, body in (
        ("GET", "/api/v1/links/oslo", None),
        ("POST", "/api/v1/links/oslo:start", None),
        ("POST", "/api/v1/links/oslo/routes/orders:resolve", {"discard": True}),
        ("POST", "/api/v1/links/paris/routes/nothing:resolve", {"discard": True}),
    ):
        answer = await client.call(method, path, json=body)
        assert (answer.status, answer.json["code"]) == (404, "not-found"), path
    assert (await client.call("GET", "/api/v1/links/paris:start")).status == 405


@pytest.mark.parametrize(("discard", "left"), [(True, [b"3"]), (False, [b"1", b"2", b"3"])])
async def test_doubt_is_resolved(
    broker: TestBroker, client: Client, session: Session, *, discard: bool, left: list[bytes]
) -> None:
    await broker.sent("orders.out", [b"1", b"2", b"3"])
    ids = [message.id for message in broker.held("orders.out")]
    session.open()
    session.doubt(*ids[:2])
    found = await client.get("/api/v1/links/paris")
    assert (found["state"], found["connected"]) == ("in-doubt", True)
    assert [(each["state"], each["in_doubt"]) for each in found["routes"]] == [("in-doubt", 2), ("running", 0)]
    path = "/api/v1/links/paris/routes/orders:resolve"
    assert (await client.call("POST", path)).status == 400, "it is not said how"
    answer = await client.call("POST", path, json={"discard": discard})
    assert answer.status == 200, answer.body
    assert (answer.json["messages"], answer.json["discarded"]) == (2, discard)
    assert [each["state"] for each in answer.json["link"]["routes"]] == ["running", "running"]
    assert [message.body for message in broker.held("orders.out")] == left
    assert broker.queue("orders.out").left[RemovalReason.PURGED] == 3 - len(left)
    [deed] = broker.reported("link.operated")
    assert (deed["route"], deed["messages"]) == ("orders", 2)
    assert deed["verb"] == ("discard" if discard else "resend")
    again = await client.call("POST", path, json={"discard": discard})
    assert (again.status, again.json["detail"]) == (409, "route orders of link paris is running, not in doubt")


async def test_messages_in_doubt_are_removed_however_large(
    broker: TestBroker, client: Client, session: Session
) -> None:
    body = b"x" * (300 << 10)
    await broker.sent("orders.out", [body] * 9)
    ids = [message.id for message in broker.held("orders.out")]
    assert len(body) * 8 > 2 * MOVED_BYTES_MAX, "it takes three steps"
    session.open()
    session.doubt(*ids[:8], ids[-1] + 1_000)
    answer = await client.call("POST", "/api/v1/links/paris/routes/orders:resolve", json={"discard": True})
    assert answer.json["messages"] == 8, "one had gone by itself"
    assert [message.id for message in broker.held("orders.out")] == ids[8:]


async def test_the_status_has_their_states(client: Client, session: Session) -> None:
    assert (await client.get("/api/v1/status"))["links"] == {"paris": "starting", "rome": "stopped"}


async def test_listeners_are_told_of_each_state(broker: TestBroker, session: Session) -> None:
    broker.tick.enter()
    inbox = Inbox()
    selector = "_AMQ_NotifType LIKE '%_STATE'"
    broker.engine.consumers.subscribe(
        inbox, SubscribeRequest(NOTIFICATIONS, RoutingType.MULTICAST, selector=selector, ack_mode=AckMode.AUTO)
    )
    await broker.settled()
    session.open()
    session.lose("the other end is gone")
    await broker.settled()
    told = [dict(PropertyView(message)) for message in inbox.messages]

    def of(type: str) -> list[tuple[Value, ...]]:
        names = ("_BARTLEBY_Link", "_BARTLEBY_Route", "_BARTLEBY_State", "_BARTLEBY_Error")
        return [tuple(each.get(name) for name in names) for each in told if each["_AMQ_NotifType"] == type]

    assert of("LINK_STATE") == [
        ("paris", None, "running", None),
        ("paris", None, "retrying", "the other end is gone"),
    ]
    assert [each[1:3] for each in of("ROUTE_STATE")] == [
        ("orders", "starting"),
        ("orders", "running"),
        ("invoices", "starting"),
        ("invoices", "running"),
        ("orders", "stopped"),
        ("invoices", "stopped"),
    ]
    assert {each["_AMQ_NotifTimestamp"] for each in told} == {broker.now}


async def test_a_remote_queue_s_address_names_its_target(broker: TestBroker, client: Client) -> None:
    target = RouteSettings("Q6_VER75", Kind.REMOTE_QUEUE, "outbox", "Q6")
    broker.links = Links(broker.engine, [LinkSettings("qm2", ("amqp://qm2:5672",), (target,))])
    for name in ("Q6_VER75", "outbox"):
        broker.queue(name)
    shown = await client.get("/api/v1/addresses/Q6_VER75")
    assert shown["remote_queue"] == {"link": "qm2", "transmission_queue": "outbox", "queue": "Q6"}
    assert (await client.get("/api/v1/addresses/outbox"))["remote_queue"] is None
