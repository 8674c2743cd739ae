"""Deliveries that come in: one frame, many frames, runs in the encodings of real clients, what breaks the rules."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocols.amqp.composite import decode_body
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.errors import (
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSFER_LIMIT_EXCEEDED,
    WINDOW_VIOLATION,
    AmqpError,
)
from protocols.amqp.events import Aborted, Attached, LinkFailed, SessionFailed, Transfers
from protocols.amqp.frames import frame
from protocols.amqp.limits import Limits
from protocols.amqp.performatives import RECEIVER, SENDER, Accepted, Attach, Detach, Error, Received, Rejected, Transfer
from protocols.amqp.receiver import Receiver
from protocols.amqp.serial import add
from tests.protocols.amqp.deliveries import told, transfer
from tests.protocols.amqp.peer import (
    FIRST_ID,
    another_receiver,
    drain,
    failure,
    frames,
    of,
    only,
    producing,
    receive,
    receiving_server,
    server_with_session,
    session_of,
)
from tests.support.wire import bytewise


def link_failure(raw: bytes, make: Callable[[], tuple[AmqpConnection, Receiver]] = receiving_server) -> AmqpError:
    """How some frames end a link."""
    codec, link = make()
    event = of(receive(codec, raw), LinkFailed)[0]
    assert event.link is link
    assert not link.reads
    assert failure(codec) is None
    assert not link.session.failed
    return event.error


def session_failure(raw: bytes, make: Callable[[], tuple[AmqpConnection, Receiver]] = receiving_server) -> AmqpError:
    """How some frames end a session."""
    codec, link = make()
    event = of(receive(codec, raw), SessionFailed)[0]
    assert event.session is link.session
    assert failure(codec) is None
    return event.error


# -- many frames a message ---------------------------------------------------------------------------------------------


def parts(number: int, *payloads: bytes, **fields: object) -> bytes:
    """A message in several frames."""
    first, *others = payloads
    raw = transfer(number, first, more=bool(others), **fields)
    for at, payload in enumerate(others, 1):
        raw += frame(0, Transfer(0, more=at < len(others)).encode() + payload)
    return raw


def test_a_message_in_many_frames() -> None:
    raw = transfer(0, b"before") + parts(1, b"a", b"", b"b" * 1000, b"c") + transfer(2, b"after")
    expected = [(0, b"0", b"before"), (1, b"1", b"a" + b"b" * 1000 + b"c"), (2, b"2", b"after")]
    for pieces in [raw], bytewise(raw):
        codec, link = receiving_server()
        events = [event for piece in pieces for event in receive(codec, piece)]
        assert told(events) == expected
        assert (link.credit, link.delivery_count) == (97, 3)
        assert link.session.next_incoming_id == add(FIRST_ID, 6)
        assert codec._transport.partial_bytes == 0


def test_messages_of_two_links_may_be_interleaved() -> None:
    codec, link = receiving_server()
    other = another_receiver(codec, 1)
    raw = transfer(0, b"a", more=True) + transfer(1, b"A", more=True, handle=1)
    raw += frame(0, Transfer(0).encode() + b"b") + frame(0, Transfer(1).encode() + b"B")
    events = of(receive(codec, raw), Transfers)
    assert [(event.link, event.payloads) for event in events] == [(link, [b"ab"]), (other, [b"AB"])]


def test_a_link_that_has_failed_does_not_set_the_ids_of_others_back() -> None:
    """Proton repeats the id in each frame of a delivery; between them others may come, on other links."""
    codec, _ = receiving_server()
    another_receiver(codec, 1)

    raw = transfer(0, more=True) + transfer(1, b"A", handle=1) + transfer(0, more=True, message_format=5)
    raw += transfer(2, b"B", handle=1) + transfer(0, more=True) + transfer(3, b"C", handle=1)
    events = receive(codec, raw)
    assert len(of(events, LinkFailed)) == 1
    assert told(events) == [(1, b"1", b"A"), (2, b"2", b"B"), (3, b"3", b"C")]


def test_a_message_settled_on_its_way() -> None:
    codec, link = receiving_server()
    raw = transfer(0, more=True) + frame(0, Transfer(0, settled=True, more=True).encode()) + frames(Transfer(0))
    event = only(receive(codec, raw), Transfers)
    assert event.settled
    assert link.session.incoming.count == 0
    codec, _ = receiving_server()
    raw = transfer(0, more=True, settled=True) + frames(Transfer(0, settled=False))
    error = of(receive(codec, raw), LinkFailed)[0].error
    assert error.description == "transfer: a delivery that is settled stays so."


def test_the_last_state_counts() -> None:
    codec, _ = receiving_server()
    raw = transfer(0, more=True, state=Received(0, 0)) + frames(Transfer(0, state=Accepted(), more=True), Transfer(0))
    assert only(receive(codec, raw), Transfers).state == Accepted()


@pytest.mark.parametrize("more", [0, 1])
def test_sections_before_a_payload_have_a_limit(more: int) -> None:
    """Limit: transfer_head_bytes_max, with the frame's header."""
    raw = transfer(0, more=True, state=Rejected(Error("a", "x" * 1000)))
    _, stop = decode_body(raw, 0, 8, len(raw), Limits())
    codec, _ = receiving_server(Limits(transfer_head_bytes_max=stop - more))
    failed = of(receive(codec, raw), SessionFailed)
    assert [each.error.condition for each in failed] == [RESOURCE_LIMIT_EXCEEDED] * more


