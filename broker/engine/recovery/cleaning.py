"""Cleaning: copies the live messages of the oldest segment forward, so that the journal does not grow for ever.

One message that is never consumed keeps its segment, and that segment keeps every later one with records about it
(store/space.py has the theory, and decides when a round is worth its bytes).  A round has two parts, both done in small
slices, so that clients notice neither:

    look    queue by queue, find the messages in the segment and the queues of each
    copy    write the messages again, with their delivery counts and due times, in one journal entry for each slice

Between the two a message may leave a queue.  It is copied only if all of its queues were found and it has left none of
them since: its `refs` when it was first seen, its `refs` now, and the number of queues where it was seen are equal.
Other messages wait for the next round.  Nothing depends on a round being complete, since a segment is dropped only when
nothing in it is live.

On a full disk copies may use the journal's reserve, if it has room for all that is left of the round: then the segment
goes, and makes more room than they took.  There a segment is cleaned that is half dead, however much others hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Final

from broker.engine.model.errors import NotReadable
from broker.engine.model.message import Message, MessageHeader
from broker.engine.queues import reading
from broker.engine.queues.paging import tail_compaction
from broker.engine.queues.paging.tail import Chunk
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State
from store.errors import JournalFull

#: The most that a slice looks at, in some milliseconds.
SLICE_QUEUES: Final = 1_000
SLICE_MESSAGES: Final = 4_000

#: The most that a slice copies, in some milliseconds: at most 50 MiB/s, and 50,000 messages (`cleaning_period`).
COPIED_MESSAGES: Final = 1_000
SLICE_BYTES: Final = 1 << 20

#: How long a round pauses when the disk has no room for copies, in ms.
FULL_RETRY_MS: Final = 5_000

_AGE: Final = attrgetter("message.id")

#: Called with the messages of a queue that a slice has copied, to write other records about them again in the same
#: entry.  All of a slice are passed together, as the callee may have to find them among many.
Copied = Callable[[Queue, list[Message]], None]


class _Found:
    """A message in the segment: its `refs` when first seen, and the queues on which it was seen."""

    __slots__ = ("message", "queues", "refs")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.refs = message.refs
        self.queues: list[Queue] = []


class _Round:
    """One segment's cleaning."""

    def __init__(self, segment: int, bound: int, queues: list[Queue]) -> None:
        self.segment = segment
        self.bound = bound
        self.queues = queues  # those to look at
        self.slices: Iterator[None] | None = None  # of looking; None: not begun
        self.found: dict[int, _Found] = {}  # by the message's id(): queues that paged it have a message each
        self.paged: list[tuple[Queue, Chunk, list[int]]] = []  # rows of tails, still to be copied
        self.order: list[_Found] | None = None  # those still to copy, the next one last
        self.copied = 0


