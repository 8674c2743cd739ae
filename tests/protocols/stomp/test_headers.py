"""Escapes: the tables of the specifications, and that each way is the inverse of the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.stomp.errors import StompError
from protocols.stomp.headers import escape, is_name, unescape
from tests.support import stomp_client
from tests.support.calls import counted_calls
from tests.support.interpreted import interpreted

SPECIAL = st.text(st.sampled_from("\\\n\r:cnr aä🐎")) | st.text(st.characters(exclude_characters="\0", codec="utf-8"))


def test_the_table() -> None:
    special = b"a\\b\nc:d\re"
    assert escape(special, "1.0") == b"a\\b c:d e"
    assert escape(special, "1.1") == b"a\\\\b\\nc\\cd\re"
    assert escape(special, "1.2") == b"a\\\\b\\nc\\cd\\re"


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_nul_has_no_escape(version: str) -> None:
    assert escape(b"a\0b", version) == b"a b"


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@given(text=SPECIAL)
def test_round_trip(version: str, text: str) -> None:
    wire = escape(text.encode(), version)
    assert b"\n" not in wire
    assert b":" not in wire
    assert b"\r" not in wire or version == "1.1"
    assert wire == stomp_client.escape(text, version).encode()
    assert unescape(wire, version) == text.encode()


@given(text=SPECIAL)
def test_1_0_takes_everything_as_it_is(text: str) -> None:
    assert unescape(text.encode(), "1.0") == text.encode()


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_every_escape(version: str) -> None:
    """Of all bytes that can follow a backslash, those of the table mean something and the others are errors."""
    plain = {b"\\\\": b"\\", b"\\n": b"\n", b"\\c": b":"} | ({b"\\r": b"\r"} if version == "1.2" else {})
    for number in range(256):
        wire = b"\\%c" % number
        if wire in plain:
            assert unescape(b"<" + wire + b">", version) == b"<" + plain[wire] + b">"
            continue
        with pytest.raises(StompError, match="undefined escape") as caught:
            unescape(b"<" + wire + b">", version)
        assert caught.value.detail.endswith(f"is not an escape of STOMP {version}")
        assert caught.value.detail.isprintable()
    with pytest.raises(StompError, match="undefined escape"):
        unescape(b"end\\", version)


@pytest.mark.parametrize(
    ("name", "version", "can"), [(b"a:b", "1.0", False), (b"a:b", "1.1", True), (b"a", "1.0", True)]
)
def test_a_name_with_a_colon_has_no_form_in_1_0(name: bytes, version: str, can: bool) -> None:
    assert is_name(name, version) is can


def naive(value: bytes, version: str) -> bytes | None:
    """The same from left to right; None: there is an undefined escape."""
    table = {b"\\\\": b"\\", b"\\n": b"\n", b"\\c": b":", **({b"\\r": b"\r"} if version == "1.2" else {})}
    found = b""
    while value:
        width = 2 if value[:1] == b"\\" else 1
        first, value = value[:width], value[width:]
        if width == 2 and first not in table:
            return None
        found += table.get(first, first)
    return found


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@given(st.lists(st.sampled_from([b"\\", b"n", b"c", b"r", b":", b"\n", b"\0", b"x"]), max_size=12).map(b"".join))
def test_escapes_are_read_from_left_to_right(version: str, value: bytes) -> None:
    try:
        assert unescape(value, version) == naive(value, version)
    except StompError:
        assert naive(value, version) is None
    assert unescape(escape(value, version), version) == value.replace(b"\0", b" ")


@interpreted
@pytest.mark.parametrize("convert", [escape, unescape])
def test_many_escapes_cost_no_call_each(convert: Callable[[bytes, str], bytes]) -> None:
    """A client may send 64 KiB of them in each frame."""
    value = b"\\n\\c\\\\" * 10_000
    with counted_calls(builtin=True) as calls:
        convert(value, "1.2")
    assert calls.total() < 100
