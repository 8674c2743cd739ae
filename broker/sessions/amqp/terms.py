"""AMQP's terms in the broker's: capabilities, prefixes, conditions, the acceptor's options."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from broker.engine import DeadLetterReason
from broker.engine.model.errors import (
    AddressFull,
    AlreadyInUse,
    Denied,
    DiskFull,
    EngineError,
    MemoryFull,
    NoQueue,
    NotFound,
    QueueDisabled,
    TooLarge,
    TooManyAddresses,
    TooManyConsumers,
    TooManyQueues,
    TooManySelectors,
    TransactionClosed,
    TransactionsFull,
)
from broker.engine.model.message import RoutingType
from broker.sessions.amqp.link_id import TOO_MANY_HOPS
from protocols.amqp.errors import (
    DECODE_ERROR,
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    RESOURCE_LIMIT_EXCEEDED,
    RESOURCE_LOCKED,
    TRANSACTION_TIMEOUT,
    UNAUTHORIZED_ACCESS,
    AmqpError,
)
from protocols.amqp.performatives import Error
from protocols.amqp.types import Symbol, UInt

QUEUE: Final = "queue"
TOPIC: Final = "topic"
SHARED: Final = "shared"
GLOBAL: Final = "global"

TEMPORARY_QUEUE: Final = "temporary-queue"
TEMPORARY_TOPIC: Final = "temporary-topic"

#: The broker's product name on OPEN.
PRODUCT: Final = "bartleby"

#: The capabilities that the broker offers on OPEN (as ActiveMQ Artemis does).
ANONYMOUS_RELAY: Final = "ANONYMOUS-RELAY"
SOLE_CONNECTION: Final = "sole-connection-for-container"
OFFERED: Final = (SOLE_CONNECTION, "DELAYED_DELIVERY", "SHARED-SUBS", ANONYMOUS_RELAY)

#: Properties of OPEN for the only connection of a container, and for a connection that CLOSE follows at once.  The weak
#: detection policy: connections of the same container that do not ask to be the only one are accepted.  A peer has to
#: assume the strong one unless the broker states it (AMQP 1.0 Enforcing Connection Uniqueness, 2).
SOLE: Final[dict[str, object]] = {"sole-connection-detection-policy": UInt(1)}
NOT_ESTABLISHED: Final[dict[str, object]] = {"amqp:connection-establishment-failed": True}

#: The information of a rejection for want of room on the disk: the links of other brokers wait until there is some.
DISK_FULL: Final = "disk-full"

#: The information of a rejection whose condition does not say it all: the reason of the dead letter that the message
#: becomes at a link's own broker.
DEATH: Final = "dead-letter-reason"

#: The information of CLOSE for a container that has another connection.
CLASH: Final[dict[str, object]] = {"invalid-field": Symbol("container-id")}

_ROUTING: Final = {
    QUEUE: RoutingType.ANYCAST,
    TEMPORARY_QUEUE: RoutingType.ANYCAST,
    TOPIC: RoutingType.MULTICAST,
    TEMPORARY_TOPIC: RoutingType.MULTICAST,
}

#: Conditions of the engine's refusals; others are `amqp:precondition-failed`.
_CONDITIONS: Final[dict[type[EngineError], str]] = {
    Denied: UNAUTHORIZED_ACCESS,
    NotFound: NOT_FOUND,
    NoQueue: NOT_FOUND,
    QueueDisabled: PRECONDITION_FAILED,
    AlreadyInUse: RESOURCE_LOCKED,
    AddressFull: RESOURCE_LIMIT_EXCEEDED,
    DiskFull: RESOURCE_LIMIT_EXCEEDED,
    MemoryFull: RESOURCE_LIMIT_EXCEEDED,
    TooLarge: MESSAGE_SIZE_EXCEEDED,
    TooManyConsumers: RESOURCE_LIMIT_EXCEEDED,
    TooManyAddresses: RESOURCE_LIMIT_EXCEEDED,
    TooManySelectors: RESOURCE_LIMIT_EXCEEDED,
    TooManyQueues: RESOURCE_LIMIT_EXCEEDED,
    TransactionClosed: TRANSACTION_TIMEOUT,
    TransactionsFull: RESOURCE_LIMIT_EXCEEDED,
}

#: The dead-letter reasons of messages that another broker rejects, by condition.
_DEATHS: Final[dict[str, DeadLetterReason]] = {
    DECODE_ERROR: DeadLetterReason.DECODE_ERROR,
    MESSAGE_SIZE_EXCEEDED: DeadLetterReason.TOO_LARGE,
    NOT_FOUND: DeadLetterReason.NO_ROUTE,
    RESOURCE_LIMIT_EXCEEDED: DeadLetterReason.QUEUE_FULL,
    UNAUTHORIZED_ACCESS: DeadLetterReason.NOT_AUTHORISED,
    TOO_MANY_HOPS: DeadLetterReason.LINK_HOPS,
}

#: What a rejection says besides its condition.
_INFO: Final[dict[type[EngineError], dict[str, object]]] = {
    DiskFull: {DISK_FULL: True},
    QueueDisabled: {DEATH: DeadLetterReason.PUT_DISABLED.word},
}

_INVALID: Final = frozenset({"invalid-attribute", "invalid-name", "invalid-selector"})


@dataclass(frozen=True, slots=True)
class AmqpOptions:
    """The options of an acceptor's sessions; times in ms.

    `credits` are granted to a producer, again when `low_credits` are left.  `idle_timeout`: silence after which a peer
    counts as dead, half of which is announced; 0: never.  `failover`: properties on OPEN for the brokers of a pair.
    """

    container_id: str = "bartleby"
    version: str = ""
    anycast_prefixes: tuple[str, ...] = ("queue://",)
    multicast_prefixes: tuple[str, ...] = ("topic://",)
    credits: int = 1_000
    low_credits: int = 300
    idle_timeout: int = 60_000
    transactions_max: int = 100
    failover: dict[str, object] = field(default_factory=dict)

    @property
    def of_replies(self) -> tuple[str, str]:
        """The prefixes of a reply-to, by RoutingType."""
        return next(iter(self.multicast_prefixes), ""), next(iter(self.anycast_prefixes), "")

    def split(self, address: str) -> tuple[str, RoutingType | None]:
        """Split an address into the name after its prefix, and the routing type that the prefix states."""
        for prefixes, routing_type in (
            (self.anycast_prefixes, RoutingType.ANYCAST),
            (self.multicast_prefixes, RoutingType.MULTICAST),
        ):
            for prefix in prefixes:
                if address.startswith(prefix):
                    return address[len(prefix) :], routing_type
        return address, None


def stated_routing(capabilities: tuple[str, ...]) -> RoutingType | None:
    """Return the routing type that a terminus states by its capabilities."""
    return next((_ROUTING[name] for name in capabilities if name in _ROUTING), None)


def offered(capabilities: tuple[str, ...]) -> tuple[str, ...]:
    """Return the capabilities of a terminus that the broker knows, for its answer."""
    return tuple(name for name in capabilities if name in _ROUTING or name in (SHARED, GLOBAL))


def condition(refusal: EngineError) -> str:
    """Return the AMQP condition of a refusal."""
    if refusal.code in _INVALID:
        return INVALID_FIELD
    return _CONDITIONS.get(type(refusal), PRECONDITION_FAILED)


def refused(refusal: EngineError | AmqpError) -> Error:
    """Return why something was refused as it is sent."""
    if isinstance(refusal, AmqpError):
        return Error(refusal.condition, refusal.description)
    return Error(condition(refusal), str(refusal), _INFO.get(type(refusal)))


def death(error: Error | None) -> DeadLetterReason:
    """Return the reason of a dead letter that another broker has rejected."""
    if error is None:
        return DeadLetterReason.REJECTED
    word = (error.info or {}).get(DEATH)
    found = next((reason for reason in DeadLetterReason if reason.word == word), None)
    return found or _DEATHS.get(error.condition, DeadLetterReason.REJECTED)
