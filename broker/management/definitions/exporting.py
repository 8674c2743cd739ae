"""The document with a broker's definitions, written piece by piece: for 100,000 queues it has some 50 MB.

It leaves out the broker's own addresses and queues, temporary destinations, and what clients create (subscriptions, and
automatic queues unless requested): clients create those again when they reconnect.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Final

from broker.engine import Engine, Queue
from broker.engine.model.message import RoutingType
from broker.engine.model.names import is_temporary
from broker.engine.model.permissions import PermissionTable
from broker.engine.model.row import kebab
from broker.management.models.definitions import (
    VERSION,
    Plain,
    UserDefinition,
    address_fields,
    divert_fields,
    queue_fields,
)
from broker.management.models.settings import plain
from broker.management.names import Names
from broker.management.ports import Broker

#: Definitions written at a time, about a ms of the event loop, and the pause after them, in seconds: so clients and the
#: journal's writer thread are served in between.
STEP: Final = 50
PAUSE: Final = 0.001


def settings_by_match(engine: Engine) -> dict[str, dict[str, Plain]]:
    """What each match of the address settings sets, under the names of the configuration."""
    found = {}
    for match, fields in engine.operators.all_settings():
        values = {kebab(name): plain(value) for name, value in sorted(fields.items())}
        found[match] = {name: value for name, value in values.items() if value is not None}
    return dict(sorted(found.items()))


def permissions_by_match(table: PermissionTable) -> dict[str, dict[str, list[str]]]:
    """The roles that each match of the security settings names, by permission."""
    return {
        match: {str(permission): sorted(roles) for permission, roles in sorted(granted.items()) if roles}
        for match, granted in sorted(table.entries, key=lambda entry: entry[0])
    }


def users_of(broker: Broker) -> dict[str, UserDefinition]:
    """The users and their roles, by name."""
    users = broker.gate.users() or {}
    return {name: UserDefinition(name=name, roles=sorted(users[name])) for name in sorted(users)}


class Exporting:
    """One export; `automatic`: also anycast queues and addresses that were created automatically."""

    def __init__(self, broker: Broker, names: Names, *, automatic: bool) -> None:
        self._broker = broker
        self._engine = broker.engine
        self._names = names
        self._automatic = automatic

    async def pieces(self) -> AsyncIterator[str]:
        """The document, piece by piece."""
        engine = self._engine
        head = {"version": VERSION, "software": f"bartleby/{self._broker.version}", "broker": self._broker.name}
        yield json.dumps(head)[:-1]
        lists: tuple[tuple[str, list[str], Callable[[str], Iterable[dict[str, Any]]]], ...] = (
            ("addresses", await self._names.addresses(), self._address),
            ("queues", await self._names.queues(), self._queue),
            ("diverts", sorted(engine.diverts), self._divert),
        )
        for kind, names, definitions in lists:
            separator = f', "{kind}": ['
            for at in range(0, len(names), STEP):
                found = [each for name in names[at : at + STEP] for each in definitions(name)]
                texts = [json.dumps(each) for each in found]
                if texts:
                    yield separator + ",\n".join(texts)
                    separator = ",\n"
                await asyncio.sleep(PAUSE)
            yield "]" if separator == ",\n" else f"{separator}]"
        rest = {
            "address_settings": settings_by_match(engine),
            "permissions": permissions_by_match(engine.security.table),
            "users": [user.model_dump() for user in users_of(self._broker).values()],
        }
        yield ", " + json.dumps(rest)[1:]

    def _address(self, name: str) -> Iterator[dict[str, Any]]:
        address = self._engine.addresses.get(name)
        if address is None or is_temporary(name) or self._engine.operators.is_own(address):
            return
        if self._automatic or not address.auto_created:
            yield address_fields(address)

    def _queue(self, name: str) -> Iterator[dict[str, Any]]:
        queue = self._engine.queues.get(name)
        if queue is None or queue.internal or self._engine.operators.is_own(queue.address):
            return
        if self._is_lasting(queue):
            yield queue_fields(queue)

    def _is_lasting(self, queue: Queue) -> bool:
        if not self._engine.operators.is_of_client(queue):
            return True
        automatic = queue.auto_created and queue.durable and queue.routing_type is RoutingType.ANYCAST
        return self._automatic and automatic and not is_temporary(queue.address.name)

    def _divert(self, name: str) -> Iterator[dict[str, Any]]:
        divert = self._engine.diverts.get(name)
        if divert is not None and not divert.internal:
            yield divert_fields(divert)
