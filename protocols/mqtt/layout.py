"""The fields of each packet by version, the sides that send it, and its flags (chapter 3 of all versions).

`LAYOUTS` is the only definition of the wire format.  `decode` and `encode` walk its fields and know no packet; only
PUBLISH is not in it, and the short forms of its acknowledgements are read faster (`runs`).

Where 3.1 calls something unused, any value is accepted: the flags of most packets, the reserved bits in CONNECT,
CONNACK and SUBSCRIBE, and a will's flags without a will.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from protocols.mqtt import packets
from protocols.mqtt.codes import BRIDGE, PROTOCOL_NAMES, REASONS, V5, V31, V311, PacketType, ReasonCode, Role
from protocols.mqtt.errors import MqttError, malformed, violation
from protocols.mqtt.fields import (
    BINARY,
    BYTE,
    TEXT,
    TWO_BYTES,
    Context,
    Kind,
    read_byte,
    read_text,
    read_two_bytes,
    write_text,
)
from protocols.mqtt.properties import NO_PROPERTIES, WILL, Properties, decode_properties
from protocols.mqtt.topics import TopicFilter, parse_topic_filter

T = TypeVar("T")
_P = PacketType

# -- data types that belong to packets ---------------------------------------------------------------------------------

#: Bits of the Connect Flags (3.1.2.3).
CLEAN_START: Final = 0x02
WILL_FLAG: Final = 0x04
WILL_RETAIN: Final = 0x20
PASSWORD: Final = 0x40
USER_NAME: Final = 0x80
_RESERVED: Final = 0x01
_WILL_QOS: Final = 0x18

#: The statement of the specification about the reason codes of a packet.
_REASON_RULES: Final = {
    _P.CONNACK: "MQTT-3.2.2-8",
    _P.PUBACK: "MQTT-3.4.2-1",
    _P.PUBREC: "MQTT-3.5.2-1",
    _P.PUBREL: "MQTT-3.6.2-1",
    _P.PUBCOMP: "MQTT-3.7.2-1",
    _P.SUBACK: "MQTT-3.9.3-2",
    _P.UNSUBACK: "MQTT-3.11.3-2",
    _P.DISCONNECT: "MQTT-3.14.2-1",
    _P.AUTH: "MQTT-3.15.2-1",
}


def _read_connect_flags(data: bytes, at: int, end: int, context: Context) -> tuple[int, int]:
    flags, at = read_byte(data, at, end)
    if flags & _WILL_QOS == _WILL_QOS:
        raise malformed("the will has QoS 3", "MQTT-3.1.2-12")
    if context.version != V31:
        if flags & _RESERVED:
            raise malformed("the reserved flag is set", "MQTT-3.1.2-3")
        if flags & _WILL_QOS and not flags & WILL_FLAG:
            raise malformed("a QoS for a will that is not there", "MQTT-3.1.2-11")
        if flags & WILL_RETAIN and not flags & WILL_FLAG:
            raise malformed("RETAIN for a will that is not there", "MQTT-3.1.2-13")
    if context.version != V5 and flags & PASSWORD and not flags & USER_NAME:
        raise malformed("a password without a user name, which 5.0 allows", "MQTT-3.1.2-22 of 3.1.1")
    return flags, at


def _read_connack_flags(data: bytes, at: int, end: int, context: Context) -> tuple[bool, int]:
    flags, at = read_byte(data, at, end)
    if flags > 1:
        raise malformed("reserved flags are set", "MQTT-3.2.2-1")
    return flags == 1, at


def _read_unused(data: bytes, at: int, end: int, context: Context) -> tuple[bool, int]:
    """Skip the byte that later versions use for the connect acknowledge flags."""
    _, at = read_byte(data, at, end)
    return False, at


def _read_packet_id(data: bytes, at: int, end: int, context: Context) -> tuple[int, int]:
    packet_id, at = read_two_bytes(data, at, end)
    if not packet_id:
        raise violation("a packet identifier is not 0", "MQTT-2.2.1-3")
    return packet_id, at


def _check_reason(packet: PacketType, code: int, context: Context) -> None:
    if context.sender not in REASONS[context.version][packet].get(code, ()):
        raise violation(f"0x{code:02X} is no code that a {context.sender.value} sends here", _REASON_RULES[packet])


def _reason(packet: PacketType) -> Kind[int]:
    def read(data: bytes, at: int, end: int, context: Context) -> tuple[int, int]:
        code, at = read_byte(data, at, end)
        _check_reason(packet, code, context)
        return code, at

    return Kind("reason code", read, BYTE.write)


def _reasons(packet: PacketType) -> Kind[list[int]]:
    def read(data: bytes, at: int, end: int, context: Context) -> tuple[list[int], int]:
        codes = list(data[at:end])
        if not codes:
            raise violation("there is at least one")
        for code in codes:
            _check_reason(packet, code, context)
        return codes, end

    return Kind("reason codes", read, bytes)


def _properties(place: int) -> Kind[Properties]:
    def read(data: bytes, at: int, end: int, context: Context) -> tuple[Properties, int]:
        return decode_properties(data, at, end, place, context)

    return Kind("properties", read, Properties.encode)


def _read_to_end(
    read_one: Callable[[bytes, int, int, Context], tuple[T, int]],
    rule: str,
    data: bytes,
    at: int,
    end: int,
    context: Context,
) -> tuple[list[T], int]:
    """Read items until the packet ends: at least one, at most the limit."""
    found: list[T] = []
    while at < end:
        if len(found) == context.limits.filters_max:
            raise MqttError(ReasonCode.QUOTA_EXCEEDED, f"at most {context.limits.filters_max} are allowed")
        one, at = read_one(data, at, end, context)
        found.append(one)
    if not found:
        raise violation("there is at least one", rule)
    return found, at


def _read_filter(data: bytes, at: int, end: int, context: Context) -> tuple[TopicFilter, int]:
    text, at = read_text(data, at, end, context)
    return parse_topic_filter(text, context.limits), at


def _write_filter(topic_filter: TopicFilter) -> bytes:
    return write_text(topic_filter.text)


def _read_subscription(data: bytes, at: int, end: int, context: Context) -> tuple[packets.Subscription, int]:
    """A topic filter and its options (3.8.3.1)."""
    topic_filter, at = _read_filter(data, at, end, context)
    options, at = read_byte(data, at, end)
    qos = options & 3
    if context.version != V5:
        if qos == 3 or (options > 3 and context.version != V31):
            raise malformed("reserved bits are set or the QoS is 3", "MQTT-3-8.3-4 of 3.1.1")
        return packets.Subscription(topic_filter, qos), at
    if options & 0xC0:
        raise malformed("reserved bits of the subscription options are set", "MQTT-3.8.3-5")
    no_local, retain_handling = options & 4 == 4, options >> 4
    if qos == 3:
        raise violation("the QoS is 0, 1 or 2")
    if retain_handling == 3:
        raise violation("retain handling is 0, 1 or 2")
    if no_local and topic_filter.share is not None:
        raise violation("a shared subscription cannot have No Local", "MQTT-3.8.3-4")
    return packets.Subscription(topic_filter, qos, no_local, options & 8 == 8, retain_handling), at


def _write_subscription(one: packets.Subscription) -> bytes:
    options = one.qos | one.no_local << 2 | one.retain_as_published << 3 | one.retain_handling << 4
    return _write_filter(one.filter) + BYTE.write(options)


def _write_all(write_one: Callable[[T], bytes], items: Sequence[T]) -> bytes:
    return b"".join([write_one(item) for item in items])


CONNECT_FLAGS: Final = Kind("connect flags", _read_connect_flags, BYTE.write)
CONNACK_FLAGS: Final = Kind("connect acknowledge flags", _read_connack_flags, BYTE.write)
UNUSED_BYTE: Final[Kind[bool]] = Kind("unused byte", _read_unused, lambda _: b"\0")
PACKET_ID: Final = Kind("packet identifier", _read_packet_id, TWO_BYTES.write)
FILTERS: Final[Kind[list[TopicFilter]]] = Kind(
    "topic filters", partial(_read_to_end, _read_filter, "MQTT-3.10.3-2"), partial(_write_all, _write_filter)
)
SUBSCRIPTIONS: Final[Kind[list[packets.Subscription]]] = Kind(
    "subscriptions",
    partial(_read_to_end, _read_subscription, "MQTT-3.8.3-2"),
    partial(_write_all, _write_subscription),
)

# -- the table ---------------------------------------------------------------------------------------------------------

Values = dict[str, Any]

#: The default of a field that must be present.
REQUIRED: Final = object()


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a packet.

    `when`: whether it is present, by the fields before it; None: always.  `default`: the field and those after it may
    be missing at the end of the packet, and it has this value then.
    """

    name: str
    kind: Kind[Any]
    when: Callable[[Values], bool] | None = None
    default: Any = REQUIRED

    @property
    def optional(self) -> bool:
        """Whether it may be missing."""
        return self.default is not REQUIRED


