"""Real clients against a toy server on the codec, over sockets: what the field sends is taken, and the other way round.

The server keeps one session and echoes: what is published goes to whoever has subscribed to exactly that topic.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiomqtt
import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.subscribeoptions import SubscribeOptions

from protocols.mqtt.codes import V5, V31, V311, PacketType
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.encode import PublishHead
from protocols.mqtt.inflight import Incoming, Outgoing, PacketIds
from protocols.mqtt.packets import (
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from protocols.mqtt.properties import (
    CONTENT_TYPE,
    RECEIVE_MAXIMUM,
    SESSION_EXPIRY_INTERVAL,
    SUBSCRIPTION_IDENTIFIER,
    TOPIC_ALIAS,
    USER_PROPERTY,
    Properties,
)
from protocols.mqtt.runs import Shared

P = PacketType
WAIT_S = 20


class ToyServer(asyncio.Protocol):
    """One connection of a server that does what MQTT asks for, and no more."""

    def __init__(self, shared: Shared, heard: list[Packet]) -> None:
        self.codec = MqttConnection(shared)
        self.heard = heard
        self.subscribed: dict[str, tuple[int, list[int]]] = {}
        self.outgoing: Outgoing[str] = Outgoing(PacketIds())
        self.incoming = Incoming()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Read, answer, write."""
        codec = self.codec
        codec.receive_data(data)
        while packets := codec.events():
            for packet in packets:
                self.heard.append(packet)
                self.answer(packet)
        if codec.error is not None:
            codec.send_error(codec.error)
        self.transport.write(codec.data_to_send())
        if codec.close_expected:
            self.transport.close()

    def answer(self, packet: Packet) -> None:
        """What the specification says."""
        codec = self.codec
        if isinstance(packet, Connect):
            self.outgoing.connected(packet.properties.get(RECEIVE_MAXIMUM) or 65_535)
            codec.send(Connack())
        elif isinstance(packet, Publish):
            self.on_publish(packet)
        elif isinstance(packet, Ack):
            self.on_ack(packet)
        elif isinstance(packet, Subscribe):
            identifiers = packet.properties.get_all(SUBSCRIPTION_IDENTIFIER)
            for one in packet.subscriptions:
                self.subscribed[one.filter.text] = one.qos, identifiers
            codec.send(Suback(packet.packet_id, [one.qos for one in packet.subscriptions]))
        elif isinstance(packet, Unsubscribe):
            codes = [0 if self.subscribed.pop(one.text, None) else 0x11 for one in packet.filters]
            codec.send(Unsuback(packet.packet_id, codes if codec.version == V5 else []))
        elif isinstance(packet, Pingreq):
            codec.send(Pingresp())
        elif isinstance(packet, Disconnect):
            self.transport.close()

    def on_publish(self, packet: Publish) -> None:
        """Acknowledge and echo."""
        repeated = self.incoming.receive(packet.qos, packet.packet_ids) if packet.qos else []
        if packet.qos == 1:
            self.codec.send(Ack(P.PUBACK, packet.packet_ids))
            self.incoming.acknowledged(len(packet.packet_ids))
        elif packet.qos == 2:
            self.codec.send(Ack(P.PUBREC, packet.packet_ids))
        for at, (topic, payload) in enumerate(zip(packet.topics, packet.payloads, strict=True)):
            if at not in repeated and topic in self.subscribed:
                self.echo(topic, payload, packet)

    def echo(self, topic: str, payload: bytes, packet: Publish) -> None:
        """To the subscription of just this topic."""
        most, identifiers = self.subscribed[topic]
        qos = min(packet.qos, most)
        own = [(SUBSCRIPTION_IDENTIFIER, identifier) for identifier in identifiers]
        properties = Properties([*packet.properties.without(TOPIC_ALIAS), *own]).raw
        head = PublishHead(self.codec.version, topic, qos=qos, properties=properties)
        self.codec.send_publish(head, [payload], self.outgoing.send([topic], qos) if qos else [])

    def on_ack(self, packet: Ack) -> None:
        """The four packets of QoS 1 and 2."""
        if packet.type is P.PUBREL:
            unknown = self.incoming.release(packet.packet_ids)
            assert not unknown
            self.codec.send(Ack(P.PUBCOMP, packet.packet_ids))
            self.incoming.completed(packet.packet_ids)
            return
        outcome = self.outgoing.acknowledge(packet.type, packet.packet_ids)
        assert not outcome.unknown
        if outcome.release:
            self.codec.send(Ack(P.PUBREL, outcome.release))


