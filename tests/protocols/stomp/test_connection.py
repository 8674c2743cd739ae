"""Frames in: however they arrive, and what is wrong with them."""

from __future__ import annotations

import pytest

from protocols.stomp.connection import StompConnection
from protocols.stomp.errors import StompError
from protocols.stomp.frames import Frame
from protocols.stomp.limits import Limits
from tests.protocols.stomp.peer import EOL, VERSIONS, connected, failure, maker, show
from tests.support.interpreted import interpreted
from tests.support.stomp_client import frame
from tests.support.wire import bytewise, check_codec, check_malformed, feed

NUL_BODY = b"a\0b\nc\r\0"

#: One of each, with what makes it special: (command, headers, body), legal in the versions named.
FRAMES = [
    ("SEND", {"destination": "/queue/a"}, b"", VERSIONS),
    ("SEND", {"destination": "/queue/a", "kind": "order"}, b"text of the body\n", VERSIONS),
    ("SEND", {"destination": "/queue/a"}, NUL_BODY, VERSIONS),
    ("SEND", {"destination": "/queue/a"}, b"\n\n\n", VERSIONS),
    ("SEND", {"destination": "/queue/ä", "größe": "10 €", "emoji": "🐎"}, "größer".encode(), VERSIONS),
    ("SEND", {"destination": "/queue/a", "empty": ""}, b"x", VERSIONS),
    ("SEND", {"destination": "a", "path": "C:\\new", "two": "a\nb", "co:lon": "::"}, b"x", ("1.1", "1.2")),
    ("SEND", {"destination": "a", "cr": "a\r\nb", "\\": "\r"}, b"x", ("1.2",)),
    ("SUBSCRIBE", {"destination": "/queue/a", "id": "0", "ack": "client"}, b"", VERSIONS),
    ("UNSUBSCRIBE", {"id": "0"}, b"", VERSIONS),
    ("ACK", {"id": "1", "message-id": "1", "subscription": "0"}, b"", VERSIONS),
    ("NACK", {"id": "1", "message-id": "1", "subscription": "0"}, b"", ("1.1", "1.2")),
    ("BEGIN", {"transaction": "t"}, b"", VERSIONS),
    ("COMMIT", {"transaction": "t", "receipt": "r"}, b"", VERSIONS),
    ("ABORT", {"transaction": "t"}, b"", VERSIONS),
    ("DISCONNECT", {}, b"", VERSIONS),
    ("DISCONNECT", {"receipt": "r"}, b"", VERSIONS),
]
CASES = [(version, *case[:3]) for case in FRAMES for version in case[3]]


def expected(command: str, headers: dict[str, str], body: bytes, **more: str) -> list[object]:
    """The event that a frame is."""
    return [(command, {name.encode(): value.encode() for name, value in (headers | more).items()}, body)]


