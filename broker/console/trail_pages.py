"""The page of a message's trail: where it was sent, the deliveries and deaths in the journal, and its end."""

from __future__ import annotations

from starlette.responses import Response

from broker.console.desk import Pages, Routes, manages_all
from broker.console.visit import Refused, Visit
from broker.engine.model.errors import NotFound
from broker.engine.model.permissions import Permission
from broker.management.callers import require_queue, require_whole
from store.trail.steps import Trail
from store.trail.text import sentence


class TrailPages(Pages):
    """The trail page of one broker."""

    def routes(self) -> Routes:
        """The pages."""
        return [("GET", "/trail", self.show, self._authorize)]

    def _authorize(self, visit: Visit) -> None:
        """Require `manage` on the broker as a whole or on the message's queue; `show` then checks its other queues."""
        if manages_all(visit.access):
            return
        if not visit.text("queue"):
            require_whole(visit.access)
        require_queue(visit.access, self._desk.engine, visit.text("queue"))
        self._desk.enter().messages.find(self._desk.engine.queue(visit.text("queue")), visit.id)

    async def show(self, visit: Visit) -> Response:
        """What the journal records about a message, by any id it ever had; without an id, the search form."""
        id, finder = visit.id, self._desk.shared.trails
        found = None
        if id:
            try:
                found = await finder.find(id)
            except OSError as error:
                raise Refused(f"the journal cannot be read: {error}", 503) from None
            if not (manages_all(visit.access) or self._manages(visit, found)):
                raise NotFound("this message was also on queues that you do not manage, so you may not see its trail")
        context = {
            "id": id,
            "found": found,
            "unknown": "" if found is None or found.steps else finder.unknown(id, found),
            "steps": [] if found is None else [(step, sentence(step)) for step in found.steps],
            "queues": self._desk.engine.queues,
        }
        return self._desk.page(visit, "trail.html", context)

    def _manages(self, visit: Visit, found: Trail) -> bool:
        """Whether the visitor manages all queues that a message was on, and all addresses that it was sent to."""
        queues = self._desk.engine.queues
        names = {name for step in found.steps for name in step.queues}
        if not all(name in queues for name in names):
            return False
        places = [(queues[name].address.name, name) for name in names]
        places += [(step.address, "") for step in found.steps if step.address]
        return all(visit.access.might(Permission.MANAGE, address, queue) for address, queue in places)
