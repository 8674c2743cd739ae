"""Clients that subscribe and do not read: what they make the broker hold is bounded, and goes back to the system."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from proton.reactor import AtMostOnce
from proton.utils import BlockingConnection

from bench.link import Link
from bench.mqtt_link import MqttLink
from bench.mqtt_messages import varint
from broker.daemon.memory import TRIM_BYTES
from tests.support.daemon import DaemonProcess, running
from tests.support.links import PATIENCE_S

MIB: Final = 1 << 20

#: What the broker may hold in memory, and what is sent to one client that does not read.
LIMIT_MIB: Final = 32
SENT_MIB: Final = 200
BODY: Final = b"x" * (50 << 10)
MESSAGES: Final = SENT_MIB * MIB // len(BODY)

SETTINGS: Final = f'[broker]\nglobal-max-size = "{LIMIT_MIB}MiB"\n'

#: Beyond the limit: buffers of the journal, of connections, of what is read at once.
AROUND_MIB: Final = 48

#: How often a broker is asked for something until its memory has gone back: some seconds.
ASKED_MAX: Final = 1_000


def mqtt_qos_0(broker: DaemonProcess) -> Callable[[], None]:
    link = MqttLink.open("127.0.0.1", broker.ports["mqtt"], "stalled")
    link.subscribe("t", 0)
    return link.close


def mqtt_qos_1(broker: DaemonProcess) -> Callable[[], None]:
    link = MqttLink.open("127.0.0.1", broker.ports["mqtt"], "stalled")
    link.subscribe("t", 1)
    return link.close


def stomp(broker: DaemonProcess) -> Callable[[], None]:
    link = Link.connect("127.0.0.1", broker.ports["stomp"])
    assert link.request(b"SUBSCRIBE\nid:0\ndestination:/topic/t\nreceipt:r\n\n\0").startswith(b"RECEIPT")
    return link.close


def amqp(broker: DaemonProcess) -> Callable[[], None]:
    connection = BlockingConnection(f"amqp://127.0.0.1:{broker.ports['amqp']}", timeout=PATIENCE_S)
    connection.create_receiver("topic://t", credit=100_000, options=AtMostOnce())
    return lambda: None


def publish(broker: DaemonProcess, qos: int) -> None:
    """The messages, each confirmed."""
    link = MqttLink.open("127.0.0.1", broker.ports["mqtt"], "producer")
    head = b"\x00\x01t" + (b"\x00\x01" if qos else b"")
    packet = bytes([0x30 | qos << 1]) + varint(len(head) + len(BODY)) + head + BODY
    for _ in range(MESSAGES):
        if qos:
            link.ask(packet, 4)
        else:
            link.sock.setblocking(True)
            link.sock.sendall(packet)
    link.ask(b"\xc0\x00", 2)
    link.close()


@pytest.mark.parametrize(("stall", "qos"), [(mqtt_qos_0, 0), (mqtt_qos_1, 1), (stomp, 0), (amqp, 0)])
def test_a_reader_that_stalls_costs_a_bounded_memory(
    tmp_path: Path, stall: Callable[[DaemonProcess], Callable[[], None]], qos: int
) -> None:
    with running(tmp_path, SETTINGS) as broker:
        before = broker.memory_bytes()
        close = stall(broker)
        publish(broker, qos)
        assert broker.memory_bytes() - before < (LIMIT_MIB + AROUND_MIB) * MIB
        code = "queue.full.memory" if stall is mqtt_qos_0 else "address.full.paging"
        assert broker.log.count(code) == 1
        close()


def test_memory_goes_back_to_the_system(tmp_path: Path) -> None:
    with running(tmp_path, f'[broker]\nglobal-max-size = "{2 * SENT_MIB}MiB"\n') as broker:
        before = broker.memory_bytes()
        close = mqtt_qos_1(broker)
        publish(broker, 1)
        assert broker.memory_bytes() - before > SENT_MIB * MIB
        close()
        for _ in range(ASKED_MAX):
            if broker.memory_bytes() - before < TRIM_BYTES + AROUND_MIB * MIB // 2:
                return
            broker.get("status")
        raise AssertionError(f"still {(broker.memory_bytes() - before) / MIB:.0f} MiB more than before")
