"""Large payloads with a real MQTT client: over a SIGKILL, and in memory that does not grow with them."""

from __future__ import annotations

import socket
from pathlib import Path
from random import Random
from typing import Final

from protocols.mqtt.codes import V311
from protocols.mqtt.encode import PublishHead, encode
from tests.support.daemon import running
from tests.support.mqtt_client import greeting
from tests.support.paho_client import Paho

#: Within the packet limit as shipped; many reads and pieces.
LARGE_BYTES: Final = 6 << 20

#: Messages that wait together, and what the broker's memory may grow by: less than half of what they have.
WAITING: Final = 10
GROWTH_BYTES: Final = 20 << 20


def body(number: int) -> bytes:
    """Bytes that no other body has."""
    return Random(number).randbytes(LARGE_BYTES)


def test_paho_over_a_kill_and_in_little_memory(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        port = broker.ports["mqtt"]
        sleeper = Paho(port, "sleeper", "3.1.1", clean_session=False)
        assert sleeper.subscribe("large/#", 2) == (2,)
        sleeper.leave()
        before = broker.peak_bytes()
        sender = Paho(port, "sender", "5")
        for number in range(WAITING):
            assert sender.publish("large/a", body(number), 1 + number % 2) == 0
        assert sender.publish("large/kept", body(99), 1, retain=True) == 0
        sender.leave()
        assert broker.peak_bytes() - before < GROWTH_BYTES
        with socket.create_connection(("127.0.0.1", port)) as late:
            packet: list[bytes] = []
            PublishHead(V311, "large/a", qos=1).encode(packet, [body(0)], [1])
            late.sendall(encode(greeting("late", version=V311), V311) + b"".join(packet)[: 1 << 20])
            assert late.recv(100) == bytes([0x20, 2, 0, 0])
            broker.restart()
        assert len(broker.bodies) == WAITING + 1
        before = broker.peak_bytes()
        sleeper = Paho(broker.ports["mqtt"], "sleeper", "3.1.1", clean_session=False)
        assert sleeper.present
        # What is sent with QoS 2 is shown by its client when it is released, behind all others.
        assert sorted(sleeper.payloads(WAITING + 1)) == sorted(map(body, [*range(WAITING), 99]))
        other = Paho(broker.ports["mqtt"], "other", "5")
        other.subscribe("large/kept", 0)
        (received,) = other.take()
        assert (received.retain, bytes(received.payload)) == (True, body(99))
        assert broker.peak_bytes() - before < GROWTH_BYTES
        for client in (sleeper, other):
            client.leave()
