"""`$SYS` topics: what users of Mosquitto look at to see how a broker fares.

Names and units are Mosquitto's, and so are the load averages: events a minute, over about one, five and fifteen
minutes, each interval counting less with the time since (`_Load`).  They begin with the first subscriber.
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

#: How these topics begin.
ROOT: Final = "$SYS/"

#: Of how many minutes there are load averages.
LOAD_MINUTES: Final = (1, 5, 15)

_MINUTE_MS: Final = 60_000


@dataclass(slots=True, eq=False)
class Traffic:
    """What all MQTT connections have sent and received since the start, and how many there are."""

    bytes_received: int = 0
    bytes_sent: int = 0
    packets_received: int = 0
    controls_sent: int = 0  # packets that are no PUBLISH
    received: int = 0  # PUBLISH packets
    published: int = 0  # PUBLISH packets, the other way
    dropped: int = 0
    connections: int = 0  # now
    maximum: int = 0  # of them at once
    greeted: int = 0  # of them, ever
    expired: int = 0  # sessions

    def came(self) -> None:
        """A client was let in."""
        self.greeted += 1
        self.connections += 1
        self.maximum = max(self.maximum, self.connections)

    def heard(self, packets: Sequence[Packet]) -> None:
        """These packets came, some of them in runs."""
        self.packets_received += sum([_number(packet) for packet in packets])

    def said(self, packet: Packet) -> None:
        """This packet is sent; PUBLISH is counted in `published`."""
        self.controls_sent += _number(packet)

    def counted(self) -> dict[str, int]:
        """What has load averages, by the name of it."""
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
    """Load averages of one counter, as Mosquitto has them."""

    __slots__ = ("_before", "averages")

    def __init__(self, counter: int) -> None:
        self._before = counter
        self.averages = [0.0] * len(LOAD_MINUTES)

    def count(self, counter: int, interval_ms: int) -> None:
        """What the counter is after another interval."""
        rate = (counter - self._before) * _MINUTE_MS / interval_ms
        self._before = counter
        for at, minutes in enumerate(LOAD_MINUTES):
            weight = exp(-interval_ms / (minutes * _MINUTE_MS))
            self.averages[at] = rate + weight * (self.averages[at] - rate)


class BrokerFigures:
    """The values of `$SYS`, which `broker.engine.publish.system_topics` tells to those who subscribe.

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
        """The first subscriber is here: load averages begin."""
        self._loads = {name: _Load(counter) for name, counter in self._traffic.counted().items()}

    def advance(self) -> None:
        """Another interval is over."""
        for name, counter in self._traffic.counted().items():
            self._loads[name].count(counter, self._interval)

    def message(self, address: str, value: bytes, *, retained: bool) -> Message:
        """A message of QoS 0 that says so."""
        engine = self._engine
        head = make_head(0, retained, NO_PROPERTIES)
        header = MessageHeader(address, engine.formats[MQTT_FORMAT], timestamp=engine.now)
        return Message(header, retained_head(head) if retained else head, value)

    def values(self) -> dict[str, bytes]:
        """What each topic says now, by its address."""
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
        told = {f"{ROOT}broker/{name}": b"%d" % number for name, number in numbers.items()}
        for name, load in self._loads.items():
            for minutes, average in zip(LOAD_MINUTES, load.averages, strict=True):
                told[f"{ROOT}broker/load/{name}/{minutes}min"] = b"%.2f" % average
        told[f"{ROOT}broker/version"] = f"bartleby version {self._version}".encode()
        told[f"{ROOT}broker/uptime"] = b"%d seconds" % ((engine.now - self._started) // 1_000)
        return told
