"""The owner of a log in a database: makes changes, and repeats each until its outcome is known.

Rules:

1. A change carries the owner's epoch and the end of the log.  The database refuses it if either differs: the owner is
   fenced for good (LogFenced).
2. One change is under way at a time, and only the same change is tried again.  So a doubtful change either shows as the
   end of the log, or did not happen and can be made.
3. A change that shows need not be replicated: the database may have been cut off from its standby, and the change is
   lost when that takes over.  A later change of the same log confirms it once it is replicated (`Database.confirm`),
   since a standby applies changes in order.  If that is refused or doubtful, the first change is tried again: a standby
   may have taken over in between.
4. A change is never cancelled.  It is tried again as long as the lease lasts.  Then its outcome is unknown
   (LogUnknown): the broker closes its connections, and the next owner of the log finds out what happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from store.errors import LogFailed, LogFenced, LogUnknown
from store.log import Place
from store.replicated.database import Chunk, Database, Doubtful, Head, Row, Unavailable
from store.segment import SEGMENT_HEADER_BYTES


class LogOwner:
    """Changes a log that this broker owns since `own`.  `epoch`: 0 before that; `end`: as far as the owner knows.

    `wait` pauses before the next attempt; `over` returns whether to stop trying.  `on_trouble` is called with the
    reason for another attempt.  Every change raises LogFenced, LogUnknown, LogFailed.
    """

    def __init__(
        self,
        database: Database,
        *,
        monotonic: Callable[[], float],
        wait: Callable[[], None],
        over: Callable[[], bool],
        on_trouble: Callable[[str], None],
    ) -> None:
        self.epoch = 0
        self.end = Place(0, 0)
        #: Since when a change has been under way (`monotonic`), None: none is.
        self.waiting_since: float | None = None
        #: Why the change under way has not succeeded yet; empty: nothing has failed.
        self.trouble = ""
        self._database = database
        self._monotonic = monotonic
        self._wait = wait
        self._over = over
        self._on_trouble = on_trouble

    def own(self, head: Head) -> None:
        """Become the owner of the log."""
        self.epoch = head.epoch
        self.end = head.end

    def close(self) -> None:
        """Close the connection to the database."""
        self._database.close()

    def publish(self, end: Place, rows: Callable[[], Iterable[Row]], bodies: Callable[[], Iterable[Chunk]]) -> None:
        """Make these the whole of a new log, which ends at `end`, in one change."""
        self._change(lambda: self._database.publish(self.epoch, rows(), bodies()), end=end)

    def begin(self, segment: int, header: bytes) -> None:
        """Begin a segment."""
        end = Place(segment, SEGMENT_HEADER_BYTES)
        self._change(lambda: self._database.begin(self.epoch, self.end, segment, header), end=end)

    def append(self, data: bytes | bytearray, entries: int) -> None:
        """Append the bytes of `entries` entries."""
        end = Place(self.end.segment, self.end.offset + len(data))
        self._change(lambda: self._database.append(self.epoch, self.end, data, entries), end=end)

    def trim(self, segments: Sequence[int]) -> None:
        """Drop segments.  Also raises Unavailable, if that is not possible now."""
        self._change(lambda: self._database.trim(self.epoch, segments), patient=False)

    def put_body(self, id: int, number: int, chunk: bytes, nbytes: int) -> None:
        """Store a chunk of a large body; see `Database.put_body`."""
        self._change(lambda: self._database.put_body(self.epoch, id, number, chunk, nbytes=nbytes))

    def drop_bodies(self, ids: Sequence[int]) -> None:
        """Remove large bodies."""
        self._change(lambda: self._database.drop_bodies(self.epoch, ids))

    def _change(self, do: Callable[[], bool], *, end: Place | None = None, patient: bool = True) -> None:
        """Make a change, and return once it is done and replicated.  `end`: the new end of the log, if it moves.

        Raises Unavailable unless `patient`.
        """
        assert self.epoch, "the log is owned before it is written"
        self.waiting_since = self._monotonic()
        try:
            self._repeat(do, end, patient=patient)
        finally:
            self.waiting_since = None
            self.trouble = ""
        self.end = end or self.end

    def _repeat(self, do: Callable[[], bool], end: Place | None, *, patient: bool) -> None:
        """Try until a change is known to be done and replicated."""
        doubtful = False
        while True:
            try:
                if do() or (doubtful and end is not None and self._database.confirm(self.epoch, end)):
                    return
                self._check_owned()
                self._tell("a standby took over, and lacks the last change")
            except Doubtful as trouble:
                doubtful = True
                self._tell(str(trouble))
            except Unavailable as trouble:
                if not patient:
                    raise
                self._tell(str(trouble))
            if self._over():
                raise LogUnknown("the database did not answer while the lease lasted")
            self._wait()

    def _tell(self, trouble: str) -> None:
        self.trouble = trouble
        self._on_trouble(trouble)

    def _check_owned(self) -> None:
        """Check that a refused change can be made after all: the log is as before it.  Raises LogFenced, LogFailed."""
        head = self._database.head()
        if head.epoch != self.epoch:
            raise LogFenced("another broker owns the log now")
        if head.end != self.end:
            raise LogFailed(
                f"the log in the database ends at {head.end} instead of {self.end}: it lacks entries that were"
                " confirmed (was a standby promoted that was not synchronous, or a backup restored?), or was changed by"
                " other software"
            )
