"""Headers: what a client builds is what the server reads, and `lines` are what the headers are in STOMP 1.2."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from protocols.stomp.connection import StompConnection
from protocols.stomp.frames import Frame, Known, Lead
from protocols.stomp.headers import escape
from tests.protocols.stomp.peer import connected, show
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
        lines = [escape(name, "1.2") + b":" + escape(value, "1.2") for name, value in received.headers.items()]
        assert received.lines == b"".join([line + b"\n" for line in lines])


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


@st.composite
def wild_sends(draw: st.DrawFn) -> bytes:
    """The bytes of a SEND that may be wrong, most of them plain, and what may stand before it."""
    headers = {"destination": "a", **draw(st.dictionaries(st.sampled_from("bcd"), st.sampled_from(["", "x", "y"])))}
    body = draw(st.sampled_from([b"", b"body", b"one\n\ntwo", b"\n", b"x\0y", bytes(600)]))
    raw = frame("SEND", headers, body)
    lines = draw(st.sampled_from([[], [], [], *([line] for line in (b"b", b"b:c:d", b"b:\\c", b":x", b"b:\xc3\xa4"))]))
    if draw(st.integers(0, 7)) == 7:
        lines = [*lines, draw(st.sampled_from([b"content-length:4", b"content-length:04", b"content-length:9", b"\0"]))]
    head = b"".join([line + b"\n" for line in lines])
    lead = draw(st.sampled_from([b"", b"", b"\n", b"\n\n", b"\r\n"]))
    return lead + raw.replace(b"\n", b"\n" + head, 1)


def whole(received: Frame) -> tuple[str, dict[bytes, bytes], bytes, bytes | None]:
    """A frame as it would be had nobody expected it."""
    if not isinstance(received, Known):
        return *show(received), received.lines
    assert received.headers == {}
    assert received.lines is not None
    begin = received.lead.begins.removeprefix(b"SEND\n")
    pairs = [line.split(b":") for line in (begin + received.lines).splitlines()]
    assert len(dict(pairs)) == len(pairs)
    assert not received.lead.excluded & {name for name, _ in pairs}
    return received.command, dict(pairs), received.body, begin + received.lines


@given(
    version=st.sampled_from(sorted(LEGAL)),
    stream=st.lists(wild_sends(), max_size=12),
    leads=st.sets(st.sampled_from([b"", b"b:x\n", b"c:\n"])),
)
def test_sends_that_begin_as_expected_are_read_as_others_are(
    version: str, stream: list[bytes], leads: set[bytes]
) -> None:
    known, others = connected(version), connected(version)
    for lead in leads:
        known.leads.expect(Lead(b"SEND\ndestination:a\n" + lead, frozenset({b"d"})))
    frames = feed(known, [b"".join(stream)])
    single = [received for raw in stream for received in feed(others, [raw])]
    assert [whole(received) for received in frames] == [whole(received) for received in single]
    wrong, expected = known.error, others.error
    assert (wrong and (wrong.message, wrong.detail)) == (expected and (expected.message, expected.detail))


def test_sends_with_an_expected_lead_are_known_from_the_second_on() -> None:
    connection = connected()
    lead = Lead(b"SEND\ndestination:a\n", frozenset({b"receipt"}))
    connection.leads.expect(lead)
    raws = [frame("SEND", {"destination": "a", "n": f"{n}"}, b"body") for n in range(1000)]
    first, *more = feed(connection, [b"".join(raws)])
    assert not isinstance(first, Known)
    assert [(type(each), each.lines, each.body) for each in more] == [
        (Known, b"n:%d\n" % n, b"body") for n in range(1, 1000)
    ]
    (asks,) = feed(connection, [frame("SEND", {"destination": "a", "receipt": "r"})])
    assert not isinstance(asks, Known)


def test_of_many_leads_the_last_are_expected() -> None:
    connection = connected()
    for n in range(1000):
        connection.leads.expect(Lead(b"SEND\ndestination:%d\n" % n, frozenset()))
    raws = [frame("SEND", {"destination": f"{n}"}) for n in (0, 1, 999)]
    assert [type(received) for received in feed(connection, [b"".join(raws)])] == [Frame, Frame, Known]