class Cleaner:
    """Cleans the journal, a slice at a time."""

    def __init__(self, state: State) -> None:
        self.messages = 0  # copied since the start
        self.rounds = 0
        #: Called with copied messages, to write other records about them again.
        self.copied: list[Copied] = []
        #: Called with a segment, to copy forward what is live in it beside messages.
        self.forward: list[Callable[[int], object]] = []
        self._state = state
        self._round: _Round | None = None
        self._next = 0
        self._looked = 0  # the newest segment when last checked for something to clean

    def next_due(self) -> int | None:
        """When `step` must be called next (ms since the epoch), None if there is nothing to do."""
        idle = self._round is None and not self._state.journal.is_short
        return None if idle else self._next

    def clock_jumped(self, by_ms: int) -> None:
        """Shift the next slice after the clock has jumped."""
        self._next += by_ms

    def step(self) -> None:
        """Do a slice if one is due, and no entry is held.  Call within a tick, outside of transactions."""
        state = self._state
        if state.pending.held is not None:
            return
        if self._round is None:
            segment = self._find()
            if segment is None:
                return
            queues = list(self._state.queues.values())
            self._round = _Round(segment, state.journal.space.bound(segment), queues)
        elif state.now < self._next:
            return
        self._next = state.now + state.limits.cleaning_period
        if self._round.order is None:
            self._look(self._round)
        else:
            self._copy(self._round, self._round.order)

    def _find(self) -> int | None:
        """Return the segment to clean now; look whenever one is begun, and from time to time on a full disk."""
        journal, limits = self._state.journal, self._state.limits
        if journal.segment == self._looked and not (journal.is_short and self._state.now >= self._next):
            return None
        self._looked = journal.segment
        self._next = self._state.now + journal.limits.retry_ms
        journal.look_for_room()
        if not journal.accepting:
            return journal.space.to_clean_when_full()
        return journal.space.to_clean(files_min=limits.compact_min_files, percentage=limits.compact_percentage)

    def whole(self, segment: int) -> int:
        """Clean a segment at once, however much is live in it; returns how many messages were copied.

        For commands: a serving broker works in slices.  Raises JournalFull; messages copied before stay copied.
        """
        state = self._state
        round = _Round(segment, state.journal.space.bound(segment), list(self._state.queues.values()))
        while round.order is None:
            self._look(round)
        while round.order or round.paged:
            self._copy_slice(round, round.order)
        for forward in self.forward:
            forward(segment)
        return round.copied

    # -- looking ---------------------------------------------------------------------------------------------------

    def _look(self, round: _Round) -> None:
        """Look at a slice; after the last one the round has an order."""
        if round.slices is None:
            round.slices = self._slices(round)
        if next(round.slices, round) is round:
            # The youngest come first in the list: the oldest are taken from its end, and copied in order.
            round.order = sorted(round.found.values(), key=_AGE, reverse=True)
            round.found = {}

    def _slices(self, round: _Round) -> Iterator[None]:
        """Look at all queues, a slice at a time.

        Messages may leave a queue between two slices of it: their `refs` are fewer then than the queues they are in.
        """
        room = SLICE_MESSAGES
        for number, queue in enumerate(round.queues, 1):
            if queue.deleted:
                continue
            older = reading.older(queue, round.bound) + tail_compaction.kept(queue)
            paged = tail_compaction.rows_in(queue, round.segment)
            round.paged += [(queue, chunk, rows) for chunk, rows in paged]
            room -= len(paged)
            at = 0
            while at < len(older):
                some = older[at : at + max(room, 1)]
                at += len(some)
                room -= len(some)
                for message in some:
                    if message.segment == round.segment:
                        found = round.found.get(id(message))
                        if found is None:
                            found = round.found[id(message)] = _Found(message)
                        found.queues.append(queue)
                if room <= 0:
                    yield
                    room = SLICE_MESSAGES
            if not number % SLICE_QUEUES:
                yield
                room = SLICE_MESSAGES

    # -- copying ---------------------------------------------------------------------------------------------------

    def _copy(self, round: _Round, order: list[_Found]) -> None:
        try:
            self._copy_slice(round, order)
        except (JournalFull, NotReadable):
            self._next = self._state.now + FULL_RETRY_MS
            return
        if not order and not round.paged:
            self._end(round)

    def _copy_slice(self, round: _Round, order: list[_Found]) -> None:
        """Copy the oldest of the messages left.  Raises JournalFull, NotReadable before anything changed."""
        if not order:
            self._copy_paged_slice(round)
            return
        slice, size = order[-COPIED_MESSAGES:], 0
        slice.reverse()
        for count, found in enumerate(slice, 1):
            size += found.message.size
            if size >= SLICE_BYTES:
                del slice[count:]
                break
        self._reserve(round, size)
        del order[len(order) - len(slice) :]
        copied: dict[Queue, list[Message]] = {}
        for header, queues, messages in _runs(slice, round.segment):
            for queue in self._copy_run(round, header, queues, messages):
                copied.setdefault(queue, []).extend(messages)
        for queue, messages in copied.items():
            self._copied_forward(queue, messages)

    def _copy_paged_slice(self, round: _Round) -> None:
        """Copy paged messages, one chunk or several."""
        size = 0
        while round.paged and size < SLICE_BYTES:
            queue, chunk, rows = round.paged[-1]
            size += tail_compaction.size_of(chunk, rows)
            self._reserve(round, size)
            round.copied += tail_compaction.copy_rows(
                self._state, queue, chunk, rows, round.segment, self._copied_forward
            )
            del round.paged[-1]

    def _reserve(self, round: _Round, size: int) -> None:
        """Ask for room for a slice, or on a full disk for all that is left.  Raises JournalFull."""
        journal = self._state.journal
        try:
            journal.reserve(size)
        except JournalFull:
            left = sum([found.message.size for found in round.order or ()])
            left += sum([tail_compaction.size_of(chunk, rows) for _, chunk, rows in round.paged])
            journal.reserve(left, essential=True)

    def _copied_forward(self, queue: Queue, messages: list[Message]) -> None:
        if queue.durable:  # rows of others are copied too, to a scratch file
            self._restate(queue, messages)
        for watcher in self.copied:
            watcher(queue, messages)

    def _copy_run(
        self, round: _Round, header: MessageHeader, queues: list[Queue], messages: list[Message]
    ) -> list[Queue]:
        """Copy messages with the same header; returns the queues on which a restart will find them."""
        journal = self._state.journal
        durable = [queue for queue in queues if queue.durable]
        if not durable:  # held only by queues that no restart restores
            journal.space.release(round.segment, len(messages))
            for message in messages:
                message.copied_to(0)
            return []
        self._state.ledger.copied(header, [queue.id for queue in durable], messages, round.segment)
        round.copied += len(messages)
        return durable

    def _restate(self, queue: Queue, messages: list[Message]) -> None:
        """Write delivery counts and due times again, as the journal had them."""
        by_due: dict[int, list[int]] = {}
        for message in messages:
            due = queue.scheduled.get(message.id, (0, message))[0]
            if due and due != message.header.scheduled:
                by_due.setdefault(due, []).append(message.id)
        ledger = self._state.ledger
        ledger.counts(queue, [m for m in messages if m.id in queue.states or m.id in queue.journalled])
        ledger.scheduled(queue, by_due)

    def _end(self, round: _Round) -> None:
        """End the round.  If its segment can be dropped, another one may be due for cleaning at once."""
        state = self._state
        self.messages += round.copied
        self.rounds += 1
        self._round = None
        for forward in self.forward:
            forward(round.segment)
        left = state.journal.space.live(round.segment)
        state.report("journal.cleaned", segment=round.segment, messages=round.copied, left=left)
        if not left:
            self._looked = 0


def _runs(slice: list[_Found], segment: int) -> list[tuple[MessageHeader, list[Queue], list[Message]]]:
    """The messages of a slice that may be copied, grouped by equal headers and queues."""
    runs: list[tuple[MessageHeader, list[Queue], list[Message]]] = []
    for found in slice:
        message = found.message
        unchanged = message.refs == found.refs == len(found.queues)  # it is still on exactly these queues
        if not unchanged or message.segment != segment:
            continue
        if runs and runs[-1][0] is message.header and runs[-1][1] == found.queues:
            runs[-1][2].append(message)
        else:
            runs.append((message.header, found.queues, [message]))
    return runs
