"""An AMQP client at the level of frames: the codec in its client role, over any link, with one session.

A simulated broker has answered completely when a call returns; a broker in a process is waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from websockets.sync.client import ClientConnection

from protocols.amqp.connection import AmqpConnection
from protocols.amqp.encode import encode
from protocols.amqp.events import (
    Attached,
    Detached,
    Dispositions,
    Ended,
    Event,
    Transfers,
)
from protocols.amqp.limits import Limits
from protocols.amqp.link import Link
from protocols.amqp.message import AMQP_VALUE, Message, encode_application_properties, encode_section
from protocols.amqp.performatives import (
    RECEIVER,
    Accepted,
    Attach,
    Close,
    Coordinator,
    Declare,
    Declared,
    DeliveryState,
    Discharge,
    Error,
    Header,
    Open,
    Properties,
    Rejected,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    TransactionalState,
)
from protocols.amqp.receiver import Receiver
from protocols.amqp.sender import Sender
from protocols.amqp.session import Session
from tests.support.links import Link as Carrier
from tests.support.links import Lost, SocketLink, WebSocketLink
from tests.support.sim_broker import SimBroker, SimPeer


def message(
    body: object = None,
    *,
    durable: bool = True,
    header: Header | None = None,
    properties: Properties | None = None,
    application: dict[str, object] | None = None,
    annotations: bytes = b"",
) -> bytes:
    """Encode a message with an amqp-value."""
    parts = [encode(header if header is not None else Header(durable)), annotations]
    if properties is not None:
        parts.append(encode(properties))
    parts += [encode_application_properties(application or {}), encode_section(AMQP_VALUE, body)]
    return b"".join(parts)


@dataclass(slots=True)
class Delivery:
    """A message that arrived."""

    link: Receiver
    id: int
    payload: bytes
    settled: bool

    @property
    def message(self) -> Message:
        """The decoded message."""
        return Message(self.payload)

    @property
    def body(self) -> object:
        """Its body's value."""
        return self.message.body()[1][0]


@dataclass(slots=True)
class Outcome:
    """The outcome of a message that was sent."""

    context: object
    state: DeliveryState | None
    settled: bool


def rejection(state: object) -> Error:
    """Return why a message was rejected."""
    assert isinstance(state, Rejected)
    assert state.error is not None
    return state.error


