"""Frames in pieces: the library reads the same messages, whatever came together, and never has to keep a long one."""

from __future__ import annotations

import random

import pytest
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from broker.sessions.websocket.pieces import FRAMES_MAX, WHOLE_BYTES_MAX, Pieces

#: Bytes of payloads at which a header changes its form, or what is done with a frame.
SIZES = (0, 1, 3, 4, 5, 125, 126, WHOLE_BYTES_MAX, WHOLE_BYTES_MAX + 1, WHOLE_BYTES_MAX + 6, 65_535, 65_536, 70_001)


class Reader:
    """A library that gets what `Pieces` hands on; `kept_bytes` is the most that it had to keep."""

    def __init__(self) -> None:
        self.ws = ServerProtocol(state=OPEN, max_size=None)
        self.messages: list[tuple[Opcode, bytes]] = []
        self.pongs = 0
        self.kept_bytes = 0
        self._pieces = Pieces()
        self._message: tuple[Opcode, bytearray] | None = None

    def read(self, data: bytes) -> None:
        """Bytes as they come from a socket."""
        self.ws.receive_data(self._pieces.cut(data))
        self.kept_bytes = max(self.kept_bytes, len(self.ws.reader.buffer))
        for frame in self.ws.events_received():
            assert isinstance(frame, Frame)
            if frame.opcode is Opcode.PING:
                self.pongs += 1
                continue
            if self._message is None:
                self._message = (frame.opcode, bytearray())
            self._message[1].extend(frame.data)
            if frame.fin:
                self.messages.append((self._message[0], bytes(self._message[1])))
                self._message = None


def sent(opcode: Opcode, data: bytes, *, fin: bool = True) -> bytes:
    """A frame as a client sends it."""
    return Frame(opcode, data, fin).serialize(mask=True)


def body(nbytes: int) -> bytes:
    """Bytes of which each is known by its place."""
    return (b"0123456789abcdefghijklmnopqrstuvwxyz!" * (nbytes // 37 + 1))[:nbytes]


def test_many_frames_are_passed_on_some_at_a_time() -> None:
    pieces, ping = Pieces(), sent(Opcode.PING, b"")
    raw = sent(Opcode.BINARY, b"begun")
    assert (pieces.cut(raw[:8]), pieces.rest) == (raw[:8], b"")
    raw = raw[8:] + ping * 2 * FRAMES_MAX + ping[:1]
    part = pieces.cut(raw)
    assert len(part) == len(raw) - len(pieces.rest) == 3 + FRAMES_MAX * len(ping)
    assert part + pieces.rest == raw
    part = pieces.cut(pieces.rest)
    assert (len(part), pieces.rest) == (FRAMES_MAX * len(ping), ping[:1])
    assert (pieces.cut(pieces.rest), pieces.rest) == (b"", b"")
    assert pieces.cut(ping[1:]) == ping


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("at_a_time", [1, 3, 7, 1_000, 65_536, 1 << 20])
def test_a_message_is_the_same_however_it_comes(nbytes: int, at_a_time: int) -> None:
    raw = sent(Opcode.TEXT, body(nbytes)) + sent(Opcode.PING, b"?") + sent(Opcode.BINARY, b"end")
    if len(raw) // at_a_time > 10_000:
        at_a_time = 11
    reader = Reader()
    for at in range(0, len(raw), at_a_time):
        reader.read(raw[at : at + at_a_time])
    assert reader.messages == [(Opcode.TEXT, body(nbytes)), (Opcode.BINARY, b"end")]
    assert reader.pongs == 1
    assert reader.kept_bytes <= WHOLE_BYTES_MAX + 14


def test_messages_that_were_fragmented_before() -> None:
    parts = [body(5_000), body(1), b"", body(100_000), body(3_000)]
    raw = b"".join(
        sent(Opcode.CONT if at else Opcode.BINARY, part, fin=at == len(parts) - 1) + sent(Opcode.PING, b"")
        for at, part in enumerate(parts)
    )
    reader = Reader()
    for at in range(0, len(raw), 777):
        reader.read(raw[at : at + 777])
    assert reader.messages == [(Opcode.BINARY, b"".join(parts))]
    assert reader.pongs == len(parts)


def test_any_frames_cut_anywhere() -> None:
    for seed in range(50):
        chance = random.Random(seed)
        bodies = [body(chance.choice(SIZES)) for _ in range(20)]
        raw = b"".join(sent(Opcode.BINARY, each) for each in bodies)
        reader = Reader()
        at = 0
        while at < len(raw):
            stop = at + chance.choice((1, 2, 5, 14, 100, 4_096, 100_000))
            reader.read(raw[at:stop])
            at = stop
        assert [data for _, data in reader.messages] == bodies, f"seed {seed}"


def test_whole_or_short_frames_stay_as_they_are() -> None:
    """No copy, nothing to pay, for what nearly all clients send."""
    pieces = Pieces()
    whole = sent(Opcode.BINARY, body(100_000)) + sent(Opcode.BINARY, b"x")
    assert pieces.cut(whole) is whole
    short = sent(Opcode.BINARY, body(WHOLE_BYTES_MAX))
    assert pieces.cut(short[:-1]) + pieces.cut(short[-1:]) == short


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"\x89\xff" + (1 << 40).to_bytes(8, "big"), "control frame too long"),
        (b"\x88\xfe\x10\x00", "control frame too long"),
        (b"\x83\xff" + (1 << 40).to_bytes(8, "big"), "invalid opcode"),
        (b"\xc2\xff" + (1 << 62).to_bytes(8, "big"), "reserved bits must be 0"),
        (b"\x82\x7f" + (1 << 40).to_bytes(8, "big"), "incorrect masking"),
    ],
    ids=["ping", "close", "opcode", "compressed", "unmasked"],
)
def test_wrong_frames_are_found_out_by_their_beginning(first: bytes, said: str) -> None:
    reader = Reader()
    reader.read(first + b"\0\0\0\0" + bytes(200))
    assert reader.ws.close_sent is not None
    assert (reader.ws.close_sent.code, reader.ws.close_sent.reason) == (CloseCode.PROTOCOL_ERROR, said)


def test_a_frame_of_any_length_is_never_kept() -> None:
    reader = Reader()
    reader.read(b"\x82\xff" + (1 << 40).to_bytes(8, "big") + b"\0\0\0\0")
    for _ in range(100):
        reader.read(bytes(65_537))
        assert reader.kept_bytes < 20
