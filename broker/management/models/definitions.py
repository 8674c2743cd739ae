"""Definitions as the API shows them: one document with everything that defines a broker, except its messages.

It is exported, stored, compared and imported, by this version and by others.  Attributes and settings have the names of
the configuration.  An import leaves alone whatever the document does not name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field

from broker.engine import Address, Divert, Queue
from broker.engine.model.attributes import ATTRIBUTES
from broker.engine.model.permissions import Permission
from broker.engine.model.row import kebab
from broker.management.models.base import Body, RoutingTypeName, Shown
from broker.management.models.diverts import NewDivert
from broker.management.models.settings import AskedAttributes

#: The version of the document.
VERSION: Final = 1

#: Definitions of one kind in one request: a larger import takes several requests.
DEFINITIONS_MAX: Final = 1_000

Outcome = Literal["created", "changed", "same", "refused", "by-hand"]
Kind = Literal["address", "queue", "divert", "address-setting", "permission", "user"]

#: A value of a setting.
Plain = bool | int | float | str

if TYPE_CHECKING:
    PermissionName = str
else:
    PermissionName = Literal[tuple(each.value for each in Permission)]


class AddressDefinition(Body):
    """An address."""

    name: str
    routing_types: list[RoutingTypeName] = Field([])
    paused: bool = False


class QueueDefinition(Body):
    """A queue."""

    name: str
    address: str
    routing_type: RoutingTypeName
    durable: bool = True
    filter: str = ""
    paused: bool = False
    attributes: AskedAttributes | None = None


class DivertDefinition(NewDivert):
    """A divert."""

    name: str


class UserDefinition(Body):
    """A user; its credentials are only in the users file."""

    name: str
    roles: list[str] = Field([])


class Definitions(Body):
    """The document.  Addresses, queues and diverts can be imported; the rest is in files and is only compared."""

    version: Literal[1] = Field(description="The version of the document.")
    software: str = Field("", description="The software that wrote it.")
    broker: str = Field("", description="The name of the broker it describes.")
    addresses: Annotated[list[AddressDefinition], Field(max_length=DEFINITIONS_MAX)] = Field([])
    queues: Annotated[list[QueueDefinition], Field(max_length=DEFINITIONS_MAX)] = Field([])
    diverts: Annotated[list[DivertDefinition], Field(max_length=DEFINITIONS_MAX)] = Field([])
    address_settings: Annotated[
        dict[str, dict[str, Plain]],
        Field(max_length=DEFINITIONS_MAX, description="By match, the values of [[address-settings]] of broker.toml."),
    ] = Field({})
    permissions: Annotated[
        dict[str, dict[PermissionName, list[str]]],
        Field(max_length=DEFINITIONS_MAX, description="By match, the roles of [[security-settings]] of broker.toml."),
    ] = Field({})
    users: Annotated[list[UserDefinition], Field(max_length=DEFINITIONS_MAX)] = Field([])


class Difference(Shown):
    """A value that differs."""

    field: str
    before: Plain | list[str] | dict[str, str] | None = Field(description="The present value; null: there is none.")
    after: Plain | list[str] | dict[str, str] | None


class Change(Shown):
    """What became of one definition; in a dry run, what would become of it."""

    kind: Kind
    name: str
    outcome: Outcome = Field(description="by-hand: it is in a file of the broker and must be changed there.")
    changes: list[Difference]
    why: str = Field(description="Why it was refused, or what to do by hand.")


class DefinitionsImported(Shown):
    """What became of all definitions of a document, in order."""

    dry_run: bool
    changes: list[Change]


# The following are not models, since there may be 100,000 of them, but dictionaries for JSON.


def address_fields(address: Address) -> dict[str, Any]:
    """The definition of an address."""
    types = sorted(kind.name for kind in address.routing_types)
    return {"name": address.name, "routing_types": types, "paused": address.paused}


def queue_fields(queue: Queue) -> dict[str, Any]:
    """The definition of a queue, with all its attributes, so that it does not depend on the target's settings."""
    attributes = queue.attributes
    return {
        "name": queue.name,
        "address": queue.address.name,
        "routing_type": queue.routing_type.name,
        "durable": queue.durable,
        "filter": queue.filter.text if queue.filter else "",
        "paused": queue.paused,
        "attributes": {shown: getattr(attributes, name) for name, shown in _ATTRIBUTES.items()},
    }


_ATTRIBUTES: Final = {name: kebab(name) for name in ATTRIBUTES}


def divert_fields(divert: Divert) -> dict[str, Any]:
    """The definition of a divert."""
    fields = {name.replace("-", "_"): value for name, value in divert.definition().items()}
    return {name: fields[name] for name in DivertDefinition.model_fields} | {"add_headers": dict(divert.add)}
