"""The benchmark of what one client may do to others runs, and says what it saw."""

from __future__ import annotations

import pytest

from bench import stalls
from bench.stalls_engine import ENGINE_CASES, longest_tick


def test_every_case_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert stalls.main(["--messages", "200", "--case", "purge", "--case", "move", "--case", "wills"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["quiet", "purge", "quiet", "move", "quiet", "wills"]
    assert all(float(figure) >= 0 for line in lines[1:] for figure in line.split()[1:])


@pytest.mark.parametrize("case", sorted({"rejected", "expired", "random_verbs"} & ENGINE_CASES.keys()))
def test_each_case_of_the_engine_has_a_longest_tick(case: str) -> None:
    longest = longest_tick(case, 200)
    assert longest.ms > 0
    assert longest.ticks > 0
    assert longest.verb
