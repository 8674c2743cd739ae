"""Messages of queues: browsed, shown, downloaded, moved, removed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from broker.engine import (
    MessageRange,
    MoveResult,
    parse_selector,
)
from broker.engine.model.errors import EngineError
from broker.engine.model.message import PropertyView
from broker.management.callers import require_queue, require_target
from broker.management.calls import CallerAccess, Calls
from broker.management.cursors import cursor, place
from broker.management.deeds import told
from broker.management.durable import durable
from broker.management.limits import Limits
from broker.management.looking import matching, whole_body
from broker.management.models import messages as models
from broker.management.models.base import LIMIT_MAX, After, MessageId, Name, PageLimit
from broker.management.models.messages import MessageList, MessageShown, Move, Moved, Purged, Selection, message_shown
from broker.management.ports import Broker
from broker.management.resources.shortening import shortened

Selector = Annotated[str, Query(description="Only messages that match this selector; empty: all.")]


class MessageCalls:
    """The calls on the messages of one broker's queues."""

    def __init__(self, broker: Broker, limits: Limits) -> None:
        self._broker = broker
        self._engine = broker.engine
        self._limits = limits

    def add_to(self, calls: Calls) -> None:
        """Declare them."""
        path, about = "/queues/{name}/messages", self._about
        content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        calls.add("GET", path, self.browse, about=about, problems=(503,))
        calls.add("GET", f"{path}/{{id}}", self.show, about=about, problems=(503,))
        calls.add(
            "GET",
            f"{path}/{{id}}/body",
            self.download,
            about=about,
            problems=(503,),
            response_class=Response,
            documented={200: {"description": "The body as it is.", "content": content}},
        )
        calls.add("POST", f"{path}:purge", self.purge, about=about, problems=(409, 503))
        calls.add("POST", f"{path}:retry", self.retry, about=about, problems=(409, 503, 507))
        calls.add("POST", f"{path}:move", self.move, about=self._about_move, problems=(409, 503, 507))

    async def _about(self, name: Name, access: CallerAccess) -> None:
        require_queue(access, self._engine, name)

    async def _about_move(self, name: Name, body: Move, access: CallerAccess) -> None:
        require_queue(access, self._engine, name)
        require_target(access, self._engine, body.to)

    # -- looking ---------------------------------------------------------------------------------------------------

    async def browse(self, name: Name, limit: PageLimit = 0, after: After = "", filter: Selector = "") -> MessageList:
        """Messages of a queue, oldest first, without removing them.

        A queue may be too long to be looked through for a selector in one call: then there is a `next` though fewer
        messages than `limit` are shown, or none.
        """
        queue, selector = self._engine.queue(name), parse_selector(filter)
        key = place("messages", after, int)
        most = limit or max(min(queue.address.settings.management_browse_page_size, LIMIT_MAX), 1)
        self._broker.tick.enter()
        fits = None if selector is None else lambda message: selector.matches(PropertyView(message))
        start = 0 if key is None else int(key[0])
        found, last = matching(self._engine, queue, start, most, self._limits.filtered_max, fits)
        shown = [message_shown(message, queue, state) for message, state in found]
        return MessageList(messages=shown, limit=most, next=None if last is None else cursor("messages", last))

    async def show(self, name: Name, id: MessageId) -> MessageShown:
        """One message, with all its properties and the first 64 KiB of its body."""
        queue = self._engine.queue(name)
        self._broker.tick.enter()
        message, state = self._engine.messages.find(queue, id)
        return message_shown(message, queue, state, alone=True)

    async def download(self, name: Name, id: MessageId) -> Response:
        """The body of one message, all of it.

        Of an AMQP body that is large and has several sections, their beginnings are among it.
        """
        queue = self._engine.queue(name)
        self._broker.tick.enter()
        message, _ = self._engine.messages.find(queue, id)
        return whole_body(message)

    # -- moving ----------------------------------------------------------------------------------------------------

    async def purge(self, request: Request, name: Name, body: Selection) -> Purged:
        """Remove messages that no consumer holds: all of them, or those that are chosen, some thousand in a call."""
        queue, chosen = self._engine.queue(name), body.chosen
        if chosen:
            step = await self._stepwise(_range(body), partial(self._engine.messages.discard, queue))
        else:
            queue.check_public()
            gone = await shortened(self._broker, queue)
            self._broker.tick.enter()
            step = MoveResult(0, 0, True, gone + self._engine.messages.purge(queue))
        told(request, "queue.purged", queue=queue.name, messages=step.moved, **chosen)
        await durable(self._engine)
        return models.purged(step, queue)

    async def retry(self, request: Request, name: Name, body: Selection) -> Moved:
        """Move messages back to where they came from, some thousand in a call."""
        queue = self._engine.queue(name)
        step = await self._stepwise(_range(body), partial(self._engine.messages.retry, queue))
        refused = sum(step.refused.values())
        told(request, "queue.retried", queue=queue.name, messages=step.moved, refused=refused, **body.chosen)
        await durable(self._engine)
        return models.moved(step, queue)

    async def move(self, request: Request, name: Name, body: Move) -> Moved:
        """Move messages to another address or queue, some thousand in a call."""
        queue = self._engine.queue(name)
        step = await self._stepwise(_range(body), partial(self._engine.messages.move, queue, body.to))
        refused, chosen = sum(step.refused.values()), body.chosen
        told(request, "queue.moved", queue=queue.name, target=body.to, messages=step.moved, refused=refused, **chosen)
        await durable(self._engine)
        return models.moved(step, queue)

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


def _range(body: Selection) -> MessageRange:
    return MessageRange(parse_selector(body.filter), body.id or 0, body.after or 0, body.below or 0)
