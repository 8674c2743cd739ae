"""The page of diverts: list, create and delete them."""

from __future__ import annotations

from starlette.responses import Response

from broker.console.desk import Pages, Routes
from broker.console.visit import Visit, go_to
from broker.engine import Divert, parse_selector
from broker.engine.model.names import check_name, check_sendable
from broker.management.callers import manages_divert, require_address, require_divert
from broker.management.durable import durable


class DivertPages(Pages):
    """The divert page of one broker."""

    def routes(self) -> Routes:
        """The pages."""
        return [
            ("GET", "/diverts", self.show_all, None),
            ("POST", "/diverts/make", self.make, _authorize_new),
            ("POST", "/diverts/delete", self.delete, self._authorize),
        ]

    def _authorize(self, visit: Visit) -> None:
        require_divert(visit.access, self._desk.engine, visit.text("name"))

    async def show_all(self, visit: Visit) -> Response:
        """The diverts that the visitor manages."""
        diverts = self._desk.engine.diverts
        rows = [diverts[name] for name in sorted(diverts) if manages_divert(visit.access, diverts[name])]
        return self._desk.page(visit, "diverts.html", {"rows": rows})

    async def make(self, visit: Visit) -> Response:
        """Create a divert, which stays until it is deleted."""
        engine = self._desk.enter()
        name, address, forwarding = visit.text("name").strip(), visit.text("address").strip(), _forwarding(visit)
        check_name(name)
        check_name(address)
        for forward in forwarding:
            check_sendable(forward, engine.syntax)
        filter = parse_selector(visit.text("filter").strip())
        divert = Divert(name, address, forwarding, exclusive=visit.flag("exclusive"), filter=filter)
        engine.operators.add_divert(divert)
        visit.log_action("divert.created", divert=name, address=address, forwarding=", ".join(forwarding))
        await durable(engine)
        visit.done(f"Divert {name} was created.")
        for lacking in engine.operators.lacking_queues(divert):
            visit.warn(f"No queue on {lacking} takes copies yet.")
        return go_to("/diverts")

    async def delete(self, visit: Visit) -> Response:
        """Delete a divert."""
        name = visit.text("name")
        self._desk.enter().operators.remove_divert(name)
        visit.log_action("divert.deleted", divert=name)
        await durable(self._desk.engine)
        visit.done(f"Divert {name} was deleted.")
        return go_to("/diverts")


def _forwarding(visit: Visit) -> tuple[str, ...]:
    return tuple(part.strip() for part in visit.text("forwarding").split(",") if part.strip())


def _authorize_new(visit: Visit) -> None:
    for address in (visit.text("address").strip(), *_forwarding(visit)):
        require_address(visit.access, address)
