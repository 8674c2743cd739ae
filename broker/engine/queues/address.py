"""An address: the place that messages are sent to, its queues, and how much it may hold."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final, Protocol

from broker.engine.model.message import Message, RoutingType, size_of
from broker.engine.model.settings import AddressFullPolicy, AddressSettings, PageFullPolicy
from broker.engine.queues.address_extras import AddressExtras
from broker.engine.queues.queue import Queue

#: All possible sets of routing types, so that addresses share these objects.
_KINDS: Final = {
    kinds: kinds
    for kinds in (
        frozenset[RoutingType](),
        frozenset({RoutingType.ANYCAST}),
        frozenset({RoutingType.MULTICAST}),
        frozenset(RoutingType),
    )
}


#: The queues that messages of an address may enter: anycast queues, multicast queues.
Targets = tuple[list[Queue], list[Queue]]


class Producer(Protocol):
    """A sender to an address, called when a full address has room again."""

    @property
    def transport(self) -> object:
        """The connection to close if it raises; None: there is none."""

    def unblock(self) -> None:
        """Continue sending."""


class AttachedSender(Protocol):
    """A sender that is attached to an address, whether it sends or not."""

    def destination_lost(self) -> None:
        """The address, or a queue of it, was deleted by name."""


class Address:
    """An address.  `size_bytes` and `size_messages` count each message once, however many queues it is on."""

    __slots__ = (
        "auto_created",
        "blocked",
        "bound_once",
        "configured",
        "dropped",
        "extras",
        "id",
        "name",
        "owned",
        "paged_bytes",
        "paged_messages",
        "passing",
        "paused",
        "private_to",
        "queues",
        "routed",
        "routing_types",
        "sendable",
        "settings",
        "size_bytes",
        "size_messages",
        "swept",
        "targets",
        "targets_key",
        "targets_version",
        "turn",
        "unbound_since",
        "unpageable",
        "unrouted",
        "warned",
    )

    def __init__(
        self,
        id: int,
        name: str,
        routing_types: AbstractSet[RoutingType],
        settings: AddressSettings,
        *,
        auto_created: bool = False,
        configured: bool = False,
        created: int = 0,
        paused: bool = False,
    ) -> None:
        self.id = id
        self.name = name
        self.routing_types = _KINDS[frozenset(routing_types)]
        self.settings = settings
        self.extras: AddressExtras | None = None
        self.sendable = False  # its name was checked: clients may send to it
        self.auto_created = auto_created
        self.configured = configured
        self.owned = False  # a temporary destination whose owner is connected
        self.private_to: object = None  # the `Access` of the owner, if its connection alone may consume from it
        self.passing = False  # not created in the broker: its messages reach no queue, and it is forgotten
        self.paused = paused  # with all its queues
        self.queues: list[Queue] = []
        self.targets: Targets = ([], [])  # with those of wildcard addresses
        self.targets_version = -1
        self.targets_key = (0, 0)
        self.turn = 0  # round-robin among several anycast queues
        self.size_bytes = 0
        self.size_messages = 0
        self.paged_bytes = 0  # in the tails of its queues: on disk only
        self.paged_messages = 0
        self.unpageable = False  # its policy is PAGE, but it has a queue that cannot page
        self.routed = 0
        self.unrouted = 0
        self.dropped = 0
        self.blocked: dict[Producer, None] = {}
        self.warned: frozenset[str] = frozenset()
        self.bound_once = False
        self.unbound_since = created
        self.swept = -1  # how much had been sent to it when the reaper last found it unused; -1: it did not

    def add_routing_type(self, routing_type: RoutingType) -> None:
        """Allow queues of this routing type on the address."""
        self.routing_types = _KINDS[self.routing_types | {routing_type}]

    @property
    def full(self) -> bool:
        """Whether the address has reached the limits of its settings."""
        settings = self.settings
        return (0 <= settings.max_size_bytes <= self.size_bytes) or (
            0 <= settings.max_size_messages <= self.size_messages
        )

    def has_room(self, messages: int, nbytes: int) -> bool:
        """Whether the address would not be full with these messages added."""
        settings = self.settings
        if 0 <= settings.max_size_bytes <= self.size_bytes + nbytes:
            return False
        return not 0 <= settings.max_size_messages <= self.size_messages + messages

    @property
    def blocks(self) -> bool:
        """Whether producers must wait until messages have left the address."""
        policy = self.settings.address_full_policy
        return self.full and (
            policy is AddressFullPolicy.BLOCK or (policy is AddressFullPolicy.PAGE and self.unpageable)
        )

    @property
    def page_full(self) -> bool:
        """Whether its queues have reached its page limits on disk, unless page-full-policy is OFF."""
        settings = self.settings
        if settings.page_full_policy is PageFullPolicy.OFF:
            return False
        return (0 <= settings.page_limit_bytes <= self.paged_bytes) or (
            0 <= settings.page_limit_messages <= self.paged_messages
        )

    def charge(self, messages: list[Message]) -> int:
        """Count new messages; returns their bytes."""
        size = size_of(messages)
        self.size_bytes += size
        self.size_messages += len(messages)
        return size
