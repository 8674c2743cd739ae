"""Both ends of stored sessions, for tests: who numbers what is sent, and notes what a restart must find."""

from __future__ import annotations

from itertools import count
from typing import Final

from broker.engine.client_sessions.stored_session import StoredSession
from broker.engine.delivery.redelivery import RELEASED
from broker.engine.model.message import Message, RoutingType
from broker.engine.queues.queue import Consumer
from tests.broker.engine.engine_harness import Bench, Taker, Waiting

MULTICAST: Final = RoutingType.MULTICAST

#: The subscription, and the queue, that several sessions share.
SHARED: Final = "shared"


class Subscription(Taker):
    """A session's consumer on one queue."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.client = client

    def deliver(self, consumer: Consumer, messages: list[Message]) -> None:
        self.client.deliver(self, messages)


class Client:
    """A session as its client and its broker know it."""

    def __init__(self, bench: Bench, stored: StoredSession) -> None:
        self.bench = bench
        self.stored = stored
        self.definition = dict(stored.definition)
        self.sent: dict[int, tuple[Subscription, Message]] = {}
        self.released: set[int] = set()
        self.received: set[int] = set()
        self.subscriptions: dict[str, Subscription] = {}
        self.waiting = Waiting()
        stored.current = lambda: [(id, s.consumer.queue, m) for id, (s, m) in self.sent.items()]

    def subscribe(self) -> None:
        """Find or make its queues; nothing is delivered before credit is granted."""
        for name, queue in (("own", f"{self.stored.name}.own"), (SHARED, SHARED)):
            self.subscriptions[name] = self.bench.attach(
                Subscription(self), f"t.{name}", MULTICAST, durable_name=queue, shared=name == SHARED, counted=True
            )

    def deliver(self, subscription: Subscription, messages: list[Message]) -> None:
        """Messages leave under the lowest packet ids that are free."""
        free = (id for id in count(1) if id not in self.sent and id not in self.released)
        ids = []
        for message in messages:
            id = next(free)
            ids.append(id)
            self.sent[id] = (subscription, message)
        sessions = self.bench.engine.sessions
        assert sessions.in_flight.sending(self.stored, subscription.consumer.queue, messages, ids, self.waiting)

    def settle(self, id: int, how: str) -> None:
        """It has a message for good ("acknowledged"), has it and says so ("released"), or refuses it ("returned")."""
        subscription, message = self.sent.pop(id)
        engine = self.bench.enter()
        if how == "returned":
            engine.sessions.in_flight.returned(self.stored, [message], [id])
            engine.consumers.give_back(subscription.consumer, message.id, RELEASED)
            return
        if how == "released":
            self.released.add(id)
            engine.sessions.packet_ids.released(self.stored, [id])
        engine.consumers.acknowledge(subscription.consumer, message.id)

    def drop(self) -> None:
        """The session ends, and its queue with it; of the shared one it gives back what it has."""
        engine = self.bench.enter()
        engine.consumers.close(self.subscriptions[SHARED].consumer, RELEASED)
        engine.delete_queue(self.subscriptions["own"].consumer.queue)
        engine.sessions.drop(self.stored)

    def take_over(self) -> None:
        """Go on where the session was before a restart."""
        self.released, self.received = set(self.stored.released), set(self.stored.received)
        for id, (queue, message) in self.stored.inflight.items():
            subscription = self.subscriptions[SHARED if queue.name == SHARED else "own"]
            assert subscription.consumer.queue is queue
            assert self.bench.engine.consumers.take(subscription.consumer, [message]) == [message]
            self.sent[id] = (subscription, message)

    def known(self) -> tuple[object, ...]:
        """What must survive."""
        inflight = {id: message.body for id, (_, message) in self.sent.items()}
        return self.definition, inflight, self.released, self.received
