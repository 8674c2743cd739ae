"""Under every sequence of verbs: memory stays within the limits and what one tick reads, and nothing is lost.

The model beside the broker is naive: how often each body must be somewhere, and that no more is in memory than the
limit, what one send brings, what is read ahead, and what consumers and transactions hold by their own limits.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, NamedTuple

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.daemon.wiring import settings_table
from broker.engine.delivery import redelivery
from broker.engine.delivery.transaction import Transaction
from broker.engine.model.errors import AddressFull, EngineError, TransactionsFull
from broker.engine.model.message import Message
from broker.engine.moves.transfer import MessageRange
from tests.broker.engine.engine_harness import Bench, Producing, Taker, section
from tests.simulation.world import small
from tests.support.bodies import body_of

LIMIT = 10_000
GLOBAL = 12_000
READ_AHEAD = 4_000
WINDOW = 3_000
HELD = 4_000

#: A message in memory, about; and the most that one send brings.
SIZE = 900
SEND = 5 * SIZE

ADDRESSES = ("page", "block", "fail", "drop", "fork", "DLQ", "EXP")
POLICIES = ("PAGE", "BLOCK", "FAIL", "DROP")
CONSUMERS_MAX = 4
SELECTORS = ("", "", "AMQPriority > 4")

#: Verbs called while the disk does nothing.
HELD_VERBS_MAX = 3


def sections(**policies: str) -> list[dict[str, object]]:
    every: dict[str, object] = {
        "max-size-bytes": LIMIT,
        "max-read-page-bytes": READ_AHEAD,
        "dead-letter-address": "DLQ",
        "expiry-address": "EXP",
        "max-delivery-attempts": 2,
        "redelivery-delay": 1_000,
    }
    usual = {"page": "PAGE", "block": "BLOCK", "fail": "FAIL", "drop": "DROP", "fork": "PAGE", "DLQ": "PAGE"}
    return [{"match": name, "address-full-policy": policy, **every} for name, policy in (usual | policies).items()] + [
        {"match": "EXP", "address-full-policy": "PAGE", **every}
    ]


#: How deliveries are settled.
WAYS = ("nack", "ack", "reject", "ack in tx", "nack in tx")


class Opened(NamedTuple):
    """An open transaction: its messages, and the deliveries that it acknowledges."""

    tx: Transaction
    sends: list[Message]
    settled: list[Message]


class Client:
    """A client with transactions.  While it must wait, none of its frames is read."""

    def __init__(self) -> None:
        self.producer = Producing()
        self.opened: list[Opened] = []


class Limits(RuleBasedStateMachine):
    """The broker, and how often each body must be somewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.random = Random(0)
        self.alive: Counter[bytes] = Counter()
        self.numbers = 0
        self.takers: list[Taker] = []
        self.clients: list[Client] = []
        self.senders = {name: Producing() for name in ADDRESSES}
        self.policies: dict[str, str] = {}
        self.late = 0  # bytes that may wait in memory for the disk, which does nothing

    @initialize(
        dead=st.sampled_from(("BLOCK", "PAGE", "FAIL", "DROP")),
        limited=st.booleans(),
        name=st.sampled_from(ADDRESSES),
        durable=st.booleans(),
        delay=st.sampled_from((0, 0, 60_000)),
        how=st.sampled_from(WAYS),
    )
    def begin(self, dead: str, limited: bool, name: str, durable: bool, delay: int, how: str) -> None:
        """A broker with a backlog, as long as its policy allows, of which a consumer settles the first messages."""
        self.policies = {"DLQ": dead}
        self.clients = [Client(), Client()]
        limits = small().limits.model_copy(update={"open_transactions_bytes_max": HELD})
        self.bench = Bench(
            *sections(**self.policies), limits=limits, segment_bytes=1 << 20, diverts={"d": section("fork", "block")}
        )
        self.limited = limited
        self._limit()
        for each in ADDRESSES:
            self.bench.declare(each)
        self._flood(name, 5, 60, durable=durable, delay=delay, ttl=0)
        if self._backlogs():
            self.consume(how, 200)
            self._move(name, "DLQ", 3)
            self._send("DLQ", 1, durable=True, delay=0, ttl=0)

    def _limit(self) -> None:
        if self.limited:
            self.bench.engine.usage.bytes_max = GLOBAL

    # -- sending ---------------------------------------------------------------------------------------------------

    def _bodies(self, count: int, *, durable: bool) -> list[bytes]:
        self.numbers += count
        return [(b"%d " if durable else b"v%d ") % n + bytes(600) for n in range(self.numbers - count, self.numbers)]

    def _entered(self, name: str, messages: list[Message]) -> None:
        for message in messages:
            if message.id:
                self.alive[body_of(message)] += 2 if name == "fork" else 1

    def _send(self, name: str, count: int, *, durable: bool, delay: int, ttl: int) -> bool:
        """Send, unless the producer waits; whether it did."""
        producer, now = self.senders[name], self.bench.broker.now
        if producer.blocked:
            return False
        choose = self.random.choice
        more: dict[str, Any] = {"scheduled": now + delay if delay else 0, "expiration": now + ttl if ttl else 0}
        more |= {"priority": choose((4, 4, 6)), "group": choose(("", "", "", "A", "B"))}
        send = self.bench.prepare(name, *self._bodies(count, durable=durable), durable=durable, **more)
        messages = list(send.messages)
        full = self._is_full(name)
        result = self.bench.engine.producers.publish([send], producer=producer)
        producer.blocked = result.blocked
        if full:
            policy = self.bench.engine.addresses[name].settings.address_full_policy
            let_in = any(message.id for message in messages)
            assert {"PAGE": let_in, "BLOCK": producer.blocked, "FAIL": bool(result.refusals), "DROP": not let_in}[
                policy
            ]
        if self.bench.engine.usage.disk.full:
            assert producer.blocked or not any(message.id for message in messages)
        refused = {message for refusal in result.refusals for message in refusal.messages}
        assert all(isinstance(refusal.error, AddressFull) for refusal in result.refusals)
        self._entered(name, [message for message in messages if message not in refused])
        self.bench.run()
        return not refused

    def _is_full(self, name: str) -> bool:
        """Whether an address has reached its limit, by the naive sum: unless it pages, what it has on disk counts."""
        address = self.bench.engine.addresses[name]
        paged = 0 if address.settings.address_full_policy == "PAGE" else address.paged_bytes
        return address.size_bytes + paged >= LIMIT

    def send(self, name: str, count: int, times: int) -> None:
        choose = self.random.choice
        durable, delay, ttl = choose((True, False)), choose((0, 0, 5_000, 60_000)), choose((0, 0, 30_000))
        self._flood(name, count, times, durable=durable, delay=delay, ttl=0 if name == "EXP" else ttl)

    def _flood(self, name: str, count: int, times: int, *, durable: bool, delay: int, ttl: int) -> None:
        """Send again and again, until the producer is told to wait."""
        for _ in range(times):
            if not self._send(name, count, durable=durable, delay=delay, ttl=ttl):
                break
            self.check_memory()

    @rule(seed=st.integers(0, 1 << 30))
    def step(self, seed: int) -> None:
        """Call one verb.  Its arguments are chosen by a seed: so each verb is called about as often as it is worth."""
        random = self.random = Random(f"{seed} {self.numbers}")
        choose, calls = random.choice, []
        calls += 6 * [lambda: self.send(choose(ADDRESSES), choose((1, 5)), choose((1, 5, 60)))]
        calls += 3 * [lambda: self.send_in_transaction(choose(ADDRESSES), choose((1, 3)), choose((1, 5)))]
        if self.opened():
            calls += 2 * [lambda: self.end(commit=choose((True, True, False)))]
        if self._backlogs():
            calls += 6 * [lambda: self.consume(choose(WAYS), choose((1, 3, 200)))]
            calls += 2 * [lambda: self.move(choose(ADDRESSES), choose((1, 10)))]
        if self.takers:
            calls += [lambda: self.leave(choose((redelivery.CLOSED, redelivery.DISCONNECTED)))]
        calls += 2 * [lambda: self.wait(choose((1_000, 10_000, 60_000)))]
        calls += [lambda: self.retry(choose(("DLQ", "EXP"))), lambda: self.purge(choose(ADDRESSES))]
        calls += [lambda: self.reload(choose(("page", "fork", "DLQ")), choose(POLICIES))]
        calls += [lambda: self.fill_disk(full=choose((True, False)))]
        calls += [lambda: self.restart(crash=choose((True, False))), self.look, self.hold_disk]
        choose(calls)()

    def hold_disk(self) -> None:
        """Call some verbs while the disk does nothing: what was to wait there waits in memory."""
        choose = self.random.choice
        calls = [lambda: self.send(choose(ADDRESSES), choose((1, 5)), 1)]
        calls += [lambda: self.send_in_transaction(choose(ADDRESSES), 3, 1)]
        calls += [lambda: self.end(commit=choose((True, False)))] if self.opened() else []
        calls += [lambda: self.consume(choose(WAYS), 3)] if self._backlogs() else []
        self.bench.broker.hold_disk()
        self.late = HELD_VERBS_MAX * max(SEND, 2 * HELD)
        for _ in range(self.random.randint(1, HELD_VERBS_MAX)):
            choose(calls)()
        self.bench.broker.release_disk()
        self.late = 0

    # -- consuming -------------------------------------------------------------------------------------------------

    def _backlogs(self) -> list[str]:
        return [name for name in ADDRESSES if self.bench.queue(name).message_count]

    def _taker(self, name: str) -> Taker:
        """A consumer of that queue, which may have a selector; there are only so many."""
        selector = self.random.choice(SELECTORS)
        for taker in self.takers:
            if (taker.consumer.queue.name, taker.consumer.selector) == (name, selector):
                return taker
        if len(self.takers) == CONSUMERS_MAX:
            self.bench.close(self.takers.pop(0), redelivery.CLOSED)
        self.takers.append(self.bench.take(name, window=WINDOW, selector=selector))
        return self.takers[-1]

    def opened(self) -> list[Opened]:
        """All open transactions."""
        for client in self.clients:
            client.opened = [each for each in client.opened if not each.tx.closed]
        return [each for client in self.clients for each in client.opened]

    def _transaction(self) -> tuple[Client, Opened] | None:
        """A transaction of a client, unless it waits."""
        self.opened()
        client = self.random.choice(self.clients)
        if client.producer.blocked:
            return None
        if not client.opened or (len(client.opened) < 3 and self.random.choice((True, False))):
            client.opened.append(Opened(self.bench.begin(client), [], []))
            self.bench.run()
        return client, self.random.choice(client.opened)

    def consume(self, how: str, most: int) -> None:
        taker = self._taker(self.random.choice(self._backlogs()))
        found = self._transaction() if how.endswith("tx") else None
        if found is None and how.endswith("tx"):
            return
        tx, settled = (None, []) if found is None else (found[1].tx, found[1].settled)
        for _ in range(most):
            if not taker.taken:
                return
            message = taker.taken.pop(0)
            try:
                if how.startswith("ack"):
                    self.bench.ack(taker, message, tx=tx)
                else:
                    self.bench.nack(taker, message, tx=tx, requeue=how != "reject")
            except TransactionsFull:
                self.bench.run()
                taker.taken.insert(0, message)
                return
            if how == "ack":
                self.alive[body_of(message)] -= 1
            elif how == "ack in tx":
                settled.append(message)
            self.check_memory()

    def leave(self, how: redelivery.DeliveryOutcome) -> None:
        taker = self.takers.pop(self.random.randrange(len(self.takers)))
        self.bench.close(taker, how)

    # -- transactions ----------------------------------------------------------------------------------------------

    def send_in_transaction(self, name: str, count: int, times: int) -> None:
        """Send until it is refused, or the client must wait: not if it has acknowledged, as over STOMP."""
        for _ in range(times):
            found = self._transaction()
            if found is None:
                return
            client, (tx, sends, _) = found
            send = self.bench.prepare(name, *self._bodies(count, durable=True))
            try:
                tx.send([send], send.messages)
            except TransactionsFull:
                pass
            else:
                sends += send.messages
                if not tx.settlements:
                    transactions = self.bench.engine.transactions
                    client.producer.blocked = transactions.wait_for_room(tx, [send], client.producer)
            self.bench.run()
            self.check_memory()

    def end(self, *, commit: bool) -> None:
        ready = [client for client in self.clients if client.opened and not (commit and client.producer.blocked)]
        if not ready:
            return
        client = self.random.choice(ready)
        opened = client.opened.pop(self.random.randrange(len(client.opened)))
        if not (commit and self._commits(client, opened)):
            self.bench.roll_back(opened.tx)

    def _commits(self, client: Client, opened: Opened) -> bool:
        producers = self.bench.enter().producers
        sends = opened.tx.sends.copy()
        try:
            self.bench.engine.transactions.commit(opened.tx)
        except EngineError:
            self.bench.run()
            return False
        client.producer.blocked |= any([producers.wait_for_room(each.address, client.producer) for each in sends])
        self.bench.run()
        for message in opened.sends:
            self._entered(message.header.address, [message])
        for message in opened.settled:
            self.alive[body_of(message)] -= 1
        return True

    # -- the rest --------------------------------------------------------------------------------------------------

    def move(self, where: str, steps: int) -> None:
        self._move(self.random.choice(self._backlogs()), where, steps)

    def _move(self, source: str, where: str, steps: int) -> None:
        for _ in range(steps if source != where else 0):
            self.bench.enter().messages.move(self.bench.queue(source), where, MessageRange())
            self.bench.run()
            self.check_memory()

    def retry(self, name: str) -> None:
        self.bench.retry(name)

    def purge(self, name: str) -> None:
        waiting = [body for body, place in self._places(name) if place != "delivering"]
        if waiting:
            assert self.bench.purge(name) == len(waiting)
        self.alive -= Counter(waiting)

    def wait(self, ms: int) -> None:
        self.bench.broker.advance(ms)

    def reload(self, name: str, policy: str) -> None:
        self.policies[name] = policy
        self.bench.enter().configuration.change_settings(settings_table(small(*sections(**self.policies))))
        self.bench.run()

    def fill_disk(self, *, full: bool) -> None:
        state = self.bench.enter()._state
        state.usage.disk.full = full
        if not full:
            state.room.wake_for_disk()
        self.bench.run()

    def restart(self, *, crash: bool) -> None:
        self.bench = self.bench.restart(crash=crash)
        self._limit()
        self.bench.enter().configuration.change_settings(settings_table(small(*sections(**self.policies))))
        self.bench.run()
        self.takers.clear()
        self.clients = [Client(), Client()]
        self.senders = {name: Producing() for name in ADDRESSES}
        for body in [body for body in self.alive if body.startswith(b"v")]:
            del self.alive[body]

    # -- what must hold --------------------------------------------------------------------------------------------

    def _places(self, name: str) -> list[tuple[bytes, str]]:
        queue = self.bench.queue(name)
        return [(body_of(message), place) for message, place in self.bench.engine.messages.browse(queue)]

    @invariant()
    def check_memory(self) -> None:
        engine = self.bench.engine
        held = sum(opened.tx.held.bytes for opened in self.opened())
        assert engine.transactions.bytes == held <= len(self.clients) * (HELD + SIZE)
        delivering = CONSUMERS_MAX * (WINDOW + SIZE)
        commits = len(self.clients) * HELD + self.late
        for address in engine.addresses.values():
            most = LIMIT + SEND + READ_AHEAD + delivering + 2 * held + commits
            assert address.size_bytes <= most, f"{address.name} has {address.size_bytes} bytes"
        if self.limited:
            most = GLOBAL + SEND + len(ADDRESSES) * READ_AHEAD + delivering + 2 * held + commits
            assert engine.usage.bytes <= most, f"all have {engine.usage.bytes} bytes"

    def look(self) -> None:
        """Every message is where it must be, as often as it must."""
        found: Counter[bytes] = Counter()
        for name in ADDRESSES:
            found.update(body for body, _ in self._places(name))
        for tx, _, _ in self.opened():
            found.update(body_of(m) for settlement in tx.settlements for m in settlement.messages)
        assert found == +self.alive
        if not self.opened():
            self.bench.check()

    def teardown(self) -> None:
        """Whoever waits continues in the end, and all that is left can be consumed."""
        if not hasattr(self, "bench"):
            return
        self.fill_disk(full=False)
        while self.opened():
            self.end(commit=False)
        while self.takers:
            self.bench.close(self.takers.pop(), redelivery.CLOSED)
        got: Counter[bytes] = Counter()
        takers = [self.bench.take(name) for name in ADDRESSES]
        for _ in range(3):
            for taker in takers:
                while taker.taken:
                    taken, taker.taken = taker.taken, []
                    self.bench.ack(taker, *taken)
                    got.update(map(body_of, taken))
            self.bench.broker.advance(100_000)
        assert got == +self.alive
        producers = [*self.senders.values(), *(client.producer for client in self.clients)]
        assert not any(producer.blocked for producer in producers), "nothing is there to wait for"
        assert (self.bench.engine.usage.bytes, self.bench.engine.usage.messages) == (0, 0)
        self.bench.check()


TestLimits = Limits.TestCase
TestLimits.settings = settings(max_examples=20, stateful_step_count=25, phases=(Phase.reuse, Phase.generate))
