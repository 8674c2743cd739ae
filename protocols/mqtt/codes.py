"""The numbers of MQTT: versions, packet types, reason codes, and which packet may carry which reason code.

Sources: MQTT 5.0 tables 2-1, 2-6, 3-1, 3-4 to 3-11; MQTT 3.1.1 tables 2.1, 3.1 and section 3.9.3; MQTT 3.1.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final

#: Protocol levels, by which CONNECT names the versions.
V31: Final = 3
V311: Final = 4
V5: Final = 5
VERSIONS: Final = {V31: "3.1", V311: "3.1.1", V5: "5.0"}

#: The bit of a protocol level that identifies a client as a broker; it is in no specification.
BRIDGE: Final = 0x80

#: The name of the protocol in CONNECT, by version.
PROTOCOL_NAMES: Final = {V31: "MQIsdp", V311: "MQTT", V5: "MQTT"}


class Role(Enum):
    """The two sides of a connection."""

    CLIENT = "client"
    SERVER = "server"

    @property
    def peer(self) -> Role:
        """The other side."""
        return Role.CLIENT if self is Role.SERVER else Role.SERVER


class PacketType(IntEnum):
    """The upper four bits of a packet's first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class ReasonCode(IntEnum):
    """Why something ended as it did; 0x80 and above are failures (2.4)."""

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL_MESSAGE = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    RE_AUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


#: From here on a reason code is a failure.
FAILURE: Final = 0x80

_P = PacketType
_BOTH: Final = frozenset(Role)
_CLIENT: Final = frozenset({Role.CLIENT})
_SERVER: Final = frozenset({Role.SERVER})

#: The reason codes of CONNACK in 3.1 and 3.1.1, called return codes there, by the corresponding reason codes of 5.0.
#: For others the connection is closed without a CONNACK (3.1.1, [MQTT-3.2.2-6]).
RETURN_CODES: Final[dict[ReasonCode, int]] = {
    ReasonCode.SUCCESS: 0,
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: 1,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: 2,
    ReasonCode.SERVER_UNAVAILABLE: 3,
    ReasonCode.SERVER_BUSY: 3,
    ReasonCode.QUOTA_EXCEEDED: 3,
    ReasonCode.USE_ANOTHER_SERVER: 3,
    ReasonCode.SERVER_MOVED: 3,
    ReasonCode.CONNECTION_RATE_EXCEEDED: 3,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: 4,
    ReasonCode.NOT_AUTHORIZED: 5,
    ReasonCode.BANNED: 5,
}


def _from(senders: frozenset[Role], *codes: int) -> dict[int, frozenset[Role]]:
    return dict.fromkeys(codes, senders)


#: Tables 3-4 and 3-5 reserve 0x10 for servers; Mosquitto's bridges are servers that connect as clients, and send it.
_PUBLISH_RECEIVED: Final = _from(_BOTH, 0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99)
_PUBLISH_RELEASED: Final = _from(_BOTH, 0x00, 0x92)

#: The codes that a packet of 5.0 may carry, each with the sides that may send it.  Table 3-10 lacks Bad authentication
#: method, which table 2-6 allows in DISCONNECT; QoS not supported is for servers in table 3-10, for clients in 3.3.4.
_REASONS_V5: Final[dict[PacketType, dict[int, frozenset[Role]]]] = {
    _P.CONNACK: _from(_SERVER, 0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, *range(0x99, 0x9E), 0x9F),
    _P.PUBACK: _PUBLISH_RECEIVED,
    _P.PUBREC: _PUBLISH_RECEIVED,
    _P.PUBREL: _PUBLISH_RELEASED,
    _P.PUBCOMP: _PUBLISH_RELEASED,
    _P.SUBACK: _from(_SERVER, 0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2),
    _P.UNSUBACK: _from(_SERVER, 0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91),
    _P.DISCONNECT: _from(_CLIENT, 0x04)
    | _from(_BOTH, 0x00, *range(0x80, 0x84), 0x90, *range(0x93, 0x9A), 0x9B)
    | _from(_SERVER, 0x87, 0x89, 0x8B, 0x8C, 0x8D, 0x8E, 0x8F, 0x9A, *range(0x9C, 0xA3)),
    _P.AUTH: _from(_SERVER, 0x00) | _from(_BOTH, 0x18) | _from(_CLIENT, 0x19),
}
_CONNACK_V3: Final = {_P.CONNACK: _from(_SERVER, *range(6))}

#: The codes that a packet may carry in a version, each with the sides that may send it.  3.1 cannot refuse a
#: subscription.
REASONS: Final[dict[int, dict[PacketType, dict[int, frozenset[Role]]]]] = {
    V31: _CONNACK_V3 | {_P.SUBACK: _from(_SERVER, 0, 1, 2)},
    V311: _CONNACK_V3 | {_P.SUBACK: _from(_SERVER, 0, 1, 2, 0x80)},
    V5: _REASONS_V5,
}
