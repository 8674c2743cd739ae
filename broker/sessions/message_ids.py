"""Message ids and correlation ids as texts, as the AMQP JMS mapping (3.2.1.1) writes them, and back.

    AMQP                             text
    a string                         itself
    a ulong                          ID:AMQP_ULONG:5
    a uuid                           ID:AMQP_UUID:f81d4fae-7dec-11d0-a765-00a0c91e6bf6
    binary, MQTT's correlation data  ID:AMQP_BINARY:00FF
    a string that begins like these  ID:AMQP_STRING:ID:AMQP_ULONG:5

So a client that answers through another protocol gives back the id as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final
from uuid import UUID

from protocols.amqp.performatives import MessageId
from protocols.amqp.types import ULong

_PREFIX: Final = "ID:AMQP_"
_BINARY: Final = "ID:AMQP_BINARY:"
_STRING: Final = "ID:AMQP_STRING:"
_ULONG: Final = "ID:AMQP_ULONG:"
_UUID: Final = "ID:AMQP_UUID:"
_ULONG_MAX: Final = 2**64 - 1

_READERS: Final[dict[str, Callable[[str], MessageId]]] = {
    _BINARY: bytes.fromhex,
    _ULONG: lambda text: _ulong(text),
    _UUID: UUID,
}


def _ulong(text: str) -> ULong:
    """Return the number of a text.  Raises ValueError if AMQP has no such ulong."""
    number = int(text)
    if not 0 <= number <= _ULONG_MAX:
        raise ValueError(f"{number} is no ulong")
    return ULong(number)


def id_text(id: MessageId) -> str:
    """Return an id as text."""
    if isinstance(id, str):
        return _STRING + id if id.startswith(_PREFIX) and _is_ambiguous(id) else str(id)
    if isinstance(id, bytes):
        return _BINARY + id.hex().upper()
    return f"{_UUID}{id}" if isinstance(id, UUID) else f"{_ULONG}{int(id)}"


def id_of(text: str) -> MessageId:
    """Return the id of a text: the text itself if `id_text` writes no other id so."""
    if not text.startswith(_PREFIX):
        return text
    id = _typed(text)
    if id is not None:
        return id
    inner = text.removeprefix(_STRING)
    return inner if inner != text and _is_ambiguous(inner) else text


def _typed(text: str) -> MessageId | None:
    """Return the id of another type than string that is written so."""
    for prefix, read in _READERS.items():
        if text.startswith(prefix):
            with suppress(ValueError):
                id = read(text[len(prefix) :])
                if id_text(id) == text:
                    return id
    return None


def _is_ambiguous(text: str) -> bool:
    """Whether a string would be read as an id of another type, or as another string."""
    at = 0
    while text.startswith(_STRING, at):
        at += len(_STRING)
    return _typed(text[at:]) is not None


def correlation_text(data: bytes) -> str:
    """Return MQTT's correlation data as text."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return id_text(data)


def correlation_data(text: str) -> bytes:
    """Return the correlation data of a text: only what is no UTF-8 goes as bytes, so that it comes back as it was."""
    id = id_of(text)
    if isinstance(id, bytes):
        try:
            id.decode()
        except UnicodeDecodeError:
            return id
    return text.encode()
