"""Recognises the protocol of a client that connected to the wrong acceptor, and advises the operator.

It knows what new installations usually get wrong: the protocols of the other acceptors, TLS on an acceptor without it,
and the protocols of brokers that Bartleby replaces.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

#: How many of a connection's first bytes are needed to recognise its protocol.
FIRST_BYTES: Final = 16

_METHODS: Final = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"PRI * HTTP/2")

#: By protocol; for the messaging protocols of Bartleby, `advice` has its own.
_ADVICE: Final = {
    "TLS": "this acceptor has no TLS: connect without it, or give the acceptor a certificate",
    "HTTP": "management calls, health and metrics are on the acceptor with the protocol http",
    "AMQP 0-9-1": "Bartleby speaks AMQP 1.0: use a client for that, or for STOMP or MQTT",
    "OpenWire": "Bartleby does not speak this protocol: use a client for AMQP 1.0 (Qpid JMS), STOMP or MQTT",
    "Artemis core": "Bartleby does not speak this protocol: use a client for AMQP 1.0 (Qpid JMS), STOMP or MQTT",
}


def spoken(first: bytes) -> str:
    """Return the protocol of a connection with these first bytes, by its usual name; empty if it is not recognised."""
    if first[:2] == b"\x16\x03":
        return "TLS"
    if first.startswith(b"AMQP\0\0\x09"):
        return "AMQP 0-9-1"
    if first.startswith((b"AMQP\0", b"AMQP\2", b"AMQP\3")):
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
    """Return what to do about a client that speaks `protocol` to this acceptor; empty if it is one of `served`."""
    if not protocol or protocol in served:
        return ""
    if "HTTP" in served and protocol not in _ADVICE:
        return f"this acceptor expects HTTP, or WebSocket: connect to one for {protocol} without WebSocket"
    return _ADVICE.get(protocol, f"connect to the acceptor for {protocol}, or have this one serve it too (also)")
