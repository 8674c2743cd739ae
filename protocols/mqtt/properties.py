"""The properties of MQTT 5 (2.2.2): one table, from identifier to type, places and bounds.

A block of properties is a length and then properties, each an identifier and a value.  The table defines where each may
occur, which side may send it and which values it may have; `decode_properties` and `Properties` know no particular one.

    an identifier that is unknown, or not allowed in this packet         Malformed Packet (2.2.2.2)
    one that only the other side may send, repeated, or out of bounds    Protocol Error, or the property's own code

A decoded block keeps its bytes: a server forwards the properties of a message unaltered and in order
([MQTT-3.3.2-4], [MQTT-3.3.2-15] to [MQTT-3.3.2-20]).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

from protocols.mqtt.codes import V5, PacketType, ReasonCode, Role
from protocols.mqtt.errors import MqttError, malformed, violation
from protocols.mqtt.fields import (
    BINARY,
    BYTE,
    FOUR_BYTES,
    PAIR,
    TEXT,
    TWO_BYTES,
    VARINT,
    Context,
    Kind,
    acceptable,
    read_varint,
    refusable,
    write_text,
    write_varint,
)
from protocols.mqtt.limits import Limits
from protocols.mqtt.topics import check_response_topic

T = TypeVar("T")
_P = PacketType

#: The place of properties that belong to the will in CONNECT, not to a packet (3.1.3.2).
WILL: Final = 0

_EITHER: Final = None  # either side may send it
_MESSAGE: Final = {_P.PUBLISH: _EITHER, WILL: _EITHER}
_TEXT_CHECKS = Callable[[str, Limits], None]


class Property(Generic[T]):
    """One row of the table.

    `places`: the packets (or WILL) that may have it, each with the side that may send it there, or None for either.
    `least` and `most` bound integers; `reason` and `rule` are those of the error if a value is out of bounds.
    """

    __slots__ = ("check", "id", "kind", "least", "most", "name", "places", "prefix", "reason", "repeats", "rule")

    def __init__(
        self,
        id: int,
        name: str,
        kind: Kind[T],
        places: Mapping[int, Role | None],
        *,
        repeats: bool = False,
        least: int = 0,
        most: int | None = None,
        reason: ReasonCode = ReasonCode.PROTOCOL_ERROR,
        rule: str = "",
        check: _TEXT_CHECKS | None = None,
    ) -> None:
        self.id = id
        self.name = name
        self.kind = kind
        self.places = places
        self.repeats = repeats
        self.least = least
        self.most = most
        self.reason = reason
        self.rule = rule
        self.check = check
        self.prefix = bytes([id])


def _places(*packets: int, sender: Role | None = _EITHER) -> dict[int, Role | None]:
    return dict.fromkeys(packets, sender)


_ANSWERS: Final = (
    _P.CONNACK,
    _P.PUBACK,
    _P.PUBREC,
    _P.PUBREL,
    _P.PUBCOMP,
    _P.SUBACK,
    _P.UNSUBACK,
    _P.DISCONNECT,
    _P.AUTH,
)
_HELLO: Final = _places(_P.CONNECT, _P.CONNACK)
_AUTHENTICATION: Final = _places(_P.CONNECT, _P.CONNACK, _P.AUTH)

PAYLOAD_FORMAT_INDICATOR: Final = Property(0x01, "Payload Format Indicator", BYTE, _MESSAGE, most=1)
MESSAGE_EXPIRY_INTERVAL: Final = Property(0x02, "Message Expiry Interval", FOUR_BYTES, _MESSAGE)
CONTENT_TYPE: Final = Property(0x03, "Content Type", TEXT, _MESSAGE)
RESPONSE_TOPIC: Final = Property(0x08, "Response Topic", TEXT, _MESSAGE, check=check_response_topic)
CORRELATION_DATA: Final = Property(0x09, "Correlation Data", BINARY, _MESSAGE)
SUBSCRIPTION_IDENTIFIER: Final = Property(
    0x0B,
    "Subscription Identifier",
    VARINT,
    {_P.PUBLISH: Role.SERVER, _P.SUBSCRIBE: _EITHER},  # [MQTT-3.3.4-6]
    repeats=True,  # in PUBLISH; `_keep` allows only one in SUBSCRIBE
    least=1,
)
SESSION_EXPIRY_INTERVAL: Final = Property(
    0x11,
    "Session Expiry Interval",
    FOUR_BYTES,
    _HELLO | {_P.DISCONNECT: Role.CLIENT},  # [MQTT-3.14.2-2]
)
ASSIGNED_CLIENT_IDENTIFIER: Final = Property(0x12, "Assigned Client Identifier", TEXT, _places(_P.CONNACK))
SERVER_KEEP_ALIVE: Final = Property(0x13, "Server Keep Alive", TWO_BYTES, _places(_P.CONNACK))
AUTHENTICATION_METHOD: Final = Property(0x15, "Authentication Method", TEXT, _AUTHENTICATION)
AUTHENTICATION_DATA: Final = Property(0x16, "Authentication Data", BINARY, _AUTHENTICATION)
REQUEST_PROBLEM_INFORMATION: Final = Property(0x17, "Request Problem Information", BYTE, _places(_P.CONNECT), most=1)
WILL_DELAY_INTERVAL: Final = Property(0x18, "Will Delay Interval", FOUR_BYTES, _places(WILL))
REQUEST_RESPONSE_INFORMATION: Final = Property(0x19, "Request Response Information", BYTE, _places(_P.CONNECT), most=1)
RESPONSE_INFORMATION: Final = Property(0x1A, "Response Information", TEXT, _places(_P.CONNACK))
SERVER_REFERENCE: Final = Property(
    0x1C, "Server Reference", TEXT, _places(_P.CONNACK, _P.DISCONNECT, sender=Role.SERVER)
)
REASON_STRING: Final = Property(0x1F, "Reason String", TEXT, _places(*_ANSWERS))
RECEIVE_MAXIMUM: Final = Property(0x21, "Receive Maximum", TWO_BYTES, _HELLO, least=1)
TOPIC_ALIAS_MAXIMUM: Final = Property(0x22, "Topic Alias Maximum", TWO_BYTES, _HELLO)
TOPIC_ALIAS: Final = Property(
    0x23,
    "Topic Alias",
    TWO_BYTES,
    _places(_P.PUBLISH),
    least=1,
    reason=ReasonCode.TOPIC_ALIAS_INVALID,
    rule="MQTT-3.3.2-8",
)
MAXIMUM_QOS: Final = Property(0x24, "Maximum QoS", BYTE, _places(_P.CONNACK), most=1)
RETAIN_AVAILABLE: Final = Property(0x25, "Retain Available", BYTE, _places(_P.CONNACK), most=1)
USER_PROPERTY: Final = Property(
    0x26,
    "User Property",
    PAIR,
    _places(_P.CONNECT, _P.PUBLISH, WILL, _P.SUBSCRIBE, _P.UNSUBSCRIBE, *_ANSWERS),
    repeats=True,
)
MAXIMUM_PACKET_SIZE: Final = Property(0x27, "Maximum Packet Size", FOUR_BYTES, _HELLO, least=1)
WILDCARD_SUBSCRIPTION_AVAILABLE: Final = Property(
    0x28, "Wildcard Subscription Available", BYTE, _places(_P.CONNACK), most=1
)
SUBSCRIPTION_IDENTIFIERS_AVAILABLE: Final = Property(
    0x29, "Subscription Identifiers Available", BYTE, _places(_P.CONNACK), most=1
)
SHARED_SUBSCRIPTION_AVAILABLE: Final = Property(
    0x2A, "Shared Subscription Available", BYTE, _places(_P.CONNACK), most=1
)

#: The table, by identifier.
PROPERTIES: Final[dict[int, Property[Any]]] = {
    value.id: value for value in list(globals().values()) if isinstance(value, Property)
}


class Properties:
    """The properties of one packet, immutable.  `raw` are their bytes, without the length before them."""

    __slots__ = ("_values", "raw")

    def __init__(self, pairs: Iterable[tuple[Property[Any], Any]] = ()) -> None:
        """Make properties to send, in this order.  Raises ValueError for a value that its type cannot hold."""
        values: dict[int, Any] = {}
        parts: list[bytes] = []
        for property, value in pairs:
            parts += (property.prefix, property.kind.write(value))
            if property.repeats:
                values.setdefault(property.id, []).append(value)
            elif property.id in values:
                raise ValueError(f"{property.name} twice")
            else:
                values[property.id] = value
        self._values = values
        self.raw = b"".join(parts)

    @staticmethod
    def _decoded(values: dict[int, Any], raw: bytes) -> Properties:
        properties = Properties()
        properties._values = values
        properties.raw = raw
        return properties

    def get(self, property: Property[T]) -> T | None:
        """The value of a property, the first if it may repeat, or None."""
        value = self._values.get(property.id)
        if property.repeats and value is not None:
            value = value[0]
        found: T | None = value
        return found

    def get_all(self, property: Property[T]) -> list[T]:
        """The values of a property that may repeat, in order."""
        found: list[T] = self._values.get(property.id, [])
        return found

    def __contains__(self, property: Property[Any]) -> bool:
        return property.id in self._values

    def __iter__(self) -> Iterator[tuple[Property[Any], Any]]:
        """Property and value of each; repetitions of a property are adjacent, in order."""
        for id, value in self._values.items():
            property = PROPERTIES[id]
            if property.repeats:
                yield from ((property, one) for one in value)
            else:
                yield property, value

    def __bool__(self) -> bool:
        return self.raw != b""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Properties) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        shown = ", ".join(f"{property.name}={value!r}" for property, value in self)
        return f"Properties({shown})"

    def without(self, *properties: Property[Any]) -> Properties:
        """All properties except these."""
        if not any(property in self for property in properties):
            return self
        return Properties([pair for pair in self if pair[0] not in properties])

    def encode(self) -> bytes:
        """The block: the length and the properties [MQTT-2.2.2-1]."""
        return write_varint(len(self.raw)) + self.raw


NO_PROPERTIES: Final = Properties()


#: For kinds that contain no text.
_ANY: Final = Context(V5, Role.SERVER, Limits())

#: Finds what is not plain ASCII; several times as fast as `refusable`.
_UNUSUAL: Final = re.compile(rb"[^ -~]").search

#: The texts of a property, by its identifier.
_TEXTS: Final = {id: range(2 if row.kind is PAIR else 1) for id, row in PROPERTIES.items() if row.kind in (TEXT, PAIR)}


#: Characters of a Reason String: a few sentences, far below the 65,535 bytes that a text may have.
EXPLANATION_CHARS_MAX: Final = 1_024


def explanation(sentence: str) -> tuple[Property[str], str]:
    """Return the Reason String that says a sentence, as any receiver takes it; a long one is cut.

    It is for people and comes from many places, such as a peer's names, so this is the one that bounds it.
    """
    if len(sentence) > EXPLANATION_CHARS_MAX:
        sentence = sentence[: EXPLANATION_CHARS_MAX - 3] + "..."
    return REASON_STRING, acceptable(sentence)


def acceptable_properties(raw: bytes) -> bytes:
    """Return the bytes of properties with texts as any receiver takes them (`fields.acceptable`)."""
    parts: list[bytes] = []
    at = done = 0
    end = len(raw)
    while at < end:
        texts = _TEXTS.get(raw[at])
        if texts is None:
            _, at = PROPERTIES[raw[at]].kind.read(raw, at + 1, end, _ANY)
            continue
        at += 1
        for _ in texts:
            start = at + 2
            stop = start + (raw[at] << 8 | raw[at + 1])
            if _UNUSUAL(raw, start, stop) and refusable(raw, start, stop):
                parts += (raw[done:at], write_text(acceptable(raw[start:stop].decode())))
                done = stop
            at = stop
    return b"".join([*parts, raw[done:]]) if parts else raw


def decode_properties(data: bytes, at: int, end: int, place: int, context: Context) -> tuple[Properties, int]:
    """Decode a block of properties.  Raises MqttError."""
    length, at = read_varint(data, at, end)
    if not length:
        return NO_PROPERTIES, at
    stop = at + length
    if stop > end:
        raise malformed(f"properties of {length} bytes, of which the packet has {end - at}")
    most = context.limits.properties_bytes_max
    if length > most:
        raise MqttError(ReasonCode.QUOTA_EXCEEDED, f"properties of {length} bytes, at most {most} are allowed")
    raw = data[at:stop]
    values: dict[int, Any] = {}
    while at < stop:
        id, at = read_varint(data, at, stop)
        property = PROPERTIES.get(id)
        if property is None:
            raise malformed(f"{id} identifies no property")
        try:
            _check_place(property, place, context.sender)
            value, at = property.kind.read(data, at, stop, context)
            _check_value(property, value, context.limits)
            _keep(values, property, value, place, context.limits)
        except MqttError as error:
            raise error.within(property.name) from None
    return Properties._decoded(values, raw), at


def _check_place(property: Property[Any], place: int, sender: Role) -> None:
    if place not in property.places:
        raise malformed("this packet may not have it")
    allowed = property.places[place]
    if allowed is not None and allowed is not sender:
        raise violation(f"a {sender.value} may not send it here", _SENDER_RULES.get((property.id, place), ""))


_SENDER_RULES: Final[dict[tuple[int, int], str]] = {
    (SUBSCRIPTION_IDENTIFIER.id, _P.PUBLISH): "MQTT-3.3.4-6",
    (SESSION_EXPIRY_INTERVAL.id, _P.DISCONNECT): "MQTT-3.14.2-2",
}


def _check_value(property: Property[Any], value: Any, limits: Limits) -> None:
    if property.check is not None:
        property.check(value, limits)
    elif isinstance(value, int):
        if value < property.least:
            raise MqttError(property.reason, f"{value} is below {property.least}", property.rule)
        if property.most is not None and value > property.most:
            raise MqttError(property.reason, f"{value} is above {property.most}", property.rule)


def _keep(values: dict[int, Any], property: Property[Any], value: Any, place: int, limits: Limits) -> None:
    if property.id not in values:
        values[property.id] = [value] if property.repeats else value
        return
    if not property.repeats or (property is SUBSCRIPTION_IDENTIFIER and place == _P.SUBSCRIBE):
        raise violation("it may be there once")
    found = values[property.id]
    if property is USER_PROPERTY and len(found) == limits.user_properties_max:
        raise MqttError(ReasonCode.QUOTA_EXCEEDED, f"at most {limits.user_properties_max} are allowed")
    found.append(value)
