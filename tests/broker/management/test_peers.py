"""Connections and consumers over HTTP: who is there, and who is sent away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.engine.delivery import redelivery
from broker.engine.delivery.reservations import Reserve
from broker.engine.model.access import UNRESTRICTED
from broker.engine.operators.statistics import PART, Statistics
from broker.engine.queues.queue import Queue
from tests.broker.management.harness import NOW, Client, Inbox, TestBroker


async def test_connections_are_listed_and_closed(broker: TestBroker, client: Client) -> None:
    said: list[str] = []
    for id in ("1-a", "2-b", "3-c"):
        broker.tick.enter()
        broker.engine.connections.opened(id, "STOMP", "10.0.0.7:4711", UNRESTRICTED, said.append)
    first = await client.get("/api/v1/connections?limit=2")
    assert ([each["id"] for each in first["connections"]], first["total"]) == (["1-a", "2-b"], 3)
    page = await client.get(f"/api/v1/connections?limit=2&after={first['next']}")
    assert page["next"] is None
    (last,) = page["connections"]
    expected = {"id": "3-c", "protocol": "STOMP", "remote": "10.0.0.7:4711", "user": "", "client_id": ""}
    assert last == expected | {"since": NOW}
    answer = await client.call("DELETE", "/api/v1/connections/2-b?reason=it%20is%20late")
    assert (answer.status, answer.json["id"]) == (200, "2-b")
    assert said == ["closed by an operator: it is late"]
    await client.call("DELETE", "/api/v1/connections/1-a")
    assert said[-1] == "closed by an operator"
    await client.call("DELETE", "/api/v1/connections/3-c?reason=%00%0A")
    assert said[-1] == r"closed by an operator: \x00\n", "MQTT has no U+0000"
    gone = await client.call("DELETE", "/api/v1/connections/9")
    assert (gone.status, gone.json["detail"]) == (404, "connection 9 does not exist")
    assert (await client.call("DELETE", "/api/v1/connections/1-a?force=true")).status == 400


async def test_consumers_are_listed_and_closed(broker: TestBroker, client: Client) -> None:
    broker.send("a", [b"1"])
    inbox = Inbox()
    consumer = broker.read("a", inbox, client_id="c", remote="r")
    await broker.settled()
    (shown,) = (await client.get("/api/v1/consumers"))["consumers"]
    assert (shown["id"], shown["queue"], shown["address"]) == (consumer.id, "a", "a")
    assert (shown["client_id"], shown["remote"], shown["unacknowledged"]) == ("c", "r", 1)
    assert (await client.call("DELETE", f"/api/v1/consumers/{consumer.id}")).json["id"] == consumer.id
    assert inbox.reasons == ["closed by an operator"]
    await broker.settled()
    queue = broker.engine.queue("a")
    assert (queue.ready, queue.consumers) == (1, [])
    assert [state.count for state in queue.states.values()] == [0], "redelivered, but it does not count as failed"
    assert (await client.get("/api/v1/consumers"))["total"] == 0
    assert (await client.call("DELETE", f"/api/v1/consumers/{consumer.id}")).status == 404


async def test_messages_reserved_for_a_link_are_seen_and_given_to_others(broker: TestBroker, client: Client) -> None:
    broker.send("a", [b"1", b"2"])
    link = broker.read("a", remote="r", reserve=Reserve("$link//there/a.b.orders", 60_000))
    await broker.settled()
    broker.tick.enter()
    broker.engine.consumers.close(link, redelivery.LOST)
    await broker.settled()
    (shown,) = (await client.get("/api/v1/consumers"))["consumers"]
    assert (shown["away"], shown["unacknowledged"], shown["client_id"]) == (True, 2, "$link//there/a.b.orders")
    assert (await client.get("/api/v1/queues/a"))["consumer_list"] == [shown]
    assert (await client.get("/api/v1/queues/a"))["consumers"] == 0
    assert (await client.call("DELETE", f"/api/v1/consumers/{shown['id']}")).status == 200
    await broker.settled()
    assert broker.engine.queue("a").ready == 2
    assert (await client.get("/api/v1/consumers"))["total"] == 0


async def test_consumers_are_listed_in_turns(
    broker: TestBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a part of the queues is looked at in one of them."""
    looked_at: list[int] = []
    parts = Statistics.parts

    def noted(statistics: Statistics) -> Iterator[list[Queue]]:
        for part in parts(statistics):
            looked_at.append(len(part))
            yield part

    monkeypatch.setattr(Statistics, "parts", noted)
    for n in range(2 * PART + 1):
        broker.queue(f"q{n:04}")
    assert (await client.get("/api/v1/consumers?limit=1"))["total"] == 0
    assert len(looked_at) >= 3
    assert max(looked_at) == PART
