"""etc/nightly-audit.sh: which audits it runs, what it keeps, and with which balance the next night opens.

`bartleby` and `date` are stand-ins that write down what they are asked; what `bartleby` is asked is a command
line that the real one accepts.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import click
import pytest

from broker.cli.main import cli

SCRIPT: Final = Path(__file__).parents[2] / "etc" / "nightly-audit.sh"
PATIENCE_S: Final = 20

_BARTLEBY: Final = """\
#!/bin/sh
echo "$*" >>"$HERE/asked"
[ "$1" = status ] && exit "$STATUS_STATUS"
audit=$2
while [ $# -gt 0 ]; do
    [ "$1" = --save-balance ] && mkdir -p "$2" && echo balance >"$2/balance.json"
    [ "$1" = --out ] && echo report >"$2"
    shift
done
case $audit in
    ledger) exit "$LEDGER_STATUS" ;;
    dlq) exit "$DLQ_STATUS" ;;
    expiry) exit "$EXPIRY_STATUS" ;;
esac
"""

#: Each night is a day after the one before; the other questions are answered truly.
_DATE: Final = """\
#!/bin/sh
case $* in
    *%Y*)
        echo x >>"$HERE/nights"
        printf '2026-03-%02dT02-30-00Z\\n' "$(wc -l <"$HERE/nights")"
        ;;
    *) exec /bin/date "$@" ;;
esac
"""


class Nights:
    """The script in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = directory / "state"
        self.journal = directory / "data"
        self.keep = "90"
        programs = directory / "bin"
        programs.mkdir()
        for name, text in (("bartleby", _BARTLEBY), ("date", _DATE)):
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)

    def environment(self, **statuses: int) -> dict[str, str]:
        """What the script and its stand-ins need."""
        wanted = {"STATUS": 0, "LEDGER": 0, "DLQ": 0, "EXPIRY": 0} | statuses
        return {
            "PATH": f"{self.directory / 'bin'}:{os.environ['PATH']}",
            "HERE": str(self.directory),
            "BARTLEBY_AUDIT_KEEP": self.keep,
            **{f"{name}_STATUS": str(status) for name, status in wanted.items()},
        }

    def run(self, *options: str, before: tuple[str, ...] = (), **statuses: int) -> int:
        """One night; its exit status."""
        command = [str(SCRIPT), *before, str(self.journal), str(self.state), *options]
        environment = self.environment(**statuses)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert (done.stdout, done.stderr) == ("", "")
        return done.returncode

    def asked(self) -> list[str]:
        """What `bartleby` was asked since the last time, as words that do not name the directory."""
        path = self.directory / "asked"
        lines = path.read_text().replace(f"{self.directory}/", "").splitlines()
        path.unlink()
        for line in lines:
            _accepted(line.split())
        return lines

    @property
    def opening(self) -> str:
        """With what the next night opens."""
        return os.readlink(self.state / "opening")


def _accepted(words: list[str]) -> None:
    """The real command takes this command line.  Raises click.UsageError."""
    context = click.Context(cli)
    while words:
        name, command, words = cli.resolve_command(context, words)
        assert isinstance(command, click.Command)
        if not isinstance(command, click.Group):
            command.make_context(name, words)
            return
        context = click.Context(command, info_name=name, parent=context)
        found = command.get_command(context, words[0])
        assert found is not None, words
        found.make_context(words[0], words[1:])
        return


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


@pytest.mark.parametrize("status", [1, 3, 4])
def test_a_ledger_that_does_not_balance_keeps_the_last_good_opening(nights: Nights, status: int) -> None:
    assert nights.run() == 0
    assert nights.run(LEDGER=status, DLQ=5) == status
    assert nights.opening == "balances/2026-03-01T02-30-00Z"
    assert [line.split()[1] for line in nights.asked()] == ["ledger", "dlq", "expiry"] * 2
    assert nights.run() == 0
    assert nights.opening == "balances/2026-03-03T02-30-00Z"


def test_too_many_messages_are_no_reason_to_open_with_an_old_balance(nights: Nights) -> None:
    assert nights.run("--fail-over", "0", LEDGER=5) == 5
    assert nights.opening == "balances/2026-03-01T02-30-00Z"


@pytest.mark.parametrize("audit", ["DLQ", "EXPIRY"])
def test_the_other_audits_are_heard(nights: Nights, audit: str) -> None:
    assert nights.run(DLQ=5 if audit == "DLQ" else 0, EXPIRY=5 if audit == "EXPIRY" else 0) == 5
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