@dataclass(frozen=True, slots=True)
class Layout:
    """A packet in one version: the allowed flags of its first byte (the first of them is sent), and its fields."""

    flags: Sequence[int]
    senders: frozenset[Role]
    fields: tuple[Field, ...]
    make: Callable[..., packets.Packet]
    take: Callable[[Any], Mapping[str, Any]] | None = None


def _flag(bit: int) -> Callable[[Values], bool]:
    return lambda values: values["flags"] & bit != 0


def _make_connect(**values: Any) -> packets.Connect:
    flags = values["flags"]
    will = None
    if flags & WILL_FLAG:
        will = packets.Will(
            values["will_topic"],
            values["will_payload"],
            flags >> 3 & 3,
            flags & WILL_RETAIN != 0,
            values.get("will_properties", NO_PROPERTIES),
        )
    return packets.Connect(
        version=values["version"],
        client_id=values["client_id"],
        clean_start=flags & CLEAN_START != 0,
        keep_alive=values["keep_alive"],
        user_name=values.get("user_name"),
        password=values.get("password"),
        will=will,
        properties=values.get("properties", NO_PROPERTIES),
    )


def _take_connect(packet: packets.Connect) -> Values:
    flags = CLEAN_START if packet.clean_start else 0
    values: Values = {}
    will = packet.will
    if will is not None:
        flags |= WILL_FLAG | will.qos << 3 | (WILL_RETAIN if will.retain else 0)
        values = {"will_topic": will.topic, "will_payload": will.payload, "will_properties": will.properties}
    flags |= (packet.user_name is not None and USER_NAME) | (packet.password is not None and PASSWORD)
    return values | {
        "protocol_name": PROTOCOL_NAMES[packet.version],
        "version": packet.version | (BRIDGE if packet.bridge else 0),
        "flags": flags,
        "keep_alive": packet.keep_alive,
        "properties": packet.properties,
        "client_id": packet.client_id,
        "user_name": packet.user_name,
        "password": packet.password,
    }


