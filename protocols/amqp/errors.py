"""The errors in a peer's bytes, and what each of them ends.

Every error ends the connection (CLOSE), a session (END) or a link (DETACH), and is sent to the peer with one of the
specification's conditions (part 2, 2.8.15 to 2.8.18; part 4, 4.5.8) and a readable sentence.  Conditions that only a
broker uses (not-found, unauthorized-access ...) are here too, so that they are defined once.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

# any endpoint
INTERNAL_ERROR: Final = "amqp:internal-error"
NOT_FOUND: Final = "amqp:not-found"
UNAUTHORIZED_ACCESS: Final = "amqp:unauthorized-access"
DECODE_ERROR: Final = "amqp:decode-error"
RESOURCE_LIMIT_EXCEEDED: Final = "amqp:resource-limit-exceeded"
NOT_ALLOWED: Final = "amqp:not-allowed"
INVALID_FIELD: Final = "amqp:invalid-field"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
RESOURCE_LOCKED: Final = "amqp:resource-locked"
PRECONDITION_FAILED: Final = "amqp:precondition-failed"
RESOURCE_DELETED: Final = "amqp:resource-deleted"
ILLEGAL_STATE: Final = "amqp:illegal-state"
FRAME_SIZE_TOO_SMALL: Final = "amqp:frame-size-too-small"
# connections
CONNECTION_FORCED: Final = "amqp:connection:forced"
FRAMING_ERROR: Final = "amqp:connection:framing-error"
# sessions
WINDOW_VIOLATION: Final = "amqp:session:window-violation"
HANDLE_IN_USE: Final = "amqp:session:handle-in-use"
UNATTACHED_HANDLE: Final = "amqp:session:unattached-handle"
# links
STOLEN: Final = "amqp:link:stolen"
TRANSFER_LIMIT_EXCEEDED: Final = "amqp:link:transfer-limit-exceeded"
MESSAGE_SIZE_EXCEEDED: Final = "amqp:link:message-size-exceeded"
# transactions
TRANSACTION_UNKNOWN_ID: Final = "amqp:transaction:unknown-id"
TRANSACTION_ROLLBACK: Final = "amqp:transaction:rollback"
TRANSACTION_TIMEOUT: Final = "amqp:transaction:timeout"

#: The most characters or bytes of a peer's value quoted in an error.
_SHOWN_MAX: Final = 80


class Scope(Enum):
    """The endpoint that an error ends."""

    CONNECTION = "connection"
    SESSION = "session"
    LINK = "link"


class AmqpError(Exception):
    """An error of the peer: its condition, what it ends, and a sentence that names the frame, the field and the rule.

    `info` is further information sent with it (part 2, 2.8.14).
    """

    def __init__(
        self,
        condition: str,
        description: str,
        scope: Scope = Scope.CONNECTION,
        info: dict[str, object] | None = None,
    ) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition
        self.description = description
        self.scope = scope
        self.info = info


class FrameTooLarge(AmqpError):
    """A frame exceeds the largest frame size."""


class DecodeError(AmqpError):
    """Bytes that are not an AMQP value, or not the expected one: `offset` is the place in the given bytes."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(DECODE_ERROR, f"byte {offset}: {reason}")
        self.offset = offset
        self.reason = reason


class Truncated(DecodeError):
    """Bytes that end too early."""


class TooMany(DecodeError):
    """More values or sections than a limit allows, however they are encoded."""


def connection_error(condition: str, description: str) -> AmqpError:
    """An error that ends the connection."""
    return AmqpError(condition, description, Scope.CONNECTION)


def session_error(condition: str, description: str) -> AmqpError:
    """An error that ends the session."""
    return AmqpError(condition, description, Scope.SESSION)


def link_error(condition: str, description: str, info: dict[str, object] | None = None) -> AmqpError:
    """An error that ends the link."""
    return AmqpError(condition, description, Scope.LINK, info)


def format_value(value: object) -> str:
    """A peer's value as quoted in an error: short and printable."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    plain = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[:_SHOWN_MAX])
    return f"'{plain}...'" if len(text) > _SHOWN_MAX else f"'{plain}'"


def format_descriptor(descriptor: object) -> str:
    """A descriptor that is not known here: its number, never a text, which may be a password that lost its place."""
    number = isinstance(descriptor, int) and not isinstance(descriptor, bool)
    return f"0x{descriptor:X}" if number else f"of type {type(descriptor).__name__.lower()}"
