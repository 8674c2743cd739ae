"""How much the engine hands to the consumers of a session, and what is over.

Consumers of QoS 1 and 2 have counted credit: what the quota leaves.  When several use the same quota up, what is over
is parked, one run at most, since everybody is paused then.  Where bytes in flight are limited too, the engine is asked
for a few messages at a time, as nobody knows how large they are; one more may go while the limit is not reached.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from broker.engine import Consumer, Engine
from broker.engine.model.message import Message
from broker.sessions.mqtt.inflight import InFlight


class Parked:
    """Runs of messages that wait for the quota, in their order: few, see above."""

    __slots__ = ("_runs", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self._runs: list[tuple[Consumer, list[Message]]] = []

    def __bool__(self) -> bool:
        return bool(self._runs)

    def __iter__(self) -> Iterator[tuple[Consumer, list[Message]]]:
        return iter(self._runs)

    def add(self, consumer: Consumer, run: list[Message]) -> None:
        """A run waits behind the others."""
        self._runs.append((consumer, run))
        self.messages += len(run)

    def put_back(self, consumer: Consumer, run: list[Message]) -> None:
        """What is left of the first run waits on before the others, which came later."""
        self._runs.insert(0, (consumer, run))
        self.messages += len(run)

    def pop(self) -> tuple[Consumer, list[Message]]:
        """The first run, which waits no more."""
        consumer, run = self._runs.pop(0)
        self.messages -= len(run)
        return consumer, run

    def take(self, consumer: Consumer) -> list[Message]:
        """The messages of a consumer, which wait no more."""
        taken = [message for other, run in self._runs if other is consumer for message in run]
        if taken:
            self._runs = [(other, run) for other, run in self._runs if other is not consumer]
            self.messages -= len(taken)
        return taken


class Credit:
    """What the `consumers` of a session may be handed: nothing while it is stopped, as at first.

    `wanting`: counted ones that have used credit since they got it.
    """

    __slots__ = ("_consumers", "_engine", "_exhausted", "_in_flight", "_stopped", "parked", "wanting")

    def __init__(self, engine: Engine, in_flight: InFlight, consumers: Collection[Consumer]) -> None:
        self.parked = Parked()
        self.wanting: dict[Consumer, None] = {}
        self._engine = engine
        self._in_flight = in_flight
        self._consumers = consumers
        self._stopped = True
        self._exhausted = False  # the quota is used up, and counted consumers are paused

    @property
    def room(self) -> int:
        """How many messages of QoS 1 and 2 the engine may still deliver."""
        return self._in_flight.room - self.parked.messages

    def used(self, consumer: Consumer) -> None:
        """A counted consumer has been handed messages."""
        self.wanting[consumer] = None

    def forget(self, consumer: Consumer) -> None:
        """A consumer is one of the session's no more, or gets no more."""
        self.wanting.pop(consumer, None)

    def stop(self, stopped: bool) -> None:
        """The connection of the session takes nothing for now, or there is none; or it takes messages again."""
        self._stopped = stopped
        self.refresh()

    def refresh(self) -> None:
        """Look at all consumers again."""
        self._exhausted = self.room <= 0
        self.wanting.clear()
        for consumer in self._consumers:
            self.give(consumer)

    def give(self, consumer: Consumer) -> None:
        """Whether a consumer gets messages now, and how many."""
        consumers = self._engine.consumers
        if self._stopped or (consumer.counted and self._exhausted):
            consumers.pause(consumer)
            return
        if consumer.counted:
            consumers.grant(consumer, max(self.room - consumer.held, 0))
        if consumer.paused:
            consumers.resume(consumer)

    def check(self) -> None:
        """Messages were sent or parked: once the quota is used up, the engine keeps what it has."""
        if not self._exhausted and self.room <= 0:
            self._exhausted = True
            for consumer in self._consumers:
                if consumer.counted:
                    self._engine.consumers.pause(consumer)

    def renew(self) -> None:
        """There may be room again: for those that have used much of what they had."""
        room = self.room
        if room <= 0:
            return
        if self._exhausted:
            self.refresh()
            return
        for consumer in [each for each in self.wanting if each.credit <= room // 2]:
            del self.wanting[consumer]
            if not consumer.closed:
                self._engine.consumers.grant(consumer, max(room - consumer.held, 0))
