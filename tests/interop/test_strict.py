"""Strict counting over protocols: what left for a client before a SIGKILL comes redelivered to one of another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from paho.mqtt.packettypes import PacketTypes

from tests.support.amqp_client import AmqpSocket
from tests.support.daemon import DaemonProcess, running
from tests.support.paho_client import Paho, properties
from tests.support.stomp_py import DURABLE, connected

SETTINGS: Final = '[[address-settings]]\nmatch = "strict.#"\ndelivery-count-persistence = "strict"\n'
QUEUE: Final = "strict.q"
NUMBERS: Final = list(range(10))
#: Messages that a client may hold at a time, over STOMP about so many.
HELD: Final = 3
BODY: Final = "x" * 1_000


@contextmanager
def stomp_holds(broker: DaemonProcess) -> Iterator[None]:
    with connected(broker.port) as client:
        client.subscribe(f"/queue/{QUEUE}", "client-individual", {"consumer-window-size": str(HELD * len(BODY))})
        client.take()
        yield


@contextmanager
def amqp_holds(broker: DaemonProcess) -> Iterator[None]:
    with AmqpSocket(broker.ports["amqp"]) as client:
        client.receiver(f"queue://{QUEUE}", credit=HELD)
        client.take(HELD)
        yield


def reader(broker: DaemonProcess, held: int) -> Paho:
    """An MQTT client that acknowledges by itself, and its subscription of QoS 1."""
    told = properties(PacketTypes.CONNECT, ReceiveMaximum=held)
    client = Paho(broker.ports["mqtt"], manual_ack=True, connecting={"properties": told})
    assert client.subscribe(QUEUE.replace(".", "/"), 1) == (1,)
    return client


@contextmanager
def mqtt_holds(broker: DaemonProcess) -> Iterator[None]:
    client = reader(broker, HELD)
    try:
        client.take(HELD)
        yield
    finally:
        client.drop()


#: A number, and whether it came redelivered; None where the protocol does not say.
Taken = list[tuple[int, bool | None]]


def stomp_takes(broker: DaemonProcess) -> Taken:
    with connected(broker.port) as client:
        client.subscribe(f"/queue/{QUEUE}", "client-individual")
        messages = [client.take() for _ in NUMBERS]
        for message in messages:
            client.ack(message)
        client.leave()
    return [(int(message.text.partition(" ")[0]), message.redelivered) for message in messages]


def amqp_takes(broker: DaemonProcess) -> Taken:
    with AmqpSocket(broker.ports["amqp"]) as client:
        client.receiver(f"queue://{QUEUE}")
        found: Taken = []
        for delivery in client.take(len(NUMBERS)):
            assert isinstance(delivery.body, bytes)
            count = delivery.message.header.delivery_count
            found.append((int(delivery.body.partition(b" ")[0]), count > 0))
            client.settle(delivery, settled=False)
        client.wait(lambda: len(client.confirmed) == len(NUMBERS))
        client.leave()
    return found


def mqtt_takes(broker: DaemonProcess) -> Taken:
    client = reader(broker, 100)
    messages = client.take(len(NUMBERS))
    for message in messages:
        client.client.ack(message.mid, message.qos)
    assert client.subscribe("after/the/acknowledgements", 0) == (0,)
    client.leave()
    return [(int(message.payload.partition(b" ")[0]), None) for message in messages]


@pytest.mark.parametrize("takes", [stomp_takes, amqp_takes, mqtt_takes])
@pytest.mark.parametrize("holds", [stomp_holds, amqp_holds, mqtt_holds])
def test_a_delivery_of_one_protocol_is_redelivered_to_another(
    tmp_path: Path, holds: Callable[[DaemonProcess], object], takes: Callable[[DaemonProcess], Taken]
) -> None:
    with running(tmp_path, SETTINGS) as broker:
        with connected(broker.port) as client:
            for number in NUMBERS:
                client.put(f"/queue/{QUEUE}", f"{number} {BODY}", {**DURABLE, "content-type": "text/plain"})
        with holds(broker):  # type: ignore[attr-defined]
            left = broker.queue(QUEUE)["delivering"]
            assert 1 < left < len(NUMBERS)
            broker.kill()
        broker.start()
        taken = takes(broker)
        assert [number for number, _ in taken] == NUMBERS
        assert [flag for _, flag in taken] in ([number < left for number in NUMBERS], [None] * len(NUMBERS))
        with connected(broker.port) as client:  # MQTT says nothing of what it acknowledged: this receipt covers it
            client.put("/queue/after", "", DURABLE)
        broker.restart()
        assert broker.queue(QUEUE)["messages"] == 0, "what was acknowledged does not come back"
