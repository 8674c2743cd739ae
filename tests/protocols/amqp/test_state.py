"""The tables, walked exhaustively: every state, brought about on a codec, and everything that can be sent or come."""

from __future__ import annotations

from itertools import product

import pytest

from protocols.amqp.connection import AmqpConnection
from protocols.amqp.errors import CONNECTION_FORCED, connection_error, session_error
from protocols.amqp.events import Attached, Began, Detached, Ended
from protocols.amqp.frames import AMQP_HEADER, frame
from protocols.amqp.link import Link
from protocols.amqp.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
)
from protocols.amqp.session import Session
from protocols.amqp.state import (
    CLOSED,
    CONNECTION,
    DELIVERY,
    DISCARDS,
    LINK,
    SENDS,
    SESSION,
    SESSION_READS,
    SESSION_SENDS,
    ConnectionState,
    DeliveryState,
    LinkState,
    SessionState,
)
from tests.protocols.amqp.peer import (
    FIRST_ID,
    WINDOW,
    drain,
    failure,
    frames,
    of,
    open_server,
    receive,
    receiving_server,
    server_with_session,
)

C, S, L = ConnectionState, SessionState, LinkState
FORCED = connection_error(CONNECTION_FORCED, "Enough.")

# -- connections -------------------------------------------------------------------------------------------------------

#: How a codec comes into each state, as the client (C) or the server (S).  HDR_RCVD is left at once.
WAYS: dict[ConnectionState, str] = {
    C.START: "S",
    C.HDR_SENT: "C",
    C.HDR_EXCH: "S R:HDR",
    C.OPEN_PIPE: "C S:OPEN",
    C.OC_PIPE: "C S:OPEN S:CLOSE",
    C.OPEN_RCVD: "S R:HDR R:OPEN",
    C.OPEN_SENT: "C R:HDR S:OPEN",
    C.CLOSE_PIPE: "C S:OPEN S:CLOSE R:HDR",
    C.OPENED: "S R:HDR R:OPEN S:OPEN",
    C.CLOSE_RCVD: "S R:HDR R:OPEN S:OPEN R:CLOSE",
    C.CLOSE_SENT: "S R:HDR R:OPEN S:OPEN S:CLOSE",
    C.DISCARDING: "S R:HDR R:OPEN S:OPEN S:CLOSE(error)",
    C.END: "S R:HDR R:OPEN S:OPEN S:CLOSE R:CLOSE",
}
RAW = {"R:HDR": AMQP_HEADER, "R:OPEN": frames(Open("peer")), "R:CLOSE": frames(Close())}
SENT = {
    "S:OPEN": lambda codec: codec.send_open(),
    "S:CLOSE": lambda codec: codec.send_close(),
    "S:CLOSE(error)": lambda codec: codec.send_close(FORCED),
}


def in_state(state: ConnectionState) -> AmqpConnection:
    """A codec in a state."""
    role, *steps = WAYS[state].split()
    codec = AmqpConnection(container_id="c", server=role == "S")
    for step in steps:
        if step in RAW:
            receive(codec, RAW[step])
        else:
            SENT[step](codec)
    codec.data_to_send()
    assert codec.state is state
    assert failure(codec) is None
    return codec


def test_the_connections_table_is_complete() -> None:
    assert set(CONNECTION) == set(C) == {*WAYS, C.HDR_RCVD}
    assert {trigger for row in CONNECTION.values() for trigger in row} == {*RAW, *SENT, "S:HDR"}
    assert {C.OPENED, C.CLOSE_RCVD, *DISCARDS} < set(C)


#: States in which nothing is listened to, or not yet.
SILENT = {C.OPEN_RCVD, C.CLOSE_RCVD, C.DISCARDING, C.END}


@pytest.mark.parametrize(("state", "trigger"), list(product(WAYS, RAW)))
def test_frames_that_a_connection_receives(state: ConnectionState, trigger: str) -> None:
    codec = in_state(state)
    expected = CONNECTION[state].get(trigger)
    events = receive(codec, RAW[trigger])
    if state is C.START and trigger == "R:HDR":
        expected = C.HDR_EXCH  # a server answers at once
    if expected is not None and state not in SILENT:
        assert codec.state is expected
        assert failure(codec) is None
        assert events
        return
    assert codec.state is state
    assert events == []
    discarded = state is C.CLOSE_SENT and trigger == "R:OPEN"
    assert (failure(codec) is None) == (state in SILENT or discarded)


