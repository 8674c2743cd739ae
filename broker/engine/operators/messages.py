"""Operators' verbs on the messages of a queue.

A verb on a range of messages does one step, see `moves.transfer`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from broker.engine.delivery.subscribe import parse_selector
from broker.engine.model.access import UNRESTRICTED, Access
from broker.engine.model.errors import NotFound
from broker.engine.model.message import Message, PropertyView
from broker.engine.model.permissions import Permission
from broker.engine.moves import dead_letter, insertion, replay, transfer
from broker.engine.moves.dead_letter_groups import DeadLetterGroups
from broker.engine.moves.insertion import Inserted, Insertion
from broker.engine.moves.replay import Replayed, ReplayItem
from broker.engine.moves.transfer import AS_THEY_ARE, MessageRange, MoveOptions, MoveResult
from broker.engine.queues import clearing, reading
from broker.engine.queues.cursors import HEAD_BYTES, MATCH_COST
from broker.engine.queues.paging import upkeep
from broker.engine.queues.queue import Queue
from broker.engine.queues.removal import settle_acknowledged
from broker.engine.queues.state import State
from broker.engine.queues.steps import STEP
from store.record import RemovalReason

#: What it costs to look at a message without a selector, and how many are listed in a microsecond (`queues.steps`).
LOOK_COST: Final = 1
LISTED_FOR_A_MICROSECOND: Final = 64

#: The largest message id.
MESSAGE_ID_MAX: Final = (1 << 63) - 1


class QueueMessages:
    """The verbs on the messages of one broker's queues."""

    def __init__(self, state: State) -> None:
        self._state = state

    @property
    def next_id(self) -> int:
        """The next message's id, larger than any so far."""
        return self._state.journal.next_id

    def browse(self, queue: Queue, selector: str = "", access: Access = UNRESTRICTED) -> Iterator[tuple[Message, str]]:
        """All messages of a queue, each with its place: ready, scheduled or delivering.

        Raises Denied, InvalidSelector.
        """
        access.require(Permission.BROWSE, queue.address.name, queue.name)
        filter = parse_selector(selector)
        settle_acknowledged(self._state)
        places = upkeep.places(self._state, queue)
        return (each for each in places if filter is None or filter.matches(PropertyView(each[0])))

    def look(self, queue: Queue, selector: str, access: Access) -> Iterator[Message | None]:
        """The messages of a queue that are not scheduled, as clients browse them.  Nothing is read before the first.

        None: it has taken a step's budget (`steps`), or all that the tick had, to find no further one yet.  Raises
        Denied, InvalidSelector.
        """
        access.require(Permission.BROWSE, queue.address.name, queue.name)
        parse_selector(selector)
        return self._look(queue, selector)

    def _look(self, queue: Queue, selector: str) -> Iterator[Message | None]:
        state, steps = self._state, self._state.steps
        filter = parse_selector(selector)  # again: of browsers that wait for their turn only the text is in memory
        settle_acknowledged(state)
        cost = LOOK_COST if filter is None else MATCH_COST + filter.cost
        spent = queue.ready // LISTED_FOR_A_MICROSECOND
        steps.spend(spent)
        for each in upkeep.places_in_steps(state, queue):
            if spent >= STEP or steps.left <= 0:
                spent = 0
                yield None
            if each is None:
                steps.spend(upkeep.ORDER_COST)
                spent += upkeep.ORDER_COST
                continue
            message, place = each
            found = filter is None or filter.matches(PropertyView(message))
            matching = cost if filter is None else cost + len(message.head) // HEAD_BYTES
            steps.spend(matching)
            spent += matching
            if found and place != "scheduled":
                yield message

    def may_die(self, queue: Queue, message: Message) -> bool:
        """Whether a dead-letter address would keep a message of a queue if it died."""
        settings = dead_letter.settings_of(self._state, queue, message)
        return dead_letter.keeps(self._state, settings, queue.address.name, message)

    def page(self, queue: Queue, after: int, most: int) -> list[tuple[Message, str]]:
        """At most `most` messages of a queue with ids above `after`, oldest first, each with its place.

        Like `browse`, but cheap wherever it begins.  Raises NotReadable.
        """
        settle_acknowledged(self._state)
        found = upkeep.between(self._state, queue, after, MESSAGE_ID_MAX + 1, most)
        page = [(message, "scheduled" if queue.due_of(message.id) else "ready") for message in found]
        held = {message.id: message for message in reading.held(queue)}
        ids = sorted(held)
        first = bisect_right(ids, after)
        page += [(held[id], "delivering") for id in ids[first : first + most]]
        page.sort(key=lambda each: each[0].id)
        return page[:most]

    def find(self, queue: Queue, id: int) -> tuple[Message, str]:
        """One message of a queue with its place, as in `browse`.  Raises NotFound, NotReadable."""
        settle_acknowledged(self._state)
        for message in upkeep.between(self._state, queue, id - 1, id + 1, 1):
            return message, "scheduled" if queue.due_of(id) else "ready"
        for deliveries in reading.deliveries(queue):
            if id in deliveries:
                return deliveries[id], "delivering"
        raise NotFound(f"queue {queue.name} has no message {id}")

    def purge(self, queue: Queue, *, deleting: bool = False) -> int:
        """Remove some ready and scheduled messages by name, few enough not to delay other clients.

        They are purged, or deleted if their queue is about to be.  Returns how many, 0 if none were left.  Raises
        DiskFull.
        """
        settle_acknowledged(self._state)
        reason = RemovalReason.DELETED if deleting else RemovalReason.PURGED
        return clearing.purge(self._state, queue, reason)

    def retry(self, queue: Queue, selection: MessageRange, options: MoveOptions = AS_THEY_ARE) -> MoveResult:
        """Move messages back to where they came from, one step.  Raises NotReadable."""
        self._state.begin()
        settle_acknowledged(self._state)
        step, run = transfer.choose(self._state, queue, selection, options.edit.extra_bytes)
        transfer.send_back(self._state, queue, run, step, options)
        return step

    def move(
        self, queue: Queue, target: str, selection: MessageRange, options: MoveOptions = AS_THEY_ARE
    ) -> MoveResult:
        """Move messages to an address, a queue or an FQQN, one step.

        Raises NotFound, InvalidName, RoutingTypeMismatch, OntoItself, NotReadable.
        """
        self._state.begin()
        settle_acknowledged(self._state)
        found = transfer.destination(self._state, target, queue, create=not options.dry_run)
        step, run = transfer.choose(self._state, queue, selection, options.edit.extra_bytes)
        transfer.send(self._state, queue, step, [(message, found, target) for message in run], options)
        return step

    def discard(self, queue: Queue, selection: MessageRange, options: MoveOptions = AS_THEY_ARE) -> MoveResult:
        """Remove messages by name (purged), one step.  Raises NotReadable."""
        self._state.begin()
        settle_acknowledged(self._state)
        step, run = transfer.choose(self._state, queue, selection)
        if options.dry_run:
            step.moved = len(run)
        else:
            transfer.take_away(self._state, queue, run, step, RemovalReason.PURGED)
        return step

    def dead_letter_queues(self) -> list[Queue]:
        """The queues for dead or expired messages by any setting, by name; not the broker's own."""
        return [queue for queue in self._state.registry.dead_letter_queues() if not queue.internal]

    def group_step(self, groups: DeadLetterGroups) -> None:
        """Count the next dead letters of `groups`, unless it is complete; changes nothing.

        Raises NotReadable: the disk cannot be read for now, and the next step tries again.
        """
        settle_acknowledged(self._state)
        if not groups.complete:
            groups.step(self._state)

    def replay(self, name: str, items: Iterable[ReplayItem], done: Replayed) -> None:
        """Bring messages back from the journal, in order; `done` counts them.

        Raises EngineError where it must stop.
        """
        replay.replay(self._state, name, items, done)

    def insert(self, id: bytes, target: str, items: Sequence[Insertion], *, dry_run: bool = False) -> Inserted:
        """Put a run of exported messages on an address, a queue or an FQQN, unchanged; `id` identifies the run.

        `dry_run`: only count what would be done.  Raises NotFound, InvalidName, RoutingTypeMismatch, AddressFull,
        DiskFull.
        """
        self._state.begin()
        return insertion.insert(self._state, id, target, items, dry_run=dry_run)