@contextmanager
def serving() -> Iterator[tuple[int, list[Packet]]]:
    """A toy server in a thread: its port, and what it hears."""
    heard: list[Packet] = []
    shared = Shared()
    loop = asyncio.new_event_loop()
    started: queue.Queue[asyncio.Server] = queue.Queue()

    def run() -> None:
        asyncio.set_event_loop(loop)
        server = loop.run_until_complete(loop.create_server(lambda: ToyServer(shared, heard), "127.0.0.1", 0))
        started.put(server)
        loop.run_forever()
        server.close()
        loop.run_until_complete(server.wait_closed())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    server = started.get(timeout=WAIT_S)
    try:
        yield server.sockets[0].getsockname()[1], heard
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT_S)
        assert not thread.is_alive()


def paho_properties(packet: int) -> Any:
    """Properties that paho sends."""
    return PahoProperties(packet)  # type: ignore[no-untyped-call]


def paho_client(version: int, **more: Any) -> tuple[paho.Client, queue.Queue[Any]]:
    """A client that puts all that happens into a queue."""
    protocol = {V31: paho.MQTTv31, V311: paho.MQTTv311, V5: paho.MQTTv5}[version]
    client = paho.Client(CallbackAPIVersion.VERSION2, "paho", protocol=protocol, **more)
    happened: queue.Queue[Any] = queue.Queue()
    client.on_connect = lambda c, u, flags, code, properties: happened.put(("connect", code.value))
    client.on_subscribe = lambda c, u, mid, codes, properties: happened.put(
        ("subscribe", [code.value for code in codes])
    )
    client.on_unsubscribe = lambda c, u, mid, codes, properties: happened.put(("unsubscribe",))
    client.on_message = lambda c, u, message: happened.put(message)
    client.on_publish = lambda c, u, mid, code, properties: happened.put(("publish", mid))
    client.on_disconnect = lambda c, u, flags, code, properties: happened.put(("disconnect", code.value))
    return client, happened


def messages_of(happened: queue.Queue[Any], count: int, acknowledged: int) -> list[paho.MQTTMessage]:
    """So many messages and acknowledgements, in whatever order they mix."""
    found: list[paho.MQTTMessage] = []
    while len(found) < count or acknowledged:
        event = happened.get(timeout=WAIT_S)
        if isinstance(event, paho.MQTTMessage):
            found.append(event)
        else:
            assert event[0] == "publish"
            acknowledged -= 1
    return found


@pytest.mark.parametrize("version", [V31, V311, V5])
def test_paho(version: int) -> None:
    """Each packet that paho has, with all QoS, through a whole life."""
    with serving() as (port, heard):
        client, happened = paho_client(version)
        client.username_pw_set("joe", "sécret")
        client.will_set("last/words", b"\0gone", qos=2, retain=True)
        client.connect("127.0.0.1", port, keepalive=60)
        client.loop_start()
        assert happened.get(timeout=WAIT_S) == ("connect", 0)
        client.subscribe([("größe/🐎", 2), ("a", 1)])
        assert happened.get(timeout=WAIT_S) == ("subscribe", [2, 1])
        for number in range(30):
            client.publish("größe/🐎", b"%d" % number, qos=number % 3)
        received = messages_of(happened, 30, 30)
        for qos in range(3):
            mine = [int(message.payload) for message in received if message.qos == qos]
            assert mine == list(range(qos, 30, 3))
        client.publish("a", b"x" * 200_000, qos=2)
        [large] = messages_of(happened, 1, 1)
        assert (large.qos, len(large.payload)) == (1, 200_000)
        client.unsubscribe(["a", "nothing"])
        assert happened.get(timeout=WAIT_S)[0] == "unsubscribe"
        client.disconnect()
        assert happened.get(timeout=WAIT_S) == ("disconnect", 0)
        client.loop_stop()
    connect = heard[0]
    assert isinstance(connect, Connect)
    assert (connect.version, connect.client_id, connect.user_name) == (version, "paho", "joe")
    assert connect.password == "sécret".encode()
    assert connect.will is not None
    assert (connect.will.topic, connect.will.payload, connect.will.qos, connect.will.retain) == (
        "last/words",
        b"\0gone",
        2,
        True,
    )
    assert heard[-1] == Disconnect()


