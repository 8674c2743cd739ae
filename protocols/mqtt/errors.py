"""The error that ends a connection: an error of the peer, or the server's decision.

It carries a reason code of MQTT 5, which decides what is sent:

    before CONNACK   5.0: CONNACK with the code; 3.1 and 3.1.1: CONNACK with its return code if there is one, else
                     nothing ([MQTT-3.1.4-1], [MQTT-3.2.2-6] of 3.1.1)
    after CONNACK    5.0: DISCONNECT with the code; 3.1 and 3.1.1: nothing, they have no such packet
    silent           nothing in either case: the peer may not be an MQTT client at all

and then the connection closes ([MQTT-4.13.1-1], [MQTT-4.13.2-1]).
"""

from __future__ import annotations

from typing import Final

from protocols.mqtt.codes import FAILURE, REASONS, RETURN_CODES, V5, PacketType, ReasonCode, Role

#: The most characters of a peer's value quoted in an error.
_SHOWN_MAX: Final = 80


class MqttError(Exception):
    """Why a connection ends.

    `reason` is the code of MQTT 5; `sentence` explains it and is fit for a reason string; `rule` is the statement of
    the specification that was violated (of 5.0 where it has one), or empty.  `servers` are those that the peer may use
    instead, as a Server Reference names them (5.0, 4.11).
    """

    def __init__(
        self, reason: ReasonCode, sentence: str, rule: str = "", *, silent: bool = False, servers: str = ""
    ) -> None:
        super().__init__(f"{sentence} [{rule}]" if rule else sentence)
        assert reason >= FAILURE
        self.reason = reason
        self.sentence = sentence
        self.rule = rule
        self.silent = silent
        self.servers = servers

    @property
    def return_code(self) -> int | None:
        """The return code for a CONNACK of 3.1 or 3.1.1; None: none is sent, the connection just closes."""
        return None if self.silent else RETURN_CODES.get(self.reason)

    @property
    def connack(self) -> bool:
        """Whether it is sent in a CONNACK of 5.0."""
        return not self.silent and self.reason in REASONS[V5][PacketType.CONNACK]

    def disconnect(self, sender: Role = Role.SERVER) -> bool:
        """Whether it can be sent in a DISCONNECT of 5.0 by this side."""
        codes = REASONS[V5][PacketType.DISCONNECT]
        return not self.silent and sender in codes.get(self.reason, ())

    def within(self, where: str) -> MqttError:
        """The same error, with the place where it was found."""
        return MqttError(self.reason, f"{where}: {self.sentence}", self.rule, silent=self.silent)


def malformed(sentence: str, rule: str = "", *, silent: bool = False) -> MqttError:
    """An error for bytes that cannot be parsed (1.2, Malformed Packet)."""
    return MqttError(ReasonCode.MALFORMED_PACKET, sentence, rule, silent=silent)


def too_large(nbytes: int, most: int, *, before_login: bool) -> MqttError:
    """An error for a packet of `nbytes` bytes: too large for any client, or (`before_login`) before login."""
    before = " before the login" if before_login else ""
    sentence = f"a packet of {nbytes} bytes, at most {most} are allowed{before}"
    return MqttError(ReasonCode.PACKET_TOO_LARGE, sentence, "MQTT-3.2.2-15")


def violation(sentence: str, rule: str = "") -> MqttError:
    """An error for bytes that can be parsed but are not allowed there, or not with that value (1.2, Protocol Error)."""
    return MqttError(ReasonCode.PROTOCOL_ERROR, sentence, rule)


def format_value(value: str | bytes) -> str:
    """A peer's value as quoted in an error: short and printable."""
    cut = value[:_SHOWN_MAX]
    text = cut if isinstance(cut, str) else cut.decode("utf-8", "backslashreplace")
    plain = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return f"'{plain}...'" if len(value) > _SHOWN_MAX else f"'{plain}'"
