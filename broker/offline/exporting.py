"""Export: the contents of a journal as lines of JSON (docs/journal-export.md).  The journal is only read.

First addresses, queues and sessions as the journal defines them, then every message that is on a queue, in the order of
arrival.  Delivery counts and due times are written with the queue they belong to.  Deliveries and packet identifiers
that were in flight when the broker stopped are not exported: the messages are delivered again.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from broker import __version__
from broker.clock import wall_ms
from broker.daemon.wiring import formats
from broker.engine import Fold, UnknownFormat
from broker.engine.model.message import Format, Message
from broker.offline.lines import VERSION, Line, message_line
from broker.offline.parts import Unusable
from store import decode
from store.bodies import Bodies, to_read
from store.body import LargeBody
from store.decode import RawRecord
from store.errors import BodyUnreadable, JournalError
from store.files import OsFiles
from store.log import FileLog, LogSettings
from store.record import RecordType
from store.recovery import Recovery
from store.segment_directory import Source
from store.space import Space

#: Bytes in one line of a body that is in a file, so that lines stay small.
PIECE_BYTES: Final = 192 << 10

_KINDS: Final[dict[int, str]] = {
    RecordType.ADDRESS: "address",
    RecordType.QUEUE: "queue",
    RecordType.DIVERT: "divert",
    RecordType.SESSION: "session",
    RecordType.SESSION_PART: "session-part",
}
_ENDS: Final[dict[int, str]] = {RecordType[f"{RecordType(type).name}_DELETED"]: kind for type, kind in _KINDS.items()}


class _Definitions:
    """The latest definition of everything in the journal, by kind and id."""

    def __init__(self) -> None:
        self.found: dict[str, dict[int, Line]] = {kind: {} for kind in _KINDS.values()}

    def note(self, records: Iterable[RawRecord]) -> Iterator[RawRecord]:
        """Pass records through, and note the definitions among them."""
        for raw in records:
            type = raw[3]
            if type in _KINDS:
                definition = decode.decode_definition(raw[4], raw[5])
                self.found[_KINDS[type]][definition.id] = dict(definition.definition)
            elif type in _ENDS:
                self.found[_ENDS[type]].pop(decode.decode_definition(raw[4], raw[5]).id, None)
            yield raw

    def lines(self) -> Iterator[Line]:
        """The lines of all definitions; a part of a session names its session."""
        sessions = self.found["session"]
        for kind, found in self.found.items():
            for _, definition in sorted(found.items()):
                if kind == "session-part":
                    session = sessions.get(int(str(definition["session"])))
                    if session is None:
                        continue  # its session was lost: the journal was repaired
                    definition = {**definition, "session": session["name"]}
                yield {"kind": kind, **definition}


def contents() -> dict[str, Callable[[bytes], bytes]]:
    """The functions that remove a protocol's encoding from a body, by protocol."""
    return {format.name: format.content for format in formats()}


def export_directory(directory: str) -> Iterator[Line]:
    """The lines of a journal on disk, whether or not a broker runs on it.  Raises Unusable."""
    log = FileLog(OsFiles(), directory, LogSettings(), now=wall_ms)
    try:
        yield from export(log, formats(), to_read(log.bodies))
    except (JournalError, UnknownFormat) as error:
        raise Unusable(str(error)) from error


def export(source: Source, known: Iterable[Format], bodies: Bodies) -> Iterator[Line]:
    """The lines of a journal.  Raises Corrupt, LogFailed, BodyUnreadable, UnknownFormat."""
    by_number = {format.number: format for format in known}
    recovery, definitions, fold = _read(source, by_number, bodies)
    yield {
        "kind": "journal",
        "version": VERSION,
        "software": f"bartleby/{__version__}",
        "broker-id": recovery.broker_id.hex(),
        "position": recovery.verdict.position,
    }
    yield from definitions.lines()
    gone: dict[int, BodyUnreadable] = {}
    yield from _messages(fold, gone)
    if gone:
        _, _, now = _read(source, by_number, bodies)
        for held in now.held.values():
            for id in gone.keys() & held.keys():
                raise gone[id]


def _read(source: Source, known: dict[int, Format], bodies: Bodies) -> tuple[Recovery, _Definitions, Fold]:
    recovery = Recovery(source)
    space = Space()
    for segment in recovery.segments:
        space.opened(segment)
    definitions = _Definitions()
    fold = Fold(known, space, bodies=bodies)
    fold.read(definitions.note(recovery.records()))
    return recovery, definitions, fold


def _messages(fold: Fold, gone: dict[int, BodyUnreadable]) -> Iterator[Line]:
    """The lines of messages.  `gone` gets the ids of those whose body a running broker may have removed meanwhile."""
    places: dict[int, tuple[Message, list[Line]]] = {}
    for queue_id, queue in fold.queues.items():
        counts, dues = fold.counts.get(queue_id, {}), fold.due.get(queue_id, {})
        for id, message in fold.held.get(queue_id, {}).items():
            place: Line = {"name": queue["name"]}
            if id in counts:
                place["delivery-count"] = counts[id]
            if dues.get(id):
                place["due"] = dues[id]
            places.setdefault(id, (message, []))[1].append(place)
    for id, (message, queues) in sorted(places.items()):
        line = message_line(message, queues)
        if isinstance(message.body, bytes):
            yield line | {"body": b64encode(message.body).decode()}
        elif not len(message.body):  # an empty body that was received in portions
            yield line | {"body": ""}
        else:
            pieces = _pieces(message.body)
            try:
                first = next(pieces)
            except BodyUnreadable as error:
                if error.passing:
                    raise
                gone[id] = error
                continue
            yield line | {"body-bytes": len(message.body)}
            yield first
            yield from pieces


def _pieces(body: LargeBody) -> Iterator[Line]:
    """The lines of a body that is in a file; they follow the line of its message."""
    for at in range(0, len(body), PIECE_BYTES):
        yield {"kind": "body", "data": b64encode(body.read(at, PIECE_BYTES)).decode()}
