"""The benchmark of an audit beside a broker, with something that only spins in its place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from bench.audit import beside
from bench.audit.beside import Pair, audit_command, measure, missed, table
from bench.generator import Load, Outcome

#: Begins another process, tells which, and keeps both busy.
SPINNING = [
    sys.executable,
    "-c",
    "import os\nif os.fork(): print(os.getpid(), flush=True)\nwhile True: pass",
]


def pair(alone: float, with_it: float, us: float = 8.0) -> Pair:
    first, second = (Outcome(int(rate), 1.0, rate * us / 1e6, 0.1, 1, 0, 0) for rate in (alone, with_it))
    return Pair(first, second, 0.5)


def test_what_counts_is_the_median_of_the_pairs() -> None:
    pairs = [pair(100_000, 96_000), pair(200_000, 100_000), pair(50_000, 49_000)]
    assert missed(pairs) == []
    assert missed([*pairs, pair(100_000, 90_000)]) == ["throughput beside an audit: 0.930 of that alone, at least 0.95"]
    console = Console(width=100, record=True, file=StringIO())
    console.print(table(pairs))
    shown = console.export_text()
    assert "0.960 (0.500 to 0.980)" in shown
    assert "8.00" in shown
    assert "0.50" in shown


def test_the_command_is_the_real_one() -> None:
    command = audit_command(Path("/j"), "idle")
    assert command[1:5] == ["-m", "broker", "audit", "ledger"]
    assert command[-2:] == ["--priority", "idle"]


def test_it_runs_in_a_control_group(tmp_path: Path) -> None:
    """The process is in the group before it becomes the audit; a group that nothing may join is a failure."""
    procs = tmp_path / "cgroup.procs"
    command = audit_command(Path("/j"), "idle", tmp_path)
    assert command[-len(audit_command(Path("/j"), "idle")) :] == audit_command(Path("/j"), "idle")
    shell = command[: command.index(str(procs)) + 1]
    ran = subprocess.Popen([*shell, sys.executable, "-c", "import os; print(os.getpid())"], stdout=subprocess.PIPE)
    told, _ = ran.communicate()
    assert int(told) == int(procs.read_text()) == ran.pid
    procs.unlink()
    procs.mkdir()
    assert subprocess.run([*shell, "true"], capture_output=True, check=False).returncode != 0


@pytest.mark.parametrize("spare", [False, True])
def test_rounds_with_it_and_without(monkeypatch: pytest.MonkeyPatch, spare: bool) -> None:
    monkeypatch.setattr(beside, "STARTED_S", 0.1)
    said: list[str] = []
    used: list[set[int]] = []

    def say(line: str) -> None:
        said.append(line)
        used.append(os.sched_getaffinity(0))

    pairs = measure(SPINNING, 2, Load(messages=2_000, seconds=None, ack="client"), say, spare=spare)
    first, *others = sorted(os.sched_getaffinity(0))
    assert used == [{first} if spare or not others else {others[0]}] * 2, "where the generator is"
    assert len(pairs) == len(said) == 2
    assert all(each.alone.messages == each.beside.messages == 2_000 for each in pairs)
    assert sum(each.audit_cpu_s for each in pairs) >= 0
    assert len(os.sched_getaffinity(0)) == os.cpu_count()


def test_an_auditor_stops_goes_on_and_ends_with_all_that_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "STARTED_S", 0.1)
    with beside.audited(SPINNING, tmp_path / "output") as auditor:
        processes = auditor._processes()
        assert len(processes) == 2
        _await(processes, "T")
        before = auditor.cpu_seconds()
        assert before > 0
        auditor.signal(signal.SIGCONT)
        while auditor.cpu_seconds() == before:
            pass
    assert not auditor.is_alive()
    _await(processes, "gone")


def _await(processes: set[int], state: str) -> None:
    """Signals are not heard at once."""
    while {_state(pid) for pid in processes} != {state}:
        pass


def _state(pid: int) -> str:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "gone"
    return "gone" if state in "ZX" else state


def test_an_audit_that_fails_ends_the_measurement(tmp_path: Path) -> None:
    failing = [sys.executable, "-c", "import sys; sys.exit('no journal')"]
    with pytest.raises(RuntimeError, match="the audit ended with 1: no journal"):
        measure(failing, 1, Load(messages=100, seconds=None, ack="client"), print)
