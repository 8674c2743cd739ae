"""Import: add the lines of an export to the journal of a stopped broker, empty or not.

Addresses, queues and so on whose names exist stay as they are; messages are added, under new ids, to the queues that
they were on.  A line is imported completely or refused.  After a refusal the lines before it are in the journal, and a
second run would add their messages again; so the error names the line, and the command can begin there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass
from typing import Any, Final

from broker.engine import PENDING_BYTES_MAX, Queue
from broker.engine.model.errors import EngineError
from broker.engine.model.message import Format, Message, MessageHeader
from broker.offline.lines import (
    VERSION,
    AddressLine,
    BodyLine,
    DivertLine,
    MessageLine,
    QueueLine,
    SessionLine,
    SessionPartLine,
    read_json,
    read_line,
)
from broker.offline.parts import Stopped
from store.bodies import Upload
from store.body import LargeBody

#: Messages between waits for the disk.
TICK_EVERY: Final = 1_000


class BadLine(Exception):
    """A line that cannot be imported; `number` counts from 1."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"line {number}: {what}")
        self.number = number


@dataclass(slots=True)
class Imported:
    """How many of each were created, and how many existed already."""

    addresses: int = 0
    queues: int = 0
    diverts: int = 0
    sessions: int = 0
    messages: int = 0
    present: int = 0


class _Importer:
    """Imports lines, one after the other."""

    def __init__(self, broker: Stopped) -> None:
        self.broker = broker
        self.engine = broker.parts.engine
        self.made = Imported()
        self._formats: dict[str, Format] = {f.name: f for f in self.engine.formats.values()}
        self._last: tuple[object, MessageHeader] | None = None  # the key and the value of the last message's header
        self._waiting: MessageLine | None = None  # a message whose body is in the lines after it
        self._upload: Upload | None = None

    def take(self, definition: dict[str, Any]) -> None:
        """Import one line.  Raises ValueError, EngineError for a wrong one, before changing anything."""
        line = read_line(definition)
        if (self._waiting is not None) != isinstance(line, BodyLine):
            raise ValueError("body lines belong after a message with body-bytes")
        definition = {name: value for name, value in definition.items() if name != "kind"}
        engine = self.engine
        match line:
            case AddressLine():
                self.made.addresses += self._define(line.name in engine.addresses, engine.imports.address, definition)
            case QueueLine():
                self.made.queues += self._define(line.name in engine.queues, engine.imports.queue, definition)
            case DivertLine():
                self.made.diverts += self._define(line.name in engine.diverts, engine.imports.divert, definition)
            case SessionLine():
                there = engine.sessions.get(line.name) is not None
                self.made.sessions += self._define(there, self._session, definition)
            case SessionPartLine():
                self._session_part(definition)
            case MessageLine():
                self._check(line)
                if line.body_bytes is None:
                    self._message(line)
                else:
                    self._waiting, self._upload = line, engine.uploads.begin(lambda: None, durable=True)
            case BodyLine():
                self._more_body(line)

    def _define(self, there: bool, make: Callable[[dict[str, Any]], object], definition: dict[str, Any]) -> bool:
        """Make what a line defines unless it is there already; returns whether it was made."""
        if there:
            self.made.present += 1
        else:
            make(definition)
        return not there

    def _session(self, definition: dict[str, Any]) -> None:
        self.engine.sessions.open(definition["name"], definition["session"])

    def _session_part(self, definition: dict[str, Any]) -> None:
        session = self.engine.sessions.get(definition["session"])
        if session is None:
            raise ValueError(f"no line before defines the session {definition['session']}")
        if definition["name"] not in session.parts:
            self.engine.sessions.put(session, str(definition["name"]), definition["part"])

    # -- messages --------------------------------------------------------------------------------------------------

    def _check(self, line: MessageLine) -> None:
        """Raises ValueError for errors that would otherwise show only at delivery."""
        for place in line.queues:
            self._named(place.name)
        if len({place.name for place in line.queues}) != len(line.queues):
            raise ValueError("the message is on one queue twice")
        body_bytes = len(line.body) if line.body_bytes is None else line.body_bytes
        line.check_head(self._formats[line.protocol], body_bytes)

    def _more_body(self, line: BodyLine) -> None:
        upload, waiting = self._upload, self._waiting
        assert upload is not None
        assert waiting is not None
        assert waiting.body_bytes is not None
        data = line.data
        wanted = waiting.body_bytes - upload.nbytes
        if len(data) > wanted:
            raise ValueError(f"{len(data)} bytes of a body of which {wanted} are missing")
        self.engine.uploads.write(upload, data, last=len(data) == wanted)
        if upload.pending > PENDING_BYTES_MAX or len(data) == wanted:
            self._run_ticks()
        if upload.refusal or len(data) == wanted:
            self._waiting = self._upload = None
            self._message(waiting, self.engine.uploads.finished(upload))

    def finish(self) -> None:
        """Call after the last line.  Raises ValueError for an incomplete body."""
        if self._upload is not None:
            raise ValueError("the last message's body is incomplete")

    def abandon(self) -> None:
        """Discard an incomplete body."""
        if self._upload is not None:
            self.engine.uploads.abort(self._upload)
            self._upload = None

    def _run_ticks(self) -> None:
        self.broker.run_ticks()
        self.broker.parts.tick.enter()

    def _message(self, line: MessageLine, body: LargeBody | None = None) -> None:
        places = {self._named(place.name): place for place in line.queues}
        header = self._common(line)
        message = Message(header, line.head, line.body) if body is None else Message.of(copy(header), line.head, body)
        message.regroup()
        self.engine.imports.message(message, {queue: place.delivery_count for queue, place in places.items()})
        self.made.messages += 1
        if self.made.messages % TICK_EVERY == 0:
            self._run_ticks()

    def _named(self, name: str) -> Queue:
        queue = self.engine.queues.get(name)
        if queue is None:
            raise ValueError(f"the message is on queue {name}, which no line before defines")
        return queue

    def _common(self, line: MessageLine) -> MessageHeader:
        """The header of a message, one object for consecutive messages with equal headers."""
        common = line.model_dump(include=_COMMON)
        due = max(place.due for place in line.queues) or line.scheduled
        key = common, due
        if self._last is None or self._last[0] != key:
            header = line.header(self._formats[line.protocol])
            header.durable, header.scheduled = True, due  # non-durable messages would be gone at the start
            self._last = key, header
        return self._last[1]


_COMMON: Final = {
    "address",
    "protocol",
    "timestamp",
    "priority",
    "expiration",
    "expiry_source",
    "routing_type",
    "user",
    "origin",
    "annotations",
}


def import_lines(broker: Stopped, lines: Iterable[bytes], *, first: int = 1) -> Imported:
    """Import the lines of an export, messages only from line `first` on.  On return everything is on disk.

    Raises BadLine, LogError; the lines before are then in the journal.
    """
    importer = _Importer(broker)
    number = 0
    try:
        for number, text in enumerate(lines, 1):
            line = read_json(text)
            if number == 1:
                if (line.get("kind"), line.get("version")) != ("journal", VERSION):
                    raise ValueError(f"this is not an export of version {VERSION}: the first line must say so")
                continue
            if number < first and line.get("kind") in ("message", "body"):
                continue
            broker.parts.tick.enter()
            importer.take(line)
        importer.finish()
    except (ValueError, EngineError) as wrong:
        raise BadLine(number, str(wrong)) from wrong
    finally:
        importer.abandon()
        broker.run_ticks()
    return importer.made
