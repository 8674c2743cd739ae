"""A journal as a busy broker leaves it, with every way in and out of a queue, and the true totals beside it.

It is a model of a broker without a network: queues that hold messages, and operations on them in random order, each of
which writes the records that the broker writes, in one entry.  Orders go to queues, events to several queues each; they
are consumed in runs, come back, wait, die, expire, are moved back and die again.  The same seed gives the same bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final

from bench.audit.books import Books, QueueBook
from bench.audit.segments import Segments
from store import record
from store.record import DeadLetterReason, Json, RecordType, RemovalReason, StoredMessage

EPOCH: Final = 1_750_000_000_000
DLQ: Final = "DLQ"
EXPIRY: Final = "ExpiryQueue"

#: Sizes of bodies in bytes, and of runs in messages.
BODY_BYTES: Final = (20, 400)
RUN: Final = 64
#: About so many messages wait at a time; more are consumed when there are more.
HELD: Final = 20_000
#: An entry ends when it has so many bytes: what a broker under load gathers in a tick.
ENTRY_BYTES: Final = 24 << 10

_ADDRESSES: Final = 24
_TEMPORARY: Final = 4
_USERS: Final = ("shop", "billing", "lager-süd", "")
_CLIENTS: Final = ("worker-1", "worker-2", "import", "")
_POOL_BYTES: Final = 1 << 20
_SEARCH: Final = 64
_FORMAT: Final = 1


@dataclass(slots=True)
class _Run:
    """What the messages of a run share."""

    address: str
    user: str
    sent: int
    expiration: int
    source: int
    annotations: Json


@dataclass(slots=True, eq=False)
class _Sent:
    """A message."""

    id: int
    head: bytes
    body: bytes
    run: _Run


class _Queue:
    """A queue and what it holds, oldest first."""

    __slots__ = ("book", "held", "id")

    def __init__(self, id: int, book: QueueBook) -> None:
        self.id = id
        self.book = book
        self.held: deque[_Sent] = deque()


class _Broker:
    """See the module."""

    def __init__(self, directory: Path, books: Books) -> None:
        self.random = Random(books.seed)
        self.books = books
        self.out = Segments(directory, books, EPOCH)
        self.held = 0
        self._pool = self.random.randbytes(_POOL_BYTES)
        self._heads = [self._head(n) for n in range(256)]
        self.queues: list[_Queue] = []
        self.temporary: list[_Queue] = []
        self.routes: dict[str, list[_Queue]] = {}
        for n in range(_ADDRESSES):
            self._address(f"orders.{n:02}", [f"orders.{n:02}"])
        self._address("events", ["events.audit", "events.mail", "events.stock"])
        self.dlq = self._address(DLQ, [DLQ])[0]
        self.expiry = self._address(EXPIRY, [EXPIRY])[0]
        self.out.seal()

    def _head(self, n: int) -> bytes:
        tail = b"note:a\\cb\\nc\n" if n % 16 == 0 else b""
        return b"content-type:application/json\nshelf:%d\ncorrelation-id:c-%d\n%b" % (n, n % 40, tail)

    def _address(self, name: str, queues: Sequence[str]) -> list[_Queue]:
        id = self.out.ids(1)
        self.out.define(id, record.address(id, {"name": name, "routing-types": ["ANYCAST"]}), RecordType.ADDRESS)
        self.routes[name] = [self._queue(queue, name) for queue in queues]
        if name not in (DLQ, EXPIRY):
            self.queues += self.routes[name]
        return self.routes[name]

    def _queue(self, name: str, address: str) -> _Queue:
        id = self.out.ids(1)
        definition: Json = {"name": name, "address": address, "routing-type": "ANYCAST", "auto-created": False}
        self.out.define(id, record.queue(id, definition), RecordType.QUEUE)
        book = self.books.queues[id] = QueueBook(name, address)
        return _Queue(id, book)

    # -- what operations are made of -------------------------------------------------------------------------------

    def _store(self, queues: Sequence[_Queue], run: _Run, parts: Sequence[tuple[bytes, bytes]], due: int = 0) -> int:
        """Messages of these heads and bodies on queues; returns the id of the first."""
        first = self.out.ids(len(parts))
        messages = [_Sent(first + i, head, body, run) for i, (head, body) in enumerate(parts)]
        header = record.message_header(
            timestamp=run.sent,
            expiration=run.expiration,
            expiry_source=run.source,
            scheduled=due,
            priority=self.random.choice((4, 4, 4, 9)),
            format=_FORMAT,
            queue_ids=[queue.id for queue in queues],
            address=run.address,
            user=run.user,
            origin="c-1" if run.user else "",
            annotations=record.encode_json(run.annotations) if run.annotations else b"",
        )
        stored = [StoredMessage(message.id, message.head, message.body) for message in messages]
        self.out.add_messages([queue.id for queue in queues], header, stored)
        for queue in queues:
            queue.held += messages
            queue.book.entered += len(messages)
        self.held += len(messages) * len(queues)
        return first

    def _take(self, queue: _Queue, n: int) -> list[_Sent]:
        held = queue.held
        return [held.popleft() for _ in range(min(n, len(held)))]

    def _remove(self, queue: _Queue, messages: Sequence[_Sent], reason: RemovalReason) -> None:
        if messages:
            self.out.add(queue.id, record.removed(queue.id, reason, [m.id for m in messages]), RecordType.REMOVED)
            queue.book.left[reason.word] += len(messages)
            self.held -= len(messages)

    def _busy(self) -> _Queue:
        """A queue with messages, if a few tries find one; it may be empty."""
        queue = self.random.choice(self.queues)
        for _ in range(8):
            if queue.held:
                break
            queue = self.random.choice(self.queues)
        return queue

    def _copy(self, target: _Queue, message: _Sent, origin: _Queue, more: Json) -> int:
        """An independent copy of a message on another queue."""
        annotations: Json = {
            **message.run.annotations,
            "_AMQ_ORIG_ADDRESS": message.run.address,
            "_AMQ_ORIG_QUEUE": origin.book.name,
            "_AMQ_ORIG_MESSAGE_ID": message.id,
            **more,
        }
        run = _Run(target.book.address, message.run.user, message.run.sent, 0, 0, annotations)
        return self._store([target], run, [(message.head, message.body)])

    def _record_death(
        self, queue: _Queue, message: _Sent, new_id: int, reason: DeadLetterReason, attempts: int
    ) -> None:
        address = message.run.address
        death = record.dead_lettered(
            queue_id=queue.id,
            old_id=message.id,
            new_id=new_id,
            enqueued=message.run.sent,
            first_failure=max(message.run.sent, self.out.now - self.random.randrange(60_000)) if attempts else 0,
            attempts=attempts,
            reason=reason,
            address=address,
            text=f"{reason.word} after {attempts} deliveries",
            client=self.random.choice(_CLIENTS),
            remote="192.0.2.7:40123",
            user=message.run.user,
        )
        self.out.add(queue.id, death, RecordType.DEAD_LETTERED)
        self.books.deaths[f"{address}|{queue.book.name}|{reason.word}"] += 1

    # -- operations ------------------------------------------------------------------------------------------------

    def send(self) -> None:
        random = self.random
        address = "events" if random.random() < 0.08 else f"orders.{random.randrange(_ADDRESSES):02}"
        self._send(self.routes[address], address)

    def _send(self, queues: Sequence[_Queue], address: str) -> None:
        random, now, pool = self.random, self.out.now, self._pool
        expires = random.random() < 0.1
        run = _Run(
            address=address,
            user=random.choice(_USERS),
            sent=now,
            expiration=now + random.randrange(1, 50) if expires else 0,
            source=random.randrange(1, 5) if expires else 0,
            annotations={},
        )
        count = random.randrange(1, RUN + 1)
        shortest, longest = BODY_BYTES
        sizes = random.choices(range(shortest, longest + 1), k=count)
        starts = random.choices(range(_POOL_BYTES - longest), k=count)
        heads = random.choices(self._heads, k=count)
        bodies = [pool[start : start + size] for start, size in zip(starts, sizes, strict=True)]
        due = now + 5000 if random.random() < 0.02 else 0
        self._store(queues, run, list(zip(heads, bodies, strict=True)), due)

    def consume(self) -> None:
        queue = self._busy()
        self._remove(queue, self._take(queue, self.random.randrange(1, RUN + 1)), RemovalReason.CONSUMED)

    def consume_letters(self) -> None:
        queue = self.random.choice((self.dlq, self.expiry))
        self._remove(queue, self._take(queue, self.random.randrange(1, 8)), RemovalReason.CONSUMED)

    def count(self) -> None:
        queue = self._busy()
        ids = [m.id for m in islice(queue.held, self.random.randrange(1, 8))]
        if ids:
            data = record.counts(queue.id, self.random.randrange(1, 6), ids)
            self.out.add(queue.id, data, RecordType.COUNTS)

    def deliver(self) -> None:
        queue = self._busy()
        ids = [m.id for m in islice(queue.held, self.random.randrange(1, RUN))]
        if ids:
            data = record.delivering(queue.id, self.random.randrange(1, 100), ids)
            self.out.add(queue.id, data, RecordType.DELIVERING)

    def schedule(self) -> None:
        queue = self._busy()
        ids = [m.id for m in islice(queue.held, 2)]
        if ids:
            data = record.scheduled(queue.id, self.random.choice((0, self.out.now + 2000)), ids)
            self.out.add(queue.id, data, RecordType.SCHEDULED)

    def send_to_dla(self) -> None:
        queue = self._busy()
        for message in self._take(queue, 1):
            reason = self.random.choice((DeadLetterReason.MAX_DELIVERIES, DeadLetterReason.REJECTED))
            attempts = 10 if reason == DeadLetterReason.MAX_DELIVERIES else self.random.randrange(3)
            deaths = message.run.annotations.get("_AMQ_DL_COUNT", 0)
            more: Json = {"_AMQ_DL_REASON": reason.word, "_AMQ_DL_TIME": self.out.now}
            more["_AMQ_DL_COUNT"] = deaths + 1 if isinstance(deaths, int) else 1
            new_id = self._copy(self.dlq, message, queue, more)
            self._record_death(queue, message, new_id, reason, attempts)
            self._remove(queue, [message], RemovalReason.DEAD_LETTERED)

    def kill(self) -> None:
        queue = self._busy()
        for message in self._take(queue, 1):
            self._record_death(queue, message, 0, DeadLetterReason.REJECTED, 1)
            self._remove(queue, [message], RemovalReason.KILLED)

    def expire(self) -> None:
        queue = self._busy()
        due = [m for m in islice(queue.held, _SEARCH) if 0 < m.run.expiration <= self.out.now]
        for message in due[:8]:
            queue.held.remove(message)
            self._expire(queue, message)

    def _expire(self, queue: _Queue, message: _Sent) -> None:
        run = message.run
        new_id = 0
        if self.random.random() < 0.7:
            new_id = self._copy(self.expiry, message, queue, {"_AMQ_ACTUAL_EXPIRY": self.out.now})
        data = record.expired(
            queue_id=queue.id,
            old_id=message.id,
            new_id=new_id,
            enqueued=run.sent,
            expiration=run.expiration,
            attempts=self.random.choice((0, 0, 2)),
            source=run.source,
            consumers=self.random.choice((0, 1)),
            address=run.address,
        )
        self.out.add(queue.id, data, RecordType.EXPIRED)
        self.books.expiries[f"{run.address}|{queue.book.name}|{run.source}"] += 1
        self._remove(queue, [message], RemovalReason.EXPIRED)

    def remove_oldest(self) -> None:
        """Ways out that are a removal and nothing else."""
        ways = (
            RemovalReason.REPLACED,
            RemovalReason.EVICTED,
            RemovalReason.DISPLACED,
            RemovalReason.DISCARDED,
            RemovalReason.DROPPED,
            RemovalReason.UNROUTABLE,
            RemovalReason.FORWARDED,
        )
        queue = self._busy()
        self._remove(queue, self._take(queue, self.random.randrange(1, 4)), self.random.choice(ways))

    def purge(self) -> None:
        queue = self._busy()
        self._remove(queue, self._take(queue, 500), RemovalReason.PURGED)

    def move(self) -> None:
        """An operator moves a message, or brings a dead letter back to where it died."""
        queue = self.random.choice((self._busy(), self.dlq, self.dlq))
        for message in self._take(queue, 1):
            name = message.run.annotations.get("_AMQ_ORIG_QUEUE")
            back = [other for other in self.queues if other.book.name == name]
            self._copy(back[0] if back else self.random.choice(self.queues), message, queue, {})
            self._remove(queue, [message], RemovalReason.MOVED)

    def refuse(self) -> None:
        reason = self.random.choice((RemovalReason.UNROUTABLE, RemovalReason.DROPPED))
        count, size = self.random.randrange(1, RUN), self.random.randrange(10_000)
        address = f"nowhere.{self.random.randrange(5)}"
        self.out.add_dropped(record.dropped(reason, count, size, address))
        self.books.dropped[f"{address}|{reason.word}"] += count
        self.books.dropped_bytes[f"{address}|{reason.word}"] += size

    def replace_queue(self) -> None:
        """A queue is made, gets messages, and an older one is deleted with all it holds."""
        name = f"temporary.{self.out.ids(1)}"
        queue = self._queue(name, "temporary")
        self.temporary.append(queue)
        self._send([queue], "temporary")
        if len(self.temporary) > _TEMPORARY:
            self.delete_queue()

    def delete_queue(self) -> None:
        queue = self.temporary.pop(0)
        self._remove(queue, self._take(queue, len(queue.held)), RemovalReason.DELETED)
        gone = record.queue_deleted(queue.id, {"name": queue.book.name})
        self.out.add(queue.id, gone, RecordType.QUEUE_DELETED)
        queue.book.deleted = True


_Operation = Callable[[_Broker], None]

#: How often what is done, beside sending and consuming.
_RARE: Final[dict[_Operation, int]] = {
    _Broker.count: 30,
    _Broker.deliver: 30,
    _Broker.schedule: 10,
    _Broker.send_to_dla: 60,
    _Broker.kill: 6,
    _Broker.expire: 60,
    _Broker.remove_oldest: 20,
    _Broker.purge: 2,
    _Broker.move: 20,
    _Broker.refuse: 10,
    _Broker.replace_queue: 4,
    _Broker.consume_letters: 20,
}
_COMMON: Final = 3  # sends and consumes to each of the others


def generate(directory: Path, records: int, seed: int, segment_bytes: int = 64 << 20) -> Books:
    """Write a journal of at least `records` records as segments of about `segment_bytes` into an empty directory.

    Nine records in ten are messages.  Every reason of removal occurs, however short the journal is.
    """
    directory.mkdir(parents=True, exist_ok=True)
    broker_id = Random(f"broker {seed}").randbytes(16).hex()
    broker = _Broker(directory, Books(seed, broker_id, segment_bytes))
    _begin(broker)
    rare = broker.random.choices(list(_RARE), list(_RARE.values()), k=4096)
    books, out, chance = broker.books, broker.out, broker.random.random
    done = 0
    while books.records < records:
        for _ in range(_COMMON):
            operation = _Broker.send if chance() * HELD * 2 > broker.held else _Broker.consume
            operation(broker)
        rare[done % len(rare)](broker)
        done += 1
        if out.entry_bytes >= ENTRY_BYTES or chance() < 0.2:
            out.seal()
            out.now += broker.random.randrange(4)
    out.close()
    return books


def _begin(broker: _Broker) -> None:
    """Everything once, so that it occurs in the smallest journal."""
    for _ in range(_ADDRESSES):
        broker.send()
    broker.out.seal()
    broker.out.now += 100
    for operation in _RARE:
        operation(broker)
    while not broker.books.left().keys() >= {reason.word for reason in RemovalReason}:
        broker.send()
        broker.consume()
        broker.expire()
        broker.remove_oldest()
        broker.move()
        broker.replace_queue()
        broker.out.seal()
        broker.out.now += 100
