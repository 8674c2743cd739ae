"""A journal entry that stays open for several ticks, as a long commit is one entry; and what goes before it.

Everything that is recorded meanwhile goes into that entry too, and is confirmed with it, as it may depend on it: an
address that the commit has created, a message that it has returned.  What is known not to depend on it overtakes it,
in entries that are written meanwhile.  In the journal these come first, so they must not need the held one, after a
crash before its end, nor must it matter that their records come before those:

    messages sent      to queues that were there before the commit, and only route: their definitions are known
    acknowledgements   of consumers whose deliveries are not in the journal, unless the held entry has records about
                       messages of the queue that stay on it (`Ledger.touched`)

The messages land behind those of the held entry that came to the same queue earlier, so that each queue has its
messages in order of arrival; they are durable, and confirmed, before.  Nothing is trimmed or copied forward meanwhile:
the held entry may be what makes a segment unneeded.

A connection that has recorded anything in the held entry gets all its confirmations with it, in order (`end_call`).  So
does one that records nothing because something is in that entry already (`depend`): a duplicate, or a subscription to a
queue that was made meanwhile; and one that logs in meanwhile, since its client may send again what it has sent before.
"""

from __future__ import annotations

from broker.engine.queues.paging.tail import Landing
from broker.engine.queues.queue import Queue
from store.journal import Journal


class HeldEntry:
    """The entry that is held open.

    `landing`: the queues with messages that land with it; `paged`: runs whose place in the journal is not known yet.
    """

    __slots__ = ("_awaited_by", "_depends", "_everyone", "_first_id", "_number", "_seen", "landing", "paged")

    def __init__(self, first_id: int, number: int) -> None:
        self.landing: set[Queue] = set()
        self.paged: list[Landing] = []
        self._first_id = first_id
        self._number = number
        self._awaited_by: set[object] = set()
        self._depends = False  # the present call is answered by what is in the entry
        self._everyone = False
        self._seen = 0  # records of the entry of which it is known who waits for them

    def next_number(self) -> int:
        """The number for the work of another tick that overtakes it."""
        self._number += 1
        return self._number - 1

    def is_older(self, queue: Queue) -> bool:
        """Whether a queue was there before."""
        return queue.id < self._first_id

    # -- who waits for it ------------------------------------------------------------------------------------------

    def depend(self) -> None:
        """Note that the answer to the present call depends on what may be in the entry."""
        self._depends = True

    def begin_call(self, journal: Journal) -> None:
        """Begin a call: if it is not known for whom the last one was that recorded something, everybody waits."""
        if self._is_concerned(journal):
            self._everyone = True

    def end_call(self, journal: Journal, transport: object) -> None:
        """Note for whom the calls since then were, if they recorded something, or depend on it; None: for anybody."""
        if self._is_concerned(journal):
            self._everyone |= transport is None
            self.awaits(transport)

    def _is_concerned(self, journal: Journal) -> bool:
        concerned = self._depends or journal.held_count != self._seen
        self._seen, self._depends = journal.held_count, False
        return concerned

    def absorb(self, journal: Journal) -> None:
        """Note that nobody's confirmations wait for what was recorded since."""
        self._seen = journal.held_count

    def awaits(self, transport: object) -> None:
        """Note that a connection waits for it."""
        self._awaited_by.add(transport)

    def is_awaited_by(self, transport: object) -> bool:
        """Whether a connection waits for it; whoever has none always does."""
        return self._everyone or transport is None or transport in self._awaited_by
