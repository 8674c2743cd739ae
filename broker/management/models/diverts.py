"""Diverts as the API shows them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from broker.engine import Divert, DivertRouting, parse_selector
from broker.engine.model.names import WildcardSyntax, check_name, check_sendable
from broker.management.models.base import Body, Next, Shown, Total
from broker.management.models.messages import PropertyName, PropertyValue

Routing = Literal["STRIP", "PASS", "ANYCAST", "MULTICAST"]

assert set(Routing.__args__) == {each.value for each in DivertRouting}  # type: ignore[attr-defined]


class DivertShown(Shown):
    """A divert, and how many messages it diverted since the start."""

    id: int
    name: str
    address: str
    forwarding_addresses: list[str]
    exclusive: bool
    filter: str
    routing_type: Routing
    add_headers: dict[str, str]
    remove_headers: list[str]
    configured: bool
    internal: bool
    taken: int


class DivertMade(DivertShown):
    """A divert that was created."""

    without_queue: list[str] = Field(description="Forwarding addresses that have no queue yet.")


class DivertList(Shown):
    """Some of the diverts, by name."""

    diverts: list[DivertShown]
    next: Next
    total: Total


class NewDivert(Body):
    """A divert to create; it stays until it is deleted."""

    address: str = Field(description="Messages sent to this address are diverted.")
    forwarding_addresses: list[str] = Field(description="The addresses that get copies.")
    exclusive: bool = Field(False, description="true: the messages do not reach the address itself.")
    filter: str = Field("", description="Only messages that match this selector; empty: all.")
    routing_type: Routing = Field("STRIP", description="The routing type of the queues that a copy may enter.")
    add_headers: dict[PropertyName, PropertyValue] = Field({}, description="Added to each copy.")
    remove_headers: list[str] = Field([], description="Removed from each copy.")


def new_divert(name: str, body: NewDivert, syntax: WildcardSyntax) -> Divert:
    """The requested divert, not in force yet.  Raises InvalidName, InvalidSelector."""
    check_name(name)
    check_name(body.address)
    for forward in body.forwarding_addresses:
        check_sendable(forward, syntax)
    divert = Divert(
        name,
        body.address,
        tuple(body.forwarding_addresses),
        exclusive=body.exclusive,
        filter=parse_selector(body.filter),
        routing=DivertRouting(body.routing_type),
        add=body.add_headers,
        remove=body.remove_headers,
    )
    divert.check_added()
    return divert


class DivertDeleted(Shown):
    """A deleted divert."""

    divert: str


def _fields(divert: Divert) -> dict[str, object]:
    definition = {name.replace("-", "_"): value for name, value in divert.definition().items()}
    return definition | {"add_headers": dict(divert.add), "id": divert.id, "taken": divert.taken}


def divert_shown(divert: Divert) -> DivertShown:
    """A divert."""
    return DivertShown.model_validate(_fields(divert))


def divert_made(divert: Divert, without_queue: list[str]) -> DivertMade:
    """A divert that was created."""
    return DivertMade.model_validate(_fields(divert) | {"without_queue": without_queue})
