"""The calls to browse, show and download messages of queues."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Final

from fastapi import Query
from starlette.responses import Response

from broker.engine import Queue, parse_selector
from broker.engine.model.message import PropertyView
from broker.management.callers import require_queue
from broker.management.calls import CallerAccess, Calls
from broker.management.cursors import cursor, place
from broker.management.limits import Limits
from broker.management.looking import Look, whole_body
from broker.management.models.base import LIMIT_MAX, After, MessageId, Name, PageLimit
from broker.management.models.messages import MessageList, MessageShown, message_shown
from broker.management.ports import Broker
from broker.management.turns import in_turns

Selector = Annotated[str, Query(description="Only messages that match this selector; empty: all.")]


#: Characters of the messages in one answer, after the first message.
PAGE_CHARS_MAX: Final = 4 << 20


class MessageCalls:
    """The calls on the messages of one broker's queues."""

    def __init__(self, broker: Broker, limits: Limits) -> None:
        self._broker = broker
        self._engine = broker.engine
        self._limits = limits

    def add_to(self, calls: Calls) -> None:
        """Declare them."""
        path, authorize = "/queues/{name}/messages", self._authorize
        content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        calls.add("GET", path, self.browse, authorize=authorize, response_model=MessageList, problems=(503,))
        calls.add("GET", f"{path}/{{id}}", self.show, authorize=authorize, problems=(503,))
        calls.add(
            "GET",
            f"{path}/{{id}}/body",
            self.download,
            authorize=authorize,
            problems=(503,),
            response_class=Response,
            documented={200: {"description": "The body as it is.", "content": content}},
        )

    async def _authorize(self, name: Name, access: CallerAccess) -> None:
        require_queue(access, self._engine, name)

    async def browse(self, name: Name, limit: PageLimit = 0, after: After = "", filter: Selector = "") -> Response:
        """Messages of a queue, oldest first, without removing them.

        An answer has up to `limit` messages, or 4 MiB and the message that exceeds it.  One call may not get through a
        long queue with a selector: then there is a `next` even though the answer has fewer messages than `limit`, or
        none.
        """
        queue, selector = self._engine.queue(name), parse_selector(filter)
        last = place("messages", after, 0)
        most = limit or max(min(queue.address.settings.management_browse_page_size, LIMIT_MAX), 1)
        fits = None if selector is None else lambda message: selector.matches(PropertyView(message))
        look = Look(self._broker, queue, last, most, self._limits.filtered_max, fits)
        shown = await in_turns(_texts(look, queue))
        next = json.dumps(None if look.last is None else cursor("messages", look.last))
        text = f'{{"messages":[{",".join(shown)}],"limit":{most},"next":{next}}}'
        return Response(text, media_type="application/json")

    async def show(self, name: Name, id: MessageId) -> MessageShown:
        """One message, with all its properties and the first 64 KiB of its body."""
        queue = self._engine.queue(name)
        self._broker.tick.enter()
        message, state = self._engine.messages.find(queue, id)
        return message_shown(message, queue, state, alone=True)

    async def download(self, name: Name, id: MessageId) -> Response:
        """The whole body of one message.

        A large AMQP body of several sections includes the headers of the sections after the first.
        """
        queue = self._engine.queue(name)
        self._broker.tick.enter()
        message, _ = self._engine.messages.find(queue, id)
        return whole_body(message)


def _texts(look: Look, queue: Queue) -> Iterator[str | None]:
    """Messages in JSON, until they fill an answer."""
    nchars = 0
    for found in look:
        if found is None:
            yield None
            continue
        message, state = found
        text = message_shown(message, queue, state).model_dump_json()
        nchars += len(text)
        yield text
        if nchars >= PAGE_CHARS_MAX:
            return
