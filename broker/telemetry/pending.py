"""Notes of what happened to messages, from which spans are made."""

from __future__ import annotations

from typing import Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, TraceFlags

from broker.engine.model.message import Message

#: Characters of a text in a span: fits a sentence and an exception's message, as in a dead letter.
TEXT_CHARS_MAX: Final = 1024

#: The SDK's queue only requires that a span is sampled.
_IN_QUEUE: Final = SpanContext(1, 1, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

Detail = str | int | bool


class PendingSpan(ReadableSpan):
    """A note of what happened to a message, for the SDK's queue; the exporter's thread makes the span.

    `start` and `end` are nanoseconds since the epoch.  `key` is 0 for a message with a trace context; other messages
    get a trace derived from `key`, a message id.  `error` is empty if nothing failed.
    """

    def __init__(self, operation: str, message: Message, now: int, key: int) -> None:
        self._context = _IN_QUEUE
        self.operation = operation
        self.header = message.header
        self.head = message.head
        self.id = message.id
        self.body_bytes = len(message.body)
        self.start = self.end = now
        self.key = key
        self.error = ""
        self.error_type = ""
        self.details: dict[str, Detail] = {}
