"""Frames, OPEN and CLOSE, and what belongs to no session."""

from __future__ import annotations

import pytest

from protocols.amqp.composite import Composite
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.errors import (
    CONNECTION_FORCED,
    DECODE_ERROR,
    FRAME_SIZE_TOO_SMALL,
    FRAMING_ERROR,
    ILLEGAL_STATE,
    INVALID_FIELD,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    AmqpError,
    Scope,
    connection_error,
    format_value,
    link_error,
    session_error,
)
from protocols.amqp.events import Attached, Began, Ended, Event
from protocols.amqp.frames import AMQP_HEADER, HEARTBEAT, TYPE_SASL, frame
from protocols.amqp.limits import Limits
from protocols.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
    Transfer,
)
from protocols.amqp.state import ConnectionState
from tests.protocols.amqp.peer import (
    FIRST_ID,
    WINDOW,
    begun,
    drain,
    failed,
    failure,
    frames,
    of,
    only,
    open_server,
    opened,
    receive,
    receiving_server,
    sending_server,
    server_with_session,
)
from tests.support.wire import check_codec, check_malformed

BEGIN = Begin(None, FIRST_ID, WINDOW, WINDOW)
ATTACH = Attach("link", 0, False, source=Source("a"), target=Target("b"), initial_delivery_count=0)


def waiting() -> AmqpConnection:
    """A server that waits for OPEN."""
    codec = AmqpConnection(container_id="server")
    receive(codec, AMQP_HEADER)
    codec.data_to_send()
    return codec


def closing(codec: AmqpConnection) -> bool:
    """Whether it is about to close; a function, since it changes between two looks."""
    return codec.close_expected


def state(codec: AmqpConnection) -> ConnectionState:
    """Where it is."""
    return codec.state


def show(event: Event) -> object:
    """An event as a value: what the performative says, or what else it tells."""
    if isinstance(event, Composite):
        return event
    for name in ("begin", "attach", "payloads", "contexts", "closed", "error"):
        if hasattr(event, name):
            return type(event).__name__, getattr(event, name)
    return type(event).__name__


def sent_by(codec: AmqpConnection) -> list[Event]:
    """What a server says, as a client reads it that has begun, and attached, what the server answers."""
    pair = opened()
    mine = pair.client.new_session()
    mine.send_begin()
    mine.new_receiver("link").send_attach()
    pair.client.data_to_send()
    return receive(pair.client, codec.data_to_send())


# -- each performative, however it arrives -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "raw", "expected"),
    [
        (waiting, frames(Open("c", "host", 1000, 5, 10)), [Open("c", "host", 1000, 5, 10)]),
        (open_server, frames(BEGIN, channel=7), [("Began", BEGIN)]),
        (open_server, frames(Close(Error("amqp:internal-error"))), [Close(Error("amqp:internal-error"))]),
        (lambda: server_with_session()[0], frames(End(Error("x"))), [("Ended", Error("x"))]),
        (lambda: server_with_session()[0], frames(ATTACH), [("Attached", ATTACH)]),
        (lambda: server_with_session()[0], frames(Flow(0, 5, 0, 5)), []),
        (lambda: sending_server()[0], frames(Flow(0, 5, 0, 5, 0, 0, 7)), ["Credit"]),
        (lambda: receiving_server()[0], frames(Flow(0, 5, 0, 5, 0, 0, 7)), ["Available"]),
        (lambda: receiving_server()[0], frames(Detach(0, True)), [("Detached", True)]),
        (lambda: receiving_server()[0], frame(0, Transfer(0, FIRST_ID, b"t", 0).encode() + b"payload"),
         [("Transfers", [b"payload"])]),
        (lambda: receiving_server()[0], frames(Transfer(0, FIRST_ID, b"t", 0)), [("Transfers", [b""])]),
        (lambda: receiving_server()[0], frame(0, Transfer(0, FIRST_ID, b"t", 0, aborted=True).encode() + b"payload"),
         ["Aborted"]),
        (lambda: delivered(3), frames(Disposition(True, 1, 2, True, Accepted())), [("Dispositions", [1, 2])]),
        (open_server, HEARTBEAT, []),
    ],
)  # fmt: skip
def test_however_it_arrives(make: object, raw: bytes, expected: list[object]) -> None:
    assert callable(make)
    check_codec(make, raw, expected, show=show, trailing=b"\0\0\0\x10\2")


