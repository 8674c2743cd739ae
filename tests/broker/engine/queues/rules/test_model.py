"""Kinds of queues against a naive model: random work, rollbacks, redelivery, expiry, scheduled messages and restarts.

The model is lists and sorting; it shares no code with the engine.  It does not guess who gets a message: it is told
what was delivered, objects if that could not be, and knows for every message where it must be.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from hypothesis import given, note, settings
from hypothesis import strategies as st

from broker.engine.delivery.redelivery import CLOSED, LOST, DeliveryOutcome
from broker.engine.delivery.transaction import Transaction
from broker.engine.model.message import Message
from broker.engine.routing import alter
from tests.broker.engine.engine_harness import Bench, Taker
from tests.simulation.world import SCALE, check_accounts, check_counters
from tests.support.bodies import body_of

DELAY: Final = 1_000

Step = tuple[str, int, int, int]


@dataclass(slots=True, eq=False)
class Copy:
    """A message of the model.  `place`: ready, scheduled, held (by whom) or tx."""

    body: bytes
    id: int
    key: str
    group: str
    closes: bool
    priority: int
    durable: bool
    expires: int
    asked: int
    sent: int
    place: str = "ready"
    by: int = -1
    due: int = 0
    seen: set[int] = field(default_factory=set)

    @property
    def line(self) -> tuple[int, int]:
        """Its place in the order of delivery."""
        return -self.priority, self.id

    def newer(self, other: Copy) -> bool:
        """Whether it is the newer value."""
        if self.asked or other.asked:
            return (self.asked or self.sent, self.id) > (other.asked or other.sent, other.id)
        return self.id > other.id


class Model:
    """One queue."""

    def __init__(self, *, last_value: bool, ring: int, keeps: bool, purges: bool, exclusive: bool) -> None:
        self.last_value = last_value
        self.ring = ring
        self.keeps = keeps
        self.purges = purges
        self.exclusive = exclusive
        self.copies: list[Copy] = []
        self.consumers: dict[int, bool] = {}  # whether it takes one message at a time
        self.owners: dict[str, int] = {}
        self.only = -1
        self.added = 0
        self.paused = False

    def ready(self) -> list[Copy]:
        """What waits, in the order of delivery."""
        return sorted([c for c in self.copies if c.place == "ready"], key=lambda c: c.line)

    def _known(self) -> list[Copy]:
        """What has arrived: not what its producer has scheduled."""
        return [c for c in self.copies if c.place != "scheduled" or c.due != c.asked]

    def arrive(self, copies: list[Copy], *, head: bool) -> None:
        """Messages become ready: new ones at the end of the line, others at its head."""
        if self.purges and not self.consumers:
            for copy in copies:
                if copy in self.copies:
                    self.copies.remove(copy)
            return
        for copy in copies:
            copy.place = "arriving"
            if copy not in self.copies:
                self.copies.append(copy)
        staying = [copy for copy in copies if self._replaces(copy)]
        staying = [copy for copy in staying if copy in self.copies]
        if head and self.ring >= 0:
            room = max(self.ring - len(self.ready()), 0)
            in_order = sorted(staying, key=lambda c: c.line)
            for copy in in_order[: max(len(in_order) - room, 0)]:
                self.copies.remove(copy)
                staying.remove(copy)
        if not head:
            self.added += len(staying)
        for copy in staying:
            copy.place = "ready"

    def _replaces(self, copy: Copy) -> bool:
        """Whether a value stays; an older one that waits leaves."""
        if not self.last_value or not copy.key:
            return True
        others = [c for c in self._known() if c.key == copy.key and c is not copy]
        if any(other.newer(copy) for other in others if other.place != "arriving" or other.id < copy.id):
            self.copies.remove(copy)
            return False
        for other in others:
            waits = other.place in ("ready", "scheduled") or (other.place == "arriving" and copy.newer(other))
            if waits:
                self.copies.remove(other)
        return True

    def due(self, now: int) -> None:
        """The time of scheduled messages has come; those that failed before go first."""
        due = [c for c in self.copies if c.place == "scheduled" and c.due <= now]
        due.sort(key=lambda c: (c.due == c.asked, c.due, c.id))
        if due:
            self.arrive(due, head=True)

    def expire(self, now: int) -> None:
        """Messages that wait and whose time is over."""
        for copy in self.ready():
            if 0 < copy.expires <= now:
                self.copies.remove(copy)

    def delivered(self, taker: int, body: bytes) -> None:
        """A consumer got a message."""
        (copy,) = [c for c in self.copies if c.body == body]
        assert copy.place == "ready", f"{body!r} came while it was {copy.place}"
        assert not self.paused
        if self.exclusive:
            if self.only not in self.consumers:
                self.only = taker
            assert self.only == taker, f"{body!r} went to {taker}, and {self.only} has the queue"
        if self.keeps:
            assert taker not in copy.seen, f"{body!r} came to {taker} twice"
            copy.seen.add(taker)
            return
        if copy.group and not self.exclusive:
            owner = self.owners.setdefault(copy.group, taker)
            assert owner == taker, f"{body!r} of {copy.group} went to {taker}, and is {owner}'s"
            if copy.closes:
                del self.owners[copy.group]
        copy.place, copy.by = "held", taker

    def cut(self) -> None:
        """A ring gives up its oldest, one for each that came."""
        added, self.added = self.added, 0
        if self.ring >= 0:
            ready = self.ready()
            for copy in ready[: max(min(added, len(ready) - self.ring), 0)]:
                self.copies.remove(copy)

    def back(self, copies: list[Copy], now: int, *, delayed: bool) -> None:
        """Deliveries come back."""
        if self.keeps:
            return
        if not delayed or (self.purges and not self.consumers):
            for copy in copies:
                copy.by = -1
            self.arrive(copies, head=True)
            return
        for copy in copies:
            copy.place = "arriving"
        for copy in copies:
            copy.by = -1
            others = [c for c in self._known() if c.key == copy.key and c is not copy]
            if self.last_value and copy.key and any(other.newer(copy) for other in others):
                self.copies.remove(copy)
            else:
                copy.place, copy.due = "scheduled", now + DELAY

    def left(self, taker: int) -> None:
        """A consumer is gone."""
        del self.consumers[taker]
        self.owners = {group: owner for group, owner in self.owners.items() if owner != taker}
        if self.only == taker:
            self.only = -1

    def restart(self, now: int) -> None:
        """Nobody is there, what was non-durable is gone, and what was with consumers is back."""
        self.consumers.clear()
        self.owners.clear()
        self.only = -1
        self.copies = [c for c in self.copies if c.durable]
        if self.purges:
            self.copies.clear()
        for copy in self.copies:
            copy.seen.clear()
            if copy.place in ("held", "tx"):
                copy.place, copy.by = "ready", -1
        if self.last_value:
            for copy in list(self.copies):
                if copy.key and any(
                    o.newer(copy) for o in self._known() if o.key == copy.key and copy in self._known()
                ):
                    self.copies.remove(copy)
        if self.ring >= 0:
            ready = self.ready()
            for copy in ready[: max(len(ready) - self.ring, 0)]:
                self.copies.remove(copy)
        self.expire(now)


class Run:
    """An engine and the model beside it."""

    def __init__(self, attributes: dict[str, object]) -> None:
        self.bench = Bench({"match": "q", "redelivery-delay": DELAY, "max-delivery-attempts": -1})
        self.bench.declare(**attributes)  # type: ignore[arg-type]
        self.model = Model(
            last_value=bool(attributes.get("last_value")),
            ring=int(str(attributes.get("ring_size", -1))),
            keeps=bool(attributes.get("non_destructive")),
            purges=bool(attributes.get("purge_on_no_consumers")),
            exclusive=bool(attributes.get("exclusive")),
        )
        self.takers: dict[int, Taker] = {}
        self.txs: list[tuple[Transaction, list[tuple[int, Message]]]] = []
        self.sent = 0
        self.attached = 0

    @property
    def now(self) -> int:
        """The time."""
        return self.bench.broker.now

    def follow(self) -> None:
        """The engine has come to rest: the model learns what was delivered, and both agree."""
        self.model.expire(self.now)
        for number, taker in self.takers.items():
            for body in taker.take():
                self.model.delivered(number, body)
        self.model.cut()
        self.compare()

    def compare(self) -> None:
        """Both have the same messages in the same places, and nobody waits for what he could have."""
        places = {"ready": "ready", "scheduled": "scheduled", "held": "delivering"}
        expected = {c.body: places[c.place] for c in self.model.copies if c.place != "tx"}
        assert self.bench.places("q") == expected
        model = self.model
        if not self.txs:
            check_counters(self.bench.broker)
        if model.paused:
            return
        for number, single in model.consumers.items():
            taker = self.takers[number]
            if single and taker.consumer.unacked:
                continue
            if model.exclusive and model.only != number:
                continue
            for copy in model.ready():
                if model.keeps:
                    assert number in copy.seen, f"{copy.body!r} was not shown to {number}"
                    continue
                owner = model.owners.get(copy.group, number) if copy.group else number
                assert owner != number or model.exclusive, f"{copy.body!r} waits although {number} wants it"

    # -- steps -----------------------------------------------------------------------------------------------------

    def send(self, a: int, b: int, c: int) -> None:
        """A run of messages, with key or group or neither."""
        now = self.now
        key = ("", "k1", "k2")[a % 3]
        group = ("", "", "g1", "g2")[b % 4]
        closes = bool(group) and c % 5 == 0
        asked = now + 700 if c % 7 == 0 else 0
        expires = now + 400 + 900 * (b % 3) if c % 3 == 0 else 0
        durable = c % 11 != 0
        priority = (4, 9)[a % 5 == 0]
        head = b"_AMQ_LVQ_NAME:%b\n" % key.encode() if key else b""
        head += b"JMSXGroupID:%b\n" % group.encode() if group else b""
        head += b"JMSXGroupSeq:-1\n" if closes else b""
        bodies = [b"%d" % (self.sent + n) for n in range(1 + (b + c) % 3)]
        self.sent += len(bodies)
        takes = not (self.model.purges and not self.model.consumers)
        messages = self.bench.sent(
            "q",
            *bodies,
            head=head,
            durable=durable,
            priority=priority,
            group=group,
            closes_group=closes,
            scheduled=asked,
            expiration=expires,
        )
        if not takes:
            return
        copies = [Copy(body_of(m), m.id, key, group, closes, priority, durable, expires, asked, now) for m in messages]
        if asked:
            for copy in copies:
                copy.place, copy.due = "scheduled", asked
                self.model.copies.append(copy)
        else:
            self.model.arrive(copies, head=False)

    def attach(self, a: int, b: int, c: int) -> None:
        """Somebody comes."""
        if len(self.takers) >= 3:
            return
        self.attached += 1
        single = a % 2 == 0
        self.takers[self.attached] = self.bench.take("q", window=0 if single else -1)
        self.model.consumers[self.attached] = single

    def _one(self, a: int) -> int:
        return sorted(self.takers)[a % len(self.takers)] if self.takers else -1

    def _held(self, number: int, b: int) -> list[Message]:
        taker = self.takers.get(number)
        held = list(taker.consumer.unacked.values()) if taker else []
        return held[b % len(held) :][:1] if held else []

    def _copies(self, messages: list[Message]) -> list[Copy]:
        ids = {message.id for message in messages}
        return [copy for copy in self.model.copies if copy.id in ids]

    def close(self, a: int, b: int, c: int) -> None:
        """Somebody leaves."""
        number = self._one(a)
        if number < 0:
            return
        how: DeliveryOutcome = (CLOSED, LOST)[b % 2]
        taker = self.takers.pop(number)
        held = self._copies(list(taker.consumer.unacked.values()))
        self.bench.close(taker, how)
        self.model.left(number)
        self.model.back(held, self.now, delayed=False)
        if self.model.purges and not self.model.consumers:
            self.model.copies = [copy for copy in self.model.copies if copy.place in ("held", "tx")]

    def ack(self, a: int, b: int, c: int) -> None:
        """A message is consumed."""
        number = self._one(a)
        for message in self._held(number, b):
            gone = self._copies([message])
            self.bench.ack(self.takers[number], message)
            if not self.model.keeps:
                self.model.copies.remove(gone[0])

    def nack(self, a: int, b: int, c: int) -> None:
        """A message failed."""
        number = self._one(a)
        for message in self._held(number, b):
            copies = self._copies([message])
            self.bench.nack(self.takers[number], message)
            self.model.back(copies, self.now, delayed=True)

    def settle(self, a: int, b: int, c: int) -> None:
        """A message is consumed in a transaction."""
        number = self._one(a)
        for message in self._held(number, b):
            if not self.txs:
                self.txs.append((self.bench.begin(), []))
            copies = self._copies([message])
            self.bench.ack(self.takers[number], message, tx=self.txs[0][0])
            self.txs[0][1].append((number, message))
            if not self.model.keeps:
                copies[0].place = "tx"

    def end(self, a: int, b: int, c: int) -> None:
        """The transaction is committed, or rolled back: then what each consumer had comes back together."""
        if not self.txs:
            return
        tx, settled = self.txs.pop()
        if a % 2:
            self.bench.enter().transactions.commit(tx)
            self.bench.run()
            if not self.model.keeps:
                for copy in self._copies([message for _, message in settled]):
                    self.model.copies.remove(copy)
            return
        self.bench.enter().transactions.rollback(tx)
        self.bench.run()
        for number in dict.fromkeys(number for number, _ in settled):
            copies = self._copies([message for owner, message in settled if owner == number])
            self.model.back(copies, self.now, delayed=True)

    def wait(self, a: int, b: int, c: int) -> None:
        """Until something is due."""
        dues = [copy.due for copy in self.model.copies if copy.place == "scheduled"]
        dues += [copy.expires for copy in self.model.copies if copy.expires > self.now]
        self.bench.broker.advance(max(min(dues, default=self.now + 50) - self.now, 0))
        self.model.due(self.now)

    def restart(self, a: int, b: int, c: int) -> None:
        """The broker loses power, or is stopped."""
        self.bench = self.bench.restart(crash=a % 2 == 0)
        self.bench.run()
        self.takers.clear()
        self.txs.clear()
        self.model.restart(self.now)

    def pause(self, a: int, b: int, c: int) -> None:
        """An operator stops the deliveries, or lets them go on."""
        self.model.paused = not self.model.paused
        alter.pause(self.bench.enter()._state, self.bench.queue("q"), paused=self.model.paused)
        self.bench.run()

    def resize(self, a: int, b: int, c: int) -> None:
        """The ring gets another size."""
        if self.model.ring >= 0:
            self.model.ring = 1 + a % 4
            alter.change(self.bench.enter()._state, self.bench.queue("q"), {"ring_size": self.model.ring})
            self.bench.run()


STEPS: Final = {
    "send": 8,
    "attach": 3,
    "close": 2,
    "ack": 3,
    "nack": 3,
    "settle": 2,
    "end": 2,
    "wait": 3,
    "restart": 1,
    "pause": 1,
    "resize": 1,
}

kinds = st.fixed_dictionaries(
    {},
    optional={
        "last_value": st.just(True),
        "ring_size": st.integers(1, 4),
        "non_destructive": st.just(True),
        "purge_on_no_consumers": st.just(True),
        "exclusive": st.just(True),
    },
)
steps = st.lists(
    st.tuples(
        st.sampled_from([name for name, weight in STEPS.items() for _ in range(weight)]),
        st.integers(0, 1000),
        st.integers(0, 1000),
        st.integers(0, 1000),
    ),
    min_size=5,
    max_size=40,
)


@settings(max_examples=60 * SCALE)
@given(kinds, steps)
def test_any_kind_of_queue_does_what_the_model_says(attributes: dict[str, object], work: list[Step]) -> None:
    run = Run(attributes)
    for name, a, b, c in work:
        note(f"{name} {a} {b} {c}")
        getattr(run, name)(a, b, c)
        run.follow()
    run.end(0, 0, 0)
    run.follow()
    check_accounts(run.bench.broker)
