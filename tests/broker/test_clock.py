"""The clocks."""

from __future__ import annotations

import time

import pytest

from broker.clock import ThreadCpu


class Clocks:
    """The processor time of a thread and the time that passes, in nanoseconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.used = self.passed = 5_000_000
        self.asked = 0
        monkeypatch.setattr(time, "thread_time_ns", self._thread_time)
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.passed)

    def _thread_time(self) -> int:
        self.asked += 1
        return self.used

    def work(self, microseconds: int) -> None:
        self.used += microseconds * 1_000
        self.passed += microseconds * 1_000


def test_the_kernel_is_asked_only_if_a_thread_may_have_used_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(monkeypatch)
    cpu = ThreadCpu()
    asked = clocks.asked
    clocks.work(3_000)
    assert cpu(8_001) == 8_000
    assert clocks.asked == asked
    clocks.work(1)
    assert cpu(8_001) == 8_001
    assert clocks.asked == asked + 1


def test_time_that_others_had_counts_for_no_more_than_the_caller_wants_to_know(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(monkeypatch)
    cpu = ThreadCpu()
    clocks.passed += 900_000_000  # another process had the processor
    assert cpu(6_000) == 5_000
    clocks.work(999)
    assert cpu(6_000) == 5_999
    clocks.passed += 1_000_000
    assert cpu(7_000) == 6_999, "between the time and what was asked for"
