"""MQTT beside STOMP and AMQP on the same addresses: paho, stomp.py and Qpid proton."""

from __future__ import annotations

from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes
from proton import Message

from tests.support.daemon import DaemonProcess
from tests.support.links import PATIENCE_S
from tests.support.paho_client import Paho, kept, properties
from tests.support.paho_client import connected as mqtt
from tests.support.proton_client import connected as proton
from tests.support.proton_client import text
from tests.support.stomp_py import DURABLE, connected


def test_a_topic_is_an_address(broker: DaemonProcess) -> None:
    """Whoever publishes, everybody who listens gets it: sensor/1/temp is sensor.1.temp."""
    with (
        connected(broker.port) as stomp,
        proton(broker.ports["amqp"]) as amqp,
        mqtt(broker.ports["mqtt"], "crossing") as client,
    ):
        stomp.subscribe("/topic/sensor.*.temp")
        receiver = amqp.create_receiver("topic://sensor.#", credit=10)
        client.subscribe("sensor/+/temp", 1)

        client.publish("sensor/1/temp", b"21", 1)
        stomp.put("/topic/sensor.2.temp", "22", DURABLE)
        amqp.create_sender("topic://sensor.3.temp").send(Message(body="23", durable=True))

        assert {message.topic: message.payload for message in client.take(3)} == {
            "sensor/1/temp": b"21",
            "sensor/2/temp": b"22",
            "sensor/3/temp": b"23",
        }
        assert sorted(stomp.texts(3)) == ["21", "22", "23"]
        bodies = set()
        for _ in range(3):
            bodies.add(text(receiver.receive(PATIENCE_S)))
            receiver.accept()
        assert bodies == {"21", "22", "23"}


def test_properties_from_mqtt(broker: DaemonProcess) -> None:
    told = properties(
        PacketTypes.PUBLISH,
        PayloadFormatIndicator=1,
        ContentType="text/plain",
        ResponseTopic="answers/here",
        CorrelationData=b"c-1",
        UserProperty=[("colour", "blue"), ("shelf", "3")],
    )
    with (
        connected(broker.port) as stomp,
        proton(broker.ports["amqp"]) as amqp,
        mqtt(broker.ports["mqtt"], "crossing-p") as client,
    ):
        stomp.subscribe("/topic/props.a")
        receiver = amqp.create_receiver("topic://props.a", credit=10)
        client.publish("props/a", "grün", 1, properties=told)
        frame = stomp.take()
        assert frame.text == "grün"
        wanted = {"content-type": "text/plain", "correlation-id": "c-1", "colour": "blue", "shelf": "3"}
        assert wanted.items() <= frame.headers.items()
        assert frame.headers["reply-to"].endswith("answers.here")
        message = receiver.receive(PATIENCE_S)
        receiver.accept()
        assert (message.body, message.content_type, message.durable) == ("grün", "text/plain", True)
        assert message.properties == {"colour": "blue", "shelf": "3"}
        assert message.correlation_id in ("c-1", b"c-1")
        assert message.reply_to.endswith("answers.here")


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_properties_to_mqtt(broker: DaemonProcess, version: str) -> None:
    with (
        connected(broker.port) as stomp,
        proton(broker.ports["amqp"]) as amqp,
        mqtt(broker.ports["mqtt"], f"crossing-t{version}", version) as client,
    ):
        client.subscribe("back/#", 2)
        headers = {"content-type": "text/plain", "correlation-id": "c-2", "reply-to": "/topic/there", "colour": "red"}
        stomp.put("/topic/back.stomp", "hello", {**DURABLE, **headers})
        sender = amqp.create_sender("topic://back.amqp")
        sender.send(
            Message(
                body="hello",
                durable=True,
                content_type="text/plain",
                correlation_id="c-2",
                reply_to="there",
                properties={"colour": "red", "size": 7},
            )
        )
        for message in client.take(2):
            assert (message.payload, message.qos) == (b"hello", 2)
            if version == "5":
                found: Any = message.properties
                assert found.ContentType == "text/plain"
                assert bytes(found.CorrelationData) == b"c-2"
                assert found.ResponseTopic.endswith("there")
                assert ("colour", "red") in found.UserProperty


