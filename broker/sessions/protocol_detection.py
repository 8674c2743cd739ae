"""What a client speaks that came to the wrong acceptor, by its first bytes, and what to tell the operator.

The protocols that a broker is taken for in the first hour: those of its other acceptors, TLS where there is none, and
those of brokers that it replaces.  Nothing here decides anything: the session has refused the bytes already.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

#: So many of a connection's first bytes tell the protocol.
FIRST_BYTES: Final = 16

_METHODS: Final = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH ")

#: Of others than the messaging protocols.
_ADVICE: Final = {
    "TLS": "this acceptor has no TLS: connect without it, or give the acceptor a certificate",
    "HTTP": "management calls, health and metrics are on the acceptor with the protocol http",
    "AMQP 0-9-1": "Bartleby speaks AMQP 1.0: use a client for that, or for STOMP or MQTT",
    "OpenWire": "Bartleby does not speak this protocol: use a client for AMQP 1.0 (Qpid JMS), STOMP or MQTT",
    "Artemis core": "Bartleby does not speak this protocol: use a client for AMQP 1.0 (Qpid JMS), STOMP or MQTT",
}


def spoken(first: bytes) -> str:
    """The protocol of a connection that began so, as acceptors or people call it; empty if that cannot be told."""
    if first[:2] == b"\x16\x03":
        return "TLS"
    if first.startswith(b"AMQP\0\0\x09"):
        return "AMQP 0-9-1"
    if first.startswith((b"AMQP\0", b"AMQP\3")):
        return "amqp"
    if first[:1] == b"\x10" and (b"MQTT" in first or b"MQIsdp" in first):
        return "mqtt"
    if first.startswith((b"CONNECT\n", b"CONNECT\r\n", b"STOMP\n", b"STOMP\r\n")):
        return "stomp"
    if first.startswith(_METHODS) or first.startswith(b"CONNECT "):
        return "HTTP"
    if b"ActiveMQ" in first:
        return "OpenWire"
    return "Artemis core" if first.startswith((b"ARTEMIS", b"HORNETQ")) else ""


def advice(protocol: str, served: Collection[str]) -> str:
    """What to do about a client that speaks `protocol` to an acceptor for others; empty if it is one of `served`."""
    if not protocol or protocol in served:
        return ""
    return _ADVICE.get(protocol, f"connect to the acceptor for {protocol}, or let this one take it too (also)")
