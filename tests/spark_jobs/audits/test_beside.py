"""Ledgers beside a real broker that is busy: it writes, copies forward, removes segments and keeps some for a while."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audits.compare import Expected
from spark_jobs.audits.ledger import LedgerOptions, ledger
from spark_jobs.journal.scan import removed_since
from spark_jobs.journal.segments import OpenSegments
from spark_jobs.journal.snapshot import Snapshot, take
from spark_jobs.results import Verdict
from tests.support.daemon import running
from tests.support.stomp_client import StompSocket

#: The first of the tests starts Spark, which with the rest is 20 s of CPU: a busy machine may give it a tenth.  A test
#: that is ended within a call of Java takes all later ones with it, which get the answers of earlier calls.
pytestmark = pytest.mark.timeout(900)

#: Files as small as they may be, so that all of that happens all the time.
SETTINGS: Final = """
[log]
level = "warning"

[journal]
segment-size = "4MiB"
reserve = "1MiB"
compact-min-files = 2

[limits]
body-bytes-max = "64KiB"
transaction-bytes-max = "256KiB"
"""

UNLIMITED: Final = """
[journal.retention]
enabled = true
"""
RETENTION: Final = f'{UNLIMITED}max-bytes = "12MiB"\n'

#: What comes and goes in one lap, a few large messages at a time, makes some three segments; and what stays.
BATCHES: Final = 12
BATCH: Final = 25
LARGE: Final = bytes(40_000)
STAYING: Final = 20

#: Between two laps: a broker and customers that never rest take all of two cores.
PAUSE_S: Final = 0.4

PATIENCE_S: Final = 100.0
#: Laps after which something must have been removed; one is enough.
LAPS_MAX: Final = 10


class Customers(threading.Thread):
    """Send and take, lap after lap, until they are told to end."""

    def __init__(self, port: int) -> None:
        super().__init__(name="customers")
        self.failure: BaseException | None = None
        self._port = port
        self._laps = 0
        self._enough = False
        self._changed = threading.Condition()

    def run(self) -> None:
        """See the class."""
        try:
            with StompSocket(self._port).connect() as client:
                client.subscribe("/queue/passing", ack="client")
                while not self._enough:
                    _lap(client)
                    with self._changed:
                        self._laps += 1
                        self._changed.notify_all()
                        self._changed.wait_for(lambda: self._enough, PAUSE_S)
        except BaseException as failure:
            self.failure = failure

    def lap(self) -> None:
        """Wait until one more has begun and is done."""
        with self._changed:
            enough = self._laps + 2
            assert self._changed.wait_for(lambda: self._laps >= enough, PATIENCE_S), self.failure

    def end(self) -> None:
        """No more; and all was well."""
        with self._changed:
            self._enough = True
            self._changed.notify_all()
        self.join(PATIENCE_S)
        assert self.failure is None, self.failure


def _lap(client: StompSocket) -> None:
    for _ in range(BATCHES):
        for _ in range(BATCH):
            client.send("/queue/passing", LARGE, persistent="true")
        client.wait(lambda: len(client.frames) == BATCH)
        client.ack(client.messages()[-1])
    for _ in range(STAYING):
        client.send("/queue/staying", b"stays", persistent="true")


@contextmanager
def busy(directory: Path, settings: str) -> Iterator[tuple[Path, Customers]]:
    """The data directory of a broker that has customers, and has removed segments."""
    with running(directory, settings) as broker:
        customers = Customers(broker.port)
        customers.start()
        try:
            for _ in range(LAPS_MAX):
                customers.lap()
                if take([str(broker.data)]).trimmed:
                    break
            yield broker.data, customers
        finally:
            customers.end()


def lose(customers: Customers, snapshot: Snapshot) -> int:
    """Until the broker has removed segments of the snapshot; how many."""
    for _ in range(LAPS_MAX):
        customers.lap()
        gone = sum(not Path(ref.uri).exists() for ref in snapshot.segments)
        if gone:
            return gone
    raise AssertionError("the broker removes nothing")


@pytest.mark.parametrize("retention", ["", UNLIMITED])
def test_a_balance_is_of_no_use_once_the_broker_has_removed_segments(
    tmp_path: Path, spark: SparkSession, retention: str
) -> None:
    """What lay in them has been copied behind the balance, unless retention keeps them."""
    with running(tmp_path, SETTINGS + retention) as broker:
        customers = Customers(broker.port)
        customers.start()
        try:
            customers.lap()
            expected = Expected.from_answer(broker.get("balance"))
            at_once = take([str(broker.data)])
            lose(customers, at_once)
            later = take([str(broker.data)])
        finally:
            customers.end()
        assert removed_since(later, expected.position) == (not retention)
        assert not removed_since(later, later.next_position)
        result = ledger(spark, later, LedgerOptions(expected=expected))
        assert result.verdict is (Verdict.BALANCED if retention else Verdict.VIOLATED), "what would be reported"


@pytest.mark.parametrize("retention", ["", RETENTION])
def test_segments_that_the_broker_removes_meanwhile_are_read(
    tmp_path: Path, spark: SparkSession, retention: str
) -> None:
    """What is not kept open, as with executors on other machines, is damage: no failure of the audit."""
    with busy(tmp_path, SETTINGS + retention) as (data, customers), OpenSegments() as opened:
        snapshot = take([str(data)], opened=opened)
        lost = lose(customers, snapshot)
        result = ledger(spark, snapshot, LedgerOptions())
        if not retention:
            closed = replace(snapshot, segments=tuple(replace(ref, opened_at="") for ref in snapshot.segments))
            elsewhere = ledger(spark, closed, LedgerOptions())
            assert elsewhere.verdict is Verdict.NOT_PROVABLE
            assert len(elsewhere.coverage.damage) >= lost > 0
    assert result.coverage.damage == ()
    assert result.verdict is Verdict.BALANCED, result
    assert snapshot.trimmed
    present = result.summary["present"]
    assert isinstance(present, int)
    assert present >= STAYING
    assert result.coverage.next_position == snapshot.next_position
