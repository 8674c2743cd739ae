"""The HTTP calls on queues and their messages.

    GET    /api/v1/queues?page=&size=&internal=     by name
    GET    /api/v1/queues/NAME
    PUT    /api/v1/queues/NAME?address=&routing-type=&durable=&filter=&make-address=&ring-size=5&...
                                                    refused if it exists
    DELETE /api/v1/queues/NAME?force=               refused if it has messages or consumers, unless force=true
    POST   /api/v1/queues/NAME/pause  .../resume    stop its deliveries, let them go on
    POST   /api/v1/queues/NAME/attributes?ring-size=5&...    change them; what is not named stays
    GET    /api/v1/queues/NAME/messages?filter=&page=&size=
    DELETE /api/v1/queues/NAME/messages             all of them
    DELETE /api/v1/queues/NAME/messages?filter=&id=&after=&below=             those; so do these, step by step
    POST   /api/v1/queues/NAME/messages:retry?filter=&id=&after=&below=       back to where they came from
    POST   /api/v1/queues/NAME/messages:move?to=&filter=&id=&after=&below=    to another address or queue

What changes something is answered when the change is on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from broker.engine import Engine, Filter, MessageRange, MoveResult, NewQueue, Queue, parse_selector
from broker.engine.model.access import Access
from broker.engine.model.attributes import FIELDS, parse
from broker.engine.model.errors import EngineError
from broker.engine.model.message import Message, PropertyView
from broker.engine.model.row import kebab
from broker.management.asking import (
    Refused,
    access_of,
    anybody,
    check_known,
    flag_of,
    name_of,
    page_of,
    routing_type_of,
    selection_of,
)
from broker.management.callers import Guarded, managed, require_address, require_queue, require_target
from broker.management.deeds import told
from broker.management.durable import durable
from broker.management.limits import Limits
from broker.management.names import Names
from broker.management.ports import Broker
from broker.management.views import Json, message_view, queue_counts, queue_view, step_view

#: What a queue that is made may be given beside its attributes.
_MAKING: Final = frozenset({"address", "routing-type", "durable", "filter", "make-address"})

#: Parameters that choose messages.
_CHOOSING: Final = frozenset({"filter", "id", "after", "below"})


class QueueCalls:
    """The calls on one broker."""

    def __init__(self, broker: Broker, names: Names, limits: Limits) -> None:
        self._broker = broker
        self._names = names
        self._limits = limits

    def routes(self, guarded: Guarded) -> list[Route]:
        """The calls, each for those who may make it."""
        path = "/api/v1/queues/{name}"
        about = self._about
        return [
            Route("/api/v1/queues", guarded(self.list, anybody)),
            Route(path, guarded(self.show, about), methods=["GET"]),
            Route(path, guarded(self.make, _about_new), methods=["PUT"]),
            Route(path, guarded(self.delete, about), methods=["DELETE"]),
            Route(f"{path}/pause", guarded(self.pause, about), methods=["POST"]),
            Route(f"{path}/resume", guarded(self.pause, about), methods=["POST"]),
            Route(f"{path}/attributes", guarded(self.change, about), methods=["POST"]),
            Route(f"{path}/messages", guarded(self.browse, about), methods=["GET"]),
            Route(f"{path}/messages", guarded(self.purge, about), methods=["DELETE"]),
            Route(f"{path}/messages:retry", guarded(self.retry, about), methods=["POST"]),
            Route(f"{path}/messages:move", guarded(self.move, self._about_move), methods=["POST"]),
        ]

    @property
    def _engine(self) -> Engine:
        return self._broker.engine

    def _named(self, request: Request) -> Queue:
        return self._engine.queue(name_of(request))

    def _about(self, request: Request, access: Access) -> None:
        require_queue(access, self._engine, name_of(request))

    def _about_move(self, request: Request, access: Access) -> None:
        self._about(request, access)
        require_target(access, self._engine, request.query_params.get("to", ""))

    # -- queues ----------------------------------------------------------------------------------------------------

    async def list(self, request: Request) -> Response:
        """A page of the queues that the caller manages, by name; the broker's own only if they are asked for."""
        check_known(request, {"page", "size", "internal"})
        page, size = page_of(request)
        queues, internal = self._engine.queues, flag_of(request, "internal")
        every = self._names.queues(internal=internal)
        names = await managed(access_of(request), every, lambda name: (queues[name].address.name, name))
        shown = [queue_counts(queues[name]) for name in names[(page - 1) * size : page * size] if name in queues]
        return JSONResponse({"queues": shown, "page": page, "size": size, "total": len(names)})

    async def show(self, request: Request) -> Response:
        """One queue."""
        check_known(request, ())
        queue = self._named(request)
        return JSONResponse(queue_view(queue) | {"keeps_dead": self._engine.operators.keeps_dead(queue.address.name)})

    async def make(self, request: Request) -> Response:
        """Make a queue."""
        check_known(request, _MAKING | set(map(kebab, FIELDS)))
        given = request.query_params
        asked: dict[str, object] = {}
        for name, value in given.multi_items():
            if name not in _MAKING:
                asked |= parse(name, value)
        wanted = NewQueue(
            name_of(request),
            given.get("address", ""),
            routing_type_of(given["routing-type"]) if "routing-type" in given else None,
            durable=flag_of(request, "durable", default=True),
            filter=parse_selector(given.get("filter", "")),
            asked=asked,
            make_address=flag_of(request, "make-address"),
        )
        self._broker.tick.enter()
        queue = self._engine.operators.make_queue(wanted)
        told(request, "queue.made", queue=queue.name, address=queue.address.name)
        await durable(self._engine)
        return JSONResponse(queue_view(queue), 201)

    async def delete(self, request: Request) -> Response:
        """Delete a queue."""
        check_known(request, {"force"})
        queue, force = self._named(request), flag_of(request, "force")
        self._engine.operators.check_deletable(queue, with_messages=force)
        messages = await self._shortened(queue)
        self._broker.tick.enter()
        messages += queue.message_count
        self._engine.operators.delete_queue(queue, with_messages=force)
        told(request, "queue.deleted", queue=queue.name, messages=messages)
        await durable(self._engine)
        return JSONResponse({"queue": queue.name, "messages": messages})

    async def pause(self, request: Request) -> Response:
        """Stop the deliveries of a queue, or let them go on."""
        check_known(request, ())
        queue, paused = self._named(request), request.url.path.endswith("/pause")
        queue.check_public()
        self._broker.tick.enter()
        if self._engine.operators.pause(queue, paused=paused):
            told(request, "queue.paused" if paused else "queue.resumed", queue=queue.name)
        await durable(self._engine)
        return JSONResponse(queue_counts(queue))

    async def change(self, request: Request) -> Response:
        """Change attributes of a queue."""
        queue = self._named(request)
        queue.check_public()
        asked: dict[str, object] = {}
        for name, value in request.query_params.multi_items():
            asked |= parse(name, value)
        if not asked:
            raise Refused(400, "invalid-parameter", "name attributes and their values, as ring-size=5")
        self._broker.tick.enter()
        if self._engine.operators.change(queue, asked):
            shown = ", ".join(f"{kebab(name)}={value}" for name, value in asked.items())
            told(request, "queue.changed", queue=queue.name, attributes=shown)
        await durable(self._engine)
        return JSONResponse(queue_view(queue))

    # -- messages --------------------------------------------------------------------------------------------------

    async def browse(self, request: Request) -> Response:
        """A page of a queue's messages that a filter fits."""
        check_known(request, {"filter", "page", "size"})
        queue = self._named(request)
        page, size = page_of(request, max(queue.address.settings.management_browse_page_size, 1))
        filter = parse_selector(request.query_params.get("filter", ""))
        self._broker.tick.enter()
        looked_at_max = self._limits.looked_at_max if filter is None else self._limits.filtered_max
        places = self._engine.messages.browse(queue)
        messages, complete = _browse(places, looked_at_max, filter, (page - 1) * size, size)
        answer: Json = {
            "messages": [message_view(message, queue, state) for message, state in messages],
            "page": page,
            "size": size,
            "complete": complete,
        }
        return JSONResponse(answer)

    async def purge(self, request: Request) -> Response:
        """Remove messages that no consumer holds: all at once, or those that are chosen, one step."""
        check_known(request, _CHOOSING)
        queue, selection = self._named(request), selection_of(request)
        if _CHOOSING.isdisjoint(request.query_params):
            queue.check_public()
            purged = await self._shortened(queue)
            self._broker.tick.enter()
            purged += self._engine.messages.purge(queue)
            answer: Json = {"queue": queue.name, "purged": purged}
        else:
            step = await self._stepwise(selection, partial(self._engine.messages.discard, queue))
            purged = step.moved
            answer = {"queue": queue.name, "purged": step.moved}
            answer |= {"complete": step.complete, "last": step.last, "below": step.below}
        told(request, "queue.purged", queue=queue.name, messages=purged)
        await durable(self._engine)
        return JSONResponse(answer | {"delivering": queue.delivering})

    async def retry(self, request: Request) -> Response:
        """Move messages back to where they came from, one step."""
        check_known(request, _CHOOSING)
        queue, selection = self._named(request), selection_of(request)
        step = await self._stepwise(selection, partial(self._engine.messages.retry, queue))
        told(request, "queue.retried", queue=queue.name, messages=step.moved, refused=sum(step.refused.values()))
        await durable(self._engine)
        return JSONResponse(step_view(step, queue))

    async def move(self, request: Request) -> Response:
        """Move messages to another address or queue, one step."""
        check_known(request, _CHOOSING | {"to"})
        queue, selection, target = self._named(request), selection_of(request), request.query_params.get("to", "")
        if not target:
            raise Refused(400, "invalid-parameter", "to is required: the address or queue that gets the messages")
        step = await self._stepwise(selection, partial(self._engine.messages.move, queue, target))
        refused = sum(step.refused.values())
        told(request, "queue.moved", queue=queue.name, target=target, messages=step.moved, refused=refused)
        await durable(self._engine)
        return JSONResponse(step_view(step, queue))

    # -- much at once, without keeping others waiting --------------------------------------------------------------

    async def _stepwise(self, selection: MessageRange, verb: Callable[[MessageRange], MoveResult]) -> MoveResult:
        """Several steps of a verb, each in a tick of its own, between which others are served.  Raises EngineError."""
        self._broker.tick.enter()
        total = verb(selection)
        for _ in range(self._limits.steps_max - 1):
            if total.complete:
                break
            await asyncio.sleep(0)
            self._broker.tick.enter()
            try:
                total.add(verb(replace(selection, after=total.last, below=total.below)))
            except EngineError:
                break  # what was done is told; the next call raises it
        return total

    async def _shortened(self, queue: Queue) -> int:
        """Purge a queue, of what it has now, until the rest can be done at once; returns how many are gone."""
        long = queue.message_count - queue.delivering - self._engine.limits.purge_step_max
        purged = 0
        while purged < long and not queue.deleted:
            self._broker.tick.enter()
            some = self._engine.messages.purge_some(queue)
            if not some:
                break
            purged += some
            await asyncio.sleep(0)
        return purged


def _about_new(request: Request, access: Access) -> None:
    name = name_of(request)
    require_address(access, request.query_params.get("address", "") or name)


def _browse(
    places: Iterator[tuple[Message, str]], looked_at_max: int, filter: Filter | None, skip: int, size: int
) -> tuple[list[tuple[Message, str]], bool]:
    """The messages that the filter fits, after so many others; and whether all were looked at that had to be."""
    looked_at = 0
    found: list[tuple[Message, str]] = []
    for message, state in islice(places, looked_at_max):
        looked_at += 1
        if filter is not None and not filter.matches(PropertyView(message)):
            continue
        if skip:
            skip -= 1
            continue
        found.append((message, state))
        if len(found) == size:
            return found, True
    return found, looked_at < looked_at_max or next(places, None) is None
