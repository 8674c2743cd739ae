"""An AMQP 1.0 connection: the codec's events become engine verbs, deliveries become transfers.

Messages that arrive are gathered by their links (`incoming`) and published when the read has been looked at, or
before a frame that needs it done.  Answers (outcomes of messages, of discharges, of our own deliveries) are given once
everything done before them is durable (promise P1), in their order, those that follow each other as one range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from broker.engine import DeliveryOutcome, redelivery
from broker.engine.model.errors import EngineError
from broker.sessions import sasl
from broker.sessions.amqp import containers as amqp_containers
from broker.sessions.amqp.answers import Answer, settle
from broker.sessions.amqp.attach import Attacher, refuse
from broker.sessions.amqp.containers import Containers
from broker.sessions.amqp.incoming import IncomingLink, PendingPublishes, rejects
from broker.sessions.amqp.link_owner import LinkOwner, Outgoing
from broker.sessions.amqp.login import Login, report_error
from broker.sessions.amqp.outgoing import OutgoingLink
from broker.sessions.amqp.terms import OFFERED, SOLE_CONNECTION, AmqpOptions, refused
from broker.sessions.amqp.transactions import OpenTransaction, Transactions, coordinate
from broker.sessions.confirmations import Confirmations
from broker.sessions.login import Gate, Peer
from broker.sessions.tick import Tick, Transport
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.errors import (
    CONNECTION_FORCED,
    INTERNAL_ERROR,
    INVALID_FIELD,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
    AmqpError,
    Scope,
    connection_error,
)
from protocols.amqp.events import (
    Aborted,
    Attached,
    Began,
    Credit,
    Detached,
    Dispositions,
    Ended,
    LinkFailed,
    Portion,
    Refused,
    SessionFailed,
    Transfers,
    WindowOpened,
)
from protocols.amqp.limits import Limits
from protocols.amqp.link import Channel, Link
from protocols.amqp.performatives import (
    Close,
    DeliveryState,
    Error,
    Open,
    SaslInit,
    SaslResponse,
)
from protocols.amqp.receiver import Receiver
from protocols.amqp.session import Session

#: The shortest idle-time-out of a peer's that is kept (part 2, 2.4.5), in ms: two of the network's looks at its timers.
IDLE_TIMEOUT_MIN_MS: Final = 500


class AmqpSession(LinkOwner):
    """The broker's side of one AMQP connection."""

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
        containers: Containers,
    ) -> None:
        super().__init__(tick, transport, options, connection_id, peer)
        self._containers = containers
        self._codec = AmqpConnection(
            limits,
            container_id=options.container_id,
            mechanisms=(offered := gate.mechanisms(peer)),
            sasl_required=sasl.ANONYMOUS not in offered,
        )
        self._login = Login(self._codec, gate, peer, self.reading, self._proceed)
        self._sole = False
        self._incoming: dict[Link, IncomingLink] = {}
        self._outgoing: dict[Link, Outgoing] = {}
        self._coordinators: dict[Link, Receiver] = {}
        self._transactions = Transactions(tick.engine, options.transactions_max)
        self._attacher: Attacher | None = None  # before OPEN: a stranger must cost little
        self._gathered = PendingPublishes()
        self._answers: Confirmations[Answer] = Confirmations(tick.engine, settle)
        self._draining: dict[Outgoing, int] = {}  # and the tick in which that was asked
        self._sending: dict[Outgoing, None] = {}  # settled deliveries count as consumed once they are flushed

    # -- what the network calls ------------------------------------------------------------------------------------

    @property
    def receive_timeout(self) -> int:
        """Silence after which the peer counts as dead."""
        return self._codec.receive_timeout

    @property
    def send_interval(self) -> int:
        """The longest silence that the peer allows: half of its idle-time-out, to be safe (part 2, 2.4.5)."""
        return self._codec.send_interval // 2

    @property
    def close_expected(self) -> bool:
        """Our CLOSE is out, and nothing waits to be said before it."""
        return self._codec.close_expected

    def receive_data(self, data: bytes) -> None:
        """Bytes from the peer: frames, in order, then the messages they gathered."""
        if not self.lost:
            self._codec.receive_data(data)
            self._process()

    def receive_eof(self) -> None:
        """The peer has closed its side without CLOSE: as if the connection had failed."""
        if not self.lost:
            self._codec.receive_eof()
            self._process()
            self._end(redelivery.LOST)
            self._codec.send_close()

    def _process(self) -> None:
        codec, handlers = self._codec, _HANDLERS
        try:
            while not self.lost and (events := codec.events()):
                for event in events:
                    if (handler := handlers.get(type(event))) is not None:  # else it asks for nothing
                        handler(self, event)
        except AmqpError as error:
            self._fail(error)
        self._gathered.publish()
        if self._answers.confirm(self):
            self.touch()
        if codec.error is not None:
            self._fail(codec.error)

    def _fail(self, error: AmqpError) -> None:
        """The peer broke a rule of the connection: say which, and end it."""
        self._report(error)
        self._codec.send_close(error)
        self.touch()
        self._end(redelivery.LOST)

    def data_to_send(self) -> bytes:
        """Everything for the peer since the last call."""
        for consumer in self.unsendable.dead_letter():
            assert isinstance(consumer.sink, OutgoingLink)
            consumer.sink.more_room()
        if self.pulling.links and not self.window.socket_full:
            self.tick.enter()
            self.pulling.pull()
        if self._draining:
            self._finish_drains()
        return self._codec.data_to_send()

    def flushed(self) -> None:
        """The bytes are with the operating system."""
        self.window.flushed()
        sending, self._sending = self._sending, {}
        for link in sending:
            link.flushed()
        if self.pulling.links and self.pulling.ready:
            self.touch()

    def pause(self, paused: bool) -> None:
        """No deliveries for now, or again."""
        for link in self._outgoing.values():
            link.pause(paused)

    def send_heartbeat(self) -> None:
        """An empty frame."""
        self._codec.send_heartbeat()
        self.touch()

    def timed_out(self) -> None:
        """The peer fell silent for longer than its idle-time-out allows."""
        self.report("connection.silent")
        self._codec.send_close(
            connection_error(RESOURCE_LIMIT_EXCEEDED, f"Nothing was heard for {self.receive_timeout} ms.")
        )
        self.touch()
        self._end(redelivery.LOST)

    def connection_lost(self) -> None:
        """The socket is gone."""
        self._end(redelivery.LOST)

    def fail(self, why: str) -> None:
        self._codec.discard()
        self.unsendable.forget()
        self._draining.clear()
        self._fail(connection_error(INTERNAL_ERROR, why))

    def dismiss(self, reason: str) -> None:
        self.shut_down(reason)

    def shut_down(self, why: str = "The broker is shutting down.") -> None:
        """The peer has to go."""
        self._gathered.publish()
        self._codec.send_close(connection_error(CONNECTION_FORCED, why))
        self.touch()
        self._end(redelivery.INTERRUPTED)

    def _end(self, how: DeliveryOutcome) -> None:
        """Nothing more happens on this connection."""
        if self.lost:
            return
        self.lost = self._login.over = True
        self.engine.connections.closed(self.id)
        self._transactions.abandon()
        for link in self._outgoing.values():
            link.close(how)
        for incoming in self._incoming.values():
            incoming.gone()
        if self._attacher is not None:
            self._attacher.release_all()
        self._outgoing.clear()
        self._incoming.clear()
        self._draining.clear()
        self._answers.drop()
        if self._sole:
            self._containers.release(self.container)

    # -- coming in -------------------------------------------------------------------------------------------------

    def _on_sasl(self, event: SaslInit | SaslResponse) -> None:
        self._login.step(event)
        self.touch()

    def _proceed(self) -> None:
        """The answer to a login, which took a while, is given."""
        self.touch()
        self._process()

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
            self._sole = self._containers.take(event.container_id)
            if not self._sole:
                self._send_open(amqp_containers.REFUSED)
                self._codec.send_close(Error(INVALID_FIELD, "container-id is in use", amqp_containers.CLASH))
                self._end(redelivery.CLOSED)
                return
        self._attacher = Attacher(self)
        self._send_open(amqp_containers.GRANTED if self._sole else {})
        self.opened("AMQP", self.access)

    def _send_open(self, properties: dict[str, object]) -> None:
        self._codec.send_open(
            idle_time_out=self.options.idle_timeout // 2 or None,
            offered_capabilities=OFFERED,
            properties={"product": "bartleby", "version": self.options.version} | properties,
        )
        self.touch()

    def _on_close(self, event: Close) -> None:
        """The peer leaves in good order; what it is still owed comes first."""
        self._gathered.publish()
        self._codec.send_close()
        self._end(redelivery.CLOSED)

    # -- sessions and links ----------------------------------------------------------------------------------------

    def _on_ended(self, event: Ended) -> None:
        self._drop_session(event.session, redelivery.CLOSED)
        event.session.send_end()

    def _on_session_failed(self, event: SessionFailed) -> None:
        self._report(event.error)
        self._drop_session(event.session, redelivery.INTERRUPTED)
        event.session.send_end(event.error)

    def _drop_session(self, session: Session, how: DeliveryOutcome) -> None:
        self._gathered.publish()
        for link in (*self._incoming, *self._outgoing, *self._coordinators):
            if link.session is session:
                self._drop(link, closed=False, detached=True, how=how)
        assert self._attacher is not None, "the connection is open"
        self._attacher.session_ended(session)
        self._answers.keep(lambda answer: answer[0] is not session)

    def _on_attached(self, event: Attached) -> None:
        link = event.link
        assert self._attacher is not None, "the connection is open"
        try:
            made = self._attacher.attach(link, event.attach)
        except EngineError as refusal:
            refuse(link, refused(refusal))
            return
        except AmqpError as error:
            if error.scope is not Scope.LINK:
                raise
            refuse(link, Error(error.condition, error.description))
            return
        if isinstance(made, IncomingLink):
            self._incoming[link] = made
            made.top_up()
        elif made is not None:
            self._outgoing[link] = made
            if self.window.paused:
                made.pause(True)
        elif isinstance(link, Receiver):
            self._coordinators[link] = link
            link.send_credit(self.options.credits)

    def _on_refused(self, event: Refused) -> None:
        """One link too many: the others go on."""
        self._report(event.error)
        refuse(event.link, Error(event.error.condition, event.error.description))

    def _on_detached(self, event: Detached) -> None:
        self._gathered.publish()
        error = None
        try:
            self._drop(event.link, closed=event.closed, detached=not event.closed)
        except EngineError as denied:  # its subscription stays: the peer may not delete it, or another consumes
            error = refused(denied)
        event.link.send_detach(closed=event.closed, error=error)

    def lose(self, link: Link, error: AmqpError) -> None:
        """A link has failed."""
        self._report(error)
        self._gathered.publish()
        self._drop(link, closed=False)
        link.send_detach(error=error)

    def _report(self, error: AmqpError) -> None:
        report_error(self.report, error, first=not self.established)

    def _drop(
        self, link: Link, *, closed: bool, detached: bool = False, how: DeliveryOutcome = redelivery.CLOSED
    ) -> None:
        """A link is gone: `closed` by the peer, or only `detached`."""
        incoming = self._incoming.pop(link, None)
        if incoming is not None:
            incoming.gone()
        outgoing = self._outgoing.pop(link, None)
        if outgoing is not None:
            self._draining.pop(outgoing, None)
            outgoing.close(how)
        if self._coordinators.pop(link, None) is not None:
            assert isinstance(link, Receiver)
            self._transactions.abandon(link)
        assert self._attacher is not None, "the connection is open"
        self._attacher.release(link, closed=closed, detached=detached)

    def detach(self, link: Link, error: Error) -> None:
        """The broker ends a link: its queue was deleted."""
        self._drop(link, closed=False)
        try:
            link.send_detach(error=error)
        except AmqpError as too_large:
            self._fail(too_large)
        self.touch()

    # -- messages in -----------------------------------------------------------------------------------------------

    def _on_transfers(self, event: Transfers) -> None:
        link = event.link
        incoming = self._incoming.get(link)
        try:
            if incoming is not None:
                self._gathered.add(incoming)
                if link in self._incoming:  # what was gathered before has not ended it
                    incoming.add(event)
            elif link in self._coordinators:
                coordinate(self._transactions, event, self._gathered.publish, self.answer, heard=rejects(link))
                if link.credit <= self.options.low_credits:
                    link.send_credit(self.options.credits)
        except AmqpError as error:
            self.lose(link, error)

    def _on_portion(self, event: Portion) -> None:
        self._gathered.publish()
        incoming = self._incoming.get(event.link)
        try:
            if incoming is not None:
                incoming.add_portion(event)
            elif event.last:
                self._codec.resume()
        except AmqpError as error:
            self.lose(event.link, error)

    def go_on(self) -> None:
        """A large message has been dealt with: what follows it is read."""
        self._codec.resume()
        self._proceed()

    def _on_aborted(self, event: Aborted) -> None:
        incoming = self._incoming.get(event.link)
        if incoming is not None:
            incoming.uploading.abandon()
            incoming.top_up()

    def transaction(self, txn_id: bytes) -> OpenTransaction:
        """An open transaction.  Raises AmqpError."""
        return self._transactions.find(txn_id)

    # -- messages out ----------------------------------------------------------------------------------------------

    def _on_credit(self, event: Credit) -> None:
        outgoing = self._outgoing.get(event.link)
        if outgoing is not None:
            outgoing.credit(event)

    def _on_window_opened(self, event: WindowOpened) -> None:
        for link, outgoing in self._outgoing.items():
            if link.session is event.session:
                outgoing.more_room()

    def _on_dispositions(self, event: Dispositions) -> None:
        outgoing = self._outgoing.get(event.link)
        if outgoing is not None:
            try:
                outgoing.settle(event)
            except AmqpError as error:
                self.lose(event.link, error)

    def sent_on(self, link: Outgoing, nbytes: int) -> None:
        """Messages for a link go out with this tick."""
        self._sending[link] = None
        self.sent(nbytes)

    def drain_later(self, link: Outgoing) -> None:
        """Ask the link to `finish_drain` when the tick ends."""
        self._draining[link] = self.engine.ticks.number

    def _finish_drains(self) -> None:
        self._draining = {link: tick for link, tick in self._draining.items() if not link.finish_drain(tick)}
        if self._draining:  # there is more to send first: look again after the next tick
            self.touch()

    def answer(
        self, session: Channel, role: bool, ids: Sequence[int], state: DeliveryState | None, *, settled: bool = True
    ) -> None:
        """Settle deliveries, or only say their state, once everything done so far is durable."""
        self._answers.owed.append((session, role, ids, state, settled))

    def dropped(self, target: str, messages: int, why: Error) -> None:
        """Log messages that their sender has settled and that were refused."""
        why_not = why.description or ""
        self.report("amqp.transfer_dropped", client=self.container, target=target, messages=messages, error=why_not)

    def durable(self, number: int) -> None:
        """Everything up to a tick is on disk."""
        self._answers.durable(number)
        self.touch()


#: What is done about each event; one table for all, as those who have not logged in must cost little.
_HANDLERS: Final[dict[type, Callable[[AmqpSession, Any], None]]] = {
    **dict.fromkeys((SaslInit, SaslResponse), AmqpSession._on_sasl),
    Open: AmqpSession._on_open,
    Close: AmqpSession._on_close,
    Began: lambda _, event: event.session.send_begin(),
    Ended: AmqpSession._on_ended,
    SessionFailed: AmqpSession._on_session_failed,
    Attached: AmqpSession._on_attached,
    Refused: AmqpSession._on_refused,
    Detached: AmqpSession._on_detached,
    LinkFailed: lambda session, event: session.lose(event.link, event.error),
    Transfers: AmqpSession._on_transfers,
    Portion: AmqpSession._on_portion,
    Aborted: AmqpSession._on_aborted,
    Dispositions: AmqpSession._on_dispositions,
    Credit: AmqpSession._on_credit,
    WindowOpened: AmqpSession._on_window_opened,
}
