"""What a crash leaves of MQTT: SIGKILL again and again in the middle of QoS 1 and 2, both ways.

paho keeps its side of a session as long as its object lives, and goes on where it was after each reconnect; so does the
broker, if it keeps its promises.  Publisher and subscriber are two such clients; they outlive all the broker's lives.
The seed of the moments is printed; what the kernel and the disk do meanwhile, it does not decide.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import paho.mqtt.client as paho
import pytest

from tests.support.daemon import DaemonProcess, running
from tests.support.links import PATIENCE_S
from tests.support.paho_client import Paho, kept

#: How often the broker is killed.
KILLS: Final = 3
#: Messages between two kills at most; the seed chooses.
MESSAGES_MAX: Final = 300
#: Messages of each QoS after the last kill: an end in peace.
LAST: Final = 20

TOPIC: Final = "crash/a"

#: Small segments, so that what is in flight also crosses their borders, and starts are quick.
SETTINGS: Final = """
[journal]
segment-size = "4MiB"
reserve = "1MiB"

[limits]
body-bytes-max = "64KiB"
transaction-bytes-max = "256KiB"

[acceptors.stomp]
protocol = "stomp"

[acceptors.http]
protocol = "http"

[acceptors.mqtt]
protocol = "mqtt"
maximum-packet-size = "64KiB"
"""


class Lasting(Paho):
    """A client whose session outlives broker and connection."""

    def __init__(self, name: str, version: str) -> None:
        super().__init__(0, name, version, **kept(version))
        self.arrived: list[tuple[int, int]] = []  # QoS and number
        self.done = 0  # messages that were published to the end
        self.changed = threading.Condition()
        self.client.max_inflight_messages_set(50)
        self.client.on_message = self._on_message
        self.client.on_publish = self._on_publish

    def _on_message(self, client: Any, userdata: Any, message: paho.MQTTMessage) -> None:
        with self.changed:
            self.arrived.append((message.qos, int(message.payload)))
            self.changed.notify_all()

    def _on_publish(self, *_: Any) -> None:
        with self.changed:
            self.done += 1
            self.changed.notify_all()

    def stop(self) -> None:
        """The broker is gone: no attempts to find it where it was."""
        self.client.loop_stop()
        self.client._reset_sockets()  # each loop_start makes a pair that it would leave open

    def wait(self, enough: Any) -> None:
        """Wait until something is so."""
        with self.changed:
            found = self.changed.wait_for(enough, PATIENCE_S)
        assert found, f"{self.done} published, {len(self.arrived)} arrived: the rest does not come"


@contextmanager
def clients(version: str) -> Iterator[tuple[Lasting, Lasting]]:
    """A publisher and a subscriber that end."""
    both = Lasting(f"crash-p-{version}", version), Lasting(f"crash-s-{version}", version)
    try:
        yield both
    finally:
        for one in both:
            one.stop()


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_exactly_once_through_crashes(tmp_path: Path, version: str) -> None:
    """No loss for QoS 1 and 2, no duplicate for QoS 2, no disorder."""
    seed = Random().randrange(1 << 32)
    print(f"seed {seed}")
    chance = Random(seed)
    numbers = {1: 0, 2: 0}

    def publish(client: Lasting, qos: int) -> None:
        client.client.publish(TOPIC, str(numbers[qos]), qos)
        numbers[qos] += 1

    with running(tmp_path, SETTINGS) as broker, clients(version) as (publisher, subscriber):
        for life in range(KILLS + 1):
            publisher.connect(broker.ports["mqtt"])
            subscriber.connect(broker.ports["mqtt"])
            if not life:
                assert subscriber.subscribe(TOPIC, 2) == (2,)
            else:
                assert subscriber.present
                assert publisher.present
            if life == KILLS:
                break
            storm(broker, publisher, subscriber, chance, publish)
        for number in range(2 * LAST):
            publish(publisher, 1 + number % 2)
        total = sum(numbers.values())
        publisher.wait(lambda: publisher.done == total)
        subscriber.wait(lambda: {n for q, n in subscriber.arrived if q == 1} == set(range(numbers[1])))
        subscriber.wait(lambda: sum(q == 2 for q, _ in subscriber.arrived) >= numbers[2])
        check(subscriber.arrived, numbers)
        publisher.client.disconnect()
        subscriber.client.disconnect()
        left = [queue for queue in broker.get("queues", limit=1000)["queues"] if queue["messages"]]
        assert left == []


def storm(broker: DaemonProcess, publisher: Lasting, subscriber: Lasting, chance: Random, publish: Any) -> None:
    """Work until some messages have arrived; SIGKILL in the middle; a new life."""
    enough = len(subscriber.arrived) + chance.randint(1, MESSAGES_MAX)
    for _ in range(2 * MESSAGES_MAX):
        publish(publisher, chance.randint(1, 2))
    subscriber.wait(lambda: len(subscriber.arrived) >= enough)
    broker.kill()
    publisher.stop()
    subscriber.stop()
    broker.start()


def check(arrived: list[tuple[int, int]], numbers: dict[int, int]) -> None:
    """QoS 2: each once, in order.  QoS 1: each, in order but for what came again."""
    assert [number for qos, number in arrived if qos == 2] == list(range(numbers[2]))
    first: list[int] = []
    for qos, number in arrived:
        if qos == 1 and (not first or number > first[-1]):
            first.append(number)
    assert first == list(range(numbers[1])), "in order, whatever came again"
