"""An AMQP connection as its links see it, and how links and their sessions end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from broker.engine import DeliveryOutcome, redelivery
from broker.engine.model.access import NOT_LOGGED_IN
from broker.engine.model.errors import EngineError
from broker.sessions.amqp.answers import Answer, Parting, Settlement, count, send
from broker.sessions.amqp.format import AMQP_FORMAT
from broker.sessions.amqp.incoming_links import IncomingLinks
from broker.sessions.amqp.outgoing_links import OutgoingLinks
from broker.sessions.amqp.terms import AmqpOptions, refused
from broker.sessions.amqp.transactions import OpenTransaction
from broker.sessions.base import BaseSession
from broker.sessions.confirmations import Confirmations
from broker.sessions.login import Peer
from broker.sessions.tick import Tick, Transport
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.errors import STOLEN, AmqpError, FrameTooLarge
from protocols.amqp.events import Detached
from protocols.amqp.link import Channel, Link
from protocols.amqp.performatives import SENDER, DeliveryState, Error
from protocols.amqp.session import Session


class LinkOwner(BaseSession):
    """A connection as its links see it.  `origin`: the sender that no-local excludes; `container`: the client's id."""

    def __init__(
        self,
        tick: Tick,
        transport: Transport,
        options: AmqpOptions,
        codec: AmqpConnection,
        connection_id: str,
        peer: Peer,
    ) -> None:
        super().__init__(tick, transport, connection_id, peer)
        self.options = options
        self.codec = codec
        self.format = tick.engine.formats[AMQP_FORMAT]
        self.access = tick.engine.security.access(NOT_LOGGED_IN, "")
        self.origin = connection_id
        self.container = ""
        self.incoming = IncomingLinks(codec)
        self.outgoing = OutgoingLinks(tick.engine)
        self.answers: Confirmations[Answer] = Confirmations(tick.engine, count)

    @abstractmethod
    def transaction(self, txn_id: bytes) -> OpenTransaction:
        """Return an open transaction.  Raises AmqpError."""

    def dropped(self, state: DeliveryState | None) -> None:
        """Note that a message, or the state of deliveries, came when its link had ended, and has no effect."""

    @abstractmethod
    def proceed(self) -> None:
        """Continue to read."""

    @abstractmethod
    def suspend(self) -> None:
        """Handle nothing more until `resume`: the engine has not answered a request yet."""

    @abstractmethod
    def resume(self) -> None:
        """Continue behind that request."""

    def go_on(self) -> None:
        """Continue to read after a large message."""
        self.codec.resume()
        self.proceed()

    def answer(
        self, session: Channel, role: bool, ids: Sequence[int], state: DeliveryState | None, *, settled: bool = True
    ) -> None:
        """Settle consecutive deliveries, or only state their outcome, once everything done so far is durable.

        Until then a message that was given back may be sent anew, to which the outcome of this delivery does not apply,
        and a peer that repeats the outcome changes nothing.
        """
        if role is SENDER and ids:
            session.outgoing.blank(ids[0], len(ids))
        self.answers.pending.append(Settlement(session, role, ids, state, settled))

    @abstractmethod
    def durable(self, number: int) -> None:
        """Everything up to and including the tick `number` is on disk."""

    def send_confirmations(self, answers: list[Answer]) -> None:
        """Send the answers that are confirmed."""
        send(answers)

    def report_error(self, error: AmqpError) -> None:
        """Log an error of the peer."""
        early = isinstance(error, FrameTooLarge) and not self.established
        self.report("login.too_large" if early else "amqp.error", condition=error.condition, detail=error.description)

    def on_detached(self, event: Detached) -> None:
        """Handle the peer's DETACH of a link; the answer waits for the outcomes before it."""
        self.incoming.publish()
        error = None
        try:
            self.drop(event.link, closed=event.closed, detached=not event.closed)
        except EngineError as denied:  # its subscription stays: the peer may not delete it, or it has consumers
            error = refused(denied)
        self.answers.pending.append(Parting(event.link.session, event.link, event.closed, error))

    def part(self, link: Link) -> None:
        """Answer now what a link or its end must not wait for: DETACH of its name, of any link if handles run out."""
        session = link.session
        crowded = session.begin is not None and len(session.by_handle) > session.begin.handle_max
        for each in self.answers:
            if isinstance(each, Parting) and each.session is session and (crowded or each.of(link)):
                each.send()

    def lose(self, link: Link, error: AmqpError) -> None:
        """End a link: the peer has violated a rule of it."""
        self.report_error(error)
        self.incoming.publish()
        self.drop(link, closed=False)
        link.send_detach(error=error)

    def detach(self, link: Link, error: Error) -> None:
        """End a link for a reason of the broker's, such as a deleted queue."""
        self.drop(link, closed=False)
        link.send_detach(error=error)
        self.touch()

    def steal(self, link: Link) -> None:
        """End a link that another connection of this container has attached now (part 2, 2.6.1)."""
        self.report("amqp.link_stolen", link=link.name, container=self.container)
        self.incoming.publish()
        self.drop(link, closed=False, how=redelivery.INTERRUPTED)
        link.send_detach(error=Error(STOLEN, "Another connection of this container has attached the link."))
        self.touch()

    def end_session(self, session: Session, how: DeliveryOutcome, error: AmqpError | None = None) -> None:
        """End a session and its links; `error`: the rule of it that the peer has violated."""
        if error is not None:
            self.report_error(error)
        self.incoming.publish()
        for link in self.links_of(session):
            self.drop(link, closed=False, detached=True, how=how)
        self.answers.retain(lambda answer: answer.session is not session)
        session.send_end(error)

    def links_of(self, session: Session) -> list[Link]:
        """The attached links of a session."""
        return [link for link in (*self.outgoing.by_link, *self.incoming.by_link) if link.session is session]

    def drop(
        self, link: Link, *, closed: bool, detached: bool = False, how: DeliveryOutcome = redelivery.CLOSED
    ) -> None:
        """Remove a link that the peer has `closed`, or only `detached`.  Raises EngineError."""
        self.incoming.drop(link)
        self.outgoing.drop(link, how)
