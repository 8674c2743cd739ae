"""Slow consumers: those that acknowledge less than they should while their queue has work for them.

A consumer is slow if, at both ends of a period (`slow-consumer-check-period`), it had unacknowledged messages or did
not ask for those waiting on its queue, and over the period it acknowledged fewer than `slow-consumer-threshold`
demands.  One that asks and holds nothing waits for messages and is not slow, whatever the reason: its queue is empty or
paused, or the messages go to others (exclusive queues, priorities, groups).  Nor is one that attached within the
period.

With NOTIFY a slow consumer is reported (log, and notification CONSUMER_SLOW); with KILL it is also closed, and its
messages go back to the queue for others.  Only the oldest counts as a failed delivery: it may be what the consumer is
stuck at, while the others were perhaps never looked at.  Over STOMP that ends the connection; AMQP detaches the link.

Only consumers on addresses that set a threshold are checked, with one alarm for each distinct period.
"""

from __future__ import annotations

from typing import Final

from broker.engine.delivery import closing
from broker.engine.delivery.redelivery import SLOW
from broker.engine.model.settings import AddressSettings, SlowConsumerPolicy, SlowConsumerUnit
from broker.engine.queues.queue import Consumer, Queue
from broker.engine.queues.state import State
from broker.engine.queues.steps import LongWork, gathered

#: What it costs to look at an address, and at a consumer, in microseconds (`steps`).
LOOK_COST: Final = 1
CONSUMER_COST: Final = 4

_UNIT_MS: Final = {
    SlowConsumerUnit.MESSAGES_PER_SECOND: 1_000,
    SlowConsumerUnit.MESSAGES_PER_MINUTE: 60_000,
    SlowConsumerUnit.MESSAGES_PER_HOUR: 3_600_000,
    SlowConsumerUnit.MESSAGES_PER_DAY: 86_400_000,
}


class _Look:
    """A consumer's state when last looked at: how much it had acknowledged, the time, and whether it was busy."""

    __slots__ = ("at", "busy", "settled")

    def __init__(self, consumer: Consumer, now: int) -> None:
        self.at = now
        self.settled = consumer.settled
        self.busy = _is_busy(consumer)


class SlowConsumers:
    """Checks the consumers of addresses with a threshold."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._looks: dict[Consumer, _Look] = {}

    def apply_settings(self) -> LongWork:
        """Start a check for each period that some address has, after a change of settings or addresses."""
        for address in list(self._state.addresses.values()):
            if address.settings.slow_consumer_threshold >= 0:
                self.schedule_check(address.settings.slow_consumer_check_period)
            yield LOOK_COST

    def schedule_check(self, period: int) -> None:
        """Check every `period` ms, unless that is done already."""
        if not self._state.alarms.is_set(("slow-consumers", period)):
            due = self._state.now + period
            self._state.alarms.at(("slow-consumers", period), due, lambda: self._begin_check(period))

    def clock_jumped(self) -> None:
        """Forget all looks: the time between them is unknown."""
        self._looks.clear()

    def _begin_check(self, period: int) -> None:
        self._state.steps.begin(("slow-consumers", period), gathered(self._check(period)))

    def _check(self, period: int) -> LongWork:
        watched = False
        for address in list(self._state.addresses.values()):
            settings = address.settings
            yield LOOK_COST
            if settings.slow_consumer_threshold < 0 or settings.slow_consumer_check_period != period:
                continue
            watched = True
            for queue in list(self._state.bindings.queues(address)):
                for consumer in list(queue.consumers):
                    if not consumer.closed:
                        self._look(queue, consumer, settings)
                    yield CONSUMER_COST
        self._looks = {consumer: look for consumer, look in self._looks.items() if not consumer.closed}
        if watched:
            self.schedule_check(period)

    def _look(self, queue: Queue, consumer: Consumer, settings: AddressSettings) -> None:
        now = self._state.now
        before = self._looks.get(consumer)
        self._looks[consumer] = after = _Look(consumer, now)
        if before is None or not (before.busy and after.busy):
            return
        unit = _UNIT_MS[settings.slow_consumer_threshold_measurement_unit]
        settled = after.settled - before.settled
        if settled * unit >= settings.slow_consumer_threshold * (now - before.at):
            return
        rate = settled * unit // max(now - before.at, 1)
        consumer.note(self._state.notes, "CONSUMER_SLOW")
        self._state.report(
            "consumer.slow",
            queue=queue.name,
            client=consumer.client_id,
            remote=consumer.remote,
            rate=rate,
            policy=settings.slow_consumer_policy.value,
        )
        if settings.slow_consumer_policy is SlowConsumerPolicy.KILL:
            unit_name = settings.slow_consumer_threshold_measurement_unit.value.lower().replace("_", " ")
            least = settings.slow_consumer_threshold
            why = f"slow consumer: {rate} {unit_name} of queue {queue.name}, expected at least {least}"
            closing.end(self._state, consumer, SLOW, why)


def _is_busy(consumer: Consumer) -> bool:
    """Whether it has work: unacknowledged messages, or messages waiting on its queue for which it does not ask."""
    queue = consumer.queue
    asks = consumer.credit > 0 and not consumer.paused
    if consumer.unacked or asks or queue.stopped or queue.non_destructive:
        return bool(consumer.unacked)
    return queue.ready + queue.paged > 0
