"""etc/nightly-audit.sh: which audits it runs, what it keeps, and with which balance the next night opens.

`bartleby` and `date` are stand-ins that write down what they are asked; what `bartleby` is asked is a command
line that the real one accepts.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.packaging.nights import SCRIPT, Nights


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path)


def test_each_night_opens_with_what_the_one_before_left(nights: Nights) -> None:
    assert nights.run() == 0
    reports = "--format html --out state/reports/2026-03-01T02-30-00Z"
    assert nights.asked() == [
        f"audit ledger data {reports}/ledger.html --save-balance state/balances/2026-03-01T02-30-00Z",
        f"audit dlq data {reports}/dlq.html",
        f"audit expiry data {reports}/expiry.html",
    ]
    assert nights.opening == "balances/2026-03-01T02-30-00Z"
    assert nights.run("--master", "spark://here:7077") == 0
    ledger, dlq, _ = nights.asked()
    assert "--opening state/opening" in ledger
    assert ledger.endswith("--master spark://here:7077")
    assert dlq.endswith("--master spark://here:7077")
    assert nights.opening == "balances/2026-03-02T02-30-00Z"
    assert (nights.state / "opening" / "balance.json").exists()
    assert {path.name for path in (nights.state / "reports" / "2026-03-02T02-30-00Z").iterdir()} == {
        "ledger.html",
        "dlq.html",
        "expiry.html",
    }


@pytest.mark.parametrize("status", [1, 7, 8])
def test_a_ledger_that_does_not_balance_keeps_the_last_good_opening(nights: Nights, status: int) -> None:
    assert nights.run() == 0
    assert nights.run(LEDGER=status, DLQ=9) == status
    assert nights.opening == "balances/2026-03-01T02-30-00Z"
    assert [line.split()[1] for line in nights.asked()] == ["ledger", "dlq", "expiry"] * 2
    assert nights.run() == 0
    assert nights.opening == "balances/2026-03-03T02-30-00Z"


def test_too_many_messages_are_no_reason_to_open_with_an_old_balance(nights: Nights) -> None:
    assert nights.run("--fail-over", "0", LEDGER=9) == 9
    assert nights.opening == "balances/2026-03-01T02-30-00Z"


@pytest.mark.parametrize("audit", ["DLQ", "EXPIRY"])
def test_the_other_audits_are_heard(nights: Nights, audit: str) -> None:
    assert nights.run(DLQ=9 if audit == "DLQ" else 0, EXPIRY=9 if audit == "EXPIRY" else 0) == 9
    assert nights.opening == "balances/2026-03-01T02-30-00Z"


@pytest.mark.parametrize(("status", "compared"), [(0, True), (1, False), (3, False)])
def test_it_compares_with_a_broker_that_runs(nights: Nights, status: int, compared: bool) -> None:
    assert nights.run(before=("--compare",), STATUS=status) == 0
    asked = nights.asked()
    assert asked[0] == "status --data data"
    assert ("--compare --data data" in asked[1]) is compared
    assert not any("--compare" in line for line in asked[2:])


def test_it_keeps_so_many_nights_and_never_forgets_the_opening(nights: Nights) -> None:
    nights.keep = "2"
    assert nights.run() == 0
    for _ in range(4):
        assert nights.run(LEDGER=4) == 4
    kept = [f"2026-03-{night:02}T02-30-00Z" for night in (4, 5)]
    assert sorted(path.name for path in (nights.state / "reports").iterdir()) == kept
    assert sorted(path.name for path in (nights.state / "balances").iterdir()) == ["2026-03-01T02-30-00Z", *kept]
    assert nights.run() == 0
    kept = [kept[1], "2026-03-06T02-30-00Z"]
    assert sorted(path.name for path in (nights.state / "balances").iterdir()) == kept


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("journal",),
        ("--compare", "journal"),
        ("--no", "j", "s"),
    ],
)
def test_a_wrong_command_line(arguments: tuple[str, ...], nights: Nights) -> None:
    done = subprocess.run(
        [str(SCRIPT), *arguments], env=nights.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("usage: nightly-audit")
    assert not nights.state.exists()
