"""A slip in a call is refused: what it meant to choose must not become everything."""

from __future__ import annotations

import pytest

from tests.broker.management.harness import Client, TestBroker

MESSAGES = "/api/v1/queues/orders/messages"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/status?x=1"),
        ("GET", "/api/v1/balance?x=1"),
        ("GET", "/api/v1/queues?filter=a"),
        ("GET", "/api/v1/queues/orders?x=1"),
        ("GET", f"{MESSAGES}?fliter=a%3D1"),
        ("DELETE", f"{MESSAGES}?fliter=a%3D1"),
        ("POST", f"{MESSAGES}:retry?fliter=a%3D1"),
        ("POST", f"{MESSAGES}:move?to=other&fliter=a%3D1"),
        ("POST", "/api/v1/queues/orders/pause?minutes=5"),
        ("POST", "/api/v1/queues/orders/attributes?colour=red"),
        ("DELETE", "/api/v1/queues/orders?fore=true"),
        ("GET", "/api/v1/addresses?filter=a"),
        ("GET", "/api/v1/addresses/orders?x=1"),
        ("POST", "/api/v1/addresses/orders/pause?minutes=5"),
        ("GET", "/api/v1/connections?user=a"),
        ("GET", "/api/v1/consumers?queue=orders"),
        ("GET", "/api/v1/diverts?x=1"),
        ("PUT", "/api/v1/diverts/d?address=orders&forwarding-address=x&fliter=a"),
        ("POST", "/api/v1/messages:replay?nmae=x"),
    ],
)
async def test_a_parameter_that_a_call_does_not_have(
    broker: TestBroker, client: Client, method: str, path: str
) -> None:
    broker.send("orders", [b"1", b"2"])
    await broker.settled()
    refused = await client.call(method, path)
    assert refused.status == 400, refused.json
    assert path.rpartition("?")[2].rpartition("&")[2].partition("=")[0] in refused.json["detail"]
    assert broker.queue("orders").message_count == 2


@pytest.mark.parametrize(
    "method_path", [f"DELETE {MESSAGES}", f"POST {MESSAGES}:move?to=other", f"POST {MESSAGES}:retry"]
)
async def test_parameters_in_a_body(broker: TestBroker, client: Client, method_path: str) -> None:
    """Of an HTTP library that makes JSON of them."""
    broker.send("orders", [b"1", b"2"])
    await broker.settled()
    method, _, path = method_path.partition(" ")
    refused = await client.call(method, path, body=b'{"filter": "a = 1"}')
    assert (refused.status, refused.json["detail"]) == (413, "send no body: parameters are in the query")
    assert broker.queue("orders").message_count == 2
