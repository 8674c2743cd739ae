"""A reply-to that crosses protocols leads back: a request by each protocol, the answer by each other, all kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from protocols.amqp.message import MESSAGE_ANNOTATIONS, encode_annotations
from protocols.amqp.performatives import Accepted, Properties, Source
from protocols.amqp.types import Byte
from protocols.mqtt.properties import RESPONSE_TOPIC
from tests.support.amqp_client import AmqpSim, message
from tests.support.mqtt_client import MqttClient
from tests.support.mqtt_world import SimWorld
from tests.support.sim_broker import SimClient


@dataclass
class Stomp:
    """A STOMP client that asks or answers."""

    client: SimClient

    def ask(self, kind: str) -> None:
        prefix = {"queue": "/queue/", "topic": "/topic/", "temporary": "/temp-queue/"}[kind]
        self.client.subscribe(f"{prefix}back", ack="auto", id="back")
        self.client.send("/topic/service", b"question", **{"reply-to": f"{prefix}back"})

    def serve(self) -> None:
        self.client.subscribe("/topic/service", ack="auto")

    def answer(self) -> None:
        [request] = self.client.messages()
        self.client.confirmed(request.headers["reply-to"], b"answer")

    def answers(self) -> list[bytes]:
        return self.client.bodies()


@dataclass
class Amqp:
    """An AMQP client that asks or answers; `jms`: as Qpid JMS does, with plain names and annotations."""

    client: AmqpSim
    jms: bool = False

    def ask(self, kind: str) -> None:
        name = {"queue": "queue://back", "topic": "topic://back"}.get(kind)
        place = {"queue": 0, "topic": 1, "temporary": 2}[kind]
        if name is None:
            source = Source(None, dynamic=True, capabilities=("temporary-queue",))
            link = self.client.receiver(None, source=source)
            granted = self.client.answer(link).source
            assert isinstance(granted, Source)
            name = granted.address
        elif self.jms:
            name = "back"
            self.client.receiver(name, kind)
        else:
            self.client.receiver(name)
        noted = encode_annotations(MESSAGE_ANNOTATIONS, {"x-opt-jms-reply-to": Byte(place)}) if self.jms else b""
        request = message("question", properties=Properties(reply_to=name), annotations=noted)
        self.client.send(self.client.sender("topic://service"), request)

    def serve(self) -> None:
        self.client.receiver("topic://service")

    def answer(self) -> None:
        [request] = self.client.take()
        to = request.message.properties.reply_to
        assert to is not None
        if self.jms:
            place = request.message.message_annotations["x-opt-jms-reply-to"]
            noted = encode_annotations(MESSAGE_ANNOTATIONS, {"x-opt-jms-dest": place})
            outcomes = self.client.send(
                self.client.sender(None), message("answer", properties=Properties(to=to), annotations=noted)
            )
        else:
            outcomes = self.client.send(self.client.sender(to), message("answer"))
        assert [type(outcome.state) for outcome in outcomes] == [Accepted]

    def answers(self) -> list[bytes]:
        return [body.encode() if isinstance(body, str) else body for body in self.client.bodies()]  # type: ignore[misc]


@dataclass
class Mqtt:
    """An MQTT client that asks or answers; what it asks for comes to a topic."""

    client: MqttClient

    def ask(self, kind: str) -> None:
        self.client.subscribe("back", qos=1)
        self.client.publish("service", b"question", 1, properties=[(RESPONSE_TOPIC, "back")])

    def serve(self) -> None:
        self.client.subscribe("service", qos=1)

    def answer(self) -> None:
        [request] = self.client.take()
        self.client.publish(request.get(RESPONSE_TOPIC), b"answer", 1)

    def answers(self) -> list[bytes]:
        return self.client.payloads()


Peer = Stomp | Amqp | Mqtt

PEERS: dict[str, Callable[[SimWorld], Peer]] = {
    "stomp": lambda world: Stomp(world.broker.connect()),
    "amqp": lambda world: Amqp(AmqpSim(world.broker)),
    "jms": lambda world: Amqp(AmqpSim(world.broker), jms=True),
    "mqtt": lambda world: Mqtt(world.connect()),
}


@pytest.mark.parametrize("kind", ["queue", "topic", "temporary"])
@pytest.mark.parametrize("responder", PEERS)
@pytest.mark.parametrize("requester", PEERS)
def test_an_answer_reaches_the_one_that_asked(requester: str, responder: str, kind: str) -> None:
    if requester == responder == "jms" or (requester == "amqp" and responder == "jms"):
        pytest.skip("within AMQP what a client says beside a reply-to is its own affair")
    world = SimWorld()
    asking, answering = PEERS[requester](world), PEERS[responder](world)
    answering.serve()
    asking.ask(kind)
    answering.answer()
    assert asking.answers() == [b"answer"]


@pytest.mark.parametrize("responder", ["stomp", "amqp", "jms"])
def test_an_answer_waits_on_a_queue_that_the_asker_reads_later(responder: str) -> None:
    """The queue is not there when the answer is sent: its reply-to says that it is one."""
    world = SimWorld()
    answering = PEERS[responder](world)
    answering.serve()
    asker = world.broker.connect() if responder != "stomp" else None
    if asker is not None:
        asker.send("/topic/service", b"question", **{"reply-to": "/queue/later"})
        answering.answer()
        asker.subscribe("/queue/later", ack="auto")
        assert asker.bodies() == [b"answer"]
    else:
        amqp = AmqpSim(world.broker)
        request = message("question", properties=Properties(reply_to="queue://later"))
        amqp.send(amqp.sender("topic://service"), request)
        answering.answer()
        amqp.receiver("queue://later")
        assert amqp.bodies() == ["answer"]
