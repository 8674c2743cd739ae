"""Conversations of a connection that is told anything at all: what the property tests and the fuzzers share."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from protocols.amqp.composite import Composite
from protocols.amqp.connection import AmqpConnection
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
    Posting,
    SessionFailed,
    Transfers,
    WindowOpened,
    Withdrawn,
)
from protocols.amqp.frames import AMQP_HEADER, SASL_HEADER, TYPE_SASL, frame
from protocols.amqp.limits import Limits
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
            link.send_attach(source=Source("a"), target=Target("b"))
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
            assert isinstance(
                event, Connected | Aborted | Available | Dispositions | Posting | WindowOpened | Withdrawn
            )


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


def server() -> AmqpConnection:
    """A server with low limits."""
    return AmqpConnection(LIMITS, container_id="s", mechanisms=("PLAIN",), sasl_required=False)


WRONG: Final = [b"\0", b"\xff", b"\x53", b"\xc0\x01\x00", b"\x40", b"\xd0"]