def test_continuations_may_repeat_their_id_and_no_other() -> None:
    codec, _ = receiving_server()
    raw = transfer(0, b"a", more=True) + frame(0, Transfer(0, FIRST_ID).encode() + b"b")
    assert told(receive(codec, raw)) == [(0, b"0", b"ab")]
    error = session_failure(transfer(0, more=True) + transfer(1))
    assert error.condition == INVALID_FIELD
    assert error.description == f"transfer: delivery {FIRST_ID} has not ended, {FIRST_ID + 1} cannot begin."


def test_a_delivery_has_one_message_format() -> None:
    codec, _ = receiving_server()
    raw = transfer(0, b"a", more=True) + frame(0, Transfer(0, message_format=0).encode() + b"b")
    assert told(receive(codec, raw)) == [(0, b"0", b"ab")]
    codec, _ = receiving_server()
    raw = transfer(0, b"a", more=True) + frame(0, Transfer(0, message_format=1).encode() + b"b")
    error = of(receive(codec, raw), LinkFailed)[0].error
    assert (error.condition, error.description) == (INVALID_FIELD, "transfer: a delivery has one message-format.")


def test_aborted_messages() -> None:
    codec, link = receiving_server()
    raw = transfer(0, b"kept") + parts(1, b"a", b"b")[: -len(frame(0, Transfer(0).encode() + b"b"))]
    raw += frame(0, Transfer(0, aborted=True, more=True).encode() + b"ignored")
    raw += transfer(2, b"ignored", aborted=True) + transfer(3, b"after")
    first, gone, also_gone, after = receive(codec, raw)
    assert told([first, after]) == [(0, b"0", b"kept"), (3, b"3", b"after")]
    assert gone == also_gone == Aborted(link)
    assert link.session.incoming.count == 2
    assert (link.credit, link.delivery_count) == (96, 4)
    assert codec._transport.partial_bytes == 0


def test_tiny_parts_cost_what_they_hold() -> None:
    codec, link = receiving_server()
    receive(codec, transfer(0, b"x", more=True))
    for piece in b"", b"y":
        for _ in range(5):
            receive(codec, frame(0, Transfer(0, more=True).encode() + piece) * 200)
    assert bytes(link._body) == b"x" + b"y" * 1000
    assert codec._transport.partial_bytes == 1001
    assert only(receive(codec, frames(Transfer(0))), Transfers).payloads == [b"x" + b"y" * 1000]


