"""Headers: what a client builds is what the server reads, and `lines` are what the headers are in STOMP 1.2."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from protocols.stomp.connection import StompConnection
from protocols.stomp.frames import Frame
from protocols.stomp.headers import escape
from tests.protocols.stomp.peer import connected
from tests.support.stomp_client import frame
from tests.support.wire import feed

#: Text that a header can have in each version.  1.0 has no escapes and trims; a CR at the end of a line belongs to its
#: end in 1.1, as the field has it.
NICE = "abcXYZ0189-_./"
LEGAL = {
    "1.0": st.text(st.sampled_from(NICE + "\\äß€🐎")) | st.text(st.sampled_from(NICE)),
    "1.1": st.text(st.sampled_from(NICE + " \t\\\n:cnrä🐎")) | st.text(st.sampled_from(NICE)),
    "1.2": st.text(st.sampled_from(NICE + " \t\\\n\r:cnrä🐎"))
    | st.text(st.characters(exclude_characters="\0", codec="utf-8"))
    | st.text(st.sampled_from(NICE)),
}


@st.composite
def sends(draw: st.DrawFn) -> tuple[str, list[tuple[str, str]], bytes, bytes]:
    """Version, headers, body and line ends of a SEND."""
    version = draw(st.sampled_from(sorted(LEGAL)))
    names = LEGAL[version].filter(lambda name: bool(name) and name != "content-length")
    headers = draw(st.lists(st.tuples(names, LEGAL[version]), max_size=8))
    headers.insert(draw(st.integers(0, len(headers))), ("destination", draw(LEGAL[version])))
    body = draw(st.binary(max_size=50))
    return version, headers, body, draw(st.sampled_from([b"\n", b"\r\n"]))


def first_of_each(headers: list[tuple[str, str]]) -> dict[bytes, bytes]:
    """What a server should read."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        found.setdefault(name.encode(), value.encode())
    return found


@given(send=sends())
def test_round_trip(send: tuple[str, list[tuple[str, str]], bytes, bytes]) -> None:
    version, headers, body, eol = send
    connection = connected(version)
    (received,) = feed(connection, [frame("SEND", headers, body, version, eol=eol)])
    assert connection.error is None
    expected = first_of_each(headers)
    if b"\0" in body:
        expected[b"content-length"] = b"%d" % len(body)
    assert received.headers == expected
    assert list(received.headers) == list(expected)
    assert received.body == body
    check_lines(received)
    repeated = len(expected) < len(headers) + (b"\0" in body)
    assert (received.lines is None) == (version == "1.0" or repeated)


def check_lines(received: Frame) -> None:
    """The shortcut is what encoding the headers again would give."""
    if received.lines is not None:
        assert received.lines == [
            escape(name, "1.2") + b":" + escape(value, "1.2") for name, value in received.headers.items()
        ]


#: Lines as nobody should write them: bare colons and CRs, escapes right and wrong, repetitions, padding, no UTF-8.
WILD = st.lists(
    st.lists(st.sampled_from([b"a", b"b", b":", b"\\", b"\\c", b"\\r", b"\\n", b"\r", b" ", b"\xc3\xa4", b"\xff"])).map(
        b"".join
    ),
    max_size=6,
)


@given(version=st.sampled_from(sorted(LEGAL)), lines=WILD)
@example(version="1.2", lines=[b"a:b\r\r"])
@example(version="1.2", lines=[b"a:b:c"])
@example(version="1.1", lines=[b"a\\c:b:c"])
@example(version="1.2", lines=[b"a", b"b:c:d"])
@example(version="1.1", lines=[b"a:b\rc"])
def test_lines_are_the_headers_or_nothing(version: str, lines: list[bytes]) -> None:
    connection = connected(version)
    raw = b"\n".join([b"SEND", b"destination:q", *lines]) + b"\n\nbody\0"
    for received in feed(connection, [raw]):
        check_lines(received)
        assert all(name for name in received.headers)
        for value in received.headers.values():
            value.decode()  # does not raise


def obvious(version: str, lines: list[bytes]) -> dict[bytes, bytes]:
    """The headers of lines without escapes, by the letter."""
    headers: dict[bytes, bytes] = {}
    for line in lines:
        name, _, value = line.partition(b":")
        if version == "1.0":
            name, value = name.strip(b" \t"), value.strip(b" \t")
        headers.setdefault(name, value)
    return headers


@given(
    version=st.sampled_from(sorted(LEGAL)),
    lines=st.lists(st.from_regex(rb"\A[a-d]{1,2}[ ]?:[ a-d:]{0,4}\Z"), max_size=6),
)
def test_the_short_way_and_the_long_way_read_the_same(version: str, lines: list[bytes]) -> None:
    """One header that is not ASCII sends the same lines the long way."""
    lines = [b"destination:q", *lines]
    read = []
    for more in ([], ["ä:ö".encode()]):
        (received,) = feed(connected(version), [b"\n".join([b"SEND", *lines, *more]) + b"\n\n\0"])
        received.headers.pop("ä".encode(), None)
        read.append(received.headers)
    assert read[0] == read[1] == obvious(version, lines)


@given(headers=st.dictionaries(LEGAL["1.2"].filter(lambda t: not set(t) & set("\n\r:")), LEGAL["1.2"]))
def test_connect_is_taken_as_it_is(headers: dict[str, str]) -> None:
    pairs = {"accept-version": "1.2"} | {
        name: value.replace("\n", "").replace("\r", "")
        for name, value in headers.items()
        if name not in ("", "content-length")
    }
    (received,) = feed(StompConnection(), [frame("CONNECT", pairs)])
    assert received.headers == {name.encode(): value.encode() for name, value in pairs.items()}
