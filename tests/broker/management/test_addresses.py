"""Addresses over HTTP: listed, shown, made, deleted, sent to; and what of them is refused."""

from __future__ import annotations

from functools import partial
from urllib.parse import quote

import pytest

from broker.engine.model.message import Message
from tests.broker.management.harness import Client, TestBroker, basic, managing

ADDRESSES = "/api/v1/addresses"


async def test_an_address_is_made_shown_and_deleted(client: Client) -> None:
    path = f"{ADDRESSES}/{quote('a/b', safe='')}"
    made = await client.call("PUT", path, json={"routing_types": ["ANYCAST", "MULTICAST"]})
    assert made.status == 201
    shown = await client.get(path)
    assert (shown["routing_types"], shown["queue_names"]) == (["ANYCAST", "MULTICAST"], [])
    assert (shown["auto_created"], shown["configured"], shown["internal"]) == (False, False, False)
    assert shown["settings"]["dead-letter-address"] == "DLQ"
    assert shown["settings"]["default-queue-routing-type"] == "MULTICAST"
    assert shown["settings"]["address-full-policy"] == "PAGE"
    assert (await client.call("PUT", path)).json["detail"] == "address a/b exists already"
    assert (await client.call("DELETE", path)).json == {"name": "a/b", "queues": 0}
    gone = await client.call("GET", path)
    assert (gone.status, gone.json["detail"]) == (404, "address a/b does not exist")


async def test_an_address_goes_with_its_queues_only_if_that_is_said(broker: TestBroker, client: Client) -> None:
    await broker.sent("orders", [b"1", b"2"])
    refused = await client.call("DELETE", f"{ADDRESSES}/orders")
    assert (refused.status, refused.json["code"]) == (409, "in-use")
    assert broker.engine.queue("orders").message_count == 2
    assert (await client.call("DELETE", f"{ADDRESSES}/orders?force=true")).json == {"name": "orders", "queues": 1}
    assert (await client.get(ADDRESSES))["addresses"] == []
    assert broker.engine.usage.messages == 0


async def test_a_list_has_pages(broker: TestBroker, client: Client) -> None:
    for name in ("c", "a", "b"):
        broker.queue(name)
    broker.send("b", [b"12345"])
    page = await client.get(f"{ADDRESSES}?limit=2")
    assert (page["total"], [each["name"] for each in page["addresses"]]) == (3, ["a", "b"])
    ours = page["addresses"][1]
    counts = {"queues": 1, "messages": 1, "routed": 1, "full": False, "paused": False}
    assert counts.items() <= ours.items()
    rest = await client.get(f"{ADDRESSES}?limit=2&after={page['next']}")
    assert [each["name"] for each in rest["addresses"]] == ["c"]


async def test_an_address_tells_its_diverts(broker: TestBroker, client: Client) -> None:
    broker.queue("a")
    await client.call("PUT", "/api/v1/diverts/copies", json={"address": "a", "forwarding_addresses": ["b"]})
    assert (await client.get(f"{ADDRESSES}/a"))["divert_names"] == ["copies"]


async def test_queues_of_others_on_an_address_are_hidden_and_stay(broker: TestBroker, client: Client) -> None:
    alice = partial(client.call, token=None, headers=basic("alice", "s3cret"))
    for queue in ("orders", "vault"):
        await client.call("PUT", f"/api/v1/queues/{queue}", json={"address": "orders", "make_address": True})
    for name, to in (("copy", "orders.copy"), ("tap", "secret")):
        await client.call("PUT", f"/api/v1/diverts/{name}", json={"address": "orders", "forwarding_addresses": [to]})
    managing(broker, "orders.#", denied=["orders::vault"])
    shown = (await alice("GET", f"{ADDRESSES}/orders")).json
    assert (shown["queue_names"], shown["divert_names"]) == (["orders"], ["copy"])
    for method, query, body in (("PATCH", "", {"paused": True}), ("DELETE", "?force=true", None)):
        refused = await alice(method, f"{ADDRESSES}/orders{query}", json=body)
        assert (refused.status, "manage all queues of orders (manage)" in refused.json["detail"]) == (403, True)
    assert not broker.engine.queue("vault").paused
    managing(broker, "orders.#", denied=["orders::cellar"])
    for queue, status in (("cellar", 403), ("attic", 201)):
        made = await alice("PUT", f"/api/v1/queues/{queue}", json={"address": "orders"})
        assert made.status == status
    managing(broker, "orders.#")
    assert (await alice("DELETE", f"{ADDRESSES}/orders?force=true")).json["queues"] == 3


async def test_a_message_is_sent(broker: TestBroker, client: Client) -> None:
    broker.queue("a")
    properties = {"colour": "red", "x": "a:b", "zoë": "1\n2"}
    message = {"text": "good morning, Zoë", "priority": 7, "properties": properties}
    sent = await client.call("POST", f"{ADDRESSES}/a/messages", json=message)
    assert (sent.status, sent.json["address"], sent.json["taken"]) == (201, "a", True)
    await client.call("POST", f"{ADDRESSES}/a%3A%3Aa/messages", json={"durable": False})
    first, second = (await client.get("/api/v1/queues/a/messages"))["messages"]
    assert first["id"] == sent.json["message"]
    assert (first["body"]["data"], first["priority"], first["durable"]) == ("good morning, Zoë", 7, True)
    assert first["properties"] == properties
    assert (second["body"]["data"], second["priority"], second["durable"]) == ("", 4, False)


