"""Any bytes at all give frames or a StompError, never anything else, and never keep more than the limits."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.stomp.connection import StompConnection
from protocols.stomp.errors import StompError
from protocols.stomp.frames import Frame
from protocols.stomp.limits import Limits
from tests.protocols.stomp.peer import VERSIONS, connected, show
from tests.support.stomp_client import frame
from tests.support.wire import feed

LIMITS = Limits(
    header_count_max=10, header_line_bytes_max=50, header_bytes_max=200, body_bytes_max=100, connect_bytes_max=200
)
READ_BYTES_MAX = 64

TOKENS = [
    b"\n",
    b"\n\n",
    b"\r\n",
    b"\r",
    b"\0",
    b":",
    b"\\",
    b"\\c",
    b"\\q",
    b"\xff",
    "ä".encode(),
    b"x" * 30,
    b"SEND\ndestination:a\n\n",
    b"SEND\r\ndestination:a\r\n\r\n",
    b"content-length:3\n",
    b"content-length:-1\n",
    b"abc\0",
    b"receipt:1\n",
    b"ACK\nid:1\nmessage-id:1\nsubscription:1\n\n\0",
    b"SUBSCRIBE\nid:1\ndestination:a\n\n\0",
    b"DISCONNECT\n\n\0",
    b"CONNECT\naccept-version:1.2\n\n\0",
]


def bounded(connection: StompConnection, read_bytes: int) -> None:
    """What is kept is below the limits and one read."""
    kept = len(connection._buffer) - connection._at + len(connection._pending)
    assert kept <= LIMITS.header_bytes_max + LIMITS.body_bytes_max + 4 + read_bytes


def converse(connection: StompConnection, pieces: list[bytes]) -> tuple[list[object], str | None]:
    """Read some pieces; the frames and the error's message."""
    frames: list[Frame] = []
    for piece in pieces:
        connection.receive_data(piece)
        while events := connection.events():
            frames += events
            if events[-1].command in ("CONNECT", "STOMP"):
                connection.send_connected("1.2", [])
                connection.data_to_send()
        bounded(connection, len(piece))
    connection.receive_eof()
    frames += connection.events()
    error = connection.error
    assert error is None or isinstance(error, StompError)
    if error is not None:
        assert error.detail.isprintable()
        connection.send_error(error)
        assert connection.data_to_send().startswith(b"ERROR\nmessage:")
    return [show(frame) for frame in frames], None if error is None else error.message


def begin(version: str | None) -> StompConnection:
    """A connection of a version, or one that has not begun."""
    return StompConnection(LIMITS) if version is None else connected(version, LIMITS)


def pieces_of(random: Random, raw: bytes) -> list[bytes]:
    """Reads of random sizes."""
    pieces = []
    at = 0
    while at < len(raw):
        size = random.randint(1, READ_BYTES_MAX)
        pieces.append(raw[at : at + size])
        at += size
    return pieces


@pytest.mark.parametrize("version", [None, *VERSIONS])
@pytest.mark.parametrize("seed", range(5))
def test_tokens_in_any_order(version: str | None, seed: int) -> None:
    random = Random(f"{version} {seed}")
    good = wrong = 0
    for _ in range(300):
        raw = b"".join(random.choices(TOKENS, k=random.randint(1, 30)))
        whole, error = converse(begin(version), [raw])
        split, other = converse(begin(version), pieces_of(random, raw))
        assert split == whole
        assert (other is None) == (error is None)
        good += len(whole)
        wrong += error is not None
    assert good > 10
    assert wrong > 10


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(5))
def test_good_frames_with_a_few_wrong_bytes(version: str, seed: int) -> None:
    random = Random(f"{version} {seed}")
    good = b"".join(
        [
            frame("SEND", {"destination": "/queue/a", "kind": "x"}, b"text", version),
            frame("SEND", {"destination": "/queue/a"}, b"b\0dy", version),
            frame("SUBSCRIBE", {"destination": "/queue/a", "id": "1"}, b"", version),
            frame("ACK", {"id": "1", "message-id": "1", "subscription": "1"}, b"", version),
        ]
    )
    assert len(feed(connected(version, LIMITS), [good])) == 4
    for _ in range(300):
        raw = bytearray(good)
        for _ in range(random.randint(1, 3)):
            at = random.randrange(len(raw))
            raw[at : at + random.randint(0, 2)] = random.choice(TOKENS)[:3]
        whole = converse(begin(version), [bytes(raw)])
        split = converse(begin(version), pieces_of(random, bytes(raw)))
        assert split[0] == whole[0]
        assert (split[1] is None) == (whole[1] is None)


@given(raw=st.binary(max_size=300), version=st.sampled_from(VERSIONS))
def test_any_bytes(raw: bytes, version: str) -> None:
    for connection in begin(None), begin(version):
        converse(connection, [raw[at : at + READ_BYTES_MAX] for at in range(0, len(raw), READ_BYTES_MAX)])
