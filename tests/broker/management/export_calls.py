"""The calls of exports and imports, and a line for them."""

from __future__ import annotations

from typing import Any

from tests.broker.management.harness import NOW

EXPORT = "/api/v1/queues/orders/messages:export"
IMPORT = "/api/v1/messages:import"

#: A message with all that a line can say of it.
LINE: dict[str, Any] = {
    "kind": "message",
    "id": 7,
    "queues": [{"name": "orders", "delivery-count": 2}],
    "address": "orders",
    "protocol": "stomp",
    "timestamp": NOW - 1_000,
    "priority": 9,
    "expiration": NOW + 600_000,
    "expiry-source": 1,
    "routing-type": "ANYCAST",
    "user": "alice",
    "origin": "c1",
    "annotations": {"_AMQ_DL_REASON": "rejected", "x": {"ulong": 2**64 - 1}},
    "head": "Y29sb3VyOnJlZAo=",
    "body": "b25l",
}


def asked(*messages: object, name: str = "one", target: str = "orders") -> dict[str, object]:
    """The body of an import."""
    return {"name": name, "target": target, "messages": messages}