def delivered(count: int) -> AmqpConnection:
    """A server that has sent some messages, which stand for their numbers."""
    codec, link = sending_server()
    receive(codec, frames(Flow(0, WINDOW, 0, WINDOW, 0, 0, 10)))
    link.send([b"x"] * count, list(range(count)))
    codec.data_to_send()
    return codec


def test_extended_headers_are_skipped() -> None:
    body = BEGIN.encode()
    raw = (16 + len(body)).to_bytes(4) + b"\x04\x00\x00\x03" + b"extended" + body
    check_codec(open_server, raw, [("Began", BEGIN)], show=show)


def test_many_frames_at_once() -> None:
    raw = AMQP_HEADER + frames(Open("c"))
    rest = frames(BEGIN, ATTACH, Flow(0, 5, FIRST_ID, 5), Detach(0, True), End(), Close())
    codec = AmqpConnection(container_id="server")
    assert [show(event) for event in receive(codec, raw + rest)] == ["Connected", Open("c")]
    codec.send_open()
    names = [type(event).__name__ for event in drain(codec)]
    assert names == ["Began", "Attached", "Detached", "Ended", "Close"]
    assert failure(codec) is None


# -- malformed ---------------------------------------------------------------------------------------------------------

MALFORMED = [
    (b"\0\0\0\x07\x02\x00\0\0", FRAMING_ERROR, "A frame has at least 8 bytes, not 7."),
    (b"\0\x02\0\x01\x02\x00\0\0", FRAMING_ERROR, "A frame may have 131072 bytes, this one has 131073."),
    (b"\xff\xff\xff\xff\x02\x00\0\0", FRAMING_ERROR, "A frame may have 131072 bytes, this one has 4294967295."),
    (b"\0\0\0\x10\x01\x00\0\0", FRAMING_ERROR, "The data offset of a frame of 16 bytes cannot be 1."),
    (b"\0\0\0\x10\x05\x00\0\0", FRAMING_ERROR, "The data offset of a frame of 16 bytes cannot be 5."),
    (b"\0\0\0\x10\x02\x02\0\0", FRAMING_ERROR, "Expected an AMQP frame here, not a frame of type 2."),
    (frame(0, SaslInit("X").encode(), TYPE_SASL), FRAMING_ERROR, "Expected an AMQP frame here, not a SASL "
     "frame."),
    (frame(0, b"\x40"), DECODE_ERROR, "byte 8: a value that is not known here: without a descriptor"),
    (frame(0, b"\0\x53\x99\x45"), DECODE_ERROR, "byte 8: a value that is not known here: 0x99"),
    (frame(0, b"\0\x53\x10\x40"), DECODE_ERROR, "byte 8: open is a list of fields, not of type null"),
    (frame(0, BEGIN.encode() + b"x"), DECODE_ERROR, "byte 30: 1 bytes after begin"),
    (frames(Accepted()), NOT_ALLOWED, "accepted is no body of a frame."),
    (frames(Open("again")), ILLEGAL_STATE, "open is not expected here: opened."),
    (frames(BEGIN, channel=1024), FRAMING_ERROR, "begin: channels go up to 1023, 1024 is beyond."),
    (frames(Begin(5, 0, 1, 1)), NOT_ALLOWED, "begin: no session was begun on channel 5."),
    (frames(End()), NOT_ALLOWED, "end: no session has begun on channel 0."),
    (frames(ATTACH, channel=3), NOT_ALLOWED, "attach: no session has begun on channel 3."),
    (frames(Flow(0, 1, 0, 1), channel=3), NOT_ALLOWED, "flow: no session has begun on channel 3."),
    (frames(Transfer(0, 0, b"t", 0)), NOT_ALLOWED, "transfer: no session has begun on channel 0."),
    (frames(Disposition(True, 0)), NOT_ALLOWED, "disposition: no session has begun on channel 0."),
    (frames(Detach(0)), NOT_ALLOWED, "detach: no session has begun on channel 0."),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "condition", "text"), MALFORMED, ids=[row[2] for row in MALFORMED])