async def test_a_message_that_no_queue_takes_is_told(client: Client) -> None:
    await client.call("PUT", f"{ADDRESSES}/a", json={"routing_types": ["MULTICAST"]})
    sent = await client.call("POST", f"{ADDRESSES}/a/messages", json={"text": "x"})
    assert (sent.status, sent.json["taken"]) == (201, False)
    made = await client.call("POST", f"{ADDRESSES}/new/messages", json={"text": "x", "routing_type": "ANYCAST"})
    assert made.json["taken"], "made as by any sender"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "detail"),
    [
        ("PUT", "/a", {"routing_types": ["ANY"]}, 400, "routing_types.0 must be 'ANYCAST' or 'MULTICAST'"),
        ("PUT", "/a?type=ANYCAST", None, 400, "there is no parameter 'type'"),
        ("PUT", "/%24.artemis.internal.x", None, 400, "the broker's own"),
        ("DELETE", "/a?force=yes", None, 400, "force must be true or false"),
        ("DELETE", "/nothing", None, 404, "address nothing does not exist"),
        ("DELETE", "/%24.artemis.internal.a.address.retro", None, 404, "does not exist"),
        ("POST", "/a/messages", {"priority": 10}, 400, "priority must be at most 9"),
        ("POST", "/a/messages", {"properties": {"x": 1}}, 400, "properties.x must be a text"),
        ("POST", "/a/messages", {"properties": {"content-length": "1"}}, 400, "'content-length' is set by the broker"),
        ("POST", "/a/messages", {"properties": {"destination": "b"}}, 400, "'destination' is set by the broker only"),
        ("POST", "/a/messages", {"properties": {"_AMQ_DL_REASON": "x"}}, 400, "'_AMQ_DL_REASON' is set by the broker"),
        ("POST", "/a/messages", {"properties": {"_AMQ_SCHED_DELIVERY": "1"}}, 400, "is set by the broker only"),
        ("POST", "/a/messages", {"properties": {"a\0": "b"}}, 400, "must not have the character NUL"),
        ("POST", "/a/messages", {"text": "\ud800"}, 400, "the body is not valid Unicode"),
        ("POST", "/a/messages", {"text": "a", "base64": "YQ=="}, 400, "give text or base64, not both"),
        ("POST", "/a/messages", {"base64": "?"}, 400, "base64 is not Base64"),
        ("POST", "/a/messages", {"routing_type": "x"}, 400, "routing_type must be 'ANYCAST' or 'MULTICAST'"),
        ("POST", "/a.%23/messages", {"text": "x"}, 400, "wildcard"),
        ("POST", "/a/messages", {"body": "x"}, 400, "there is no field 'body'; there are base64, "),
        ("POST", "/a/messages", None, 400, "the body must be a JSON object"),
    ],
)
async def test_refused_addresses(
    broker: TestBroker, client: Client, method: str, path: str, body: object, status: int, detail: str
) -> None:
    broker.queue("a")
    answer = await client.call(method, ADDRESSES + path, json=body)
    assert answer.status == status, answer.body
    assert detail in answer.json["detail"]


class InternalOwner:
    """A part of the broker that has a queue for itself."""

    def expired(self, message: Message) -> None:
        """See queue.Keeper."""


async def test_the_brokers_own_are_not_deleted(broker: TestBroker, client: Client) -> None:
    broker.tick.enter()
    broker.engine._state.registry.create_address("$.artemis.internal.x", set(), internal=True)
    answer = await client.call("DELETE", f"{ADDRESSES}/%24.artemis.internal.x?force=true")
    assert answer.status == 400
    assert (await client.get(ADDRESSES))["total"] == 0
    assert (await client.get(f"{ADDRESSES}?internal=true"))["total"] == 1
    broker.queue("kept").internal_owner = InternalOwner()
    assert (await client.get(ADDRESSES))["total"] == 0
    assert (await client.get(f"{ADDRESSES}?internal=true"))["total"] == 2
    assert (await client.get(f"{ADDRESSES}/kept"))["internal"]
    assert (await client.call("DELETE", f"{ADDRESSES}/kept?force=true")).status == 409


async def test_a_message_that_is_meant_for_a_queue_and_finds_none_is_refused(
    broker: TestBroker, client: Client
) -> None:
    broker.queue("a")
    await client.call("PATCH", "/api/v1/queues/a", json={"attributes": {"enabled": False}})
    refused = await client.call("POST", f"{ADDRESSES}/a/messages", json={"text": "x"})
    assert (refused.status, refused.json["code"]) == (409, "queue-disabled")
    assert "queue a of address a is disabled" in refused.json["detail"]
    dropped = await client.call("POST", f"{ADDRESSES}/a/messages", json={"text": "x", "durable": False})
    assert dropped.json["taken"] is False
