"""Protocol headers and the order of a SASL exchange."""

from __future__ import annotations

from itertools import product

import pytest

from protocols.amqp.composite import Composite
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.errors import (
    DECODE_ERROR,
    FRAMING_ERROR,
    ILLEGAL_STATE,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
    AmqpError,
)
from protocols.amqp.events import Connected, Event
from protocols.amqp.frames import AMQP_HEADER, SASL_HEADER, TLS_HEADER, TYPE_SASL, frame
from protocols.amqp.limits import Limits
from protocols.amqp.performatives import (
    Open,
    SaslChallenge,
    SaslCode,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from protocols.amqp.state import SASL, ConnectionState, SaslState
from tests.protocols.amqp.peer import Pair, drain, failed, failure, frames, of, only, receive
from tests.support.wire import check_codec, check_malformed

MECHANISMS = ("SCRAM-SHA-256", "PLAIN")


def sasl(body: Composite) -> bytes:
    """A SASL frame."""
    return frame(0, body.encode(), TYPE_SASL)


def server(*mechanisms: str, required: bool = True, limits: Limits | None = None) -> AmqpConnection:
    """A server that nobody has spoken to."""
    return AmqpConnection(limits or Limits(), container_id="s", mechanisms=mechanisms, sasl_required=required)


def client(*mechanisms: str) -> AmqpConnection:
    """A client that has begun to speak."""
    return AmqpConnection(container_id="c", server=False, mechanisms=mechanisms)


def asked() -> AmqpConnection:
    """A server that has offered its mechanisms."""
    codec = server(*MECHANISMS)
    assert receive(codec, SASL_HEADER) == []
    assert codec.data_to_send() == SASL_HEADER + sasl(SaslMechanisms(MECHANISMS))
    return codec


def template(event: Event) -> Event:
    """Events are compared as they are."""
    return event


# -- headers -----------------------------------------------------------------------------------------------------------


def test_without_sasl() -> None:
    check_codec(server, AMQP_HEADER, [Connected()], show=template, trailing=b"\0\0")
    codec = server()
    assert receive(codec, AMQP_HEADER) == [Connected()]
    assert codec.data_to_send() == AMQP_HEADER
    assert codec.state is ConnectionState.HDR_EXCH


def test_sasl_may_be_left_out_if_it_is_not_required() -> None:
    codec = server(*MECHANISMS, required=False)
    assert receive(codec, AMQP_HEADER) == [Connected()]
    assert codec.data_to_send() == AMQP_HEADER


REFUSED = [
    ((), b"HTTP/1.1", AMQP_HEADER, FRAMING_ERROR, "A connection begins with AMQP, not with other bytes."),
    (MECHANISMS, b"GET / HT", SASL_HEADER, FRAMING_ERROR, "A connection begins with AMQP, not with 'GET'."),
    ((), b"AMQP\x00\x01\x01\x00", AMQP_HEADER, NOT_IMPLEMENTED, "This server speaks AMQP 1.0.0, not 1.1.0 "
     "(protocol id 0)."),
    ((), b"AMQP\x00\x00\x09\x01", AMQP_HEADER, NOT_IMPLEMENTED, "This server speaks AMQP 1.0.0, not 0.9.1 "
     "(protocol id 0)."),
    (MECHANISMS, b"AMQP\x03\x02\x00\x00", SASL_HEADER, NOT_IMPLEMENTED, "This server speaks AMQP 1.0.0, not 2.0.0 "
     "(protocol id 3)."),
    (MECHANISMS, AMQP_HEADER, SASL_HEADER, UNAUTHORIZED_ACCESS, "A login is needed: begin with the SASL protocol "
     "header."),
    ((), SASL_HEADER, AMQP_HEADER, NOT_ALLOWED, "There is no SASL here."),
    ((), TLS_HEADER, AMQP_HEADER, NOT_IMPLEMENTED, "TLS does not begin with a protocol header here: connect with TLS "
     "from the first byte on (amqps)."),
    (MECHANISMS, TLS_HEADER, SASL_HEADER, NOT_IMPLEMENTED, "TLS does not begin with a protocol header here: connect "
     "with TLS from the first byte on (amqps)."),
]  # fmt: skip


@pytest.mark.parametrize(("mechanisms", "header", "answer", "condition", "text"), REFUSED)
def test_refused_headers(mechanisms: tuple[str, ...], header: bytes, answer: bytes, condition: str, text: str) -> None:
    codec = server(*mechanisms)
    assert receive(codec, header) == []
    error = failed(codec)
    assert (error.condition, error.description) == (condition, text)
    codec.send_close(error)
    assert codec.data_to_send() == answer
    assert codec.close_expected
    check_malformed(lambda: server(*mechanisms), header, AmqpError)


def test_a_wrong_header_is_not_waited_for() -> None:
    for raw in b"G", b"AMX", b"\x16\x03\x01", b"amqp":
        codec = server()
        receive(codec, raw)
        assert failure(codec) is not None
    codec = server()
    receive(codec, b"AMQ")
    assert failure(codec) is None
    codec.receive_eof()
    assert failure(codec) is not None


def test_sasl_comes_once() -> None:
    codec = asked()
    receive(codec, sasl(SaslInit("PLAIN")))
    codec.send_sasl(SaslOutcome(SaslCode.OK))
    codec.data_to_send()
    assert receive(codec, SASL_HEADER) == []
    assert failed(codec).description == "SASL comes once."
    assert codec.data_to_send() == AMQP_HEADER


# -- the exchange ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", [SaslInit("PLAIN"), SaslInit("PLAIN", b""), SaslInit("SCRAM-SHA-512", b"n,,n=a,r=b", "host")]
)
def test_init(body: SaslInit) -> None:
    check_codec(asked, sasl(body), [body], show=template, trailing=b"\0\0\0\x10")


