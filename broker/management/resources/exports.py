"""Messages of a queue exported as lines, and lines imported: `bartleby queue export` and `import`."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from typing import Annotated, Final

from fastapi import Query
from pydantic import BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import Response

from broker.engine import parse_selector
from broker.engine.model.message import PropertyView
from broker.management import lines
from broker.management.callers import require_queue
from broker.management.calls import CallerAccess, Calls, whole
from broker.management.cursors import cursor, place
from broker.management.deeds import told
from broker.management.durable import durable
from broker.management.models.base import ID_MAX, LIMIT_DEFAULT, After, Limit, MessageId, Name, UploadId, number
from broker.management.models.messages import (
    UPLOADED_CHARS_MAX,
    ExportedMessages,
    MessagesImported,
    Upload,
    UploadPiece,
)
from broker.management.ports import Broker
from broker.management.problems import Refused
from broker.management.resources.messages import Selector
from broker.management.uploads import BodyUploads

#: Bytes of a call with a piece of a body.
PIECE_BYTES_MAX: Final = UPLOADED_CHARS_MAX + (4 << 10)

OneId = Annotated[
    int, Field(ge=0, le=ID_MAX), BeforeValidator(number), Query(description="Only the message with this id; 0: all.")
]
Offset = Annotated[
    int, Field(ge=0, le=ID_MAX), BeforeValidator(number), Query(description="The bytes before it are left out.")
]


class ExportCalls:
    """The calls on one broker's queues.  An export is for those who manage the queue.

    An import is for those who manage the whole broker: a line says who sent the message, and it is believed.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._engine = broker.engine
        self._uploads = BodyUploads(broker)

    def add_to(self, calls: Calls) -> None:
        """Declare them."""
        path, about = "/queues/{name}", self._about
        content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        calls.add(
            "GET", f"{path}/messages:export", self.export, about=about, response_model=ExportedMessages, problems=(503,)
        )
        calls.add(
            "GET",
            f"{path}/messages/{{id}}/stored-body",
            self.stored_body,
            about=about,
            problems=(503,),
            response_class=Response,
            documented={200: {"description": "A piece of at most 1 MiB.", "content": content}},
        )
        calls.add("PUT", "/uploads/{id}", self.upload, about=whole, problems=(409, 507), body_bytes_max=PIECE_BYTES_MAX)
        calls.add("DELETE", "/uploads/{id}", self.end_upload, about=whole)
        calls.add(
            "POST",
            "/messages:import",
            self.import_,
            about=whole,
            problems=(404, 409, 507),
            body_bytes_max=lines.BODY_BYTES_MAX,
            openapi_extra={"requestBody": lines.DOCUMENTED},
        )

    async def _about(self, name: Name, access: CallerAccess) -> None:
        require_queue(access, self._engine, name)

    async def export(
        self, name: Name, limit: Limit = LIMIT_DEFAULT, after: After = "", filter: Selector = "", id: OneId = 0
    ) -> Response:
        """Messages of a queue as lines of an export, oldest first, without removing them.

        An answer has `limit` messages, or 1 MiB and the message that exceeds it.  With a selector it may have fewer,
        or none, though there is a `next`.
        """
        queue, selector = self._engine.queue(name), parse_selector(filter)
        key = place("export", after, int)
        if id:
            self._broker.tick.enter()
            message, state = self._engine.messages.find(queue, id)
            return _answer([lines.shown(queue, message, state)], None)
        fits = None if selector is None else lambda message: selector.matches(PropertyView(message))
        page = lines.Page(queue, 0 if key is None else int(key[0]), limit, fits)
        for _ in range(lines.STEPS_MAX):
            self._broker.tick.enter()
            page.step(self._engine)
            if page.last is None or page.full or queue.deleted:
                break
            await asyncio.sleep(0)  # others get their turn
        last = None if queue.deleted or page.last is None else cursor("export", page.last)
        return _answer(page.messages, last)

    async def stored_body(self, name: Name, id: MessageId, offset: Offset = 0) -> Response:
        """A piece of a message's body as it is stored, in its protocol's encoding; empty behind its end."""
        queue = self._engine.queue(name)
        self._broker.tick.enter()
        message, _ = self._engine.messages.find(queue, id)
        return Response(lines.piece_of(message, offset), media_type="application/octet-stream")

    async def import_(self, request: Request) -> MessagesImported:
        """Put messages of an export on a queue, as they were, in their order; answered when they are on disk."""
        wanted = lines.read_import(self._engine, self._uploads, await request.body())
        self._broker.tick.enter()
        done = self._engine.messages.insert(wanted.id, wanted.target, wanted.messages)
        for upload in wanted.uploads:
            self._uploads.end(upload)
        told(request, "queue.imported", target=wanted.target, messages=done.inserted)
        await durable(self._engine)
        return MessagesImported(imported=done.inserted, refused=done.refused, known=done.known)

    async def upload(self, id: UploadId, body: UploadPiece) -> Upload:
        """The next piece of a large body of a message that is to be imported, within a minute of the one before.

        It is answered when another one may come; the last one when the body is on disk.
        """
        try:
            data = b64decode(body.base64, validate=True)
        except ValueError:
            raise Refused("invalid-body", "base64 is not Base64") from None
        self._broker.tick.enter()
        nbytes = await self._uploads.write(id, body.offset, data, durable=body.durable, last=body.last)
        return Upload(id=id, bytes=nbytes)

    async def end_upload(self, id: UploadId) -> Upload:
        """Give a body up, which may be gone already."""
        self._broker.tick.enter()
        return Upload(id=id, bytes=self._uploads.end(id))


def _answer(messages: list[str], next: str | None) -> Response:
    text = f'{{"messages": [{", ".join(messages)}], "next": {json.dumps(next)}}}'
    return Response(text, media_type="application/json")
