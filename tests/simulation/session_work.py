"""A workload of sessions and retained messages, step by step, on an engine without protocols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.config import Config
from tests.broker.engine.client_sessions.session_client import MULTICAST, SHARED, Client
from tests.broker.engine.engine_harness import Bench
from tests.simulation.world import held, small

SEGMENT: Final = 6 << 10

#: The queue of messages that only fill the journal.
FILL: Final = "fill"

State = tuple[object, ...]


def config() -> Config:
    """Small segments, and cleaning as soon as there are a few."""
    made = small(segment_bytes=SEGMENT)
    return made.model_copy(update={"journal": made.journal.model_copy(update={"compact_min_files": 2})})


def state(bench: Bench) -> State:
    """All that must survive."""
    sessions = {
        session.name: (
            session.definition,
            {key: part for key, (_, part) in session.parts.items()},
            {id: message.body for id, _, message in session.current()},
            sorted(session.released),
            sorted(session.received),
        )
        for session in bench.engine.sessions.all()
    }
    queues = {name: sorted(held(bench.broker, name)) for name in bench.engine.queues if name != FILL}
    found = bench.engine.retained.search("#", bench.engine.journal.next_id)
    retained = {message.header.address: message.body for message in found if message is not None}
    return sessions, {name: bodies for name, bodies in queues.items() if bodies}, retained


class Workload:
    """What happens, step by step."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.clients: dict[str, Client] = {}

    @property
    def steps(self) -> list[Callable[[], None]]:
        """The steps, in order; each is over when its records are on the disk."""
        settle = [
            lambda: self.clients["a"].settle(1, "acknowledged"),
            lambda: self.clients["a"].settle(2, "released"),
            lambda: self.give_back("a", 3),
            lambda: self.give_back("b", 1),
            lambda: self.grant("a", SHARED, 9),
        ]
        ends = [
            self.fill,
            lambda: self.complete("a", 2, sent=True),
            lambda: self.complete("b", 7, sent=False),
            lambda: self.change("a", "new" * 50),
            lambda: self.put("a", "second", "new" * 50),
            lambda: self.remove("a", "first"),
            lambda: self.clear("r.1"),
        ]
        return [
            lambda: self.open("a"),
            lambda: self.open("b"),
            lambda: self.put("a", "first", "1"),
            lambda: self.put("a", "second", "2"),
            lambda: self.put("b", "first", "3"),
            lambda: self.publish("own", 6),
            lambda: self.publish(SHARED, 4),
            lambda: self.grant("a", "own", 3),
            lambda: self.grant("b", SHARED, 2),
            lambda: self.retain("r.1", b"first"),
            lambda: self.retain("r.2", b"second"),
            lambda: self.receive("b", [7, 8, 9]),
            *settle,
            lambda: self.retain("r.1", b"third"),
            *ends,
            *[self.fill] * 3,
            self.clean,
            lambda: self.receive("a", [7]),
            lambda: self.clients["a"].settle(1, "released"),
            lambda: self.clients["b"].drop(),
            self.fill,
            self.clean,
            lambda: self.grant("a", "own", 9),
            lambda: self.complete("a", 1, sent=True),
        ]

    def open(self, name: str) -> None:
        self.clients[name] = client = Client(self.bench, self.bench.enter().sessions.open(name, {"of": name}))
        client.subscribe()

    def change(self, name: str, text: str) -> None:
        self.bench.enter().sessions.change(self.clients[name].stored, {"text": text})

    def put(self, name: str, key: str, text: str) -> None:
        self.bench.enter().sessions.put(self.clients[name].stored, key, {"text": text})

    def remove(self, name: str, key: str) -> None:
        self.bench.enter().sessions.remove(self.clients[name].stored, key)

    def publish(self, name: str, n: int) -> None:
        bodies = [b"%s %d %s" % (name.encode(), i, b"x" * 200) for i in range(n)]
        self.bench.send(f"t.{name}", *bodies, routing_type=MULTICAST)

    def grant(self, name: str, subscription: str, credit: int) -> None:
        self.bench.enter().consumers.grant(self.clients[name].subscriptions[subscription].consumer, credit)

    def give_back(self, name: str, id: int) -> None:
        """A client wants no more, and returns a message."""
        client = self.clients[name]
        self.bench.enter().consumers.grant(client.sent[id][0].consumer, 0)
        client.settle(id, "returned")

    def receive(self, name: str, ids: list[int]) -> None:
        self.bench.send("t.sink", *[b"%s %d" % (name.encode(), id) for id in ids], routing_type=None)
        self.bench.engine.sessions.packet_ids.received(self.clients[name].stored, ids)

    def complete(self, name: str, id: int, *, sent: bool) -> None:
        client = self.clients[name]
        client.released.discard(id if sent else 0)
        self.bench.enter().sessions.packet_ids.completed(client.stored, [id], sent=sent)

    def retain(self, name: str, body: bytes) -> None:
        send = self.bench.prepare(name, body, routing_type=MULTICAST)
        self.bench.engine.retained.set(send.address, *send.messages)

    def clear(self, name: str) -> None:
        self.bench.enter().retained.clear(name)

    def fill(self) -> None:
        """Others' messages come and go, a segment of them."""
        self.bench.send(FILL, *[b"x" * 400] * (SEGMENT // 400))
        self.bench.run()
        self.bench.enter().messages.purge(self.bench.queue(FILL))

    def clean(self) -> None:
        """Time passes, in which old segments are copied forward."""
        self.bench.broker.advance(1000)
