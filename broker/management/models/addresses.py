"""Addresses as the API has them."""

from __future__ import annotations

from itertools import islice
from typing import Final

from pydantic import Field

from broker.engine import Address, Engine, is_full
from broker.engine.model.access import Access
from broker.engine.model.permissions import Permission
from broker.management.callers import manages_divert
from broker.management.models.base import Body, Next, RoutingTypeName, Shown, Total, model_of
from broker.management.models.settings import Settings, settings_of
from broker.sessions.links.links import Links
from broker.sessions.links.model import Kind

#: Queues of one address that are listed; more are only counted.
QUEUES_SHOWN_MAX: Final = 1_000


class AddressCounts(Shown):
    """An address in a list: what it holds, and what became of messages sent to it since the broker started."""

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


class RemoteQueue(Shown):
    """What an address stands for, if it is a remote queue."""

    link: str = Field(description="The link that its messages cross.")
    transmission_queue: str = Field(description="The queue here where they wait for it.")
    queue: str = Field(description="The queue on the other broker.")


class AddressShown(AddressCounts):
    """An address in detail."""

    id: int
    internal: bool = Field(description="Whether it is the broker's own.")
    stopped_producers: int = Field(description="Producers blocked until there is room.")
    queue_names: list[str] = Field(description=f"Of its first {QUEUES_SHOWN_MAX} queues those that the caller manages.")
    divert_names: list[str]
    remote_queue: RemoteQueue | None = Field(description="Its target if it is a remote queue of a link; else null.")
    settings: Settings


class AddressList(Shown):
    """Some of the addresses, by name."""

    addresses: list[AddressCounts]
    next: Next
    total: Total


class NewAddress(Body):
    """An address to create."""

    routing_types: list[RoutingTypeName] = Field([], description="Empty: the default of its address settings.")


class AddressChange(Body):
    """Changes to an address; omitted fields stay as they are."""

    paused: bool | None = Field(None, description="true: pause all its queues; false: resume them.")


class AddressPaused(Shown):
    """Whether an address is paused."""

    name: str
    paused: bool
    queues: int


class AddressDeleted(Shown):
    """A deleted address."""

    name: str
    queues: int = Field(description="How many queues were deleted with it.")


def _counts(engine: Engine, address: Address) -> dict[str, object]:
    return {
        "routing_types": sorted(kind.name for kind in address.routing_types),
        "queues": len(engine.queues_of(address)),
        "messages": address.size_messages,
        "bytes": address.size_bytes,
        "full": is_full(address),
    }


def address_counts(engine: Engine, address: Address) -> AddressCounts:
    """An address in a list."""
    return model_of(AddressCounts, address, **_counts(engine, address))


def _remote_queue(links: Links, name: str) -> RemoteQueue | None:
    for link in links.by_name.values():
        route = link.routes.get(name)
        if route is not None and route.settings.kind is Kind.REMOTE_QUEUE:
            return RemoteQueue(link=link.name, transmission_queue=route.settings.local, queue=route.settings.remote)
    return None


def address_shown(engine: Engine, links: Links, address: Address, access: Access) -> AddressShown:
    """An address in detail, with the queues and diverts that the caller manages."""
    queues, manage = islice(engine.queues_of(address), QUEUES_SHOWN_MAX), Permission.MANAGE
    return model_of(
        AddressShown,
        address,
        **_counts(engine, address),
        internal=engine.operators.is_own(address),
        stopped_producers=len(address.blocked),
        queue_names=[queue.name for queue in queues if access.might(manage, address.name, queue.name)],
        divert_names=[divert.name for divert in engine.operators.diverts_of(address) if manages_divert(access, divert)],
        remote_queue=_remote_queue(links, address.name),
        settings=settings_of(address.settings),
    )
