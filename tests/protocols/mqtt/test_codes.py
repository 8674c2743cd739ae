"""Reason codes: every value in every packet, from either side, in every version."""

from __future__ import annotations

import pytest

from protocols.mqtt.codes import FAILURE, REASONS, RETURN_CODES, V5, V31, V311, PacketType, ReasonCode, Role
from protocols.mqtt.encode import encode
from protocols.mqtt.errors import MqttError
from tests.protocols.mqtt.peer import VERSIONS, block, connected, frame, hello, opened, text
from tests.support.wire import feed

P = PacketType
C, S = Role.CLIENT, Role.SERVER

#: Tables 3-1, 3-4 to 3-11: the codes of each packet, and of them those that one side alone may send.
TABLES: dict[PacketType, tuple[str, str, str]] = {
    P.CONNACK: ("", "", "00 80 81 82 83 84 85 86 87 88 89 8A 8C 90 95 97 99 9A 9B 9C 9D 9F"),
    # 10: a bridge of Mosquitto says it as a client
    P.PUBACK: ("00 10 80 83 87 90 91 97 99", "", ""),
    P.PUBREC: ("00 10 80 83 87 90 91 97 99", "", ""),
    P.PUBREL: ("00 92", "", ""),
    P.PUBCOMP: ("00 92", "", ""),
    P.SUBACK: ("", "", "00 01 02 80 83 87 8F 91 97 9E A1 A2"),
    P.UNSUBACK: ("", "", "00 11 80 83 87 8F 91"),
    # 8C: table 2-6; 9B from a client: 3.3.4
    P.DISCONNECT: ("00 80 81 82 83 90 93 94 95 96 97 98 99 9B", "04", "87 89 8B 8C 8D 8E 8F 9A 9C 9D 9E 9F A0 A1 A2"),
    P.AUTH: ("18", "19", "00"),
}


def codes(packet: PacketType, sender: Role) -> set[int]:
    """By the specification."""
    either, client, server = TABLES[packet]
    return {int(code, 16) for code in f"{either} {client if sender is C else server}".split()}


def test_the_table_is_that_of_the_specification() -> None:
    for packet in TABLES:
        for sender in (C, S):
            found = {code for code, senders in REASONS[V5][packet].items() if sender in senders}
            assert found == codes(packet, sender), (packet, sender)
    assert set(REASONS[V5]) == set(TABLES)
    assert {code for packet in TABLES for sender in (C, S) for code in codes(packet, sender)} == set(ReasonCode)


def body(packet: PacketType, code: int) -> bytes:
    """The fields of a packet with this code."""
    if packet in (P.SUBACK, P.UNSUBACK):
        return b"\0\1\0" + bytes([code])
    if packet is P.CONNACK:
        return bytes([0, code, 0])
    if packet in (P.DISCONNECT, P.AUTH):
        return bytes([code]) + (block(b"\x15" + text("M")) if packet is P.AUTH else b"")
    return b"\0\1" + bytes([code])


@pytest.mark.parametrize("sender", [C, S])
@pytest.mark.parametrize("packet", [packet for packet in TABLES if packet is not P.AUTH])
def test_every_code(packet: PacketType, sender: Role) -> None:
    """MQTT-3.2.2-8, 3.4.2-1, 3.5.2-1, 3.6.2-1, 3.7.2-1, 3.9.3-2, 3.11.3-2, 3.14.2-1: all 256 values."""
    flags = 2 if packet is P.PUBREL else 0
    for code in range(256):
        if packet is P.CONNACK:
            connection = opened(sender.peer)
            if sender is S:
                connection.send(hello(V5))
        else:
            connection = connected(V5, sender.peer)
        found = feed(connection, [frame(packet << 4 | flags, body(packet, code))])
        assert (len(found) == 1) == (code in codes(packet, sender)), hex(code)
        assert (connection.error is None) == bool(found)


@pytest.mark.parametrize("version", [V31, V311])
def test_codes_before_5_0(version: int) -> None:
    """3.1.1: MQTT-3.9.3-2 and table 3.1; 3.1 cannot refuse a subscription."""
    granted = {0, 1, 2} if version == V31 else {0, 1, 2, 0x80}
    for code in range(256):
        found = feed(connected(version, C), [frame(0x90, b"\0\1" + bytes([code]))])
        assert (len(found) == 1) == (code in granted), hex(code)
        connection = opened(C)
        connection.send(hello(version))
        found = feed(connection, [frame(0x20, bytes([0, code]))])
        assert (len(found) == 1) == (code < 6), hex(code)


def test_no_codes_at_all() -> None:
    for version, raw in ((V311, b"\x90\2\0\1"), (V5, b"\x90\3\0\1\0"), (V5, b"\xb0\3\0\1\0")):
        connection = connected(version, C)
        assert feed(connection, [raw]) == []
        assert connection.error is not None
        assert connection.error.reason == ReasonCode.PROTOCOL_ERROR


@pytest.mark.parametrize("reason", [reason for reason in ReasonCode if reason >= FAILURE])
def test_the_answer_to_an_error(reason: ReasonCode) -> None:
    """MQTT-3.2.2-6 of 3.1.1: a refusal that has no return code is silence; 5.0 has a code for each."""
    error = MqttError(reason, "so it is")
    assert error.connack == (reason in codes(P.CONNACK, S))
    assert error.disconnect() == (reason in codes(P.DISCONNECT, S))
    assert error.disconnect(C) == (reason in codes(P.DISCONNECT, C))
    assert error.return_code == RETURN_CODES.get(reason)
    silent = MqttError(reason, "so it is", silent=True)
    assert (silent.connack, silent.disconnect(), silent.return_code) == (False, False, None)
    for version in VERSIONS:
        connection = opened()
        feed(connection, [encode(hello(version), version)])
        connection.send_error(error)
        raw = connection.data_to_send()
        if version == V5:
            reason_string = b"\x1f" + text("so it is")
            assert raw == (frame(0x20, bytes([0, reason]) + block(reason_string)) if error.connack else b"")
        else:
            assert raw == (b"" if error.return_code is None else bytes([0x20, 2, 0, error.return_code]))
        assert connection.close_expected
