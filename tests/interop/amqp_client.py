"""An AMQP client on a real socket: our codec in its other role, for peers and moments that no library offers.

Everything is waited for on the socket, and every wait ends.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from protocols.amqp.connection import AmqpConnection
from protocols.amqp.events import Attached, Detached, Dispositions, Ended, Event, Transfers
from protocols.amqp.link import Link
from protocols.amqp.message import AMQP_VALUE, Message, encode_section
from protocols.amqp.performatives import (
    RECEIVER,
    Accepted,
    Close,
    Coordinator,
    Declare,
    Declared,
    DeliveryState,
    Discharge,
    Error,
    Outcome,
    Source,
    Target,
    TransactionalState,
)
from protocols.amqp.receiver import Receiver
from protocols.amqp.sender import Sender
from protocols.amqp.session import Session

#: How long to wait for something that has to come, in seconds.
PATIENCE_S: Final = 30.0


class Lost(Exception):
    """The connection ended while something was waited for."""


class Wire(Protocol):
    """What the bytes go through: a socket, or a WebSocket."""

    def send(self, data: bytes) -> None:
        """All of it.  Raises OSError."""

    def recv(self) -> bytes:
        """Some; empty at the end.  Raises OSError."""

    def close(self) -> None:
        """Without a word."""


class SocketWire:
    """A plain socket."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)

    def send(self, data: bytes) -> None:
        """See Wire.  Raises Lost when the broker has hung up; what it said before can still be read."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as gone:
            raise Lost("the broker has hung up") from gone

    def recv(self) -> bytes:
        """See Wire."""
        return self.socket.recv(1 << 18)

    def close(self) -> None:
        """See Wire."""
        self.socket.close()


@dataclass(slots=True)
class Delivery:
    """A message that arrived."""

    link: Receiver
    id: int
    payload: bytes

    @property
    def message(self) -> Message:
        """What it says."""
        return Message(self.payload)

    @property
    def body(self) -> object:
        """Its body's value."""
        return self.message.body()[1][0]