def _take_ack(packet: packets.Ack) -> Values:
    [packet_id] = packet.packet_ids
    return {"packet_id": packet_id, "reason_code": packet.reason_code, "properties": packet.properties}


def _make_ack(type: PacketType, packet_id: int, **values: Any) -> packets.Ack:
    return packets.Ack(type, [packet_id], **values)


_CLIENT: Final = frozenset({Role.CLIENT})
_SERVER: Final = frozenset({Role.SERVER})
_BOTH: Final = frozenset(Role)
_PROPERTIES: Final = {packet: Field("properties", _properties(packet)) for packet in _P}
_REASON: Final = {packet: Field("reason_code", _reason(packet), default=0) for packet in _REASON_RULES}
_ID: Final = Field("packet_id", PACKET_ID)
_FILTERS: Final = Field("filters", FILTERS)
_SUBSCRIPTIONS: Final = Field("subscriptions", SUBSCRIPTIONS)


def _connect_fields(version: int) -> tuple[Field, ...]:
    new = version == V5
    will = _flag(WILL_FLAG)
    missing = None if version == V31 else REQUIRED
    # 3.1: "the Remaining Length takes precedence over the User Name flag", for clients older than that flag
    credentials = (
        Field("user_name", TEXT, _flag(USER_NAME), missing),
        Field("password", BINARY, _flag(PASSWORD), missing),
    )
    return (
        Field("protocol_name", TEXT),
        Field("version", BYTE),
        Field("flags", CONNECT_FLAGS),
        Field("keep_alive", TWO_BYTES),
        *([_PROPERTIES[_P.CONNECT]] if new else []),
        Field("client_id", TEXT),
        *([Field("will_properties", _properties(WILL), will)] if new else []),
        Field("will_topic", TEXT, will),
        Field("will_payload", BINARY, will),
        *credentials,
    )


