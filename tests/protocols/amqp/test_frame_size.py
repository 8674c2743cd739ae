"""Frames that are too large for the peer: what is left out of them, and what is not sent at all."""

from __future__ import annotations

import pytest

from protocols.amqp.errors import AmqpError
from protocols.amqp.events import Detached, Dispositions, Ended, Transfers
from protocols.amqp.limits import Limits
from protocols.amqp.performatives import RECEIVER, Close, Error, Rejected, Source, Target, TransactionalState
from tests.protocols.amqp.peer import attach, begun, only, opened, producing, session_of

SMALL = Limits(frame_bytes_max=512)
TOO_LONG = Error("amqp:not-found", "x" * 500, {"delivery-tag": b"1"})
BRIEF = Error("amqp:not-found", None, {"delivery-tag": b"1"})


@pytest.mark.parametrize("what", ["link", "session", "connection"])
def test_a_description_that_does_not_fit_is_left_out(what: str) -> None:
    pair, _, link = producing(client_limits=SMALL)
    if what == "link":
        link.send_detach(error=TOO_LONG)
        assert only(pair.to_client(), Detached).error == BRIEF
    elif what == "session":
        session_of(link).send_end(TOO_LONG)
        assert only(pair.to_client(), Ended).error == BRIEF
    else:
        pair.server.send_close(TOO_LONG)
        assert only(pair.to_client(), Close).error == BRIEF


@pytest.mark.parametrize("tx", [True, False])
def test_so_it_is_of_an_outcome(tx: bool) -> None:
    pair, sender, link = producing(client_limits=SMALL)
    link.send_credit(1)
    pair.to_client()
    sender.send([b"x"], ["context"])
    [id] = only(pair.to_server(), Transfers).ids
    long, brief = Rejected(TOO_LONG), Rejected(BRIEF)
    link.session.send_disposition(RECEIVER, id, id, state=TransactionalState(b"1", long) if tx else long)
    assert only(pair.to_client(), Dispositions).state == (TransactionalState(b"1", brief) if tx else brief)


@pytest.mark.parametrize("frame_bytes", [512, 600])
def test_a_link_that_cannot_be_attached_has_not_been(frame_bytes: int) -> None:
    pair = opened(Limits(frame_bytes_max=frame_bytes, handle_max=0))
    mine, theirs = begun(pair)
    link = mine.new_sender("link")
    if frame_bytes == 600:  # the peer takes the frame, and no second link
        attach(pair, mine.new_sender("other"))
    with pytest.raises(AmqpError):
        link.send_attach(source=Source("x" * 480), target=Target())
    link.send_detach()
    assert pair.to_server() == []
    assert len(theirs.links) == (frame_bytes == 600)
    if frame_bytes == 512:
        assert attach(pair, link).name == "link"
