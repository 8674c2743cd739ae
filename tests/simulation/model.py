"""A naive model of a broker's queues: lists, dictionaries, and the table, nothing else.

It shares no code with the engine.  It does not guess who gets a message: it is told what was delivered, and objects if
that could not be; and it knows for every message where it must be and how often it has failed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

DLQ: Final = "DLQ"
EXPIRY: Final = "ExpiryQueue"

#: A message is known by its body and the queue on which it first lay: dead and expired copies keep both.
Key = tuple[bytes, str]

#: A subscription: its client and its id.
Sub = tuple[int, str]


class Place(Enum):
    """Where a message is."""

    READY = "ready"
    SCHEDULED = "scheduled"
    HELD = "delivering"
    IN_TRANSACTION = "in a transaction"


@dataclass(slots=True)
class Copy:
    """A message on a queue.  Times in ms; `by` is who has it, `tx` in which transaction it was settled.

    `left`: it had left for a consumer whose connection, or whose broker, ended before the settlement.
    `moved`: it was with a consumer, or waited for its time; where pages are, it goes before what was not.
    `asked` is the time for which its producer scheduled it, `origin` the queue from which it was moved here.
    """

    key: Key
    seq: int
    durable: bool
    priority: int
    colour: str
    expires: int = 0
    due: int = 0
    failures: int = 0
    left: bool = False
    place: Place = Place.READY
    by: Sub | None = None
    tx: str = ""
    asked: int = 0
    origin: str = ""
    died: bool = False
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings of a queue's address."""

    delay: int = 0
    attempts: int = 10
    dead: str = DLQ
    strict: bool = False


@dataclass(slots=True)
class QueueModel:
    """A queue; `selector` decides what enters, `address` is set for subscriptions."""

    name: str
    rules: Rules
    durable: bool = True
    address: str = ""
    selector: str = ""
    copies: dict[Key, Copy] = field(default_factory=dict)


@dataclass(slots=True)
class Taking:
    """A subscription: what it takes, and what it has in the order of delivery.

    `mode` is the ack header; `single`: its window is 0, one message at a time.
    """

    queue: str
    selector: str
    mode: str
    single: bool
    has: list[Key] = field(default_factory=list)
    refused: set[Key] = field(default_factory=set)  # dead letters that stayed where they died: it gets them no more


@dataclass(slots=True)
class Sending:
    """A message in a transaction."""

    target: str
    copy: Copy


@dataclass(slots=True)
class TxModel:
    """An open transaction: sends, and settlements in order: (subscription, key, how)."""

    sends: list[Sending] = field(default_factory=list)
    settled: list[tuple[Sub, Key, str]] = field(default_factory=list)


def wants(selector: str, copy: Copy) -> bool:
    """The three selectors that the workload uses."""
    if selector == "AMQPriority > 4":
        return copy.priority > 4
    return not selector or copy.colour == selector.split("'")[1]