#: Unused flags in 3.1, and the flags of packets that have QoS 1 there, with or without DUP and RETAIN.
_UNUSED: Final = range(16)
_QOS_1: Final = (2, 10, 3, 11)


def _layouts(version: int) -> dict[PacketType, Layout]:
    new = version == V5
    zero: Sequence[int] = _UNUSED if version == V31 else (0,)
    two: Sequence[int] = _QOS_1 if version == V31 else (2,)

    def layout(
        packet: PacketType,
        senders: frozenset[Role],
        make: Callable[..., packets.Packet],
        *fields: Field,
        flags: Sequence[int] = zero,
        take: Callable[[Any], Values] | None = None,
    ) -> None:
        found[packet] = Layout(flags, senders, fields, make, take)

    def properties(packet: PacketType) -> list[Field]:
        return [_PROPERTIES[packet]] if new else []

    def ending(packet: PacketType) -> tuple[Field, ...]:
        return (_REASON[packet], Field("properties", _properties(packet), default=NO_PROPERTIES)) if new else ()

    found: dict[PacketType, Layout] = {}
    layout(_P.CONNECT, _CLIENT, _make_connect, *_connect_fields(version), take=_take_connect)
    connack = (
        Field("session_present", UNUSED_BYTE if version == V31 else CONNACK_FLAGS),
        Field("reason_code", _reason(_P.CONNACK)),
        *properties(_P.CONNACK),
    )
    layout(_P.CONNACK, _SERVER, packets.Connack, *connack)
    for ack in (_P.PUBACK, _P.PUBREC, _P.PUBREL, _P.PUBCOMP):
        flags = two if ack == _P.PUBREL else zero
        layout(ack, _BOTH, partial(_make_ack, ack), _ID, *ending(ack), flags=flags, take=_take_ack)
    layout(_P.SUBSCRIBE, _CLIENT, packets.Subscribe, _ID, *properties(_P.SUBSCRIBE), _SUBSCRIPTIONS, flags=two)
    layout(_P.UNSUBSCRIBE, _CLIENT, packets.Unsubscribe, _ID, *properties(_P.UNSUBSCRIBE), _FILTERS, flags=two)
    for answer, make in ((_P.SUBACK, packets.Suback), (_P.UNSUBACK, packets.Unsuback)):
        codes = [Field("reason_codes", _reasons(answer))] if new or answer == _P.SUBACK else []
        layout(answer, _SERVER, make, _ID, *properties(answer), *codes)
    layout(_P.PINGREQ, _CLIENT, packets.Pingreq)
    layout(_P.PINGRESP, _SERVER, packets.Pingresp)
    layout(_P.DISCONNECT, _BOTH if new else _CLIENT, packets.Disconnect, *ending(_P.DISCONNECT))
    if new:
        layout(_P.AUTH, _BOTH, packets.Auth, *ending(_P.AUTH))
    return found


#: Every packet except PUBLISH, by version.
LAYOUTS: Final = {version: _layouts(version) for version in (V31, V311, V5)}
