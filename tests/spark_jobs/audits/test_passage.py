"""What links passed between journals: every outcome, and the ledger over two brokers with every fault planted."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from broker.sessions.amqp.link_id import LINK_CAPABILITY
from spark_jobs.audits import passage
from spark_jobs.audits.ledger import LedgerOptions, ledger
from spark_jobs.audits.ledgers import WAITING, OneJournalOnly, check_several, ledgers
from spark_jobs.audits.passage import Books
from spark_jobs.journal.segments import Gap
from spark_jobs.journal.snapshot import take
from spark_jobs.report import machine
from spark_jobs.report.page import to_html
from spark_jobs.report.terminal import console_for, print_result
from spark_jobs.results import ExitStatus, Result, Verdict
from store import decode, record
from store.record import RecordType, RemovalReason
from tests.simulation.world import journal_directory, small
from tests.spark_jobs.audits.journals import SMALL_SEGMENT_BYTES, dump
from tests.spark_jobs.audits.results import rows
from tests.support.amqp_client import AmqpSim, message
from tests.support.sim_broker import SimBroker
from tests.support.tamper import Draft, DraftEntry, Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Messages passed on early, when the books of both brokers go on for ten minutes, and at the end.
EARLY: Final = 30
LATE: Final = 5
WAITS: Final = 3
LATER_MS: Final = 600_000


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directories `a` and `b` of two brokers; what is sent to `orders.out` at a is passed on to b."""
    directory = tmp_path_factory.mktemp("pair")
    config = small(segment_bytes=SMALL_SEGMENT_BYTES)
    a, b = SimBroker(config), SimBroker(config, seed=1)
    client, worker, here, there = AmqpSim(a), AmqpSim(b), AmqpSim(a, "b"), AmqpSim(b, "a")
    linked: dict[str, Any] = {"desired_capabilities": (LINK_CAPABILITY,)}
    sender, taking = client.sender("orders.out", "queue"), there.sender("orders", "queue", **linked)
    here.receiver("orders.out", name="b", **linked)

    def pass_on(number: int) -> None:
        """As a link does: what has left is settled when the other broker has accepted it."""
        client.send(sender, *[message("x" * 200, durable=True) for _ in range(number)])
        deliveries = here.take()
        assert len(deliveries) == number
        there.send(taking, *[each.payload for each in deliveries])
        here.settle(*deliveries)

    pass_on(EARLY)
    worker.receiver("orders")
    worker.settle(*worker.take()[: EARLY // 2])
    for broker in (a, b):
        broker.advance(LATER_MS)
    pass_on(LATE)
    here.drop()
    client.send(sender, *[message("y", durable=True) for _ in range(WAITS)])
    for name, broker in (("a", a), ("b", b)):
        broker.shut_down()
        dump(broker.files, journal_directory(broker.config), directory / name / "journal")
    return directory


def audit(spark: SparkSession, *data: Path, **options: Any) -> Result:
    return ledgers(spark, [take([str(each)]) for each in data], LedgerOptions(**options))


def passed(result: Result) -> dict[tuple[str, str | None, str], int]:
    """How many messages: (from, to, outcome), the journals by their directories' names."""
    return {
        (Path(row["from"]).name, row["to"] and Path(row["to"]).name, row["outcome"]): row["messages"]
        for row in rows(result, "passage")
    }


@pytest.fixture(scope="module")
def clean(spark: SparkSession, pair: Path) -> Result:
    """The ledger of both brokers."""
    result = audit(spark, pair / "a", pair / "b", fail_over=WAITS)
    assert result.exceeded, "those that b has count as well"
    return replace(result, exceeded=False)


def test_a_clean_pair_balances(spark: SparkSession, pair: Path, clean: Result) -> None:
    assert (clean.verdict, clean.status, clean.problems) == (Verdict.BALANCED, ExitStatus.OK, ())
    assert passed(clean) == {("a", "b", passage.PASSED): EARLY + LATE, ("a", None, WAITING): WAITS}
    assert rows(clean, "under-way") == []
    alone = [ledger(spark, take([str(pair / name)]), LedgerOptions()) for name in "ab"]
    for name in ("forwarded", "present", "enqueued", "messages stored"):
        assert clean.summary[name] == sum(int(str(each.summary[name])) for each in alone)
    assert [row["verdict"] for row in rows(clean, "journals")] == ["balanced"] * 2
    queues = [{**row, "journal": Path(row["journal"]).name} for row in rows(clean, "queues")]
    for name, each in zip("ab", alone, strict=True):
        assert [row for row in queues if row["journal"] == name] == [
            {"journal": name, **row} for row in rows(each, "queues")
        ]
    assert alone[0].summary["present"] == WAITS


def test_it_is_told_in_every_format(pair: Path, clean: Result, tmp_path: Path) -> None:
    shown = io.StringIO()
    print_result(clean, console_for(shown))
    assert "BALANCED" in shown.getvalue()
    assert "first position  " not in shown.getvalue().partition("The journals")[0], "of which journal?"
    told = json.loads(machine.to_json(machine.document(clean)))
    assert told["coverage"]["first_position"] is None
    assert told["coverage"]["paths"] == [str(pair / "a"), str(pair / "b")]
    assert told["sections"]["passage"]["rows"][0]["messages"] > 0
    assert 'id="passage"' in to_html(clean)
    machine.write_csv(clean, tmp_path)
    assert (tmp_path / "passage.csv").read_text().count("\n") == 3


# -- planted faults ----------------------------------------------------------------------------------------------------


class Planted:
    """The two journals, to be changed."""

    def __init__(self, pair: Path, directory: Path) -> None:
        self.a, self.b = Draft.read(pair / "a" / "journal"), Draft.read(pair / "b" / "journal")
        self._directory = directory
        taken = [(place, self._id(place)) for place in self.b.find(RecordType.DUPLICATE_ID)]
        self.taken = {int.from_bytes(each.id[21:29]): place for place, each in taken}
        self.ids = sorted(self.taken)

    def _id(self, place: Place) -> decode.DuplicateId:
        found = self.b.at(place)
        assert isinstance(found, decode.DuplicateId)
        return found

    def forget_arrival(self, id: int) -> None:
        place = self.taken[id]
        data = record.duplicate_id(self._id(place).address_id, self._id(place).message_id, b"something else")
        self.b.replace(place, data)

    def leave_as(self, id: int, reason: int | None) -> None:
        """A message left for another reason than by link, or not at all."""
        place = next(
            each
            for each in self.a.find(RecordType.REMOVED)
            if isinstance(found := self.a.at(each), decode.Removed) and id in found.ids
        )
        removed = self.a.at(place)
        assert isinstance(removed, decode.Removed)
        self.a.less(place, id)
        if reason is not None:
            self._append(self.a, record.removed(removed.queue_id, reason, [id]))

    def arrive(
        self, id: int, *, as_message: int = 0, address: int = 0, broker: bytes = b"", again: bool = False
    ) -> None:
        """An arrival like another one, or once more."""
        like = self._id(self.taken[self.ids[0] if id not in self.taken else id])
        link_id = b"link:" + (broker or like.id[5:21]) + id.to_bytes(8) + like.id[29:]
        data = record.duplicate_id(address or like.address_id, as_message or like.message_id, link_id, again=again)
        self._append(self.b, data)

    def _append(self, draft: Draft, data: bytes) -> None:
        segment = draft.segments[max(draft.segments)]
        last = segment.entries[-1]
        segment.entries.append(DraftEntry(last.timestamp, last.durable, [data]))

    def write(self) -> tuple[Path, Path]:
        self.a.write(self._directory / "a" / "journal")
        self.b.write(self._directory / "b" / "journal")
        return self._directory / "a", self._directory / "b"


def test_every_planted_fault_is_found_and_named(spark: SparkSession, pair: Path, tmp_path: Path) -> None:
    """All of them in one pair, each on another message."""
    planted = Planted(pair, tmp_path)
    ids = planted.ids
    assert len(ids) == EARLY + LATE
    planted.forget_arrival(ids[3])
    planted.forget_arrival(ids[-1])  # just left
    planted.leave_as(ids[5], None)  # arrived, not yet heard of
    planted.leave_as(ids[6], RemovalReason.PURGED)  # as when an operator resolves
    planted.leave_as(ids[7], RemovalReason.CONSUMED)  # somebody else got it as well
    planted.arrive(ids[8], as_message=999_001)  # the same address took it again
    planted.arrive(ids[9], as_message=999_002, address=888)  # another one took it
    planted.arrive(ids[10], again=True)  # copied forward
    planted.arrive(1 << 40)  # no record of it at a
    planted.arrive(4711, broker=b"broker of elsewh")
    result = audit(spark, *planted.write())
    assert passed(result) == {
        ("a", "b", passage.PASSED): EARLY + LATE - 6,
        ("a", None, passage.LOST): 1,
        ("a", None, passage.TRANSIT): 1,
        ("a", "b", passage.DOUBT): 1,
        ("a", "b", passage.DOUBLED): 3,
        ("a", "b", passage.UNRECORDED): 1,
        (f"broker {b'broker of elsewh'.hex()}", "b", passage.UNKNOWN): 1,
        ("a", None, WAITING): WAITS,
    }
    assert [(row["outcome"], row["message"]) for row in rows(result, "under-way")] == [
        (passage.LOST, ids[3]),
        *[(passage.DOUBLED, ids[number]) for number in (7, 8, 9)],
        (passage.DOUBT, ids[5]),
        (passage.TRANSIT, ids[-1]),
    ]
    listed = {row["message"]: row for row in rows(result, "under-way")}
    assert "999001" in listed[ids[8]]["arrived as message"]
    assert listed[ids[5]]["still there"] == 1
    assert (listed[ids[3]]["to"], listed[ids[3]]["left"], listed[ids[3]]["arrived"]) == (None, 1, 0)
    assert (result.verdict, result.status) == (Verdict.VIOLATED, ExitStatus.VIOLATED)
    assert [problem.partition(":")[0] for problem in result.problems] == ["1 message", "3 messages", "1 message"]


def test_where_the_other_books_do_not_reach_back_nothing_can_be_told(
    spark: SparkSession, pair: Path, tmp_path: Path
) -> None:
    planted = Planted(pair, tmp_path)
    planted.forget_arrival(planted.ids[3])
    a, b = (take([str(each)]) for each in planted.write())
    begun = b.segments[-1].created
    hole = Gap("", 1, 1, 1, 10, "the broker gave it up", 0, begun)
    result = ledgers(spark, [a, replace(b, trimmed=(hole,), open_below=1)], LedgerOptions())
    assert passed(result)["a", None, passage.UNDECIDED] == 1
    assert (result.verdict, result.status) == (Verdict.NOT_PROVABLE, ExitStatus.DAMAGED)
    assert "retention" in result.problems[0]


def test_damage_explains_what_is_missing(spark: SparkSession, pair: Path, tmp_path: Path) -> None:
    planted = Planted(pair, tmp_path)
    planted.b.remove(planted.taken[planted.ids[3]], renumbered=False)
    result = audit(spark, *planted.write())
    assert result.summary[passage.LOST] == 1
    assert (result.verdict, result.status) == (Verdict.NOT_PROVABLE, ExitStatus.DAMAGED)


# -- the rules ---------------------------------------------------------------------------------------------------------

END: Final = 10_000_000
BEGIN: Final = 4_000_000
BOOKS: Final = (Books("a", END, 0), Books("b", END, BEGIN), Books("c", END + 5, 0))
THEN: Final = 6_000_000

#: left, places (broker, address, and the queue that it left if that is not 8), what else, and the outcome.
CASES: Final[list[tuple[int, Sequence[tuple[str, int] | tuple[str, int, int]], Mapping[str, Any], str]]] = [
    (1, [], {}, passage.LOST),
    (2, [("b", 1)], {}, passage.LOST),
    (1, [], {"left_time": END - passage.MARGIN_MS}, passage.TRANSIT),
    (1, [], {"left_time": END - passage.MARGIN_MS - 1}, passage.LOST),
    (1, [], {"sent": None}, passage.UNDECIDED),
    (1, [], {"sent": BEGIN + passage.MARGIN_MS}, passage.UNDECIDED),
    (1, [], {"sent": BEGIN + passage.MARGIN_MS + 1}, passage.LOST),
    (1, [], {"origin": "b", "sent": None}, passage.LOST),
    (2, [("b", 1), ("c", 1)], {}, passage.PASSED),
    (2, [("b", 1), ("b", 2)], {}, passage.PASSED),
    (2, [("b", 1), ("b", 1)], {}, passage.DOUBLED),
    (2, [("b", 1, 8), ("b", 1, 9)], {}, passage.PASSED),
    (2, [("b", 1, 8), ("b", 1, 9), ("b", 1, 9)], {}, passage.DOUBLED),
    (1, [("b", 1, 8), ("b", 1, 9)], {}, passage.DOUBLED),
    (1, [("b", 1), ("b", 2)], {}, passage.DOUBLED),
    (1, [("b", 1), ("c", 2)], {"there": 1}, passage.DOUBT),
    (1, [("b", 1), ("c", 2)], {"sent": None}, passage.UNDECIDED),
    (0, [("b", 1)], {"there": 1}, passage.DOUBT),
    (0, [("b", 1)], {"erased": 1}, passage.PASSED),
    (0, [("b", 1)], {"ended": 1}, passage.DOUBLED),
    (0, [("b", 1)], {}, passage.UNRECORDED),
    (0, [("b", 1)], {"sent": None}, passage.UNRECORDED),
    (0, [("b", 1)], {"sent": None, "enqueued": END}, passage.DOUBT),
    (0, [("b", 1)], {"origin": "elsewhere"}, passage.UNKNOWN),
]


def test_the_rules(spark: SparkSession) -> None:
    def moment(ms: int | None) -> datetime | None:
        return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)

    open_, known = [], []
    for number, (left, places, more, _) in enumerate(CASES):
        row: dict[str, Any] = {
            "origin": "a",
            "left_time": THEN,
            "enqueued": THEN,
            "sent": THEN,
            "there": 0,
            "erased": 0,
            "ended": 0,
        }
        row |= more
        taken = [(*each, *(8,)[len(each) - 2 :], index) for index, each in enumerate(places)]
        times = moment(row["enqueued"]), moment(row["left_time"])
        open_.append((row["origin"], number, [*range(left)], taken, *times))
        known.append((row["origin"], number, moment(row["sent"]), row["erased"], row["ended"], row["there"]))
    place = "array<struct<broker: string, address_id: bigint, link_queue_id: bigint, taken_as: bigint>>"
    schema = f"origin string, message_id bigint, queues array<bigint>, taken {place}, "
    crossings = spark.createDataFrame(open_, schema + "enqueued timestamp, left_time timestamp")
    schema = "origin string, message_id bigint, sent timestamp, erased bigint, ended bigint, there bigint"
    found = passage.judged(crossings, spark.createDataFrame(known, schema), BOOKS).collect()
    outcomes = {row["message_id"]: row["outcome"] for row in found}
    assert [outcomes[number] for number in range(len(CASES))] == [outcome for *_, outcome in CASES]
    assert {outcome for *_, outcome in CASES} == set(passage.OUTCOMES)


@pytest.mark.parametrize(
    "options",
    [
        {"from_position": 1},
        {"to_position": 1},
        {"from_time": 1},
        {"to_time": 1},
        {"opening": "there"},
        {"save_balance": "there"},
        {"addresses": ("a",)},
    ],
)
def test_options_that_the_ledger_of_several_journals_does_not_have(options: dict[str, Any]) -> None:
    with pytest.raises(OneJournalOnly, match="one at a time"):
        check_several(LedgerOptions(**options))
