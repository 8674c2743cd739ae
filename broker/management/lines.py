"""Messages of a queue as lines of an export (docs/journal-export.md), and lines put back on a queue.

    {"name": NAME, "target": TARGET, "messages": [LINE, ...], "task": ID}

is the body of an import call.  It is parsed here and not by a model, since it may be large.  `task` is the task of
which the call is a step; without it, the call is part of no task.  A body that the broker holds in a file is not in its
message's line: an export reads it in pieces, a call each, and an import uploads it in pieces; then the line has
`upload`, the id of a complete upload.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, TypeVar

from broker.engine import NAME_CHARS_MAX, Engine, Insertion, Queue, Unreadable, read_body
from broker.engine.model.errors import EngineError, NotReadable
from broker.engine.model.message import Format, Message
from broker.management.json_bodies import has_more_values
from broker.management.looking import Look
from broker.management.models.base import ID_MAX
from broker.management.turns import in_turns
from broker.management.uploads import BodyUploads
from broker.offline.lines import Line, MessageLine, message_line, read_as, read_json

#: Messages on which one call tries a selector.
LOOKED_AT_MAX: Final = 6_400

#: Bytes of messages in one answer, after the first message, and bytes of a piece of a body.
PAGE_BYTES_MAX: Final = 1 << 20
PIECE_BYTES: Final = 1 << 20

#: Bytes of one import request: fits a message of some 40 MiB in base64.  With several messages, clients send 1 MiB.
BODY_BYTES_MAX: Final = 64 << 20

#: Values in such a request: it has some 30 for a message.
VALUES_MAX: Final = 100_000

#: Messages in one such request: some 20 ms of the event loop.
MESSAGES_MAX: Final = 200


def schema(title: str, what: str, name: str, messages: str, most: int, **more: object) -> dict[str, Any]:
    """The schema in the OpenAPI document of a body with messages; `more`: fields besides name, task and messages."""
    task = "The task of which this is the next step; 0: no task."
    listed = {"type": "array", "maxItems": most, "items": {"type": "object"}, "description": messages}
    return {
        "type": "object",
        "title": title,
        "description": what,
        "required": ["name", *more, "messages"],
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": NAME_CHARS_MAX, "description": name},
            **more,
            "task": {"type": "integer", "minimum": 0, "maximum": ID_MAX, "default": 0, "description": task},
            "messages": listed,
        },
    }


def documented(schema: dict[str, Any]) -> dict[str, Any]:
    """A call with such a body in the OpenAPI document."""
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema['title']}"}}}
    return {"requestBody": {"required": True, "content": content}}


SCHEMA: Final = schema(
    "MessagesToImport",
    "Messages of an export, in order.",
    "The import's name: a repeated request of the same name is not done again.",
    "Each is a line of `bartleby queue export`, with its whole body.",
    MESSAGES_MAX,
    target={"type": "string", "description": "An address, a queue or ADDRESS::QUEUE."},
)


class BadImport(EngineError):
    """A request that does not hold messages of an export; the text says what is wrong."""

    code = "invalid-import"


# -- out ---------------------------------------------------------------------------------------------------------------


def texts(look: Look, queue: Queue) -> Iterator[str | None]:
    """Messages in JSON (`in_turns`), until they fill an answer."""
    nbytes = 0
    for found in look:
        if found is None:
            yield None
            continue
        message, state = found
        yield json_line(queue, message, state)
        nbytes += message.size
        if nbytes >= PAGE_BYTES_MAX:
            return


def json_line(queue: Queue, message: Message, state: str) -> str:
    """A message in JSON, as in an answer."""
    return json.dumps({"state": state, "line": line_of(queue, message)})


def line_of(queue: Queue, message: Message) -> Line:
    """A message on a queue as a line; of a body in a file it has only the length."""
    place: Line = {"name": queue.name}
    state = queue.states.get(message.id)
    if state is not None:
        place["delivery-count"] = state.count
    if due := queue.due_of(message.id):
        place["due"] = due
    line = message_line(message, [place])
    if isinstance(message.body, bytes):
        return line | {"body": b64encode(message.body).decode()}
    return line | ({"body-bytes": len(message.body)} if len(message.body) else {"body": ""})


def piece_of(message: Message, offset: int) -> bytes:
    """A piece of a body as stored, from `offset` on.  Raises NotReadable."""
    body = message.body
    if isinstance(body, bytes):
        return body[offset : offset + PIECE_BYTES]
    try:
        return read_body(body, offset, min(PIECE_BYTES, max(len(body) - offset, 0)))
    except Unreadable as error:
        raise NotReadable(str(error)) from None


# -- in ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """A run of messages to import: its id, its task (0: none), its target, and the uploads that it uses."""

    id: bytes
    task: int
    target: str
    messages: list[Insertion]
    uploads: list[str]


#: Parses requests, which may be large, one at a time: others would only compete with it for the interpreter.
_PARSER: Final = ThreadPoolExecutor(1, "lines")

Parsed = TypeVar("Parsed")


async def parsed(parse: Callable[[bytes], Parsed], body: bytes) -> Parsed:
    """What `parse` makes of a body, beside the event loop."""
    return await asyncio.get_running_loop().run_in_executor(_PARSER, parse, body)


async def read_import(engine: Engine, uploads: BodyUploads, body: bytes) -> ImportRequest:
    """Parse an import request.  Raises BadImport; NotFound for an unknown task or upload."""
    formats = {format.name: format for format in engine.formats.values()}
    try:
        id, task, target, read = await parsed(_parse, body)
        dry_run = task > 0 and engine.tasks.task(task).request.dry_run
        there = None if dry_run else uploads
        found = await in_turns(_insertion(engine, formats, target, line, there) for line in read)
    except ValueError as wrong:
        raise BadImport(str(wrong)) from wrong
    return ImportRequest(id, task, target, found, [line.upload for line in read if line.upload])


def _parse(body: bytes) -> tuple[bytes, int, str, list[MessageLine]]:
    """The id of a request, its task, its target and its lines.  Raises BadImport, ValueError."""
    request = read_large(body)
    name, target, messages = (request.get(field) for field in ("name", "target", "messages"))
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_CHARS_MAX or not name.isprintable():
        raise BadImport(f"name is the import's name, of at most {NAME_CHARS_MAX} characters")
    if not isinstance(target, str) or not target:
        raise BadImport("target is an address, a queue or ADDRESS::QUEUE")
    if not isinstance(messages, list) or not 1 <= len(messages) <= MESSAGES_MAX:
        raise BadImport(f"messages is a list of 1 to {MESSAGES_MAX}")
    task = task_in(request)
    read = [read_as(MessageLine, line) for line in messages]
    taken = [line.upload for line in read if line.upload]
    if len(set(taken)) < len(taken):
        raise BadImport("an upload can be the body of one message only")
    return _id(name, target, messages), task, target, read


def read_large(body: bytes) -> dict[str, Any]:
    """A request with messages as an object.  Raises ValueError."""
    if has_more_values(body, VALUES_MAX):
        raise ValueError(f"it has more than {VALUES_MAX} values")
    return read_json(body)


def _id(name: str, target: str, messages: list[dict[str, Any]]) -> bytes:
    """The digest of a request in JSON, made in parts: beside the thread that does it, others can run."""
    digest = sha256(json.dumps([name, target]).encode()[:-1] + b", [")
    for at, line in enumerate(messages):
        digest.update(b", {" if at else b"{")
        for number, (field, value) in enumerate(each for each in line.items() if each[0] != "upload"):
            digest.update(f"{', ' if number else ''}{json.dumps(field)}: ".encode())
            if field == "body" and isinstance(value, str):  # it is Base64
                digest.update(b'"')
                for begin in range(0, len(value), PIECE_BYTES):
                    digest.update(value[begin : begin + PIECE_BYTES].encode())
                digest.update(b'"')
            else:
                digest.update(json.dumps(value).encode())
        digest.update(b"}")
    digest.update(b"]]")
    return digest.digest()


def task_in(request: Mapping[str, object]) -> int:
    """The number of the task of which a request is a step; 0: no task.  Raises ValueError."""
    task = request.get("task", 0)
    if not isinstance(task, int) or isinstance(task, bool) or not 0 <= task <= ID_MAX:
        raise ValueError("task is the number of a task, or 0")
    return task


def _insertion(
    engine: Engine, formats: Mapping[str, Format], target: str, line: MessageLine, uploads: BodyUploads | None
) -> Insertion:
    """One message to insert; `uploads`: None for a dry run, which does not need uploaded bodies."""
    if line.body_bytes is not None and not line.upload:
        raise ValueError("body-bytes: send the whole body in body, or as an upload")
    format = formats[line.protocol]
    body = uploads.body(line.upload) if line.upload and uploads is not None else line.body
    size = len(body) if uploads is not None or line.body_bytes is None else line.body_bytes
    if line.body_bytes not in (None, size):
        raise ValueError(f"body-bytes is {line.body_bytes}, but the upload has {len(body)} bytes")
    line.check_head(format, size)
    place = line.queues[0]
    there = place.name == target
    header = line.header(format)
    header.scheduled = place.due or line.scheduled
    if not there:
        header.address = target_address(engine, target)
    message = Message.of(header, line.head, body)
    message.regroup()
    return Insertion(message, place.delivery_count if there else None)


def target_address(engine: Engine, target: str) -> str:
    """The name of the address that a target is on, or will be."""
    address, separator, _ = target.partition("::")
    if separator or target in engine.addresses or target not in engine.queues:
        return address
    return engine.queues[target].address.name
