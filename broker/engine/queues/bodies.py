"""Large bodies as sessions see them: uploaded part by part, streamed out piece by piece.

A body becomes part of a message only once its file is complete, and durable if the message is: the session waits for
that (`changed`), then publishes.  No other client waits meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from broker.engine.model.errors import DiskFull
from broker.engine.model.message import LARGE_BODY_BYTES
from broker.engine.queues.state import State
from broker.engine.queues.uncommitted import MEMORY_PART
from store.bodies import Upload as Upload
from store.body import Checksum as Checksum
from store.body import LargeBody as LargeBody
from store.errors import BodyUnreadable, JournalFull

#: An exception of this module has changed nothing in the broker (`broker.sessions.tick`).
ONLY_READS = True

#: Bytes of one upload that may wait for the disk: above this its connection is not read, until a quarter is left.
PENDING_BYTES_MAX: Final = 1 << 20
PENDING_BYTES_LOW: Final = PENDING_BYTES_MAX // 4

#: The same of all uploads together, if a quarter of the broker's memory is not less: a second's work of a common disk.
#: Above it, no connection is read while anything of its upload is pending.
PENDING_ALL_BYTES_MAX: Final = 64 << 20

#: Bytes of a body read and written at a time: enough to cost little, few enough that others wait less than a
#: millisecond for it.
PIECE_BYTES: Final = LARGE_BODY_BYTES


class Unreadable(Exception):
    """A body's file cannot be read; `passing`: temporarily, by an error of the system."""

    def __init__(self, why: str, *, passing: bool = False) -> None:
        super().__init__(why)
        self.passing = passing


class Stream:
    """A body read piece by piece while it is sent; its file stays as long as the stream exists.

    `checksum` is shared by several streams that follow each other; a stream of the whole body has its own.
    """

    __slots__ = ("_at", "_body", "_checksum", "_end")

    def __init__(self, body: LargeBody, at: int = 0, end: int = -1, checksum: Checksum | None = None) -> None:
        self._body = body
        self._at = at
        self._end = len(body) if end < 0 else end
        self._checksum = Checksum(body) if not at and self._end == len(body) else checksum

    @property
    def left(self) -> int:
        """Bytes still to come."""
        return self._end - self._at

    def read(self, nbytes: int = PIECE_BYTES) -> bytes:
        """The next bytes.  Raises Unreadable, also before the last bytes of a body whose checksum is wrong."""
        with _reading():
            piece = self._body.read(self._at, min(nbytes, self.left))
            if self._checksum is not None:
                self._checksum.passed(piece)
        self._at += len(piece)
        return piece


def read_body(body: LargeBody, offset: int, nbytes: int) -> bytes:
    """Bytes of a body.  Raises Unreadable."""
    with _reading():
        return body.read(offset, nbytes)


def read_whole_body(body: LargeBody) -> bytes:
    """All of a body.  Raises Unreadable."""
    with _reading():
        return body.whole()


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except BodyUnreadable as error:
        raise Unreadable(f"the body of a message cannot be read: {error}", passing=error.passing) from error


class Uploads:
    """The bodies being uploaded.  What is not yet written is charged to the broker's memory."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._charged = 0
        state.journal.bodies.on_pending = self._charge

    def _charge(self) -> None:
        pending = self._state.journal.bodies.pending
        more, self._charged = pending - self._charged, pending
        self._state.room.charge_arriving(more)

    @property
    def _full(self) -> bool:
        memory_max = self._state.usage.bytes_max
        most = PENDING_ALL_BYTES_MAX
        return self._charged > (min(most, memory_max // MEMORY_PART) if memory_max >= 0 else most)

    def too_fast(self, upload: Upload) -> bool:
        """Whether the client of an upload must send no more for now, until its progress says `may_go_on`."""
        return upload.pending > PENDING_BYTES_MAX or (upload.pending > 0 and self._full)

    def may_go_on(self, upload: Upload) -> bool:
        """Whether a client that was stopped may send more."""
        return upload.pending <= PENDING_BYTES_LOW and not (upload.pending and self._full)

    def begin(self, changed: Callable[[], None], *, durable: bool, transport: object = None) -> Upload:
        """Begin an upload; `changed` is called on its progress, within a tick.  Raises DiskFull.

        An exception of `changed` closes the connection `transport`, whose uploads share the turns at the disk.
        """
        state = self._state
        if not state.journal.accepting:
            raise DiskFull(f"the journal has no room for large messages: {state.journal.lacking}")

        def report_change() -> None:
            state.begin()
            try:
                changed()
            except BaseException as error:
                state.blame(transport, error)

        return state.journal.bodies.begin(report_change, durable=durable, owner=transport)

    def write(self, upload: Upload, data: bytes, *, last: bool = False) -> None:
        """Add bytes to an upload.  Its client must wait if it is `too_fast` then."""
        self._state.journal.bodies.write(upload, data, last=last)
        self._charge()

    def abort(self, upload: Upload) -> None:
        """Abort an upload that will never be complete."""
        self._state.journal.bodies.abort(upload)

    def finished(self, upload: Upload) -> LargeBody:
        """The complete body of an upload.  Raises DiskFull if it was refused."""
        try:
            return self._state.journal.bodies.finished(upload)
        except JournalFull as full:
            raise DiskFull(str(full)) from full