def test_malformed(raw: bytes, condition: str, text: str) -> None:
    codec = open_server()
    assert receive(codec, raw) == []
    error = failed(codec)
    assert (error.condition, error.description, error.scope) == (condition, text, Scope.CONNECTION)
    codec.send_close(error)
    assert sent_by(codec) == [Close(Error(condition, text))]
    assert codec.state is ConnectionState.DISCARDING
    assert codec.close_expected
    check_malformed(open_server, raw, AmqpError)


def test_frames_before_an_error_are_returned() -> None:
    check_malformed(open_server, frames(BEGIN, ATTACH) + frames(Accepted()), AmqpError, before=2)


def test_eof_in_a_frame() -> None:
    codec = open_server()
    codec.receive_eof()
    assert failure(codec) is None
    codec = open_server()
    receive(codec, frames(BEGIN)[:-1])
    codec.receive_eof()
    assert failed(codec).description == "The connection ended in the middle of a frame."


def test_eof_before_the_events_are_asked_for() -> None:
    codec = open_server()
    codec.receive_data(frames(BEGIN) + b"\0")
    codec.receive_eof()
    assert failure(codec) is None
    assert len(drain(codec)) == 1
    assert failure(codec) is not None


# -- open --------------------------------------------------------------------------------------------------------------


def test_open() -> None:
    pair = opened(Limits(frame_bytes_max=1000, channel_max=7))
    assert pair.client.peer == Open("server", None, 1000, 7)
    assert pair.server.peer == Open("client", None, 131072, 1023)
    assert pair.client.state is pair.server.state is ConnectionState.OPENED


def test_all_of_open() -> None:
    pair = opened()
    codec = waiting()
    receive(codec, frames(Open("c")))
    codec.send_open(
        hostname="h", idle_time_out=5000, offered_capabilities=("a",), desired_capabilities=("b",), properties={"p": 1}
    )
    expected = Open("server", "h", 131072, 1023, 5000, (), (), ("a",), ("b",), {"p": 1})
    asking = AmqpConnection(container_id="c", server=False)
    receive(asking, AMQP_HEADER)
    asking.send_open()
    assert receive(asking, codec.data_to_send()) == [expected]
    assert codec.receive_timeout == 10_000
    assert asking.send_interval == 5000
    assert pair.client.send_interval == pair.client.receive_timeout == 0


def test_nothing_is_read_before_open_is_answered() -> None:
    codec = waiting()
    raw = frames(Open("c"), BEGIN)
    assert receive(codec, raw[:-3]) == [Open("c")]
    assert receive(codec, raw[-3:]) == []
    codec.send_open()
    assert len(of(drain(codec), Began)) == 1
    refusing = waiting()
    receive(refusing, raw)
    refusing.send_close(connection_error(CONNECTION_FORCED, "Not you."))
    assert receive_as_client(refusing) == [
        Open("server", None, 131072, 1023),
        Close(Error(CONNECTION_FORCED, "Not you.")),
    ]
    assert drain(refusing) == []


def receive_as_client(codec: AmqpConnection) -> list[Event]:
    """What a server that has exchanged headers says to a client that waits for OPEN."""
    asking = AmqpConnection(container_id="c", server=False)
    receive(asking, AMQP_HEADER)
    asking.send_open()
    return receive(asking, codec.data_to_send())


@pytest.mark.parametrize("nbytes", [511, 512])
def test_the_least_frame_size(nbytes: int) -> None:
    codec = waiting()
    receive(codec, frames(Open("c", None, nbytes)))
    error = failure(codec)
    assert (error is None) == (nbytes == 512)
    if error is not None:
        assert (error.condition, error.description) == (INVALID_FIELD, "open: max-frame-size is at least 512, not 511.")