class Model:
    """All queues, subscriptions and transactions."""

    def __init__(self) -> None:
        self.now = 0
        self.queues: dict[str, QueueModel] = {}
        self.subs: dict[Sub, Taking] = {}
        self.transactions: dict[tuple[int, str], TxModel] = {}
        self._seq = 0

    # -- sending ---------------------------------------------------------------------------------------------------

    def publish(self, target: str, copy: Copy) -> None:
        """A message arrives at a queue, or at an address with subscriptions."""
        for queue in list(self.queues.values()):
            if (queue.address or queue.name) == target and wants(queue.selector, copy):
                self._enter(queue, replace(copy, key=(copy.key[0], queue.name)))

    def _enter(self, queue: QueueModel, copy: Copy) -> None:
        assert copy.key not in queue.copies, f"{copy.key} is on {queue.name} already"
        self._seq += 1
        copy.seq = self._seq
        copy.place = Place.SCHEDULED if copy.due > self.now else Place.READY
        copy.moved = copy.due > self.now
        queue.copies[copy.key] = copy
        for taking in self.subs.values():
            if taking.queue == queue.name:
                taking.refused.discard(copy.key)  # it is another message

    # -- deliveries ------------------------------------------------------------------------------------------------

    def delivered(self, sub: Sub, key: Key, *, redelivered: bool) -> Copy:
        """A subscription got a message."""
        taking = self.subs[sub]
        copy = self.queues[taking.queue].copies.get(key)
        assert copy is not None, f"{key} came from {taking.queue}, where it is not"
        assert copy.place is Place.READY, f"{key} came while it was {copy.place.value} (by {copy.by})"
        assert wants(taking.selector, copy), f"{key} does not fit {taking.selector}"
        assert key not in taking.refused, f"{key} came to {sub}, which has refused it"
        assert not 0 < copy.expires <= self.now, f"{key} came after its time"
        again = copy.left or copy.failures > 0
        assert redelivered == again, f"{key}: redelivered:{redelivered} after {copy.failures} failures"
        assert not (taking.single and taking.has), f"{key} came to {sub}, which has one and wants no more"
        copy.place, copy.by, copy.moved = Place.HELD, sub, True
        taking.has.append(key)
        if taking.mode == "auto":
            self.settle(sub, key, "ack")
        return copy

    def check_nobody_waits(self) -> None:
        """No message is ready for which there is a taker."""
        for taking in self.subs.values():
            if taking.single and taking.has:
                continue
            for copy in self.queues[taking.queue].copies.values():
                waits = copy.place is Place.READY and wants(taking.selector, copy) and copy.key not in taking.refused
                assert not waits, f"{copy.key} waits on {taking.queue} although somebody wants it"

    def settle(self, sub: Sub, key: Key, how: str, tx: str = "") -> None:
        """ACK, NACK or NACK with requeue:false, of one or, cumulatively, of all before; in a transaction or not."""
        taking = self.subs[sub]
        at = taking.has.index(key)
        covered = taking.has[: at + 1] if taking.mode == "client" else [key]
        for each in covered:
            taking.has.remove(each)
        if tx:
            for each in covered:
                copy = self.queues[taking.queue].copies[each]
                copy.place, copy.tx = Place.IN_TRANSACTION, tx
                self.transactions[sub[0], tx].settled.append((sub, each, how))
            return
        for each in covered:
            self._settled(taking.queue, each, how)

    def _settled(self, queue_name: str, key: Key, how: str) -> None:
        queue = self.queues.get(queue_name)
        copy = queue.copies.get(key) if queue is not None else None
        if queue is None or copy is None:
            return  # its queue was deleted meanwhile
        if how == "ack":
            del queue.copies[key]
        elif how == "nack":
            self._failed(queue, copy)
        else:
            copy.failures += 1
            if queue.rules.dead == queue.name:
                if copy.by in self.subs:
                    self.subs[copy.by].refused.add(key)
                self._returns(queue, copy, delayed=True)
            else:
                self._dies(queue, copy)

    def _failed(self, queue: QueueModel, copy: Copy) -> None:
        copy.failures += 1
        self._comes_back(queue, copy, delayed=True)

    def _comes_back(self, queue: QueueModel, copy: Copy, *, delayed: bool) -> None:
        """Also what is returned without blame dies, if crashes have used up its attempts (strict mode)."""
        dead = queue.rules.attempts > 0 and copy.failures >= queue.rules.attempts and queue.rules.dead != queue.name
        if dead:
            self._dies(queue, copy)
        else:
            self._returns(queue, copy, delayed=delayed)

    def _returns(self, queue: QueueModel, copy: Copy, *, delayed: bool) -> None:
        copy.by, copy.tx = None, ""
        copy.place = Place.READY
        if delayed and queue.rules.delay:
            copy.place, copy.due = Place.SCHEDULED, self.now + queue.rules.delay

    def _dies(self, queue: QueueModel, copy: Copy) -> None:
        self._moves(queue, copy, queue.rules.dead)

    def _moves(self, queue: QueueModel, copy: Copy, target: str) -> None:
        del queue.copies[copy.key]
        if target:
            self._arrives(queue, replace(copy, asked=0, died=True), target)

    def _arrives(self, queue: QueueModel, copy: Copy, target: str) -> None:
        key = copy.key if copy.died else (copy.key[0], target)
        moved = replace(
            copy, key=key, expires=0, due=copy.asked, failures=0, left=False, by=None, tx="", origin=queue.name
        )
        self._enter(self.queues[target], moved)

    # -- the ends of subscriptions and transactions -------------------------------------------------------------------

    def close(self, sub: Sub, how: str) -> None:
        """A subscription ends: "closed", "stopped" (by the broker) or "disconnected"."""
        taking = self.subs.pop(sub)
        queue = self.queues[taking.queue]
        for at, key in enumerate(taking.has):
            copy = queue.copies[key]
            copy.left = copy.left or how != "closed"
            if how == "disconnected" and at == 0:
                self._failed(queue, copy)
            else:
                self._comes_back(queue, copy, delayed=how == "disconnected")
        if queue.address and not queue.durable:
            del self.queues[taking.queue]

    def leave(self, client: int, how: str) -> None:
        """A client goes: its transactions are rolled back, its subscriptions end."""
        for owner, tx in list(self.transactions):
            if owner == client:
                self.rollback(client, tx)
        for sub in [sub for sub in self.subs if sub[0] == client]:
            self.close(sub, how)

    def commit(self, client: int, name: str) -> None:
        """A transaction does what it holds."""
        tx = self.transactions.pop((client, name))
        for send in tx.sends:
            self.publish(send.target, send.copy)
        for sub, key, how in tx.settled:
            self._settled(self._queue_of(sub, key, name), key, how)

    def rollback(self, client: int, name: str) -> None:
        """A transaction is forgotten; what it had settled has failed, in the order in which it came to its queue."""
        tx = self.transactions.pop((client, name))
        back: dict[Sub, list[tuple[QueueModel, Copy]]] = {}
        for sub, key, _ in tx.settled:
            queue_name = self._queue_of(sub, key, name)
            if queue_name:
                queue = self.queues[queue_name]
                back.setdefault(sub, []).append((queue, queue.copies[key]))
        for run in back.values():
            for queue, copy in sorted(run, key=lambda found: found[1].seq):
                self._failed(queue, copy)

    def _queue_of(self, sub: Sub, key: Key, tx: str) -> str:
        """Where a message lies that a subscription settled, which may be gone."""
        for queue in self.queues.values():
            copy = queue.copies.get(key)
            if copy is not None and copy.place is Place.IN_TRANSACTION and (copy.by, copy.tx) == (sub, tx):
                return queue.name
        return ""

    # -- time, operators, restarts -------------------------------------------------------------------------------------

    def next_due(self) -> int | None:
        """When something happens by itself."""
        dues = [c.due for q in self.queues.values() for c in q.copies.values() if c.place is Place.SCHEDULED]
        dues += [c.expires for q in self.queues.values() for c in q.copies.values() if c.expires > self.now]
        return min(dues, default=None)

    def elapse(self) -> None:
        """What is due at `now`: scheduled messages become ready, ready ones expire."""
        for queue in list(self.queues.values()):
            for copy in list(queue.copies.values()):
                if copy.place is Place.SCHEDULED and copy.due <= self.now:
                    copy.place = Place.READY
                if copy.place is Place.READY and 0 < copy.expires <= self.now:
                    self._moves(queue, copy, EXPIRY)

    def purge(self, queue_name: str) -> int:
        """Ready and scheduled messages are gone."""
        queue = self.queues[queue_name]
        gone = [k for k, c in queue.copies.items() if c.place in (Place.READY, Place.SCHEDULED)]
        for key in gone:
            del queue.copies[key]
        return len(gone)

    def move(self, queue_name: str, target: str, selector: str, order: list[Key]) -> int:
        """Ready and scheduled messages that fit go to another queue; only a producer's schedule goes with them."""
        queue = self.queues[queue_name]
        gone = [copy for copy in (queue.copies[key] for key in order) if wants(selector, copy)]
        for copy in gone:
            del queue.copies[copy.key]
            self._arrives(queue, copy, target)
        return len(gone)

    def retry(self, queue_name: str, selector: str, order: list[Key]) -> dict[str, int]:
        """Ready and scheduled messages that fit go back, or stay for a reason; how many of each ("": went back)."""
        queue = self.queues[queue_name]
        outcomes: dict[str, int] = {}
        for copy in (queue.copies[key] for key in order):
            if not wants(selector, copy):
                continue
            outcome = self._refusal(queue, copy)
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
            if not outcome:
                del queue.copies[copy.key]
                self._arrives(queue, copy, copy.origin)
        return outcomes

    def _refusal(self, queue: QueueModel, copy: Copy) -> str:
        if not copy.origin:
            return "no-origin"
        home = self.queues.get(copy.origin)
        if home is None or not wants(home.selector, copy) or (copy.durable and not home.durable):
            return "no-queue"
        return "onto-itself" if home is queue else ""

    def stop(self) -> None:
        """A stop in good order: transactions are rolled back, deliveries go back unblamed."""
        for client in {owner for owner, _ in self.transactions} | {owner for owner, _ in self.subs}:
            self.leave(client, "stopped")
        self._forget()

    def cut(self) -> None:
        """The power goes: in strict mode everything that was with a consumer counts as delivered."""
        self.transactions.clear()
        self.subs.clear()
        for queue in self.queues.values():
            for copy in queue.copies.values():
                if copy.place in (Place.HELD, Place.IN_TRANSACTION):
                    copy.failures += queue.rules.strict
                    copy.place, copy.by, copy.tx = Place.READY, None, ""
        self._forget()

    def _forget(self) -> None:
        self.queues = {name: queue for name, queue in self.queues.items() if queue.durable}
        for queue in self.queues.values():
            queue.copies = {key: copy for key, copy in queue.copies.items() if copy.durable}
