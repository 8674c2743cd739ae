"""The packets, as values.

PUBLISH, PUBACK, PUBREC, PUBREL and PUBCOMP are most of the traffic: they are represented as runs, one object for many
packets in a row.  `layout` defines the bytes of each packet.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from protocols.mqtt.codes import PacketType
from protocols.mqtt.properties import NO_PROPERTIES, Properties
from protocols.mqtt.topics import TopicFilter

_P = PacketType


@dataclass(slots=True)
class Will:
    """The message to publish if the connection ends without a DISCONNECT."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class Connect:
    """CONNECT.  `keep_alive` is in seconds, 0: none.  `clean_start` is Clean Session before 5.0.

    `bridge`: the client is a broker, which Mosquitto and others recognise by a bit of the version: they do not send it
    its own messages, and send RETAIN as published.  This is for versions before 5.0, which has subscription options.
    """

    type: ClassVar[PacketType] = _P.CONNECT
    version: int
    client_id: str
    clean_start: bool = True
    keep_alive: int = 0
    user_name: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = NO_PROPERTIES
    bridge: bool = False


@dataclass(slots=True)
class Connack:
    """CONNACK.  `reason_code` is the return code before 5.0."""

    type: ClassVar[PacketType] = _P.CONNACK
    reason_code: int = 0
    session_present: bool = False
    properties: Properties = NO_PROPERTIES


class Publish:
    """PUBLISH packets in a row with the same QoS, RETAIN, DUP and properties; a single one is a run of one.

    `topics` and `payloads` have one item for each packet, in order; so have `packet_ids` if the QoS is above 0.  Topic
    aliases are resolved.
    """

    type: ClassVar[PacketType] = _P.PUBLISH
    __slots__ = ("dup", "packet_ids", "payloads", "properties", "qos", "retain", "topics")

    def __init__(self, first: int, properties: Properties, topic: str, packet_id: int, payload: bytes) -> None:
        """A run that begins with this packet; `first` is its first byte, `packet_id` 0 if it has none."""
        self.qos = first >> 1 & 3
        self.retain = first & 1 == 1
        self.dup = first & 8 == 8
        self.properties = properties
        self.topics = [topic]
        self.payloads = [payload]
        self.packet_ids = [packet_id] if packet_id else []

    def cut(self, at: int) -> Publish:
        """Take the packets from a position on out of the run; returns a run of them."""
        rest = copy(self)
        rest.topics, self.topics = self.topics[at:], self.topics[:at]
        rest.payloads, self.payloads = self.payloads[at:], self.payloads[:at]
        rest.packet_ids, self.packet_ids = self.packet_ids[at:], self.packet_ids[:at]
        return rest


#: The `type` of events that are not whole packets: numbers that no packet type has.
BEGUN: Final = 16
PART: Final = 17


@dataclass(slots=True)
class Begun:
    """A PUBLISH whose payload follows in parts: `publish` is everything else, `nbytes` of payload follow."""

    type: ClassVar[Any] = BEGUN
    publish: Publish
    nbytes: int


@dataclass(slots=True)
class Part:
    """A part of such a payload.  After the last one nothing is read until the session resumes."""

    type: ClassVar[Any] = PART
    payload: bytes
    last: bool


@dataclass(slots=True)
class Ack:
    """PUBACK, PUBREC, PUBREL or PUBCOMP packets in a row that differ only in the packet id."""

    type: PacketType
    packet_ids: list[int]
    reason_code: int = 0
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class Subscription:
    """A topic filter and its subscription options; all but `qos` only in 5.0 (3.8.3.1).

    `retain_handling`: 0 retained messages are sent, 1 only for a new subscription, 2 not.
    """

    filter: TopicFilter
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(slots=True)
class Subscribe:
    """SUBSCRIBE."""

    type: ClassVar[PacketType] = _P.SUBSCRIBE
    packet_id: int
    subscriptions: list[Subscription]
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class Suback:
    """SUBACK: a reason code for each subscription, in order; 0 to 2 are the QoS granted."""

    type: ClassVar[PacketType] = _P.SUBACK
    packet_id: int
    reason_codes: list[int]
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class Unsubscribe:
    """UNSUBSCRIBE."""

    type: ClassVar[PacketType] = _P.UNSUBSCRIBE
    packet_id: int
    filters: list[TopicFilter]
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class Unsuback:
    """UNSUBACK: a reason code for each topic filter, in order; before 5.0 none."""

    type: ClassVar[PacketType] = _P.UNSUBACK
    packet_id: int
    reason_codes: list[int] = field(default_factory=list)
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class Pingreq:
    """PINGREQ."""

    type: ClassVar[PacketType] = _P.PINGREQ


@dataclass(slots=True)
class Pingresp:
    """PINGRESP."""

    type: ClassVar[PacketType] = _P.PINGRESP


@dataclass(slots=True)
class Disconnect:
    """DISCONNECT."""

    type: ClassVar[PacketType] = _P.DISCONNECT
    reason_code: int = 0
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class Auth:
    """AUTH, only in 5.0."""

    type: ClassVar[PacketType] = _P.AUTH
    reason_code: int = 0
    properties: Properties = NO_PROPERTIES


#: Received packets; `Begun` and `Part` are never sent.
Packet = (
    Connect
    | Connack
    | Publish
    | Begun
    | Part
    | Ack
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)
