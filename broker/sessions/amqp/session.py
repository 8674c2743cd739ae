"""The broker's side of a client's AMQP 1.0 connection: login, and attaching links.  `endpoint` handles the rest."""

from __future__ import annotations

from typing import Final

from broker.engine import DeliveryOutcome, LongWork, redelivery
from broker.engine.model.errors import EngineError
from broker.sessions import sasl
from broker.sessions.amqp.attach import Attacher, refuse
from broker.sessions.amqp.endpoint import SHARED, AmqpEndpoint, Handlers
from broker.sessions.amqp.login import Login
from broker.sessions.amqp.outgoing import OutgoingLink
from broker.sessions.amqp.terms import (
    CLASH,
    NOT_ESTABLISHED,
    OFFERED,
    PRODUCT,
    SOLE,
    SOLE_CONNECTION,
    AmqpOptions,
    refused,
)
from broker.sessions.amqp.transactions import OpenTransaction, Transactions
from broker.sessions.login import Gate, Peer
from broker.sessions.tick import Tick, Transport
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.errors import (
    FRAMING_ERROR,
    INVALID_FIELD,
    UNAUTHORIZED_ACCESS,
    AmqpError,
    FrameTooLarge,
    Scope,
    connection_error,
)
from protocols.amqp.events import Attached, Began, Ended, Refused, SessionFailed, Withdrawn
from protocols.amqp.limits import Limits
from protocols.amqp.link import Link
from protocols.amqp.performatives import DeliveryState, Error, Open, SaslInit, SaslResponse, TransactionalState
from protocols.amqp.session import Session

#: The shortest idle-time-out accepted from a peer (part 2, 2.4.5), in ms: two checks of the network's timers.
IDLE_TIMEOUT_MIN_MS: Final = 500

#: What it costs to end a link with its session, in microseconds (`broker.engine.queues.steps`).
LINK_COST: Final = 30


