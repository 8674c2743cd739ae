"""The measurement of a burst: it fills a queue, empties it, says what stays, and ends."""

from __future__ import annotations

import pytest

from bench import burst


@pytest.mark.parametrize("durable", [False, True])
def test_it_says_what_a_burst_leaves(durable: bool, capsys: pytest.CaptureFixture[str]) -> None:
    assert burst.main(["--messages", "3000", "--after", "0", *(["--durable"] if durable else [])]) == 0
    said = capsys.readouterr().out
    assert [line.partition("  ")[0] for line in said.splitlines()] == ["with all messages", "consumed", "0 s later"]
