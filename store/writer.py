"""The writer: makes the journal's submitted work durable, and announces that.

While one batch is being written and synced, submitted work is collected for the next batch: group commit without a
timer.  Work is done strictly in order, but for the parts of large bodies, to which no entry refers yet: they have a
turn after each batch (`BodyQueue`).  The first failure is reported once; after it nothing is written and nothing is
announced.

A full disk is no failure: the work that finds no room waits, with all that follows, and is tried again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final, Protocol

from store.bodies import Abort, BodyQueue, Drop, Part
from store.errors import LogFull
from store.log import Log
from store.segment import Entry

#: The most bytes of one write and sync: a burst's first confirmations need not wait for its last byte.
BATCH_BYTES_MAX: Final = 8 << 20

#: How often work that waits for room on the disk is tried again, in seconds.
ROOM_RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin a segment."""

    segment: int
    broker_id: bytes
    first_position: int


@dataclass(frozen=True, slots=True)
class Trim:
    """Drop segments that are unneeded once everything submitted before is durable."""

    segments: Sequence[int]


Work = Entry | Begin | Trim | Part | Abort | Drop
Announce = Callable[[int], None]
Failed = Callable[[Exception], None]


class Writer(Protocol):
    """The writer's interface for the journal.  `error` is why it stopped, if it did."""

    error: Exception | None

    def submit(self, work: Work) -> None:
        """Accept work; returns at once."""

    def prepare(self, segment: int) -> None:
        """Request room for a segment; returns at once."""

    def wait_ready(self, segment: int) -> None:
        """Return once there is room for a segment, or it is known that there is none: for the start, which may wait."""

    def hasten(self, segment: int) -> None:
        """Note that a segment, which is being allocated, is needed now; returns at once, perhaps with it."""

    def close(self) -> None:
        """Finish everything submitted, announce it, and stop."""


class Worker:
    """Does the work of both kinds of writers.

    `announce` is called with each ticket that became durable.  It is called with the last one again when parts of large
    bodies were written, which have no ticket as nothing in the journal refers to them yet, and when it became known
    whether the disk has room for the next segment: clients may wait for that.
    """

    def __init__(self, log: Log, announce: Announce) -> None:
        self._log = log
        self._announce = announce
        self._segment = 0
        self._ticket = 0
        self._batch: list[Entry] = []
        self._batch_bytes = 0
        self._room = False  # a segment was begun or dropped: allocate the next one
        self._later: Sequence[Work] = ()
        self._bodies = BodyQueue(log.bodies)

    def work(self, items: Sequence[Work]) -> None:
        """Do work in order, and a turn of the bodies.

        Raises LogFull: the rest is tried first in the next call.  Raises other LogErrors; then all unannounced work
        must be considered lost.
        """
        items, self._later = [*self._later, *items] if self._later else items, ()
        done = 0
        try:
            self._flush()  # the same batch as before, if it found no room
            for item in items:
                self._do(item)
                done += 1
            self._flush()
        except LogFull:
            self._later = items[done:]
            raise
        if self._room and self._segment:  # after the entries, so that no confirmation waits for it
            self._room = False
            self._log.allocate(self._segment + 1)
            self._announce(self._ticket)
        if self._bodies:
            self._bodies.turn()
            self._announce(self._ticket)

    @property
    def unfinished(self) -> bool:
        """Whether work is left: for lack of room, or parts of bodies for their next turn."""
        return bool(self._batch or self._later or self._bodies)

    def _do(self, item: Work) -> None:
        """Do one piece of work, or put it off with its batch."""
        if isinstance(item, Entry):
            if self._batch_bytes >= BATCH_BYTES_MAX:
                self._flush()
            self._batch.append(item)
            self._batch_bytes += item.length
            return
        if isinstance(item, Part | Abort):
            self._bodies.add(item)
            return
        self._flush()
        self._room = self._room or not isinstance(item, Drop)
        if isinstance(item, Begin):
            self._log.begin(item.segment, item.broker_id, item.first_position)
            self._segment = item.segment
        elif isinstance(item, Trim):
            self._log.trim(item.segments)
        else:
            self._log.bodies.drop(item)

    def _flush(self) -> None:
        batch = self._batch
        if batch:
            self._log.append(batch)
            ticket = self._ticket = batch[-1].ticket
            self._batch = []
            self._batch_bytes = 0
            self._announce(ticket)


