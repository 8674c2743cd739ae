"""The engine's events of messages, noted for messages that are traced.

The event loop only searches each message's headers, and makes a note for traced ones; spans are made in the exporter's
thread (`export`).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence, Set
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

from broker.engine import Consumer, Death, Queue
from broker.engine.model.errors import EngineError
from broker.engine.model.message import DL_FIRST_MESSAGE_ID, Message
from broker.engine.model.notes import NOTIFICATIONS
from broker.engine.model.report import Report
from broker.telemetry.export import Export
from broker.telemetry.pending import TEXT_CHARS_MAX, Detail, PendingSpan

#: Bytes of headers above which a message is not traced: notes that wait for their export keep them in memory.
HEAD_BYTES_MAX: Final = 4 << 10

#: A sampled trace context, in any encoding of headers.  It is parsed exactly later.
_NAME: Final = b"traceparent"
_SAMPLED: Final = re.compile(
    rb"traceparent.{1,12}?[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][13579bdf]", re.DOTALL
).search

#: Spreads consecutive ids evenly over all 64-bit numbers (Fibonacci hashing).
_SPREAD: Final = 0x9E3779B97F4A7C15
_NUMBERS: Final = 1 << 64

P = ParamSpec("P")
T = TypeVar("T")


def _harmless(default: T) -> Callable[[Callable[Concatenate[MessageTracer, P], T]], Callable[..., T]]:
    """A decorator: an exception in the tracer costs a log line, but no message."""

    def decorate(method: Callable[Concatenate[MessageTracer, P], T]) -> Callable[..., T]:
        @wraps(method)
        def guarded(self: MessageTracer, *args: P.args, **named: P.kwargs) -> T:
            try:
                return method(self, *args, **named)
            except Exception as error:
                self.report("broker.error", error=f"telemetry: {type(error).__name__}: {error}")
                return default

        return guarded

    return decorate


class MessageTracer:
    """The engine's `Tracer`: notes events of messages that their senders trace, and of a share of the others.

    `now` returns nanoseconds since the epoch.
    """

    transport = None

    def __init__(self, queue: Export, report: Report, now: Callable[[], int], *, ratio: float) -> None:
        self.report = report
        self._queue = queue
        self._offer = queue.offer
        self._now = now
        self._bound = int(ratio * _NUMBERS)
        #: Accepted messages that are not durable yet, by tick.
        self._undurable: deque[tuple[int, list[PendingSpan]]] = deque()

    # -- events of the engine --------------------------------------------------------------------------------------

    @_harmless(False)
    def published(self, messages: Sequence[Message], tick: int) -> bool:
        """Begin a span for each message, which ends once the message is durable and may be confirmed."""
        waiting = []
        for message, span in self._notes("publish", messages):
            if message.segment:
                waiting.append(span)
            else:
                self._offer(span)
        if waiting:
            self._undurable.append((tick, waiting))
        return bool(waiting)

    @_harmless(None)
    def durable(self, number: int) -> None:
        """End the spans of messages that are now on disk."""
        now = self._now()
        while self._undurable and self._undurable[0][0] <= number:
            for span in self._undurable.popleft()[1]:
                span.end = now
                self._offer(span)

    @_harmless(None)
    def refused(self, messages: Sequence[Message], error: EngineError) -> None:
        """Add a failed span for each refused message."""
        for _, span in self._notes("publish", messages):
            span.error, span.error_type = str(error)[:TEXT_CHARS_MAX], type(error).__name__
            self._offer(span)

    @_harmless(None)
    def delivered(self, consumer: Consumer, messages: Sequence[Message]) -> None:
        """Add a span for each message sent to a consumer."""
        queue = consumer.queue
        for message, span in self._notes("deliver", messages):
            span.details = _of_queue(queue) | _of_consumer(consumer)
            span.details["messaging.bartleby.delivery.attempt"] = queue.delivery_count(message.id) + 1
            self._offer(span)

    @_harmless(None)
    def acknowledged(self, queue: Queue, messages: Sequence[Message]) -> None:
        """Add a span for each acknowledged message."""
        for _, span in self._notes("ack", messages):
            span.details = _of_queue(queue)
            self._offer(span)

    @_harmless(None)
    def returned(
        self, queue: Queue, messages: Sequence[Message], failed: Set[int], text: str, consumer: Consumer | None
    ) -> None:
        """Add a span for each returned message, with an error if the delivery counts as failed."""
        text = text[:TEXT_CHARS_MAX]
        for message, span in self._notes("return", messages):
            span.details = _of_queue(queue) | _of_consumer(consumer)
            span.details["messaging.bartleby.delivery.outcome"] = text
            if message.id in failed:
                span.error, span.error_type = text, "delivery_failed"
            self._offer(span)

    @_harmless(None)
    def died(self, message: Message, copy: Message | None, queue: Queue | None, death: Death) -> None:
        """Add a span for a death, with its reason."""
        text, reason = death.text[:TEXT_CHARS_MAX], death.reason.word
        for _, span in self._notes("dead-letter", [message]):
            span.error, span.error_type = text, reason
            span.details = _of_queue(queue) | _of_consumer(death.consumer) | _of_copy(copy)
            span.details["messaging.bartleby.dead_letter.reason"] = reason
            span.details["messaging.bartleby.dead_letter.text"] = text
            span.details["messaging.bartleby.dead_letter.attempts"] = queue.delivery_count(message.id) if queue else 0
            self._offer(span)

    @_harmless(None)
    def expired(self, message: Message, copy: Message | None, queue: Queue) -> None:
        """Add a span for an expiry."""
        for _, span in self._notes("expire", [message]):
            span.details = _of_queue(queue) | _of_copy(copy)
            span.details["messaging.bartleby.expiration"] = message.header.expiration
            self._offer(span)

    # -- which are traced ------------------------------------------------------------------------------------------

    def _notes(self, operation: str, messages: Sequence[Message]) -> list[tuple[Message, PendingSpan]]:
        """The traced ones of some messages, each with a note of this operation."""
        chosen = []
        for message in messages:
            if _NAME in message.head:
                if len(message.head) <= HEAD_BYTES_MAX and _SAMPLED(message.head) is not None:
                    chosen.append((message, 0))
            elif self._bound:
                key = self._key(message)
                if key:
                    chosen.append((message, key))
        if not chosen:
            return []
        room = self._queue.room()
        if len(chosen) > room:
            self._queue.lose(len(chosen) - room)
            del chosen[room:]
        now = self._now()
        return [(message, PendingSpan(operation, message, now, key)) for message, key in chosen]

    def _key(self, message: Message) -> int:
        """The key of the trace of a message without a trace context; 0 if it is not traced.

        A dead letter belongs to the trace of the message that died.
        """
        if message.header.address == NOTIFICATIONS:
            return 0
        annotations = message.header.annotations
        key = int(annotations.get(DL_FIRST_MESSAGE_ID, message.id)) if annotations else message.id
        return key if key * _SPREAD % _NUMBERS < self._bound else 0


def _of_queue(queue: Queue | None) -> dict[str, Detail]:
    return {"messaging.destination.subscription.name": queue.name} if queue is not None else {}


def _of_consumer(consumer: Consumer | None) -> dict[str, Detail]:
    return {"messaging.client.id": consumer.client_id} if consumer is not None and consumer.client_id else {}


def _of_copy(copy: Message | None) -> dict[str, Detail]:
    """The address and id to which a dead or expired message was moved."""
    if copy is None:
        return {}
    return {
        "messaging.bartleby.moved.address": copy.header.address,
        "messaging.bartleby.moved.message.id": str(copy.id),
    }
