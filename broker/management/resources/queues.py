"""The calls to list, show, create, change and delete queues."""

from __future__ import annotations

from starlette.requests import Request

from broker.engine import NewQueue as Wanted
from broker.engine import Queue, parse_selector
from broker.engine.model.errors import AlreadyInUse
from broker.engine.model.message import RoutingType
from broker.engine.model.row import kebab
from broker.management.callers import managed, require_new_queue, require_queue
from broker.management.calls import CallerAccess, Calls, anybody
from broker.management.cursors import after_name
from broker.management.durable import durable
from broker.management.models.base import LIMIT_DEFAULT, After, Force, Internal, Limit, Name, Search
from broker.management.models.queues import (
    NewQueue,
    QueueChange,
    QueueDeleted,
    QueueList,
    QueueShown,
    queue_counts,
    queue_shown,
)
from broker.management.models.settings import requested
from broker.management.names import Names
from broker.management.operator_log import log_action
from broker.management.ports import Broker
from broker.management.turns import in_turns
from store.counted import counted


class QueueCalls:
    """The calls on one broker's queues."""

    def __init__(self, broker: Broker, names: Names) -> None:
        self._broker = broker
        self._engine = broker.engine
        self._names = names

    def add_to(self, calls: Calls) -> None:
        """Declare them."""
        path, authorize = "/queues/{name}", self._authorize
        calls.add("GET", "/queues", self.list, authorize=anybody)
        calls.add("GET", path, self.show, authorize=authorize)
        calls.add("PUT", path, self.create, authorize=_authorize_new, status=201, problems=(404, 409, 507))
        calls.add("PATCH", path, self.change, authorize=authorize, problems=(409, 507))
        calls.add("DELETE", path, self.delete, authorize=authorize, problems=(409,))

    async def _authorize(self, name: Name, access: CallerAccess) -> None:
        require_queue(access, self._engine, name)

    async def list(
        self,
        access: CallerAccess,
        limit: Limit = LIMIT_DEFAULT,
        after: After = "",
        name: Search = "",
        internal: Internal = False,
    ) -> QueueList:
        """The queues that the caller manages, by name."""
        queues, every = self._engine.queues, await self._names.queues(internal=internal)
        every = [each for each in every if name in each] if name else every
        names = await managed(access, every, lambda name: (queues[name].address.name, name))
        chosen, next = after_name(names, "queues", after, limit)
        shown = await in_turns(queue_counts(queues[name]) if name in queues else None for name in chosen)
        return QueueList(queues=shown, next=next, total=len(names))

    async def show(self, name: Name) -> QueueShown:
        """One queue, by its name or as ADDRESS::QUEUE."""
        return self._shown(self._engine.queue(name))

    def _shown(self, queue: Queue) -> QueueShown:
        return queue_shown(queue, keeps_dead=self._engine.operators.keeps_dead(queue.address.name))

    async def create(self, request: Request, name: Name, body: NewQueue | None = None) -> QueueShown:
        """Create a queue; answered once that is on disk."""
        body = body or NewQueue()
        wanted = Wanted(
            name,
            body.address,
            None if body.routing_type is None else RoutingType[body.routing_type],
            durable=body.durable,
            filter=parse_selector(body.filter),
            requested=requested(body.attributes),
            make_address=body.make_address,
        )
        self._broker.tick.enter()
        queue = self._engine.operators.make_queue(wanted)
        log_action(request, "queue.created", queue=queue.name, address=queue.address.name)
        await durable(self._engine)
        return self._shown(queue)

    async def change(self, request: Request, name: Name, body: QueueChange) -> QueueShown:
        """Change attributes of a queue, or pause or resume its deliveries; answered once that is on disk."""
        queue, attributes, paused = self._engine.queue(name), requested(body.attributes), body.paused
        queue.check_public()
        self._broker.tick.enter()
        if attributes and self._engine.operators.change(queue, attributes):
            shown = ", ".join(f"{kebab(field)}={value}" for field, value in attributes.items())
            log_action(request, "queue.changed", queue=queue.name, attributes=shown)
        if paused is not None and self._engine.operators.pause(queue, paused=paused):
            log_action(request, "queue.paused" if paused else "queue.resumed", queue=queue.name)
        await durable(self._engine)
        return self._shown(queue)

    async def delete(self, request: Request, name: Name, force: Force = False) -> QueueDeleted:
        """Delete a queue, with `force` even one that has messages or consumers; answered once that is on disk.

        A queue with too many messages to remove at once has to be deleted by a task.
        """
        queue = self._engine.queue(name)
        self._engine.operators.check_deletable(queue, with_messages=force)
        messages = queue.message_count
        if messages > self._engine.limits.purge_step_max:
            raise AlreadyInUse(f"queue {queue.name} has {counted(messages, 'message')}: start a task to delete it")
        self._broker.tick.enter()
        self._engine.operators.delete_queue(queue, with_messages=force)
        log_action(request, "queue.deleted", queue=queue.name, messages=messages)
        await durable(self._engine)
        return QueueDeleted(queue=queue.name, messages=messages)


async def _authorize_new(name: Name, access: CallerAccess, body: NewQueue | None = None) -> None:
    require_new_queue(access, (body.address if body else "") or name, name)