@pytest.mark.parametrize(("state", "trigger"), list(product(WAYS, SENT)))
def test_frames_that_a_connection_sends(state: ConnectionState, trigger: str) -> None:
    codec = in_state(state)
    expected = CONNECTION[state].get(trigger)
    if trigger == "S:OPEN" and expected is None:
        with pytest.raises(AssertionError):
            codec.send_open()
        return
    SENT[trigger](codec)
    raw = codec.data_to_send()
    if expected is not None:
        assert codec.state is expected
        assert raw
    elif state in CLOSED:
        assert (codec.state, raw) == (state, b"")
    elif state in (C.START, C.HDR_SENT):
        assert (codec.state, raw) == (state, b"")  # nothing can be said before the headers
    else:
        assert state in (C.HDR_EXCH, C.OPEN_RCVD)  # CLOSE needs an OPEN
        assert codec.state in CLOSED
        assert raw
    if trigger != "S:OPEN":
        assert codec.close_expected


@pytest.mark.parametrize("state", WAYS)
def test_other_frames_of_a_connection(state: ConnectionState) -> None:
    codec = in_state(state)
    codec.send_heartbeat()
    assert bool(codec.data_to_send()) == (state in SENDS)
    events = receive(codec, frames(Begin(None, 0, 1, 1)))
    if state is C.OPENED:
        assert isinstance(events[0], Began)
    else:
        assert events == []
        assert (failure(codec) is None) == (state in SILENT | DISCARDS)


# -- sessions ----------------------------------------------------------------------------------------------------------

SESSION_WAYS: dict[SessionState, str] = {
    S.UNMAPPED: "",
    S.BEGIN_SENT: "S:BEGIN",
    S.BEGIN_RCVD: "R:BEGIN",
    S.MAPPED: "R:BEGIN S:BEGIN",
    S.END_SENT: "R:BEGIN S:BEGIN S:END",
    S.END_RCVD: "S:BEGIN R:BEGIN R:END",
    S.DISCARDING: "S:BEGIN R:BEGIN S:END(error)",
    S.LEFT: "R:BEGIN R:END",
    S.WITHDRAWN: "S:BEGIN S:END(error)",
}
SESSION_TRIGGERS = ["S:BEGIN", "S:END", "S:END(error)", "R:BEGIN", "R:END"]
CHANNEL = 5  # the peer's


def session_step(codec: AmqpConnection, session: Session | None, step: str) -> Session:
    """Do one step, on a session that may be yet to come; the session."""
    if step == "R:BEGIN":
        begun = session is not None
        raw = frames(Begin(session.channel if session else None, FIRST_ID, WINDOW, WINDOW), channel=CHANNEL)
        events = of(receive(codec, raw), Began)
        if events:
            return events[0].session
        assert begun
    elif step == "R:END":
        receive(codec, frames(End(), channel=CHANNEL))
    else:
        session = session or codec.new_session()
        if step == "S:BEGIN":
            session.send_begin()
        else:
            session.send_end(session_error("amqp:not-allowed", "No.") if "error" in step else None)
    assert session is not None
    return session


def session_in(state: SessionState) -> tuple[AmqpConnection, Session]:
    """A codec with a session in a state."""
    codec = open_server()
    session = None
    for step in SESSION_WAYS[state].split():
        session = session_step(codec, session, step)
    session = session or codec.new_session()
    codec.data_to_send()
    assert session.state is state
    return codec, session


def test_the_sessions_table_is_complete() -> None:
    assert set(SESSION) == set(S) == set(SESSION_WAYS)
    assert {trigger for row in SESSION.values() for trigger in row} == set(SESSION_TRIGGERS)


