"""What ends a connection: the peer's fault, or the server's decision.

There is one error.  It carries the reason code of MQTT 5 that tells which, and from that code follows what is sent:

    before CONNACK   5.0: CONNACK with the code; 3.1 and 3.1.1: CONNACK with its return code if there is one, else
                     nothing ([MQTT-3.1.4-1], [MQTT-3.2.2-6] of 3.1.1)
    after CONNACK    5.0: DISCONNECT with the code; 3.1 and 3.1.1: nothing, they have no such packet
    silent           nothing in either case: the peer may not be an MQTT client at all

and then the connection closes ([MQTT-4.13.1-1], [MQTT-4.13.2-1]).
"""

from __future__ import annotations

from typing import Final

from protocols.mqtt.codes import FAILURE, REASONS, RETURN_CODES, V5, PacketType, ReasonCode, Role

#: Characters of the peer's that a sentence quotes.
_SHOWN_MAX: Final = 80


class MqttError(Exception):
    """Why a connection ends.

    `reason` is the code of MQTT 5, `sentence` says it to a person and is fit for a reason string; `rule` is the
    statement of the specification that was broken (of 5.0 where it has one), or empty.  `servers` are those that the
    peer may use instead, as a Server Reference names them (5.0, 4.11).
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
        """What a CONNACK of 3.1 or 3.1.1 says; None: there is none, the connection just closes."""
        return None if self.silent else RETURN_CODES.get(self.reason)

    @property
    def connack(self) -> bool:
        """Whether a CONNACK of 5.0 says it."""
        return not self.silent and self.reason in REASONS[V5][PacketType.CONNACK]

    def disconnect(self, sender: Role = Role.SERVER) -> bool:
        """Whether a DISCONNECT of 5.0 says it, sent by this side."""
        codes = REASONS[V5][PacketType.DISCONNECT]
        return not self.silent and sender in codes.get(self.reason, ())

    def within(self, where: str) -> MqttError:
        """The same, with where it was found."""
        return MqttError(self.reason, f"{where}: {self.sentence}", self.rule, silent=self.silent)


def malformed(sentence: str, rule: str = "", *, silent: bool = False) -> MqttError:
    """The bytes cannot be read by the specification (1.2, Malformed Packet)."""
    return MqttError(ReasonCode.MALFORMED_PACKET, sentence, rule, silent=silent)


def too_large(nbytes: int, most: int, *, stranger: bool) -> MqttError:
    """A packet of so many bytes, which a `stranger` or anybody may not send."""
    before = " before the login" if stranger else ""
    sentence = f"a packet of {nbytes} bytes, at most {most} are allowed{before}"
    return MqttError(ReasonCode.PACKET_TOO_LARGE, sentence, "MQTT-3.2.2-15")


def violation(sentence: str, rule: str = "") -> MqttError:
    """The bytes can be read, but must not be there or not say that (1.2, Protocol Error)."""
    return MqttError(ReasonCode.PROTOCOL_ERROR, sentence, rule)


def shown(value: str | bytes) -> str:
    """Something of the peer's in a sentence: short, and nothing that is not printable."""
    cut = value[:_SHOWN_MAX]
    text = cut if isinstance(cut, str) else cut.decode("utf-8", "backslashreplace")
    plain = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return f"'{plain}...'" if len(value) > _SHOWN_MAX else f"'{plain}'"
