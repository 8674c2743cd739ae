"""Stored sessions beside a naive model: what was going on when the broker stopped is what a restart finds.

The model is what the clients' side noted as it happened: which message is in flight under which packet id, which ids
are owed.  Segments are tiny, so that they are trimmed and copied forward all the while, and packet ids are used again
as soon as they are free.
"""

from __future__ import annotations

from itertools import count

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.broker.engine.client_sessions.session_client import MULTICAST, SHARED, Client
from tests.broker.engine.engine_harness import Bench
from tests.simulation.world import SCALE, check_accounts, check_counters

SEGMENT = 4 << 10
NAMES = ("a", "b", "c")
FILL = 20


class Sessions(RuleBasedStateMachine):
    """Clients that come and go, send and are sent to."""

    @initialize()
    def begin(self) -> None:
        """An empty broker."""
        self.bench = Bench(segment_bytes=SEGMENT)
        self.clients: dict[str, Client] = {}
        self.bodies = count(1)

    # -- sessions --------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), size=st.integers(0, 300))
    def open_or_change(self, name: str, size: int) -> None:
        """A session begins, or is another one from now on."""
        definition: dict[str, object] = {"text": "x" * size}
        sessions = self.bench.enter().sessions
        client = self.clients.get(name)
        if client is not None:
            sessions.change(client.stored, definition)
            client.definition = definition
        else:
            client = self.clients[name] = Client(self.bench, sessions.open(name, definition))
            client.subscribe()
        self.bench.run()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        """A session ends, and its queue with it; of the shared one it gives back what it has."""
        client = self._client(data)
        client.drop()
        del self.clients[client.stored.name]
        self.bench.run()

    # -- messages to clients ---------------------------------------------------------------------------------------

    @rule(address=st.sampled_from(["own", SHARED]), n=st.integers(1, 4), size=st.integers(0, 400))
    def publish(self, address: str, n: int, size: int) -> None:
        """Messages for everybody who has a queue there."""
        bodies = [b"%d %s" % (next(self.bodies), b"x" * size) for _ in range(n)]
        self.bench.sent(f"t.{address}", *bodies, routing_type=MULTICAST)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), queue=st.sampled_from(["own", SHARED]), credit=st.integers(0, 3))
    def grant(self, data: st.DataObject, queue: str, credit: int) -> None:
        """A client takes so many."""
        subscription = self._client(data).subscriptions[queue]
        self.bench.grant(subscription, credit)

    @precondition(lambda self: any(client.sent for client in self.clients.values()))
    @rule(data=st.data(), how=st.sampled_from(["acknowledged", "released", "returned"]))
    def settle(self, data: st.DataObject, how: str) -> None:
        """A client has a message for good, has it and says so, or refuses it."""
        client = data.draw(st.sampled_from([c for c in self.clients.values() if c.sent]))
        id = data.draw(st.sampled_from(sorted(client.sent)))
        client.settle(id, how)
        self.bench.run()

    @precondition(lambda self: any(client.released for client in self.clients.values()))
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        """The handshake for a message to a client ends."""
        client = data.draw(st.sampled_from([c for c in self.clients.values() if c.released]))
        ids = data.draw(st.lists(st.sampled_from(sorted(client.released)), min_size=1, unique=True))
        self.bench.enter().sessions.packet_ids.completed(client.stored, ids, sent=True)
        client.released.difference_update(ids)
        self.bench.run()

    # -- messages from clients -------------------------------------------------------------------------------------

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), ids=st.sets(st.integers(1, 9), min_size=1, max_size=4))
    def receive(self, data: st.DataObject, ids: set[int]) -> None:
        """A client sends messages that must not be stored twice."""
        client = self._client(data)
        new = sorted(ids - client.received)
        if new:
            self.bench.send("t.sink", *[b"%d" % id for id in new], routing_type=None)
            self.bench.enter().sessions.packet_ids.received(client.stored, new)
        client.received |= ids
        self.bench.run()

    @precondition(lambda self: any(client.received for client in self.clients.values()))
    @rule(data=st.data(), ids=st.sets(st.integers(1, 9), min_size=1, max_size=4))
    def receive_the_end(self, data: st.DataObject, ids: set[int]) -> None:
        """The handshake for messages from a client ends, also for ids that nobody knows."""
        client = self._client(data)
        self.bench.enter().sessions.packet_ids.completed(client.stored, sorted(ids), sent=False)
        client.received -= ids
        self.bench.run()

    # -- the journal -----------------------------------------------------------------------------------------------

    @rule(segments=st.integers(1, 12), period=st.sampled_from([0, 100]))
    def pass_by(self, segments: int, period: int) -> None:
        """Other messages come and go: segments are trimmed, and with some time in between copied forward."""
        for _ in range(segments):
            self.bench.sent("fill", *[b"x" * (SEGMENT // FILL)] * FILL)
            self.bench.purge("fill")
            self.bench.broker.advance(period)

    @rule(crash=st.booleans())
    def restart(self, crash: bool) -> None:
        """The next run finds what the last one left."""
        names = list(self.clients)
        self.bench = self.bench.restart(crash=crash)
        sessions = self.bench.engine.sessions
        assert {s.name for s in sessions.all()} == set(names)
        for name in names:
            before, stored = self.clients[name], sessions.get(name)
            assert stored is not None
            self.clients[name] = client = Client(self.bench, stored)
            client.subscribe()
            client.take_over()
            assert client.known() == before.known(), name
        self.bench.run()

    @invariant()
    def books_balance(self) -> None:
        """The journal, and the memory."""
        if self.clients:
            check_counters(self.bench.broker)

    def teardown(self) -> None:
        """In the end, once more."""
        self.restart(crash=True)
        check_accounts(self.bench.broker)

    def _client(self, data: st.DataObject) -> Client:
        return self.clients[data.draw(st.sampled_from(sorted(self.clients)))]


def test_sessions_beside_the_model() -> None:
    run_state_machine_as_test(Sessions, settings=settings(max_examples=20 * SCALE, stateful_step_count=25))
