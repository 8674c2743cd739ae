"""One port for STOMP and AMQP: whoever connects is served as what its first bytes say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from protocols.amqp.performatives import Accepted
from tests.support.amqp_client import AmqpSocket, message
from tests.support.daemon import DaemonProcess, running
from tests.support.links import Lost, RawSocket
from tests.support.stomp_py import DURABLE, connected

SETTINGS = """
[acceptors.http]
protocol = "http"

[acceptors.amqp]
protocol = "amqp"

[acceptors.stomp]
protocol = "stomp"
also = "amqp"
"""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A broker whose STOMP port takes AMQP too."""
    with running(tmp_path_factory.mktemp("broker"), SETTINGS) as broker:
        yield broker


def test_both_protocols_on_one_port(both: DaemonProcess) -> None:
    with connected(both.port) as stomp, AmqpSocket(both.port) as client:
        client.receiver("queue://crossing")
        stomp.subscribe("/queue/back")
        stomp.put("/queue/crossing", "to AMQP", DURABLE)
        assert [delivery.body for delivery in client.take(1)] == [b"to AMQP"], "its content-length says bytes"
        assert client.put(client.sender("queue://back"), message("to STOMP")) == [Accepted()]
        assert stomp.take().text == "to STOMP"


def test_first_bytes_that_come_one_by_one(both: DaemonProcess) -> None:
    with RawSocket(both.port) as wire:
        for byte in b"AMQP\x00\x01\x00\x00":
            wire.raw(bytes([byte]))
        wire.read()
        assert wire.got[:8] == b"AMQP\x00\x01\x00\x00"
    with RawSocket(both.port) as wire:
        for byte in b"CONNECT\naccept-version:1.2\nhost:h\n\n\0":
            wire.raw(bytes([byte]))
        wire.read()
        assert wire.got.startswith(b"CONNECTED\n")


def test_a_protocol_that_is_not_spoken_here_is_in_the_log(both: DaemonProcess) -> None:
    """Also where the session says nothing: MQTT on a port for STOMP and AMQP."""
    for first in (b"\x10\x0c\0\4MQTT\4\2\0\x3c\0\0", b"\x16\3\1\0\5hello", b"AMQP\0\0\x09\1"):
        with RawSocket(both.port) as wire:
            wire.raw(first)
            with suppress(Lost):
                wire.read()
    for speaks in ("mqtt", "TLS", '"AMQP 0-9-1"'):
        both.await_log(f" speaks={speaks} advice=")


@pytest.mark.parametrize(
    "first", [b"\xff" * 20_000, b"GET / HTTP/1.1\r\n\r\n", b"AMQX\x00\x01\x00\x00\n"], ids=["noise", "HTTP", "nearly"]
)
def test_neither(both: DaemonProcess, first: bytes) -> None:
    with RawSocket(both.port) as wire:
        wire.raw(first)
        wire.rest()
