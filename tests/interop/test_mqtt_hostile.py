"""MQTT peers that do wrong, or nothing: they cost themselves, nobody else (promises P5, P6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from protocols.mqtt.encode import encode
from tests.support.daemon import DaemonProcess, running
from tests.support.links import RawSocket
from tests.support.mqtt_client import greeting
from tests.support.mqtt_world import SocketWorld

MIB: Final = 1 << 20
CONNECT: Final = encode(greeting("culprit", keep_alive=60), 5)

#: What is sent first, or after CONNECT; every one of these ends the connection.
BEFORE: Final = {
    "noise": b"\xff" * 20_000,
    "HTTP": b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    "STOMP": b"CONNECT\naccept-version:1.2\n\n\0",
    "PUBLISH first": b"\x30\x04\0\1ax",
    "a CONNECT of 256 MiB": b"\x10\xff\xff\xff\x7f\0\4MQTT\5\2\0\x3c",
    "a length of five bytes": b"\x10\x80\x80\x80\x80\x01",
    "MQTT 6": b"\x10\x0d\0\4MQTT\6\2\0\0\0\0\0",
}
AFTER: Final = {
    "a second CONNECT": CONNECT,
    "a packet of 256 MiB": b"\x30\xff\xff\xff\x7f",
    "a length of five bytes": b"\x30\x80\x80\x80\x80\x01",
    "QoS 3": b"\x36\x06\0\1a\0\1\0",
    "a topic with a wildcard": b"\x30\x05\0\1#\0x",
    "a topic of no bytes": b"\x30\x03\0\0\0",
    "text that is not UTF-8": b"\x30\x05\0\1\xff\0x",
    "packet id 0": b"\x32\x06\0\1a\0\0\0",
    "PUBACK for nothing, malformed": b"\x40\x01\0",
    "a SUBSCRIBE of nothing": b"\x82\x03\0\1\0",
    "CONNACK": b"\x20\x03\0\0\0",
    "packet type 0": b"\x00\x00",
}


@contextmanager
def innocent(broker: DaemonProcess) -> Iterator[Callable[[], None]]:
    """Somebody else, who was there before and goes on: to be called when the harm is done."""
    world = SocketWorld(broker.ports["mqtt"])
    client = world.connect("innocent")
    client.subscribe("innocent/#", qos=2)

    def go_on() -> None:
        for qos in range(3):
            client.publish("innocent/a", b"still here", qos)
        assert client.payloads() == [b"still here"] * 3

    try:
        go_on()
        yield go_on
    finally:
        world.close()


def opened(broker: DaemonProcess) -> RawSocket:
    """A socket."""
    return RawSocket(broker.ports["mqtt"])


def test_a_client_without_connect_is_refused(broker: DaemonProcess) -> None:
    with innocent(broker) as go_on:
        for name, first in BEFORE.items():
            with opened(broker) as sock:
                sock.raw(first)
                heard = sock.rest()
            assert heard[:1] in (b"", b"\x20"), name
        go_on()


def test_bad_input_costs_only_its_sender(broker: DaemonProcess) -> None:
    with innocent(broker) as go_on:
        for name, data in AFTER.items():
            with opened(broker) as sock:
                sock.raw(CONNECT)
                sock.read()
                assert sock.got[0] == 0x20
                sock.raw(data)
                assert b"\xe0" in sock.rest(), f"{name}: DISCONNECT tells why"
        go_on()


def test_an_unfinished_handshake_is_cut_off(tmp_path: Path) -> None:
    settings = '[acceptors.http]\nprotocol = "http"\n[acceptors.mqtt]\nprotocol = "mqtt"\nhandshake-timeout = "300ms"\n'
    with running(tmp_path, settings) as broker, opened(broker) as sock:
        sock.raw(CONNECT[:5])
        assert sock.rest() == b""
        broker.await_log("connection.handshake_timeout")


def test_a_client_that_never_reads_stalls_nobody_and_costs_little(broker: DaemonProcess) -> None:
    """QoS 0 for somebody who does not read is kept within the subscription's limit, and the sockets'."""
    with innocent(broker) as go_on, opened(broker) as deaf:
        deaf.raw(CONNECT + b"\x82\x0c\0\1\0\0\x06unread\0")
        world = SocketWorld(broker.ports["mqtt"])
        publisher = world.connect("loud")
        before = broker.memory_bytes()
        for number in range(30):
            publisher.post("unread", [bytes(65_536)] * 10)
            if number % 10 == 0:
                go_on()
        assert broker.memory_bytes() - before < 300 * 65_536 + 24 * MIB
        world.close()


def test_half_a_packet_and_a_dead_socket(broker: DaemonProcess) -> None:
    with innocent(broker) as go_on:
        for _ in range(20):
            with opened(broker) as sock:
                sock.raw(CONNECT + b"\x30\x80\x80\x04\0\4half" + bytes(10_000))
        go_on()
