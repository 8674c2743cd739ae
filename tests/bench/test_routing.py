"""The measurement of routing: every case sends to exactly one queue, and ends."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import MagicMock

import pytest

from bench import routing
from bench.routing import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_costs_something(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "gc", MagicMock())  # it would let collections walk all objects of this process again
    small = replace(case, count=min(case.count, 20))
    assert min(routing.measure(small, messages=2_000, rounds=1)) > 0