def test_a_whole_exchange() -> None:
    pair = Pair(client("X"), server(*MECHANISMS))
    assert pair.to_server() == []
    assert pair.to_client() == [SaslMechanisms(MECHANISMS)]
    pair.client.send_sasl(SaslInit("PLAIN", None, "host"))
    assert pair.to_server() == [SaslInit("PLAIN", None, "host")]
    for question in b"1", b"2":
        pair.server.send_sasl(SaslChallenge(question))
        assert pair.to_client() == [SaslChallenge(question)]
        pair.client.send_sasl(SaslResponse(question * 2))
        assert pair.to_server() == [SaslResponse(question * 2)]
    pair.server.send_sasl(SaslOutcome(SaslCode.OK, b"done"))
    assert pair.to_client() == [SaslOutcome(SaslCode.OK, b"done")]
    assert pair.to_server() == [Connected()]
    assert pair.to_client() == [Connected()]
    assert pair.client.state is pair.server.state is ConnectionState.HDR_EXCH


@pytest.mark.parametrize("code", [code for code in SaslCode if code != SaslCode.OK])
def test_a_failed_exchange(code: SaslCode) -> None:
    codec = asked()
    receive(codec, sasl(SaslInit("PLAIN", b"x")))
    codec.send_sasl(SaslOutcome(code))
    assert codec.data_to_send() == sasl(SaslOutcome(code))
    assert codec.close_expected
    assert receive(codec, AMQP_HEADER) == []
    assert failure(codec) is None
    asking = client("X")
    asking.data_to_send()
    receive(asking, SASL_HEADER + sasl(SaslMechanisms(("PLAIN",))))
    asking.send_sasl(SaslInit("PLAIN"))
    assert receive(asking, sasl(SaslOutcome(code))) == [SaslOutcome(code)]
    assert asking.close_expected
    assert receive(asking, AMQP_HEADER) == []


def test_nothing_is_read_before_the_answer() -> None:
    codec = asked()
    pipelined = sasl(SaslInit("PLAIN")) + AMQP_HEADER + frames(Open("c"))
    assert receive(codec, pipelined) == [SaslInit("PLAIN")]
    assert drain(codec) == []
    codec.send_sasl(SaslOutcome(SaslCode.OK))
    assert drain(codec) == [Connected(), Open("c")]


