"""The expected output of `make demo` and `make cluster`."""

from __future__ import annotations

import re
import subprocess


def check(result: subprocess.CompletedProcess[str]) -> None:
    """Check the output of `make demo`, on lines of 80 characters; tests/test_readme.py runs it."""
    assert result.returncode == 0, result.stdout + result.stderr
    said = re.findall(r"^\d{4}-\d\d-.*Z [A-Z]+ +(\S+)", result.stderr, re.MULTILINE)
    assert set(said) <= {"journal.slow_sync"}, "the broker has nothing to say but of the machine's disk"
    told = result.stdout
    assert "Marked as redelivered: yes" in told
    assert "consumed, after the crash" in told
    assert "customer 4711 is unknown" in told
    table = told.partition("┏")[2].partition("└")[0]
    assert len(re.findall(r"^│", table, re.MULTILINE)) == 16, "each message has one line"
    balance = re.search(r"(\d+) sent = (\d+) consumed \+ (\d+) dead letters \+ (\d+) expired \+ (\d+) waiting", told)
    assert balance is not None
    sent, *fates = map(int, balance.groups())
    assert sent == sum(fates)
    assert min(fates) > 0
    assert "Order 3 comes like a new one (redelivered: no)" in told
    assert "consumed, brought back" in told
    assert re.search(r"^Balanced, with 0 faults; the running broker has counted the same\.$", told, re.MULTILINE)
    row = re.search(r"^│ ?orders +│ +(\d+) │ +(\d+) │ +│ +(\d+) │ +│ +│$", told, re.MULTILINE)
    assert row is not None
    assert [int(n) for n in row.groups()] == [12, 9, 3], "eleven sent and one brought back"
    assert "3 died (2 max-deliveries, 1 rejected): 2 still wait,\n1 brought back, of which 1 consumed then." in told
    assert re.search(r"2 expired on offers after \d+\.\d s: 2 never delivered, 2 with no consumer there\.", told)


def check_cluster(result: subprocess.CompletedProcess[str]) -> None:
    """Check the output of `make cluster`, on lines of 80 characters; tests/test_readme.py runs it."""
    assert result.returncode == 0, result.stdout + result.stderr
    told = result.stdout
    assert "Amsterdam publishes news, heard in amsterdam, berlin and paris." in told
    assert "SIGKILL berlin" in told
    assert "90 orders came to the worker, 0 of them more than once." in told
    assert re.search(r"^│paris +│ +90 │ +89 │ +│ +1 │ +│$", told, re.MULTILINE)
    outcomes = re.findall(r"^│[a-z]+ +│ [a-z, ]+ │ ([a-z ]+?) +│ +(\d+)│$", told, re.MULTILINE)
    assert {outcome for outcome, _ in outcomes} == {"passed on"}
    assert sum(int(count) for _, count in outcomes) >= 61, "60 orders and what was published"
    assert re.search(r"^Balanced\.$", told, re.MULTILINE)