def test_detach_and_end_forget_what_came_in_part() -> None:
    codec, link = receiving_server()
    receive(codec, transfer(0, b"x" * 100, more=True))
    assert codec._transport.partial_bytes == 100
    receive(codec, frames(Detach(0)))
    assert codec._transport.partial_bytes == 0
    codec, link = receiving_server()
    receive(codec, transfer(0, b"x" * 100, more=True))
    session_of(link).send_end()
    assert codec._transport.partial_bytes == 0


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beyond", [0, 1])
def test_message_size(beyond: int) -> None:
    limits = Limits(frame_bytes_max=600, message_bytes_max=400)

    def make() -> tuple[AmqpConnection, Receiver]:
        return receiving_server(limits)

    size = 400 + beyond
    for raw in transfer(0, b"x" * size), parts(0, b"x" * 100, b"x" * (size - 100)):
        codec, _ = make()
        events = receive(codec, raw)
        if not beyond:
            assert told(events) == [(0, b"0", b"x" * 400)]
            continue
        error = link_failure(raw, make)
        assert error.condition == MESSAGE_SIZE_EXCEEDED
        assert error.description == "transfer: a message may have 400 bytes, this one has more."
    codec, _ = make()
    events = receive(codec, transfer(0, b"x" * 5) + transfer(1, b"x" * 5) + transfer(2, b"x" * size))
    assert len(told(events)) == 3 - beyond


@pytest.mark.parametrize("beyond", [0, 1])
def test_bytes_of_all_messages_in_part(beyond: int) -> None:
    codec, _ = receiving_server(Limits(partial_bytes_max=500))
    another_receiver(codec, 1)
    raw = transfer(0, b"x" * 300, more=True) + transfer(1, b"x" * (200 + beyond), more=True, handle=1)
    receive(codec, raw)
    error = failure(codec)
    assert (error is None) == (beyond == 0)
    if error is not None:
        assert error.condition == RESOURCE_LIMIT_EXCEEDED


@pytest.mark.parametrize("count", [10, 11])
def test_unsettled_deliveries(count: int) -> None:
    codec, link = receiving_server(Limits(unsettled_max=10))
    events = receive(codec, b"".join([transfer(at) for at in range(count)]))
    assert len(told(events)) == 10
    assert link.session.failed == (count == 11)
    if count == 11:
        failed = events[-1]
        assert isinstance(failed, SessionFailed)
        assert failed.error.condition == RESOURCE_LIMIT_EXCEEDED
    else:
        link.session.send_disposition(RECEIVER, FIRST_ID, FIRST_ID)
        assert len(told(receive(codec, transfer(10)))) == 1
        assert len(told(receive(codec, transfer(11, settled=True)))) == 1


@pytest.mark.parametrize("nbytes", [32, 33])
def test_tags(nbytes: int) -> None:
    codec, _ = receiving_server()
    events = receive(codec, transfer(0, delivery_tag=b"t" * nbytes))
    assert len(told(events)) == (nbytes == 32)
    if nbytes == 33:
        assert only(events, LinkFailed).error.description == "transfer: a delivery needs a tag of up to 32 bytes."


# -- broken rules ------------------------------------------------------------------------------------------------------


def test_the_window_violated() -> None:
    def make() -> tuple[AmqpConnection, Receiver]:
        codec, link = receiving_server(Limits(incoming_window=1))
        link.session.incoming_window = 0
        return codec, link

    error = session_failure(transfer(0), make)
    assert (error.condition, error.description) == (WINDOW_VIOLATION, "transfer: the window of 1 is used up.")


def test_a_delivery_needs_its_tag_and_its_id() -> None:
    assert link_failure(transfer(0, delivery_tag=None)).condition == INVALID_FIELD
    error = session_failure(transfer(0) + transfer(1, delivery_id=None))
    assert error.description == f"transfer: the next delivery-id is {FIRST_ID + 1}, not None."