class AmqpClient(Carrier):
    """One connection with one session."""

    def __init__(
        self,
        container: str,
        *,
        login: tuple[str, str] | None = None,
        desired: tuple[str, ...] = (),
        limits: Limits | None = None,
        idle_time_out: int | None = None,
    ) -> None:
        self.codec = AmqpConnection(
            limits or Limits(), container_id=container, server=False, mechanisms=("PLAIN",) if login else ()
        )
        self.events: list[Event] = []  # all but messages
        self.arrived: list[Delivery] = []
        self.outcomes: list[Outcome] = []
        self.confirmed: set[int] = set()  # deliveries whose outcome the broker has settled
        self.ends: dict[object, Error | None] = {}  # links and sessions that the broker has ended
        self.say()
        if login:
            self.wait(lambda: self._has(SaslMechanisms))
            self.codec.send_sasl(SaslInit("PLAIN", b"\0" + "\0".join(login).encode()))
            self.wait(lambda: self.closed or self._has(SaslOutcome))
            if self.closed:
                return
        self.codec.send_open(desired_capabilities=desired, idle_time_out=idle_time_out)
        self.wait(lambda: self.open is not None)
        self.ses: Session
        self.begin()

    def begin(self) -> None:
        """Begin a session, which is that of links from now on."""
        self.ses = self.codec.new_session()
        if self.open is not None and not self.closed:
            self.ses.send_begin()
            self.say()

    def _has(self, kind: type[Any]) -> bool:
        return any(isinstance(event, kind) for event in self.events)

    # -- the wire --------------------------------------------------------------------------------------------------

    def heard(self, data: bytes) -> None:
        """See Link."""
        self.codec.receive_data(data)
        while events := self.codec.events():
            for event in events:
                self._on(event)

    def _on(self, event: Event) -> None:
        if isinstance(event, Transfers):
            for id, payload in zip(event.ids, event.payloads, strict=True):
                self.arrived.append(Delivery(event.link, id, payload, event.settled))
            return
        self.events.append(event)
        if isinstance(event, Dispositions):
            self.outcomes += [Outcome(context, event.state, event.settled) for context in event.contexts]
            if isinstance(event.link, Receiver):
                self.confirmed.update(range(event.first, event.first + len(event.contexts)))
        elif isinstance(event, Detached):
            self.ends[event.link] = event.error
        elif isinstance(event, Ended):
            self.ends[event.session] = event.error

    def wait(self, enough: Callable[[], object]) -> None:
        """See Link."""
        self.say()
        super().wait(enough)

    def read(self) -> None:
        """See Link; sends the answers, too."""
        super().read()
        self.say()

    def say(self) -> None:
        """Send all bytes of the codec, also those that follow from the answers."""
        for _ in range(4):
            data = self.codec.data_to_send()
            if not data or self.closed:
                return
            self.raw(data)

    def rest(self) -> Error | None:
        """Read until the broker hangs up; returns the error of its CLOSE, if any.  Raises TimeoutError."""
        try:
            self.wait(lambda: False)
        except Lost:
            closes = self.of(Close)
            return closes[0].error if closes else None
        raise AssertionError("the broker goes on")

    def leave(self) -> None:
        """Send CLOSE, and wait for the broker's."""
        self.codec.send_close()
        assert self.rest() is None

    def of(self, kind: type[Any]) -> list[Any]:
        """Remove and return the events of one kind."""
        found = [event for event in self.events if isinstance(event, kind)]
        self.events = [event for event in self.events if not isinstance(event, kind)]
        return found

    @property
    def open(self) -> Open | None:
        """The broker's OPEN."""
        return self.codec.peer

    @property
    def closed_with(self) -> Error | None:
        """The error of the broker's CLOSE."""
        [close] = self.of(Close)
        assert isinstance(close, Close)
        return close.error

    @property
    def closing(self) -> Error:
        """The same, as there is one."""
        error = self.closed_with
        assert error is not None
        return error

    @property
    def offered(self) -> tuple[str, ...]:
        """The broker's mechanisms."""
        [event] = self.of(SaslMechanisms)
        return tuple(event.sasl_server_mechanisms)

    @property
    def sasl_code(self) -> int:
        """The code of the login's outcome."""
        [event] = self.of(SaslOutcome)
        return int(event.code)

    # -- links -----------------------------------------------------------------------------------------------------

    def sender(self, address: str | None, *capabilities: str, name: str = "", **more: Any) -> Sender:
        """Attach a producer's link."""
        link = self.ses.new_sender(name or f"to {address} {len(self.ses.links)}")
        ends = {"source": Source("me"), "target": Target(address, capabilities=capabilities)}
        link.send_attach(**ends | more)
        self.wait(lambda: link.credit > 0 or link in self.ends)
        return link

    def receiver(
        self, address: str | None, *capabilities: str, credit: int = 100, name: str = "", **more: Any
    ) -> Receiver:
        """Attach a consumer's link, with credit."""
        link = self.ses.new_receiver(name or f"from {address} {len(self.ses.links)}")
        options = {key: more.pop(key) for key in tuple(more) if key in Source.__dataclass_fields__}
        source = more.pop("source", Source(address, capabilities=capabilities, **options))
        link.send_attach(source=source, target=Target("me"), **more)
        self.wait(lambda: link.attach is not None or link in self.ends)
        if credit and link.attach is not None and link.attach.source is not None:
            link.send_credit(credit)
            self.say()
        return link

    def answer(self, link: Link) -> Attach:
        """Return the broker's ATTACH."""
        [event] = [event for event in self.events if isinstance(event, Attached) and event.link is link]
        return event.attach

    def own_address(self, capability: str) -> str:
        """Attach a consumer's link to a temporary destination of its own; returns the address of that."""
        source = self.answer(self.receiver(None, capability, dynamic=True)).source
        assert isinstance(source, Source)
        assert source.address is not None
        return source.address

    def refused(self, link: Link) -> Error:
        """Return the error with which the broker refused or ended a link."""
        [event] = [event for event in self.events if isinstance(event, Detached) and event.link is link]
        assert event.error is not None
        return event.error

    def ended(self) -> Error | None:
        """Return the error with which the broker ended the session."""
        [event] = self.of(Ended)
        assert isinstance(event, Ended)
        return event.error

    def detach(self, link: Link, *, closed: bool = True) -> None:
        """Send DETACH."""
        link.send_detach(closed=closed)
        self.say()

    # -- messages --------------------------------------------------------------------------------------------------

    def send(self, link: Sender, *payloads: bytes, settled: bool = False, tx: bytes | None = None) -> list[Outcome]:
        """Send messages; removes and returns the outcomes so far."""
        state = None if tx is None else TransactionalState(tx)
        link.send(payloads, list(range(len(payloads))), settled=settled, state=state)
        self.say()
        outcomes, self.outcomes = self.outcomes, []
        return outcomes

    def post(self, link: Sender, *payloads: bytes, tx: bytes | None = None) -> list[object]:
        """Send as soon as there is credit, without waiting for outcomes; returns the contexts of these."""
        state = None if tx is None else TransactionalState(tx)
        contexts: list[object] = [object() for _ in payloads]
        self.wait(lambda: link.room >= len(payloads))
        link.send(payloads, contexts, state=state)
        self.say()
        return contexts

    def put(self, link: Sender, *payloads: bytes, tx: bytes | None = None) -> list[DeliveryState | None]:
        """Send, and wait for the outcomes; removes and returns them."""
        contexts = self.post(link, *payloads, tx=tx)
        self.wait(lambda: set(contexts) <= {outcome.context for outcome in self.outcomes})
        states = {outcome.context: outcome.state for outcome in self.outcomes}
        self.outcomes = [outcome for outcome in self.outcomes if outcome.context not in contexts]
        return [states[context] for context in contexts if context in states]

    def take(self, number: int | None = None) -> list[Delivery]:
        """Return the next `number` messages; or those that have arrived since the last call."""
        if number is not None:
            self.wait(lambda: len(self.arrived) >= number)
        taken = self.arrived[:number]
        del self.arrived[: len(taken)]
        return taken

    def bodies(self) -> list[object]:
        """Return the bodies of the messages that have arrived since the last call."""
        return [delivery.body for delivery in self.take()]

    def settle(
        self, *deliveries: Delivery, state: DeliveryState | None = None, settled: bool = True, tx: bytes | None = None
    ) -> None:
        """Send an outcome for deliveries, `accepted` if none is given."""
        outcome = Accepted() if state is None else state
        if tx is not None:
            outcome = TransactionalState(tx, outcome)  # type: ignore[arg-type]
        for delivery in deliveries:
            self.ses.send_disposition(RECEIVER, delivery.id, delivery.id, settled=settled, state=outcome)
        self.say()

    # -- transactions ----------------------------------------------------------------------------------------------

    def coordinator(self, **more: Any) -> Sender:
        """Attach a link to the coordinator."""
        return self.sender(None, name=f"tx {len(self.ses.links)}", target=Coordinator(), **more)

    def declare(self, link: Sender) -> bytes:
        """Begin a transaction; returns its id."""
        [state] = self.put(link, encode_section(AMQP_VALUE, Declare()))
        assert isinstance(state, Declared)
        return state.txn_id

    def discharge(self, link: Sender, tx: bytes, *, fail: bool = False) -> DeliveryState | None:
        """End a transaction; returns the coordinator's answer, None if there is none yet."""
        states = self.put(link, encode_section(AMQP_VALUE, Discharge(tx, fail)))
        return states[0] if states else None


class AmqpSim(AmqpClient, SimPeer):
    """A client of the simulated broker, on a perfect wire."""

    def __init__(self, broker: SimBroker, container: str = "sim", **more: Any) -> None:
        SimPeer.__init__(self, broker, "amqp", broker.number())
        broker.attached(self)
        AmqpClient.__init__(self, container, **more)


class AmqpSocket(AmqpClient, SocketLink):
    """A client on a socket of its own, for behavior that no library offers."""

    def __init__(self, port: int, container: str = "interop", **more: Any) -> None:
        SocketLink.__init__(self, port)
        try:
            AmqpClient.__init__(self, container, **more)
        except BaseException:
            self.drop()
            raise


class AmqpWebSocket(AmqpClient, WebSocketLink):
    """A client in a WebSocket."""

    def __init__(self, connection: ClientConnection) -> None:
        WebSocketLink.__init__(self, connection)
        AmqpClient.__init__(self, "web")
