"""The writer: what the journal submits becomes durable, and is announced.

While one batch is being written and synced, what is submitted gathers, and is the next batch: group commit without a
timer.  Work is done strictly in order.  The first failure is told once; after it nothing is written and nothing is
announced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final, Protocol

from store.bodies import Abort, Drop, Part
from store.log import Log
from store.segment import Entry

#: What goes into one write and sync at most, in bytes: a burst's first confirmations need not wait for its last byte.
BATCH_BYTES_MAX: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin a segment."""

    segment: int
    broker_id: bytes
    first_position: int


@dataclass(frozen=True, slots=True)
class Trim:
    """Let go of segments that nothing needs once everything submitted before is durable."""

    segments: Sequence[int]


Work = Entry | Begin | Trim | Part | Abort | Drop
Announce = Callable[[int], None]
Failed = Callable[[Exception], None]


class Writer(Protocol):
    """What the journal needs of a writer.  `error` is why it stopped, if it did."""

    error: Exception | None

    def submit(self, work: Work) -> None:
        """Take work; returns at once."""

    def prepare(self, segment: int) -> None:
        """Ask for room for a segment; returns at once."""

    def wait_ready(self, segment: int) -> None:
        """Return when there is room for a segment, or it is known that there is none."""

    def close(self) -> None:
        """Finish everything submitted, announce it, and stop."""


class Worker:
    """Does the work; both writers share it.

    `announce` is called with each ticket that became durable, and with the last one again when a part of a large body
    was written: that has no ticket, as nothing in the journal refers to it yet.
    """

    def __init__(self, log: Log, announce: Announce) -> None:
        self._log = log
        self._announce = announce
        self._segment = 0
        self._ticket = 0

    def work(self, items: Sequence[Work]) -> None:
        """Do work in order.  Raises LogError; then what was not announced must be taken for lost."""
        batch: list[Entry] = []
        nbytes = 0
        room = False
        for item in items:
            if isinstance(item, Entry):
                if nbytes >= BATCH_BYTES_MAX:
                    nbytes = self._flush(batch)
                batch.append(item)
                nbytes += item.length
                continue
            if isinstance(item, Part):  # no entry says anything about it yet, so that none need be written before
                self._log.bodies.put(item)
                self._announce(self._ticket)
                continue
            nbytes = self._flush(batch)
            room = room or not isinstance(item, Abort | Drop)
            if isinstance(item, Begin):
                self._log.begin(item.segment, item.broker_id, item.first_position)
                self._segment = item.segment
            elif isinstance(item, Trim):
                self._log.trim(item.segments)
            else:
                self._body(item)
        self._flush(batch)
        if room and self._segment:  # after the entries: nobody waits for a confirmation meanwhile
            self._log.allocate(self._segment + 1)

    def _body(self, item: Abort | Drop) -> None:
        if isinstance(item, Abort):
            self._log.bodies.abort(item.upload)
        else:
            self._log.bodies.drop(item)

    def _flush(self, batch: list[Entry]) -> int:
        if batch:
            self._log.append(batch)
            ticket = self._ticket = batch[-1].ticket
            batch.clear()
            self._announce(ticket)
        return 0


class InlineWriter:
    """A writer without a thread: the work is done, and announced, by `step`, by its caller."""

    def __init__(self, log: Log, announce: Announce, failed: Failed) -> None:
        self._log = log
        self._announce = announce
        self._failed = failed
        self._worker = Worker(log, self._done)
        self._items: list[Work] = []
        self._wanted = 0
        self._durable: list[int] = []
        self._told = False
        self.error: Exception | None = None

    def _done(self, ticket: int) -> None:
        self._durable.append(ticket)

    def submit(self, work: Work) -> None:
        """After a failure there is nothing to be done with it."""
        if self.error is None:
            self._items.append(work)

    def prepare(self, segment: int) -> None:
        self._wanted = segment

    def wait_ready(self, segment: int) -> None:
        """What becomes durable by it is announced by the next step: the caller is not ready for that."""
        self._wanted = segment
        self._work()

    def step(self) -> None:
        """Do everything submitted so far, and announce it."""
        self._work()
        durable, self._durable = self._durable, []
        for ticket in durable:
            self._announce(ticket)
        if self.error is not None and not self._told:
            self._told = True
            self._failed(self.error)

    def _work(self) -> None:
        items, self._items = self._items, []
        wanted, self._wanted = self._wanted, 0
        if self.error is not None:
            return
        try:
            self._worker.work(items)
            if wanted:
                self._log.allocate(wanted)
        except Exception as error:
            self.error = error

    def close(self) -> None:
        self.step()


@dataclass(frozen=True, slots=True)
class Room:
    """Make room for a segment."""

    segment: int


class WriterThread:
    """The thread that owns the disk.  `announce` and `failed` are called by it.

    Work comes to it through a queue made in C: `submit` takes no lock that the thread also wants, and wakes it only
    where it sleeps.  Both threads share the interpreter's lock, so that each further step between them may cost a
    turn of the event loop.
    """

    def __init__(self, log: Log, announce: Announce, failed: Failed) -> None:
        self._log = log
        self._failed = failed
        self._worker = Worker(log, announce)
        self._queue: SimpleQueue[Work | Room | None] = SimpleQueue()  # None: close
        self._room = threading.Condition()  # for those who wait for room
        self._system_thread = threading.Thread(target=self._run, name="journal-writer", daemon=True)
        self.error: Exception | None = None

    def start(self) -> None:
        """Begin to work."""
        self._system_thread.start()

    def submit(self, work: Work) -> None:
        """After a failure there is nothing to be done with it."""
        if self.error is None:
            self._queue.put(work)

    def prepare(self, segment: int) -> None:
        self._queue.put(Room(segment))

    def wait_ready(self, segment: int) -> None:
        log = self._log
        with self._room:
            self._queue.put(Room(segment))
            self._room.wait_for(lambda: log.ready >= segment or log.full or self.error is not None)

    def close(self) -> None:
        self._queue.put(None)
        self._system_thread.join()

    def _run(self) -> None:
        queue = self._queue
        closing = False
        while not closing:
            gathered = [queue.get()]
            gathered += [queue.get_nowait() for _ in range(queue.qsize())]
            closing = None in gathered
            wanted = [item.segment for item in gathered if isinstance(item, Room)]
            try:
                self._worker.work([item for item in gathered if item is not None and not isinstance(item, Room)])
                if wanted:
                    self._log.allocate(wanted[-1])
            except BaseException as error:  # a thread that dies in silence would leave everybody waiting
                self._stop(error if isinstance(error, Exception) else RuntimeError(repr(error)))
                return
            if wanted:
                with self._room:
                    self._room.notify_all()

    def _stop(self, error: Exception) -> None:
        """Nothing is written after a failure; what waits is let go."""
        with self._room:
            self.error = error
            self._room.notify_all()
        self._failed(error)
