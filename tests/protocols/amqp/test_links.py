"""Attach and detach, credit, drain and echo."""

from __future__ import annotations

from typing import Any

import pytest

from protocols.amqp.errors import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    INVALID_FIELD,
    NOT_FOUND,
    RESOURCE_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    AmqpError,
    link_error,
)
from protocols.amqp.events import Attached, Available, Began, Credit, Detached, Refused, SessionFailed, Transfers
from protocols.amqp.frames import frame
from protocols.amqp.limits import Limits
from protocols.amqp.performatives import (
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Begin,
    Coordinator,
    Detach,
    Error,
    Flow,
    ReceiverSettleMode,
    SenderSettleMode,
    Source,
    Target,
    Transfer,
)
from protocols.amqp.receiver import Receiver
from protocols.amqp.sender import Sender
from protocols.amqp.serial import MASK
from protocols.amqp.state import LinkState
from tests.protocols.amqp.peer import (
    FIRST_ID,
    attach,
    begun,
    consuming,
    failure,
    frames,
    of,
    only,
    opened,
    producing,
    receive,
    receiving_server,
    sending_server,
    server_with_session,
    session_of,
)


def session_failure(raw: bytes, limits: Limits | None = None) -> AmqpError:
    """How some frames end a session."""
    codec, session = server_with_session(limits or Limits())
    error = of(receive(codec, raw), SessionFailed)[0].error
    assert session.failed
    assert failure(codec) is None
    return error


# -- attach ------------------------------------------------------------------------------------------------------------


def test_all_of_attach() -> None:
    pair = opened()
    link = begun(pair)[0].new_sender("name")
    fields: dict[str, Any] = {
        "source": Source("a", outcomes=("amqp:accepted:list",)),
        "target": Coordinator(("amqp:local-transactions",)),
        "snd_settle_mode": SenderSettleMode.UNSETTLED,
        "rcv_settle_mode": ReceiverSettleMode.SECOND,
        "unsettled": {b"t": Accepted()},
        "max_message_size": 1000,
        "offered_capabilities": ("o",),
        "desired_capabilities": ("d",),
        "properties": {"p": 1},
    }
    link.send_attach(**fields)
    event = only(pair.to_server(), Attached)
    assert isinstance(event.link, Receiver)
    assert event.link.attach is event.attach
    assert event.attach == Attach("name", 0, SENDER, initial_delivery_count=0, **fields)


def test_a_receiver_does_not_say_where_it_counts_from() -> None:
    pair, receiver, sender = consuming()
    assert sender.attach is not None
    assert sender.attach.initial_delivery_count is None
    assert receiver.attach is not None
    assert receiver.attach.initial_delivery_count == 0
    assert pair.server.sessions == [sender.session]


def test_a_refused_link() -> None:
    pair = opened()
    link = begun(pair)[0].new_receiver("l")
    link.send_attach(source=Source("nowhere"))
    answer = only(pair.to_server(), Attached).link
    answer.send_attach(target=Target())
    answer.send_detach(error=link_error(NOT_FOUND, "There is no such queue."))
    attached, detached = pair.to_client()
    assert isinstance(attached, Attached)
    assert attached.attach.source is None
    assert detached == Detached(link, True, Error(NOT_FOUND, "There is no such queue."))
    link.send_detach()
    assert only(pair.to_server(), Detached) == Detached(answer, True, None)
    assert link.state is answer.state is LinkState.DETACHED


def test_handles_are_the_lowest_free_ones() -> None:
    pair = opened()
    session = begun(pair)[0]
    links = [session.new_sender(name) for name in "abc"]
    answers = [attach(pair, link) for link in links]
    assert [link.handle for link in links] == [0, 1, 2]
    links[1].send_detach()
    pair.to_server()
    answers[1].send_detach()
    pair.to_client()
    again = session.new_receiver("d")
    attach(pair, again)
    assert again.handle == 1


def test_two_directions_may_have_one_name() -> None:
    pair = opened()
    session = begun(pair)[0]
    there, back = session.new_sender("name"), session.new_receiver("name")
    there.send_attach()
    back.send_attach()
    ends = [event.link for event in of(pair.to_server(), Attached)]
    assert [type(link) for link in ends] == [Receiver, Sender]
    for link in reversed(ends):
        link.send_attach()
    pair.to_client()
    assert [there.attach, back.attach] == [end.local for end in ends]
    assert [end.handle for end in ends] == [1, 0]


