"""Addresses with and without a queue that takes messages."""

from __future__ import annotations

from broker.engine.routing.alter import change
from tests.support.sim_broker import SimBroker

WHY = "queue off of address off is disabled"


DEAD = {"match": "off", "send-to-dla-on-no-route": True}


def shut(broker: SimBroker) -> SimBroker:
    """The address `off` has one queue, which is disabled; `on` has one that is not."""
    client = broker.connect()
    for name in ("off", "on"):
        client.send(f"/queue/{name}", b"first", persistent="true", receipt=name)
    with broker.turn():
        change(broker.engine._state, broker.engine.queue("off"), {"enabled": False})
    return broker
