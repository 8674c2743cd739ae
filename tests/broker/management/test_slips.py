"""A slip in a call is refused: what it meant to choose must not become everything."""

from __future__ import annotations

import pytest

from tests.broker.management.harness import Client, TestBroker, encode

MESSAGES = "/api/v1/queues/orders/messages"

#: A call that does much if it is misunderstood.
PURGE: dict[str, object] = {"kind": "purge", "queue": "orders"}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/status?x=1"),
        ("GET", "/api/v1/balance?x=1"),
        ("GET", "/api/v1/queues?x=a"),
        ("GET", "/api/v1/queues/orders?x=1"),
        ("GET", f"{MESSAGES}?fliter=a%3D1"),
        ("POST", "/api/v1/tasks?filter=a%3D1"),
        ("PATCH", "/api/v1/queues/orders?ring-size=5"),
        ("DELETE", "/api/v1/queues/orders?fore=true"),
        ("GET", "/api/v1/addresses?x=a"),
        ("GET", "/api/v1/addresses/orders?x=1"),
        ("PATCH", "/api/v1/addresses/orders?minutes=5"),
        ("GET", "/api/v1/connections?user=a"),
        ("GET", "/api/v1/consumers?queue=orders"),
        ("GET", "/api/v1/diverts?x=1"),
        ("PUT", "/api/v1/diverts/d?address=orders"),
        ("POST", "/api/v1/messages:replay?name=x"),
    ],
)
async def test_a_parameter_that_a_call_does_not_have(
    broker: TestBroker, client: Client, method: str, path: str
) -> None:
    await broker.sent("orders", [b"1", b"2"])
    refused = await client.call(method, path, json=PURGE if method in ("POST", "PATCH", "PUT") else None)
    assert (refused.status, refused.json["code"]) == (400, "invalid-parameter")
    assert path.rpartition("?")[2].partition("=")[0] in refused.json["detail"]
    assert broker.queue("orders").message_count == 2


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        *((each, "") for each in map(encode, (PURGE | {"fliter": "a = 1"}, PURGE | {"ids": ["1"]}, {}, [], "a = 1"))),
        (b"", ""),
        (b'{"kind": "purge", "queue": "orders", "filter": "i = 1", "filter": ""}', "is given more than once"),
        (
            b'{"kind": "purge", "queue": "orders", "group": {"reason": "rejected", "reason": null}}',
            "is given more than once",
        ),
    ],
)
async def test_a_body_that_says_something_else(broker: TestBroker, client: Client, body: bytes, detail: str) -> None:
    await broker.sent("orders", [b"1", b"2"])
    refused = await client.call("POST", "/api/v1/tasks", body=body)
    assert (refused.status, refused.json["code"]) == (400, "invalid-body")
    assert refused.json["detail"].endswith(detail)
    assert broker.queue("orders").message_count == 2


@pytest.mark.parametrize(
    ("method", "path"), [("DELETE", "/api/v1/queues/orders"), ("GET", MESSAGES), ("GET", "/api/v1/status")]
)
async def test_a_body_of_a_call_that_has_none(broker: TestBroker, client: Client, method: str, path: str) -> None:
    """Its caller means something by it, and without it the call would do more than was meant."""
    broker.queue("orders")
    refused = await client.call(method, path, json={"filter": "a = 1"})
    assert (refused.status, refused.json["detail"]) == (413, "send no body: this call takes none")
    assert "orders" in broker.engine.queues


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_a_body_that_is_no_json(broker: TestBroker, client: Client, kind: str) -> None:
    """Such as a form of a page, which a browser sends to any site unasked."""
    await broker.sent("orders", [b"1", b"2"])
    refused = await client.call("POST", "/api/v1/tasks", json=PURGE, headers={"Content-Type": kind})
    assert (refused.status, refused.json["code"]) == (415, "not-json")
    assert broker.queue("orders").message_count == 2
    taken = {"Content-Type": "application/json; charset=utf-8"}
    assert (await client.call("POST", "/api/v1/tasks", json=PURGE, headers=taken)).json["moved"] == 2


@pytest.mark.parametrize("body", [b"{", b"\xff", b'{"a": 1e', b"[" * 15_000, b'{"id": ' + b"9" * 5_000 + b"}", b"NaN"])
async def test_a_body_that_cannot_be_read(broker: TestBroker, client: Client, body: bytes) -> None:
    broker.queue("orders")
    refused = await client.call("POST", "/api/v1/tasks", body=body)
    assert refused.status == 400
    assert refused.headers["content-type"] == "application/problem+json"


async def test_a_parameter_that_is_given_twice(broker: TestBroker, client: Client) -> None:
    broker.queue("orders")
    refused = await client.call("GET", f"{MESSAGES}?filter=a%3D1&filter=")
    assert (refused.status, refused.json["detail"]) == (400, "the parameter filter is given more than once")
