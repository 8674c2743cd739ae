"""A random workload of several clients against a naive model of the queues, with restarts in between.

One seed decides everything.  Longer: BARTLEBY_SIMULATION_SCALE=100.
"""

from __future__ import annotations

from random import Random
from typing import Final

from broker.config import Config
from broker.engine.filter import compile_filter
from broker.engine.moves.transfer import MessageRange
from tests.simulation.model import (
    DLQ,
    EXPIRY,
    Copy,
    Key,
    Model,
    Place,
    QueueModel,
    Rules,
    Sending,
    Sub,
    Taking,
    TxModel,
    wants,
)
from tests.simulation.world import check_accounts, small
from tests.support.bodies import body_of
from tests.support.sim_broker import SimBroker, SimClient
from tests.support.sim_database import SimDatabase
from tests.support.stomp_client import ServerFrame

STEPS: Final = 250

#: Settings with which queues page early.
PAGING: Final[dict[str, object]] = {
    "address-full-policy": "PAGE",
    "max-size-messages": 2,
    "max-read-page-messages": 24,
}

_SELECTORS: Final = ("", "", "colour = 'red'", "colour = 'blue'", "AMQPriority > 4")
_QUEUES: Final = ("plain", "slow", "deadly", DLQ, EXPIRY)

#: What is done, and how often compared with the rest.
_ACTIONS: Final[dict[str, float]] = {
    "send": 45,
    "subscribe": 8,
    "subscribe_topic": 5,
    "settle": 35,
    "begin": 4,
    "end": 4,
    "unsubscribe": 3,
    "leave": 3,
    "connect": 5,
    "advance": 8,
    "purge": 1,
    "retry": 2,
    "move": 1,
    "restart": 1.5,
}


def configuration(settings: dict[str, object] | None = None, *, strict: bool) -> Config:
    """The settings of the queues, with others that all of them have."""
    every = {"delivery-count-persistence": "strict" if strict else "on-return", **(settings or {})}
    return small(
        {"match": "slow", "redelivery-delay": 500, "max-delivery-attempts": 3, **every},
        {"match": "deadly", "dead-letter-address": "", "max-delivery-attempts": 2, **every},
        *({"match": name, **every} for name in ("plain", "news", DLQ, EXPIRY)),
    )


