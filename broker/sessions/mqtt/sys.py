"""`$SYS` topics: a broker's figures, as users of Mosquitto know them.

Names and units are Mosquitto's, and so are the load averages: events a minute, over about one, five and fifteen
minutes, with exponentially decaying weights (`_Load`).  They start with the first subscriber.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp
from typing import Final

from broker.engine import Engine
from broker.engine.model.message import Message, MessageHeader
from broker.sessions.mqtt.format import MQTT_FORMAT, make_head, retained_head
from protocols.mqtt.packets import Ack, Packet, Publish
from protocols.mqtt.properties import NO_PROPERTIES
from protocols.mqtt.topics import AddressSyntax

#: The prefix of these topics.
ROOT: Final = "$SYS/"

#: The periods of load averages, in minutes.
LOAD_MINUTES: Final = (1, 5, 15)

_MINUTE_MS: Final = 60_000


@dataclass(slots=True, eq=False)
class Traffic:
    """Counts what all MQTT connections have sent and received since the start, and the connections."""

    bytes_received: int = 0
    bytes_sent: int = 0
    packets_received: int = 0
    controls_sent: int = 0  # packets that are no PUBLISH
    received: int = 0  # PUBLISH packets
    published: int = 0  # PUBLISH packets sent
    dropped: int = 0
    connections: int = 0  # now
    maximum: int = 0  # connections at once
    greeted: int = 0  # connections ever
    expired: int = 0  # sessions

    def client_connected(self) -> None:
        """Count a client that has connected."""
        self.greeted += 1
        self.connections += 1
        self.maximum = max(self.maximum, self.connections)

    def count_received(self, packets: Sequence[Packet]) -> None:
        """Count received packets, some of them in runs."""
        self.packets_received += sum([_number(packet) for packet in packets])

    def count_sent(self, packet: Packet) -> None:
        """Count a sent packet other than PUBLISH, which `published` counts."""
        self.controls_sent += _number(packet)

    def counted(self) -> dict[str, int]:
        """Return the counters that have load averages, by name."""
        return {
            "messages/received": self.packets_received,
            "messages/sent": self.published + self.controls_sent,
            "publish/received": self.received,
            "publish/sent": self.published,
            "publish/dropped": self.dropped,
            "bytes/received": self.bytes_received,
            "bytes/sent": self.bytes_sent,
            "connections": self.greeted,
        }


def _number(packet: Packet) -> int:
    if isinstance(packet, Publish):
        return len(packet.topics)
    return len(packet.packet_ids) if isinstance(packet, Ack) else 1


class _Load:
    """Load averages of one counter, computed as in Mosquitto."""

    __slots__ = ("_before", "averages")

    def __init__(self, counter: int) -> None:
        self._before = counter
        self.averages = [0.0] * len(LOAD_MINUTES)

    def count(self, counter: int, interval_ms: int) -> None:
        """Update the averages with the counter after another interval."""
        rate = (counter - self._before) * _MINUTE_MS / interval_ms
        self._before = counter
        for at, minutes in enumerate(LOAD_MINUTES):
            weight = exp(-interval_ms / (minutes * _MINUTE_MS))
            self.averages[at] = rate + weight * (self.averages[at] - rate)


class BrokerFigures:
    """The values of `$SYS`, which `broker.engine.publish.system_topics` sends to subscribers.

    `sessions` counts the sessions, `subscriptions` all their subscriptions; `interval` in ms.
    """

    def __init__(
        self,
        engine: Engine,
        syntax: AddressSyntax,
        traffic: Traffic,
        version: str,
        sessions: Callable[[], int],
        subscriptions: Callable[[], int],
        interval: int,
    ) -> None:
        self._engine = engine
        self._syntax = syntax
        self._traffic = traffic
        self._version = version
        self._sessions = sessions
        self._subscriptions = subscriptions
        self._started = engine.now
        self._interval = interval
        self._loads: dict[str, _Load] = {}

    def begin(self) -> None:
        """Start the load averages, for the first subscriber."""
        self._loads = {name: _Load(counter) for name, counter in self._traffic.counted().items()}

    def advance(self) -> None:
        """Update the load averages after another interval."""
        for name, counter in self._traffic.counted().items():
            self._loads[name].count(counter, self._interval)

    def message(self, address: str, value: bytes, *, retained: bool) -> Message:
        """Return a message of QoS 0 with a value."""
        engine = self._engine
        head = make_head(0, retained, NO_PROPERTIES)
        header = MessageHeader(address, engine.formats[MQTT_FORMAT], timestamp=engine.now)
        return Message(header, retained_head(head) if retained else head, value)

    def values(self) -> dict[str, bytes]:
        """Return the current value of each topic, by address."""
        return {self._syntax.to_address(topic): value for topic, value in self._topics().items()}

    def _topics(self) -> dict[str, bytes]:
        engine, traffic = self._engine, self._traffic
        sessions, stored = self._sessions(), engine.usage
        numbers = {
            "clients/total": sessions,
            "clients/connected": traffic.connections,
            "clients/disconnected": sessions - traffic.connections,
            "clients/maximum": traffic.maximum,
            "clients/expired": traffic.expired,
            "subscriptions/count": self._subscriptions(),
            "retained messages/count": engine.retained.messages,
            "messages/stored": stored.messages,
            "store/messages/count": stored.messages,
            "store/messages/bytes": stored.bytes,
            "messages/received": traffic.packets_received,
            "messages/sent": traffic.published + traffic.controls_sent,
            "publish/messages/received": traffic.received,
            "publish/messages/sent": traffic.published,
            "publish/messages/dropped": traffic.dropped,
            "bytes/received": traffic.bytes_received,
            "bytes/sent": traffic.bytes_sent,
        }
        values = {f"{ROOT}broker/{name}": b"%d" % number for name, number in numbers.items()}
        for name, load in self._loads.items():
            for minutes, average in zip(LOAD_MINUTES, load.averages, strict=True):
                values[f"{ROOT}broker/load/{name}/{minutes}min"] = b"%.2f" % average
        values[f"{ROOT}broker/version"] = f"bartleby version {self._version}".encode()
        values[f"{ROOT}broker/uptime"] = b"%d seconds" % (engine.ticks.since(self._started) // 1_000)
        return values
