"""Which frames a client may send when, and what each must have.

A connection is in one of three states.  What is not in the table is not allowed.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class State(Enum):
    """Where a connection is."""

    CONNECTING = "connecting"  # nothing but CONNECT or STOMP, once
    CONNECTED = "connected"
    DISCONNECTED = "disconnected"  # DISCONNECT was seen: nothing more is read


_WORK: Final = ("SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT")

TRANSITIONS: Final[dict[State, dict[str, State]]] = {
    State.CONNECTING: {"CONNECT": State.CONNECTED, "STOMP": State.CONNECTED},
    State.CONNECTED: dict.fromkeys(_WORK, State.CONNECTED) | {"DISCONNECT": State.DISCONNECTED},
    State.DISCONNECTED: {},
}

COMMANDS: Final[dict[bytes, str]] = {
    command.encode(): command for table in TRANSITIONS.values() for command in table
}

#: Commands that a version does not know.
UNKNOWN: Final[dict[str, frozenset[str]]] = {
    "1.0": frozenset({"NACK"}),
    "1.1": frozenset(),
    "1.2": frozenset(),
}

#: Headers that a frame must have, by version (UNSUBSCRIBE of 1.0 takes either of two: see `connection`).
_ALWAYS: Final[dict[str, tuple[bytes, ...]]] = {
    "CONNECT": (),
    "STOMP": (b"accept-version",),
    "DISCONNECT": (),
    "SEND": (b"destination",),
    "BEGIN": (b"transaction",),
    "COMMIT": (b"transaction",),
    "ABORT": (b"transaction",),
}

REQUIRED: Final[dict[str, dict[str, tuple[bytes, ...]]]] = {
    "1.0": _ALWAYS
    | {"SUBSCRIBE": (b"destination",), "UNSUBSCRIBE": (), "ACK": (b"message-id",), "NACK": (b"message-id",)},
    "1.1": _ALWAYS
    | {
        "SUBSCRIBE": (b"destination", b"id"),
        "UNSUBSCRIBE": (),
        "ACK": (b"message-id", b"subscription"),
        "NACK": (b"message-id", b"subscription"),
    },
    "1.2": _ALWAYS
    | {"SUBSCRIBE": (b"destination", b"id"), "UNSUBSCRIBE": (), "ACK": (b"id",), "NACK": (b"id",)},
}