def test_open_comes_on_channel_0_and_first() -> None:
    for raw, condition in (
        (frames(Open("c"), channel=1), FRAMING_ERROR),
        (frames(BEGIN), ILLEGAL_STATE),
        (frames(Close()), ILLEGAL_STATE),
        (frames(End()), NOT_ALLOWED),
        (HEARTBEAT, DECODE_ERROR),
    ):
        codec = waiting()
        assert receive(codec, raw) == []
        error = failed(codec)
        assert error.condition == condition
        codec.send_close(error)
        assert [type(event) for event in receive_as_client(codec)] == [Open, Close]


@pytest.mark.parametrize("nbytes", [8192, 8193])
def test_the_size_of_open(nbytes: int) -> None:
    codec = waiting()
    raw = frames(Open("c", "h" * 1000))
    raw = frames(Open("c", "h" * (1000 + nbytes - len(raw))))
    assert len(raw) == nbytes
    assert len(receive(codec, raw)) == (nbytes == 8192)
    assert (failure(codec) is None) == (nbytes == 8192)


@pytest.mark.parametrize("nbytes", [600, 601])
def test_the_size_of_frames(nbytes: int) -> None:
    codec = open_server(Limits(frame_bytes_max=600))
    raw = frames(Begin(None, 0, 1, 1, properties={"x": "y" * 400}))
    raw = frames(Begin(None, 0, 1, 1, properties={"x": "y" * (400 + nbytes - len(raw))}))
    assert len(raw) == nbytes
    assert len(receive(codec, raw)) == (nbytes == 600)
    assert (failure(codec) is None) == (nbytes == 600)


@pytest.mark.parametrize("count", [4, 5])
def test_values_of_a_frame(count: int) -> None:
    codec = open_server(Limits(performative_values_max=11 + 2 * 4))  # itself, its descriptor and list, eight fields
    raw = frames(Begin(None, 0, 1, 1, properties={str(at): at for at in range(count)}))
    assert len(receive(codec, raw)) == (count == 4)
    assert (failure(codec) is None) == (count == 4)


def test_frames_that_the_peer_does_not_take() -> None:
    codec = waiting()
    receive(codec, frames(Open("c", None, 512), BEGIN))
    codec.send_open()
    session = only(drain(codec), Began).session
    session.send_begin()
    with pytest.raises(AmqpError) as caught:
        session.new_sender("l").send_attach(source=Source("x" * 500))
    assert caught.value.condition == FRAME_SIZE_TOO_SMALL
    assert caught.value.description == "attach has 548 bytes, the peer takes 512."


# -- close -------------------------------------------------------------------------------------------------------------


def test_close() -> None:
    pair = opened()
    pair.client.send_close()
    assert closing(pair.client)
    assert pair.to_server() == [Close()]
    assert not closing(pair.server)
    assert receive(pair.server, b"whatever") == []
    pair.server.send_close()
    assert closing(pair.server)
    assert pair.to_client() == [Close()]
    assert pair.client.state is pair.server.state is ConnectionState.END
    pair.server.send_close()
    assert pair.server.data_to_send() == b""


def test_simultaneous_close() -> None:
    pair = opened()
    pair.client.send_close()
    pair.server.send_close(connection_error(CONNECTION_FORCED, "Enough."))
    assert pair.to_client() == [Close(Error(CONNECTION_FORCED, "Enough."))]
    assert pair.client.state is ConnectionState.END
    assert pair.to_server() == []
    assert pair.server.state is ConnectionState.DISCARDING


def test_frames_after_our_close_are_discarded() -> None:
    pair = opened()
    session, _ = begun(pair)
    session.new_sender("l").send_attach()
    pair.client.new_session().send_begin()
    pair.server.send_close()
    assert pair.to_server() == []
    pair.client.send_close()
    assert pair.to_server() == [Close()]


