"""Any bytes at all give events or an AmqpError, never anything else, and never keep more than the limits."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.amqp.composite import Composite, decode_composite
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.decode import Decoder, decode
from protocols.amqp.encode import encode
from protocols.amqp.errors import AmqpError, DecodeError, FrameTooLarge
from protocols.amqp.events import (
    Aborted,
    Attached,
    Available,
    Began,
    Connected,
    Credit,
    Detached,
    Dispositions,
    Ended,
    Event,
    LinkFailed,
    SessionFailed,
    Transfers,
    WindowOpened,
)
from protocols.amqp.frames import AMQP_HEADER, SASL_HEADER, TYPE_SASL, frame
from protocols.amqp.limits import Limits
from protocols.amqp.message import Message
from protocols.amqp.performatives import (
    RECEIVER,
    Accepted,
    Attach,
    Begin,
    Close,
    DeliveryState,
    Detach,
    Disposition,
    End,
    Flow,
    Modified,
    Open,
    Released,
    SaslCode,
    SaslInit,
    SaslOutcome,
    SaslResponse,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from protocols.amqp.receiver import Receiver
from protocols.amqp.sender import Sender
from protocols.amqp.serial import ranges
from tests.protocols.amqp.composites import CLASSES, sample
from tests.protocols.amqp.values import values
from tests.support.interpreted import interpreted
from tests.support.wire import bytewise

LIMITS: Final = Limits(
    frame_bytes_max=600,
    handshake_bytes_max=300,
    channel_max=2,
    handle_max=3,
    links_max=4,
    incoming_window=6,
    message_bytes_max=700,
    partial_bytes_max=900,
    unsettled_max=8,
    depth_max=6,
    values_max=60,
    performative_values_max=60,
)
CREDIT: Final = 5
ID: Final = 0xFFFF_FFFD  # where the peer's ids begin

# -- a session layer that answers everything ---------------------------------------------------------------------------


def answer(codec: AmqpConnection, event: Event) -> None:
    """What a session layer does."""
    match event:
        case SaslInit() | SaslResponse():
            codec.send_sasl(SaslOutcome(SaslCode.OK))
        case Open():
            codec.send_open()
        case Began(session):
            session.send_begin()
        case Attached(link):
            link.send_attach(source=Source("a"), target=Target("b"), unsettled={b"t0": None})
            if isinstance(link, Receiver):
                link.send_credit(CREDIT)
        case Transfers(link=link, ids=ids, settled=settled):
            if not settled:
                for first, last in ranges(ids):
                    link.session.send_disposition(RECEIVER, first, last, state=Accepted())
            if link.credit < 2:
                link.send_credit(CREDIT)
        case Credit(link):
            room = min(link.room, 3)
            if room:
                link.send([b"x" * 500] * room, ["message"] * room)
            if link.drain:
                link.send_drained()
        case Detached(link):
            link.send_detach()
        case LinkFailed(link, error):
            link.send_detach(error=error)
        case Ended(session):
            session.send_end()
        case SessionFailed(session, error):
            session.send_end(error)
        case Close():
            codec.send_close()
        case _:
            assert isinstance(event, Connected | Aborted | Available | Dispositions | WindowOpened)


def bounded(codec: AmqpConnection, read_bytes: int) -> None:
    """What is kept is below the limits and one read."""
    assert codec._input.kept <= LIMITS.frame_bytes_max + read_bytes
    assert codec._transport.partial_bytes <= LIMITS.partial_bytes_max
    assert codec._transport.links <= LIMITS.links_max
    assert len(codec.sessions) <= LIMITS.channel_max + 1
    for session in codec.sessions:
        assert session.incoming.count <= LIMITS.unsettled_max
        assert len(session.waiting) <= 6
        for link in session.links:
            assert isinstance(link, Sender) or link.credit <= CREDIT


def converse(codec: AmqpConnection, pieces: list[bytes]) -> list[object]:
    """Read some pieces and answer; what was told, and what was wrong."""
    told: list[object] = []
    for piece in pieces:
        codec.receive_data(piece)
        while events := codec.events():
            for event in events:
                told += plain(event)
                answer(codec, event)
        bounded(codec, len(piece))
    codec.receive_eof()
    assert codec.events() == []
    error = codec.error
    if error is not None:
        assert type(error) in (AmqpError, DecodeError, FrameTooLarge)
        assert error.description.isprintable()
        codec.send_close(error)
        assert codec.close_expected
        told.append(error.condition)
    codec.data_to_send()
    return told


def plain(event: Event) -> list[object]:
    """An event as values, runs as their parts."""
    if isinstance(event, Transfers):
        name = event.link.name
        return [(name, *part) for part in zip(event.ids, event.tags, event.payloads, strict=True)]
    if isinstance(event, Dispositions):
        return [(at, event.state) for at in range(event.first, event.first + len(event.contexts))]
    if isinstance(event, SessionFailed | LinkFailed):
        return [(type(event).__name__, event.error.condition, event.error.description)]
    return [type(event).__name__]


def by_link(told: list[object]) -> list[object]:
    """What was told, with deliveries that come one after the other in the order of their links, which means nothing."""
    ordered: list[object] = []
    deliveries: list[tuple[object, ...]] = []
    for event in [*told, None]:
        if isinstance(event, tuple) and len(event) == 4:
            deliveries.append(event)
            continue
        deliveries.sort(key=lambda delivery: str(delivery[0]))
        ordered += [*deliveries, event]
        deliveries = []
    return ordered


# -- frames in any order -----------------------------------------------------------------------------------------------


def some_state(random: Random) -> Any:
    """A delivery state."""
    return random.choice([None, Accepted(), Released(), Modified(True), TransactionalState(b"t", Accepted())])


KINDS: Final = [Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close, Open]
WEIGHTS: Final = [1, 4, 10, 60, 10, 2, 1, 1, 1]


def some_frame(random: Random, sent: list[int]) -> Composite:
    """A frame that may make sense; `sent` counts the deliveries so far."""
    handle = random.choices([0, 1, 2, 3, 4], [60, 20, 3, 1, 1])[0]
    number = random.choice([0, 1, 2, 5, ID, 0xFFFF_FFFF])
    kind = random.choices(KINDS, WEIGHTS)[0]
    flags = [random.random() < 0.2 for _ in range(4)]
    if kind is Begin:
        return Begin(None, ID, random.choice([0, 3, 2048]), 5)
    if kind is Attach:
        counted = None if random.random() < 0.1 else number
        unsettled: dict[bytes, DeliveryState | None] | None = {b"t0": Accepted()} if flags[0] else None
        role, incomplete = random.random() < 0.5, random.random() < 0.1
        name = random.choice("ab")
        return Attach(name, handle, role, 2, 0, Source("a"), Target("b"), unsettled, incomplete, counted)
    if kind is Flow:
        which = handle if random.random() < 0.8 else None
        return Flow(number if flags[0] else ID, random.choice([0, 3, 99]), ID, 5, which, number, random.choice([0, 9]),
                    3, flags[1], flags[2])  # fmt: skip
    if kind is Transfer:
        following = ID + sent[0] & 0xFFFF_FFFF
        if random.random() < 0.9:
            sent[0] += 1
        else:
            following = number
        return Transfer(handle, following if random.random() < 0.9 else None, b"t%d" % (sent[0] % 20), 0, flags[0],
                        random.random() < 0.1, None, some_state(random) if flags[1] else None, flags[2] and flags[3],
                        random.random() < 0.05)  # fmt: skip
    if kind is Disposition:
        last = random.choice([None, number, 3])
        return Disposition(random.random() < 0.9, number, last, not flags[0], some_state(random))
    if kind is Detach:
        return Detach(handle, flags[0])
    return End() if kind is End else Close() if kind is Close else Open("c")


def stream(random: Random, count: int) -> list[bytes]:
    """The frames of a client that has not read the specification."""
    start = [SASL_HEADER, frame(0, SaslInit("PLAIN", b"x").encode(), TYPE_SASL)] if random.random() < 0.5 else []
    sent = [0]
    pieces = [*start, AMQP_HEADER, frame(0, Open("c").encode()), frame(0, Begin(None, ID, 2048, 5).encode())]
    pieces.append(frame(0, Attach("l", 0, False, source=Source("a"), initial_delivery_count=0).encode()))
    pieces.append(frame(0, Attach("m", 1, True, source=Source("a")).encode()))
    for _ in range(count):
        body = some_frame(random, sent)
        payload = random.randbytes(random.choice([0, 5, 50, 300])) if isinstance(body, Transfer) else b""
        channel = 0 if random.random() < 0.95 else random.choice([1, 2, 3])
        pieces.append(frame(channel, body.encode() + payload))
    return pieces


class Careful(AmqpConnection):
    """Reads every frame by itself, never as part of a run."""

    def _run(self, buffer: bytes, at: int, events: list[Event]) -> int:
        return at


def server() -> AmqpConnection:
    """A server with low limits."""
    return AmqpConnection(LIMITS, container_id="s", mechanisms=("PLAIN",), sasl_required=False)


@interpreted
@pytest.mark.parametrize("seed", range(4))
def test_frames_in_any_order(seed: int) -> None:
    random = Random(seed)
    told: set[str] = set()
    for _ in range(150):
        pieces = stream(random, 30)
        whole = converse(server(), pieces)
        split = converse(server(), [byte for piece in pieces for byte in bytewise(piece)])
        assert split == whole
        for reads in pieces, [b"".join(pieces)]:
            careful = Careful(LIMITS, container_id="s", mechanisms=("PLAIN",), sasl_required=False)
            assert by_link(converse(careful, reads)) == by_link(converse(server(), reads))
        told |= {str(event[-2]) if isinstance(event, tuple) else str(event) for event in whole}
        told |= {str(event[0]) for event in whole if isinstance(event, tuple)}
    assert {"Began", "Attached", "Credit", "SessionFailed", "LinkFailed", "Detached", "Ended", "Aborted"} <= told
    assert told & {"b't1'", "b't2'"}


WRONG: Final = [b"\0", b"\xff", b"\x53", b"\xc0\x01\x00", b"\x40", b"\xd0"]
BYTES: Final = b"\x00\x40\x41\x43\x45\x53\x70\x80\x98\xa0\xa3\xb1\xc0\xc1\xd0\xe0\xff"


@pytest.mark.parametrize("seed", range(4))
def test_good_frames_with_a_few_wrong_bytes(seed: int) -> None:
    random = Random(f"wrong {seed}")
    wrong = 0
    for _ in range(150):
        raw = bytearray(b"".join(stream(random, 10)))
        for _ in range(random.randint(1, 4)):
            at = random.randrange(8, len(raw))
            raw[at : at + random.randint(0, 2)] = random.choice(WRONG)
        told = converse(server(), [bytes(raw)])
        wrong += isinstance(told[-1], str) and told[-1].startswith("amqp:")
        converse(server(), [bytes(raw[at : at + 64]) for at in range(0, len(raw), 64)])
    assert wrong > 50


@pytest.mark.parametrize("cls", CLASSES)
def test_any_byte_of_a_composite_changed(cls: type[Composite]) -> None:
    raw = sample(cls).encode()
    for at in range(len(raw)):
        for byte in BYTES:
            changed = raw[:at] + bytes([byte]) + raw[at + 1 :]
            try:
                found, end = decode_composite(changed)
            except DecodeError as error:
                offset = error.offset
            else:
                offset = end
                assert decode_composite(found.encode())[0] == found or "nan" in repr(found)
            assert 0 <= offset <= len(changed)


# -- any bytes ---------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=200))
def test_any_bytes_as_a_value(raw: bytes) -> None:
    end = 0
    try:
        value = decode(raw)
        end = len(raw)
        assert decode(encode(value)) == value or "nan" in repr(value)
    except DecodeError as error:
        end = error.offset
    assert 0 <= end <= len(raw)
    decoder = Decoder(raw)
    try:
        decoder.skip()
    except DecodeError:
        return
    assert 0 < decoder.at <= len(raw)


@given(values, st.data())
def test_values_with_a_wrong_byte(value: object, data: st.DataObject) -> None:
    raw = bytearray(encode(value))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    offset = 0
    try:
        decode(bytes(raw))
    except DecodeError as error:
        offset = error.offset
    assert 0 <= offset <= len(raw)


QUESTIONS: Final[list[Callable[[Message], object]]] = [
    lambda message: message.header,
    lambda message: message.properties,
    lambda message: message.properties_count,
    lambda message: message.message_annotations,
    lambda message: message.application_properties,
    lambda message: message.body(),
    lambda message: message.footer,
    lambda message: message.forward(b""),
]


@given(st.binary(max_size=300))
def test_any_bytes_as_a_message(raw: bytes) -> None:
    prefix = b"\x00\x53" + bytes([0x70 + len(raw) % 9])
    for payload in raw, prefix + raw:
        message = Message(payload)
        for ask in QUESTIONS:
            offset = 0
            try:
                ask(message)
            except DecodeError as error:
                offset = error.offset
            assert 0 <= offset <= len(payload)


@given(st.binary(max_size=300), st.integers(0, 4))
def test_any_bytes_as_frames(raw: bytes, stage: int) -> None:
    begin = stream(Random(stage), 0)
    for cut in (begin[:stage], begin):
        converse(server(), [b"".join(cut), raw])
        body = b"".join(cut) + (8 + len(raw)).to_bytes(4) + b"\x02\x00\x00\x00" + raw
        converse(server(), [body])
        converse(AmqpConnection(LIMITS, container_id="c", server=False), [AMQP_HEADER, raw])


def test_zero_width_arrays_cost_nothing() -> None:
    """Four billion nulls in ten bytes (a bomb of old)."""
    for code in 0x40, 0x41, 0x42, 0x43, 0x44, 0x45:
        raw = b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff" + bytes([code])
        with pytest.raises(DecodeError, match="too many values in one"):
            decode(raw)
        told = converse(server(), [AMQP_HEADER + frame(0, b"\x00\x53\x10\xd0\x00\x00\x00\x0e\x00\x00\x00\x01" + raw)])
        assert told == ["Connected", "amqp:decode-error"]
