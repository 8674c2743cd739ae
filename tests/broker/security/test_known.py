"""Vulnerabilities of other brokers, by their numbers, tried on this one; docs/dev/reliability-evidence.md has them all.

What has its test elsewhere (memory before the login, denials, fuzzing) is not here again.
"""

from __future__ import annotations

import ast
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from websockets.client import ClientProtocol
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.http11 import Response
from websockets.uri import parse_uri

from broker.engine.model.permissions import Permission, PermissionTable
from broker.sessions.websocket.session import WebSocketSession
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.frames import AMQP_HEADER
from protocols.mqtt.codes import V5, V311
from protocols.mqtt.encode import encode
from protocols.mqtt.packets import Connack
from protocols.stomp.connection import StompConnection
from tests.broker.security.verbs import NAME, PASSWORD, TOPIC, P, mqtt, permissions, prepared, restrict, stomp
from tests.broker.sessions.inner import Inner
from tests.protocols.mqtt.peer import connect_body, connected, frame, opened
from tests.protocols.stomp.peer import connected as stomp_connected
from tests.support.mqtt_client import MqttClient, greeting
from tests.support.mqtt_world import SimCarrier
from tests.support.tidy import ROOT

#: Rooms that see what others have sent.
EXPOSED = ("protocols", "store", "broker/sessions", "broker/engine", "broker/management", "broker/net")


def refused(codec: Any, data: bytes) -> None:
    """The codec ends its connection over these bytes, without an event."""
    codec.receive_data(data)
    assert codec.events() == []
    assert codec.error is not None


def calls(room: str) -> Iterator[tuple[Path, str, ast.Call]]:
    """All calls by name."""
    for path in (ROOT / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                yield path, node.func.id, node


@pytest.mark.parametrize("room", EXPOSED)
def test_cve_2023_46604_nothing_is_built_from_what_is_sent(room: str) -> None:
    """ActiveMQ made an object of the class that a packet named."""
    for path, name, node in calls(room):
        assert name not in ("eval", "exec", "__import__", "import_module"), f"{path}:{node.lineno}"
    for path in (ROOT / room).rglob("*.py"):
        for each in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in each.names] if isinstance(each, ast.Import) else []
            names += [str(each.module)] if isinstance(each, ast.ImportFrom) else []
            assert not {"pickle", "marshal", "shelve", "importlib"} & {name.split(".")[0] for name in names}, path


@pytest.mark.parametrize("first", range(0x10, 0x100, 0x10))
def test_cve_2025_66168_a_length_of_five_bytes_ends_the_connection(first: int) -> None:
    """And CVE-2026-40046: ActiveMQ read on in the middle of a packet.  A sixth of NanoMQ's kind: the same in MQTT 5."""
    flags = {0x60: 2, 0x80: 2, 0xA0: 2}.get(first, 0)
    for codec in (opened(), connected(V311), connected(V5)):
        refused(codec, bytes([first | flags]) + b"\xff\xff\xff\xff\x01" + b"\xc0\0" * 20)


@pytest.mark.parametrize("block", [b"\x80\x80\x80\x80\0", b"\xff\xff\xff\xff\x7f", b"\x80", b"\x7f"])
def test_cve_2026_21888_a_length_of_properties_that_cannot_be(block: bytes) -> None:
    """NanoMQ: too long, or more than the packet has."""
    for codec, packet in (
        (opened(), frame(0x10, connect_body(5, properties=block))),
        (connected(V5), frame(0x30, b"\0\1a" + block)),
        (connected(V5), frame(0x82, b"\0\1" + block + b"\0\1a\0")),
        (connected(V5), frame(0x40, b"\0\1\0" + block)),
        (connected(V5), frame(0xE0, b"\0" + block)),
    ):
        refused(codec, packet)


def _read(made: Callable[[], Any], data: bytes) -> None:
    codec = made()
    codec.receive_data(data)
    codec.events()


def _amqp() -> AmqpConnection:
    codec = AmqpConnection(container_id="s")
    codec.receive_data(AMQP_HEADER)
    return codec


_stomp, _mqtt = partial(stomp_connected, "1.2"), partial(connected, V5)


@pytest.mark.parametrize(
    ("made", "data"),
    [
        (_stomp, b"SEND\ndestination:a\ncontent-length:10485760\n\nx"),
        (_stomp, b"SEND\ndestination:a\ncontent-length:99999999999999999999\n\nx"),
        (_mqtt, b"\x30\x80\x80\x80\x05\0\1ax"),
        (_mqtt, b"\x30\xff\xff\xff\x7f\0\1ax"),
        (_amqp, b"\x7f\xff\xff\xff\2\0\0\0"),
        (_amqp, b"\0\0\0\x20\2\0\0\0\0\x53\x10\xd0\x7f\xff\xff\xff\x7f\xff\xff\xff\xb1\x7f\xff\xff\xff\0\0\0\0\0\0\0"),
        (_amqp, b"\0\0\0\x20\2\0\0\0\0\x53\x10\xf0\x7f\xff\xff\xff\x7f\xff\xff\xff\x40\0\0\0\0\0\0\0\0\0\0\0"),
    ],
    ids=["stomp", "stomp too much", "mqtt", "mqtt too much", "amqp frame", "amqp list", "amqp array"],
)
def test_cve_2019_0222_a_length_takes_no_memory_before_its_bytes_are_there(
    made: Callable[[], Any], data: bytes
) -> None:
    """And CVE-2025-27533: ActiveMQ allocated what a frame announced."""
    _read(made, data)  # what is made once
    tracemalloc.start()
    try:
        _read(made, data)
        assert tracemalloc.get_traced_memory()[1] < 256 << 10
    finally:
        tracemalloc.stop()