@pytest.mark.parametrize(("state", "trigger"), list(product(S, SESSION_TRIGGERS)))
def test_every_step_of_a_session(state: SessionState, trigger: str) -> None:
    codec, session = session_in(state)
    expected = SESSION[state].get(trigger)
    if state is S.UNMAPPED and trigger == "R:BEGIN":
        return  # the peer begins sessions of its own: there is none before
    if expected is not None:
        session_step(codec, session, trigger)
        assert session.state is expected
        assert failure(codec) is None
        assert bool(codec.data_to_send()) == (trigger[0] == "S")
    elif trigger[0] == "R":
        session_step(codec, session, trigger)
        assert session.state is state
        assert failure(codec) is not None
    elif trigger == "S:BEGIN" or state in (S.BEGIN_RCVD, S.LEFT):
        with pytest.raises(KeyError):
            session_step(codec, session, trigger)
    else:
        session_step(codec, session, trigger)  # what has ended may be ended again: nothing is sent
        assert (session.state, codec.data_to_send()) == (state, b"")


@pytest.mark.parametrize("state", S)
def test_other_frames_of_a_session(state: SessionState) -> None:
    codec, session = session_in(state)
    session.send_flow()
    session.send_disposition(RECEIVER, 1, 1)
    assert bool(codec.data_to_send()) == session.sends == (state in SESSION_SENDS)
    raw = frames(Attach("l", 0, SENDER, initial_delivery_count=0), channel=CHANNEL)
    events = receive(codec, raw)
    assert bool(of(events, Attached)) == session.reads == (state in SESSION_READS)
    if state in SESSION_READS | {S.END_SENT, S.DISCARDING}:
        assert failure(codec) is None  # what comes after our END is discarded
    else:
        assert failure(codec) is not None


def test_a_channel_is_free_once_our_end_is_out() -> None:
    for state in S:
        codec, session = session_in(state)
        free = state in (S.END_SENT, S.DISCARDING)
        assert (codec.new_session().channel == session.channel) == free
    codec, session = session_in(S.WITHDRAWN)
    session_step(codec, session, "R:BEGIN")
    assert codec.new_session().channel == session.channel
    codec, session = session_in(S.END_RCVD)
    session.send_end()
    assert codec.new_session().channel == session.channel


# -- links -------------------------------------------------------------------------------------------------------------

LINK_WAYS: dict[LinkState, str] = {
    L.DETACHED: "",
    L.ATTACH_SENT: "S:ATTACH",
    L.ATTACH_RCVD: "R:ATTACH",
    L.ATTACHED: "R:ATTACH S:ATTACH",
    L.DETACH_SENT: "S:ATTACH R:ATTACH S:DETACH",
    L.DETACH_RCVD: "R:ATTACH S:ATTACH R:DETACH",
    L.LEFT: "R:ATTACH R:DETACH",
    L.WITHDRAWN: "S:ATTACH S:DETACH",
}
LINK_TRIGGERS = ["S:ATTACH", "S:DETACH", "R:ATTACH", "R:DETACH"]
HANDLE = 9  # the peer's


def link_step(codec: AmqpConnection, session: Session, link: Link | None, role: bool, step: str) -> Link:
    """Do one step, on a link that may be yet to come; the link."""
    if step == "R:ATTACH":
        count = 0 if role is RECEIVER else None
        events = of(receive(codec, frames(Attach("name", HANDLE, not role, initial_delivery_count=count))), Attached)
        return events[0].link if events else link or session.new_sender("name")
    if step == "R:DETACH":
        receive(codec, frames(Detach(HANDLE)))
    else:
        link = link or (session.new_receiver("name") if role is RECEIVER else session.new_sender("name"))
        if step == "S:ATTACH":
            link.send_attach(source=Source("a"), target=Target("b"))
        else:
            link.send_detach()
    assert link is not None
    return link


def link_in(state: LinkState, role: bool) -> tuple[AmqpConnection, Session, Link]:
    """A codec with a link in a state."""
    codec, session = server_with_session()
    link = None
    for step in LINK_WAYS[state].split():
        link = link_step(codec, session, link, role, step)
    link = link or (session.new_receiver("name") if role is RECEIVER else session.new_sender("name"))
    codec.data_to_send()
    assert (link.state, link.role) == (state, role)
    return codec, session, link


def test_the_links_table_is_complete() -> None:
    assert set(LINK) == set(L) == set(LINK_WAYS)
    assert {trigger for row in LINK.values() for trigger in row} == set(LINK_TRIGGERS)