class AmqpClient:
    """One connection with one session."""

    def __init__(self, wire: Wire, *, container: str = "interop") -> None:
        self.wire = wire
        self.codec = AmqpConnection(container_id=container, server=False)
        self.arrived: list[Delivery] = []
        self.outcomes: dict[object, DeliveryState | None] = {}
        self.confirmed: set[int] = set()  # deliveries whose outcome the broker has settled
        self.ends: dict[object, Error | None] = {}
        self.closed: Close | None = None
        self._attached: set[Link] = set()
        self.codec.send_open()
        self.session: Session = self.codec.new_session()
        self.session.send_begin()
        self.wait(lambda: self.codec.peer is not None)

    # -- the wire --------------------------------------------------------------------------------------------------

    def say(self) -> None:
        """Everything that the codec has to say.  Raises Lost."""
        try:
            if data := self.codec.data_to_send():
                self.wire.send(data)
        except OSError as error:
            raise Lost("said") from error

    def wait(self, enough: Callable[[], object]) -> None:
        """Read until it is enough.  Raises Lost, TimeoutError."""
        self.say()
        while not enough():
            try:
                data = self.wire.recv()
            except ConnectionError as error:
                raise Lost("heard") from error
            if not data:
                raise Lost("heard")
            self.codec.receive_data(data)
            while events := self.codec.events():
                for event in events:
                    self._on(event)
            self.say()

    def _on(self, event: Event) -> None:
        match event:
            case Transfers():
                for id, payload in zip(event.ids, event.payloads, strict=True):
                    self.arrived.append(Delivery(event.link, id, payload))
            case Dispositions(link=Receiver(), first=first, contexts=tags):
                self.confirmed.update(range(first, first + len(tags)))
            case Dispositions():
                self.outcomes.update(dict.fromkeys(event.contexts, event.state))
            case Attached():
                self._attached.add(event.link)
            case Detached():
                self.ends[event.link] = event.error
            case Ended():
                self.ends[event.session] = event.error
            case Close():
                self.closed = event

    def rest(self) -> Error | None:
        """Read until the broker hangs up: the error of its CLOSE."""
        try:
            self.wait(lambda: False)
        except Lost:
            return None if self.closed is None else self.closed.error
        raise AssertionError("the broker goes on")

    # -- links -----------------------------------------------------------------------------------------------------

    def sender(self, address: str) -> Sender:
        """A producer's link, with the broker's credit."""
        link = self.session.new_sender(f"to {address} {len(self.session.links)}")
        link.send_attach(source=Source("me"), target=Target(address))
        self.wait(lambda: link.credit > 0 or link in self.ends)
        return link

    def receiver(self, address: str, *, credit: int = 100, **source: Any) -> Receiver:
        """A consumer's link, with credit."""
        link = self.session.new_receiver(f"from {address} {len(self.session.links)}")
        link.send_attach(source=Source(address, **source), target=Target("me"))
        self.wait(lambda: link in self._attached)
        if credit:
            link.send_credit(credit)
            self.say()
        return link

    # -- messages --------------------------------------------------------------------------------------------------

    def post(self, link: Sender, *payloads: bytes, tx: bytes | None = None) -> list[object]:
        """Send, and wait for nothing but credit; what their outcomes are kept under."""
        state = None if tx is None else TransactionalState(tx)
        contexts: list[object] = [object() for _ in payloads]
        self.wait(lambda: link.room >= len(payloads))
        link.send(payloads, contexts, state=state)
        self.say()
        return contexts

    def put(self, link: Sender, *payloads: bytes, tx: bytes | None = None) -> list[DeliveryState | None]:
        """Send, and wait for the outcomes."""
        contexts = self.post(link, *payloads, tx=tx)
        self.wait(lambda: all(context in self.outcomes for context in contexts))
        return [self.outcomes.pop(context) for context in contexts]

    def take(self, number: int = 1) -> list[Delivery]:
        """The next so many messages."""
        self.wait(lambda: len(self.arrived) >= number)
        taken, self.arrived = self.arrived[:number], self.arrived[number:]
        return taken

    def settle(self, delivery: Delivery, state: Outcome | None = None, *, tx: bytes | None = None) -> None:
        """An outcome, `accepted` if none is given; `confirmed` has it once the broker says so."""
        outcome = Accepted() if state is None else state
        said = outcome if tx is None else TransactionalState(tx, outcome)
        self.session.send_disposition(RECEIVER, delivery.id, delivery.id, settled=False, state=said)
        self.say()

    # -- transactions ----------------------------------------------------------------------------------------------

    def coordinator(self) -> Sender:
        """A link to the coordinator."""
        link = self.session.new_sender(f"tx {len(self.session.links)}")
        link.send_attach(source=Source("me"), target=Coordinator())
        self.wait(lambda: link.credit > 0)
        return link

    def declare(self, link: Sender) -> bytes:
        """Begin a transaction."""
        [state] = self.put(link, encode_section(AMQP_VALUE, Declare()))
        assert isinstance(state, Declared)
        return state.txn_id

    def discharge(self, link: Sender, tx: bytes, *, fail: bool = False) -> DeliveryState | None:
        """End a transaction, and wait for the coordinator's answer."""
        [state] = self.put(link, encode_section(AMQP_VALUE, Discharge(tx, fail)))
        return state

    # -- the end ---------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """CLOSE, and the broker's."""
        self.codec.send_close()
        assert self.rest() is None

    def drop(self) -> None:
        """End the connection without a word."""
        self.wire.close()


@contextmanager
def amqp(port: int, *, container: str = "interop") -> Iterator[AmqpClient]:
    """A client that is gone afterwards."""
    wire = SocketWire(port)
    try:
        yield AmqpClient(wire, container=container)
    finally:
        wire.close()
