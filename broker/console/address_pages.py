"""The pages of addresses: the list, and one address with its queues, diverts and settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.responses import Response

from broker.console.desk import Pages, Routes
from broker.console.listing import table
from broker.console.visit import Refused, Visit, go_to
from broker.engine import Address
from broker.engine.model.row import kebab
from broker.engine.model.settings import as_mapping
from broker.management.callers import managed, require_address, require_all_queues
from broker.management.durable import durable, finished
from broker.management.models.addresses import address_counts, address_shown
from broker.management.models.settings import deciding, plain
from store.counted import counted

#: Columns by which addresses can be sorted, beside the number of their queues.
_COLUMNS: Final[dict[str, Callable[[Address], int]]] = {
    "messages": lambda address: address.size_messages,
    "bytes": lambda address: address.size_bytes,
    "routed": lambda address: address.routed,
    "unrouted": lambda address: address.unrouted,
    "dropped": lambda address: address.dropped,
}


class AddressPages(Pages):
    """The address pages of one broker."""

    def routes(self) -> Routes:
        """The pages."""
        return [
            ("GET", "/addresses", self.show_all, None),
            ("POST", "/addresses/make", self.make, _authorize_new),
            ("GET", "/address", self.show, _authorize),
            ("POST", "/address/pause", self.pause, self._authorize_queues),
            ("POST", "/address/resume", self.pause, self._authorize_queues),
            ("POST", "/address/delete", self.delete, self._authorize_queues),
        ]

    async def _authorize_queues(self, visit: Visit) -> None:
        await require_all_queues(visit.access, self._desk.engine, visit.text("name"))

    async def show_all(self, visit: Visit) -> Response:
        """The addresses that the visitor manages."""
        desk, addresses, internal = self._desk, self._desk.engine.addresses, visit.flag("internal")
        every = await desk.shared.names.addresses(internal=internal)
        names = await managed(visit.access, every, lambda name: (name, ""))
        columns = {**_COLUMNS, "queues": lambda address: len(desk.engine.queues_of(address))}
        found = await table(visit, names, addresses, columns)
        rows = [address_counts(desk.engine, addresses[name]) for name in found.names if name in addresses]
        return desk.page(visit, "addresses.html", {"table": found, "rows": rows, "internal": internal})

    async def show(self, visit: Visit) -> Response:
        """One address."""
        engine = self._desk.engine
        address = engine.operators.address(visit.text("name"))
        shown = address_shown(engine, self._desk.broker.links, address, visit.access)
        context = {"address": shown, "settings": self._settings(address)}
        return self._desk.page(visit, "address.html", context)

    def _settings(self, address: Address) -> list[tuple[str, object, str]]:
        """Each setting's name, value and the match that sets it; empty for defaults, which come last."""
        layers = self._desk.engine.operators.setting_layers(address.name)
        order = {match: at for at, (match, _) in enumerate(layers)}
        found = [
            (kebab(name), plain(value), deciding(layers, name) or "")
            for name, value in sorted(as_mapping(address.settings).items())
        ]
        return sorted(found, key=lambda each: order.get(each[2], len(layers)))

    async def make(self, visit: Visit) -> Response:
        """Create an address."""
        name = visit.text("name").strip()
        if not name:
            raise Refused("give the address a name")
        address = self._desk.enter().operators.make_address(name, set(visit.routing_types()))
        visit.log_action("address.created", address=address.name)
        await durable(self._desk.engine)
        visit.done("The address was created.")
        return go_to("/address", name=address.name)

    async def pause(self, visit: Visit) -> Response:
        """Pause or resume all queues of an address."""
        paused = visit.request.url.path.endswith("/pause")
        address = self._desk.engine.operators.address(visit.text("name"))
        if self._desk.enter().operators.pause_address(address, paused=paused):
            visit.log_action("address.paused" if paused else "address.resumed", address=address.name)
        await durable(self._desk.engine)
        visit.done("All its queues are paused, including those created later." if paused else "Its queues are resumed.")
        return go_to("/address", name=address.name)

    async def delete(self, visit: Visit) -> Response:
        """Delete an address; one that has queues only if the box is ticked."""
        address, force = self._desk.engine.operators.address(visit.text("name")), visit.flag("force")
        queues = len(self._desk.engine.queues_of(address))
        delete = self._desk.enter().operators.delete_address
        await finished(lambda done: delete(address, with_queues=force, then=done))
        visit.log_action("address.deleted", address=address.name, queues=queues)
        await durable(self._desk.engine)
        visit.done(f"Address {address.name} was deleted, with {counted(queues, 'queue')}.")
        return go_to("/addresses")


def _authorize(visit: Visit) -> None:
    require_address(visit.access, visit.text("name"))


def _authorize_new(visit: Visit) -> None:
    require_address(visit.access, visit.text("name").strip())
