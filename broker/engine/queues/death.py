"""Why a message died: what its copy, its record, notifications and spans say of it."""

from __future__ import annotations

from typing import Final

from broker.engine.queues.queue import Consumer
from store.record import DeadLetterReason

#: Bytes stored of a reason's text: enough for a sentence and an exception's message, bounded because a client supplies
#: it and every copy carries it.
TEXT_BYTES_MAX: Final = 1024


class Death:
    """Why a message died or expired, and with which consumer (None: with none).

    `text` is cleaned once, here: it has no control characters, and at most TEXT_BYTES_MAX bytes of UTF-8.
    """

    __slots__ = ("consumer", "reason", "text")

    def __init__(self, reason: DeadLetterReason, text: str, consumer: Consumer | None = None) -> None:
        self.reason = reason
        self.text = clean_text(text)
        self.consumer = consumer


def clean_text(text: str) -> str:
    """A reason's text without control characters and at most TEXT_BYTES_MAX bytes of UTF-8."""
    printable = text[:TEXT_BYTES_MAX]
    if not printable.isprintable():
        printable = "".join([c if c.isprintable() else " " for c in printable])
    return printable.encode()[:TEXT_BYTES_MAX].decode(errors="ignore")
