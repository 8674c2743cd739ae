"""How many messages the engine delivers to the consumers of a session, and the surplus.

Consumers of QoS 1 and 2 have counted credit: the rest of the quota.  If several use up the same quota, the surplus is
parked: at most one run, since all are paused then.  If bytes in flight are limited too, the engine is asked for a few
messages at a time, as their sizes are unknown; one more may be sent while the limit is not reached.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from broker.engine import Consumer, Engine
from broker.engine.model.message import Message
from broker.sessions.mqtt.inflight import InFlight


class Parked:
    """Runs of messages that wait for the quota, in order: few, see above."""

    __slots__ = ("_runs", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self._runs: list[tuple[Consumer, list[Message]]] = []

    def __bool__(self) -> bool:
        return bool(self._runs)

    def __iter__(self) -> Iterator[tuple[Consumer, list[Message]]]:
        return iter(self._runs)

    def add(self, consumer: Consumer, run: list[Message]) -> None:
        """Add a run behind the others."""
        self._runs.append((consumer, run))
        self.messages += len(run)

    def put_back(self, consumer: Consumer, run: list[Message]) -> None:
        """Put the rest of the first run before the others, which are later."""
        self._runs.insert(0, (consumer, run))
        self.messages += len(run)

    def pop(self) -> tuple[Consumer, list[Message]]:
        """Remove and return the first run."""
        consumer, run = self._runs.pop(0)
        self.messages -= len(run)
        return consumer, run

    def take(self, consumer: Consumer) -> list[Message]:
        """Remove and return the messages of a consumer."""
        taken = [message for other, run in self._runs if other is consumer for message in run]
        if taken:
            self._runs = [(other, run) for other, run in self._runs if other is not consumer]
            self.messages -= len(taken)
        return taken


class Credit:
    """The credit of a session's `consumers`: none while it is stopped, as it is at first.

    `wanting`: counted consumers that have used credit since it was granted.
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
        """Note that a counted consumer got messages."""
        self.wanting[consumer] = None

    def forget(self, consumer: Consumer) -> None:
        """Forget a consumer that is no longer the session's, or gets no more messages."""
        self.wanting.pop(consumer, None)

    def stop(self, stopped: bool) -> None:
        """Stop deliveries, as there is no connection or its output is blocked; or resume them."""
        self._stopped = stopped
        self.refresh()

    def refresh(self) -> None:
        """Set the credit of all consumers again."""
        self._exhausted = self.room <= 0
        self.wanting.clear()
        for consumer in self._consumers:
            self.give(consumer)

    def give(self, consumer: Consumer) -> None:
        """Pause a consumer, or grant it what the quota leaves."""
        consumers = self._engine.consumers
        if self._stopped or (consumer.counted and self._exhausted):
            consumers.pause(consumer)
            return
        if consumer.counted:
            consumers.grant(consumer, max(self.room - consumer.held, 0))
        if consumer.paused:
            consumers.resume(consumer)

    def check(self) -> None:
        """Pause counted consumers once the quota is used up.  Call after messages were sent or parked."""
        if not self._exhausted and self.room <= 0:
            self._exhausted = True
            for consumer in self._consumers:
                if consumer.counted:
                    self._engine.consumers.pause(consumer)

    def renew(self) -> None:
        """Grant new credit to consumers that have used much of theirs, if there is room."""
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