@pytest.mark.parametrize("eol", [b"\n", b"\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize(("version", "command", "headers", "body"), CASES)
def test_every_frame(version: str, command: str, headers: dict[str, str], body: bytes, eol: bytes) -> None:
    length = {"content-length": str(len(body))} if b"\0" in body else {}
    raw = frame(command, headers, body, version, eol=eol)
    trailing = frame("SEND", {"destination": "next"}, b"not whole")[:-1]
    check_codec(
        maker(version), raw, expected(command, headers, body, **length), show=show, blank=EOL, trailing=trailing
    )


@pytest.mark.parametrize("ends", [b"\n", b"\r\n", b"\n\n\n\n"])
@pytest.mark.parametrize(("version", "command", "headers", "body"), [case for case in CASES if case[1] != "SEND"])
def test_an_empty_line_too_many_is_no_body(
    version: str, command: str, headers: dict[str, str], body: bytes, ends: bytes
) -> None:
    """Clients that are written by hand send one before the NUL."""
    assert body == b""
    raw = frame(command, headers, ends, version)
    check_codec(maker(version), raw, expected(command, headers, b""), show=show, blank=EOL)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_line_too_many_in_connect(version: str) -> None:
    raw = frame("CONNECT", {"login": "joe"}, b"\n")
    check_codec(StompConnection, raw, [("CONNECT", {b"login": b"joe"}, b"")], show=show, blank=EOL)


@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
@pytest.mark.parametrize("eol", [b"\n", b"\r\n"], ids=["lf", "crlf"])
def test_connect(command: str, eol: bytes) -> None:
    """Not escaped, so that a password may be anything."""
    headers = {"accept-version": "1.1,1.2", "login": "joe", "passcode": " a\\n:\\c b ", "heart-beat": "0,0"}
    raw = frame(command, headers, eol=eol)
    check_codec(
        StompConnection, raw, expected(command, headers, b""), show=show, blank=EOL, trailing=frame("SEND")[:-1]
    )


@pytest.mark.parametrize("eols", [b"\n", b"\r\n", b"\n\n\n\r\n\n"])
def test_empty_lines_between_frames(eols: bytes) -> None:
    raw = frame("SEND", {"destination": "a"}, b"x")
    check_codec(maker(), eols + raw, expected("SEND", {"destination": "a"}, b"x"), show=show, blank=EOL, trailing=eols)
    assert len(feed(connected(), [raw + eols + raw + eols + eols, raw])) == 3


def test_mixed_line_ends() -> None:
    """Each line ends as it likes, and so do the headers."""
    for raw in (
        b"SEND\r\ndestination:a\nb:c\r\n\nbody\0",
        b"SEND\ndestination:a\r\nb:c\n\r\nbody\0",
        b"SEND\ndestination:a\nb:c\n\r\nbody\0",
        b"SEND\r\ndestination:a\r\nb:c\r\n\nbody\0",
    ):
        check_codec(maker(), raw, expected("SEND", {"destination": "a", "b": "c"}, b"body"), show=show, blank=EOL)


def test_the_first_empty_line_ends_the_head() -> None:
    for raw, body in (
        (b"SEND\ndestination:a\n\r\n\n\nbody\0", b"\n\nbody"),
        (b"SEND\ndestination:a\n\n\r\nbody\0", b"\r\nbody"),
        (b"SEND\r\ndestination:a\r\n\r\n\n\n\r\n\0", b"\n\n\r\n"),
    ):
        check_codec(maker(), raw, expected("SEND", {"destination": "a"}, body), show=show, blank=EOL)


@pytest.mark.parametrize("version", VERSIONS)
def test_repeated_headers_first_wins(version: str) -> None:
    raw = frame("SEND", [("destination", "a"), ("n", "1"), ("n", "2"), ("destination", "b")], b"x", version)
    check_codec(maker(version), raw, expected("SEND", {"destination": "a", "n": "1"}, b"x"), show=show, blank=EOL)
    (received,) = feed(connected(version), [raw])
    assert received.lines is None


def test_repeated_content_length_first_wins() -> None:
    headers = [("destination", "a"), ("content-length", "1"), ("content-length", "3")]
    (received,) = feed(connected(), [frame("SEND", headers, b"x")])
    assert (received.body, received.headers[b"content-length"]) == (b"x", b"1")


def test_1_0_trims_padding_and_later_versions_do_not() -> None:
    raw = b"SEND\ndestination: a \n kind\t: x\n\nbody\0"
    check_codec(maker("1.0"), raw, expected("SEND", {"destination": "a", "kind": "x"}, b"body"), show=show, blank=EOL)
    for version in ("1.1", "1.2"):
        wanted = expected("SEND", {"destination": " a ", " kind\t": " x"}, b"body")
        check_codec(maker(version), raw, wanted, show=show, blank=EOL)


def test_connect_is_trimmed_unless_it_names_versions() -> None:
    raw = b"CONNECT\nlogin: <username>\npasscode: p \n\n\0"
    (old,) = feed(StompConnection(), [raw])
    assert old.headers == {b"login": b"<username>", b"passcode": b"p"}
    (new,) = feed(StompConnection(), [raw.replace(b"\n\n", b"\naccept-version:1.2\n\n")])
    assert new.headers[b"passcode"] == b" p "


def test_a_1_0_frame_with_accept_version_is_trimmed_like_any() -> None:
    (received,) = feed(connected("1.0"), [b"SEND\ndestination: a\naccept-version:1.2\n\n\0"])
    assert received.headers[b"destination"] == b"a"


def test_1_0_has_no_escapes() -> None:
    (received,) = feed(connected("1.0"), [b"SEND\ndestination:a\\n:b\\x\n\n\0"])
    assert received.headers == {b"destination": b"a\\n:b\\x"}
    assert received.lines is None


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize("value", [b"12:30", b"a\rb", b":", b"\r\r\\c:"])
def test_colons_and_crs_without_escapes_are_taken(version: str, value: bytes) -> None:
    """But not passed on as they are."""
    (received,) = feed(connected(version), [b"SEND\ndestination:a\nx:%b\ny:z\n\n\0" % value])
    assert received.headers == {b"destination": b"a", b"x": value.replace(b"\\c", b":"), b"y": b"z"}
    assert received.lines is None


def test_1_0_drops_the_body_of_subscribe() -> None:
    """1.0, SUBSCRIBE: its body is ignored."""
    raw = b"SUBSCRIBE\ndestination:a\n\nwhatever\0"
    check_codec(maker("1.0"), raw, expected("SUBSCRIBE", {"destination": "a"}, b""), show=show, blank=EOL)


@pytest.mark.parametrize("length", [b"0", b"00", b"000000000000"])
def test_content_length_0_on_any_frame(length: bytes) -> None:
    raw = b"ACK\nid:1\ncontent-length:%b\n\n\0" % length
    check_codec(maker(), raw, [("ACK", {b"id": b"1", b"content-length": length}, b"")], show=show, blank=EOL)
    connect = b"CONNECT\naccept-version:1.2\ncontent-length:%b\n\n\0" % length
    assert len(feed(StompConnection(), [connect])) == 1


SEND = b"SEND\ndestination:a\nreceipt:r\n"

#: What is wrong, the bytes, the version, the message and a part of the detail, the receipt.
MALFORMED: dict[str, tuple[bytes, str, str, str, bytes | None]] = {
    "negative content-length": (
        SEND + b"content-length:-1\n\nx\0",
        "1.2",
        "invalid content-length",
        "a number of bytes, of at most 12 digits",
        b"r",
    ),
    "content-length no digits": (
        SEND + b"content-length:abc\n\nx\0",
        "1.2",
        "invalid content-length",
        "a number of bytes, of at most 12 digits",
        b"r",
    ),
    "content-length empty": (
        SEND + b"content-length:\n\nx\0",
        "1.2",
        "invalid content-length",
        "a number of bytes, of at most 12 digits",
        b"r",
    ),
    "content-length with plus": (
        SEND + b"content-length:+1\n\nx\0",
        "1.2",
        "invalid content-length",
        "a number of bytes, of at most 12 digits",
        b"r",
    ),
    "content-length padded": (
        SEND + b"content-length: 1\n\nx\0",
        "1.2",
        "invalid content-length",
        "a number of bytes, of at most 12 digits",
        b"r",
    ),
    "content-length other digits": (
        SEND + "content-length:\u0661\n\nx\0".encode(),
        "1.2",
        "invalid content-length",
        "must be a number of bytes",
        b"r",
    ),
    "content-length above the limit": (
        SEND + b"content-length:10485761\n\nx",
        "1.2",
        "body too large",
        "10485760 bytes",
        b"r",
    ),
    "content-length huge": (
        SEND + b"content-length:99999999999999999999\n\nx",
        "1.2",
        "invalid content-length",
        "a number of bytes, of at most 12 digits",
        b"r",
    ),
    "content-length too short": (
        SEND + b"content-length:1\n\nxyz\0",
        "1.2",
        "invalid content-length",
        "SEND: content-length says 1 bytes, but no NUL follows them",
        b"r",
    ),
    "content-length on ACK": (b"ACK\nid:1\nreceipt:r\ncontent-length:1\n\nx\0", "1.2", "unexpected body", "ACK", b"r"),
    "body on ACK": (b"ACK\nid:1\nreceipt:r\n\nx\0", "1.2", "unexpected body", "ACK: only SEND has a body", b"r"),
    "body on SUBSCRIBE in 1.1": (b"SUBSCRIBE\nid:1\ndestination:a\n\nx\0", "1.1", "unexpected body", "SUBSCRIBE", None),
    "body on DISCONNECT": (b"DISCONNECT\n\nx\0", "1.0", "unexpected body", "DISCONNECT", None),
    "too many empty lines": (b"BEGIN\ntransaction:t\n\n\n\n\n\n\n\0", "1.2", "unexpected body", "BEGIN", None),
    "no empty line": (
        b"SEND\ndestination:a\n\0\n",
        "1.2",
        "invalid header",
        "NUL in line 3 of the frame, before the empty line",
        None,
    ),
    "NUL in a header": (SEND + b"x:a\0b\n\nbody\0", "1.2", "invalid header", "NUL in line 4 of the frame", None),
    "NUL in a header with CRs": (
        b"SEND\r\nx:a\0b\r\n\r\nbody\0",
        "1.2",
        "invalid header",
        "NUL in line 2 of the frame",
        None,
    ),
    "NUL instead of a frame": (b"\0\n", "1.2", "invalid header", "NUL", None),
    "line without colon": (
        SEND + b"nonsense\n\nx\0",
        "1.2",
        "invalid header",
        "SEND: header line 3 is not NAME:VALUE",
        b"r",
    ),
    "line without colon among others with more": (
        b"SEND\nnonsense\na:b:c\n\nx\0",
        "1.2",
        "invalid header",
        "SEND: header line 1 is not NAME:VALUE",
        None,
    ),
    "empty name": (SEND + b":value\n\nx\0", "1.2", "invalid header", "SEND: header line 3 is not NAME:VALUE", b"r"),
    "empty name after trimming": (
        SEND + b" : x\n\nx\0",
        "1.0",
        "invalid header",
        "SEND: header line 3 is not NAME",
        b"r",
    ),
    "escape \\r in 1.1": (SEND + b"x:a\\rb\n\nx\0", "1.1", "undefined escape", "\\r is not an escape", b"r"),
    "escape \\t": (SEND + b"x:a\\tb\n\nx\0", "1.2", "undefined escape", "line 3: \\t is not an escape", b"r"),
    "escape in a name": (SEND + b"x\\t:a\n\nx\0", "1.2", "undefined escape", "line 3: \\t is not an escape", b"r"),
    "escape at the end": (SEND + b"x:a\\\n\nx\0", "1.2", "undefined escape", "line 3: \\ is not an escape", b"r"),
    "escape that is not ASCII": (SEND + "x:a\\ä\n\nx\0".encode(), "1.2", "undefined escape", "is not an escape", b"r"),
    "not UTF-8": (SEND + b"x:a\xff\n\nx\0", "1.2", "invalid header", "SEND: header line 3 is not UTF-8", b"r"),
    "a surrogate": (SEND + b"x:\xed\xa0\x80\n\nx\0", "1.2", "invalid header", "is not UTF-8", b"r"),
    "receipt not UTF-8": (b"SEND\nreceipt:\xff\nx\n\nx\0", "1.2", "invalid header", "is not", None),
    "receipt with a wrong escape": (b"SEND\ndestination:a\nreceipt:\\q\n\nx\0", "1.2", "undefined escape", "\\q", None),
    "receipt with an escape": (
        b"SEND\nreceipt:a\\nb\nnonsense\n\nx\0",
        "1.2",
        "invalid header",
        "header line 2 is not NAME",
        b"a\nb",
    ),
    "lower case command": (b"send\ndestination:a\n\nx\0", "1.2", "unknown command", "'send' is not a command", None),
    "padded command": (b"SEND \ndestination:a\n\nx\0", "1.2", "unknown command", "'SEND ' is not a command", None),
    "server's command": (b"MESSAGE\ndestination:a\n\nx\0", "1.2", "unknown command", "'MESSAGE' is no", None),
    "NACK in 1.0": (b"NACK\nmessage-id:1\n\n\0", "1.0", "unknown command", "not a command of STOMP 1.0", None),
    "control characters": (
        b"\x1b[2J\ndestination:a\n\nx\0",
        "1.2",
        "unknown command",
        "a first line of 4 bytes is not a command",
        None,
    ),
    "very long command": (b"X" * 200 + b"\n\n\0", "1.2", "unknown command", "a first line of 200 bytes", None),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(name: str) -> None:
    raw, version, message, detail, receipt = MALFORMED[name]
    error = check_malformed(maker(version), raw, StompError)
    assert error.message == message
    assert detail in error.detail
    assert error.detail.isprintable()
    assert error.receipt == receipt
    assert str(error) == f"{message}: {error.detail}"


@pytest.mark.parametrize("name", MALFORMED)
def test_frames_before_a_malformed_one_come_out(name: str) -> None:
    raw, version, *_ = MALFORMED[name]
    good = frame("SEND", {"destination": "a"}, b"good", version)
    connection = connected(version)
    assert [received.body for received in feed(connection, [good + good + raw])] == [b"good", b"good"]
    assert connection.error is not None


def test_http_is_told_from_stomp() -> None:
    error = check_malformed(StompConnection, b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", StompError)
    assert error.detail == "'GET' is not a command of STOMP"


@pytest.mark.parametrize("line", [b"SSH-2.0-OpenSSH_9.6", b"CONNECT broker:61613 HTTP/1.1", b""])
def test_the_first_line_tells_whether_it_is_stomp(line: bytes) -> None:
    connection = StompConnection()
    assert feed(connection, bytewise(line + b"\r\n")) == []
    assert failure(connection) == ("unknown command" if line else None)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("length", [False, True])
def test_missing_nul(version: str, length: bool) -> None:
    """Without its NUL a frame is not whole: at the end of the connection it is an error."""
    raw = frame("SEND", {"destination": "a"}, b"body", version, content_length=length)[:-1]
    connection = connected(version)
    assert feed(connection, bytewise(raw)) == []
    assert failure(connection) is None
    connection.receive_eof()
    assert failure(connection) == "incomplete frame"


def test_end_of_connection_after_whole_frames() -> None:
    """Frames that have not been asked for yet come out, and then the half one is an error."""
    raw = frame("SEND", {"destination": "a"})
    connection = connected()
    connection.receive_data(raw + raw[:7])
    connection.receive_eof()
    assert failure(connection) is None
    assert len(connection.events()) == 1
    assert failure(connection) == "incomplete frame"


def test_end_of_connection_before_and_while_connecting() -> None:
    silent = StompConnection()
    silent.receive_eof()
    assert silent.error is None
    half = StompConnection()
    assert feed(half, [b"CONN"]) == []
    half.receive_eof()
    assert half.error is not None
    unanswered = StompConnection()
    assert len(feed(unanswered, [frame("CONNECT") + b"SE"])) == 1
    unanswered.receive_eof()
    assert unanswered.error is None


def test_reads_without_events_in_between() -> None:
    """Nothing depends on `events` being asked after every read."""
    raw = b"".join(frame("SEND", {"destination": "a"}, b"%d" % number) for number in range(20)) + b"\n\n"
    whole = [show(received) for received in feed(connected(), [raw])]
    for size in range(1, 40):
        connection = connected()
        for at in range(0, len(raw), size):
            connection.receive_data(raw[at : at + size])
        assert [show(received) for received in connection.events()] == whole


def test_every_split_of_a_stream() -> None:
    stream = b"\n".join(frame(command, headers, body, "1.2") for command, headers, body, _ in FRAMES[:-2])
    whole = [show(received) for received in feed(connected(), [stream])]
    assert len(whole) == len(FRAMES) - 2
    for at in range(len(stream)):
        assert [show(received) for received in feed(connected(), [stream[:at], stream[at:]])] == whole
    assert [show(received) for received in feed(connected(), bytewise(stream))] == whole


class Counting(StompConnection):
    """Counts the work: how often the buffer is parsed, and how many bytes of it."""

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(Limits() if limits is None else limits)
        self.parses = 0
        self.parsed_bytes = 0

    def _parse(self, frames: list[Frame]) -> None:
        self.parses += 1
        self.parsed_bytes += len(self._buffer) - self._at
        super()._parse(frames)

    @property
    def kept_bytes(self) -> int:
        """Bytes that are kept for later."""
        return len(self._buffer) - self._at + len(self._pending)


def counting() -> Counting:
    """A connected one."""
    connection = Counting()
    assert len(feed(connection, [frame("CONNECT", {"accept-version": "1.2"})])) == 1
    connection.send_connected("1.2", [])
    connection.parses = connection.parsed_bytes = 0
    return connection


@interpreted
@pytest.mark.parametrize("length", [False, True])
@pytest.mark.parametrize("size", [100, 4096])
def test_a_large_body_in_small_pieces_is_parsed_a_few_times(length: bool, size: int) -> None:
    body = b"x" * (10 << 20)
    raw = frame("SEND", {"destination": "a"}, body, content_length=length)
    connection = counting()
    frames = feed(connection, (raw[at : at + size] for at in range(0, len(raw), size)))
    assert [received.body for received in frames] == [body]
    assert connection.parses <= 4
    assert connection.parsed_bytes <= 2 * len(raw)
    assert connection.kept_bytes == 0


@interpreted
def test_a_body_with_lfs_is_not_parsed_at_each() -> None:
    raw = frame("SEND", {"destination": "a"}, b"line\n" * 10_000)
    connection = counting()
    assert len(feed(connection, (raw[at : at + 50] for at in range(0, len(raw), 50)))) == 1
    assert connection.parses <= 4


@interpreted
def test_a_head_bytewise_is_parsed_once_a_line() -> None:
    headers = {f"name{number}": "x" * 100 for number in range(200)} | {"destination": "a"}
    raw = frame("SEND", headers)
    connection = counting()
    assert len(feed(connection, bytewise(raw))) == 1
    assert connection.parses <= len(headers) + 5


def test_heads_with_crs_are_searched_no_farther_than_they_reach() -> None:
    """Many small frames in one read; the time is what a quadratic search would not have within the test's limit."""
    raw = b"ACK\nid:1\n\r\n\0" * 100_000
    connection = connected()
    assert len(feed(connection, [raw])) == 100_000


@interpreted
def test_a_flood_of_heartbeats_keeps_nothing() -> None:
    connection = counting()
    for flood in (b"\n" * 262_144, b"\r\n" * 131_072, b"\r" * 1000):
        assert feed(connection, [flood] * 4) == []
        assert connection.kept_bytes == 0
        assert connection.error is None
    assert connection.parses == 12
    assert len(feed(connection, [b"\n" * 1000 + frame("SEND", {"destination": "a"})])) == 1


@interpreted
def test_a_read_of_whole_frames_is_not_held() -> None:
    connection = counting()
    assert len(feed(connection, [frame("SEND", {"destination": "a"}, b"x" * 1000) + b"\n"])) == 1
    assert connection._buffer == b""


@interpreted
def test_nothing_is_kept_after_the_end() -> None:
    raw = frame("SEND", {"destination": "a"}, b"x" * 1000)[:-1]
    wrong = counting()
    assert feed(wrong, [b"NONSENSE\n\n\0", raw, raw]) == []
    assert wrong.kept_bytes == 0
    gone = counting()
    assert len(feed(gone, [frame("DISCONNECT") + raw, raw])) == 1
    assert gone.kept_bytes == 0
    ended = counting()
    assert feed(ended, [raw]) == []
    ended.receive_eof()
    assert ended.kept_bytes == 0
