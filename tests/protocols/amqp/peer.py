"""Two codecs that talk to each other, in the states that tests begin with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from protocols.amqp.composite import Composite
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.errors import AmqpError
from protocols.amqp.events import Attached, Began, Event
from protocols.amqp.frames import AMQP_HEADER, frame
from protocols.amqp.limits import Limits
from protocols.amqp.link import Link
from protocols.amqp.performatives import RECEIVER, SENDER, Attach, Begin, Open, Source, Target
from protocols.amqp.receiver import Receiver
from protocols.amqp.sender import Sender
from protocols.amqp.session import Session

Kind = TypeVar("Kind")

LIMITS: Final = Limits()
WINDOW: Final = 2048
FIRST_ID: Final = 0xFFFF_FFFE  # the peer's transfers and deliveries count from here: they wrap around soon


def only(events: Iterable[Event], kind: type[Kind]) -> Kind:
    """The one event, which is of this kind."""
    [event] = events
    assert isinstance(event, kind)
    return event


def of(events: Iterable[Event], kind: type[Kind]) -> list[Kind]:
    """The events of one kind."""
    return [event for event in events if isinstance(event, kind)]


def drain(codec: AmqpConnection) -> list[Event]:
    """All events that there are."""
    events: list[Event] = []
    while found := codec.events():
        events += found
    return events


def receive(codec: AmqpConnection, data: bytes) -> list[Event]:
    """The events of some bytes."""
    codec.receive_data(data)
    return drain(codec)


def failure(codec: AmqpConnection) -> AmqpError | None:
    """What was wrong; a function, since it changes between two looks."""
    return codec.error


def failed(codec: AmqpConnection) -> AmqpError:
    """What was wrong, as something was."""
    error = codec.error
    assert error is not None
    return error


def frames(*bodies: Composite, channel: int = 0) -> bytes:
    """Frames as a peer sends them."""
    return b"".join([frame(channel, body.encode()) for body in bodies])


class Pair:
    """A client and a server; what each has to tell is kept until it is asked for."""

    def __init__(self, client: AmqpConnection, server: AmqpConnection) -> None:
        self.client = client
        self.server = server
        self.errors: list[AmqpError] = []

    def to_server(self) -> list[Event]:
        """Carry the client's bytes over; the server's events."""
        return receive(self.server, self.client.data_to_send())

    def to_client(self) -> list[Event]:
        """Carry the server's bytes over; the client's events."""
        return receive(self.client, self.server.data_to_send())


def opened(limits: Limits = LIMITS, client_limits: Limits = LIMITS) -> Pair:
    """Both have sent OPEN, without SASL."""
    client = AmqpConnection(client_limits, container_id="client", server=False)
    server = AmqpConnection(limits, container_id="server")
    pair = Pair(client, server)
    pair.to_server()
    pair.to_client()
    client.send_open()
    only(pair.to_server(), Open)
    server.send_open()
    only(pair.to_client(), Open)
    return pair


def begun(pair: Pair) -> tuple[Session, Session]:
    """A session, the client's and the server's end of it."""
    mine = pair.client.new_session()
    mine.send_begin()
    theirs = only(pair.to_server(), Began).session
    theirs.send_begin()
    assert only(pair.to_client(), Began).session is mine
    return mine, theirs


def attach(pair: Pair, link: Link) -> Link:
    """Attach a link of the client's; the server's end of it."""
    source, target = Source("here"), Target("there")
    link.send_attach(source=source, target=target)
    answer = only(pair.to_server(), Attached).link
    answer.send_attach(source=source, target=target)
    assert only(pair.to_client(), Attached).link is link
    return answer


def producing(limits: Limits = LIMITS, client_limits: Limits = LIMITS) -> tuple[Pair, Sender, Receiver]:
    """A link from the client to the server."""
    pair = opened(limits, client_limits)
    sender = begun(pair)[0].new_sender("link")
    receiver = attach(pair, sender)
    assert isinstance(receiver, Receiver)
    return pair, sender, receiver


def consuming(limits: Limits = LIMITS, client_limits: Limits = LIMITS) -> tuple[Pair, Receiver, Sender]:
    """A link from the server to the client."""
    pair = opened(limits, client_limits)
    receiver = begun(pair)[0].new_receiver("link")
    sender = attach(pair, receiver)
    assert isinstance(sender, Sender)
    return pair, receiver, sender


def open_server(limits: Limits = LIMITS) -> AmqpConnection:
    """A server that has answered OPEN."""
    server = AmqpConnection(limits, container_id="server")
    receive(server, AMQP_HEADER + frames(Open("client")))
    server.send_open()
    server.data_to_send()
    return server


def server_with_session(limits: Limits = LIMITS) -> tuple[AmqpConnection, Session]:
    """A server with a session on channel 0, of which the client numbers from FIRST_ID on."""
    server = open_server(limits)
    session = only(receive(server, frames(Begin(None, FIRST_ID, WINDOW, WINDOW))), Began).session
    session.send_begin()
    server.data_to_send()
    return server, session


def server_with_link(role: bool, limits: Limits = LIMITS) -> tuple[AmqpConnection, Link]:
    """... and with a link, of which `role` is the server's; a Receiver has given credit for 100."""
    server, _ = server_with_session(limits)
    counted = 0 if role is RECEIVER else None
    raw = frames(Attach("link", 0, not role, source=Source("a"), target=Target("b"), initial_delivery_count=counted))
    link = only(receive(server, raw), Attached).link
    link.send_attach(source=Source("a"), target=Target("b"))
    if isinstance(link, Receiver):
        link.send_credit(100)
    server.data_to_send()
    return server, link


def another_receiver(codec: AmqpConnection, handle: int, credit: int = 9, *, channel: int = 0) -> Receiver:
    """One more link of a server's, on which it takes messages."""
    raw = frames(Attach(f"{channel} {handle}", handle, SENDER, initial_delivery_count=0), channel=channel)
    link = only(receive(codec, raw), Attached).link
    assert isinstance(link, Receiver)
    link.send_attach()
    link.send_credit(credit)
    return link


def receiving_server(limits: Limits = LIMITS) -> tuple[AmqpConnection, Receiver]:
    """A server with a link that takes messages."""
    server, link = server_with_link(RECEIVER, limits)
    assert isinstance(link, Receiver)
    return server, link


def sending_server(limits: Limits = LIMITS) -> tuple[AmqpConnection, Sender]:
    """A server with a link that gives messages."""
    server, link = server_with_link(SENDER, limits)
    assert isinstance(link, Sender)
    return server, link


def session_of(link: Link) -> Session:
    """The session that a link is on."""
    assert isinstance(link.session, Session)
    return link.session
