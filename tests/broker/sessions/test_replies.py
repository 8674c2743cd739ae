"""A reply-to that crosses protocols leads back, and a correlation id comes back as it was.

A request by each protocol, the answer by each other, all kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import pytest

from protocols.amqp.message import MESSAGE_ANNOTATIONS, encode_annotations
from protocols.amqp.performatives import Accepted, MessageId, Properties, Source
from protocols.amqp.types import Byte, ULong
from protocols.mqtt.properties import CORRELATION_DATA, RESPONSE_TOPIC
from tests.support.amqp_client import AmqpSim, message
from tests.support.mqtt_client import MqttClient, Pairs
from tests.support.mqtt_world import SimWorld
from tests.support.sim_broker import SimClient


@dataclass
class Stomp:
    """A STOMP client that asks or answers."""

    client: SimClient

    def ask(self, kind: str, id: str = "1") -> None:
        prefix = {"queue": "/queue/", "topic": "/topic/", "temporary": "/temp-queue/"}[kind]
        self.client.subscribe(f"{prefix}back", ack="auto", id="back")
        self.client.send("/topic/service", b"question", **{"reply-to": f"{prefix}back", "correlation-id": id})

    def serve(self) -> None:
        self.client.subscribe("/topic/service", ack="auto")

    def answer(self) -> None:
        [request] = self.client.messages()
        same = {"correlation-id": request.headers["correlation-id"]}
        self.client.confirmed(request.headers["reply-to"], b"answer", **same)

    def answers(self) -> list[tuple[bytes, object]]:
        return [(frame.body, frame.headers["correlation-id"]) for frame in self.client.messages()]


@dataclass
class Amqp:
    """An AMQP client that asks or answers; `jms`: as Qpid JMS does, with plain names and annotations."""

    client: AmqpSim
    jms: bool = False

    def ask(self, kind: str, id: MessageId = "1") -> None:
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
        request = message("question", properties=Properties(reply_to=name, correlation_id=id), annotations=noted)
        self.client.send(self.client.sender("topic://service"), request)

    def serve(self) -> None:
        self.client.receiver("topic://service")

    def answer(self) -> None:
        [request] = self.client.take()
        to, id = request.message.properties.reply_to, request.message.properties.correlation_id
        assert to is not None
        if self.jms:
            place = request.message.message_annotations["x-opt-jms-reply-to"]
            noted = encode_annotations(MESSAGE_ANNOTATIONS, {"x-opt-jms-dest": place})
            outcomes = self.client.send(
                self.client.sender(None),
                message("answer", properties=Properties(to=to, correlation_id=id), annotations=noted),
            )
        else:
            answer = message("answer", properties=Properties(correlation_id=id))
            outcomes = self.client.send(self.client.sender(to), answer)
        assert [type(outcome.state) for outcome in outcomes] == [Accepted]

    def answers(self) -> list[tuple[bytes, object]]:
        found: list[tuple[bytes, object]] = []
        for delivery in self.client.take():
            body = delivery.body
            assert isinstance(body, str | bytes)
            text = body.encode() if isinstance(body, str) else body
            found.append((text, delivery.message.properties.correlation_id))
        return found


@dataclass
class Mqtt:
    """An MQTT client that asks or answers; what it asks for comes to a topic."""

    client: MqttClient

    def ask(self, kind: str, id: bytes = b"1") -> None:
        self.client.subscribe("back", qos=1)
        properties: Pairs = [(RESPONSE_TOPIC, "back"), (CORRELATION_DATA, id)]
        self.client.publish("service", b"question", 1, properties=properties)

    def serve(self) -> None:
        self.client.subscribe("service", qos=1)

    def answer(self) -> None:
        [request] = self.client.take()
        same: Pairs = [(CORRELATION_DATA, request.get(CORRELATION_DATA))]
        self.client.publish(request.get(RESPONSE_TOPIC), b"answer", 1, properties=same)

    def answers(self) -> list[tuple[bytes, object]]:
        return [(packet.payload, packet.get(CORRELATION_DATA)) for packet in self.client.take()]


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
    assert asking.answers() == [(b"answer", b"1" if requester == "mqtt" else "1")]


#: Who asks, and with which correlation ids.
IDS: Final[dict[str, list[Any]]] = {
    "stomp": [
        "1",
        "ID:AMQP_ULONG:5",
        "ID:AMQP_ULONG:+5",
        "ID:AMQP_BINARY:00fF",
        "ID:AMQP_BINARY:0",
        "ID:AMQP_STRING:x",
    ],
    "amqp": [
        *(
            "1",
            "ID:x",
            "ID:AMQP_ULONG:5",
            "ID:AMQP_STRING:",
            "ID:AMQP_STRING:ID:AMQP_ULONG:5",
            ULong(0),
            ULong(2**64 - 1),
            UUID(int=7),
        ),
        *(b"plain", b"\x00\xff", b""),
    ],
    "mqtt": [b"1", b"\x00\xff", UUID(int=2**127).bytes, b"ID:AMQP_UUID:7"],
}


@pytest.mark.parametrize("responder", ["stomp", "amqp", "mqtt"])
@pytest.mark.parametrize(("requester", "id"), [(name, id) for name, ids in IDS.items() for id in ids])
def test_an_answer_has_the_correlation_id_of_its_question(requester: str, id: object, responder: str) -> None:
    world = SimWorld()
    asking, answering = PEERS[requester](world), PEERS[responder](world)
    answering.serve()
    asking.ask("topic", id)  # type: ignore[arg-type]
    answering.answer()
    [(_, again)] = asking.answers()
    assert (again, type(again)) == (id, type(id))


@pytest.mark.parametrize("responder", ["stomp", "amqp", "jms"])
def test_an_answer_waits_on_a_queue_that_the_asker_reads_later(responder: str) -> None:
    """The queue is not there when the answer is sent: its reply-to says that it is one."""
    world = SimWorld()
    answering = PEERS[responder](world)
    answering.serve()
    asker = world.broker.connect() if responder != "stomp" else None
    if asker is not None:
        asker.send("/topic/service", b"question", **{"reply-to": "/queue/later", "correlation-id": "1"})
        answering.answer()
        asker.subscribe("/queue/later", ack="auto")
        assert asker.bodies() == [b"answer"]
    else:
        amqp = AmqpSim(world.broker)
        request = message("question", properties=Properties(reply_to="queue://later", correlation_id="1"))
        amqp.send(amqp.sender("topic://service"), request)
        answering.answer()
        amqp.receiver("queue://later")
        assert amqp.bodies() == ["answer"]
