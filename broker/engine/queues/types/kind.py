"""The rules of a queue with special attributes, at each event of a message.

    arrives           arrived      purged if the queue keeps nothing without consumers; a newer value replaces an older
                                   one; the oldest leave a ring, once consumers had their chance
    is delivered      delivered    it cannot be replaced or evicted while a consumer has it
    is returned       returned     replaced if there is a newer value; evicted if the ring is full without it
    becomes due       due          like an arrival for its producer's schedule, like a return after a redelivery delay
    leaves            left         its key is free

`takers` says which consumers may get messages.  (Artemis semantics 1.6, 1.7; the seeds' sections 4.9 to 4.12.)
"""

from __future__ import annotations

from copy import copy
from typing import Final

from broker.engine.model.message import Message
from broker.engine.queues import arrival
from broker.engine.queues.queue import Consumer, Queue
from broker.engine.queues.removal import remove
from broker.engine.queues.state import State
from broker.engine.queues.steps import LongWork
from broker.engine.queues.types.gate import Gate
from broker.engine.queues.types.grouped import RELEASE_COST, GroupedBacklog
from broker.engine.queues.types.last_value import LastValues
from store.record import RemovalReason

#: How many messages are brought under new rules in one step, and what each costs, in microseconds (`steps`).
LEARNED_TOGETHER: Final = 128
LEARN_COST: Final = 8

#: How many groups become free in one step.
RELEASED_TOGETHER: Final = 512


def equip(queue: Queue) -> None:
    """Set `queue.kind` as its attributes require."""
    queue.kind = Kind(queue) if queue.attributes.rules else None


def release_groups(state: State, queue: Queue) -> None:
    """Free the groups that no consumer holds any more: in steps, as there may be 65,536 of them."""
    backlog, owner = queue.backlog, ("groups", queue.id)
    if isinstance(backlog, GroupedBacklog) and backlog.is_releasing and not state.steps.is_busy(owner):
        state.steps.begin(owner, _release(state, queue, backlog))


def _release(state: State, queue: Queue, backlog: GroupedBacklog) -> LongWork:
    while backlog.is_releasing and queue.backlog is backlog and not queue.deleted:
        count = backlog.release(state.steps.at_most(RELEASED_TOGETHER))
        state.dirty[queue] = None  # its consumers may get the messages that waited
        yield RELEASE_COST * count


