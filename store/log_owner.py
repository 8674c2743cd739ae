"""The owner of a log in a database: it makes changes, each until it is known what became of it.

Rules:

1. A change says the owner's epoch and where the log ends.  The database refuses it if either is another: the owner is
   fenced for good, whether it knows or not (LogFenced).
2. One change is under way at a time, and only the same change is tried again.  So one that may have happened either
   shows as the end of the log, or did not happen and can be made.
3. What shows is not yet replicated: the database may have been cut off from its standby, and forget it when that takes
   over.  It is confirmed by a later change that is (`Database.confirm`): a standby has changes in their order.
4. A change is never called off.  As long as the lease lasts it is tried again; then nobody knows (LogUnknown), the
   broker lets go of its connections, and whoever owns the log next finds out what happened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from store.database import Database, Doubtful, Head, Unavailable
from store.errors import LogFailed, LogFenced, LogUnknown
from store.log import Place
from store.segment import SEGMENT_HEADER_BYTES


class LogOwner:
    """The log is this broker's from `own` on: `epoch`, before that 0, and its `end`, as far as the owner knows.

    `wait` returns after a while, before something is tried again; `over` says whether trying has no point any more.
    `on_trouble` is told why something has to be tried again.  Every change raises LogFenced, LogUnknown, LogFailed.
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
        self._database = database
        self._monotonic = monotonic
        self._wait = wait
        self._over = over
        self._on_trouble = on_trouble

    def own(self, head: Head) -> None:
        """The log is this broker's, with all that it has."""
        self.epoch = head.epoch
        self.end = head.end

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    # -- changes ---------------------------------------------------------------------------------------------------

    def begin(self, segment: int, header: bytes) -> None:
        """Begin a segment."""
        end = Place(segment, SEGMENT_HEADER_BYTES)
        self._move(lambda: self._database.begin(self.epoch, self.end, segment, header), end)

    def append(self, data: bytes | bytearray, entries: int) -> None:
        """Append so many entries."""
        end = Place(self.end.segment, self.end.offset + len(data))
        self._move(lambda: self._database.append(self.epoch, self.end, data, entries), end)

    def trim(self, segments: Sequence[int]) -> None:
        """Let go of segments.  Raises Unavailable too, if that is not possible now."""
        self._change(lambda: self._database.trim(self.epoch, segments), patient=False)

    def put_body(self, id: int, number: int, chunk: bytes, nbytes: int) -> None:
        """A chunk of a large body, see `Database.put_body`."""
        self._change(lambda: self._database.put_body(self.epoch, id, number, chunk, nbytes=nbytes))

    def drop_bodies(self, ids: Sequence[int]) -> None:
        """Remove large bodies."""
        self._change(lambda: self._database.drop_bodies(self.epoch, ids))

    # -- until they are known --------------------------------------------------------------------------------------

    def _move(self, do: Callable[[], bool], end: Place) -> None:
        """Make the log longer."""
        self._change(do, end=end)
        self.end = end

    def _change(self, do: Callable[[], bool], *, end: Place | None = None, patient: bool = True) -> None:
        """Do something until it is known to be done, and replicated.  `end`: where the log ends then, if it moves.

        Not `patient`: Unavailable is raised.
        """
        assert self.epoch, "the log is owned before it is written"
        self.waiting_since = self._monotonic()
        try:
            if self._done(do, end, patient=patient):
                self._done(lambda: self._database.confirm(self.epoch), None)
        finally:
            self.waiting_since = None

    def _done(self, do: Callable[[], bool], end: Place | None, *, patient: bool = True) -> bool:
        """Do something until it is known to be done; whether that was in doubt."""
        doubtful = False
        while True:
            try:
                if not do():
                    self._check_shows(end if doubtful else None)
                return doubtful
            except Doubtful as trouble:
                doubtful = True
                self._on_trouble(str(trouble))
            except Unavailable as trouble:
                if not patient:
                    raise
                self._on_trouble(str(trouble))
            if self._over():
                raise LogUnknown("the database did not answer while the lease lasted")
            self._wait()

    def _check_shows(self, end: Place | None) -> None:
        """A change was refused: because it had happened, and the log ends at `end`?  Raises LogFenced, LogFailed."""
        head = self._database.head()
        if head.epoch != self.epoch:
            raise LogFenced("another broker owns the log now")
        if head.end == end:
            return
        raise LogFailed(
            f"the log in the database ends at {head.end} instead of {self.end}: entries that were confirmed are not in"
            " it (was a standby promoted that was not synchronous, or a backup restored?), or somebody else has changed"
            " it"
        )
