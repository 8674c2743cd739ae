"""What the two sides of a connection have told each other, by CONNECT and CONNACK, and what follows from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from protocols.mqtt.codes import PacketType
from protocols.mqtt.errors import violation
from protocols.mqtt.fields import PACKET_BYTES_MAX
from protocols.mqtt.limits import Limits
from protocols.mqtt.packets import Auth, Connack, Connect, Disconnect, Packet
from protocols.mqtt.properties import (
    AUTHENTICATION_METHOD,
    MAXIMUM_PACKET_SIZE,
    REQUEST_PROBLEM_INFORMATION,
    SESSION_EXPIRY_INTERVAL,
    TOPIC_ALIAS_MAXIMUM,
    Properties,
)

#: Packets that may tell why even to a client that does not want to know [MQTT-3.1.2-29].
_TELL_ALWAYS: Final = frozenset({PacketType.CONNACK, PacketType.DISCONNECT})


class Agreement:
    """That of one connection; not more than matters until the end, since it is kept for as long.

    `packet_bytes_max`: bytes of the largest packet that the peer takes; `alias_max`: how many topic aliases we use.
    """

    __slots__ = ("_explaining", "_lasting", "_limits", "_method", "alias_max", "packet_bytes_max")

    def __init__(self, limits: Limits) -> None:
        self.packet_bytes_max = PACKET_BYTES_MAX
        self.alias_max = 0
        self._limits = limits
        self._method: str | None = None
        self._lasting = False  # whether the session outlasts the connection
        self._explaining = True  # whether the client wants explanations

    def connecting(self, properties: Properties) -> None:
        """What CONNECT says, whoever sends it."""
        self._method = properties.get(AUTHENTICATION_METHOD)
        self._lasting = (properties.get(SESSION_EXPIRY_INTERVAL) or 0) > 0
        self._explaining = properties.get(REQUEST_PROBLEM_INFORMATION) != 0

    def hear(self, packet: Packet) -> None:
        """What the peer says.  Raises MqttError if that does not go with what was said before."""
        if isinstance(packet, Connect):
            self.connecting(packet.properties)
            self._respect(packet.properties)
        elif isinstance(packet, Connack):
            if not packet.reason_code:
                self._check_method(packet)
            self._respect(packet.properties)
        elif isinstance(packet, Auth):
            self._check_method(packet)
        else:
            assert isinstance(packet, Disconnect), "others say nothing about the connection"
            self._check_expiry(packet.properties)

    def _respect(self, properties: Properties) -> None:
        """What the peer takes ([MQTT-3.1.2-24], [MQTT-3.1.2-26], [MQTT-3.2.2-17])."""
        self.packet_bytes_max = properties.get(MAXIMUM_PACKET_SIZE) or PACKET_BYTES_MAX
        self.alias_max = min(properties.get(TOPIC_ALIAS_MAXIMUM) or 0, self._limits.topic_alias_max)

    def _check_expiry(self, properties: Properties) -> None:
        """A session that ends with its connection is not prolonged when that ends (3.14.2.2.2).  Raises MqttError."""
        prolonged = properties.get(SESSION_EXPIRY_INTERVAL)
        if prolonged and not self._lasting:
            raise violation(f"DISCONNECT: a session expiry interval of {prolonged} s, where CONNECT had none")

    def _check_method(self, packet: Connack | Auth) -> None:
        """AUTH and the accepting CONNACK name the method of CONNECT [MQTT-4.12.0-5], and no other [MQTT-4.12.0-6].

        Raises MqttError.
        """
        named, method = packet.properties.get(AUTHENTICATION_METHOD), self._method
        if named != method:
            sentence = f"{packet.type.name}: the authentication method is {named!r}, in CONNECT it was {method!r}"
            raise violation(sentence, "MQTT-4.12.0-5" if method else "MQTT-4.12.0-6")

    def naming_method(self, packet: Any) -> Any:
        """CONNACK or AUTH with the authentication method of CONNECT, if there is one [MQTT-4.12.0-5]."""
        if self._method is None or AUTHENTICATION_METHOD in packet.properties:
            return packet
        return replace(packet, properties=Properties([(AUTHENTICATION_METHOD, self._method), *packet.properties]))

    def explains(self, type: PacketType) -> bool:
        """Whether a client wants explanations in such a packet [MQTT-3.1.2-29]."""
        return self._explaining or type in _TELL_ALWAYS