def test_cve_2026_27571_compression_is_never_agreed_to() -> None:
    """NATS inflated what somebody unknown had sent."""
    session = WebSocketSession({"mqtt": Inner}, connect_bytes_max=8 << 10)
    client = ClientProtocol(
        parse_uri("ws://h/"),
        subprotocols=["mqtt"],  # type: ignore[list-item]
        extensions=[ClientPerMessageDeflateFactory()],
    )
    client.send_request(client.connect())
    session.receive_data(b"".join(client.data_to_send()))
    client.receive_data(session.data_to_send())
    [response] = client.events_received()
    assert isinstance(response, Response)
    assert response.status_code == 101
    assert "Sec-WebSocket-Extensions" not in response.headers
    session.receive_data(b"\xc2\x80\0\0\0\0")  # a frame that says it is compressed
    assert session.close_expected


def test_cve_2023_28366_qos_2_with_the_same_id_leaks_nothing() -> None:
    """Mosquitto kept each of many QoS 2 messages with one packet id."""
    broker = prepared()
    reader = mqtt(broker)
    reader.subscribe("t")
    sender = MqttClient(auto=False)
    sender.over(SimCarrier(broker))
    sender.connect(greeting("sender", user_name=NAME, password=PASSWORD.encode()))
    for number in range(50):
        sender.raw(frame(0x3C if number else 0x34, b"\0\1t\0\7\0%d" % number))
        sender.settle()
    reader.settle()
    assert reader.payloads() == [b"0"]


def test_cve_2023_0809_a_large_first_packet_that_is_no_connect_is_not_waited_for() -> None:
    """Mosquitto took 256 MiB for it."""
    codec = opened()
    refused(codec, b"\x30\xff\xff\xff\x7f")


def test_mosquitto_2_0_10_connack_from_a_client() -> None:
    """CVE-2021-28166: a broker that got a CONNACK crashed."""
    for codec in (opened(), connected(V5), connected(V311)):
        refused(codec, encode(Connack(0), V5))


def test_cve_2018_12551_and_12550_nothing_written_permits_nothing() -> None:
    """Mosquitto: a blank line of the password file was a user, an empty access list permitted everything."""
    rights = PermissionTable([]).rights(NAME, "c")
    assert not any(rights.grants(frozenset({"amq"}), each, "a") for each in Permission)
    assert not any(rights.grants_reading(frozenset({"amq"}), each, "#") for each in Permission)


def test_a_right_that_is_taken_away_ends_the_subscription_of_who_is_away() -> None:
    """In Mosquitto a durable subscription outlived the permission."""
    broker = prepared()
    restrict(broker, permissions(P.CONSUME))
    sender = stomp(broker)
    sender.confirmed(f"/topic/{TOPIC}", b"secret")
    client = stomp(broker)
    client.subscribe(f"/topic/{TOPIC}", durable_subscription_name="kept")
    assert not client.messages()
    [error] = client.take("ERROR")
    assert error.headers["message"] == "permission denied"
    other = mqtt(broker, clean=False)
    assert other.payloads() == []


def test_mosquitto_1_6_6_many_levels_are_refused_before_they_are_matched() -> None:
    """A topic of 65,535 slashes overflowed its stack."""
    codec = connected(V5)
    refused(codec, frame(0x30, len(b"/" * 60_000).to_bytes(2) + b"/" * 60_000 + b"\0x"))
    broker = prepared()
    client = stomp(broker)
    client.subscribe("/topic/deep.#", "d")
    client.do("SEND", {"destination": "/topic/deep" + ".x" * 5_000}, b"x")
    assert b"longer than" in client.take("ERROR")[0].body


def test_cve_2015_0203_frames_in_an_order_that_cannot_be_end_their_connection_only() -> None:
    """Qpid's broker aborted."""
    for raw in (
        b"\0\0\0\x0c\2\0\0\0\0\x53\x14\x45",
        b"\0\0\0\x0c\2\0\0\0\0\x53\x17\x45",
        b"\0\0\0\x0c\2\0\0\x07\0\x53\x11\x45",
    ):
        codec = AmqpConnection(container_id="s")
        codec.receive_data(AMQP_HEADER + raw)
        while codec.events():
            pass
        assert codec.error is not None


def test_activemq_2026_headers_count_in_the_limit_of_a_frame() -> None:
    """Its limit looked at bodies only."""
    codec = StompConnection()
    codec.receive_data(b"CONNECT\n" + b"a:b\n" * 100_000)
    codec.events()
    assert codec.error is not None
    codec = stomp_connected("1.2")
    codec.receive_data(b"SEND\n" + b"a:b\n" * 100_000)
    codec.events()
    assert codec.error is not None
