"""A journal entry that stays open for several ticks, as a long commit is one entry; and what goes before it.

Everything that is recorded meanwhile goes into that entry too, and is confirmed with it, as it may depend on it: an
address that the commit has created, a message that it has returned.  What is known not to depend on it overtakes it,
in entries that are written meanwhile.  In the journal these come first, so they must not need the held one, after a
crash before its end, nor must it matter that their records come before those:

    messages sent      to queues that were there before the commit, and only route: their definitions are known; if
                       nothing joins them in their entry, as the packet identifier of a message of QoS 2 does
    acknowledgements   of consumers whose deliveries are not in the journal, unless the held entry has records about
                       messages of the queue that stay on it (`Ledger.touched`)

Both only of a connection that has nothing in the held entry, and only while the present call has recorded nothing in it
that may be the connection's: after a crash there is none of a producer's messages without those that it sent before,
and no message is gone that it sent on, and then acknowledged, without the one that it sent.

Once the held entry changes or deletes a definition, whoever did that, nothing more overtakes it
(`Journal.may_overtake`): after a crash the old one holds, and what was sent in between had been routed by the new one.

The messages land behind those of the held entry that came to the same queue earlier, so that each queue has its
messages in order of arrival; they are durable, and confirmed, before.  Nothing is trimmed or copied forward meanwhile:
the held entry may be what makes a segment unneeded.

A connection that has recorded anything in the held entry gets all its confirmations with it, in order (`end_call`).  So
does one that records nothing because something is in that entry already (`depend`): a duplicate, or a subscription to a
queue that was made meanwhile; and one that logs in meanwhile, since its client may send again what it has sent before.
A call may serve several connections: a rejected message that leaves room for another's.  All of them wait then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from broker.engine.queues.paging.tail import Landing
from broker.engine.queues.queue import Queue
from store.journal import Journal


class HeldEntry:
    """The entry that is held open.

    `landing`: the queues with messages that land with it; `paged`: runs whose place in the journal is not known yet.
    """

    __slots__ = ("_awaited_by", "_begun", "_depends", "_everyone", "_first_id", "_known", "_number", "landing", "paged")

    def __init__(self, first_id: int, number: int) -> None:
        self.landing: set[Queue] = set()
        self.paged: list[Landing] = []
        self._first_id = first_id
        self._number = number
        self._awaited_by: set[object] = set()
        self._everyone = False
        self._depends = 0  # calls so far that are answered by what is in the entry
        # How much there was to wait for, records and such calls, when the present call began, and when it was last
        # known who waits for all of it.
        self._begun = 0
        self._known = 0

    def next_number(self) -> int:
        """The number for the work of another tick that overtakes it."""
        self._number += 1
        return self._number - 1

    def is_older(self, queue: Queue) -> bool:
        """Whether a queue was there before."""
        return queue.id < self._first_id

    def sends_may_overtake(self, journal: Journal, transport: object) -> bool:
        """Whether what a connection sends next may be recorded before it: nothing in it is the connection's."""
        return journal.may_overtake and self._count(journal) == self._begun and not self.is_awaited_by(transport)

    def acknowledgements_may_overtake(self, journal: Journal, transport: object) -> bool:
        """Whether a connection's acknowledgements may be recorded before it: nothing in it may be the connection's.

        The present call may have recorded what the connection sent before it acknowledged.
        """
        return journal.may_overtake and self._count(journal) == self._known and not self.is_awaited_by(transport)

    # -- who waits for it ------------------------------------------------------------------------------------------

    def depend(self) -> None:
        """Note that the answer to the present call depends on what may be in the entry."""
        self._depends += 1

    def begin_call(self, journal: Journal) -> None:
        """Begin a call: if it is not known for whom the last one was that recorded something, everybody waits."""
        self._everyone |= self._count(journal) != self._known
        self.absorb(journal)

    def end_call(self, journal: Journal, transport: object) -> None:
        """Note that the present call is for this connection, among others, if it recorded something, or depends on it.

        None: it is for anybody.
        """
        count = self._count(journal)
        if count != self._begun:
            self._known = count
            self._everyone |= transport is None
            self.awaits(transport)

    def absorb(self, journal: Journal) -> None:
        """Begin a call: nobody's confirmations wait for what was recorded before it."""
        self._begun = self._known = self._count(journal)

    def _count(self, journal: Journal) -> int:
        return journal.held_count + self._depends

    @contextmanager
    def recording_for(self, journal: Journal, transport: object) -> Iterator[None]:
        """Record something for a connection, which waits for it, whoever the present call is for."""
        self.awaits(transport)
        before = self._count(journal)
        yield
        self._known += self._count(journal) - before

    def awaits(self, transport: object) -> None:
        """Note that a connection waits for it."""
        self._awaited_by.add(transport)

    def is_awaited_by(self, transport: object) -> bool:
        """Whether a connection waits for it; whoever has none always does."""
        return self._everyone or transport is None or transport in self._awaited_by
