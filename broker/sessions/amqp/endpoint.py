"""Either side of an AMQP 1.0 connection: the codec's events become engine verbs, deliveries become transfers.

Messages that arrive are gathered by their links (`incoming`) and published when the read has been looked at, or
before a frame that needs it done.  Answers (outcomes of messages, of discharges, of our own deliveries) are given once
everything done before them is durable (promise P1), in their order, those that follow each other as one range.

`session` is the side that clients connect to, `broker.sessions.links` the one that connects to other brokers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from broker.engine import DeliveryOutcome, redelivery
from broker.engine.model.errors import EngineError
from broker.sessions.amqp.answers import Answer, settle
from broker.sessions.amqp.incoming import IncomingLink, PendingPublishes
from broker.sessions.amqp.link_owner import LinkOwner, Outgoing
from broker.sessions.amqp.login import report_error
from broker.sessions.amqp.outgoing import OutgoingLink
from broker.sessions.amqp.terms import AmqpOptions, refused
from broker.sessions.confirmations import Confirmations
from broker.sessions.login import Peer
from broker.sessions.session import MOVED
from broker.sessions.tick import Tick, Transport
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.errors import (
    CONNECTION_FORCED,
    INTERNAL_ERROR,
    RESOURCE_LIMIT_EXCEEDED,
    AmqpError,
    connection_error,
)
from protocols.amqp.events import (
    Aborted,
    Credit,
    Detached,
    Dispositions,
    Ended,
    LinkFailed,
    Portion,
    SessionFailed,
    Transfers,
    WindowOpened,
)
from protocols.amqp.link import Channel, Link
from protocols.amqp.performatives import Close, DeliveryState, Error
from protocols.amqp.session import Session

#: What is done about each event, by its type.
Handlers = Mapping[type, Callable[[Any, Any], None]]


class AmqpEndpoint(LinkOwner):
    """Our side of one AMQP connection, whoever began it."""

    def __init__(
        self,
        tick: Tick,
        transport: Transport,
        options: AmqpOptions,
        codec: AmqpConnection,
        *,
        connection_id: str,
        peer: Peer,
    ) -> None:
        super().__init__(tick, transport, options, connection_id, peer)
        self.codec = codec
        self.incoming: dict[Link, IncomingLink] = {}
        self.outgoing: dict[Link, Outgoing] = {}
        self.gathered = PendingPublishes()
        self._answers: Confirmations[Answer] = Confirmations(tick.engine, settle)
        self._draining: dict[Outgoing, int] = {}  # and the tick in which that was asked
        self._sending: dict[Outgoing, None] = {}  # settled deliveries count as consumed once they are flushed

    @property
    @abstractmethod
    def handlers(self) -> Handlers:
        """What is done about each event, by its type."""

    # -- what the network calls ------------------------------------------------------------------------------------

    @property
    def receive_timeout(self) -> int:
        """Silence after which the peer counts as dead."""
        return self.codec.receive_timeout

    @property
    def send_interval(self) -> int:
        """The longest silence that the peer allows: half of its idle-time-out, to be safe (part 2, 2.4.5)."""
        return self.codec.send_interval // 2

    @property
    def close_expected(self) -> bool:
        """Our CLOSE is out, and nothing waits to be said before it."""
        return self.codec.close_expected

    def receive_data(self, data: bytes) -> None:
        """Bytes from the peer: frames, in order, then the messages they gathered."""
        if not self.lost:
            self.codec.receive_data(data)
            self.process()

    def receive_eof(self) -> None:
        """The peer has closed its side without CLOSE: as if the connection had failed."""
        if not self.lost:
            self.codec.receive_eof()
            self.process()
            self.end(redelivery.LOST)
            self.codec.send_close()

    def process(self) -> None:
        """Do what the frames that have come say."""
        codec, handlers = self.codec, self.handlers
        try:
            while not self.lost and (events := codec.events()):
                for event in events:
                    if (handler := handlers.get(type(event))) is not None:  # else it asks for nothing
                        handler(self, event)
        except AmqpError as error:
            self.fail_with(error)
        self.gathered.publish()
        if self._answers.confirm(self):
            self.touch()
        if codec.error is not None:
            self.fail_with(codec.error)

    def fail_with(self, error: AmqpError) -> None:
        """The peer broke a rule of the connection: say which, and end it."""
        self.report_error(error)
        self.codec.send_close(error)
        self.touch()
        self.end(redelivery.LOST)

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
        return self.codec.data_to_send()

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
        for link in list(self.outgoing.values()):  # a browser may end: the disk cannot be read
            link.pause(paused)

    def send_heartbeat(self) -> None:
        """An empty frame."""
        self.codec.send_heartbeat()
        self.touch()

    def timed_out(self) -> None:
        """The peer fell silent for longer than its idle-time-out allows."""
        self.report("connection.silent")
        self.codec.send_close(
            connection_error(RESOURCE_LIMIT_EXCEEDED, f"Nothing was heard for {self.receive_timeout} ms.")
        )
        self.touch()
        self.end(redelivery.LOST)

    def connection_lost(self) -> None:
        """The socket is gone."""
        self.end(redelivery.LOST)

    def fail(self, why: str, *, moved: bool = False) -> None:
        self.codec.discard()
        self.unsendable.forget()
        self._draining.clear()
        self.fail_with(connection_error(CONNECTION_FORCED if moved else INTERNAL_ERROR, why))

    def dismiss(self, reason: str) -> None:
        self.shut_down(reason)

    def shut_down(self, why: str = "The broker is shutting down.", *, moved: bool = False) -> None:
        """The peer has to go.

        Not even with `moved` it is told `amqp:connection:redirect`: Proton and rhea give up then, and with the other
        condition look for the next server.
        """
        self.gathered.publish()
        self.codec.send_close(connection_error(CONNECTION_FORCED, MOVED if moved else why))
        self.touch()
        self.end(redelivery.INTERRUPTED)

    def end(self, how: DeliveryOutcome) -> None:
        """Nothing more happens on this connection."""
        if self.lost:
            return
        self.lost = True
        self.engine.connections.closed(self.id)
        self.ending()
        for link in self.outgoing.values():
            link.close(how)
        for incoming in self.incoming.values():
            incoming.gone()
        self.ended()
        self.outgoing.clear()
        self.incoming.clear()
        self._draining.clear()
        self._answers.drop()

    @abstractmethod
    def ending(self) -> None:
        """The connection ends: what has to be done before its links go."""

    @abstractmethod
    def ended(self) -> None:
        """The links of the connection are gone: what has to be done after them."""

    # -- sessions and links ----------------------------------------------------------------------------------------

    def _on_close(self, event: Close) -> None:
        """The peer leaves in good order; what it is still owed comes first."""
        self.gathered.publish()
        self.codec.send_close()
        self.end(redelivery.CLOSED)

    def _on_ended(self, event: Ended) -> None:
        self.drop_session(event.session, redelivery.CLOSED)
        event.session.send_end()

    def _on_session_failed(self, event: SessionFailed) -> None:
        self.report_error(event.error)
        self.drop_session(event.session, redelivery.INTERRUPTED)
        event.session.send_end(event.error)

    def drop_session(self, session: Session, how: DeliveryOutcome) -> None:
        """A session is gone, and with it its links."""
        self.gathered.publish()
        for link in self.all_links():
            if link.session is session:
                self.drop(link, closed=False, detached=True, how=how)
        self._answers.keep(lambda answer: answer[0] is not session)

    def all_links(self) -> list[Link]:
        """The links of all sessions that have something of ours."""
        return [*self.incoming, *self.outgoing]

    def _on_detached(self, event: Detached) -> None:
        self.gathered.publish()
        error = None
        try:
            self.drop(event.link, closed=event.closed, detached=not event.closed)
        except EngineError as denied:  # its subscription stays: the peer may not delete it, or another consumes
            error = refused(denied)
        event.link.send_detach(closed=event.closed, error=error)

    def lose(self, link: Link, error: AmqpError) -> None:
        """A link has failed."""
        self.report_error(error)
        self.gathered.publish()
        self.drop(link, closed=False)
        link.send_detach(error=error)

    def report_error(self, error: AmqpError) -> None:
        """Log an error of the peer's."""
        report_error(self.report, error, first=not self.established)

    def drop(
        self, link: Link, *, closed: bool, detached: bool = False, how: DeliveryOutcome = redelivery.CLOSED
    ) -> None:
        """A link is gone: `closed` by the peer, or only `detached`.  Raises EngineError."""
        incoming = self.incoming.pop(link, None)
        if incoming is not None:
            incoming.gone()
        outgoing = self.outgoing.pop(link, None)
        if outgoing is not None:
            self._draining.pop(outgoing, None)
            outgoing.close(how)

    def detach(self, link: Link, error: Error) -> None:
        """The broker ends a link: its queue was deleted."""
        self.drop(link, closed=False)
        try:
            link.send_detach(error=error)
        except AmqpError as too_large:
            self.fail_with(too_large)
        self.touch()

    # -- messages in -----------------------------------------------------------------------------------------------

    def _on_transfers(self, event: Transfers) -> None:
        link = event.link
        incoming = self.incoming.get(link)
        try:
            if incoming is None:
                self.transfers_elsewhere(event)
                return
            self.gathered.add(incoming)
            if link in self.incoming:  # what was gathered before has not ended it
                incoming.add(event)
        except AmqpError as error:
            self.lose(link, error)

    @abstractmethod
    def transfers_elsewhere(self, event: Transfers) -> None:
        """Messages have come on a link that is no producer's.  Raises AmqpError."""

    def _on_portion(self, event: Portion) -> None:
        self.gathered.publish()
        incoming = self.incoming.get(event.link)
        try:
            if incoming is not None:
                incoming.add_portion(event)
            elif event.last:
                self.codec.resume()
        except AmqpError as error:
            self.lose(event.link, error)
            if event.last:
                self.codec.resume()

    def go_on(self) -> None:
        """A large message has been dealt with: what follows it is read."""
        self.codec.resume()
        self.proceed()

    def proceed(self) -> None:
        """What kept us from reading on is over."""
        self.touch()
        self.process()

    def _on_aborted(self, event: Aborted) -> None:
        incoming = self.incoming.get(event.link)
        if incoming is not None:
            incoming.uploading.abandon()
            incoming.top_up()

    # -- messages out ----------------------------------------------------------------------------------------------

    def _on_credit(self, event: Credit) -> None:
        outgoing = self.outgoing.get(event.link)
        if outgoing is not None:
            outgoing.credit(event)

    def _on_window_opened(self, event: WindowOpened) -> None:
        for link, outgoing in list(self.outgoing.items()):
            if link.session is event.session:
                outgoing.more_room()

    def _on_dispositions(self, event: Dispositions) -> None:
        outgoing = self.outgoing.get(event.link)
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


#: What is done about each event that both sides know.
SHARED: Final[Handlers] = {
    Close: AmqpEndpoint._on_close,
    Ended: AmqpEndpoint._on_ended,
    SessionFailed: AmqpEndpoint._on_session_failed,
    Detached: AmqpEndpoint._on_detached,
    LinkFailed: lambda session, event: session.lose(event.link, event.error),
    Transfers: AmqpEndpoint._on_transfers,
    Portion: AmqpEndpoint._on_portion,
    Aborted: AmqpEndpoint._on_aborted,
    Dispositions: AmqpEndpoint._on_dispositions,
    Credit: AmqpEndpoint._on_credit,
    WindowOpened: AmqpEndpoint._on_window_opened,
}
