"""Conversations of a connection that is told anything at all: what the property tests and the fuzzers share."""

from __future__ import annotations

from protocols.mqtt.codes import V5, Role
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.errors import MqttError
from protocols.mqtt.limits import Limits
from protocols.mqtt.packets import Auth, Connack, Connect, Packet
from protocols.mqtt.state import State
from tests.protocols.mqtt.peer import connected, hello, opened, shown

LIMITS = Limits(
    packet_bytes_max=300,
    connect_bytes_max=150,
    client_id_bytes_max=30,
    topic_bytes_max=30,
    topic_levels_max=4,
    filters_max=3,
    properties_bytes_max=100,
    user_properties_max=2,
    topic_alias_max=3,
)
C, S = Role.CLIENT, Role.SERVER

TOKENS = [
    b"\x30\x04\0\1ax",
    b"\x30\x05\0\1a\0x",
    b"\x32\x07\0\1a\0\1\0x",
    b"\x30\x08\0\1a\3\x23\0\1x",
    b"\x30\x07\0\0\3\x23\0\1x",
    b"\x40\2\0\1",
    b"\x40\2\0\2\x40\2\0\3",
    b"\x62\4\0\1\0\0",
    b"\x82\6\0\1\0\1a\0",
    b"\x82\7\0\1\0\0\1a\0",
    b"\xa2\5\0\1\0\1a",
    b"\xc0\0",
    b"\xd0\0",
    b"\xe0\0",
    b"\xf0\6\x18\4\x15\0\1M",
    b"\xf0\6\x19\4\x15\0\1M",
    b"\x10\x0d\0\4MQTT\4\2\0\0\0\1c",
    b"\x10\x0e\0\4MQTT\5\2\0\0\0\0\1c",
    b"\x20\2\0\0",
    b"\x20\3\0\0\0",
    b"\0",
    b"\xff",
    b"\x80",
    b"\x7f",
    b"#",
    b"\x26\0\1k\0\1v",
    b"x" * 40,
    b"\x30\xff\xff\xff\x7f",
]


def bounded(connection: MqttConnection, read_bytes: int) -> None:
    """What is kept is below the limits and one read."""
    kept = len(connection._reader)
    assert kept <= LIMITS.packet_bytes_max + read_bytes


def react(connection: MqttConnection, found: list[Packet]) -> None:
    """Do as a session does, so that the conversation goes on."""
    if not found:
        return
    if isinstance(found[-1], Connect) and connection.state is State.ANSWERING:
        connection.send(Connack())
    elif connection.state is State.AUTHENTICATING:
        connection.send(Auth(0x18) if isinstance(found[-1], Connect) else Connack())
    elif connection.state is State.REAUTHENTICATING:
        connection.send(Auth(0))
    connection.data_to_send()


def converse(connection: MqttConnection, pieces: list[bytes]) -> tuple[list[object], object]:
    """Read some pieces; the packets and the reason of the error."""
    packets: list[Packet] = []
    for piece in pieces:
        connection.receive_data(piece)
        while found := connection.events():
            packets += found
            react(connection, found)
        bounded(connection, len(piece))
    connection.receive_eof()
    packets += connection.events()
    error = connection.error
    assert error is None or isinstance(error, MqttError)
    if error is not None:
        assert error.sentence.isprintable()
        connection.send_error(error)
        assert connection.data_to_send()[:1] in (b"", b"\x20", b"\xe0")
        assert connection.close_expected
    return shown(packets), None if error is None else error.reason


def begin(version: int | None, role: Role = S) -> MqttConnection:
    """A connection of a version, or one that has not begun."""
    if version is not None:
        return connected(version, role, LIMITS)
    connection = opened(role, LIMITS)
    if role is C:
        connection.send(hello(V5))
        connection.data_to_send()
    return connection
