"""Every notification as a client gets it, over each protocol, with ActiveMQ Artemis's property names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from protocols.mqtt.properties import USER_PROPERTY
from tests.simulation.world import small
from tests.support.amqp_client import AmqpSim, message
from tests.support.mqtt_client import MqttClient, greeting
from tests.support.mqtt_world import SimCarrier
from tests.support.sim_broker import SimBroker

#: The notes that came since the last call, as text by name.
Told = Callable[[], list[Mapping[str, str]]]

USERS = {"listener": "heard", "slot": "seen"}


def over_stomp(broker: SimBroker) -> Told:
    """A STOMP client that listens."""
    client = broker.connect(login="listener", passcode="heard")
    client.subscribe("/topic/activemq.notifications")
    return lambda: [frame.headers for frame in client.messages()]


def over_amqp(broker: SimBroker) -> Told:
    """An AMQP client that listens; its numbers are numbers."""
    client = AmqpSim(broker, login=("listener", "heard"))
    client.receiver("topic://activemq.notifications")

    def told() -> list[Mapping[str, str]]:
        notes = [delivery.message.application_properties for delivery in client.take()]
        for note in notes:
            assert isinstance(note["_AMQ_NotifTimestamp"], int)
            assert isinstance(note["_AMQ_NotifType"], str)
        return [{str(name): str(value) for name, value in note.items()} for note in notes]

    return told


def over_mqtt(broker: SimBroker) -> Told:
    """An MQTT client that listens."""
    client = MqttClient().over(SimCarrier(broker)).connect(greeting("l", user_name="listener", password=b"heard"))
    client.subscribe("activemq/notifications", qos=1)
    return lambda: [dict(found.properties.get_all(USER_PROPERTY)) for found in client.take()]


def notes(told: Told, type: str, **where: str) -> list[Mapping[str, str]]:
    """Those of one type, about one thing."""
    return [
        note
        for note in told()
        if note["_AMQ_NotifType"] == type and all(note.get(f"_AMQ_{name}") == value for name, value in where.items())
    ]


@pytest.fixture(params=[over_stomp, over_amqp, over_mqtt], ids=["stomp", "amqp", "mqtt"])
def listening(request: pytest.FixtureRequest) -> tuple[SimBroker, Told]:
    """A broker, and somebody who listens."""
    broker = SimBroker(small({"match": "a", "max-delivery-attempts": 1}), users=USERS)
    told: Told = request.param(broker)
    told()
    return broker, told


def test_addresses_bindings_and_consumers(listening: tuple[SimBroker, Told]) -> None:
    broker, told = listening
    client = broker.connect(login="slot", passcode="seen", **{"client-id": "me"})
    client.subscribe("/queue/a", selector="x = 1")
    came = told()
    types = [note["_AMQ_NotifType"] for note in came]
    expected = ["CONNECTION_CREATED", "SESSION_CREATED", "ADDRESS_ADDED", "BINDING_ADDED", "CONSUMER_CREATED"]
    assert types == expected
    added, bound, created = came[2:]
    assert (added["_AMQ_Address"], added["_AMQ_Routing_Type"]) == ("a", "ANYCAST")
    assert (bound["_AMQ_Address"], bound["_AMQ_RoutingName"], bound["_AMQ_Binding_Type"]) == ("a", "a", "0")
    assert int(bound["_AMQ_Binding_ID"]) == broker.engine.queue("a").id
    assert (created["_AMQ_ConsumerCount"], created["_AMQ_FilterString"]) == ("1", "x = 1")
    assert (created["_AMQ_User"], created["_AMQ_Client_ID"]) == ("slot", "me")
    client.drop()
    left = told()
    assert [note["_AMQ_NotifType"] for note in left] == ["SESSION_CLOSED", "CONNECTION_DESTROYED", "CONSUMER_CLOSED"]
    assert left[-1]["_AMQ_ConsumerCount"] == "0"
    with broker.turn():
        broker.engine.delete_temporary(broker.engine.addresses["a"])
    assert [note["_AMQ_NotifType"] for note in told()] == ["BINDING_REMOVED", "ADDRESS_REMOVED"]


def test_logins_that_are_refused(listening: tuple[SimBroker, Told]) -> None:
    broker, told = listening
    AmqpSim(broker, login=("slot", "wrong"))
    (note,) = told()
    assert (note["_AMQ_NotifType"], note["_AMQ_User"]) == ("SECURITY_AUTHENTICATION_VIOLATION", "slot")
    assert note["_AMQ_RemoteAddress"]


def test_deaths_and_expiries(listening: tuple[SimBroker, Told]) -> None:
    broker, told = listening
    client = broker.connect(login="slot", passcode="seen")
    client.subscribe("/queue/a")
    client.send("/queue/a", b"1", persistent="true")
    (message,) = client.messages()
    client.nack(message)
    (died,) = notes(told, "MESSAGE_DEAD_LETTERED")
    assert (died["_AMQ_Address"], died["_AMQ_RoutingName"], died["_AMQ_DL_ADDRESS"]) == ("a", "a", "DLQ")
    assert (died["_AMQ_DL_REASON"], died["_AMQ_DL_ATTEMPTS"], died["_AMQ_User"]) == ("max-deliveries", "1", "slot")
    assert "delivered 1 time without success" in died["_AMQ_DL_TEXT"]
    assert message.headers["message-id"].endswith(died["_AMQ_Message_ID"])
    client.send("/queue/b", b"2", expires=str(broker.now + 10))
    broker.advance(10_000)
    (expired,) = notes(told, "MESSAGE_EXPIRED")
    assert (expired["_AMQ_Address"], expired["_AMQ_DL_ADDRESS"]) == ("b", "ExpiryQueue")


def test_others_do_not_speak_for_the_broker(broker: SimBroker) -> None:
    """Names that only the broker gives are dropped from what an AMQP client sends elsewhere."""
    client = AmqpSim(broker)
    client.send(client.sender("queue://a"), message("1", application={"_AMQ_DL_REASON": "made up", "x": "y"}))
    stomp = broker.subscriber("/queue/a")
    (frame,) = stomp.messages()
    assert frame.headers["x"] == "y"
    assert "_AMQ_DL_REASON" not in frame.headers


@pytest.mark.parametrize(("pattern", "hears"), [("#", False), ("+/notifications", False), ("activemq/#", True)])
def test_patterns_that_begin_with_a_wildcard_do_not_match_notifications(pattern: str, hears: bool) -> None:
    """They name the clients, users and addresses of others."""
    broker = SimBroker(small(), users=USERS)
    client = MqttClient().over(SimCarrier(broker)).connect(greeting("l", user_name="listener", password=b"heard"))
    client.subscribe(pattern, qos=1)
    told = over_stomp(broker)  # so that notifications are made
    broker.connect(login="slot", passcode="seen", **{"client-id": "me"})
    assert told()
    assert bool(client.take()) is hears
