"""The indexes beside a running broker: made again and again, with rests, until it stops; a failure is told once."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from broker import clock
from broker.daemon import indexing
from broker.daemon.indexing import REST_SECONDS, RESTS_MAX, Indexing
from store.files import OsFiles


class Clock:
    """The processor time of a process that is this busy, and the rests that were taken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, busy: float) -> None:
        self.rests = 0
        self._used = 0.0
        self._busy = busy
        monkeypatch.setattr(clock, "rest", self._rest)
        monkeypatch.setattr(clock, "cpu_seconds", lambda: self._used)

    def _rest(self, seconds: float) -> None:
        assert seconds == REST_SECONDS
        self.rests += 1
        self._used += seconds * self._busy


@pytest.mark.parametrize(("busy", "rests"), [(0.1, 1), (0.9, RESTS_MAX)])
def test_it_rests_longer_while_the_broker_has_much_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, busy: float, rests: int
) -> None:
    used = Clock(monkeypatch, busy)
    Indexing(OsFiles(), str(tmp_path), lambda *_, **__: None)._rest()
    assert used.rests == rests


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_failure_is_told_once_and_it_goes_on_until_it_is_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, anyio_backend: str
) -> None:
    told: list[tuple[str, object]] = []

    def report(code: str, /, **fields: str | int) -> None:
        told.append((code, fields["error"]))

    work = Indexing(OsFiles(), str(tmp_path), report)
    calls = 0

    def working() -> int:
        nonlocal calls
        calls += 1
        if calls < 4:
            raise OSError(errno.EACCES, "Permission denied")
        work.stop()
        work._rest()
        raise AssertionError("it was stopped")

    monkeypatch.setattr(indexing, "PERIOD_SECONDS", 0)
    monkeypatch.setattr(work._indexer, "work", working)
    await asyncio.wait_for(work.run(), 20)
    assert (calls, told) == (4, [("journal.index_failed", "[Errno 13] Permission denied")])