def test_an_error_before_anything_was_said() -> None:
    codec = AmqpConnection(container_id="s")
    codec.send_close(connection_error(RESOURCE_LIMIT_EXCEEDED, "Too many."))
    assert codec.close_expected
    assert codec.data_to_send() == b""
    assert receive(codec, AMQP_HEADER) == []


def test_close_with_an_error_of_the_sessions_layer() -> None:
    codec = open_server()
    codec.send_close(Error("amqp:connection:redirect", "There.", {"network-host": "b"}))
    assert sent_by(codec) == [Close(Error("amqp:connection:redirect", "There.", {"network-host": "b"}))]


# -- heart-beats and pipelining ----------------------------------------------------------------------------------------


def test_heartbeats() -> None:
    codec = waiting()
    codec.send_heartbeat()
    assert codec.data_to_send() == b""
    receive(codec, frames(Open("c")))
    codec.send_open()
    codec.data_to_send()
    codec.send_heartbeat()
    assert codec.data_to_send() == HEARTBEAT
    assert receive(codec, HEARTBEAT * 100 + b"\0\0\0\x0c\3\0\0\5ext.") == []
    codec.send_close()
    codec.data_to_send()
    codec.send_heartbeat()
    assert codec.data_to_send() == b""


def test_a_client_that_does_not_wait() -> None:
    pair = opened()
    client = AmqpConnection(container_id="hasty", server=False)
    client.send_open()
    session = client.new_session()
    session.send_begin()
    session.new_sender("l").send_attach(target=Target("q"))
    client.send_close()
    assert state(client) is ConnectionState.OC_PIPE
    server = AmqpConnection(container_id="server")
    events = receive(server, client.data_to_send())
    assert [type(event).__name__ for event in events] == ["Connected", "Open"]
    server.send_open()
    assert [type(event) for event in drain(server)] == [Began, Attached, Close]
    server.send_close()
    assert [type(event).__name__ for event in receive(client, server.data_to_send())] == ["Connected", "Open", "Close"]
    assert state(client) is ConnectionState.END
    assert pair.server.state is ConnectionState.OPENED


# -- channels ----------------------------------------------------------------------------------------------------------


def test_channels_are_the_lowest_free_ones() -> None:
    pair = opened()
    first, second = pair.client.new_session(), pair.client.new_session()
    assert (first.channel, second.channel) == (0, 1)
    for session in first, second:
        session.send_begin()
    theirs = [event.session for event in of(pair.to_server(), Began)]
    for session in theirs:
        session.send_begin()
    pair.to_client()
    first.send_end()
    assert pair.client.new_session().channel == 0
    ended = only(pair.to_server(), Ended)
    assert ended.session is theirs[0]
    ended.session.send_end()
    assert pair.server.new_session().channel == 0
    assert pair.server.sessions == [theirs[1]]


def test_the_peers_channel_max() -> None:
    codec = waiting()
    receive(codec, frames(Open("c", None, 512, 1), BEGIN, BEGIN, channel=0))
    codec = waiting()
    receive(codec, frames(Open("c", None, 512, 1)) + b"".join([frames(BEGIN, channel=n) for n in range(3)]))
    codec.send_open()
    assert len(drain(codec)) == 2
    assert failed(codec).description == "begin: the peer takes channels up to 1."


def test_a_channel_has_one_session() -> None:
    error = check_malformed(lambda: server_with_session()[0], frames(BEGIN), AmqpError)
    assert error.description == "begin: the session on channel 0 has not ended."


# -- errors ------------------------------------------------------------------------------------------------------------


def test_errors_know_what_they_end() -> None:
    assert [make("a", "b").scope for make in (connection_error, session_error, link_error)] == list(Scope)
    assert str(link_error("amqp:not-found", "There is none.")) == "amqp:not-found: There is none."


def test_texts_of_the_peer_are_shown_shortened() -> None:
    assert format_value("a\nb\x00") == "'a\\nb\\x00'"
    assert format_value(b"a\xff") == "'a\\xff'"
    assert format_value("x" * 81) == f"'{'x' * 80}...'"
