"""Decodes packets by the table, and checks the rules that concern several fields of a packet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from protocols.mqtt.codes import PROTOCOL_NAMES, V5, V31, V311, PacketType, ReasonCode
from protocols.mqtt.errors import MqttError, malformed, violation
from protocols.mqtt.fields import Context, read_binary, read_byte
from protocols.mqtt.layout import LAYOUTS, Values
from protocols.mqtt.limits import Limits
from protocols.mqtt.packets import Auth, Connack, Connect, Packet
from protocols.mqtt.properties import AUTHENTICATION_DATA, AUTHENTICATION_METHOD
from protocols.mqtt.topics import check_will_topic


def decode(first: int, data: bytes, at: int, end: int, context: Context) -> Packet:
    """The packet with this first byte and its fields at `data[at:end]`, of a type that the version has, not PUBLISH.

    Raises MqttError.
    """
    packet = PacketType(first >> 4)
    layout = LAYOUTS[context.version][packet]
    if context.sender not in layout.senders:
        raise violation(f"a {context.sender.value} does not send {packet.name}")
    flags = first & 0x0F
    if flags not in layout.flags:
        rule = _FLAG_RULES.get(packet, "MQTT-2.1.3-1")
        raise malformed(f"{packet.name}: the flags {flags:04b} are reserved", rule)
    values: Values = {}
    for field in layout.fields:
        if field.optional and at == end:
            break
        if field.when is None or field.when(values):
            try:
                values[field.name], at = field.kind.read(data, at, end, context)
            except MqttError as error:
                raise error.within(f"{packet.name}: {field.name.replace('_', ' ')}") from None
    if at != end:
        raise malformed(f"{packet.name}: {end - at} bytes after the last field")
    made = layout.make(**values)
    if packet in _CHECKS:
        _CHECKS[packet](made, context.limits)
    return made


def connect_version(data: bytes, at: int, end: int) -> tuple[int, MqttError | None]:
    """The version in which to answer the CONNECT with these fields, and the error if its own is unknown.

    A protocol with another name than MQTT's gets no answer, as it may be anything [MQTT-3.1.2-1]; an unknown version
    gets one [MQTT-3.1.2-2].  Raises MqttError.
    """
    try:
        name, at = read_binary(data, at, end)
        level, at = read_byte(data, at, end)
    except MqttError as error:
        raise MqttError(error.reason, f"CONNECT: {error.sentence}", error.rule, silent=True) from None
    unsupported = ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
    if name not in [known.encode() for known in PROTOCOL_NAMES.values()]:
        sentence = f"CONNECT: the protocol is MQTT or MQIsdp, not a name of {len(name)} bytes"
        raise MqttError(unsupported, sentence, "MQTT-3.1.2-1", silent=True)
    if level in PROTOCOL_NAMES and PROTOCOL_NAMES[level].encode() == name:
        return level, None
    known = ", ".join(f"{name} of level {level}" for level, name in PROTOCOL_NAMES.items())
    sentence = f"CONNECT: {name.decode()} of level {level} is unknown here; known are {known}"
    # levels from 0x80 on are bridges', which mean the version in the other bits
    return V5 if V5 < level < 0x80 else V311, MqttError(unsupported, sentence, "MQTT-3.1.2-2")


def early_version(data: bytes, at: int) -> int:
    """The version in which to answer an incomplete CONNECT with these fields; 0: not known yet.  Raises MqttError."""
    return connect_version(data, at, len(data))[0] if len(data) - at >= _VERSION_BYTES_MAX else 0


#: The most bytes of a CONNECT that are needed to tell its version: a length, a name of six letters, and a level.
_VERSION_BYTES_MAX: Final = 9

#: The statement about the flags of a packet, if it has one of its own.
_FLAG_RULES: Final = {
    PacketType.PUBREL: "MQTT-3.6.1-1",
    PacketType.SUBSCRIBE: "MQTT-3.8.1-1",
    PacketType.UNSUBSCRIBE: "MQTT-3.10.1-1",
    PacketType.DISCONNECT: "MQTT-3.14.1-1",
    PacketType.AUTH: "MQTT-3.15.1-1",
}


def _check_connect(packet: Connect, limits: Limits) -> None:
    _check_client_id(packet, limits)
    if packet.will is not None:
        check_will_topic(packet.will.topic, limits)
    if AUTHENTICATION_DATA in packet.properties and AUTHENTICATION_METHOD not in packet.properties:
        raise violation("CONNECT: authentication data without an authentication method")


def _check_client_id(packet: Connect, limits: Limits) -> None:
    """Check the client identifier; the server replaces an empty one, if the version allows that ([MQTT-3.1.3-6]).

    3.1 demands that more than 23 characters be refused, but clients use more, and brokers accept them.
    """
    length = len(packet.client_id.encode())
    if length > limits.client_id_bytes_max:
        raise _client_id(packet, f"at most {limits.client_id_bytes_max} bytes are allowed")
    if packet.version == V31 and not length:
        raise _client_id(packet, "MQTT 3.1 wants at least one character")
    if packet.version == V311 and not length and not packet.clean_start:
        raise _client_id(packet, "without one there is no session to go on with", "MQTT-3.1.3-8 of 3.1.1")


def _client_id(packet: Connect, why: str, rule: str = "") -> MqttError:
    sentence = f"CONNECT: the client identifier, of {len(packet.client_id.encode())} bytes: {why}"
    return MqttError(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, sentence, rule)


def _check_connack(packet: Connack, limits: Limits) -> None:
    if packet.session_present and packet.reason_code:
        raise violation("CONNACK: a session is present although the connection is refused", "MQTT-3.2.2-6")


def _check_auth(packet: Auth, limits: Limits) -> None:
    if AUTHENTICATION_METHOD not in packet.properties:
        raise violation("AUTH: the authentication method is missing", "MQTT-4.12.0-5")


_CHECKS: Final[dict[PacketType, Callable[[Any, Limits], None]]] = {
    PacketType.CONNECT: _check_connect,
    PacketType.CONNACK: _check_connack,
    PacketType.AUTH: _check_auth,
}
