"""An MQTT client for tests: our codec in its client role, over any link.

    alice = world.connect("alice")
    assert alice.subscribe("a/+", qos=1) == [1]
    bob.publish("a/b", b"x", qos=1)
    assert alice.payloads() == [b"x"]

There are no timed waits: `settle` returns when everything that follows from the sent packets has been received.  A
simulated broker is at rest then; a broker behind a socket is asked by PINGREQ.  With `auto` (the default) the client
acknowledges what arrives, and releases what it sent with QoS 2; without, the test does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from protocols.mqtt.codes import V5, PacketType, Role
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.encode import PublishHead
from protocols.mqtt.limits import Limits
from protocols.mqtt.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from protocols.mqtt.properties import NO_PROPERTIES, SUBSCRIPTION_IDENTIFIER, Properties, Property
from protocols.mqtt.runs import Shared
from protocols.mqtt.state import State
from protocols.mqtt.topics import TopicFilter, parse_topic_filter
from tests.support.links import Link, Lost

Pairs = Sequence[tuple[Property[Any], Any]]

_P = PacketType

#: The limits of a test client; a topic alias maximum of 0 would hide the broker's use of aliases.
LIMITS: Final = Limits(topic_alias_max=8)

#: The answers to the acknowledgements of QoS 2.
_REPLIES: Final = {_P.PUBREC: _P.PUBREL, _P.PUBREL: _P.PUBCOMP}

#: The states in which the broker waits for us.
_OUR_TURN: Final = frozenset({State.OPENED, State.CHALLENGED, State.RECHALLENGED})


@dataclass(slots=True)
class Message:
    """A PUBLISH that arrived."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    packet_id: int
    properties: Properties

    def get(self, property: Property[Any]) -> Any:
        """Return one of its properties, or None."""
        return self.properties.get(property)


