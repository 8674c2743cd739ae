"""The measurement of many queues: it makes them, finds them after a restart, and ends."""

from __future__ import annotations

import pytest

from bench import many_queues


def test_it_says_what_queues_cost(capsys: pytest.CaptureFixture[str]) -> None:
    assert many_queues.main(["--queues", "1500"]) == 0
    said = capsys.readouterr().out
    assert [line.partition("  ")[0] for line in said.splitlines()] == [
        "made by sends",
        "memory of a queue with a message",
        "ready after a SIGKILL",
        "memory of a queue then",
        "all queues listed",
        "one page of queues",
        "metrics",
        "a consumer for each",
        "a message to each",
    ]
