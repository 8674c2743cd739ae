"""An address: the place that messages are sent to, and how much it may hold.  `Bindings` knows its queues."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Protocol

from broker.engine.model.access import Access
from broker.engine.model.message import MessageHeader, RoutingType
from broker.engine.model.settings import AddressSettings
from broker.engine.queues.diverts import AddressExtras
from broker.engine.queues.uncommitted import Uncommitted

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


#: The shared, empty `blocked` of addresses that have stopped nobody: an empty dict takes 80 bytes.
NONE_BLOCKED: Final[dict[Producer, Uncommitted | None]] = {}


@dataclass(slots=True, eq=False, repr=False)  # a repr would show all that it leads to
class Address:
    """An address.  `size_bytes` and `size_messages` count each message once, however many queues it is on."""

    id: int
    name: str
    routing_types: AbstractSet[RoutingType]
    settings: AddressSettings
    _: KW_ONLY
    auto_created: bool = False
    configured: bool = False
    paused: bool = False  # with all its queues
    wildcard: bool = False  # nothing is sent to it: its queues have messages of the addresses that match it
    passing: bool = False  # not created in the broker: its messages reach no queue, and it is forgotten
    sendable: bool = False  # its name was checked: clients may send to it
    owner: str | None = None  # the user who has made a temporary destination, while its connection lasts
    private_to: Access | None = None  # its owner's, if that connection alone may consume from it
    extras: AddressExtras | None = None  # when last asked for: see `Diverts.extras`
    extras_version: int = -1
    turn: int = 0  # round-robin among several anycast queues
    size_bytes: int = 0
    size_messages: int = 0
    paged_bytes: int = 0  # in the tails of its queues: on disk only
    paged_messages: int = 0
    landing_bytes: int = 0  # of runs on their way there
    landing_messages: int = 0
    routed: int = 0
    unrouted: int = 0
    dropped: int = 0
    #: The producers that it has stopped; of those within a transaction: what that holds.
    blocked: dict[Producer, Uncommitted | None] = field(default_factory=lambda: NONE_BLOCKED)
    warned: frozenset[str] = frozenset()
    bound_once: bool = False
    unbound_since: int = 0
    swept: int = -1  # how much had been sent to it when the reaper last found it unused; -1: it did not

    def __post_init__(self) -> None:
        self.routing_types = _KINDS[frozenset(self.routing_types)]

    def add_routing_type(self, routing_type: RoutingType) -> None:
        """Allow queues of this routing type on the address."""
        self.routing_types = _KINDS[frozenset(self.routing_types | {routing_type})]

    @property
    def owned(self) -> bool:
        """Whether it is a temporary destination whose owner is connected."""
        return self.owner is not None

    def receive(self, header: MessageHeader, expiration: int, now: int) -> None:
        """Make a header that of messages sent here, which expire when their sender and the settings say.

        `expiration`: when their sender wants it, in ms since the epoch; 0: it does not say.
        """
        header.address = self.name
        header.expiration, header.expiry_source = self.settings.expiration(expiration, now)
