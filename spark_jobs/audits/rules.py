"""The rules of the ledger: what each message may do, and when the books of a queue balance.

Books are kept of durable messages on durable queues: only those are in the journal.  For each queue

    opening + from before + enqueued  =  consumed + expired + ... + killed  +  with its queue  +  present

and each message of a queue enters it once, and leaves it at most once, after it entered.  Left and right are computed
from different things: flows count records, `present` counts messages of which each was judged by itself.

    state                    entered  left                     is
    -----------------------  -------  ----  -------------------------------------------------------------------------
    present                  1        0     on the queue
    gone                     1        1     it came and went
    nothing                  0        0     something else is told of it
    from before              0        1     it entered in a segment that the broker gave up, or before the range
    entered twice            2..      any   a fault, whatever was lost
    left twice               any      2..   a fault, whatever was lost
    left before it entered   1        1     a fault, whatever was lost
    left without entering    0        1     a fault, unless records are lost: the missing one may be among them

What came and went within segments that the broker gave up, and leaves again behind them, cannot be told from the first
time: it is `from before`.

`entered` includes the opening balance.  Which queue a message is on when its queue is deleted is answered as recovery
does it: on none.  Mostly its removal says so (`deleted`); what a transaction held that never ended leaves without a
word, and is counted as gone with its queue.

A message that died or expired lives on as another, or not at all; both sides are written in one entry (promise P2),
and so three things must agree, by message:

    died without a record      it left as dead-lettered, expired or killed, and no record says why
    record without a death     such a record, and the message did not leave so
    died without a successor   the record names a new message, and none with that id entered anywhere

What no queue took has such a record too, of no queue: it left none, but has its successor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as F

from spark_jobs.results import Verdict
from store.record import RemovalReason

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Ways out of a queue, in the order in which they are shown.
WAYS: Final = tuple(reason.word for reason in RemovalReason)

PRESENT: Final = "present"
GONE: Final = "gone"
NOTHING: Final = "nothing"
BEFORE: Final = "from before"
ENTERED_TWICE: Final = "entered twice"
LEFT_TWICE: Final = "left twice"
LEFT_EARLY: Final = "left before it entered"
ORPHAN: Final = "left without entering"
NO_RECORD: Final = "died without a record"
NO_DEATH: Final = "record without a death"
NO_SUCCESSOR: Final = "died without a successor"

#: Faults of a message on its queue; those that a lost record can explain, and those that it cannot.
CERTAIN: Final = (ENTERED_TWICE, LEFT_TWICE, LEFT_EARLY)
MOVEMENT_FAULTS: Final = (*CERTAIN, ORPHAN)
FAULTS: Final = (*MOVEMENT_FAULTS, NO_RECORD, NO_DEATH, NO_SUCCESSOR)

#: An id above all others.
EVERYTHING: Final = (1 << 63) - 1

#: The ways out that an explaining record must go with, by the type of that record and whether there is a new message.
DEATHS: Final = ("dead-lettered", "killed", "expired")


class Ids(NamedTuple):
    """Ids of messages, from `first` to below `end`."""

    first: int
    end: int


def state(unseen: Sequence[Ids]) -> Column:
    """The state of a message on its queue, of a frame with one row for each.

    It has `message_id`, `entered` and `left` (how often), `entered_position` and `left_position` (of the first time).
    `unseen`: the ids of messages that may have entered where nobody can look any more.
    """
    entered, left, id = F.col("entered"), F.col("left"), F.col("message_id")
    # Not a condition for each: a journal may have more holes than Spark can nest.
    elsewhere = F.exists(F.lit([[*ids] for ids in unseen]), lambda ids: (id >= ids[0]) & (id < ids[1]))
    return (
        F.when(entered > 1, ENTERED_TWICE)
        .when(left > 1, LEFT_TWICE)
        .when((entered == 0) & (left == 0), NOTHING)
        .when((entered == 0) & (elsewhere if unseen else F.lit(False)), BEFORE)
        .when(entered == 0, ORPHAN)
        .when(left == 0, PRESENT)
        .when(F.col("left_position") < F.col("entered_position"), LEFT_EARLY)
        .otherwise(GONE)
    )


def death_fault(way: str) -> Column:
    """What is wrong with a death, of a frame that counts the records that explain it, and the removals; or null."""
    explained, died = F.col(f"{way} explained"), F.col(f"{way} died")
    return F.when(explained < died, NO_RECORD).when(explained > died, NO_DEATH)


@dataclass(slots=True)
class QueueBook:
    """One queue's side of the ledger: counts of messages."""

    queue_id: int
    name: str = ""
    address: str = ""
    opening: int = 0
    before: int = 0
    enqueued: int = 0
    ways: dict[str, int] = field(default_factory=dict)
    outlived: int = 0
    present: int = 0

    @property
    def out(self) -> int:
        """How many left by name."""
        return sum(self.ways.values())

    @property
    def difference(self) -> int:
        """What came in less what is accounted for: 0 if the books balance."""
        return self.opening + self.before + self.enqueued - self.out - self.outlived - self.present

    def add(self, other: QueueBook) -> None:
        """Add another queue's counts, for a total."""
        self.opening += other.opening
        self.before += other.before
        self.enqueued += other.enqueued
        self.outlived += other.outlived
        self.present += other.present
        for way, number in other.ways.items():
            self.ways[way] = self.ways.get(way, 0) + number