class Kind:
    """The rules of one queue, as its attributes require."""

    __slots__ = ("_added", "_gate", "_only", "_queue", "values")

    def __init__(self, queue: Queue) -> None:
        attributes = queue.attributes
        self._queue = queue
        self.values = LastValues(attributes.key) if attributes.key else None
        self._gate: Gate | None = None
        if attributes.consumers_before_dispatch > 0:
            self._gate = Gate(attributes.consumers_before_dispatch, attributes.delay_before_dispatch)
        self._only: Consumer | None = None  # the one that gets everything (exclusive)
        self._added = 0  # messages that arrived since the ring was last cut

    def succeed(self, state: State, before: Kind | None) -> None:
        """Take over from the queue's former rules; None: they lack the state that these need (`learn`)."""
        if before is not None:
            self._only, self._added = before._only, before._added
            self.values = before.values
        if self._gate is None:
            return
        if before is not None and before._gate is not None and before._gate.rule == self._gate.rule:
            self._gate = before._gate
        elif self._queue.consumers:
            self._gate.open()  # a changed rule applies from the next first consumer on

    def arrived(self, state: State, messages: list[Message]) -> list[Message]:
        """Handle the arrival of a run; returns the messages that become ready."""
        queue = self._queue
        state.dirty[queue] = None
        if self._keeps_nothing:
            self.purge(state, messages)
            return []
        if self.values is not None:
            messages = self._replace_by(state, messages)
        self._added += len(messages)
        return messages

    def _replace_by(
        self, state: State, messages: list[Message], entering: list[Message] | None = None
    ) -> list[Message]:
        """Remove the values that these messages replace; returns those that stay, after others that are `entering`."""
        values = self.values
        assert values is not None
        staying = {message.id: message for message in entering or ()}
        replaced: list[Message] = []
        for message in messages:
            staying[message.id] = message
            loser = values.arrived(message)
            if loser is None:
                continue
            if staying.pop(loser.id, None) is None:
                arrival.take_out(state, self._queue, loser)
            replaced.append(loser)
        self._replaced(state, replaced)
        return list(staying.values())

    def delivered(self, messages: list[Message]) -> None:
        """Handle the delivery of messages to a consumer."""
        if self.values is not None:
            self.values.delivered(messages)

    def returned(self, state: State, messages: list[Message]) -> list[Message]:
        """Handle returned deliveries; returns those that stay, for redelivery."""
        if self._keeps_nothing:
            self.purge(state, messages)
            return []
        values = self.values
        if values is None:
            return messages
        staying: list[Message] = []
        replaced: list[Message] = []
        for message in messages:
            (staying if values.returned(message) else replaced).append(message)
        self._replaced(state, replaced)
        return staying

    def due(self, state: State, messages: list[Message]) -> list[Message]:
        """Handle scheduled messages whose time has come; returns those that become ready."""
        values = self.values
        if values is None:
            return self.fitting(state, self.returned(state, messages))
        new = [message for message in messages if not values.knows(message)]
        back = self.returned(state, [message for message in messages if values.knows(message)])
        return self.fitting(state, self._replace_by(state, new, back))

    def fitting(self, state: State, messages: list[Message]) -> list[Message]:
        """Those messages to be put back for which a ring has room: the last ones; the others are evicted."""
        size = self._queue.attributes.ring_size
        room = size - self._queue.ready
        if size < 0 or len(messages) <= room:
            return messages
        in_order = sorted(messages, key=lambda message: (-message.header.priority, message.id))
        cut = len(in_order) - max(room, 0)
        self._evict(state, in_order[:cut])
        return in_order[cut:]

    def cut(self, state: State, *, everything: bool = False) -> None:
        """Evict the oldest messages of a ring that is too long: one for each arrival, or all beyond its size."""
        if self._queue.tail is not None:
            return  # older messages are being read back
        added, self._added = self._added, 0
        size = self._queue.attributes.ring_size
        excess = self._queue.ready - size
        if size < 0 or excess <= 0:
            return
        oldest = self._queue.backlog.take_head(excess if everything else min(excess, added))
        state.schedule.unwatch(self._queue, oldest)
        self._evict(state, oldest)

    def left(self, messages: list[Message]) -> None:
        """Handle messages leaving the queue."""
        if self.values is not None:
            self.values.left(messages)
        backlog = self._queue.backlog
        if isinstance(backlog, GroupedBacklog) and backlog.first:
            backlog.left(messages)

    def restored(self, state: State, in_flight: list[Message]) -> None:
        """Apply the rules to the messages found after a restart; those `in_flight` will be deliveries again."""
        if self._keeps_nothing:
            return
        queue = self._queue
        for message in in_flight:
            queue.backlog.discard(message)
        if self.values is not None:
            for _ in self.learn(state, in_flight):
                pass
        self.cut(state, everything=True)
        if in_flight:
            queue.backlog.put_back(in_flight)

    def learn(self, state: State, in_flight: list[Message] | None = None) -> LongWork:
        """Learn the keys of all messages on the queue, and remove those replaced by others.

        Newer ones may arrive meanwhile, but nothing may be delivered.
        """
        values, queue = self.values, self._queue
        if values is None:
            return
        self._learn(state, values, sorted(in_flight or [], key=lambda message: message.id), away=True)
        after, below = -1, state.journal.allocate_ids(1)  # larger than that of any message so far
        together = state.steps.at_most(LEARNED_TOGETHER)
        while not queue.deleted and queue.kind is not None and queue.kind.values is values:
            run = queue.between(after, below, together)
            if not run:
                return
            after = run[-1].id
            if queue.scheduled:  # those that wait for their first time arrive then
                run = [message for message in run if queue.due_of(message.id) != (message.header.scheduled or -1)]
            self._learn(state, values, [message for message in run if not values.knows(message)])
            yield LEARN_COST * together

    def _learn(self, state: State, values: LastValues, messages: list[Message], *, away: bool = False) -> None:
        losers: list[Message] = []
        for message in messages:
            loser = values.arrived(message)
            if away:
                values.delivered([message])
            elif loser is not None:
                losers.append(loser)
        for loser in losers:
            arrival.take_out(state, self._queue, loser)
        self._replaced(state, losers)

    @property
    def _keeps_nothing(self) -> bool:
        return self._queue.attributes.purge_on_no_consumers and not self._queue.consumers

    def _replaced(self, state: State, messages: list[Message]) -> None:
        if messages:
            remove(state, self._queue, messages, RemovalReason.REPLACED)

    def _evict(self, state: State, messages: list[Message]) -> None:
        if messages:
            remove(state, self._queue, messages, RemovalReason.EVICTED)

    def purge(self, state: State, messages: list[Message]) -> None:
        """Remove messages, taken out of their container, that the queue does not keep without consumers."""
        remove(state, self._queue, messages, RemovalReason.PURGED)

    def clock_jumped(self, by_ms: int) -> None:
        """Adjust the delay before dispatch after the clock was set."""
        if self._gate is not None:
            self._gate.clock_jumped(by_ms)

    def attached(self, state: State) -> int | None:
        """Handle a new consumer; returns when the queue must be served even if nothing else happens, or None."""
        queue = self._queue
        backlog = queue.backlog
        if queue.attributes.group_rebalance and isinstance(backlog, GroupedBacklog):
            backlog.draining = queue.attributes.group_rebalance_pause_dispatch and queue.delivering > 0
            if not backlog.draining:
                backlog.reset()
                release_groups(state, queue)
        if self._gate is not None and len(queue.consumers) == 1 and not queue.delivering:
            return self._gate.first_came(state.now)
        return None

    def takers(self, state: State) -> list[Consumer]:
        """The consumers that may get messages now."""
        queue = self._queue
        if self._gate is not None and not self._gate.is_open(len(queue.consumers), state.now):
            return []
        backlog = queue.backlog
        if isinstance(backlog, GroupedBacklog) and backlog.draining:
            if queue.delivering:
                return []
            backlog.draining = False
            backlog.reset()
            release_groups(state, queue)
        candidates = self._exclusive() if queue.attributes.exclusive else queue.consumers
        return [consumer for consumer in candidates if consumer.credit > 0 and not consumer.paused]

    def _exclusive(self) -> list[Consumer]:
        """The consumer that gets everything: the first of the highest priority, until it leaves.

        The next one begins once no other consumer has deliveries, to preserve the order.
        """
        queue = self._queue
        if self._only is None or self._only.closed:
            best = max(queue.consumers, key=lambda consumer: consumer.priority)
            if queue.delivering != len(best.unacked) and not queue.non_destructive:
                return []
            self._only = best
        return [self._only]

    def shown(self, messages: list[Message]) -> list[Message]:
        """The messages as the consumer gets them: the first of a group is marked (group-first-key)."""
        queue = self._queue
        name, backlog = queue.attributes.group_first_key, queue.backlog
        if not name or not isinstance(backlog, GroupedBacklog) or not (backlog.first or backlog.owed):
            return messages
        shown: list[Message] = []
        for message in messages:
            if backlog.is_first(message):
                message = copy(message)
                message.head = message.header.format.edited(message.head, (), {name: True})
            shown.append(message)
        return shown