def test_a_queue_feeds_no_subscription_but_a_durable_one_waits(broker: DaemonProcess) -> None:
    """STOMP sends while the MQTT client is away; what is not durable is not kept for it."""
    with mqtt(broker.ports["mqtt"], "crossing-away", **kept("5")) as client:
        client.subscribe("away/#", 1)
    with connected(broker.port) as stomp:
        for number in range(10):
            stomp.put("/topic/away.a", str(number), DURABLE if number % 2 else {})
    with mqtt(broker.ports["mqtt"], "crossing-away", **kept("5")) as client:
        assert client.payloads(5) == [b"1", b"3", b"5", b"7", b"9"]
    Paho(broker.ports["mqtt"], "crossing-away", "5").leave()


def test_dead_letters_of_mqtt(broker: DaemonProcess) -> None:
    """An expired message of an absent client reaches the expiry address, with its reason."""
    with mqtt(broker.ports["mqtt"], "crossing-dead", **kept("5")) as client:
        client.subscribe("brief/mqtt", 1)
    with mqtt(broker.ports["mqtt"], "crossing-sender") as client, connected(broker.port) as stomp:
        stomp.subscribe("/queue/late", "client-individual")
        told = properties(PacketTypes.PUBLISH, MessageExpiryInterval=1)
        client.publish("brief/mqtt", b"too late", 1, properties=told)
        while (frame := stomp.take()).text != "too late":
            stomp.ack(frame)
        assert frame.headers["_AMQ_DL_REASON"] == "expired"
        stomp.ack(frame)
    Paho(broker.ports["mqtt"], "crossing-dead", "5").leave()


def test_requests_and_answers_between_queues(broker: DaemonProcess) -> None:
    """Each sends to the reply-to as it got it; nobody reads the queue yet, so that its name alone says what it is."""
    with connected(broker.port) as stomp, proton(broker.ports["amqp"]) as amqp:
        stomp.put("/queue/rpc.amqp", "question", {**DURABLE, "reply-to": "/queue/rpc.to.stomp"})
        receiver = amqp.create_receiver("queue://rpc.amqp", credit=1)
        request = receiver.receive(PATIENCE_S)
        receiver.accept()
        amqp.create_sender(request.reply_to).send(Message(body="from proton", durable=True))
        stomp.subscribe("/queue/rpc.to.stomp")
        assert stomp.take().text == "from proton"

        question = Message(body="question", durable=True, reply_to="queue://rpc.to.amqp")
        amqp.create_sender("queue://rpc.stomp").send(question)
        stomp.subscribe("/queue/rpc.stomp")
        stomp.put(stomp.take().headers["reply-to"], "from stomp.py", DURABLE)
        answers = amqp.create_receiver("queue://rpc.to.amqp", credit=1)
        assert text(answers.receive(PATIENCE_S)) == "from stomp.py"
        answers.accept()


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_answers_of_an_mqtt_client(broker: DaemonProcess, kind: str) -> None:
    """A response topic leads to the queue that is there, and to the topic."""
    with (
        connected(broker.port) as stomp,
        proton(broker.ports["amqp"]) as amqp,
        mqtt(broker.ports["mqtt"], f"crossing-r-{kind}") as client,
    ):
        client.subscribe("ask/mqtt", 1)
        stomp.subscribe(f"/{kind}/{kind}.to.stomp")
        stomp.put("/topic/ask.mqtt", "question", {"reply-to": f"/{kind}/{kind}.to.stomp"})
        receiver = amqp.create_receiver(f"{kind}://{kind}.to.amqp", credit=1)
        amqp.create_sender("topic://ask.mqtt").send(Message(body="question", reply_to=f"{kind}://{kind}.to.amqp"))
        for request in client.take(2):
            found: Any = request.properties
            client.publish(found.ResponseTopic, f"for {found.ResponseTopic}", 1)
        assert stomp.take().text == f"for {kind}/to/stomp"
        assert text(receiver.receive(PATIENCE_S)) == f"for {kind}/to/amqp"
        receiver.accept()
