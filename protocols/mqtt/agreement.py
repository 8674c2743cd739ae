"""The terms of a connection, negotiated in CONNECT and CONNACK: limits, authentication method, explanations."""

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

#: Packets that may carry a Reason String even for a client that wants none [MQTT-3.1.2-29].
_TELL_ALWAYS: Final = frozenset({PacketType.CONNACK, PacketType.DISCONNECT})


class Agreement:
    """The terms of one connection: only those that matter until its end, to save memory.

    `packet_bytes_max`: bytes of the largest packet that the peer accepts; `alias_max`: how many topic aliases we use.
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
        """Note the properties of CONNECT, sent or received."""
        self._method = properties.get(AUTHENTICATION_METHOD)
        self._lasting = (properties.get(SESSION_EXPIRY_INTERVAL) or 0) > 0
        self._explaining = properties.get(REQUEST_PROBLEM_INFORMATION) != 0

    def receive(self, packet: Packet) -> None:
        """Note a packet of the peer.  Raises MqttError if it contradicts an earlier one."""
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
        """Note the limits of the peer ([MQTT-3.1.2-24], [MQTT-3.1.2-26], [MQTT-3.2.2-17])."""
        self.packet_bytes_max = properties.get(MAXIMUM_PACKET_SIZE) or PACKET_BYTES_MAX
        self.alias_max = min(properties.get(TOPIC_ALIAS_MAXIMUM) or 0, self._limits.topic_alias_max)

    def _check_expiry(self, properties: Properties) -> None:
        """Check that DISCONNECT does not prolong a session that ends with its connection (3.14.2.2.2).

        Raises MqttError.
        """
        prolonged = properties.get(SESSION_EXPIRY_INTERVAL)
        if prolonged and not self._lasting:
            raise violation(f"DISCONNECT: a session expiry interval of {prolonged} s, where CONNECT had none")

    def _check_method(self, packet: Connack | Auth) -> None:
        """Check that AUTH or a successful CONNACK names the method of CONNECT [MQTT-4.12.0-5] [MQTT-4.12.0-6].

        Raises MqttError.
        """
        named, method = packet.properties.get(AUTHENTICATION_METHOD), self._method
        if named != method:
            sentence = f"{packet.type.name}: the authentication method is not that of CONNECT"
            raise violation(sentence, "MQTT-4.12.0-5" if method else "MQTT-4.12.0-6")

    def naming_method(self, packet: Any) -> Any:
        """Return a CONNACK or AUTH with the authentication method of CONNECT, if there is one [MQTT-4.12.0-5]."""
        if self._method is None or AUTHENTICATION_METHOD in packet.properties:
            return packet
        return replace(packet, properties=Properties([(AUTHENTICATION_METHOD, self._method), *packet.properties]))

    def explains(self, type: PacketType) -> bool:
        """Whether a client wants explanations in such a packet [MQTT-3.1.2-29]."""
        return self._explaining or type in _TELL_ALWAYS
