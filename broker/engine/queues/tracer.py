"""The interface by which the engine reports what happens to messages, for traces (see `broker.telemetry`)."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Protocol

from broker.engine.model.errors import EngineError
from broker.engine.model.message import Message
from broker.engine.queues.death import Death
from broker.engine.queues.queue import Consumer, Queue


class Tracer(Protocol):
    """Called within the tick, once for each run of messages, if there is one (`State.tracer`).

    It raises nothing, must not call the engine, and stores neither messages nor bodies.
    """

    @property
    def transport(self) -> object:
        """None: it belongs to no connection."""

    def published(self, messages: Sequence[Message], tick: int) -> bool:
        """Messages were accepted in this tick; returns whether to call `durable` when they are."""

    def durable(self, number: int) -> None:
        """Everything up to and including the tick `number` is on disk."""

    def refused(self, messages: Sequence[Message], error: EngineError) -> None:
        """Messages were refused."""

    def delivered(self, consumer: Consumer, messages: Sequence[Message]) -> None:
        """Messages were passed to a consumer's sink."""

    def acknowledged(self, queue: Queue, messages: Sequence[Message]) -> None:
        """Deliveries were settled as consumed."""

    def returned(
        self, queue: Queue, messages: Sequence[Message], failed: Set[int], text: str, consumer: Consumer | None
    ) -> None:
        """Deliveries were returned, for the reason `text`; those with the ids `failed` count as failed."""

    def died(self, message: Message, copy: Message | None, queue: Queue | None, death: Death) -> None:
        """A message of a queue (None: of none) died; `copy` is the dead letter, None if no address keeps it."""

    def expired(self, message: Message, copy: Message | None, queue: Queue) -> None:
        """A message expired; `copy` is on the expiry address, None if no address keeps it."""
