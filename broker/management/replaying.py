"""The body of the call that brings messages back from the journal.

    {"name": NAME, "messages": [MESSAGE, ...], "task": ID}

`task` is the task of which the call is a step; without it, the call is part of no task.  The body is parsed here and
not by a model, since it may be large.  A MESSAGE is as `bartleby journal export` writes it (docs/journal-export.md),
with `queue`, the name of the queue that it left, and optionally `to`, another address or queue to bring it back to.
Messages are processed in order.  The answer says how many came back; `stopped` is why the remaining ones were not
processed, empty if all were.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker.engine import NAME_CHARS_MAX, Engine, ReplayItem
from broker.engine.model.errors import EngineError
from broker.engine.model.message import Format, Message
from broker.management.lines import parsed, read_large, schema, task_in
from broker.management.turns import in_turns
from broker.offline.lines import PastLine, read_as

#: Bytes of one request: some of the largest messages that a broker accepts by default, in base64.
BODY_BYTES_MAX: Final = 64 << 20

#: Messages in one request: some 50 ms of CPU time, in turns with all other clients.
MESSAGES_MAX: Final = 1_000

SCHEMA: Final = schema(
    "Replay",
    "Messages to bring back, in order.",
    "The replay's name: messages that it has already brought back are skipped.",
    "Each as `bartleby journal export` writes it, with `queue`, and optionally `to`.",
    MESSAGES_MAX,
)


class BadReplay(EngineError):
    """A request that is no replay; the text says what is wrong."""

    code = "invalid-replay"


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """The messages to bring back, the replay's name, and the task of which it is a step (0: none)."""

    name: str
    task: int
    messages: list[ReplayItem]


async def read_replay(engine: Engine, body: bytes) -> ReplayRequest:
    """Parse a replay request.  Raises BadReplay."""
    formats = {format.name: format for format in engine.formats.values()}
    try:
        name, task, read = await parsed(_parse, body)
        return ReplayRequest(name, task, await in_turns(_past(formats, line) for line in read))
    except ValueError as wrong:
        raise BadReplay(str(wrong)) from wrong


def _parse(body: bytes) -> tuple[str, int, list[PastLine]]:
    """The name of a replay, its task and its lines.  Raises BadReplay, ValueError."""
    request = read_large(body)
    name = request.get("name")
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_CHARS_MAX or not name.isprintable():
        raise BadReplay(f"name is the replay's name, of at most {NAME_CHARS_MAX} characters")
    messages = request.get("messages")
    if not isinstance(messages, list) or len(messages) > MESSAGES_MAX:
        raise BadReplay(f"messages is a list of at most {MESSAGES_MAX}")
    return name, task_in(request), [read_as(PastLine, line) for line in messages]


def _past(formats: Mapping[str, Format], line: PastLine) -> ReplayItem:
    format = formats[line.protocol]
    line.check_head(format, len(line.body))
    message = Message(line.header(format), line.head, line.body)
    message.id = line.id
    message.regroup()
    return ReplayItem(message, line.queue, line.to)
