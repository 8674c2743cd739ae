"""A mixed workload that asks for a receipt at every step, and an oracle that notes what was confirmed.

Afterwards, on the restarted broker: no message whose receipt came is lost, none whose removal was confirmed comes back,
a moved message is in one place and not in two or none, and what was under way is either done or not.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from broker.config import Config
from broker.engine.filter import compile_filter
from broker.engine.model.errors import DiskFull, NotReadable
from broker.engine.moves.transfer import MessageRange, MoveResult
from store.errors import JournalError
from tests.simulation.random_work import PAGING
from tests.simulation.world import check_accounts, held, small
from tests.support.sim_broker import SimBroker, SimClient
from tests.support.sim_database import SimDatabase
from tests.support.sim_files import Crash, Fault, SimFiles, power_cuts
from tests.support.stomp_client import ServerFrame

_SETTINGS: Final[tuple[dict[str, object], ...]] = (
    {"match": "orders", "max-delivery-attempts": 2, "redelivery-delay": 100},
    {"match": "strict", "delivery-count-persistence": "strict"},
    {"match": "lost", "dead-letter-address": "attic"},
)


def config(*, retained: bool = True) -> Config:
    """Three queues, in small segments."""
    return small(*_SETTINGS, segment_bytes=8 << 10, retained=retained)


class Unconfirmed(Exception):
    """The broker stopped in the middle: the receipt never came."""


class Oracle:
    """Where each message must be: by body, the queues of which exactly one has it (none: it must be gone)."""

    def __init__(self) -> None:
        self.places: dict[bytes, set[str]] = {}

    def copy(self) -> Oracle:
        """As it is now."""
        other = Oracle()
        other.places = {body: set(places) for body, places in self.places.items()}
        return other

    def may(self, body: bytes, *places: str) -> None:
        """Something is about to happen: it may end there too."""
        self.places.setdefault(body, set()).update(places)

    def must(self, body: bytes, *places: str) -> None:
        """It has happened."""
        self.places[body] = set(places)

    def check(self, broker: SimBroker) -> None:
        """What the restarted broker has is what may be."""
        found: dict[bytes, str] = {}
        for queue in broker.engine.queues:
            for body in held(broker, queue):
                assert body not in found, f"{body!r} is on {queue}, and on {found[body]}"
                assert body in self.places, f"{body!r} was never sent"
                found[body] = queue
        for body, places in self.places.items():
            place = found.get(body, "gone")
            assert place in places, f"{body!r} is on {place}, and may be on {places}"


class Workload:
    """Every kind of change, each with its receipt."""

    def __init__(self, broker: SimBroker, oracle: Oracle) -> None:
        self.broker = broker
        self.oracle = oracle
        self.receipts = 0
        self.settled_after_failure = False

    @property
    def unreadable(self) -> bool:
        """Whether paged messages could not be read back: they stay where they are, and only purging finds them."""
        return bool(self.broker.reported("paging.failed"))

    def sure(self, client: SimClient, command: str, headers: dict[str, str], body: bytes = b"") -> None:
        """A frame and its receipt."""
        self.receipts += 1
        client.do(command, {**headers, "receipt": str(self.receipts)}, body)
        receipts = client.take("RECEIPT")
        if client.closed or not self.broker.confirms:
            raise Unconfirmed
        assert [f.headers["receipt-id"] for f in receipts] == [str(self.receipts)], client.frames

    def send(self, client: SimClient, queue: str, body: bytes, **headers: str) -> None:
        self.oracle.may(body, "gone", queue)
        self.sure(client, "SEND", {"destination": f"/queue/{queue}", "persistent": "true", **headers}, body)
        self.oracle.must(body, queue)

    def settle(self, client: SimClient, message: ServerFrame, outcome: str, **headers: str) -> None:
        queue = message.headers["destination"].rpartition("/")[2]
        self.oracle.may(message.body, outcome, queue)
        command = "ACK" if outcome == "gone" else "NACK"
        self.sure(client, command, {**client._naming(message), **headers})
        refused = outcome != "gone" and bool(self.broker.reported("move.disk_full"))
        self.oracle.must(message.body, outcome, *([queue] if refused else []))  # without room a dead letter stays

    def run(self) -> None:
        broker = self.broker
        sender, taker = broker.connect(), broker.connect(**{"client-id": "t"})
        for n in range(12):
            self.send(sender, "orders", b"order %d" % n, filler="x" * 300)
        self.sure(taker, "SUBSCRIBE", {"destination": "/queue/orders", "id": "o", "ack": "client-individual"})
        orders = taker.messages()
        self.settle(taker, orders[3], "gone")
        self.settle(taker, orders[0], "DLQ", requeue="false")
        self.settle(taker, orders[1], "orders")
        self.transaction(sender, taker, orders)
        self.expire(sender)
        self.fail_twice(taker)
        self.strict(sender, taker)
        self.subscription(sender, taker)
        self.attic(sender, taker)
        taker.drop()
        self.retry()
        self.move()
        self.purge()
        sender.drop()
        broker.advance(60_000)

    def transaction(self, sender: SimClient, taker: SimClient, orders: list[ServerFrame]) -> None:
        """Two sends, an acknowledgement and a rejection: all or nothing."""
        self.sure(taker, "BEGIN", {"transaction": "t"})
        bodies = [b"in transaction 1", b"in transaction 2"]
        for body in bodies:
            taker.send("/queue/later", body, persistent="true", transaction="t", filler="y" * 200)
        taker.ack(orders[5], transaction="t")
        taker.nack(orders[6], transaction="t", requeue="false")
        for body in bodies:
            self.oracle.may(body, "gone", "later")
        self.oracle.may(orders[5].body, "gone")
        self.oracle.may(orders[6].body, "DLQ")
        self.sure(taker, "COMMIT", {"transaction": "t"})
        for body in bodies:
            self.oracle.must(body, "later")
        self.oracle.must(orders[5].body, "gone")
        self.oracle.must(orders[6].body, "DLQ")

    def expire(self, sender: SimClient) -> None:
        for n in range(3):
            body = b"short-lived %d" % n
            self.send(sender, "later", body, expires=str(self.broker.now + 50))
            self.oracle.may(body, "ExpiryQueue")
        self.broker.advance(50)
        if self.broker.confirms and not self.unreadable:
            for n in range(3):
                self.oracle.must(b"short-lived %d" % n, "ExpiryQueue")

    def fail_twice(self, taker: SimClient) -> None:
        """It has failed once, and comes back after its delay."""
        self.broker.advance(100)
        (again,) = taker.messages()
        assert again.headers["redelivered"] == "true"
        self.settle(taker, again, "DLQ")

    def strict(self, sender: SimClient, taker: SimClient) -> None:
        self.sure(taker, "SUBSCRIBE", {"destination": "/queue/strict", "id": "s", "ack": "client"})
        for n in range(3):
            self.send(sender, "strict", b"strict %d" % n)
        found = taker.messages()
        for message in found:
            self.oracle.may(message.body, "gone")
        self.sure(taker, "ACK", taker._naming(found[1]))
        self.oracle.must(found[0].body, "gone")
        self.oracle.must(found[1].body, "gone")
        self.oracle.must(found[2].body, "strict")

    def subscription(self, sender: SimClient, taker: SimClient) -> None:
        """A durable subscription, messages for it, and its end."""
        headers = {"destination": "/topic/news", "id": "n", "durable-subscription-name": "d", "ack": "client"}
        self.sure(taker, "SUBSCRIBE", headers)
        self.sure(taker, "UNSUBSCRIBE", {"id": "n"})
        for n in range(3):
            body = b"news %d" % n
            self.oracle.may(body, "gone", "t.d")
            self.sure(sender, "SEND", {"destination": "/topic/news", "persistent": "true"}, body)
            self.oracle.must(body, "t.d")
        for n in range(3):
            self.oracle.may(b"news %d" % n, "gone")
        self.sure(taker, "UNSUBSCRIBE", {"durable-subscription-name": "d"})
        for n in range(3):
            self.oracle.must(b"news %d" % n, "gone")

    def attic(self, sender: SimClient, taker: SimClient) -> None:
        """A dead-letter address that has to be made."""
        self.send(sender, "lost", b"lost")
        self.sure(taker, "SUBSCRIBE", {"destination": "/queue/lost", "id": "l", "ack": "client"})
        self.settle(taker, taker.messages()[-1], "attic", requeue="false")

    def retry(self) -> None:
        """What was rejected goes back to where it died."""
        selection = MessageRange(filter=compile_filter("_AMQ_DL_REASON = 'rejected'"))
        rejected = [body for body in held(self.broker, "DLQ") if body in (b"order 0", b"order 6")]
        for body in rejected:
            self.oracle.may(body, "orders")
        step = self.broker.enter().messages.retry(self.broker.engine.queue("DLQ"), selection)
        self.broker.run()
        self.done(rejected, "orders", step)

    def move(self) -> None:
        """What expired is moved to a queue that has to be made."""
        expired = held(self.broker, "ExpiryQueue")
        for body in expired:
            self.oracle.may(body, "again")
        step = self.broker.enter().messages.move(self.broker.engine.queue("ExpiryQueue"), "again", MessageRange())
        self.broker.run()
        self.done(expired, "again", step)

    def done(self, bodies: list[bytes], place: str, step: MoveResult) -> None:
        """It is on the disk, unless the disk was full or failed."""
        assert step.moved + step.refused.get("disk-full", 0) == len(bodies) or self.unreadable
        if self.broker.confirms and step.moved == len(bodies):
            for body in bodies:
                self.oracle.must(body, place)

    def purge(self) -> None:
        doomed = held(self.broker, "later")
        if self.unreadable:  # which is purged like the rest
            doomed = [body for body, places in self.oracle.places.items() if "later" in places]
        for body in doomed:
            self.oracle.may(body, "gone")
        with suppress(DiskFull):
            self.broker.enter().messages.purge(self.broker.engine.queue("later"))
        self.broker.run()
        if self.broker.confirms:
            left = held(self.broker, "later")  # without room they stay
            for body in doomed:
                self.oracle.must(body, "later" if body in left else "gone")


def attempt(
    files: SimFiles, settings: Config, shared: SimDatabase | None = None, *, oracle: Oracle | None = None
) -> Oracle:
    """The workload, as far as it gets; with a journal that a database has, if it is given."""
    oracle = oracle or Oracle()
    broker: SimBroker | None = None
    try:
        broker = SimBroker(settings, files=files, shared=shared)
        Workload(broker, oracle).run()
        broker.shut_down()
    except (Crash, Unconfirmed, JournalError, NotReadable):
        if broker is not None and broker.failure is not None:
            nothing_is_confirmed(broker)
    except (IndexError, ValueError):
        # The workload misses a message: a paged one that cannot be read back for now.
        if broker is None or not broker.reported("paging.failed"):
            raise
    return oracle


def rehearsed(settings: Config, shared: SimDatabase | None = None) -> tuple[SimFiles, Oracle]:
    """The workload without faults, which it survives to its end."""
    files = SimFiles(1)
    oracle = attempt(files, settings, shared)
    assert all(len(places) == 1 for places in oracle.places.values()), "the workload runs to its end"
    return files, oracle


def moments(settings: Config) -> list[tuple[SimFiles, Oracle]]:
    """The disk, and what it must have, before each operation of the workload and at its end: one run for all."""
    files, oracle = SimFiles(1), Oracle()
    with power_cuts(files, oracle.copy) as found:
        attempt(files, settings, oracle=oracle)
    return found


def fail_at(operations: Iterable[int], settings: Config, fault: Fault, *, sticky: bool) -> None:
    """The disk fails at each of these operations, and the next run finds everything where it may be."""
    for at in operations:
        files = SimFiles(at)
        files.plan(at, fault, sticky=sticky)
        oracle = attempt(files, settings)
        assert files.faults > 0
        files.heal()
        files.crash()
        restarted(files, settings, oracle)


def nothing_is_confirmed(broker: SimBroker) -> None:
    """After the disk has failed (promise P1): whatever is sent, no receipt comes."""
    failure = broker.failure
    late = SimClient(broker, "1.2", 99)
    late.do("CONNECT", {"accept-version": "1.2", "host": "sim"})
    late.send("/queue/orders", b"late", persistent="true", receipt="late")
    broker.step()
    broker.step()
    assert not late.take("RECEIPT")
    assert broker.failure is failure, "the failure is told once"


def restarted(files: SimFiles, settings: Config, oracle: Oracle, shared: SimDatabase | None = None) -> SimBroker:
    """The next run, in which everything is where it may be, and from the disk the same."""
    broker = SimBroker(settings, files=files, seed=1, shared=shared)
    oracle.check(broker)
    if settings.journal.retention.enabled:
        check_accounts(broker)
    return broker


def crashing(*, retained: bool = True) -> Config:
    """Everything goes through the tails."""
    paging = {**PAGING, "max-size-messages": 0}
    return small(
        {"match": "orders", "max-delivery-attempts": 2, "redelivery-delay": 100, **paging},
        {"match": "strict", "delivery-count-persistence": "strict", **paging},
        {"match": "lost", "dead-letter-address": "attic", **paging},
        *({"match": name, **paging} for name in ("later", "news", "attic", "again", "DLQ", "ExpiryQueue")),
        segment_bytes=8 << 10,
        retained=retained,
    )
