"""The interface between a replicated log and the database that stores it.

The database has one row with the log's end (the head), the entries' bytes behind one another, and a lease:

    head      epoch, end: segment and offset, the end of the part known to be replicated, the broker's id
    log       (segment, offset) -> the bytes that begin there: a header at offset 0, then a batch of entries each
    bodies    large bodies, in chunks
    lease     which broker tries to write, and until when, by the database's clock

A writer passes its epoch and the log's end with every change; the database compares both with the head and moves it, in
one transaction.  So a writer whose epoch is over changes nothing, however late it wakes up.  The lease only keeps two
writers from trying at once.

One object serves one thread.  Every method raises `Doubtful` (the connection broke: it may have happened or not),
`Unavailable` (it did not happen, but may later) and LogFailed (it will not).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from store.log import Place


class Doubtful(Exception):
    """It is unknown whether it happened: the connection broke, or it is not replicated yet."""


class Unavailable(Exception):
    """It did not happen: there is no connection, or the database has no room or is too busy at the moment."""


@dataclass(frozen=True, slots=True)
class Head:
    """The end of the log, and how many entries were ever appended.

    `replicated`: everything below is durable on a standby too.  `broker_id`: empty in a new log.
    """

    epoch: int
    end: Place
    replicated: Place
    broker_id: bytes
    entries: int


class Row(NamedTuple):
    """Bytes of the log, where they begin, and how many entries the log has including them."""

    place: Place
    data: bytes
    entries: int

    @property
    def end(self) -> Place:
        """The place where the next row of its segment begins."""
        return Place(self.place.segment, self.place.offset + len(self.data))


class Chunk(NamedTuple):
    """A part of a large body; `nbytes`: the body's size for the last part, else -1."""

    id: int
    number: int
    data: bytes
    nbytes: int


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease's owner, and how much longer it lasts in ms; negative: it is over.  `replicated`: as last reported."""

    owner: str
    epoch: int
    left: int
    replicated: Place


class Connected(Protocol):
    """A connection to the database, which one thread uses."""

    def lease(self) -> Lease:
        """The present lease."""

    def interrupt(self) -> None:
        """Break the connection from another thread: a waiting call raises Doubtful."""

    def close(self) -> None:
        """Close the connection."""


class Database(Connected, Protocol):
    """The log in the database, as one thread sees it."""

    def head(self) -> Head:
        """The present head of the log."""

    def claim(self, owner: str) -> Head | None:
        """Begin a new epoch for the lease's owner; all below its end is replicated.  None: the lease is another's."""

    def publish(self, epoch: int, rows: Iterable[Row], bodies: Iterable[Chunk]) -> bool:
        """Make these the whole log, and return once it is replicated.  False if the log is not new, or is fenced."""

    def append(self, epoch: int, end: Place, data: bytes | bytearray, entries: int) -> bool:
        """Append `entries` entries at the end, and return once they are replicated.

        False if the log does not end there, or is fenced.
        """

    def begin(self, epoch: int, end: Place, segment: int, header: bytes) -> bool:
        """Begin a segment behind `end`; otherwise as `append`."""

    def confirm(self, epoch: int, end: Place) -> bool:
        """Return once the whole log is replicated; False if it does not end there, or the epoch is over."""

    def trim(self, epoch: int, segments: Sequence[int]) -> bool:
        """Drop segments; False if the epoch is over."""

    def segments(self) -> list[int]:
        """The numbers of all segments, ascending."""

    def rows(self, start: Place, nbytes: int) -> list[Row]:
        """Rows of a segment in order, about `nbytes` of them, from the one that contains `start` on."""

    def bodies(self) -> dict[int, int]:
        """The sizes of the complete bodies, by number."""

    def read_body(self, id: int) -> Iterator[bytes]:
        """The chunks of a body."""

    def put_body(self, epoch: int, id: int, chunk: int, data: bytes, *, nbytes: int) -> bool:
        """Store a chunk of a body; `nbytes`: the body's size for the last, else -1.  False if the epoch is over.

        Like `trim` and `drop_bodies`, it can be repeated, and returns once everything until then is replicated.
        """

    def drop_bodies(self, epoch: int, ids: Sequence[int]) -> bool:
        """Remove bodies; False if the epoch is over."""


class Leases(Connected, Protocol):
    """Where the lease is, as one thread sees it."""

    def take_lease(self, owner: str, ms: int) -> bool:
        """Take the lease for `ms` if it is over, or is the owner's already; returns whether it is the owner's now."""

    def renew_lease(self, owner: str, epoch: int, ms: int, replicated: Place) -> bool:
        """Renew the lease for `ms` from now; False if it is another's, also one of the same name with a later epoch."""

    def give_up_lease(self, owner: str) -> None:
        """Give up the lease, so that another owner can take it at once."""
