"""Giving way: the priority that an audit takes, and that what it starts inherits.

It cannot be taken back, so it is always another process that takes it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from spark_jobs import jvm, priority

#: What a process says of itself, and what one says that it starts.
_SAY: Final = """\
import os
from spark_jobs.priority import gives_way
print(gives_way(), os.getpriority(os.PRIO_PROCESS, 0), open("/proc/self/oom_score_adj").read().strip())
"""


def _run(script: str, *, before: str = "") -> list[str]:
    child = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {_SAY!r}], check=True)\n"
    done = subprocess.run(
        [sys.executable, "-u", "-c", before + script + _SAY + child],
        env={**os.environ, "PYTHONPATH": str(jvm.ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_an_audit_that_does_not_ask_for_it_does_not_give_way() -> None:
    assert not priority.gives_way()
    mine = Path("/proc/self/oom_score_adj").read_text().strip()
    assert _run("") == [f"False {os.getpriority(os.PRIO_PROCESS, 0)} {mine}"] * 2


def test_it_is_inherited_by_whoever_is_started() -> None:
    assert _run("from spark_jobs.priority import give_way\ngive_way()\ngive_way()\n") == ["True 19 1000"] * 2


def test_an_audit_that_gives_way_already_needs_no_permission() -> None:
    """systemd's unit gives it, and then forbids to change it."""
    before = (
        "import os\nos.setpriority(os.PRIO_PROCESS, 0, 19)\n"
        "def refuse(*_): raise PermissionError\nos.setpriority = refuse\n"
    )
    assert _run("from spark_jobs.priority import give_way\ngive_way()\n", before=before) == ["True 19 1000"] * 2


@pytest.mark.parametrize(("load", "waits"), [(0.0, False), (1.9, False), (2.0, True), (40.0, True)])
def test_where_others_want_all_cores_it_has_to_wait(monkeypatch: pytest.MonkeyPatch, load: float, waits: bool) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert priority.has_to_wait() == waits
