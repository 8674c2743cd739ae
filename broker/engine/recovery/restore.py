"""Rebuilds the engine's state from the journal: what was stored, minus what was removed.

The records are folded in the order of their positions.  Until the end only tables by id are updated; then messages are
put onto their queues, in their old order, with their delivery counts, schedules and expirations.  For a queue
that can page, only the places of ready messages are recorded.  They become its tail, unless all of them fit into
memory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Final, TypeVar

from broker.engine.client_sessions.session_fold import SessionFold
from broker.engine.client_sessions.sessions import StoredSessions
from broker.engine.model import names
from broker.engine.model.message import Format, Message, MessageHeader
from broker.engine.model.task import Task, read_task
from broker.engine.queues import arrival, definitions, duplicates
from broker.engine.queues.diverts import Divert, read_divert
from broker.engine.queues.paging import tail_restore
from broker.engine.queues.paging.fold import Places
from broker.engine.queues.queue import DeliveryState, Queue
from broker.engine.queues.room import may_page, pageable
from broker.engine.queues.state import State
from broker.engine.queues.stored import KIND_MASK, MESSAGE_KIND, UNGROUPED, MessageReader
from store import decode
from store.bodies import Bodies
from store.decode import RawRecord
from store.record import GROUPED, RecordType
from store.space import Space


@dataclass(slots=True)
class Restored:
    """Numbers of what a restart restored, and the tasks that it found."""

    queues: int = 0
    messages: int = 0
    redelivered: int = 0
    tasks: dict[int, Task] = field(default_factory=dict)


#: The flag of a message in a group; the message's properties name the group.
_GROUPED: Final = GROUPED << 16

_HEADER: Final[Callable[[Message], MessageHeader]] = attrgetter("header")

#: How many queues with few messages are read together: at most 16 MiB.
_READ_TOGETHER: Final = 256

#: Placeholder for a queue that no message has named yet.
_UNKNOWN: Final = Places()


class _Run:
    """Consecutive messages whose encoded headers are equal: how to treat each of them.

    `held`: tables of the queues that have them in memory.  `places`: those of queues that page, to which `ids`,
    `offsets` and `sizes` are added by `flush`, once for a run of ascending ids in one segment.  `later`: the tables of
    the same queues with the messages that are scheduled.
    """

    __slots__ = ("encoded", "header", "held", "ids", "kind", "last", "later", "offsets", "places", "segment", "sizes")

    def __init__(self) -> None:
        self.encoded = b""
        self.kind = 0
        self.header: MessageHeader | None = None
        self.held: list[dict[int, Message]] = []
        self.places: list[Places] = []
        self.later: list[dict[int, int]] = []
        self.segment = 0
        self.last = 0
        self.ids: list[int] = []
        self.offsets: list[int] = []
        self.sizes: list[int] = []

    def flush(self) -> None:
        """Add the gathered places to `places`."""
        if not self.ids:
            return
        assert self.header is not None, "a run has a header"
        priority, expiration = self.header.priority, self.header.expiration
        for places in self.places:
            places.put(
                self.ids, self.offsets, self.sizes, segment=self.segment, priority=priority, expiration=expiration
            )
        for later in self.later:
            later.update(dict.fromkeys(self.ids, self.header.scheduled))
        self.ids.clear()
        self.offsets.clear()
        self.sizes.clear()


class Fold:
    """The state while records are read: definitions, and by queue the messages not removed so far."""

    def __init__(
        self,
        formats: dict[int, Format],
        space: Space,
        pages: Callable[[definitions.Json], bool] = lambda definition: False,
        *,
        bodies: Bodies,
        now: int = 0,
    ) -> None:
        self.space = space
        self.now = now
        self.pages = pages  # whether a queue's messages need not be read into memory
        self.places: dict[int, Places | None] = {}  # of the messages of such queues, by queue id; None: another queue
        self.addresses: dict[int, definitions.Json] = {}
        self.queues: dict[int, definitions.Json] = {}
        self.held: defaultdict[int, dict[int, Message]] = defaultdict(dict)
        self.counts: dict[int, dict[int, int]] = {}
        self.due: dict[int, dict[int, int]] = {}  # by the broker, for redelivery
        self.later: dict[int, dict[int, int]] = {}  # by their senders, of messages in `places`
        self.sessions = SessionFold(space)
        self.diverts: dict[int, Divert] = {}
        self.tasks: dict[int, Task] = {}
        self.duplicates: dict[int, dict[bytes, tuple[int, int]]] = {}  # by address id: see Duplicates.restore
        self.disordered: set[int] = set()  # queues whose messages are not in the order of their ids
        self.pulled: dict[int, Message] = {}  # messages read by their places: one object for all their queues
        self._stored = MessageReader(formats, bodies)
        self._run = _Run()

    def read(self, records: Iterable[RawRecord]) -> None:
        """Fold all records."""
        unpack, fixed = MESSAGE_KIND.unpack_from, MESSAGE_KIND.size
        run = self._run
        for segment, _, _, kind, buffer, offset in records:
            if kind == RecordType.MESSAGE:
                length, exact, id, head_bytes, body_bytes = unpack(buffer, offset)
                body_at = offset + length - body_bytes
                head_at = body_at - head_bytes
                if buffer[offset + fixed : head_at] != run.encoded or exact != run.kind:
                    run.flush()
                    stored = self._stored.decode(buffer, offset)
                    self._message(stored, segment, offset, buffer)
                    self._begin_run(stored, exact, buffer[offset + fixed : head_at])
                    continue
                if run.places:
                    if segment != run.segment or id <= run.last:
                        run.flush()
                        run.segment = segment
                    run.last = id
                    run.ids.append(id)
                    run.offsets.append(offset)
                    run.sizes.append(length)
                header = run.header
                if run.held and header is not None:
                    message = Message(header, buffer[head_at:body_at], buffer[body_at : offset + length])
                    message.id = id
                    message.refs = 0
                    message.segment = segment
                    for held in run.held:
                        held[id] = message
                continue
            run.flush()
            read = _READERS.get(kind)
            if read is not None:
                read(self, segment, buffer, offset)
        run.flush()

    def _message(
        self, stored: decode.Message | decode.Copied, segment: int, offset: int, buffer: bytes, *, again: bool = False
    ) -> None:
        message: Message | None = None
        for queue_id in stored.header.queue_ids:
            places = self._places_for(queue_id, stored)
            if places is not None:
                header = self._stored.header(stored)
                size = int.from_bytes(buffer[offset : offset + 4], "little")
                if header.scheduled > self.now:
                    self.later.setdefault(queue_id, {})[stored.id] = header.scheduled
                row = {"segment": segment, "priority": header.priority, "expiration": header.expiration}
                if again:
                    places.put_again(stored.id, offset, size, **row)
                else:
                    places.put([stored.id], [offset], [size], **row)
                continue
            if message is None:
                message = self._stored.message(stored, segment)
            self.held[queue_id][stored.id] = message

    def _places_for(self, queue_id: int, stored: decode.Message | decode.Copied) -> Places | None:
        """Return where to record the place of a message; None if it has to be in memory."""
        places = self.places.get(queue_id, _UNKNOWN)
        if places is _UNKNOWN:
            definition = self.queues.get(queue_id)
            places = Places() if definition is not None and self.pages(definition) else None
            self.places[queue_id] = places
        return places if isinstance(stored.body, bytes) else None

    def _begin_run(self, stored: decode.Message, kind: int, encoded: bytes) -> None:
        """Begin a run: determine how to treat messages like this one, which may follow."""
        run = self._run
        run.kind, run.encoded, run.header = kind, encoded, self._stored.header(stored)
        run.places, run.held, run.later = [], [], []
        for queue_id in stored.header.queue_ids:
            places = self._places_for(queue_id, stored)
            if places is None:
                run.held.append(self.held[queue_id])
            else:
                run.places.append(places)
                if stored.header.scheduled > self.now:
                    run.later.append(self.later.setdefault(queue_id, {}))
        if (kind if run.held else kind & ~_GROUPED) & KIND_MASK != UNGROUPED:
            run.kind = 0  # no message has this kind: the next one is decoded too

    def _copied(self, segment: int, buffer: bytes, offset: int) -> None:
        """Fold a COPIED record; counts and schedules follow it.  The earlier record may be gone or still be there."""
        copied = self._stored.decode_copied(buffer, offset)
        self.space.refer(segment, copied.previous)
        for queue_id in copied.header.queue_ids:
            for tables in (self.counts, self.due, self.later, self.sessions.inflight):
                tables.get(queue_id, {}).pop(copied.id, None)
        self._message(copied, segment, offset, buffer, again=True)
        self.disordered.update(copied.header.queue_ids)

    def _refer(self, queue_id: int, ids: Sequence[int], segment: int) -> None:
        """Keep a record in `segment` that refers to these messages as long as their own records exist."""
        held = self.held.get(queue_id)
        if held:
            for message in filter(None, map(held.get, ids)):
                if message.segment != segment:
                    self.space.refer(segment, message.segment)
        places = self.places.get(queue_id)
        if places is not None:
            for other in places.segments_of(ids):
                self.space.refer(segment, other)

    def _removed(self, segment: int, buffer: bytes, offset: int) -> None:
        removed = decode.decode_removed(buffer, offset)
        self._refer(removed.queue_id, removed.ids, segment)
        for tables in (self.held, self.counts, self.due, self.later, self.sessions.inflight):
            table = tables.get(removed.queue_id)
            if table:
                for id in removed.ids:
                    table.pop(id, None)
        places = self.places.get(removed.queue_id)
        if places is not None:
            places.remove(removed.ids)

    def _counted(self, segment: int, buffer: bytes, offset: int) -> None:
        counted = decode.decode_counts(buffer, offset)
        self._refer(counted.queue_id, counted.ids, segment)
        counts = self.counts.setdefault(counted.queue_id, {})
        if counted.count or counted.redelivered:
            counts.update(dict.fromkeys(counted.ids, counted.count))
            return
        for id in counted.ids:
            counts.pop(id, None)

    def _delivering(self, segment: int, buffer: bytes, offset: int) -> None:
        """Count messages that may have reached a consumer as delivered (promise P4)."""
        delivering = decode.decode_delivering(buffer, offset)
        self._refer(delivering.queue_id, delivering.ids, segment)
        counts = self.counts.setdefault(delivering.queue_id, {})
        for id in delivering.ids:
            counts[id] = counts.get(id, 0) + 1

    def _scheduled(self, segment: int, buffer: bytes, offset: int) -> None:
        scheduled = decode.decode_scheduled(buffer, offset)
        self._refer(scheduled.queue_id, scheduled.ids, segment)
        self.due.setdefault(scheduled.queue_id, {}).update(dict.fromkeys(scheduled.ids, scheduled.due))

    def _queue_deleted(self, segment: int, buffer: bytes, offset: int) -> None:
        id = decode.decode_definition(buffer, offset).id
        for table in (self.queues, self.held, self.counts, self.due, self.later, self.sessions.inflight):
            table.pop(id, None)
        self.places.pop(id, None)

    def _duplicate_id(self, segment: int, buffer: bytes, offset: int) -> None:
        duplicates.note(self.duplicates, decode.decode_duplicate_id(buffer, offset), segment)

    def _inflight(self, segment: int, buffer: bytes, offset: int) -> None:
        sent = decode.decode_inflight(buffer, offset)
        self._refer(sent.queue_id, sent.ids, segment)
        self.sessions.send(sent)


#: Folds one record: gets its segment, the buffer and the offset in it.
Reader = Callable[[Fold, int, bytes, int], None]

Defined = TypeVar("Defined")


def _defines(table: Callable[[Fold], dict[int, Defined]], read: Callable[[int, dict[str, object]], Defined]) -> Reader:
    """Return a reader that stores a definition in a table."""

    def define(fold: Fold, segment: int, buffer: bytes, offset: int) -> None:
        found = decode.decode_definition(buffer, offset)
        table(fold)[found.id] = read(found.id, found.definition)

    return define


def _as_it_is(id: int, definition: definitions.Json) -> definitions.Json:
    return definition


def _deletes(table: Callable[[Fold], dict[int, Defined]]) -> Reader:
    """Return a reader that deletes a definition from a table."""

    def delete(fold: Fold, segment: int, buffer: bytes, offset: int) -> None:
        table(fold).pop(decode.decode_definition(buffer, offset).id, None)

    return delete


def _of_sessions(read: Callable[[SessionFold, int, bytes, int], None]) -> Reader:
    return lambda fold, segment, buffer, offset: read(fold.sessions, segment, buffer, offset)


_READERS: Final[dict[int, Reader]] = {
    RecordType.COPIED: Fold._copied,
    RecordType.REMOVED: Fold._removed,
    RecordType.COUNTS: Fold._counted,
    RecordType.DELIVERING: Fold._delivering,
    RecordType.SCHEDULED: Fold._scheduled,
    RecordType.ADDRESS: _defines(lambda fold: fold.addresses, _as_it_is),
    RecordType.ADDRESS_DELETED: _deletes(lambda fold: fold.addresses),
    RecordType.QUEUE: _defines(lambda fold: fold.queues, _as_it_is),
    RecordType.QUEUE_DELETED: Fold._queue_deleted,
    RecordType.DIVERT: _defines(lambda fold: fold.diverts, read_divert),
    RecordType.DIVERT_DELETED: _deletes(lambda fold: fold.diverts),
    RecordType.TASK: _defines(lambda fold: fold.tasks, read_task),
    RecordType.TASK_DELETED: _deletes(lambda fold: fold.tasks),
    RecordType.DUPLICATE_ID: Fold._duplicate_id,
    RecordType.SESSION: _of_sessions(SessionFold.define),
    RecordType.SESSION_DELETED: _of_sessions(SessionFold.delete),
    RecordType.SESSION_PART: _of_sessions(SessionFold.define_part),
    RecordType.SESSION_PART_DELETED: _of_sessions(SessionFold.delete_part),
    RecordType.INFLIGHT: Fold._inflight,
    RecordType.RELEASED: _of_sessions(SessionFold.release),
    RecordType.RECEIVED: _of_sessions(SessionFold.receive),
    RecordType.COMPLETED: _of_sessions(SessionFold.complete),
}


def restore(state: State, sessions: StoredSessions, records: Iterable[RawRecord]) -> Restored:
    """Rebuild addresses, queues, messages, sessions.  Raises UnknownFormat, and errors of reading the journal."""
    bodies = state.journal.bodies
    fold = Fold(state.formats, state.journal.space, _pages, bodies=bodies, now=state.now)
    fold.read(records)
    restored = Restored(tasks=fold.tasks)
    for id in list(fold.addresses):  # taken out one by one: what is restored gets the memory of its definition
        state.registry.restore_address(id, fold.addresses.pop(id))
    for divert in fold.diverts.values():
        state.diverts.add(divert)
    for address in state.addresses.values():
        state.duplicates.restore(address, fold.duplicates.get(address.id, {}))
    for ids, few in _together(fold):
        tail_restore.read_together(state, few, fold.pulled)
        for id in ids:
            queue = state.registry.restore_queue(id, fold.queues.pop(id))
            restored.queues += 1
            restored.redelivered += _restore_messages(state, fold, queue)
    fold.sessions.finish(sessions, state.registry.queues_by_id, fold.held)
    on_disk = [queue.tail for queue in state.paged if queue.tail is not None]
    restored.messages = state.usage.messages + sum([tail.messages + tail.scheduled for tail in on_disk])
    return restored


def _together(fold: Fold) -> Iterator[tuple[list[int], list[Places]]]:
    """Yield the ids of all queues in order, some at a time, with the places of those with few messages."""
    queues: list[int] = []
    few: list[Places] = []
    for id in list(fold.queues):
        queues.append(id)
        places = fold.places.get(id)
        if places is not None and tail_restore.has_few(places):
            few.append(places)
            if len(few) == _READ_TOGETHER:
                yield queues, few
                queues, few = [], []
    yield queues, few


def _pages(definition: definitions.Json) -> bool:
    """Whether a queue's ready messages may stay on disk."""
    return definition["name"] != names.RETAINED and may_page(definitions.read_attributes(definition))