def test_a_link_of_the_same_name_is_another_link() -> None:
    """Who steals from whom is for those to say who know all connections of a container (2.6.1)."""
    codec, session = server_with_session()
    raw = frames(Attach("name", 0, RECEIVER), Attach("name", 1, RECEIVER))
    first, second = (event.link for event in of(receive(codec, raw), Attached))
    assert first is not second
    assert session.links == [first, second]


@pytest.mark.parametrize("handle", [3, 4])
def test_handle_max(handle: int) -> None:
    codec, _ = server_with_session(Limits(handle_max=3))
    events = receive(codec, frames(Attach("l", handle, RECEIVER)))
    assert len(events) == (handle == 3)
    error = failure(codec)
    assert (error is None) == (handle == 3)
    if error is not None:
        assert error.condition == FRAMING_ERROR
        assert error.description == "attach: handles go up to 3, 4 is beyond."


def test_the_peers_handle_max() -> None:
    codec, _ = server_with_session()
    raw = frames(Begin(None, 0, 1, 1, handle_max=0), channel=1)
    session = receive(codec, raw)[0].session  # type: ignore[attr-defined]
    session.send_begin()
    session.new_sender("a").send_attach()
    with pytest.raises(AmqpError, match="attach: the peer takes handles up to 0"):
        session.new_sender("b").send_attach()


def test_a_handle_in_use() -> None:
    error = session_failure(frames(Attach("a", 0, RECEIVER), Attach("b", 0, RECEIVER)))
    assert (error.condition, error.description) == (HANDLE_IN_USE, "attach: the handle 0 is that of the link 'a'.")


@pytest.mark.parametrize("body", [Flow(0, 1, 0, 1, 5), Transfer(5, 0, b"t", 0), Detach(5)])
def test_a_handle_that_is_not_attached(body: Flow | Transfer | Detach) -> None:
    error = session_failure(frames(body))
    assert error.condition == UNATTACHED_HANDLE
    assert error.description == f"{body.NAME}: no link is attached with the handle 5."


def test_a_sender_says_where_it_counts_from() -> None:
    error = session_failure(frames(Attach("a", 0, SENDER)))
    assert (error.condition, error.description) == (
        INVALID_FIELD,
        "attach: the sender of 'a' must set initial-delivery-count.",
    )


@pytest.mark.parametrize("count", [4, 5])
def test_links_of_a_connection(count: int) -> None:
    """One too many is refused, and the others go on."""
    codec, session = server_with_session(Limits(links_max=4))
    raw = frames(Begin(None, 0, 1, 1), channel=1)
    receive(codec, raw)
    raw = b"".join([frames(Attach("l", at, RECEIVER), channel=at % 2) for at in range(count)])
    events = receive(codec, raw)
    assert len(of(events, Attached)) == 4
    assert of(events, SessionFailed) == []
    refused = of(events, Refused)
    assert [each.error.condition for each in refused] == [RESOURCE_LIMIT_EXCEEDED] * (count - 4)
    session.send_end()
    codec.data_to_send()
    assert codec._transport.links == 2
    assert codec._transport.refused == 0, "the refused one was of the session that ended"


def test_a_refused_link_makes_room_when_it_is_detached() -> None:
    codec, session = server_with_session(Limits(links_max=1))
    receive(codec, frames(Attach("l", 0, RECEIVER)))
    for _ in range(3):
        [refused] = of(receive(codec, frames(Attach("m", 1, RECEIVER))), Refused)
        refused.link.send_attach()
        refused.link.send_detach(error=refused.error)
        assert codec._transport.refused == 1
        receive(codec, frames(Detach(1)))
        assert codec._transport.refused == 0
    receive(codec, frames(Detach(0)))
    assert of(receive(codec, frames(Attach("m", 1, RECEIVER))), Attached)
    assert not session.failed