@pytest.mark.parametrize(("state", "trigger", "role"), list(product(L, LINK_TRIGGERS, [SENDER, RECEIVER])))
def test_every_step_of_a_link(state: LinkState, trigger: str, role: bool) -> None:
    codec, session, link = link_in(state, role)
    expected = LINK[state].get(trigger)
    if trigger == "R:ATTACH" and (expected is None or state is L.DETACHED):
        again = link_step(codec, session, link, role, trigger)
        assert link.state is state
        in_use = state in (L.ATTACH_RCVD, L.ATTACHED, L.DETACH_SENT)
        assert session.failed == in_use  # else the peer attaches another link of the same name
        assert (again is link) == in_use
    elif expected is not None:
        assert link_step(codec, session, link, role, trigger) is link
        assert link.state is expected
        assert not session.failed
        assert bool(codec.data_to_send()) == (trigger[0] == "S")
    elif trigger == "R:DETACH":
        link_step(codec, session, link, role, trigger)
        assert link.state is state
        assert session.failed
    elif trigger == "S:ATTACH" or state in (L.ATTACH_RCVD, L.LEFT):
        with pytest.raises(KeyError):
            link_step(codec, session, link, role, trigger)
    else:
        link_step(codec, session, link, role, trigger)  # what is detached may be detached again: nothing is sent
        assert (link.state, codec.data_to_send()) == (state, b"")


@pytest.mark.parametrize(("state", "role"), list(product(L, [SENDER, RECEIVER])))
def test_flow_in_every_state_of_a_link(state: LinkState, role: bool) -> None:
    codec, session, link = link_in(state, role)
    events = receive(codec, frames(Flow(0, WINDOW, FIRST_ID, WINDOW, HANDLE, 0, 7)))
    known = state in (L.ATTACH_RCVD, L.ATTACHED, L.DETACH_SENT)
    assert session.failed == (not known)
    reads = state in (L.ATTACH_RCVD, L.ATTACHED)
    assert [type(event).__name__ for event in events if known] == (
        [] if not reads else ["Credit" if role is SENDER else "Available"]
    )
    if role is SENDER:
        assert link.credit == (7 if reads else 0)
    if state is L.ATTACHED:
        assert link.sends


def test_attach_and_detach_before_we_answer() -> None:
    codec, session, link = link_in(L.LEFT, SENDER)
    link.send_attach()
    link.send_detach()
    assert link.state is L.DETACHED
    assert session.links == []
    codec, session = server_with_session()
    raw = frames(Attach("a", 0, RECEIVER), Detach(0, True), Attach("b", 0, RECEIVER), End())
    assert [type(event) for event in receive(codec, raw)] == [Attached, Detached, Attached, Ended]
    assert drain(codec) == []


# -- deliveries --------------------------------------------------------------------------------------------------------


def test_the_deliveries_table_is_complete() -> None:
    assert set(DELIVERY) == set(DeliveryState)
    for state in (DeliveryState.RECEIVED, DeliveryState.ABORTED):
        assert DELIVERY[state] == {}


@pytest.mark.parametrize(("begun", "more", "aborted"), list(product([False, True], repeat=3)))
def test_every_step_of_a_delivery(begun: bool, more: bool, aborted: bool) -> None:
    codec, link = receiving_server()
    state = DeliveryState.NOT_RCVD
    if begun:
        state = DeliveryState.RECEIVING
        assert receive(codec, frame(0, Transfer(0, FIRST_ID, b"t", 0, more=True).encode() + b"one ")) == []
    assert link._progress is state
    transfer = Transfer(0, FIRST_ID, b"t", 0, more=more, aborted=aborted)
    events = receive(codec, frame(0, transfer.encode() + b"two"))
    expected = DELIVERY[state][more, aborted]
    names = {DeliveryState.RECEIVED: ["Transfers"], DeliveryState.ABORTED: ["Aborted"], DeliveryState.RECEIVING: []}
    assert [type(event).__name__ for event in events] == names[expected]
    assert link._progress is (
        DeliveryState.RECEIVING if expected is DeliveryState.RECEIVING else DeliveryState.NOT_RCVD
    )
