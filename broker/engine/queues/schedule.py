"""The schedule: what is due when.

    scheduled       messages in memory that wait for their time, or for a redelivery
    expiries        messages in memory that are ready, and expire
    paged_...       the same for chunks of messages on disk, each by the first of its messages that is due
    alarms          calls at a given time

A message in memory is in `Queue.scheduled` or counted in `Queue.expiring` as long as it is here.
"""

from __future__ import annotations

from itertools import islice

from broker.engine.model.message import Message
from broker.engine.model.timetable import NEVER, Soonest, Timetable
from broker.engine.queues.alarms import Alarms
from broker.engine.queues.paging.tail import Chunk
from broker.engine.queues.queue import Queue


class Schedule:
    """The timetables of one engine.  Unless it `expires`, nothing looks for messages that have expired."""

    __slots__ = (
        "alarms",
        "expires",
        "expiries",
        "paged_expiries",
        "paged_scheduled",
        "scheduled",
        "session_alarms",
        "soonest",
    )

    def __init__(self, *, expires: bool) -> None:
        self.expires = expires
        #: Before when nothing is due.
        self.soonest = soonest = Soonest()
        self.alarms = Alarms(soonest)
        #: The wills and the ends of client sessions: thousands may be due at once, and each may write much.
        self.session_alarms = Alarms(soonest)
        scanned = soonest if expires else None
        self.scheduled: Timetable[tuple[int, int], tuple[Queue, Message]] = Timetable(soonest)
        self.expiries: Timetable[tuple[int, int], tuple[Queue, Message]] = Timetable(scanned)
        self.paged_scheduled: Timetable[int, tuple[Queue, Chunk]] = Timetable(soonest)
        self.paged_expiries: Timetable[int, tuple[Queue, Chunk]] = Timetable(scanned)

    def next_due(self, *, writing: bool) -> int:
        """When the next of them is due, or NEVER; not `writing`: of those that add nothing to the journal."""
        times = [self.scheduled.next_due(), self.paged_scheduled.next_due(), self.alarms.next_due()]
        if writing:
            times.append(self.session_alarms.next_due())
            if self.expires:
                times += [self.expiries.next_due(), self.paged_expiries.next_due()]
        return min([time for time in times if time is not None], default=NEVER)

    def clock_jumped(self, jump: int) -> None:
        """Shift the alarms after the clock has jumped; messages are those of `clock_changes`."""
        self.alarms.move(jump)
        self.session_alarms.move(jump)

    # -- messages in memory ----------------------------------------------------------------------------------------

    def hold(self, queue: Queue, message: Message, due: int) -> None:
        """Hold a message back until `due` (ms since the epoch)."""
        queue.hold(message, due)
        self.scheduled.add(due, (queue.id, message.id), (queue, message))

    def release(self, queue: Queue, most: int) -> list[Message]:
        """Take at most `most` messages that are held back, whatever their time; returns them."""
        taken = list(islice(queue.scheduled.values(), max(most, 0)))
        for due, message in taken:
            del queue.scheduled[message.id]
            self.scheduled.remove(due, (queue.id, message.id))
        return [message for _, message in taken]

    def watch(self, queue: Queue, messages: list[Message]) -> None:
        """Watch the expirations of messages that have just become ready."""
        for message in messages:
            expiration = message.header.expiration
            if expiration:
                self.expiries.add(expiration, (queue.id, message.id), (queue, message))
                queue.expiring += 1

    def unwatch(self, queue: Queue, messages: list[Message]) -> list[Message]:
        """Stop watching the expirations of messages that are no longer ready; returns those that were watched."""
        watched: list[Message] = []
        for message in messages:
            expiration = message.header.expiration
            if expiration and self.expiries.remove(expiration, (queue.id, message.id)):
                watched.append(message)
        queue.expiring -= len(watched)
        assert queue.expiring >= 0, "each was counted when it became ready"
        return watched

    # -- messages on disk ------------------------------------------------------------------------------------------

    def hold_chunk(self, queue: Queue, chunk: Chunk, due: int) -> None:
        """Watch a chunk that has a message held back until then."""
        if due and (not chunk.watched or due < chunk.watched):
            if chunk.watched:
                self.paged_scheduled.remove(chunk.watched, id(chunk))
            chunk.watched = due
            self.paged_scheduled.add(due, id(chunk), (queue, chunk))

    def watch_chunk(self, queue: Queue, chunk: Chunk, expiration: int) -> None:
        """Watch a chunk that has a message with this expiration."""
        if expiration and (not chunk.expires or expiration < chunk.expires):
            self.unwatch_chunk(chunk)
            chunk.expires = expiration
            self.paged_expiries.add(expiration, id(chunk), (queue, chunk))

    def unwatch_chunk(self, chunk: Chunk) -> None:
        """Stop watching the expirations of a chunk, and what it has that is held back."""
        if chunk.watched:
            self.paged_scheduled.remove(chunk.watched, id(chunk))
            chunk.watched = 0
        if chunk.expires:
            self.paged_expiries.remove(chunk.expires, id(chunk))
            chunk.expires = 0
