"""Topic aliases that are sent: to clients that take them, as many as they take, where they save something."""

from __future__ import annotations

from typing import Final

from protocols.mqtt.codes import V5, Role
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.encode import PublishHead
from protocols.mqtt.limits import Limits
from protocols.mqtt.packets import Publish
from protocols.mqtt.properties import CONTENT_TYPE, MAXIMUM_PACKET_SIZE, TOPIC_ALIAS_MAXIMUM, Properties
from tests.protocols.mqtt.peer import connected, hello, text
from tests.support.wire import feed

C: Final = Role.CLIENT

LONG, OTHER = "sensors/kitchen/temperature", "sensors/cellar/humidity"


def aliasing(maximum: int, limits: Limits | None = None, size: int | None = None) -> MqttConnection:
    """A server whose client takes aliases."""
    properties = [(TOPIC_ALIAS_MAXIMUM, maximum)]
    more = [] if size is None else [(MAXIMUM_PACKET_SIZE, size)]
    return connected(V5, limits=limits, connect=hello(V5, *properties, *more))


def client_reading(maximum: int) -> MqttConnection:
    """The client, which has announced them."""
    return connected(V5, C, limits=Limits(topic_alias_max=maximum))


def told(server: MqttConnection, client: MqttConnection) -> tuple[list[object], int]:
    """Topics and payloads that arrive, and the bytes they took."""
    raw = server.data_to_send()
    found = feed(client, [raw])
    assert client.error is None
    pairs = [pair for run in found if isinstance(run, Publish) for pair in zip(run.topics, run.payloads, strict=True)]
    return list(pairs), len(raw)


def test_aliases_are_used_as_far_as_the_client_takes_them() -> None:
    """MQTT-3.1.2-26, MQTT-3.3.2-11: a third topic goes without."""
    server, client = aliasing(2), client_reading(2)
    for round in range(3):
        sizes = []
        for topic in (LONG, OTHER, LONG + "/3"):
            for qos in (0, 1):
                server.send_publish(PublishHead(V5, topic, qos=qos), [b"x", b"y"], [1, 2] if qos else [])
                pairs, size = told(server, client)
                assert pairs == [(topic, b"x"), (topic, b"y")]
                sizes.append(size)
        assert sizes[5] > 2 * len(LONG)
        assert (sizes[0] > len(LONG)) == (round == 0)
        assert max(sizes[1], sizes[3]) < len(OTHER)


def test_aliases_keep_the_properties() -> None:
    server, client = aliasing(1), client_reading(1)
    typed = Properties([(CONTENT_TYPE, "text/plain")]).raw
    for _ in range(2):
        server.send_publish(PublishHead(V5, LONG, properties=typed), [b"x"])
        [run] = feed(client, [server.data_to_send()])
        assert isinstance(run, Publish)
        assert run.properties.get(CONTENT_TYPE) == "text/plain"


def test_no_aliases_where_none_are_taken() -> None:
    """MQTT-3.1.2-27; our own limit counts too, and short topics are not worth one."""
    for server, topic in ((connected(V5), LONG), (aliasing(9, Limits(topic_alias_max=0)), LONG), (aliasing(9), "a/b")):
        server.send_publish(PublishHead(V5, topic), [b"x"] * 2)
        raw = server.data_to_send()
        assert raw.count(text(topic)) == 2
        assert b"\x03\x23\0\1" not in raw


def test_an_alias_waits_for_a_message_that_has_room_for_it() -> None:
    head = PublishHead(V5, LONG)
    room = head.packet_bytes(b"x" * 10)
    server, client = aliasing(1, size=room), client_reading(1)
    for payload, introduced in ((b"x" * 10, False), (b"x" * 7, True), (b"x" * 10, True)):
        assert server.send_publish(head, [payload]) == []
        pairs, size = told(server, client)
        assert pairs == [(LONG, payload)]
        assert size <= room
        assert (server._aliases is not None and server._aliases.numbers == {LONG: 1}) == introduced


def test_nothing_to_send() -> None:
    server = aliasing(1)
    assert server.send_publish(PublishHead(V5, LONG), []) == []
    assert server.data_to_send() == b""
