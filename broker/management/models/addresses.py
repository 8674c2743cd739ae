"""Addresses as the API has them."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from broker.engine import Address, Engine
from broker.management.models.base import Body, Next, RoutingTypeName, Shown, Total
from broker.management.models.settings import Settings, settings_of

#: Queues of one address that are named; more are only counted.
QUEUES_SHOWN_MAX: Final = 1_000


class AddressCounts(Shown):
    """An address in a list: what it holds, and what became of messages sent to it since the start."""

    name: str
    routing_types: list[RoutingTypeName]
    queues: int
    messages: int
    bytes: int
    full: bool
    paused: bool
    auto_created: bool
    configured: bool
    routed: int
    unrouted: int
    dropped: int


class AddressShown(AddressCounts):
    """An address on its own."""

    id: int
    internal: bool = Field(description="Whether the broker has it for itself.")
    stopped_producers: int = Field(description="Producers that wait for room.")
    queue_names: list[str] = Field(description=f"The first {QUEUES_SHOWN_MAX} queues.")
    divert_names: list[str]
    settings: Settings


class AddressList(Shown):
    """Some of the addresses, by name."""

    addresses: list[AddressCounts]
    next: Next
    total: Total


class NewAddress(Body):
    """An address to be created."""

    routing_types: list[RoutingTypeName] = Field([], description="Empty: the default of its settings.")


class AddressChange(Body):
    """What is to change of an address; what is left out stays."""

    paused: bool | None = Field(None, description="true: stop the deliveries of all its queues; false: let them go on.")


class AddressPaused(Shown):
    """An address whose queues are stopped, or are not."""

    name: str
    paused: bool
    queues: int


class AddressDeleted(Shown):
    """An address that is gone."""

    name: str
    queues: int = Field(description="How many queues went with it.")


def _counts(address: Address) -> dict[str, object]:
    return {
        "name": address.name,
        "routing_types": sorted(kind.name for kind in address.routing_types),
        "queues": len(address.queues),
        "messages": address.size_messages,
        "bytes": address.size_bytes,
        "full": address.full,
        "paused": address.paused,
        "auto_created": address.auto_created,
        "configured": address.configured,
        "routed": address.routed,
        "unrouted": address.unrouted,
        "dropped": address.dropped,
    }


def address_counts(address: Address) -> AddressCounts:
    """An address in a list."""
    return AddressCounts.model_validate(_counts(address))


def address_shown(engine: Engine, address: Address) -> AddressShown:
    """An address on its own."""
    extras = address.extras
    diverts = [] if extras is None else [*extras.exclusive, *extras.others]
    more = {
        "id": address.id,
        "internal": engine.operators.is_own(address),
        "stopped_producers": len(address.blocked),
        "queue_names": [queue.name for queue in address.queues[:QUEUES_SHOWN_MAX]],
        "divert_names": sorted(divert.name for divert in diverts),
        "settings": settings_of(address.settings),
    }
    return AddressShown.model_validate(_counts(address) | more)
