"""The storm, short; `make storm` is the long one."""

from __future__ import annotations

from pathlib import Path
from random import Random
from secrets import randbits
from typing import Final

import pytest

from tests.support.ledger import Entry, Kind, Ledger, Outcome
from tests.support.storm import rage

#: Each run has a seed of its own: together they are as long as you like.
KILLS: Final = 30


@pytest.mark.slow
@pytest.mark.timeout(900)  # its audit starts a Spark of its own, maybe beside the one of other tests
def test_a_broker_that_is_killed_again_and_again(tmp_path: Path) -> None:
    seed = randbits(32)
    print(f"python -m tests.storm --kills {KILLS} --seed {seed}")  # shown when it fails
    figures = rage(tmp_path, kills=KILLS, seed=seed)
    assert figures.kills == KILLS
    assert min(figures.consumed, figures.dead, figures.expired, figures.redelivered) > 0, figures


def entry(**header: object) -> Ledger:
    """A ledger with one message."""
    ledger = Ledger(Random(0), sent=1)
    ledger.entries[1] = Entry(1, Kind.PLAIN, "storm.loose", b"1\0", **header)  # type: ignore[arg-type]
    return ledger


@pytest.mark.parametrize(
    ("ledger", "found", "said"),
    [
        (entry(confirmed=True), {}, "lost"),
        (entry(stored=True), {}, "lost"),
        (entry(confirmed=True, gone=True), {1: ["storm.loose"]}, "back"),
        (entry(confirmed=True, buried=True), {1: ["DLQ"]}, "back"),
        (entry(), {1: ["storm.loose", "DLQ"]}, "more than once"),
        (entry(), {1: ["storm.loose"], 2: ["storm.loose"]}, "never sent"),
    ],
)
def test_the_ledger_notices(ledger: Ledger, found: dict[int, list[str]], said: str) -> None:
    (wrong,) = ledger.check(found)
    assert said in wrong


@pytest.mark.parametrize(
    ("ledger", "found"),
    [
        (entry(), {}),
        (entry(), {1: ["storm.loose"]}),
        (entry(confirmed=True), {1: ["storm.loose"]}),
        (entry(confirmed=True, acked=True), {}),
        (entry(confirmed=True, acked=True), {1: ["storm.loose"]}),
        (entry(confirmed=True, acked=True, gone=True), {}),
    ],
)
def test_the_ledger_accepts(ledger: Ledger, found: dict[int, list[str]]) -> None:
    assert ledger.check(found) == []


def test_a_message_absent_after_a_restart_stays_away() -> None:
    ledger = entry(confirmed=True, acked=True)
    assert ledger.check({}) == []
    ledger.strike_out({})
    assert not ledger.entries
    assert ledger.outcomes == {Outcome.CONSUMED: 1}
    (wrong,) = ledger.check({1: ["storm.loose"]})
    assert "on no queue after an earlier restart" in wrong
    with pytest.raises(AssertionError, match="on no queue after an earlier restart"):
        ledger.of(b"1\0")


def test_a_message_present_after_a_restart_may_not_be_lost_although_nobody_was_told() -> None:
    ledger = entry(partner=2)
    ledger.entries[2] = Entry(2, Kind.PAIR, "storm.loose", b"2\0", partner=1)
    everywhere = {1: ["storm.loose"], 2: ["storm.loose"]}
    ledger.strike_out(everywhere)
    assert ledger.check(everywhere) == []
    (wrong,) = ledger.check({1: ["storm.loose"]})
    assert wrong.startswith("message 2: lost")


def test_the_ledger_notices_half_a_transaction_and_the_undead() -> None:
    ledger = entry(partner=2)
    ledger.entries[2] = Entry(2, Kind.PAIR, "storm.loose", b"2\0", partner=1)
    assert len(ledger.check({2: ["storm.loose"]})) == 2
    assert ledger.check({}) == ledger.check({1: ["storm.loose"], 2: ["storm.strict"]}) == []
    ledger.entries[3] = Entry(3, Kind.REJECTED, "storm.loose", b"3\0", confirmed=True, nacks=1)
    (wrong,) = ledger.check({3: ["storm.loose"]})
    assert "with the dead" in wrong
    assert ledger.check({3: ["DLQ"]}) == []
