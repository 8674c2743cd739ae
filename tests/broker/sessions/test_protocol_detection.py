"""Who speaks another protocol than the acceptor is recognised by his first bytes."""

from __future__ import annotations

import pytest

from broker.sessions.protocol_detection import FIRST_BYTES, advice, spoken

FIRST = [
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"),
    (b"GET / HTTP/1.1\r\nHost: localhost", "HTTP"),
    (b"CONNECT broker:61613 HTTP/1.1\r\n", "HTTP"),
    (b"AMQP\0\1\0\0", "amqp"),
    (b"AMQP\3\1\0\0", "amqp"),
    (b"AMQP\2\1\0\0", "amqp"),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP"),
    (b"AMQP\0\0\x09\x01", "AMQP 0-9-1"),
    (b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00", "mqtt"),
    (b"\x10\x80\x01\x00\x06MQIsdp\x03\x02\x00\x3c", "mqtt"),
    (b"CONNECT\naccept-version:1.2\n\n\0", "stomp"),
    (b"STOMP\r\nhost:h\r\n\r\n\0", "stomp"),
    (b"\0\0\1\x30\1ActiveMQ\0\0\0\x0c", "OpenWire"),
    (b"ARTEMIS\0\0\0", "Artemis core"),
]


@pytest.mark.parametrize(("first", "protocol"), FIRST)
def test_the_first_bytes_tell(first: bytes, protocol: str) -> None:
    assert spoken(first[:FIRST_BYTES]) == protocol
    assert advice(protocol, ["something else"])
    assert advice(protocol, [protocol]) == ""


@pytest.mark.parametrize("first", [b"", b"\x16", b"\xff" * 16, b"AMQ", b"\n\n\n", b"CONNECTION"])
def test_an_unclear_protocol_is_not_guessed(first: bytes) -> None:
    assert spoken(first) == ""
    assert advice("", ["stomp"]) == ""


def test_messaging_protocols_have_acceptors_of_their_own() -> None:
    assert advice("mqtt", {"stomp", "amqp"}) == "connect to the acceptor for mqtt, or have this one serve it too (also)"
