"""Counting instructions with a `perf` that does as the real one does, or does not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bench.instructions import Counting, why_not

#: Says what it was told, then a count for each pid, as `perf stat -x,` does.
PERF = """#!{python}
import os, signal, sys
arguments = sys.argv[1:]
if "--control" in arguments:
    given, answer = map(int, arguments[arguments.index("--control") + 1][3:].split(","))
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    for wanted in (b"enable\\n", b"disable\\n"):
        assert os.read(given, 16) == wanted
        os.write(answer, b"ack\\n")
    signal.sigwait([signal.SIGINT])
sys.stderr.write("# started on a day\\n\\n{count},,instructions:u,1000,100.00,,\\n")
"""


def perf(directory: Path, count: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = directory / "perf"
    path.write_text(PERF.format(python=sys.executable, count=count).replace("\\\\", "\\"))
    path.chmod(0o700)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


def test_they_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    perf(tmp_path, "12345", monkeypatch)
    assert why_not() == ""
    counter = Counting([os.getpid()])
    counter.begin()
    assert counter.end() == 12345


def test_a_counter_that_the_machine_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    perf(tmp_path, "<not supported>", monkeypatch)
    assert "<not supported>" in why_not()
    counter = Counting([os.getpid()])
    counter.begin()
    assert counter.end() is None


def test_no_perf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.instructions.shutil.which", lambda name: None)
    assert "install the Debian package linux-perf" in why_not()


def test_a_counter_that_is_not_needed_any_more_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    perf(tmp_path, "1", monkeypatch)
    before = os.listdir("/proc/self/fd")
    counter = Counting([os.getpid()])
    counter.begin()
    counter.close()
    assert os.listdir("/proc/self/fd") == before