class InlineWriter:
    """A writer without a thread: `step` does the work, and announces it, in its caller's thread."""

    def __init__(self, log: Log, announce: Announce, failed: Failed) -> None:
        self._log = log
        self._announce = announce
        self._failed = failed
        self._durable: list[int] = []
        self._worker = Worker(log, self._durable.append)
        self._items: list[Work] = []
        self._wanted = 0
        self._reported = False
        self._closing = False
        self.error: Exception | None = None

    def submit(self, work: Work) -> None:
        """Accept work; after a failure it is ignored."""
        if self.error is None:
            self._items.append(work)

    def prepare(self, segment: int) -> None:
        self._wanted = segment

    def wait_ready(self, segment: int) -> None:
        """Work done here is announced by the next step: the caller is not ready for it."""
        self._wanted = segment
        self._work()

    def hasten(self, segment: int) -> None:
        """As nothing else runs meanwhile, the room is made here."""
        self.wait_ready(segment)

    def step(self) -> None:
        """Do everything submitted so far, and announce it."""
        self._work()
        durable = self._durable.copy()
        self._durable.clear()
        for ticket in durable:
            self._announce(ticket)
        if self.error is not None and not self._reported:
            self._reported = True
            self._failed(self.error)

    def _work(self) -> None:
        items, self._items = self._items, []
        wanted, self._wanted = self._wanted, 0
        if self.error is not None:
            return
        try:
            self._worker.work(items)
            while self._worker.unfinished:
                self._worker.work(())
            if wanted:
                self._log.allocate(wanted)
        except LogFull as full:
            if self._closing:
                self.error = full
        except Exception as error:
            self.error = error

    def close(self) -> None:
        """See Writer; work that finds no room now is lost."""
        self._closing = True
        self.step()


@dataclass(frozen=True, slots=True)
class Room:
    """Make room for a segment."""

    segment: int


class WriterThread:
    """The thread that owns the disk.  It calls `announce` and `failed`.

    Work that finds no room is tried again every `room_retry` seconds, and a last time by `close`.
    Work reaches it through a queue implemented in C: `submit` takes no lock that the thread also needs, and wakes it
    only if it sleeps.  Both threads share the interpreter's lock, so each further step between them could cost a turn
    of the event loop.
    """

    def __init__(self, log: Log, announce: Announce, failed: Failed, *, room_retry: float = ROOM_RETRY_SECONDS) -> None:
        self._log = log
        self._failed = failed
        self._room_retry = room_retry
        self._worker = Worker(log, announce)
        self._queue: SimpleQueue[Work | Room | None] = SimpleQueue()  # None: close
        self._room = threading.Condition()  # for callers that wait for room
        self._closing = threading.Event()
        self._system_thread = threading.Thread(target=self._run, name="journal-writer", daemon=True)
        self.error: Exception | None = None

    def start(self) -> None:
        """Start the thread."""
        self._system_thread.start()

    def submit(self, work: Work) -> None:
        """Accept work; after a failure it is ignored."""
        if self.error is None:
            self._queue.put(work)

    def prepare(self, segment: int) -> None:
        self._queue.put(Room(segment))

    def wait_ready(self, segment: int) -> None:
        spare = self._log.spare
        with self._room:
            self._queue.put(Room(segment))
            self._room.wait_for(lambda: spare.ready >= segment or spare.full or self.error is not None)

    def hasten(self, segment: int) -> None:
        """The thread allocates the next segment without being asked, as soon as the disk lets it."""

    def close(self) -> None:
        """See Writer; work that finds no room now is lost."""
        self._closing.set()
        self._queue.put(None)
        self._system_thread.join()

    def _run(self) -> None:
        queue = self._queue
        closing = False
        while not closing or self._worker.unfinished:
            no_room = False
            gathered = [] if self._worker.unfinished else [queue.get()]
            gathered += [queue.get_nowait() for _ in range(queue.qsize())]
            closing = closing or None in gathered
            wanted = [item.segment for item in gathered if isinstance(item, Room)]
            try:
                self._worker.work([item for item in gathered if item is not None and not isinstance(item, Room)])
                if wanted:
                    self._log.allocate(wanted[-1])
            except LogFull as full:
                if closing:
                    return self._stop(full)
                no_room = True
            except BaseException as error:  # if the thread died silently, all callers would wait for ever
                return self._stop(error if isinstance(error, Exception) else RuntimeError(repr(error)))
            if wanted:
                with self._room:
                    self._room.notify_all()
            if no_room:
                self._closing.wait(self._room_retry)

    def _stop(self, error: Exception) -> None:
        """Stop after a failure: nothing more is written, and waiting callers are released."""
        with self._room:
            self.error = error
            self._room.notify_all()
        self._failed(error)
