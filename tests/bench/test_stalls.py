"""The benchmark of what one client may do to others runs, and says what it saw."""

from __future__ import annotations

import pytest

from bench import stalls


def test_every_case_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert stalls.main(["--messages", "200", "--case", "purge", "--case", "move", "--case", "wills"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["quiet", "purge", "quiet", "move", "quiet", "wills"]
    assert all(float(figure) >= 0 for line in lines[1:] for figure in line.split()[1:])