@dataclass(frozen=True, slots=True)
class Flow:
    """What moved on a queue: `entered` and `left` count records; `reason` of those that left, "" of those that came."""

    queue_id: int
    reason: str
    entered: int
    left: int


@dataclass(frozen=True, slots=True)
class Standing:
    """How many messages of a queue are in a state."""

    queue_id: int
    state: str
    messages: int


@dataclass(frozen=True, slots=True)
class QueueName:
    """What a queue is called, how many messages it opens with, and whether it does not exist any more."""

    queue_id: int
    name: str
    address: str
    deleted: bool = False
    opening: int = 0


@dataclass(frozen=True, slots=True)
class QueuePresent:
    """How many messages were on a queue."""

    queue_id: int
    name: str
    address: str
    messages: int


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one message; `queue_id` 0: with no queue in particular.

    `entered` and `left` say how often it did; `way` how it died, for faults of deaths.
    """

    what: str
    message_id: int
    queue_id: int = 0
    entered: int = 0
    left: int = 0
    way: str = ""


def balance(flows: Iterable[Flow], standings: Iterable[Standing], names: Iterable[QueueName]) -> dict[int, QueueBook]:
    """The books of all queues, by id."""
    books: dict[int, QueueBook] = {}
    deleted = set()

    def book(queue_id: int) -> QueueBook:
        return books.setdefault(queue_id, QueueBook(queue_id))

    for queue in names:
        found = book(queue.queue_id)
        found.name, found.address, found.opening = queue.name, queue.address, queue.opening
        if queue.deleted:
            deleted.add(queue.queue_id)
    for flow in flows:
        book(flow.queue_id).enqueued += flow.entered
        if flow.left:
            ways = book(flow.queue_id).ways
            ways[flow.reason] = ways.get(flow.reason, 0) + flow.left
    for standing in standings:
        found = book(standing.queue_id)
        if standing.state == BEFORE:
            found.before += standing.messages
        elif standing.state == PRESENT and standing.queue_id in deleted:
            found.outlived += standing.messages
        elif standing.state == PRESENT:
            found.present += standing.messages
    return books


def total(books: Iterable[QueueBook]) -> QueueBook:
    """All queues together."""
    summed = QueueBook(0, "all queues")
    for book in books:
        summed.add(book)
    return summed


def verdict(faults: Mapping[str, int], books: Iterable[QueueBook], *, whole: bool, differences: int = 0) -> Verdict:
    """What the ledger says.

    `faults`: how many of each kind.  `whole`: no record is lost.  `differences`: queues on which the running broker has
    another number than the journal.  Where records are lost, only what no lost record explains is a violation.
    """
    if any(faults.get(fault) for fault in CERTAIN):
        return Verdict.VIOLATED
    if not whole:
        return Verdict.NOT_PROVABLE
    if differences or any(faults.values()) or any(book.difference for book in books):
        return Verdict.VIOLATED
    return Verdict.BALANCED