class AmqpSession(AmqpEndpoint):
    """The broker's side of one client's connection."""

    def __init__(
        self,
        tick: Tick,
        transport: Transport,
        options: AmqpOptions,
        limits: Limits,
        *,
        connection_id: str,
        peer: Peer,
        gate: Gate,
        containers: set[tuple[str, str]],
    ) -> None:
        codec = AmqpConnection(
            limits,
            container_id=options.container_id,
            mechanisms=(offered := gate.mechanisms(peer)),
            sasl_required=sasl.ANONYMOUS not in offered,
        )
        super().__init__(tick, transport, options, codec, connection_id=connection_id, peer=peer)
        self._containers = containers
        self._login = Login(codec, gate, peer, self.reading)
        self._sole = False
        self._transactions = Transactions(tick.engine, options.transactions_max)
        self._attacher: Attacher | None = None  # before OPEN: connections without login must cost little

    @property
    def handlers(self) -> Handlers:
        return _HANDLERS

    def refuse_before_login(self, nbytes: int, most: int) -> None:
        """End as after a first frame that is too large."""
        text = f"Around a login {most} bytes may be sent, there are {nbytes}."
        self.fail_with(FrameTooLarge(FRAMING_ERROR, text))

    def ending(self) -> None:
        self._login.over = True
        if self._sole:
            self._containers.discard((self.access.user, self.container))

    def ended(self) -> None:
        self._transactions.abandon()  # without consumers, so that a delivery fails once
        if self._attacher is not None:
            self._attacher.release_all()
            self._attacher = None  # it refers to this connection

    def _on_sasl(self, event: SaslInit | SaslResponse) -> None:
        self._login.step(event, self.proceed)
        self.touch()

    def _on_open(self, event: Open) -> None:
        identity = self._login.identity()
        if identity is None:
            raise connection_error(UNAUTHORIZED_ACCESS, "A login is needed: begin with the SASL protocol header.")
        if event.idle_time_out and event.idle_time_out < IDLE_TIMEOUT_MIN_MS:
            text = f"open: an idle-time-out is at least {IDLE_TIMEOUT_MIN_MS} ms, not {event.idle_time_out}."
            raise connection_error(INVALID_FIELD, text)
        self.container = event.container_id
        self.access = self.engine.security.access(identity, event.container_id)
        self.origin = event.container_id or self.id
        if SOLE_CONNECTION in event.desired_capabilities:
            if (self.access.user, event.container_id) in self._containers:
                self._send_open(NOT_ESTABLISHED)
                self.codec.send_close(Error(INVALID_FIELD, "container-id is in use", CLASH))
                self.end(redelivery.CLOSED)
                return
            self._containers.add((self.access.user, event.container_id))
            self._sole = True
        self._attacher = Attacher(self, self._transactions)
        self._send_open(SOLE if self._sole else {})
        self.opened("AMQP", self.access)

    def _send_open(self, properties: dict[str, object]) -> None:
        idle_time_out = self.options.idle_timeout // 2 or None
        properties = {"product": PRODUCT, "version": self.options.version} | properties
        listed = properties | self.options.failover
        try:
            self.codec.send_open(idle_time_out=idle_time_out, offered_capabilities=OFFERED, properties=listed)
        except AmqpError:  # the list is too long for the peer's frames
            self.codec.send_open(idle_time_out=idle_time_out, offered_capabilities=OFFERED, properties=properties)
        self.touch()

    def end_session(self, session: Session, how: DeliveryOutcome, error: AmqpError | None = None) -> None:
        super().end_session(session, how, error)
        assert self._attacher is not None, "the connection is open"
        self._attacher.session_ended(session)

    def _on_ended(self, event: Ended) -> None:
        self._steps.work(self, self._ending(event.session, redelivery.CLOSED))

    def _on_session_failed(self, event: SessionFailed) -> None:
        self._steps.work(self, self._ending(event.session, redelivery.INTERRUPTED, event.error))

    def _ending(self, session: Session, how: DeliveryOutcome, error: AmqpError | None = None) -> LongWork:
        """End a session in steps, as it may have a thousand links; the peer sends nothing more in it."""
        self.incoming.publish()
        for link in self.links_of(session):
            self.drop(link, closed=False, detached=True, how=how)
            yield LINK_COST
        self.end_session(session, how, error)

    def _on_attached(self, event: Attached) -> None:
        """Attach a link.  A peer that cannot be answered, as it takes no such handle or frame, loses its session."""
        link, session = event.link, event.link.session
        assert isinstance(session, Session)
        assert self._attacher is not None, "the connection is open"
        if not session.sends:
            return  # it has ended
        self.part(link)
        try:
            try:
                self._attacher.attach(link, event.attach)
                link.forget_terms()
            except (EngineError, AmqpError) as refusal:
                if isinstance(refusal, AmqpError):
                    if refusal.scope is not Scope.LINK:
                        raise
                    self.report_error(refusal)
                refuse(link, refused(refusal))
        except AmqpError as unanswerable:
            self.end_session(session, redelivery.INTERRUPTED, unanswerable)

    def _on_refused(self, event: Refused) -> None:
        """Refuse a link over the limit; the others continue."""
        self.report_error(event.error)
        refuse(event.link, refused(event.error))

    def drop(
        self, link: Link, *, closed: bool, detached: bool = False, how: DeliveryOutcome = redelivery.CLOSED
    ) -> None:
        gone = self.outgoing.by_link.get(link)
        super().drop(link, closed=closed, detached=detached, how=how)
        if isinstance(gone, OutgoingLink) and gone.reserves:  # its messages go to another link of this peer
            for other in self.outgoing.by_link.values():
                if isinstance(other, OutgoingLink):
                    other.send_available()
        if self._attacher is not None:  # else the connection has ended, and everything is released
            self._attacher.release(link, closed=closed, detached=detached)

    def dropped(self, state: DeliveryState | None) -> None:
        if isinstance(state, TransactionalState):
            self._transactions.let_only_roll_back(state.txn_id)

    def transaction(self, txn_id: bytes) -> OpenTransaction:
        return self._transactions.find(txn_id)


#: The function that handles each event; one table for all connections, as those without login must cost little.
_HANDLERS: Final[Handlers] = {
    **SHARED,
    **dict.fromkeys((SaslInit, SaslResponse), AmqpSession._on_sasl),
    Open: AmqpSession._on_open,
    Began: lambda _, event: event.session.send_begin(),
    Attached: AmqpSession._on_attached,
    Refused: AmqpSession._on_refused,
    Withdrawn: lambda session, event: session.dropped(event.state),
    Ended: AmqpSession._on_ended,
    SessionFailed: AmqpSession._on_session_failed,
}
