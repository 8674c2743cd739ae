"""Who is connected, over each protocol: seen by operators, told to those who listen, and sent away."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocols.mqtt.codes import ReasonCode
from tests.simulation.world import small
from tests.support.amqp_client import AmqpSim
from tests.support.mqtt_client import MqttClient
from tests.support.mqtt_world import SimWorld

#: Makes a client of each protocol, which consumes from the address q; whether it was hung up on, and why.
Hung = Callable[[], tuple[bool, str]]


def stomp(world: SimWorld) -> Hung:
    """A STOMP client."""
    client = world.broker.connect(**{"client-id": "me"})
    client.subscribe("/queue/q")
    return lambda: (client.closed, "".join(frame.body.decode() for frame in client.take("ERROR")))


def amqp(world: SimWorld) -> Hung:
    """An AMQP client."""
    client = AmqpSim(world.broker)
    client.receiver("queue://q")

    def hung() -> tuple[bool, str]:
        if not client.closed:
            return False, ""
        error = client.closed_with
        assert error is not None
        return True, error.description or ""

    return hung


def mqtt(world: SimWorld) -> Hung:
    """An MQTT client."""
    client: MqttClient = world.connect("me")
    client.subscribe("q", qos=1)

    def hung() -> tuple[bool, str]:
        client.settle()
        goodbye = client.goodbye
        assert goodbye is None or goodbye.reason_code == ReasonCode.ADMINISTRATIVE_ACTION
        return client.closed, "" if goodbye is None else str(goodbye)

    return hung


@pytest.mark.parametrize(("protocol", "connect"), [("STOMP", stomp), ("AMQP", amqp), ("MQTT", mqtt)])
def test_a_client_is_seen_told_and_sent_away(protocol: str, connect: Callable[[SimWorld], Hung]) -> None:
    world = SimWorld(small())
    broker = world.broker
    listener = broker.subscriber("/topic/activemq.notifications", selector="_AMQ_ConnectionName IS NOT NULL")
    before = set(broker.engine.connections.by_id)
    hung = connect(world)
    (connected,) = [each for id, each in broker.engine.connections.by_id.items() if id not in before]
    assert (connected.protocol, connected.since) == (protocol, broker.now)
    created = {frame.headers["_AMQ_NotifType"]: frame.headers for frame in listener.messages()}
    assert set(created) == {"CONNECTION_CREATED", "SESSION_CREATED"}
    for told in created.values():
        assert told["_AMQ_ConnectionName"] == connected.id
        assert told["_AMQ_Protocol_Name"] == protocol
        assert told.get("_AMQ_Client_ID", "") == connected.access.client_id
    assert hung() == (False, "")
    with broker.turn():
        connected.dismiss("closed by an operator: it is late")
    closed, why = hung()
    assert closed
    assert "it is late" in why
    assert set(broker.engine.connections.by_id) == before
    gone = [frame.headers["_AMQ_NotifType"] for frame in listener.messages()]
    assert gone == ["SESSION_CLOSED", "CONNECTION_DESTROYED"]
