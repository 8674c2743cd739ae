"""The rules of the ledger: what each message may do, and when the books of a queue balance.

The books cover durable messages on durable queues: only those are in the journal.  For each queue

    opening + from before + enqueued  =  consumed + expired + ... + killed  +  with its queue  +  present

and each message of a queue enters it once, and leaves it at most once, after it entered.  The two sides are computed
independently: flows count records, `present` counts messages that were judged individually.

    state                    entered  left                     is
    -----------------------  -------  ----  -------------------------------------------------------------------------
    present                  1        0     on the queue
    gone                     1        1     it came and went
    nothing                  0        0     the records about it are of other kinds
    from before              0        1     it entered in a segment that the broker removed, or before the range
    entered twice            2..      any   a fault, even if records are lost
    left twice               any      2..   a fault, even if records are lost
    left before it entered   1        1     a fault, even if records are lost
    left without entering    0        1     a fault, unless records are lost: the entry may be among them

A message that came and went within segments that the broker removed, and leaves again after them, looks like one that
leaves for the first time: it is `from before`.

`entered` includes the opening balance.  After the deletion of its queue, a message is on no queue, as in recovery.
Usually, its removal says so (`deleted`); messages held by a transaction that never ended leave without a record, and
are counted as gone with their queue.

A message that died or expired lives on as another one, or not at all; both sides are written in one entry (promise P2),
so that three kinds of contradictions are possible:

    died without a record      it left as dead-lettered, expired or killed, but no record says why
    record without a death     there is such a record, but the message did not leave in this way
    died without a successor   the record names a new message, but none with this id entered any queue
    An unroutable message has such a record too, without a queue: it left none, but must have its successor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import functions as F

from spark_jobs.results import Verdict
from store.record import RemovalReason

if TYPE_CHECKING:
    from pyspark.sql import Column

#: A row of a frame, by column.
Row = Mapping[str, Any]

#: The ways out of a queue, in the order in which they are shown.
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

#: Faults of a message on its queue: those that no lost record can explain, and all.
CERTAIN: Final = (ENTERED_TWICE, LEFT_TWICE, LEFT_EARLY)
MOVEMENT_FAULTS: Final = (*CERTAIN, ORPHAN)
FAULTS: Final = (*MOVEMENT_FAULTS, NO_RECORD, NO_DEATH, NO_SUCCESSOR)

#: An id greater than all others.
EVERYTHING: Final = (1 << 63) - 1

#: The ways out that need an explaining record; its type, and whether there is a new message, must fit.
DEATHS: Final = ("dead-lettered", "killed", "expired")


class Ids(NamedTuple):
    """A range of message ids, from `first` to below `end`."""

    first: int
    end: int


def state(unseen: Sequence[Ids]) -> Column:
    """The state of a message on its queue, for a frame with one row for each.

    The frame has `message_id`, `entered` and `left` (how often), `entered_position` and `left_position` (of the first
    time).  `unseen` has the ids of messages that may have entered in records that no longer exist or are out of range.
    """
    entered, left, id = F.col("entered"), F.col("left"), F.col("message_id")
    # Not one condition per hole: a journal may have more holes than Spark can nest.
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
    """The fault of a death, or null; for a frame that counts the explaining records, and the removals."""
    explained, died = F.col(f"{way} explained"), F.col(f"{way} died")
    return F.when(explained < died, NO_RECORD).when(explained > died, NO_DEATH)


@dataclass(slots=True)
class QueueBook:
    """One queue's side of the ledger: counts of messages, and when the oldest present one entered."""

    queue_id: int
    name: str = ""
    address: str = ""
    opening: int = 0
    before: int = 0
    enqueued: int = 0
    ways: dict[str, int] = field(default_factory=dict)
    outlived: int = 0
    present: int = 0
    deleted: bool = False
    oldest: datetime | None = None

    @property
    def out(self) -> int:
        """The number of messages that left for a recorded reason."""
        return sum(self.ways.values())

    @property
    def difference(self) -> int:
        """The messages that came in, minus those accounted for: 0 if the books balance."""
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
class QueuePresent:
    """The number of messages on a queue."""

    queue_id: int
    name: str
    address: str
    messages: int


def balance(books: dict[int, QueueBook], flows: Iterable[Row], standings: Iterable[Row]) -> None:
    """Enter into the books, by queue, what was counted.

    `flows` (queue_id, reason, entered, left) count records; entries have no reason.  `standings` (queue_id, state,
    messages, oldest) count the messages in each state, and tell when the oldest entered.
    """
    for flow in flows:
        book = books.setdefault(flow["queue_id"], QueueBook(flow["queue_id"]))
        book.enqueued += flow["entered"]
        if flow["left"]:
            book.ways[flow["reason"]] = book.ways.get(flow["reason"], 0) + flow["left"]
    for standing in standings:
        book = books.setdefault(standing["queue_id"], QueueBook(standing["queue_id"]))
        if standing["state"] == BEFORE:
            book.before += standing["messages"]
        elif standing["state"] == PRESENT:
            book.oldest = standing["oldest"]
            if book.deleted:
                book.outlived += standing["messages"]
            else:
                book.present += standing["messages"]


def total(books: Iterable[QueueBook]) -> QueueBook:
    """The sum of all queues."""
    summed = QueueBook(0, "all queues")
    for book in books:
        summed.add(book)
    return summed


def verdict(faults: Mapping[str, int], books: Iterable[QueueBook], *, whole: bool, differences: int = 0) -> Verdict:
    """The verdict of the ledger.

    `faults`: the number of each kind.  `whole`: no record is lost.  `differences`: the number of queues for which the
    running broker has a different number of messages from the journal.  If records are lost, only faults that no lost
    record can explain are a violation.
    """
    if any(faults.get(fault) for fault in CERTAIN):
        return Verdict.VIOLATED
    if not whole:
        return Verdict.NOT_PROVABLE
    if differences or any(faults.values()) or any(book.difference for book in books):
        return Verdict.VIOLATED
    return Verdict.BALANCED
