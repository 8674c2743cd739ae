"""Connections in the states that tests begin with, and packets by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from protocols.mqtt.codes import V5, V31, V311, PacketType, Role
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.encode import encode
from protocols.mqtt.errors import MqttError
from protocols.mqtt.limits import Limits
from protocols.mqtt.packets import Ack, Auth, Connack, Connect, Packet, Publish
from protocols.mqtt.properties import AUTHENTICATION_METHOD, Properties
from protocols.mqtt.runs import Shared
from tests.support.wire import feed

VERSIONS: Final = (V31, V311, V5)
BOTH: Final = (Role.CLIENT, Role.SERVER)


def frame(first: int, body: bytes) -> bytes:
    """A packet by hand, however wrong: its first byte, its length, its fields."""
    length, rest = [], len(body)
    while True:
        rest, digit = divmod(rest, 128)
        length.append(digit | (128 if rest else 0))
        if not rest:
            return bytes([first, *length]) + body


def text(value: str | bytes) -> bytes:
    """A string with its length."""
    raw = value.encode() if isinstance(value, str) else value
    return len(raw).to_bytes(2, "big") + raw


def block(*properties: bytes) -> bytes:
    """Properties with their length, which is below 128."""
    raw = b"".join(properties)
    assert len(raw) < 128
    return bytes([len(raw)]) + raw


def connect_body(version: int, flags: int = 2, payload: bytes = b"\0\x01c", properties: bytes = b"\0") -> bytes:
    """The fields of a CONNECT by hand."""
    name = {V31: "MQIsdp", V311: "MQTT", V5: "MQTT"}[version]
    return text(name) + bytes([version, flags]) + b"\0\x3c" + (properties if version == V5 else b"") + payload


def hello(version: int, *properties: tuple[Any, Any], **more: Any) -> Connect:
    """A CONNECT."""
    return Connect(version, "c", properties=Properties(properties), **more)


def opened(role: Role = Role.SERVER, limits: Limits | None = None) -> MqttConnection:
    """Nothing was said yet."""
    return MqttConnection(Shared(role) if limits is None else Shared(role, limits))


def connected(
    version: int,
    role: Role = Role.SERVER,
    limits: Limits | None = None,
    connect: Connect | None = None,
    connack: Connack | None = None,
) -> MqttConnection:
    """A connection on which CONNECT was answered."""
    connection = opened(role, limits)
    connect = hello(version) if connect is None else connect
    connack = Connack() if connack is None else connack
    if role is Role.SERVER:
        assert feed(connection, [encode(connect, version)]) == [connect]
        assert connection.send(connack)
        assert connection.data_to_send()
        return connection
    assert connection.send(connect)
    assert connection.data_to_send()
    method = connect.properties.get(AUTHENTICATION_METHOD)
    if method is not None:
        connack = replace(connack, properties=Properties([(AUTHENTICATION_METHOD, method), *connack.properties]))
    assert feed(connection, [encode(connack, version)]) == [connack]
    return connection


def maker(version: int, role: Role = Role.SERVER, limits: Limits | None = None) -> Callable[[], MqttConnection]:
    """Makes such connections."""
    return lambda: connected(version, role, limits)


def authenticating(role: Role = Role.SERVER, method: str = "M") -> MqttConnection:
    """A connection on which CONNECT named a method."""
    connection = opened(role)
    connect = hello(V5, (AUTHENTICATION_METHOD, method))
    if role is Role.SERVER:
        feed(connection, [encode(connect, V5)])
    else:
        connection.send(connect)
        connection.data_to_send()
    return connection


def auth(reason_code: int, method: str = "M") -> Auth:
    """An AUTH."""
    return Auth(reason_code, Properties([(AUTHENTICATION_METHOD, method)]))


def show(packet: Packet) -> object:
    """A packet as a value that can be compared; a run packet by packet."""
    if isinstance(packet, Publish):
        ids = packet.packet_ids or [0] * len(packet.topics)
        shared = (packet.qos, packet.retain, packet.dup, packet.properties.raw)
        return [(*shared, *one) for one in zip(packet.topics, ids, packet.payloads, strict=True)]
    if isinstance(packet, Ack):
        return [(packet.type, one, packet.reason_code, packet.properties.raw) for one in packet.packet_ids]
    return packet


def shown(packets: list[Packet]) -> list[object]:
    """Packets as values, the runs taken apart."""
    found: list[object] = []
    for packet in packets:
        one = show(packet)
        found += one if isinstance(one, list) else [one]
    return found


def failure(connection: MqttConnection) -> MqttError | None:
    """What was wrong; a function, since it changes between two looks."""
    return connection.error


def sent(connection: MqttConnection, version: int, role: Role = Role.SERVER) -> list[object]:
    """What `connection`, which has this role, has to say, read by its peer."""
    reader = connected(version, role.peer, Limits(packet_bytes_max=1 << 20))
    packets = feed(reader, [connection.data_to_send()])
    assert reader.error is None
    return shown(packets)


def of_type(packet: PacketType) -> int:
    """The first byte of a packet without flags."""
    return packet << 4