def _restore_messages(state: State, fold: Fold, queue: Queue) -> int:
    """Put the messages of one queue into memory or its tail.  Returns how many have been delivered before."""
    held = fold.held[queue.id]
    counts, due = fold.counts.get(queue.id, {}), fold.due.get(queue.id, {})
    places = fold.places.get(queue.id) or Places()
    redelivered = sum(1 for id in counts if id in held or id in places)
    waiting: dict[int, tuple[int, bool]] = {}
    if pageable(queue) and not tail_restore.fits(state, queue, places):
        held |= tail_restore.pull(state, places, fold.sessions.inflight.get(queue.id, {}))
        waiting = _waiting(state, queue, fold.later.get(queue.id, {}), due)
        for id, timestamp in tail_restore.timestamps(state, places, counts).items():
            queue.states[id] = DeliveryState(counts[id], timestamp)
    else:  # few messages, or the queue has changed since the first of them
        held |= tail_restore.pull_all(state, places, fold.pulled)
    # Sends to a queue that only routes may overtake a long commit in the journal, whatever the queue was when it began.
    if pageable(queue) or queue.id in fold.disordered or fold.places.get(queue.id) is not None:
        held = fold.held[queue.id] = dict(sorted(held.items()))
    kept = tail_restore.kept(state, places, held, [*due, *fold.sessions.inflight.get(queue.id, {})])
    for message in kept:
        _charge(state, [message])
        if message.id in counts:
            queue.states[message.id] = DeliveryState(counts[message.id], message.header.timestamp)
        del held[message.id]
    _fill(state, queue, held, counts, due)
    queue.stored += tail_restore.restore(state, queue, places, kept, waiting)
    if held or queue.stored:
        queue.acquired_below = state.journal.next_id
    return redelivered


