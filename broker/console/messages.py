"""Messages as pages show them: a page of a queue, and the body of one."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from broker.console.desk import Desk
from broker.console.visit import ROWS
from broker.engine import DeadLetterGroup, Queue, Unreadable, parse_selector, read_body
from broker.engine.model.errors import InvalidSelector
from broker.engine.model.message import Message, PropertyView
from broker.management.looking import Look
from broker.management.models.messages import message_shown
from broker.management.turns import in_turns

#: Bytes of a body shown on a page; the rest is a download.
BODY_BYTES_MAX: Final = 64 << 10

#: Bytes in one line of a dump.
_DUMP_WIDTH: Final = 16

#: Bytes of a body in a dump, which is four times as long.
_DUMP_BYTES_MAX: Final = 16 << 10

#: Characters of indented JSON, above which it is shown as text: indenting deeply nested JSON grows without bound.
_JSON_CHARS_MAX: Final = 4 * BODY_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Found:
    """A page of messages.

    `next`: the id after which the next page begins, 0: this is the last one; `wrong`: why the filter cannot be used.
    """

    messages: list[dict[str, Any]]
    filter: str
    after: int = 0
    next: int = 0
    wrong: str = ""


async def browse(desk: Desk, queue: Queue, text: str, group: DeadLetterGroup | None, after: int) -> Found:
    """Messages of a queue that match a filter and are in a group, by id.  Raises NotReadable."""
    try:
        filter = parse_selector(text)
    except InvalidSelector as error:
        return Found([], text, wrong=str(error))

    def fits(message: Message) -> bool:
        fitting = filter is None or filter.matches(PropertyView(message))
        return fitting and (group is None or group.has(queue, message))

    look = Look(desk.broker, queue, after, ROWS, desk.limits.filtered_max, None if not filter and not group else fits)
    shown = await in_turns(None if each is None else _row(queue, *each) for each in look)
    return Found(shown, text, after, look.last or 0)


def _row(queue: Queue, message: Message, state: str) -> dict[str, Any]:
    return message_shown(message, queue, state).model_dump()


@dataclass(frozen=True, slots=True)
class BodyShown:
    """A body as text, JSON and dump; empty: it is not that.  `cut`: only its beginning is shown.

    `editable`: the text is the whole body, so a form may send it back; `digest`: of what it then sends, if unchanged.
    """

    text: str
    json: str
    dump: str
    nbytes: int
    cut: bool
    unreadable: str = ""

    @property
    def editable(self) -> bool:
        """Whether a form may show all of it as text."""
        return not self.cut and (bool(self.text) or not self.dump)

    @property
    def digest(self) -> str:
        """The digest of the text, as a form sends it."""
        return typed_digest(self.text)


def typed_digest(text: str) -> str:
    """The digest of a text of a form, in which browsers write every end of a line in their own way."""
    return sha256("\n".join(re.split("\r\n|\r|\n", text)).encode()).hexdigest()


def body_of(message: Message) -> BodyShown:
    """The body of a message, for a page."""
    body, format = message.body, message.header.format
    try:
        raw = body[:BODY_BYTES_MAX] if isinstance(body, bytes) else read_body(body, 0, BODY_BYTES_MAX)
    except Unreadable as error:
        return BodyShown("", "", "", len(body), True, str(error))
    content, cut = format.content(raw), len(raw) < len(body)
    text = _text(content, cut=cut)
    return BodyShown(text, "" if cut else _json(text), _dump(content[:_DUMP_BYTES_MAX]), len(body), cut)


def _text(content: bytes, *, cut: bool) -> str:
    """The body as text; empty if it is not text."""
    for end in (len(content), *(len(content) - back for back in (1, 2, 3) if cut)):  # a character may be cut
        try:
            text = content[:end].decode()
        except UnicodeDecodeError:
            continue
        return "" if any(ord(c) < 32 and c not in "\t\n\r" for c in text) else text
    return ""


def _json(text: str) -> str:
    """The text as indented JSON; empty if it is not a JSON object or array, or would be too long."""
    if text.lstrip()[:1] not in ("{", "["):
        return ""
    made, nchars = [], 0
    try:
        for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(json.loads(text)):
            made.append(piece)
            nchars += len(piece)
            if nchars > _JSON_CHARS_MAX:
                return ""
    except (ValueError, RecursionError):
        return ""
    return "".join(made)


def _dump(content: bytes) -> str:
    """The body in hexadecimal, with printable ASCII beside it."""
    lines = []
    for at in range(0, len(content), _DUMP_WIDTH):
        row = content[at : at + _DUMP_WIDTH]
        seen = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:08x}  {row.hex(' '):<{3 * _DUMP_WIDTH}} {seen}")
    return "\n".join(lines)
