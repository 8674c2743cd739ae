"""Numbered messages over MQTT, published and collected by sessions that last: none may be lost, and none doubled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from protocols.mqtt.codes import PacketType
from protocols.mqtt.packets import Subscribe
from protocols.mqtt.properties import SESSION_EXPIRY_INTERVAL
from tests.support.links import SocketLink
from tests.support.mqtt_client import MqttClient, greeting, wish
from tests.support.mqtt_world import FOR_EVER

#: Messages each way: some hundred milliseconds of a bridge's work, so that a kill comes in the middle.
MESSAGES: Final = 3_000

#: The last one.
END: Final = b"end"

#: Mosquitto keeps what waits for others, all of it, and writes it down as it comes.
KEEPING: Final = ("max_queued_messages 0", "max_inflight_messages 0", "autosave_on_changes true", "autosave_interval 1")


def client(port: int, client_id: str, *filters: str) -> MqttClient:
    """A client whose session lasts."""
    link = SocketLink(port)
    found = MqttClient().over(link)
    try:
        found.connect(greeting(client_id, clean=False, properties=[(SESSION_EXPIRY_INTERVAL, FOR_EVER)]))
        if filters:
            found.send(Subscribe(1, [wish(text, 2) for text in filters]))
            heard(found, lambda: bool(found.others))
    except BaseException:
        link.drop()
        raise
    return found


def heard(client: MqttClient, enough: Callable[[], bool]) -> None:
    """Hear more until it is enough: what has to be durable comes after answers that need not be."""
    client.settle()
    while not enough():
        client.hear(client.link.read)
        client.settle()


def arrived(client: MqttClient, count: int) -> Counter[tuple[str, bytes]]:
    """The topics and payloads of at least so many messages."""
    heard(client, lambda: len(client.arrived) >= count)
    return Counter((each.topic, each.payload) for each in client.take())


def collect(port: int, *filters: str) -> None:
    """Keep from now on what comes on these topics."""
    client(port, "collector", *filters).disconnect()


def collected(port: int, topic: str) -> Counter[bytes]:
    """What has come on a topic, up to the end."""
    collector = client(port, "collector")
    heard(collector, lambda: any(each.payload == END for each in collector.arrived))
    found = Counter(each.payload for each in collector.take() if each.topic == topic)
    collector.disconnect()
    return found


def answered(publisher: MqttClient, kind: PacketType, count: int) -> None:
    """Hear so many acknowledgements."""
    heard(publisher, lambda: sum(each.type is kind for each in publisher.answers) == count)


def publish(port: int, topic: str, qos: int, payloads: list[bytes]) -> None:
    """Publish all of them, and hear that they have been taken."""
    publisher = client(port, "publisher")
    sent = 0
    done = PacketType.PUBACK if qos == 1 else PacketType.PUBCOMP
    for at in range(0, len(payloads), 500):
        some = payloads[at : at + 500]
        publisher.post(topic, some, qos)
        sent += len(some)
        answered(publisher, done, sent)
    publisher.disconnect()


def numbers(count: int = MESSAGES) -> list[bytes]:
    """So many payloads."""
    return [b"%d" % number for number in range(count)]


def check(found: Counter[bytes], qos: int, sent: Sequence[bytes] = ()) -> None:
    """None of what was sent (all numbers and the end, if it is not said) is lost, and with QoS 2 none is doubled."""
    assert set(found) == set(sent or (*numbers(), END))
    assert qos == 1 or set(found.values()) == {1}