def _fill(state: State, queue: Queue, held: dict[int, Message], counts: dict[int, int], due: dict[int, int]) -> None:
    """Put the messages of a queue into memory."""
    for id, count in counts.items():
        if id in held:
            queue.states[id] = DeliveryState(count, held[id].header.timestamp)
    ready: dict[int, list[Message]] = {}
    for header, same in groupby(held.values(), _HEADER):
        run = [*same]
        _charge(state, run)
        if header.group and not queue.grouped and queue.attributes.groups:
            queue.begin_groups()
        if due or header.scheduled:
            run = _not_scheduled(state, queue, run, due)
        ready.setdefault(header.priority, []).extend(run)
    for priority, messages in ready.items():
        queue.backlog.append(messages, priority)
        state.schedule.watch(queue, messages)
    state.totals.count_added(queue, len(held))
    queue.stored = len(held)


def _waiting(state: State, queue: Queue, later: dict[int, int], due: dict[int, int]) -> dict[int, tuple[int, bool]]:
    """Messages whose time has not come, by id: their times, and whether they wait for redelivery."""
    waiting = {id: (at, False) for id, at in later.items()}
    latest = state.now + queue.address.settings.redelivery_delay_max
    for id, at in due.items():
        if later.get(id) != at:
            waiting[id] = (min(at, latest), True)
    return {id: when for id, when in waiting.items() if when[0] > state.now}


def _not_scheduled(state: State, queue: Queue, run: list[Message], due: dict[int, int]) -> list[Message]:
    """Return the messages that are ready, and schedule the others."""
    ready: list[Message] = []
    now = state.now
    longest = queue.address.settings.redelivery_delay_max  # the clock may have been set back meanwhile
    for message in run:
        at = due.get(message.id, 0) or message.header.scheduled
        if at != message.header.scheduled:
            at = min(at, now + longest)
        if at > now:
            arrival.schedule(state, queue, message, at)
        else:
            ready.append(message)
    return ready


def _charge(state: State, run: list[Message]) -> None:
    """Count another queue's reference to messages with one header; count new ones in memory and their segments too."""
    uncounted = [message for message in run if not message.refs]
    for message in run:
        message.refs += 1
    if not uncounted:
        return
    state.room.charge(run[0].header.address, uncounted)
    for segment, count in Counter([message.segment for message in uncounted]).items():
        state.journal.space.hold(segment, count)
