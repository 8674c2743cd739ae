"""What a replicated log needs of the database that keeps it.

The database has one row that says where the log ends (the head), the entries' bytes behind one another, and a lease:

    head      epoch, end: segment and offset, the end of what is known to be replicated, the broker's id
    log       (segment, offset) -> the bytes that begin there: a header at offset 0, then a batch of entries each
    bodies    large bodies, in chunks
    lease     who tries to write, until when, by the database's clock

Whoever changes the log says which epoch he has and where the log ends; the database compares both with the head and
moves it, in one transaction.  So a writer whose epoch is over changes nothing, however late he wakes up.  The lease
only keeps two from trying at once.

One object serves one thread.  Every method raises `Doubtful` (the connection broke: it may have happened or not),
`Unavailable` (it did not happen, and may later) and LogFailed (it will not).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from store.log import Place


class Doubtful(Exception):
    """Whether it happened is not known: the connection broke, or it is not replicated yet."""


class Unavailable(Exception):
    """It did not happen: there is no connection, or the database has no room or no time for it at the moment."""


@dataclass(frozen=True, slots=True)
class Head:
    """Where the log ends, and how many entries were ever appended.

    `replicated`: all below is durable on a standby too.  `broker_id`: empty in a new log.
    """

    epoch: int
    end: Place
    replicated: Place
    broker_id: bytes
    entries: int


class Row(NamedTuple):
    """Bytes of the log, where they begin, and how many entries the log had with them."""

    place: Place
    data: bytes
    entries: int

    @property
    def end(self) -> Place:
        """Where the next row of its segment begins."""
        return Place(self.place.segment, self.place.offset + len(self.data))


@dataclass(frozen=True, slots=True)
class Lease:
    """Who has it, and how much longer in ms; negative: it is over.  `replicated`: as its owner last said."""

    owner: str
    epoch: int
    left: int
    replicated: Place


class Database(Protocol):
    """The database, as one thread sees it."""

    def head(self) -> Head:
        """Where the log ends now."""

    def claim(self, owner: str) -> Head | None:
        """A new epoch for the owner of the lease; all below its end is replicated.  None: the lease is another's."""

    def append(self, epoch: int, end: Place, data: bytes | bytearray, entries: int) -> bool:
        """Append so many entries at the end, and return once they are replicated.

        False if the log does not end there, or is fenced.
        """

    def begin(self, epoch: int, end: Place, segment: int, header: bytes) -> bool:
        """Begin a segment behind `end`; as `append`."""

    def confirm(self, epoch: int) -> bool:
        """Return once everything that the log has is replicated; False if the epoch is over."""

    def trim(self, epoch: int, segments: Sequence[int]) -> bool:
        """Let go of segments; False if the epoch is over."""

    def segments(self) -> list[int]:
        """The numbers of all segments, ascending."""

    def rows(self, start: Place, nbytes: int) -> list[Row]:
        """Rows of a segment in order, about `nbytes` of them: the first is the one in which `start` lies."""

    def bodies(self) -> dict[int, int]:
        """The whole bodies, by number, and their bytes."""

    def read_body(self, id: int) -> Iterator[bytes]:
        """The chunks of a body."""

    def put_body(self, epoch: int, id: int, chunk: int, data: bytes, *, nbytes: int) -> bool:
        """A chunk of a body; `nbytes` of all if it is the last, else -1.  False if the epoch is over."""

    def drop_bodies(self, epoch: int, ids: Sequence[int]) -> bool:
        """Remove bodies; False if the epoch is over."""

    def lease(self) -> Lease:
        """Who has the lease."""

    def take_lease(self, owner: str, ms: int) -> bool:
        """Take the lease for so long if it is over, or one's own; whether it is one's own now."""

    def renew_lease(self, owner: str, epoch: int, ms: int, replicated: Place) -> bool:
        """Have it for so long from now; False if it is another's."""

    def give_up_lease(self, owner: str) -> None:
        """Let another take it at once."""

    def interrupt(self) -> None:
        """Break the connection from another thread: whatever waits raises Doubtful."""

    def close(self) -> None:
        """Let go of the connection."""