class MqttClient:
    """One connection, from CONNECT to its end."""

    def __init__(self, *, auto: bool = True, limits: Limits = LIMITS) -> None:
        self.auto = auto
        self.codec = MqttConnection(Shared(Role.CLIENT, limits))
        self.connack: Connack | None = None
        self.arrived: list[Message] = []
        self.answers: list[Ack] = []  # PUBACK, PUBREC, PUBREL and PUBCOMP, one by one
        self.others: list[Packet] = []
        self.goodbye: Disconnect | None = None
        self.closed = False
        self.link: Link
        self.pings = 0
        self._numbers = count(1)

    def over(self, link: Link) -> MqttClient:
        """Use this link; returns the client."""
        self.link = link
        link.heard = self.codec.receive_data  # type: ignore[method-assign]
        return self

    # -- bytes -----------------------------------------------------------------------------------------------------

    def send(self, packet: Packet) -> None:
        """Send any packet but PUBLISH, and settle."""
        self.codec.send(packet)
        self.settle()

    def raw(self, data: bytes) -> None:
        """Send any bytes, and settle."""
        self.link.raw(data)
        self.settle()

    def settle(self) -> None:
        """Receive and answer everything that follows from the sent packets."""
        while not self.closed:
            self.hear(self.link.poll)
            self._look()
            self._flush()
            self._look()
            if self.codec.out or self.closed:
                continue
            if self.link.resting or self.codec.state in _OUR_TURN:
                break
            if self.connack is None or self.codec.state is State.DISCONNECTED:
                self.hear(self.link.read)
            elif self._round():
                break
        self.hear(self.link.poll)
        self._look()
        self._flush()  # else a PUBREC that has just come is never answered

    def hear(self, come: Callable[[], None]) -> None:
        """Call `read` or `poll` of the link, and note its end."""
        try:
            come()
        except Lost:
            self.closed = True

    def _round(self) -> bool:
        """Send PINGREQ, and wait for its PINGRESP; whether nothing had to be answered meanwhile."""
        self.codec.send(Pingreq())
        self._flush()
        pings, quiet = self.pings, True
        while self.pings == pings and not self.closed:
            self.hear(self.link.read)
            self._look()
            quiet = quiet and not self.codec.out
            self._flush()
        return quiet

    def _flush(self) -> None:
        data = self.codec.data_to_send()
        if data and not self.closed:
            try:
                self.link.raw(data)
            except Lost:
                while not self.closed:
                    self.hear(self.link.read)

    def _look(self) -> None:
        """Process the packets that have arrived."""
        while packets := self.codec.events():
            for packet in packets:
                self._take(packet)
        assert self.codec.error is None, self.codec.error

    def _take(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self._publishes(packet)
        elif isinstance(packet, Ack):
            self.answers += [Ack(packet.type, [id], packet.reason_code, packet.properties) for id in packet.packet_ids]
            reply = _REPLIES.get(packet.type)
            if self.auto and reply is not None and packet.reason_code < 0x80:
                self.codec.send(Ack(reply, packet.packet_ids))
        elif isinstance(packet, Connack):
            self.connack = packet
        elif isinstance(packet, Pingresp):
            self.pings += 1
        elif isinstance(packet, Disconnect):
            self.goodbye = packet
        else:
            self.others.append(packet)

    def _publishes(self, packet: Publish) -> None:
        ids = packet.packet_ids or [0] * len(packet.topics)
        self.arrived += [
            Message(topic, payload, packet.qos, packet.retain, packet.dup, id, packet.properties)
            for topic, payload, id in zip(packet.topics, packet.payloads, ids, strict=True)
        ]
        if self.auto and packet.qos:
            self.codec.send(Ack(_P.PUBACK if packet.qos == 1 else _P.PUBREC, packet.packet_ids))

    # -- what a client does ----------------------------------------------------------------------------------------

    def connect(self, connect: Connect) -> MqttClient:
        """Send CONNECT; the answer is in `connack`, if there is one."""
        self.send(connect)
        return self

    def number(self) -> int:
        """Return an unused packet id."""
        return next(self._numbers)

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        *,
        retain: bool = False,
        dup: bool = False,
        packet_id: int = 0,
        properties: Pairs = (),
    ) -> int:
        """Send PUBLISH, and settle; returns its packet id, 0 for QoS 0."""
        packet_id = (packet_id or self.number()) if qos else 0
        raw = Properties(properties).raw
        head = PublishHead(self.codec.version, topic, qos=qos, retain=retain, dup=dup, properties=raw)
        self.codec.send_publish(head, [payload], [packet_id] if qos else [])
        self.settle()
        return packet_id

    def post(self, topic: str, payloads: Sequence[bytes], qos: int = 0) -> list[int]:
        """Send many PUBLISH packets in one write; returns their packet ids."""
        packet_ids = [self.number() for _ in payloads] if qos else []
        self.codec.send_publish(PublishHead(self.codec.version, topic, qos=qos), payloads, packet_ids)
        self.settle()
        return packet_ids

    def subscribe(self, *wanted: str | Subscription, qos: int = 0, identifier: int = 0) -> list[int]:
        """Send SUBSCRIBE; returns the reason codes of SUBACK.  Raises Lost."""
        subscriptions = [one if isinstance(one, Subscription) else wish(one, qos) for one in wanted]
        properties = Properties([(SUBSCRIPTION_IDENTIFIER, identifier)]) if identifier else NO_PROPERTIES
        packet_id = self.number()
        self.send(Subscribe(packet_id, subscriptions, properties))
        answer = self._answer(Suback)
        assert answer.packet_id == packet_id
        codes: list[int] = answer.reason_codes
        return codes

    def unsubscribe(self, *filters: str) -> list[int]:
        """Send UNSUBSCRIBE; returns the reason codes of UNSUBACK.  Raises Lost."""
        packet_id = self.number()
        self.send(Unsubscribe(packet_id, [topic_filter(one) for one in filters]))
        answer = self._answer(Unsuback)
        assert answer.packet_id == packet_id
        codes: list[int] = answer.reason_codes
        return codes

    def _answer(self, kind: type[Any]) -> Any:
        found = [packet for packet in self.others if isinstance(packet, kind)]
        if not found:
            raise Lost(f"no {kind.__name__}: {self.goodbye}")
        self.others.remove(found[0])
        return found[0]

    def ack(self, type: PacketType, *packet_ids: int, reason: int = 0, properties: Pairs = ()) -> None:
        """Send PUBACK, PUBREC, PUBREL or PUBCOMP."""
        self.send(Ack(type, list(packet_ids), reason, Properties(properties) if properties else NO_PROPERTIES))

    def auth(self, reason: int, *properties: tuple[Property[Any], Any]) -> None:
        """Send AUTH."""
        self.send(Auth(reason, Properties(properties)))

    def disconnect(self, reason: int = 0, properties: Pairs = ()) -> None:
        """Send DISCONNECT, and wait for the end."""
        self.send(Disconnect(reason, Properties(properties) if properties else NO_PROPERTIES))
        self.drop()

    def drop(self) -> None:
        """Close the connection without DISCONNECT."""
        self.link.drop()
        self.closed = True

    # -- what has come ---------------------------------------------------------------------------------------------

    def take(self) -> list[Message]:
        """Return the messages that have arrived since the last call."""
        self.settle()
        arrived, self.arrived = self.arrived, []
        return arrived

    def payloads(self) -> list[bytes]:
        """Return the payloads of the messages that have arrived since the last call."""
        return [message.payload for message in self.take()]

    def replies(self, type: PacketType) -> list[tuple[int, int]]:
        """Return packet id and reason code of each acknowledgement of a kind since the last call."""
        self.settle()
        found = [(one.packet_ids[0], one.reason_code) for one in self.answers if one.type is type]
        self.answers = [one for one in self.answers if one.type is not type]
        return found

    @property
    def code(self) -> int | None:
        """The reason code of CONNACK; None: it has not come."""
        return None if self.connack is None else self.connack.reason_code

    @property
    def goodbye_code(self) -> int | None:
        """The reason code of DISCONNECT; None: it has not come."""
        return None if self.goodbye is None else self.goodbye.reason_code

    @property
    def present(self) -> bool:
        """Whether the broker had a session."""
        assert self.connack is not None
        return self.connack.session_present

    def told(self, property: Property[Any]) -> Any:
        """Return a property of CONNACK, or None."""
        assert self.connack is not None
        return self.connack.properties.get(property)


def publishes(
    packets: Iterable[tuple[str, bytes]], qos: int, *, version: int = V5, first: int = 1, retain: bool = False
) -> bytes:
    """Encode PUBLISH packets, topic and payload of each, with packet ids in a row."""
    out: list[bytes] = []
    for packet_id, (topic, payload) in enumerate(packets, first):
        PublishHead(version, topic, qos=qos, retain=retain).encode(out, [payload], [packet_id])
    return b"".join(out)


def topic_filter(text: str) -> TopicFilter:
    """Parse a topic filter."""
    return parse_topic_filter(text, LIMITS)


def wish(
    text: str, qos: int = 0, *, no_local: bool = False, as_published: bool = False, retain_handling: int = 0
) -> Subscription:
    """Make a subscription with options."""
    return Subscription(topic_filter(text), qos, no_local, as_published, retain_handling)


def greeting(
    client_id: str = "",
    *,
    version: int = V5,
    clean: bool = True,
    properties: Pairs = (),
    **more: Any,
) -> Connect:
    """Make a CONNECT."""
    made = Properties(properties) if properties else NO_PROPERTIES
    return Connect(version, client_id, clean_start=clean, properties=made, **more)