class Sim:
    """The broker, its clients, and the model beside it."""

    def __init__(self, seed: int, settings: dict[str, object] | None = None, shared: SimDatabase | None = None) -> None:
        self.random = Random(seed)
        self.strict = seed % 3 == 0
        self.broker = SimBroker(configuration(settings, strict=self.strict), seed=seed, shared=shared)
        self.model = Model()
        self.model.now = self.broker.now
        self.clients: dict[int, SimClient] = {}
        self.deliveries: dict[tuple[Sub, Key], ServerFrame] = {}
        self.aliases: dict[str, str] = {}  # what the model calls the queues of temporary subscriptions
        self.numbers = 0
        self.pages = bool(settings)
        self.selected: set[str] = set()  # queues of which selectors may have brought back some of what is paged
        for name in _QUEUES:
            self.model.queues[name] = QueueModel(name, self.rules(name))
        # Every queue exists from the start, so that the model need not know what is made when.
        opener = self.broker.connect()
        for name in _QUEUES:
            opener.subscribe(f"/queue/{name}", id=name)
        opener.drop()

    def rules(self, name: str) -> Rules:
        attempts, delay, dead = {"slow": (3, 500, DLQ), "deadly": (2, 0, "")}.get(name, (10, 0, DLQ))
        return Rules(delay, attempts, dead, self.strict)

    # -- one step --------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do something, see what comes of it, and compare."""
        names, weights = list(_ACTIONS), list(_ACTIONS.values())
        (action,) = self.random.choices(names, weights)
        getattr(self, f"do_{action}")()
        self.observe()

    def observe(self) -> None:
        """Let what is due happen on both sides, and hand the model what was delivered."""
        self.broker.advance(0)
        self.model.elapse()
        for number, client in self.clients.items():
            assert not client.closed, client.frames
            for frame in client.messages():
                self.deliver(number, frame)
        self.model.check_nobody_waits()

    def deliver(self, number: int, frame: ServerFrame) -> None:
        sub = (number, frame.headers["subscription"])
        first = frame.headers.get("_AMQ_DL_FIRST_QUEUE", self.model.subs[sub].queue)
        key = (frame.body, self.known_as(first))
        copy = self.model.delivered(sub, key, redelivered=frame.headers["redelivered"] == "true")
        assert frame.headers["priority"] == str(copy.priority)
        assert frame.headers["persistent"] == str(copy.durable).lower()
        assert frame.headers["expires"] == str(copy.expires)
        assert frame.headers["colour"] == copy.colour
        self.deliveries[sub, key] = frame

    def known_as(self, queue: str) -> str:
        """Queues of temporary subscriptions have names that the model does not know."""
        return self.aliases.get(queue, queue)

    def compare(self) -> None:
        """Every message where the model says, with as many failures."""
        for name, queue in self.model.queues.items():
            real = self.broker.engine.queue(next((r for r, n in self.aliases.items() if n == name), name))
            found = {
                self.key_of(body_of(message), message.header.annotations, real.name): (
                    place,
                    real.delivery_count(message.id),
                    message.header.durable,
                )
                for message, place in self.broker.engine.messages.browse(real)
            }
            expected = {
                key: (copy.place.value, copy.failures, copy.durable)
                for key, copy in queue.copies.items()
                if copy.place is not Place.IN_TRANSACTION
            }
            assert found == expected, name
            held = sum(copy.place in (Place.HELD, Place.IN_TRANSACTION) for copy in queue.copies.values())
            assert real.delivering == held
            assert real.message_count == len(queue.copies)
            assert real.stored == (sum(copy.durable for copy in queue.copies.values()) if queue.durable else 0)
            added, gone = real.counters.added, sum(real.left)
            assert added == gone + real.message_count, f"{name}: {added} came and {gone} went"
        state = self.broker.engine._state
        queued = any(queue.copies for queue in self.model.queues.values())
        empty = not queued and not any(tx.sends for tx in self.model.transactions.values())
        assert (
            state.usage.messages
            + sum(queue.tail.messages + queue.tail.scheduled for queue in state.paged if queue.tail)
            == 0
        ) == empty

    def key_of(self, body: bytes, annotations: dict[str, str | int] | None, queue: str) -> Key:
        return body, self.known_as(str((annotations or {}).get("_AMQ_DL_FIRST_QUEUE", queue)))

    # -- what is done ----------------------------------------------------------------------------------------------

    def some_client(self) -> int:
        if not self.clients or (len(self.clients) < 4 and self.random.random() < 0.1):
            self.do_connect()
        return self.random.choice(list(self.clients))

    def do_connect(self) -> None:
        if len(self.clients) >= 4:
            return
        self.numbers += 1
        version = self.random.choice(("1.1", "1.2"))
        self.clients[self.numbers] = self.broker.connect(version, **{"client-id": f"c{self.numbers}"})

    def open_transaction(self, number: int) -> str:
        """One of the client's transactions, or none."""
        names = [name for owner, name in self.model.transactions if owner == number]
        return self.random.choice(names) if names and self.random.random() < 0.6 else ""

    def do_send(self) -> None:
        number, random = self.some_client(), self.random
        self.numbers += 1
        durable, priority = random.random() < 0.7, random.choice((4, 4, 4, 0, 9))
        colour = random.choice(("red", "blue"))
        expires = self.broker.now + random.randrange(1, 2000) if random.random() < 0.25 else 0
        due = self.broker.now + random.randrange(1, 1000) if random.random() < 0.2 else 0
        copy = Copy((b"m%d" % self.numbers, ""), 0, durable, priority, colour, expires, due, asked=due)
        target = random.choice(("plain", "plain", "slow", "slow", "deadly", "news"))
        headers = {"persistent": str(durable).lower(), "priority": str(priority), "colour": colour}
        if expires:
            headers["expires"] = str(expires)
        if due:
            headers["AMQ_SCHEDULED_TIME"] = str(due)
        tx = self.open_transaction(number)
        if tx:
            headers["transaction"] = tx
            self.model.transactions[number, tx].sends.append(Sending(target, copy))
        else:
            self.model.publish(target, copy)
        prefix = "/topic/" if target == "news" else "/queue/"
        self.done(number, "SEND", {"destination": prefix + target, **headers}, copy.key[0])

    def done(self, number: int, command: str, headers: dict[str, str], body: bytes = b"") -> None:
        """A frame, and its receipt at once: nothing is left open."""
        self.numbers += 1
        client = self.clients[number]
        client.do(command, {**headers, "receipt": str(self.numbers)}, body)
        assert [f.headers["receipt-id"] for f in client.take("RECEIPT")] == [str(self.numbers)], client.frames

    def do_subscribe(self) -> None:
        number, random = self.some_client(), self.random
        self.numbers += 1
        sub = (number, f"s{self.numbers}")
        taking = self.taking(random.choice(_QUEUES), random.choice(_SELECTORS))
        headers = {"destination": f"/queue/{taking.queue}", "selector": taking.selector}
        self.subscribed(sub, taking, headers)

    def taking(self, queue: str, selector: str) -> Taking:
        (mode,) = self.random.choices(("client", "client-individual", "auto"), (4, 6, 1))
        return Taking(queue, selector, mode, single=mode != "auto" and self.random.random() < 0.3)

    def subscribed(self, sub: Sub, taking: Taking, headers: dict[str, str]) -> None:
        window = "0" if taking.single else "-1"
        if taking.selector:
            self.selected.add(taking.queue)
        self.model.subs[sub] = taking
        ready = [c for c in self.model.queues[taking.queue].copies.values() if c.place is Place.READY]
        self.done(sub[0], "SUBSCRIBE", {**headers, "id": sub[1], "ack": taking.mode, "consumer-window-size": window})
        got = [f for f in self.clients[sub[0]].frames if f.headers.get("subscription") == sub[1]]
        if taking.queue in (DLQ, EXPIRY):  # which of several that died at once came first is nobody's business
            priorities = [int(f.headers["priority"]) for f in got]
            assert priorities == sorted(priorities, reverse=True)
            return
        if taking.single:
            assert len(got) == min(len([c for c in ready if wants(taking.selector, c)]), 1)
            return
        expected = [c for c in sorted(ready, key=lambda c: (-c.priority, c.seq)) if wants(taking.selector, c)]
        assert {f.body for f in got} == {c.key[0] for c in expected}
        if self.pages:  # what was in memory goes before what was not
            expected = [] if taking.queue in self.selected else [c for c in expected if not c.moved]
            unmoved = {c.key[0] for c in expected}
            got = [f for f in got if f.body in unmoved]
        for durable in (False, True):  # those that wait for the disk do not hold up the others
            ordered = [f.body for f in got if f.headers["persistent"] == str(durable).lower()]
            assert ordered == [c.key[0] for c in expected if c.durable is durable], "by priority, first in, first out"

    def do_subscribe_topic(self) -> None:
        number, random = self.some_client(), self.random
        self.numbers += 1
        sub = (number, f"s{self.numbers}")
        selector = random.choice(_SELECTORS)
        headers = {"destination": "/topic/news", "selector": selector}
        if random.random() < 0.4:
            self.temporary(sub, selector, headers)
            return
        name = f"c{number}.{random.choice('xy')}"
        if any(taking.queue == name for taking in self.model.subs.values()):
            return
        known = self.model.queues.get(name)
        if known is None:
            self.model.queues[name] = QueueModel(name, self.rules("news"), address="news", selector=selector)
        else:
            headers["selector"] = known.selector
        headers["durable-subscription-name"] = name.partition(".")[2]
        self.subscribed(sub, self.taking(name, ""), headers)

    def temporary(self, sub: Sub, selector: str, headers: dict[str, str]) -> None:
        name = f"temporary {sub}"
        self.model.queues[name] = QueueModel(name, self.rules("news"), durable=False, address="news", selector=selector)
        before = set(self.broker.engine.queues)
        self.subscribed(sub, self.taking(name, ""), headers)
        (made,) = set(self.broker.engine.queues) - before
        self.aliases[made] = name

    def do_settle(self) -> None:
        choices = [(sub, key) for sub, taking in self.model.subs.items() for key in taking.has]
        if not choices:
            return
        sub, key = self.random.choice(choices)
        how = self.random.choices(("ack", "nack", "dead"), (4, 4, 1))[0]
        tx = self.open_transaction(sub[0])
        frame = self.deliveries[sub, key]
        client = self.clients[sub[0]]
        headers = client._naming(frame)
        if tx:
            headers["transaction"] = tx
        if how == "dead":
            headers["requeue"] = "false"
        self.model.settle(sub, key, how, tx)
        self.done(sub[0], "ACK" if how == "ack" else "NACK", headers)

    def do_begin(self) -> None:
        number = self.some_client()
        self.numbers += 1
        self.model.transactions[number, f"t{self.numbers}"] = TxModel()
        self.done(number, "BEGIN", {"transaction": f"t{self.numbers}"})

    def do_end(self) -> None:
        if not self.model.transactions:
            return
        number, name = self.random.choice(list(self.model.transactions))
        if self.random.random() < 0.6:
            self.model.commit(number, name)
            self.done(number, "COMMIT", {"transaction": name})
        else:
            self.model.rollback(number, name)
            self.done(number, "ABORT", {"transaction": name})

    def do_unsubscribe(self) -> None:
        if not self.model.subs:
            return
        sub = self.random.choice(list(self.model.subs))
        queue = self.model.queues[self.model.subs[sub].queue]
        self.model.close(sub, "closed")
        headers = {"id": sub[1]}
        if queue.address and queue.durable and self.random.random() < 0.5:
            headers["durable-subscription-name"] = queue.name.partition(".")[2]
            del self.model.queues[queue.name]
        self.done(sub[0], "UNSUBSCRIBE", headers)

    def do_leave(self) -> None:
        if not self.clients:
            return
        number = self.random.choice(list(self.clients))
        client = self.clients[number]
        how = self.random.choice(("DISCONNECT", "drop", "silent"))
        self.model.leave(number, "disconnected")
        if how == "DISCONNECT":
            self.done(number, "DISCONNECT", {})
            assert client.closed
        elif how == "silent":
            self.broker.enter()
            client.session.timed_out()
            client.drop()
        else:
            client.drop()
        del self.clients[number]

    def do_advance(self) -> None:
        end = self.broker.now + self.random.choice((1, 100, 700, 3000))
        while (due := self.model.next_due()) is not None and due <= end:
            self.broker.advance(max(due - self.broker.now, 0))
            self.model.now = self.broker.now
            self.observe()
        self.broker.advance(end - self.broker.now)
        self.model.now = end

    def do_purge(self) -> None:
        name = self.random.choice(_QUEUES)
        assert self.broker.enter().messages.purge(self.broker.engine.queue(name)) == self.model.purge(name)
        self.broker.run()

    def waiting(self, name: str) -> list[Key]:
        """What an operator may move, in the order in which it came: that of several dead letters the model is told."""
        found = sorted(
            self.broker.engine.messages.browse(self.broker.engine.queue(name)),
            key=lambda place: place[0].id,
        )
        return [self.key_of(body_of(m), m.header.annotations, name) for m, place in found if place != "delivering"]

    def do_retry(self) -> None:
        name, selector = self.random.choice((DLQ, DLQ, DLQ, EXPIRY, "plain", "slow")), self.random.choice(_SELECTORS)
        expected = self.model.retry(name, selector, self.waiting(name))
        selection = MessageRange(filter=compile_filter(selector))
        step = self.broker.enter().messages.retry(self.broker.engine.queue(name), selection)
        assert step.complete
        assert (step.moved, step.refused) == (expected.pop("", 0), expected)
        self.broker.run()

    def do_move(self) -> None:
        source, target = self.random.choice(_QUEUES), self.random.choice(("plain", "slow", "deadly"))
        if source == target:
            return
        selector = self.random.choice(_SELECTORS)
        expected = self.model.move(source, target, selector, self.waiting(source))
        selection = MessageRange(filter=compile_filter(selector))
        step = self.broker.enter().messages.move(self.broker.engine.queue(source), target, selection)
        assert (step.moved, step.refused, step.complete) == (expected, {}, True)
        self.broker.run()

    def do_restart(self) -> None:
        self.restart(crash=self.random.random() < 0.6)

    def restart(self, *, crash: bool) -> None:
        """The next run of the broker, when nothing is under way, and the books of its journal."""
        self.begin_again(crash=crash)
        check_accounts(self.broker)

    def begin_again(self, *, crash: bool) -> None:
        """The next run of the broker alone."""
        self.compare()
        self.broker = self.broker.restart(crash=crash)
        if crash:
            self.model.cut()
        else:
            self.model.stop()
        self.clients.clear()
        self.deliveries.clear()
        self.aliases = {r: n for r, n in self.aliases.items() if n not in self.model.queues}
        self.observe()
        self.compare()
        self.selected.clear()


def play(seed: int, settings: dict[str, object] | None = None, shared: SimDatabase | None = None) -> None:
    """All of it, compared with the model again and again.  Raises whatever is not as it must be.

    `shared`: the database that has the journal.
    """
    sim = Sim(seed, settings, shared)
    for done in range(1, STEPS + 1):
        sim.step()
        if done % 10 == 0:
            sim.compare()
    sim.do_restart()
