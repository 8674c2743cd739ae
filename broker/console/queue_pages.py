"""The pages of queues: the list, and one queue with its messages; create, pause, disable and delete queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.responses import Response

from broker.console.desk import Context, Pages, Routes
from broker.console.groups import TITLES, chosen_group, group_fields, values
from broker.console.listing import table
from broker.console.messages import browse
from broker.console.visit import ROWS, Refused, Visit, go_to
from broker.engine import NewQueue, Queue
from broker.engine.model.attributes import parse
from broker.engine.model.task import TaskKind, TaskRequest
from broker.management.callers import managed, require_new_queue, require_queue
from broker.management.durable import durable
from broker.management.models.queues import queue_counts, queue_shown
from broker.management.operator_log import caller_fields
from store.counted import counted

#: Columns by which queues can be sorted.
_COLUMNS: Final[dict[str, Callable[[Queue], int]]] = {
    "messages": lambda queue: queue.message_count,
    "ready": lambda queue: queue.ready + queue.paged,
    "delivering": lambda queue: queue.delivering,
    "scheduled": lambda queue: queue.scheduled_count,
    "consumers": lambda queue: queue.attached,
}


class QueuePages(Pages):
    """The queue pages of one broker."""

    def routes(self) -> Routes:
        """The pages."""
        authorize = self.authorize
        return [
            ("GET", "/queues", self.show_all, None),
            ("POST", "/queues/make", self.make, _authorize_new),
            ("GET", "/queue", self.show, authorize),
            ("GET", "/queue/counts", self.counts, authorize),
            ("POST", "/queue/pause", self.pause, authorize),
            ("POST", "/queue/resume", self.pause, authorize),
            ("POST", "/queue/enable", self.enable, authorize),
            ("POST", "/queue/disable", self.enable, authorize),
            ("POST", "/queue/delete", self.delete, authorize),
        ]

    def authorize(self, visit: Visit) -> None:
        """Check the queue; to a visitor who may not manage it, it does not exist."""
        require_queue(visit.access, self._desk.engine, visit.text("name"))

    def _named(self, visit: Visit) -> Queue:
        return self._desk.engine.queue(visit.text("name"))

    async def show_all(self, visit: Visit) -> Response:
        """The queues that the visitor manages."""
        desk, queues = self._desk, self._desk.engine.queues
        every = await desk.shared.names.queues(internal=visit.flag("internal"))
        names = await managed(visit.access, every, lambda name: (queues[name].address.name, name))
        found = await table(visit, names, queues, _COLUMNS)
        rows = [queue_counts(queues[name]) for name in found.names if name in queues]
        return desk.page(visit, "queues.html", {"table": found, "rows": rows, "internal": visit.flag("internal")})

    async def show(self, visit: Visit) -> Response:
        """One queue, and a page of its messages that match a filter."""
        desk, queue = self._desk, self._named(visit)
        group = chosen_group(visit)
        found = await browse(desk, queue, visit.text("filter").strip(), group, visit.number("after"))
        desk.enter()
        context = {
            "found": found,
            "rows": ROWS,
            "group": {} if group is None else values(group),
            "titles": TITLES,
            "fields": group_fields(group),
        }
        return desk.page(visit, "queue.html", {**context, **self._context(queue)})

    async def counts(self, visit: Visit) -> Response:
        """The counts of a queue, to refresh an open page."""
        self._desk.enter()
        return self._desk.part(visit, "queue_counts.html", self._context(self._named(visit)))

    def _context(self, queue: Queue) -> Context:
        keeps_dead = self._desk.engine.operators.keeps_dead(queue.address.name)
        return {
            "queue": queue_shown(queue, keeps_dead=keeps_dead).model_dump(by_alias=True),
            "internal": queue.internal,
            "keeps_dead": keeps_dead,
            "oldest": self._desk.engine.statistics.oldest_age(queue),
        }

    async def pause(self, visit: Visit) -> Response:
        """Pause or resume the deliveries of a queue."""
        queue, paused = self._named(visit), visit.request.url.path.endswith("/pause")
        queue.check_public()
        if self._desk.enter().operators.pause(queue, paused=paused):
            visit.log_action("queue.paused" if paused else "queue.resumed", queue=queue.name)
        await durable(self._desk.engine)
        visit.done("Paused: its consumers get nothing until you resume it." if paused else "Deliveries are resumed.")
        return go_to("/queue", name=queue.name)

    async def enable(self, visit: Visit) -> Response:
        """Enable or disable a queue: whether it accepts messages."""
        queue, enabled = self._named(visit), visit.request.url.path.endswith("/enable")
        queue.check_public()
        if self._desk.enter().operators.change(queue, parse("enabled", "true" if enabled else "false")):
            visit.log_action("queue.changed", queue=queue.name, attributes=f"enabled={str(enabled).lower()}")
        await durable(self._desk.engine)
        visit.done("It accepts messages again." if enabled else "It accepts no new messages until you enable it.")
        return go_to("/queue", name=queue.name)

    async def make(self, visit: Visit) -> Response:
        """Create a queue."""
        name = visit.text("name").strip()
        if not name:
            raise Refused("give the queue a name")
        wanted = NewQueue(
            name,
            visit.text("address").strip(),
            next(iter(visit.routing_types()), None),
            durable=not visit.flag("transient"),
            make_address=True,
        )
        queue = self._desk.enter().operators.make_queue(wanted)
        visit.log_action("queue.created", queue=queue.name, address=queue.address.name)
        await durable(self._desk.engine)
        visit.done("The queue was created.")
        return go_to("/queue", name=queue.name)

    async def delete(self, visit: Visit) -> Response:
        """Delete a queue; one that has messages or consumers only if the box is ticked."""
        desk, queue, force = self._desk, self._named(visit), visit.flag("force")
        desk.engine.operators.check_deletable(queue, with_messages=force)
        if force:
            by, identity = caller_fields(visit.request, visit.access), visit.access.identity
            request = TaskRequest(kind=TaskKind.DELETE_QUEUE, queue=queue.name, by=by, identity=identity)
            task = desk.enter().tasks.start(request)
            await durable(desk.engine)
            if not task.state.ended:
                return go_to("/task", id=task.id)
            messages = task.progress.moved
        else:
            desk.enter().operators.delete_queue(queue, with_messages=False)
            visit.log_action("queue.deleted", queue=queue.name, messages=0)
            await durable(desk.engine)
            messages = 0
        visit.done(f"Queue {queue.name} was deleted, with {counted(messages, 'message')}.")
        return go_to("/queues")


def _authorize_new(visit: Visit) -> None:
    name = visit.text("name").strip()
    require_new_queue(visit.access, visit.text("address").strip() or name, name)
