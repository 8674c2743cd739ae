"""Two simulated brokers with an MQTT link, and clients of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.engine.model.message import Message
from tests.support.mqtt_client import MqttClient, greeting
from tests.support.mqtt_world import SimCarrier
from tests.support.sim_broker import SimBroker, configured
from tests.support.sim_links import SimLinks, linked


def pair(
    *settings: dict[str, object], link: Mapping[str, Any] = {}, there: SimBroker | None = None, **routes: object
) -> tuple[SimBroker, SimBroker, SimLinks]:
    """Two brokers; the first has an MQTT link to the second, which is `there` or as shipped."""
    a = SimBroker(linked(*settings, url="mqtt://b:1883", mqtt=routes, **link))
    b = there or SimBroker(configured())
    links = SimLinks(a, {"b": b})
    links.run()
    return a, b, links


def client(broker: SimBroker, client_id: str, *filters: str, qos: int = 0, **more: Any) -> MqttClient:
    """A client that has subscribed."""
    found = MqttClient().over(SimCarrier(broker)).connect(greeting(client_id, **more))
    assert found.connack is not None
    assert found.connack.reason_code == 0
    if filters:
        found.subscribe(*filters, qos=qos)
    return found


def dead_letters(broker: SimBroker) -> list[Message]:
    """Those of a broker."""
    if "DLQ" not in broker.engine.queues:
        return []
    return [each for each, _ in broker.engine.messages.browse(broker.engine.queue("DLQ"))]