def test_the_first_delivery_of_a_session_needs_its_id() -> None:
    assert session_failure(transfer(0, delivery_id=None)).condition == INVALID_FIELD


def test_no_credit_at_all() -> None:
    codec, session = server_with_session()
    raw = frames(Attach("l", 0, SENDER, initial_delivery_count=0))
    events = receive(codec, raw + transfer(0))
    assert isinstance(events[0], Attached)
    assert isinstance(events[1], LinkFailed)
    assert events[1].error.condition == TRANSFER_LIMIT_EXCEEDED
    assert not session.failed


def test_transfers_on_their_way_when_credit_was_taken_back_still_come() -> None:
    """The sender had used it before it heard (2.6.7)."""
    codec, link = receiving_server()
    granted = link.credit
    link.send_credit(0)
    assert told(receive(codec, transfer(0, b"a"))) == [(0, b"0", b"a")]
    assert (link.credit, link.delivery_count) == (0, 1)
    link.send_credit(1)
    rest = b"".join([transfer(number) for number in range(1, granted)])
    assert len(told(receive(codec, rest))) == granted - 1
    assert (link.credit, link.delivery_count) == (0, granted)
    [failed] = of(receive(codec, transfer(granted)), LinkFailed)
    assert failed.error.condition == TRANSFER_LIMIT_EXCEEDED


def test_settling_second_where_first_was_agreed() -> None:
    assert link_failure(transfer(0, rcv_settle_mode=1)).condition == INVALID_FIELD
    codec, _ = receiving_server()
    raw = transfer(0, rcv_settle_mode=0) + transfer(1, rcv_settle_mode=1, settled=True)
    assert len(told(receive(codec, raw))) == 2, "what is settled may say anything (2.7.5)"


def test_messages_the_wrong_way() -> None:
    codec, session = server_with_session()
    link = only(receive(codec, frames(Attach("l", 0, RECEIVER))), Attached).link
    link.send_attach()
    error = only(receive(codec, transfer(0)), SessionFailed).error
    assert error.description == "transfer: messages of the link 'l' go the other way."
    assert session.failed


def test_after_a_failed_link_others_go_on() -> None:
    codec, link = receiving_server()
    another_receiver(codec, 1)
    raw = transfer(0, delivery_tag=None, more=True) + frames(Transfer(0)) + transfer(1, b"ok", handle=1)
    failed, good = receive(codec, raw)
    assert isinstance(failed, LinkFailed)
    assert told([good]) == [(1, b"1", b"ok")]
    link.send_detach(error=failed.error)
    assert b"amqp:invalid-field" in codec.data_to_send()


def test_after_a_failed_session_nothing_is_read() -> None:
    codec, link = receiving_server()
    [failed] = receive(codec, transfer(0, handle=5) + transfer(1) + frames(Detach(0)))
    assert isinstance(failed, SessionFailed)
    session_of(link).send_end(failed.error)
    assert receive(codec, transfer(2)) == []
    assert drain(codec) == []
    assert failure(codec) is None


# -- resumed deliveries ------------------------------------------------------------------------------------------------


def test_no_delivery_is_known_again() -> None:
    codec, link = receiving_server()
    raw = transfer(0, b"rest", resume=True) + transfer(1, b"new") + transfer(2, resume=True, settled=True, more=True)
    resumed, new, settled = receive(codec, raw + frames(Transfer(0)))
    assert resumed == settled == Aborted(link)
    assert told([new]) == [(1, b"1", b"new")]
    assert link.session.incoming.count == 1
    assert link.credit == 97, "it is to be given again"


def test_both_ends() -> None:
    pair, sender, receiver = producing()
    receiver.send_credit(2)
    pair.to_client()
    sender.send([b"a", b"b"], [1, 2])
    assert [event.payloads for event in of(pair.to_server(), Transfers)] == [[b"a"], [b"b"]]