def test_bytes_that_come_during_a_login_are_held() -> None:
    codec = asked()
    raw = AMQP_HEADER + frames(Open("c"))
    receive(codec, sasl(SaslInit("PLAIN")))
    for at in range(len(raw)):
        assert receive(codec, raw[at : at + 1]) == []
    codec.send_sasl(SaslOutcome(SaslCode.OK))
    assert drain(codec) == [Connected(), Open("c")]
    codec.receive_eof()
    assert failure(codec) is None


def test_eof_while_we_think_is_no_error() -> None:
    codec = asked()
    receive(codec, sasl(SaslInit("PLAIN")) + b"AMQ")
    codec.receive_eof()
    assert failure(codec) is None
    codec.send_sasl(SaslOutcome(SaslCode.OK))
    assert drain(codec) == []
    assert failure(codec) is not None


MALFORMED = [
    (b"\0\0\0\x07\x02\x01\0\0", FRAMING_ERROR, "A frame has at least 8 bytes, not 7."),
    (b"\0\0\0\x08\x02\x01\0\0", FRAMING_ERROR, "A SASL frame must not be empty."),
    (b"\0\0\x20\x01\x02\x01\0\0", FRAMING_ERROR, "A frame may have 8192 bytes until the connection is open, this "
     "one has 8193."),
    (b"\0\0\0\x08\x01\x01\0\0", FRAMING_ERROR, "The data offset of a frame of 8 bytes cannot be 1."),
    (b"\0\0\0\x08\x03\x01\0\0", FRAMING_ERROR, "The data offset of a frame of 8 bytes cannot be 3."),
    (b"\0\0\0\x08\x02\x00\0\0", FRAMING_ERROR, "Expected a SASL frame here, not an AMQP frame."),
    (b"\0\0\0\x08\x02\x05\0\0", FRAMING_ERROR, "Expected a SASL frame here, not a frame of type 5."),
    (sasl(SaslInit("PLAIN"))[:-1] + b"\xff", DECODE_ERROR, "byte 20: a symbol that is not ASCII"),
    (frame(0, SaslInit("X").encode() + b"\x40", TYPE_SASL), DECODE_ERROR, "byte 17: 1 bytes after the body of a SASL "
     "frame"),
    (sasl(Open("c")), NOT_ALLOWED, "open is not allowed from the peer in a SASL exchange."),
    (sasl(SaslMechanisms(("A",))), NOT_ALLOWED, "sasl-mechanisms is not allowed from the peer in a SASL exchange."),
    (sasl(SaslResponse(b"x")), ILLEGAL_STATE, "sasl-response is not expected here: mechanisms offered."),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "condition", "text"), MALFORMED)
def test_malformed(raw: bytes, condition: str, text: str) -> None:
    codec = asked()
    assert receive(codec, raw) == []
    error = failed(codec)
    assert (error.condition, error.description) == (condition, text)
    codec.send_close(error)
    assert codec.data_to_send() == sasl(SaslOutcome(SaslCode.SYS_PERM))
    assert codec.close_expected
    if len(raw) > 8:
        check_malformed(asked, raw, AmqpError)


def test_extended_header_and_channel_are_ignored() -> None:
    body = SaslInit("PLAIN").encode()
    raw = (16 + len(body)).to_bytes(4) + b"\x04\x01\xff\xff" + b"extended" + body
    check_codec(asked, raw, [SaslInit("PLAIN")], show=template)


@pytest.mark.parametrize("nbytes", [8192, 8193])
def test_size_of_sasl_frames(nbytes: int) -> None:
    codec = asked()
    raw = sasl(SaslInit("PLAIN", b""))
    raw = sasl(SaslInit("PLAIN", b"x" * (nbytes - len(raw) - 9)))
    assert len(raw) == nbytes
    assert len(receive(codec, raw)) == (nbytes == 8192)
    assert (failure(codec) is None) == (nbytes == 8192)


@pytest.mark.parametrize("rounds", [3, 4])
def test_rounds(rounds: int) -> None:
    codec = server("X", limits=Limits(sasl_rounds_max=3))
    receive(codec, SASL_HEADER + sasl(SaslInit("X")))
    for _ in range(rounds - 1):
        codec.send_sasl(SaslChallenge(b"?"))
        receive(codec, sasl(SaslResponse(b"!")))
    error = failure(codec)
    assert (error is None) == (rounds == 3)
    if error is not None:
        assert error.condition == RESOURCE_LIMIT_EXCEEDED


