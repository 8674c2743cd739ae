"""Checks the files of large bodies against the journal, for programs that inspect it from outside.

A body is needed as long as a message whose record refers to it is on a queue.  That is folded here from the few records
that matter, so that a journal of millions of messages costs nothing except for its large ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from crc32c import crc32c

from store import decode
from store.bodies import body_path, sizes
from store.body import BodyReference
from store.decode import RawRecord
from store.files import Files
from store.record import LARGE_VERSION, RecordType

#: Bytes of a file checked at a time.
PIECE_BYTES: Final = 1 << 20

#: The offset of the version in a record.
_VERSION_AT: Final = 5


class Needed:
    """The messages with large bodies that are on queues, by the records read so far."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[BodyReference, set[int]]] = {}

    def note(self, raw: RawRecord) -> None:
        """Fold the next record."""
        type, buffer, offset = raw[3:]
        if type in decode.LARGE_TYPES:
            if buffer[offset + _VERSION_AT] == LARGE_VERSION:
                found = decode.decode(buffer, offset)
                assert isinstance(found, decode.Message | decode.Copied)
                assert isinstance(found.body, BodyReference)
                self._held[found.id] = found.body, set(found.header.queue_ids)
        elif not self._held:
            return
        elif type == RecordType.REMOVED:
            removed = decode.decode_removed(buffer, offset)
            for id in removed.ids:
                self._leaves(id, removed.queue_id)
        elif type == RecordType.QUEUE_DELETED:
            queue = decode.decode_definition(buffer, offset).id
            for id in list(self._held):
                self._leaves(id, queue)

    def _leaves(self, id: int, queue: int) -> None:
        held = self._held.get(id)
        if held is not None:
            held[1].discard(queue)
            if not held[1]:
                del self._held[id]

    @property
    def bodies(self) -> dict[int, BodyReference]:
        """The bodies that must exist, by their numbers."""
        return {reference.id: reference for reference, _ in self._held.values()}

    @property
    def messages(self) -> list[tuple[int, BodyReference, set[int]]]:
        """The messages: id, body, the queues that hold it."""
        return [(id, reference, queues) for id, (reference, queues) in sorted(self._held.items())]


@dataclass(slots=True)
class BodyReport:
    """The files of bodies: their number and bytes, the missing or wrong ones (number and why), the unneeded ones."""

    files: int = 0
    nbytes: int = 0
    wrong: dict[int, str] = field(default_factory=dict)
    needless: list[int] = field(default_factory=list)


def check_bodies(files: Files, directory: str, needed: Needed, *, contents: bool) -> BodyReport:
    """Compare the files with the needed bodies: by their contents, or else only by their lengths."""
    there = sizes(files, directory)
    report = BodyReport(len(there), sum(there.values()))
    bodies = needed.bodies
    report.needless = sorted(there.keys() - bodies.keys())
    for id, reference in sorted(bodies.items()):
        why = "is missing" if id not in there else ""
        if not why and there[id] != reference.nbytes:
            why = f"has {there[id]} bytes, and should have {reference.nbytes}"
        if not why and contents:
            try:
                why = "" if _checksum(files, body_path(directory, id)) == reference.crc else "has a wrong checksum"
            except FileNotFoundError:
                why = "is missing"
            except OSError as error:
                why = f"cannot be read: {error.strerror or error}"
        if why:
            report.wrong[id] = why
    return report


def _checksum(files: Files, path: str) -> int:
    crc = at = 0
    while piece := files.read_range(path, at, PIECE_BYTES):
        crc = crc32c(piece, crc)
        at += len(piece)
    return crc
