"""Export: what a journal holds, as lines of JSON (docs/journal-export.md).  Nothing is written to the journal.

First come addresses, queues and sessions as the journal defines them, then every message that is on a queue, in the
order of arrival.  Delivery counts and due times stand with the queue that they belong to.  What was under way when the
broker stopped (deliveries, packet identifiers) is not exported: it comes again.
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
from store.errors import JournalError
from store.files import OsFiles
from store.log import FileLog, LogSettings
from store.record import RecordType
from store.recovery import Recovery
from store.segment_directory import Source
from store.space import Space

#: Bytes of a body in one line, of those that lie in files: lines stay small, whatever the body's size.
PIECE_BYTES: Final = 192 << 10

_KINDS: Final[dict[int, str]] = {
    RecordType.ADDRESS: "address",
    RecordType.QUEUE: "queue",
    RecordType.DIVERT: "divert",
    RecordType.SESSION: "session",
    RecordType.SESSION_PART: "session-part",
}
_ENDS: Final[dict[int, str]] = {
    RecordType.ADDRESS_DELETED: "address",
    RecordType.QUEUE_DELETED: "queue",
    RecordType.DIVERT_DELETED: "divert",
    RecordType.SESSION_DELETED: "session",
    RecordType.SESSION_PART_DELETED: "session-part",
}


class _Definitions:
    """The latest definition of everything, as it stands in the journal, by kind and id."""

    def __init__(self) -> None:
        self.found: dict[str, dict[int, Line]] = {kind: {} for kind in _KINDS.values()}

    def note(self, records: Iterable[RawRecord]) -> Iterator[RawRecord]:
        """The same records, noted on the way."""
        for raw in records:
            type = raw[3]
            if type in _KINDS:
                definition = decode.decode_definition(raw[4], raw[5])
                self.found[_KINDS[type]][definition.id] = dict(definition.definition)
            elif type in _ENDS:
                self.found[_ENDS[type]].pop(decode.decode_definition(raw[4], raw[5]).id, None)
            yield raw

    def lines(self) -> Iterator[Line]:
        """All of it; a part of a session names it."""
        sessions = self.found["session"]
        for kind, found in self.found.items():
            for _, definition in sorted(found.items()):
                if kind == "session-part":
                    session = sessions.get(int(str(definition["session"])))
                    if session is None:
                        continue  # in a journal that was repaired
                    definition = {**definition, "session": session["name"]}
                yield {"kind": kind, **definition}


def contents() -> dict[str, Callable[[bytes], bytes]]:
    """What a body is without its protocol's encoding, by the protocol."""
    return {format.name: format.content for format in formats()}


def export_directory(directory: str) -> Iterator[Line]:
    """The lines of a journal on disk, whether a broker runs on it or not.  Raises Unusable."""
    log = FileLog(OsFiles(), directory, LogSettings(), now=wall_ms)
    try:
        yield from export(log, formats(), to_read(log.bodies))
    except (JournalError, UnknownFormat) as error:
        raise Unusable(str(error)) from error


def export(source: Source, known: Iterable[Format], bodies: Bodies) -> Iterator[Line]:
    """The lines.  Raises Corrupt, LogFailed, BodyUnreadable, UnknownFormat."""
    recovery = Recovery(source)
    space = Space()
    for segment in recovery.segments:
        space.opened(segment)
    definitions = _Definitions()
    fold = Fold({format.number: format for format in known}, space, bodies=bodies)
    fold.read(definitions.note(recovery.records()))
    yield {
        "kind": "journal",
        "version": VERSION,
        "software": f"bartleby/{__version__}",
        "broker-id": recovery.broker_id.hex(),
        "position": recovery.verdict.position,
    }
    yield from definitions.lines()
    yield from _messages(fold)


def _messages(fold: Fold) -> Iterator[Line]:
    places: dict[int, tuple[Message, list[Line]]] = {}
    for queue_id, queue in fold.queues.items():
        counts, dues = fold.counts.get(queue_id, {}), fold.due.get(queue_id, {})
        for id, message in fold.held.get(queue_id, {}).items():
            place: Line = {"name": queue.name}
            if id in counts:
                place["delivery-count"] = counts[id]
            if dues.get(id):
                place["due"] = dues[id]
            places.setdefault(id, (message, []))[1].append(place)
    for _, (message, queues) in sorted(places.items()):
        line = message_line(message, queues)
        if isinstance(message.body, bytes):
            yield line | {"body": b64encode(message.body).decode()}
        elif not len(message.body):  # of a message in portions that has none
            yield line | {"body": ""}
        else:
            yield line | {"body-bytes": len(message.body)}
            yield from _pieces(message.body)


def _pieces(body: LargeBody) -> Iterator[Line]:
    """A body that was in a file: lines behind that of its message."""
    for at in range(0, len(body), PIECE_BYTES):
        yield {"kind": "body", "data": b64encode(body.read(at, PIECE_BYTES)).decode()}