# -- the client's side -------------------------------------------------------------------------------------------------


def test_headers_of_a_client() -> None:
    assert client().data_to_send() == AMQP_HEADER
    assert client("PLAIN").data_to_send() == SASL_HEADER
    for mechanisms, header in ((), SASL_HEADER), (("PLAIN",), AMQP_HEADER), ((), b"AMQP\0\2\0\0"):
        codec = client(*mechanisms)
        receive(codec, header)
        error = failed(codec)
        assert error.condition == NOT_IMPLEMENTED
        assert error.description.startswith("The server wants to speak 'AMQP")


def test_a_client_reads_no_clients_frames() -> None:
    codec = client("PLAIN")
    receive(codec, SASL_HEADER + sasl(SaslInit("PLAIN")))
    assert failed(codec).condition == NOT_ALLOWED


# -- the table ---------------------------------------------------------------------------------------------------------

BODIES: dict[str, Composite] = {
    "sasl-mechanisms": SaslMechanisms(("PLAIN",)),
    "sasl-init": SaslInit("PLAIN"),
    "sasl-challenge": SaslChallenge(b"?"),
    "sasl-response": SaslResponse(b"!"),
    "sasl-outcome(ok)": SaslOutcome(SaslCode.OK),
    "sasl-outcome(failed)": SaslOutcome(SaslCode.AUTH),
}
WAYS = {
    SaslState.BEGUN: [],
    SaslState.OFFERED: ["sasl-mechanisms"],
    SaslState.ANSWERING: ["sasl-mechanisms", "sasl-init"],
    SaslState.CHALLENGED: ["sasl-mechanisms", "sasl-init", "sasl-challenge"],
    SaslState.DONE: ["sasl-mechanisms", "sasl-init", "sasl-outcome(ok)"],
    SaslState.FAILED: ["sasl-mechanisms", "sasl-init", "sasl-outcome(failed)"],
}
BY_CLIENT = {"sasl-init", "sasl-response"}


def test_the_table_is_complete() -> None:
    assert set(SASL) == set(SaslState) == set(WAYS)
    assert {trigger for row in SASL.values() for trigger in row} == set(BODIES)


@pytest.mark.parametrize(("state", "trigger"), list(product(SaslState, BODIES)))
def test_every_frame_in_every_state(state: SaslState, trigger: str) -> None:
    """A client is brought into the state and then gets a server's frame, or the other way round."""
    by_client = trigger in BY_CLIENT
    codec = server("PLAIN") if by_client else client("PLAIN")
    if by_client and state is SaslState.BEGUN:
        return  # a server leaves this state at once
    receive(codec, SASL_HEADER)
    for step in WAYS[state]:
        if (step in BY_CLIENT) == by_client:
            receive(codec, sasl(BODIES[step]))
        elif step != "sasl-mechanisms":
            body = BODIES[step]
            assert isinstance(body, SaslInit | SaslChallenge | SaslResponse | SaslOutcome)
            codec.send_sasl(body)
    codec.data_to_send()
    assert codec._handshake.state is state
    silent = codec.close_expected or codec._handshake.waits  # not this side's turn to read, or never again
    events = receive(codec, sasl(BODIES[trigger]))
    if trigger in SASL[state]:
        assert events == [BODIES[trigger]]
        assert failure(codec) is None
        assert codec._handshake.state is SASL[state][trigger]
        assert codec.close_expected == (trigger == "sasl-outcome(failed)")
    else:
        assert events == []
        assert (failure(codec) is None) == silent


def test_the_answer_needs_its_turn() -> None:
    for codec in asked(), server("X"), client("X"):
        with pytest.raises(AssertionError):
            codec.send_sasl(SaslOutcome(SaslCode.OK))


def test_events_of_a_handshake_are_not_lost() -> None:
    pair = Pair(client(), server())
    assert of(pair.to_server(), Connected) == [Connected()]
    assert only(pair.to_client(), Connected) == Connected()
