"""A send: messages with the same header for one destination; and the result of publishing several sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.engine.model.message import RoutingType
from broker.engine.routing import destinations

if TYPE_CHECKING:
    from broker.engine.model.errors import EngineError
    from broker.engine.model.message import Message
    from broker.engine.queues.address import Address
    from broker.engine.queues.queue import Queue
    from broker.engine.queues.state import State


_ANYCAST_ONLY: Final = frozenset({RoutingType.ANYCAST})


class Send:
    """Messages in order of arrival; `queue` if their destination names one.

    `link_ids` identify messages that another broker sends over a link: each is accepted once (see `duplicates`).
    `routed` counts those that reached a queue, once they are published.  Sessions derive classes from it for what they
    must remember of a send until then.
    """

    __slots__ = ("address", "link_ids", "messages", "queue", "routed", "routing_type")

    def __init__(
        self, address: Address, queue: Queue | None, routing_type: RoutingType | None, messages: list[Message]
    ) -> None:
        self.address = address
        self.queue = queue
        self.routing_type = routing_type
        self.messages = messages
        self.link_ids: dict[Message, bytes] | None = None
        self.routed = 0

    @property
    def needs_queue(self) -> bool:
        """Whether its messages must reach a queue: they are durable, and not for subscribers.

        They must if it names a queue, asks for anycast, or its address is only anycast.
        """
        if not self.messages[0].header.durable:
            return False
        if self.queue is not None or self.routing_type is RoutingType.ANYCAST:
            return True
        return self.routing_type is None and self.address.routing_types == _ANYCAST_ONLY

    def find(self, state: State) -> None:
        """Look up address and queue again; if deleted since, create them if allowed.  Raises EngineError."""
        name, wanted = self.address.name, self.routing_type
        if self.queue is not None:
            name, wanted = f"{name}::{self.queue.name}", self.queue.routing_type
        self.address, self.queue = destinations.destination(state, name, wanted)

    def accepted(self, messages: list[Message]) -> None:
        """A hook for messages that were just accepted: more records can still join their journal entry."""


class Refusal:
    """Messages of a send that were refused, and why."""

    __slots__ = ("error", "messages", "send")

    def __init__(self, send: Send, messages: list[Message], error: EngineError) -> None:
        self.send = send
        self.messages = messages
        self.error = error.with_traceback(None)  # whose calls have the messages, and their files would stay with them


class PublishResult:
    """The result of publishing sends: all their messages were accepted except those in `refusals`.

    `blocked`: their producer must stop until it is unblocked (`Producer.unblock`).
    """

    __slots__ = ("blocked", "refusals")

    def __init__(self) -> None:
        self.refusals: list[Refusal] = []
        self.blocked = False

    def check(self) -> None:
        """Raises the EngineError of the first refusal, if there is one."""
        if self.refusals:
            raise self.refusals[0].error
