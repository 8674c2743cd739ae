"""Is told of what happens to messages, to make the spans of a trace of it (see `broker.telemetry`)."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Protocol

from broker.engine.model.errors import EngineError
from broker.engine.model.message import Message
from broker.engine.queues.consumer import Consumer
from broker.engine.queues.queue import Queue


class Tracer(Protocol):
    """Told within the tick, once for each run of messages.  Without one nothing is told (`State.tracer`).

    It raises nothing, must not call the engine, and keeps neither messages nor bodies.
    """

    @property
    def transport(self) -> object:
        """None: it belongs to no connection."""

    def published(self, messages: Sequence[Message], tick: int) -> bool:
        """Messages were taken in by this tick; whether it wants to be told when that is durable."""

    def durable(self, number: int) -> None:
        """Everything up to and including the tick `number` is on disk."""

    def refused(self, messages: Sequence[Message], error: EngineError) -> None:
        """Messages were not taken in."""

    def delivered(self, consumer: Consumer, messages: Sequence[Message]) -> None:
        """Messages went to a consumer's sink."""

    def acknowledged(self, queue: Queue, messages: Sequence[Message]) -> None:
        """Deliveries were settled as consumed."""

    def returned(
        self, queue: Queue, messages: Sequence[Message], failed: Set[int], text: str, consumer: Consumer | None
    ) -> None:
        """Deliveries came back, and why; those with these ids count as failed."""

    def died(
        self,
        message: Message,
        copy: Message | None,
        queue: Queue | None,
        *,
        reason: str,
        text: str,
        consumer: Consumer | None,
    ) -> None:
        """A message of a queue (None: of none) became a dead letter, which is `copy`; None: no address keeps it."""

    def expired(self, message: Message, copy: Message | None, queue: Queue) -> None:
        """The time of a message was over; `copy` is on the expiry address, None: no address keeps it."""
