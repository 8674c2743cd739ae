"""The soak of `python -m tests.soak`, some simulated days of it."""

from __future__ import annotations

from tests.support.soak import Day, Months, grown


def test_nothing_grows_from_day_to_day() -> None:
    months = Months()
    days = [months.day() for _ in range(6)]
    assert grown(days) == [], days
    assert days[-1].last_id - days[0].last_id > 1_000, "ids are used up as messages come"


def test_growth_is_noticed() -> None:
    days = [Day(100_000 + 2_000 * n, 5, 3, 1 << 20, n) for n in range(5)]
    assert grown(days) == ["objects: 104000 on day 3, 108000 on day 5"]
