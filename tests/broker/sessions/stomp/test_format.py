"""STOMP messages that an operator gives another body."""

from __future__ import annotations

import pytest

from broker.sessions.stomp.format import StompFormat

FORMAT = StompFormat()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"k:v\n", b"k:v\n"),
        (b"content-length:5\nk:v\n", b"k:v\ncontent-length:3\n"),
        (b"content-encoding:gzip\ncontent-length:5\n", b"content-length:3\n"),
    ],
)
def test_text_stays_text_and_bytes_stay_bytes(before: bytes, after: bytes) -> None:
    assert FORMAT.refilled(before, b"12345", b"new") == (after, b"new")
    assert FORMAT.readable(after, 3)
