"""The rules of a queue with special attributes: what they say at each event of a message.

    arrives           arrived      purged if the queue keeps nothing without consumers; a newer value replaces an older
                                   one; the oldest leave a ring, once consumers had their chance (`excess`)
    is delivered      delivered    it cannot be replaced or evicted while a consumer has it
    is returned       returned     replaced if there is a newer value; evicted from a full ring (`fitting`)
    becomes due       due          like an arrival for its producer's schedule, like a return after a redelivery delay
    leaves            left         its key is free

They decide, and do nothing: a verdict names the messages that stay, in order, and those that leave, each with its
reason.  Among these may be others than those that the event is about, which wait on the queue.  `arrival.apply` carries
a verdict out.  So this room imports nothing of the engine but its model.

`consumer_rules` says which consumers may get messages.  (Artemis semantics 1.6, 1.7; the seeds' sections 4.9 to 4.12.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.engine.model.attributes import PLAIN, QueueAttributes
from broker.engine.model.message import Message
from broker.engine.queues.rules.gate import Gate
from broker.engine.queues.rules.last_value import LastValues
from store.record import RemovalReason

#: The messages that stay, and those that leave.
Verdict = tuple[list[Message], list[tuple[Message, RemovalReason]]]


class QueueRules:
    """The rules of one queue, as its attributes require.  `attended`: whether the queue has consumers."""

    __slots__ = ("_added", "_gate", "_purges", "_ring_size", "only", "values")

    def __init__(self, attributes: QueueAttributes) -> None:
        self.values = LastValues(attributes.key) if attributes.key else None
        self.only: object = None  # the consumer that gets everything (exclusive), as `consumer_rules` has chosen
        self._gate: Gate | None = None
        if attributes.consumers_before_dispatch > 0:
            self._gate = Gate(attributes.consumers_before_dispatch, attributes.delay_before_dispatch)
        self._ring_size = attributes.ring_size
        self._purges = attributes.purge_on_no_consumers
        self._added = 0  # messages that arrived since the ring was last cut

    def succeed(self, before: QueueRules | None, *, attended: bool) -> None:
        """Take over from the queue's former rules; None: they lack the state that these need (`learned`)."""
        if self is NO_RULES:
            return  # they are the rules of others, too
        assert before is not self, "a change of attributes makes new rules"
        if before is not None:
            self.only, self._added = before.only, before._added
            self.values = before.values
        if self._gate is None:
            return
        if before is not None and before._gate is not None and before._gate.rule == self._gate.rule:
            self._gate = before._gate
        elif attended:
            self._gate.open()  # a changed rule applies from the next first consumer on

    # -- messages --------------------------------------------------------------------------------------------------

    def arrived(self, messages: list[Message], *, attended: bool) -> Verdict:
        """A run arrives."""
        assert self is not NO_RULES, "it would count the arrivals of all plain queues"
        if self._purges and not attended:
            return [], _because(RemovalReason.PURGED, messages)
        ready, leaving = (messages, []) if self.values is None else self._replacing(self.values, messages)
        self._added += len(ready)
        return ready, leaving

    def delivered(self, messages: list[Message]) -> None:
        """A consumer gets messages."""
        if self.values is not None:
            self.values.delivered(messages)

    def returned(self, messages: list[Message], *, attended: bool) -> Verdict:
        """Deliveries return, and would be delivered again."""
        if self._purges and not attended:
            return [], _because(RemovalReason.PURGED, messages)
        values = self.values
        if values is None:
            return messages, []
        staying, replaced = list[Message](), list[Message]()
        for message in messages:
            (staying if values.returned(message) else replaced).append(message)
        return staying, _because(RemovalReason.REPLACED, replaced)

    def due(self, messages: list[Message], *, attended: bool) -> Verdict:
        """The time of scheduled messages has come."""
        values = self.values
        if values is None:
            return self.returned(messages, attended=attended)
        new = [message for message in messages if not values.knows(message)]
        back = [message for message in messages if values.knows(message)]
        staying, leaving = self.returned(back, attended=attended)
        ready, replaced = self._replacing(values, new, staying)
        return ready, leaving + replaced

    def fitting(self, messages: list[Message], ready: int) -> Verdict:
        """Messages are to be put back before others: a ring that has so many `ready` has room for the last of them."""
        room = self._ring_size - ready
        if self._ring_size < 0 or len(messages) <= room:
            return messages, []
        in_order = sorted(messages, key=lambda message: (-message.header.priority, message.id))
        cut = len(in_order) - max(room, 0)
        return in_order[cut:], _because(RemovalReason.EVICTED, in_order[:cut])

    def excess(self, ready: int, *, everything: bool = False, crowded: bool = False) -> int:
        """How many of the oldest leave a ring with so many `ready`: one for each arrival, or all beyond its size.

        `crowded`: memory has no room for more, so it must not grow, whatever its size may be; it keeps the newest.
        """
        added, self._added = self._added, 0
        excess = ready - self._ring_size
        if self._ring_size < 0:
            return 0
        if crowded:
            excess = max(excess, min(added, ready - 1))
        if excess <= 0:
            return 0
        return excess if everything else min(excess, added)

    def left(self, messages: list[Message]) -> None:
        """Messages leave the queue."""
        if self.values is not None:
            self.values.left(messages)

    def learned(self, messages: Iterable[Message], *, away: bool = False) -> Verdict:
        """Messages that were on the queue before it had these rules come under them; `away`: they are in delivery."""
        values, losers = self.values, list[Message]()
        if values is None:
            return [], []
        for message in messages:
            loser = values.arrived(message)
            if away:
                values.delivered([message])
            elif loser is not None:
                losers.append(loser)
        return [], _because(RemovalReason.REPLACED, losers)

    def _replacing(self, values: LastValues, messages: list[Message], entering: Iterable[Message] = ()) -> Verdict:
        """These messages arrive, after others that are `entering`, and replace what has their keys."""
        staying = {message.id: message for message in entering}
        replaced: list[Message] = []
        for message in messages:
            staying[message.id] = message
            loser = values.arrived(message)
            if loser is not None:
                staying.pop(loser.id, None)
                replaced.append(loser)
        return list(staying.values()), _because(RemovalReason.REPLACED, replaced)

    # -- when deliveries begin ---------------------------------------------------------------------------------------

    def first_came(self, now: int) -> int | None:
        """The first consumer has come; returns when deliveries begin in any case, None: see `Gate`."""
        return None if self._gate is None else self._gate.first_came(now)

    def is_open(self, consumers: int, now: int) -> bool:
        """Whether this number of consumers may be served."""
        return self._gate is None or self._gate.is_open(consumers, now)

    def clock_jumped(self, by_ms: int) -> None:
        """Adjust the delay before dispatch after the clock was set."""
        if self._gate is not None:
            self._gate.clock_jumped(by_ms)


def _because(reason: RemovalReason, messages: list[Message]) -> list[tuple[Message, RemovalReason]]:
    return [(message, reason) for message in messages]


#: The rules of all queues that have none.
NO_RULES: Final = QueueRules(PLAIN)


def rules_for(attributes: QueueAttributes) -> QueueRules:
    """The rules that a queue with these attributes needs."""
    return QueueRules(attributes) if attributes.rules else NO_RULES
