"""Which frames a client may send when, and what each must have.

    CONNECTING --CONNECT--> ANSWERING --(CONNECTED sent)--> CONNECTED --DISCONNECT--> DISCONNECTED

and from everywhere to DISCONNECTED when an ERROR is sent.

What is not in the tables is not allowed.  A state without transitions reads nothing: between CONNECT and CONNECTED
nobody has been let in yet, and the rules of the version are not known.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class State(Enum):
    """Where a connection is."""

    CONNECTING = "connecting"  # nothing but CONNECT or STOMP, once
    ANSWERING = "answering"  # CONNECT was seen: what follows waits for the server's answer
    CONNECTED = "connected"
    DISCONNECTED = "disconnected"  # DISCONNECT was seen or an ERROR sent: nothing more is read


_WORK: Final = ("SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT")

TRANSITIONS: Final[dict[State, dict[str, State]]] = {
    State.CONNECTING: {"CONNECT": State.ANSWERING, "STOMP": State.ANSWERING},
    State.ANSWERING: {},
    State.CONNECTED: dict.fromkeys(_WORK, State.CONNECTED) | {"DISCONNECT": State.DISCONNECTED},
    State.DISCONNECTED: {},
}

COMMANDS: Final[dict[bytes, str]] = {command.encode(): command for table in TRANSITIONS.values() for command in table}

#: Headers that a frame must have in every version.  STOMP is CONNECT by another name (1.2, CONNECT or STOMP frame), so
#: that it may lack accept-version too.  The names of UNSUBSCRIBE are below.
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

#: The commands that a version knows, with the headers that each must have.
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

#: What may name a subscription in UNSUBSCRIBE, of which one is needed: its id, or its durable name under the names in
#: use; in 1.0 also its destination.
UNSUBSCRIBE_NAMES: Final[dict[str, tuple[bytes, ...]]] = {
    "1.0": (b"id", b"destination", *_DURABLE_NAMES),
    "1.1": (b"id", *_DURABLE_NAMES),
    "1.2": (b"id", *_DURABLE_NAMES),
}

#: Commands that may have a body.  That of SUBSCRIBE means nothing and is dropped (1.0, SUBSCRIBE).
BODIES: Final[dict[str, frozenset[str]]] = {
    "1.0": frozenset({"SEND", "SUBSCRIBE"}),
    "1.1": frozenset({"SEND"}),
    "1.2": frozenset({"SEND"}),
}
