"""A send: messages with the same facts on their way to one destination."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from broker.engine.address import Address
    from broker.engine.message import Message, RoutingType
    from broker.engine.queue import Queue
    from broker.engine.router import Router


class Send:
    """Messages in the order in which they came; `queue` if their destination names one."""

    __slots__ = ("address", "messages", "queue", "routing_type")

    def __init__(
        self, address: Address, queue: Queue | None, routing_type: RoutingType | None, messages: list[Message]
    ) -> None:
        self.address = address
        self.queue = queue
        self.routing_type = routing_type
        self.messages = messages

    def find(self, router: Router) -> None:
        """Address and queue may have been deleted since: make them again, if they may be.  Raises EngineError."""
        name, wanted = self.address.name, self.routing_type
        if self.queue is not None:
            name, wanted = f"{name}::{self.queue.name}", self.queue.routing_type
        self.address, self.queue = router.destination(name, wanted)


#: Sends of one kind: sessions know more of theirs.
AnySend = TypeVar("AnySend", bound=Send)
