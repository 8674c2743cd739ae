"""Which frames a client may send when, and the headers that each must have.

    CONNECTING --CONNECT--> ANSWERING --(CONNECTED sent)--> CONNECTED --DISCONNECT--> DISCONNECTED

and from any state to DISCONNECTED when an ERROR is sent.

Anything not in the tables is not allowed.  In a state without transitions nothing is read: between CONNECT and
CONNECTED the client has not been accepted yet, and the version, with its rules, is not known.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class State(Enum):
    """The state of a connection."""

    CONNECTING = "connecting"  # nothing but CONNECT or STOMP, once
    ANSWERING = "answering"  # CONNECT was received: further frames wait for the server's answer
    CONNECTED = "connected"
    DISCONNECTED = "disconnected"  # DISCONNECT was received or an ERROR sent: nothing more is read


_WORK: Final = ("SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT")

TRANSITIONS: Final[dict[State, dict[str, State]]] = {
    State.CONNECTING: {"CONNECT": State.ANSWERING, "STOMP": State.ANSWERING},
    State.ANSWERING: {},
    State.CONNECTED: dict.fromkeys(_WORK, State.CONNECTED) | {"DISCONNECT": State.DISCONNECTED},
    State.DISCONNECTED: {},
}

COMMANDS: Final[dict[bytes, str]] = {command.encode(): command for table in TRANSITIONS.values() for command in table}

#: Headers that a frame must have in every version.  STOMP is another name for CONNECT (1.2, CONNECT or STOMP frame), so
#: it may lack accept-version too.  The names of UNSUBSCRIBE are below.
_ALWAYS: Final[dict[str, tuple[bytes, ...]]] = {
    "CONNECT": (),
    "STOMP": (),
    "DISCONNECT": (),
    "SEND": (b"destination",),
    "UNSUBSCRIBE": (),
    "BEGIN": (b"transaction",),
    "COMMIT": (b"transaction",),
    "ABORT": (b"transaction",),
}

#: The commands of each version, with their required headers.
REQUIRED: Final[dict[str, dict[str, tuple[bytes, ...]]]] = {
    "1.0": _ALWAYS | {"SUBSCRIBE": (b"destination",), "ACK": (b"message-id",)},
    "1.1": _ALWAYS
    | {
        "SUBSCRIBE": (b"destination", b"id"),
        "ACK": (b"message-id", b"subscription"),
        "NACK": (b"message-id", b"subscription"),
    },
    "1.2": _ALWAYS | {"SUBSCRIBE": (b"destination", b"id"), "ACK": (b"id",), "NACK": (b"id",)},
}

_DURABLE_NAMES: Final = (b"durable-subscription-name", b"durable-subscriber-name", b"activemq.subscriptionName")

#: Headers that may name a subscription in UNSUBSCRIBE; one is needed: its id, or its durable name under any name in
#: use; in 1.0 also its destination.
UNSUBSCRIBE_NAMES: Final[dict[str, tuple[bytes, ...]]] = {
    "1.0": (b"id", b"destination", *_DURABLE_NAMES),
    "1.1": (b"id", *_DURABLE_NAMES),
    "1.2": (b"id", *_DURABLE_NAMES),
}

#: Commands that may have a body.  A SUBSCRIBE's body has no meaning and is dropped (1.0, SUBSCRIBE).
BODIES: Final[dict[str, frozenset[str]]] = {
    "1.0": frozenset({"SEND", "SUBSCRIBE"}),
    "1.1": frozenset({"SEND"}),
    "1.2": frozenset({"SEND"}),
}