def test_paho_with_properties() -> None:
    """What 5.0 adds: properties both ways, subscription options and identifiers, aliases both ways, reasons."""
    with serving() as (port, heard):
        client, happened = paho_client(V5)
        hello = paho_properties(PacketTypes.CONNECT)
        hello.SessionExpiryInterval = 3600
        hello.TopicAliasMaximum = 0
        hello.ReceiveMaximum = 20
        hello.UserProperty = ("k", "1")
        client.connect("127.0.0.1", port, properties=hello, clean_start=False)
        client.loop_start()
        assert happened.get(timeout=WAIT_S) == ("connect", 0)
        wanted = paho_properties(PacketTypes.SUBSCRIBE)
        wanted.SubscriptionIdentifier = 4711
        client.subscribe("a/b", options=SubscribeOptions(1, True, True, 2), properties=wanted)
        assert happened.get(timeout=WAIT_S) == ("subscribe", [1])
        for topic in ("a/b", ""):
            told = paho_properties(PacketTypes.PUBLISH)
            told.ContentType = "text/plain"
            told.UserProperty = [("k", "1"), ("k", "0")]
            told.CorrelationData = b"\0\xff"
            told.ResponseTopic = "a/answers"
            told.MessageExpiryInterval = 1 << 31
            told.PayloadFormatIndicator = 1
            told.TopicAlias = 3
            client.publish(topic, "größer", qos=1, properties=told)
        for message in messages_of(happened, 2, 2):
            assert message.topic == "a/b"
            properties: Any = message.properties
            assert properties.json() == {
                "ContentType": "text/plain",
                "UserProperty": [("k", "1"), ("k", "0")],
                "CorrelationData": b"\0\xff".hex(),
                "ResponseTopic": "a/answers",
                "MessageExpiryInterval": 1 << 31,
                "PayloadFormatIndicator": 1,
                "SubscriptionIdentifier": [4711],
            }
        client.disconnect()
        assert happened.get(timeout=WAIT_S) == ("disconnect", 0)
        client.loop_stop()
    connect, subscribe = heard[0], heard[1]
    assert isinstance(connect, Connect)
    assert not connect.clean_start
    assert connect.properties.get(SESSION_EXPIRY_INTERVAL) == 3600
    assert connect.properties.get_all(USER_PROPERTY) == [("k", "1")]
    assert isinstance(subscribe, Subscribe)
    [one] = subscribe.subscriptions
    assert (one.qos, one.no_local, one.retain_as_published, one.retain_handling) == (1, True, True, 2)
    publishes = [packet for packet in heard if isinstance(packet, Publish)]
    assert all(packet.properties.get(CONTENT_TYPE) == "text/plain" for packet in publishes)


def test_paho_is_told_why() -> None:
    """A topic alias above the maximum: DISCONNECT 0x94, as paho reads it."""
    with serving() as (port, _):
        client, happened = paho_client(V5)
        client.connect("127.0.0.1", port)
        client.loop_start()
        assert happened.get(timeout=WAIT_S) == ("connect", 0)
        told = paho_properties(PacketTypes.PUBLISH)
        told.TopicAlias = 9999
        client.publish("a", "x", properties=told)
        while (event := happened.get(timeout=WAIT_S))[0] == "publish":
            pass
        assert event == ("disconnect", 0x94)
        client.disconnect()
        client.loop_stop()


@pytest.mark.parametrize(
    "version", [aiomqtt.ProtocolVersion.V31, aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5]
)
def test_aiomqtt(version: aiomqtt.ProtocolVersion) -> None:
    """The asyncio client, echoing to itself."""

    async def talk(port: int) -> list[tuple[str, bytes, int]]:
        found: list[tuple[str, bytes, int]] = []
        async with aiomqtt.Client("127.0.0.1", port, identifier="aio", protocol=version, timeout=WAIT_S) as client:
            await client.subscribe("a/b", qos=2)
            for number in range(9):
                await client.publish("a/b", b"%d" % number, qos=number % 3)
            async for message in client.messages:
                assert isinstance(message.payload, bytes)
                found.append((str(message.topic), message.payload, message.qos))
                if len(found) == 9:
                    break
        return found

    with serving() as (port, heard):
        found = asyncio.run(asyncio.wait_for(talk(port), WAIT_S))
    assert sorted(found, key=lambda one: one[1]) == [("a/b", b"%d" % number, number % 3) for number in range(9)]
    assert heard[-1] == Disconnect()