def test_refused_links_that_are_not_detached_have_a_limit() -> None:
    codec, _ = server_with_session(Limits(links_max=1, handle_max=3))
    receive(codec, frames(Attach("l", 0, RECEIVER)))
    receive(codec, frames(Begin(None, 0, 1, 1), channel=1))
    places = [(0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    for channel, handle in places[:4]:
        assert of(receive(codec, frames(Attach("m", handle, RECEIVER), channel=channel)), Refused)
    [failed] = of(receive(codec, frames(Attach("m", 1, RECEIVER), channel=1)), SessionFailed)
    assert failed.error.condition == RESOURCE_LIMIT_EXCEEDED


def test_the_attaches_of_a_connection_have_a_limit_together() -> None:
    """Limit: attach_bytes_max; those of links that are gone do not count, and one more byte ends the session."""
    raw, last = (frames(Attach(name, at, RECEIVER, properties={"p": "x" * 1000})) for at, name in enumerate("lm"))
    codec, session = server_with_session(Limits(attach_bytes_max=len(raw) + len(last)))
    for _ in range(3):
        [attached] = of(receive(codec, raw), Attached)
        attached.link.send_attach()
        receive(codec, frames(Detach(0)))
        attached.link.send_detach()
    assert codec._transport.attach_bytes == 0
    receive(codec, raw)
    assert of(receive(codec, last), Attached)
    [failed] = of(receive(codec, frames(Attach("n", 2, RECEIVER))), SessionFailed)
    assert failed.error.condition == RESOURCE_LIMIT_EXCEEDED
    session.send_end(failed.error)
    assert codec._transport.attach_bytes == 0


def test_an_attached_link_forgets_what_is_no_longer_needed() -> None:
    codec, _ = server_with_session()
    said = Attach("l", 0, RECEIVER, source=Source("a" * 1000), target=Target("b"), max_message_size=7)
    said.properties, said.desired_capabilities = {"p": "x" * 1000}, ("c" * 1000,)
    [attached] = of(receive(codec, frames(said)), Attached)
    link = attached.link
    link.send_attach(source=said.source, target=said.target, rcv_settle_mode=ReceiverSettleMode.SECOND)
    link.forget_terms()
    assert link.attach == Attach("l", 0, RECEIVER, max_message_size=7)
    assert link.local is not None
    assert (link.local.source, link.local.target) == (None, None)
    assert link.local.rcv_settle_mode == ReceiverSettleMode.SECOND
    assert attached.attach == said


def test_a_session_forgets_properties_and_capabilities() -> None:
    codec, _ = server_with_session()
    begin = Begin(None, 1, 2, 3, 4, ("c" * 1000,), ("d" * 1000,), {"p": "x" * 1000})
    [began] = of(receive(codec, frames(begin, channel=1)), Began)
    assert began.begin == begin
    kept = began.session.begin
    assert kept is not None
    assert (kept.handle_max, kept.offered_capabilities, kept.desired_capabilities, kept.properties) == (4, (), (), None)


@pytest.mark.parametrize("outcomes", [(), ("amqp:accepted:list",), ("amqp:rejected:list",)])
def test_whether_a_sender_hears_of_rejected_messages_is_remembered(outcomes: tuple[str, ...]) -> None:
    codec, _ = server_with_session()
    said = Attach("l", 0, SENDER, source=Source("a", outcomes=outcomes), target=Target("b"), initial_delivery_count=0)
    [attached] = of(receive(codec, frames(said)), Attached)
    attached.link.forget_terms()
    assert isinstance(attached.link, Receiver)
    assert attached.link.rejects is (outcomes != ("amqp:accepted:list",))


def test_detached_links_are_not_counted() -> None:
    codec, session = server_with_session(Limits(links_max=1))
    for _ in range(3):
        link = of(receive(codec, frames(Attach("l", 0, RECEIVER))), Attached)[0].link
        link.send_attach()
        receive(codec, frames(Detach(0)))
        link.send_detach()
    assert not session.failed


# -- credit ------------------------------------------------------------------------------------------------------------


def test_credit_is_counted_from_what_the_receiver_has_seen() -> None:
    codec, link = sending_server()
    assert link.room == 0
    assert only(receive(codec, frames(Flow(0, 99, 0, 99, 0, 0, 10))), Credit) == Credit(link)
    assert (link.credit, link.room) == (10, 10)
    link.send([b"x"] * 4, [None] * 4)
    assert (link.credit, link.room, link.delivery_count) == (6, 6, 4)
    receive(codec, frames(Flow(0, 99, 0, 99, 0, 1, 10)))  # sent when the receiver had seen one
    assert link.credit == 7
    receive(codec, frames(Flow(0, 99, 0, 99, 0, None, 10)))  # or our ATTACH not yet
    assert link.credit == 6
    receive(codec, frames(Flow(0, 99, 0, 99, 0, 1, 2)))
    assert link.credit == 0
    receive(codec, frames(Flow(0, 99, 0, 99, 0, 1, 0)))
    assert link.credit == 0
    receive(codec, frames(Flow(0, 99, 0, 99, 0, 9, 3)))  # seen more than was sent: it may have what it asks for
    assert link.credit == 3
    receive(codec, frames(Flow(0, 99, 0, 99, 0, 4, None)))
    assert link.credit == 3
    receive(codec, frames(Flow(0, 99, 0, 99, 0, 4, MASK)))
    assert link.credit == MASK


def test_delivery_counts_wrap_around() -> None:
    codec, session = server_with_session()
    raw = frames(Attach("l", 0, SENDER, initial_delivery_count=MASK - 1))
    link = only(receive(codec, raw), Attached).link
    assert isinstance(link, Receiver)
    link.send_attach()
    link.send_credit(5)
    for at in range(3):
        raw = frames(Transfer(0, (FIRST_ID + at) & MASK, b"%d" % at, 0))
        receive(codec, raw)
    assert (link.delivery_count, link.credit) == (1, 2)
    assert not session.failed
    receive(codec, frames(Flow(0, 9, 0, 9, 0, 3, 0)))
    assert (link.delivery_count, link.credit) == (3, 0)
    sender = Sender(session, "s")
    sender.delivery_count = 2
    sender.receive_flow(Flow(0, 0, 0, 0, 0, MASK, 10), [])
    assert sender.credit == 7


def test_a_receivers_flow() -> None:
    pair, receiver, sender = consuming()
    receiver.send_credit(7, drain=True, echo=True)
    assert sender.credit == 0
    [credit] = pair.to_server()
    assert credit == Credit(sender)
    assert (sender.credit, sender.drain) == (7, True)
    [answer] = pair.to_client()  # the echo
    assert answer == Available(receiver)
    assert receiver.credit == 7


def test_a_senders_flow() -> None:
    codec, link = receiving_server()
    receive(codec, frames(Flow(0, 9, 0, 9, 0, None, None, 7)))
    assert (link.credit, link.delivery_count, link.available) == (100, 0, 7)
    receive(codec, frames(Flow(0, 9, 0, 9, 0, MASK, 0)))  # it cannot go back
    assert (link.credit, link.delivery_count, link.available) == (100, 0, 0)
    receive(codec, frames(Flow(0, 9, 0, 9, 0, 30, 0)))
    assert (link.credit, link.delivery_count) == (70, 30)
    receive(codec, frames(Flow(0, 9, 0, 9, 0, 130, 0)))
    assert (link.credit, link.delivery_count) == (0, 130)


def test_drain() -> None:
    pair, receiver, sender = consuming()
    receiver.send_credit(5, drain=True)
    pair.to_server()
    sender.send([b"a", b"b"], [1, 2])
    sender.available = 0
    sender.send_drained()
    assert (sender.credit, sender.delivery_count, sender.room) == (0, 5, 0)
    events = pair.to_client()
    assert events[-1] == Available(receiver)
    assert (receiver.credit, receiver.delivery_count) == (0, 5)


def test_drained_without_credit_is_told_all_the_same() -> None:
    pair, receiver, sender = consuming()
    receiver.send_credit(0, drain=True)
    pair.to_server()
    sender.send_drained()
    assert pair.to_client() == [Available(receiver)]


def test_transfers_that_wait_for_credit() -> None:
    pair, receiver, sender = consuming()
    sender.available = 40
    sender.session.send_flow(sender)
    pair.to_client()
    assert receiver.available == 40
    receiver.send_credit(2)
    pair.to_server()
    sender.send([b"x"], [1])
    assert pair.to_client()
    assert receiver.available == 39


def test_echo_before_we_have_attached() -> None:
    codec, session = server_with_session()
    raw = frames(Attach("l", 4, RECEIVER), Flow(0, 9, 0, 9, 4, None, 7, echo=True))
    link = of(receive(codec, raw), Attached)[0].link
    assert codec.data_to_send() == b""
    link.send_attach()
    assert link.credit == 7
    sent = codec.data_to_send()
    assert sent.count(b"\x00\x53\x12") == sent.count(b"\x00\x53\x13") == 1
    assert not session.failed


def test_echo_of_the_session() -> None:
    codec, session = server_with_session()
    assert receive(codec, frames(Flow(0, 9, FIRST_ID, 9, echo=True))) == []
    assert codec.data_to_send() == frames(Flow(FIRST_ID, session.limits.incoming_window, 0, 0x7FFF_FFFF))


@pytest.mark.parametrize("ahead", [0, 3, 100])
def test_the_peer_says_which_transfer_comes_next(ahead: int) -> None:
    """Its next-outgoing-id counts, whatever we have counted (2.5.6)."""
    codec, session = server_with_session()
    stated = (FIRST_ID + ahead) & 0xFFFF_FFFF
    assert receive(codec, frames(Flow(0, 9, stated, 9, echo=True))) == []
    assert session.next_incoming_id == stated
    assert codec.data_to_send() == frames(Flow(stated, session.limits.incoming_window, 0, 0x7FFF_FFFF))


def test_a_receiver_that_does_not_know_the_count() -> None:
    pair = opened()
    link = begun(pair)[0].new_receiver("l")
    link.send_attach()
    link.send_credit(3)
    attached, credit = pair.to_server()
    assert isinstance(attached, Attached)
    assert credit == Credit(attached.link)  # type: ignore[arg-type]
    assert attached.link.credit == 3


# -- detach ------------------------------------------------------------------------------------------------------------


def test_detach_and_close_are_told_apart() -> None:
    for closed in True, False:
        pair, sender, receiver = producing()
        sender.send_detach(closed=closed)
        assert pair.to_server() == [Detached(receiver, closed, None)]
        receiver.send_detach(closed=closed)
        assert pair.to_client() == [Detached(sender, closed, None)]
        assert session_of(sender).links == session_of(receiver).links == []


def test_transfers_on_a_detached_link_go_nowhere() -> None:
    pair, receiver, sender = consuming()
    receiver.send_credit(5)
    pair.to_server()
    sender.send_detach()
    pair.server.data_to_send()
    assert sender.room == 0
    sender.send_drained()
    sender.send_detach()
    assert pair.server.data_to_send() == b""
    session_of(receiver).send_end()
    pair.client.data_to_send()
    receiver.send_credit(5)
    receiver.send_attach()
    receiver.send_detach()
    assert pair.client.data_to_send() == b""


def test_frames_after_our_detach_are_discarded_but_counted() -> None:
    codec, link = receiving_server()
    session = link.session
    link.send_detach(error=link_error("amqp:link:stolen", "Somebody else has it."))
    raw = frame(0, Transfer(0, FIRST_ID, b"t", 0, more=True).encode() + b"x")
    raw += frame(0, Transfer(0, FIRST_ID, more=False).encode() + b"x")
    raw += frame(0, Transfer(0, FIRST_ID + 1, b"u", 0).encode() + b"x")
    raw += frames(Flow(0, 9, (FIRST_ID + 3) & MASK, 9, 0, 0, 5))
    assert receive(codec, raw) == []
    assert session.next_incoming_delivery == 0
    assert session.next_incoming_id == (FIRST_ID + 3) & MASK
    assert session.incoming.count == 0
    assert receive(codec, frames(Detach(0, True))) == [Detached(link, True, None)]
    raw = frames(Attach("m", 0, SENDER, initial_delivery_count=0))
    other = only(receive(codec, raw), Attached).link
    other.send_attach()
    assert isinstance(other, Receiver)
    other.send_credit(1)
    events = receive(codec, frame(0, Transfer(0, 0, b"v", 0).encode() + b"y"))
    assert only(events, Transfers).payloads == [b"y"]
