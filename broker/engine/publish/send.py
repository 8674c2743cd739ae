"""A send: messages with the same header for one destination; and the result of publishing several sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.engine.model.access import UNRESTRICTED
from broker.engine.model.attributes import NO_ATTRIBUTES
from broker.engine.model.message import RoutingType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker.engine.model.access import Access
    from broker.engine.model.attributes import RequestedAttributes
    from broker.engine.model.errors import EngineError
    from broker.engine.model.message import Message, MessageHeader
    from broker.engine.queues.address import Address
    from broker.engine.queues.queue import Queue


_ANYCAST_ONLY: Final = frozenset({RoutingType.ANYCAST})


class Send:
    """Messages in order of arrival for the destination `name`: that of an address, or an FQQN.

    `access` and `asked`: see `destinations.destination`.  `made` is the routing type of an address that is made for it,
    whatever `routing_type` its messages are for.  `known` is the address as found before, which may be gone.  Once the
    destination is found, `address` and `queue` (if the name is an FQQN) are what it refers to, and the headers are
    complete.  If there is none, `refusal` says why.

    `link_ids` identify messages that another broker sends over a link: each is accepted once (see `duplicates`).
    `created` deletes what finding the destination has created (`publish.undo`), None: it has created nothing.
    `routed` counts those that reached a queue, once they are published.  Sessions derive classes from it for what they
    must remember of a send until then.
    """

    __slots__ = (
        "access",
        "address",
        "asked",
        "created",
        "found",
        "header",
        "known",
        "link_ids",
        "made",
        "messages",
        "name",
        "queue",
        "refusal",
        "routed",
        "routing_type",
    )

    address: Address
    queue: Queue | None

    def __init__(
        self,
        name: str,
        routing_type: RoutingType | None,
        header: MessageHeader,
        *,
        access: Access,
        asked: RequestedAttributes = NO_ATTRIBUTES,
        made: RoutingType | None = None,
        known: Address | None = None,
    ) -> None:
        self.name = name
        self.routing_type = routing_type
        self.header = header
        header.address = name
        self.access = access
        self.asked = asked
        self.made = made
        self.known = known
        self.created: list[Callable[[], None]] | None = None
        self.found = False
        self.refusal: EngineError | None = None
        self.messages: list[Message] = []
        self.link_ids: dict[Message, bytes] | None = None
        self.routed = 0

    @classmethod
    def at(
        cls, address: Address, queue: Queue | None, routing_type: RoutingType | None, messages: list[Message]
    ) -> Send:
        """A send of the broker itself to an address; the headers are complete."""
        send = Send(address.name, routing_type, messages[0].header, access=UNRESTRICTED)
        send.address, send.queue, send.found = address, queue, True
        send.messages = messages
        return send

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

    def headers(self) -> Iterable[MessageHeader]:
        """The headers of its messages."""
        return (self.header,)

    @property
    def is_joined(self) -> bool:
        """Whether `accepted` adds records to the journal entry of its messages."""
        return False

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
