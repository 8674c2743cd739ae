"""The calls that export messages of a queue as lines, and import lines: `bartleby queue export` and `import`."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Annotated, Final

from fastapi import Query
from pydantic import BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import Response

from broker.engine import KNOWN, Queue, parse_selector
from broker.engine.model.errors import InvalidTask
from broker.engine.model.message import PropertyView
from broker.engine.model.task import Task, TaskKind
from broker.management import lines
from broker.management.callers import require_queue, require_task
from broker.management.calls import CallerAccess, Calls, authorize_whole
from broker.management.client_tasks import turn
from broker.management.cursors import cursor, place
from broker.management.durable import durable
from broker.management.looking import Look
from broker.management.models.base import ID_MAX, LIMIT_DEFAULT, After, Limit, MessageId, Name, UploadId, number
from broker.management.models.messages import (
    UPLOADED_CHARS_MAX,
    ExportedMessages,
    MessagesImported,
    Upload,
    UploadPiece,
)
from broker.management.operator_log import log_action
from broker.management.ports import Broker
from broker.management.problems import Refused
from broker.management.resources.messages import Selector
from broker.management.turns import in_turns
from broker.management.uploads import BodyUploads

#: Bytes of a call that uploads a piece of a body.
PIECE_BYTES_MAX: Final = UPLOADED_CHARS_MAX + (4 << 10)

StepOf = Annotated[
    int,
    Field(ge=0, le=ID_MAX),
    BeforeValidator(number),
    Query(description="The task of which this is the next step; 0: no task."),
]
OneId = Annotated[
    int, Field(ge=0, le=ID_MAX), BeforeValidator(number), Query(description="Only the message with this id; 0: all.")
]
Offset = Annotated[int, Field(ge=0, le=ID_MAX), BeforeValidator(number), Query(description="Begin at this byte.")]


class ExportCalls:
    """The export and import calls of one broker.  An export needs `manage` on the queue.

    An import needs `manage` on the broker as a whole: a line names the message's sender, and the name is trusted.
    """

    def __init__(self, broker: Broker, uploads: BodyUploads) -> None:
        self._broker = broker
        self._engine = broker.engine
        self._uploads = uploads

    def add_to(self, calls: Calls) -> None:
        """Declare them."""
        path, authorize = "/queues/{name}", self._authorize
        content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        calls.add(
            "GET",
            f"{path}/messages:export",
            self.export,
            authorize=self._authorize_export,
            response_model=ExportedMessages,
            problems=(409, 503),
        )
        calls.add(
            "GET",
            f"{path}/messages/{{id}}/stored-body",
            self.stored_body,
            authorize=authorize,
            problems=(503,),
            response_class=Response,
            documented={200: {"description": "A piece of at most 1 MiB.", "content": content}},
        )
        calls.add(
            "PUT",
            "/uploads/{id}",
            self.upload,
            authorize=authorize_whole,
            problems=(409, 507),
            body_bytes_max=PIECE_BYTES_MAX,
        )
        calls.add("DELETE", "/uploads/{id}", self.end_upload, authorize=authorize_whole)
        calls.add(
            "POST",
            "/messages:import",
            self.import_,
            authorize=authorize_whole,
            problems=(404, 409, 507),
            body_bytes_max=lines.BODY_BYTES_MAX,
            openapi_extra=lines.documented(lines.SCHEMA),
        )

    async def _authorize(self, name: Name, access: CallerAccess) -> None:
        require_queue(access, self._engine, name)

    async def _authorize_export(self, name: Name, access: CallerAccess, task: StepOf = 0) -> None:
        require_queue(access, self._engine, name)
        if task:  # else its answers would tell of another queue's task
            require_task(access, self._engine.tasks.task(task))

    async def export(
        self,
        name: Name,
        limit: Limit = LIMIT_DEFAULT,
        after: After = "",
        filter: Selector = "",
        id: OneId = 0,
        task: StepOf = 0,
    ) -> Response:
        """Messages of a queue as lines of an export, oldest first, without removing them.

        An answer has up to `limit` messages, or 1 MiB and the message that exceeds it.  With a selector it may have
        fewer, or none, even though there is a `next`.  A step of a task uses the task's selector, and in a dry run
        returns no messages.
        """
        selector = parse_selector(filter)
        last = place("export", after, 0)
        step = await turn(self._broker, task, TaskKind.EXPORT)
        queue = self._exported(name, step)
        if step is not None:
            selector = parse_selector(step.request.filter)
            limit = min(limit, self._engine.tasks.most(step))
        dry_run = step is not None and step.request.dry_run
        if id:
            message, state = self._engine.messages.find(queue, id)
            self._count(step, 1, 1)
            return _answer([] if dry_run else [lines.json_line(queue, message, state)], None)
        fits = None if selector is None else lambda message: selector.matches(PropertyView(message))
        look = Look(self._broker, queue, last, limit, lines.LOOKED_AT_MAX, fits)
        messages = await in_turns(lines.texts(look, queue) if not dry_run else (None for _ in look))
        self._count(step, look.looked_at, look.found)
        return _answer(messages, None if queue.deleted or look.last is None else cursor("export", look.last))

    def _exported(self, name: str, step: Task | None) -> Queue:
        """The queue to export.  Raises NotFound; InvalidTask if the task is for another queue."""
        queue = self._engine.queue(name)
        if step is not None and self._engine.tasks.queue_of(step) is not queue:
            raise InvalidTask(f"task {step.id} exports queue {step.request.queue}, not {queue.name}")
        return queue

    def _count(self, step: Task | None, looked_at: int, found: int) -> None:
        """Record the progress of a step of a task.  Raises TaskEnded."""
        if step is not None:
            self._engine.tasks.stepped(step, looked_at=looked_at, moved=found, refused={})

    async def stored_body(self, name: Name, id: MessageId, offset: Offset = 0) -> Response:
        """A piece of a message's body as stored, in its protocol's encoding; empty past its end."""
        queue = self._engine.queue(name)
        self._broker.tick.enter()
        message, _ = self._engine.messages.find(queue, id)
        return Response(lines.piece_of(message, offset), media_type="application/octet-stream")

    async def import_(self, request: Request) -> MessagesImported:
        """Put messages of an export on a queue, unchanged and in order; answered once they are on disk."""
        wanted = await lines.read_import(self._engine, self._uploads, await request.body())
        task = await turn(self._broker, wanted.task, TaskKind.IMPORT)
        dry_run = task is not None and task.request.dry_run
        done = self._engine.messages.insert(wanted.id, wanted.target, wanted.messages, dry_run=dry_run)
        for upload in wanted.uploads:
            self._uploads.end(upload)
        if task is None:
            log_action(request, "queue.imported", target=wanted.target, messages=done.inserted)
        else:
            count = len(wanted.messages)
            refused = {KNOWN: count} if done.known else done.refused
            self._engine.tasks.stepped(task, looked_at=count, moved=done.inserted, refused=refused)
        await durable(self._engine)
        return MessagesImported(imported=done.inserted, refused=done.refused, known=done.known)

    async def upload(self, id: UploadId, body: UploadPiece) -> Upload:
        """Upload the next piece of a large body for an import, within a minute of the one before.

        A piece is answered when the next one may be sent; the last one once the body is on disk.
        """
        try:
            data = b64decode(body.base64, validate=True)
        except ValueError:
            raise Refused("invalid-body", "base64 is not Base64") from None
        self._broker.tick.enter()
        nbytes = await self._uploads.write(id, body.offset, data, durable=body.durable, last=body.last)
        return Upload(id=id, bytes=nbytes)

    async def end_upload(self, id: UploadId) -> Upload:
        """Abandon an upload, which may already be gone."""
        self._broker.tick.enter()
        return Upload(id=id, bytes=self._uploads.end(id))


def _answer(messages: list[str], next: str | None) -> Response:
    text = f'{{"messages": [{", ".join(messages)}], "next": {json.dumps(next)}}}'
    return Response(text, media_type="application/json")
