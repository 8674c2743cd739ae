"""A route on one AMQP connection: its AMQP session, and the link on it.

start    send BEGIN, or resume a link that is attached
began    send ATTACH
attached              the route runs: `running` is a consumer of the local queue, or a producer for the local address
refuse                the other broker ended the link or the session: the route waits, then starts with a new session
end      send END     this broker needs the session no more
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.engine import Consumer, redelivery
from broker.engine.model.errors import EngineError
from broker.engine.model.message import Message
from broker.sessions.amqp.incoming import Peer, Place
from broker.sessions.amqp.link_encoder import Stamp
from broker.sessions.amqp.link_id import LINK_CAPABILITY, ON_DEMAND, RESERVE_MS, RESERVE_NAME
from broker.sessions.amqp.link_owner import LinkOwner
from broker.sessions.links.attach import attach_receiver, attach_sender, request
from broker.sessions.links.login import LinkLogin
from broker.sessions.links.model import Route, State, is_due
from broker.sessions.links.route_status import RouteStatus
from broker.sessions.links.routes import ReceivingRoute, SendingRoute, words
from protocols.amqp.errors import AmqpError
from protocols.amqp.link import Channel
from protocols.amqp.link import Link as AmqpLink
from protocols.amqp.performatives import Attach, Error
from protocols.amqp.receiver import Receiver
from protocols.amqp.sender import Sender
from protocols.amqp.session import Session


class RouteSession:
    """One route.  `sessions` maps the AMQP sessions of the connection to routes: each route maintains its own entry."""

    def __init__(
        self,
        owner: LinkOwner,
        route: Route,
        broker_name: str,
        other: LinkLogin,
        sessions: dict[Channel, RouteSession],
    ) -> None:
        self.route = route
        self.status = RouteStatus(owner, route)
        self.running: SendingRoute | ReceivingRoute | None = None
        self._owner = owner
        self._broker_name = broker_name
        self._other = other
        self._sessions = sessions
        self._session: Session | None = None
        self._attempt: _Attempt | None = None

    def start(self) -> None:
        """Begin to attach, or resume; a route that began to attach before a pause continues."""
        self.route.move("attach")
        if self.running is not None:  # attached, and was only waiting
            self.route.move("attached")
            self.running.go_on(again=True)
        elif self._session is None:
            try:
                self._session = self._owner.codec.new_session()
            except AmqpError as error:
                self.status.retry_later(str(error.description))
                return
            self._sessions[self._session] = self
            self._session.send_begin()
        self._owner.touch()

    def pause(self) -> None:
        """Pass nothing on; messages in flight are still settled."""
        self.route.move("pause")
        if self.running is not None:
            self.running.stop()

    def check(self) -> None:
        """Do what is due: retry a waiting route, and report a route as well once it has run for the retry interval.

        Not sooner: if the other broker only takes a message now and then, the trouble is the same.
        """
        route, running = self.route, self.running
        now, interval = self._owner.engine.now, route.link.settings.retry_interval
        if route.state is State.RETRYING and is_due(route.retry_at, now, interval):
            self.start()
        if running is None or route.state is not State.RUNNING:
            return
        if route.error and not running.probing and is_due(route.since + interval, now, interval):
            self.status.run()
        if isinstance(running, ReceivingRoute) and route.settings.only_with_consumers:
            running.fetch_for_consumers()

    # -- attaching ------------------------------------------------------------------------------------------------

    def began(self, session: Session) -> None:
        """The other broker has answered BEGIN."""
        settings, name = self.route.settings, f"{self._owner.options.container_id}.{self.route.name}"
        try:
            if settings.reads:
                attach_sender(session.new_sender(name), settings)
            else:
                attach_receiver(session.new_receiver(name), settings, self._properties(name))
        except AmqpError as error:
            self.end(str(error))

    def _properties(self, name: str) -> dict[str, object]:
        """The properties of a receiver with this name."""
        settings = self.route.settings
        properties: dict[str, object] = {"priority": settings.priority} if settings.priority else {}
        if settings.only_with_consumers:
            properties[ON_DEMAND] = True
        if self._other.bartleby and settings.reserve:
            properties[RESERVE_NAME] = f"{self._owner.engine.journal.broker_id.hex()}/{name}"
            properties[RESERVE_MS] = settings.reserve
        return properties

    def has(self, link: AmqpLink) -> bool:
        """Whether a link is the route's own, not a part of one that runs (`ReceivingRoute`)."""
        return self.running is None or self.running.link is link

    def attached(self, link: AmqpLink, attach: Attach) -> None:
        """The other broker has attached a link.  Without a terminus it refuses, and DETACH follows with the reason."""
        route, sends = self.route, isinstance(link, Sender)
        if (attach.target if sends else attach.source) is None or not self.has(link):
            return
        if sends and not route.settings.remote and not self._other.relays:
            self.end("the other broker has no anonymous relay, which a topics route needs")
            return
        bartleby = LINK_CAPABILITY in attach.offered_capabilities
        try:
            if route.settings.holds and not bartleby and self.status.look_back():
                self.end("")
                return
            self.running = self._make(link, bartleby=bartleby)
        except EngineError as error:
            self.end(f"this broker: {error}")
            return
        route.bartleby = bartleby
        route.move("attached")
        if route.state is State.RUNNING:  # not paused meanwhile
            self.status.run()
        self.running.go_on(again=False)

    def _make(self, link: AmqpLink, *, bartleby: bool) -> SendingRoute | ReceivingRoute:
        """Make the consumer or the producer of the route.  Raises EngineError."""
        owner, route, engine = self._owner, self.route, self._owner.engine
        settings = route.settings
        if isinstance(link, Sender):
            broker_id = engine.journal.broker_id if bartleby else b""
            stamp = Stamp(self._broker_name, route.link.name, broker_id, relayed=not settings.remote)
            sending = SendingRoute(owner, link, self.status, stamp)
            sending.subscribe(request(engine, route, owner.container, forwards=bartleby))
            owner.outgoing.add(sending)
            return sending
        assert isinstance(link, Receiver)
        address, queue = engine.producers.destination(settings.local, settings.routing_type, access=owner.access)
        peer = Peer.BARTLEBY if bartleby else Peer.BROKER
        receiving = ReceivingRoute(owner, link, self.status, Place(address, queue, settings.routing_type), peer)
        link.order = address.name
        owner.incoming.add(receiving)
        return receiving

    # -- ending ---------------------------------------------------------------------------------------------------

    def dropped(self, link: AmqpLink) -> None:
        """A link of the session has ended."""
        if self.has(link):
            self.running = None

    def over(self) -> None:
        """Forget the session: it has ended, or the other broker has violated a rule of it."""
        self.running = None
        if self._session is not None:
            del self._sessions[self._session]
            self._session = None

    def end(self, text: str) -> None:
        """End the session; with a text the route waits."""
        session = self._session
        self.over()
        if session is not None:
            session.send_end()
        if text:
            self.status.retry_later(text)
        self._owner.touch()

    def blame(self, error: Error | None) -> bool:
        """Whether the other broker ends a route that ran: with an error, a message in flight may be the cause.

        If none was in flight it is a refusal, even after a successful ATTACH: Proton refuses with an empty target.
        """
        running = self.running
        if not isinstance(running, SendingRoute):
            return False
        return error is None or running.blame(f"{self.status.where}: {words(error)}")

    def refuse(self, error: Error | None, *, ran: bool) -> None:
        """The other broker has refused the route: its messages have failed once more, or it ended one that `ran`."""
        self.running = None
        if self.route.state is State.IN_DOUBT:
            return
        self.status.retry_later(f"{self.status.where}: {words(error)}")
        settings = self.route.settings
        if settings.reads and settings.use_dead_letter and not ran:
            attempt = _Attempt(self._owner, self.status)
            if attempt.begin():
                self._attempt = attempt

    def end_attempt(self, text: str) -> None:
        """Return the messages that could not be sent, with a text as failed."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.end(text)


class _Attempt:
    """A failed delivery of the messages that cannot be sent because the other broker refuses the route."""

    def __init__(self, owner: LinkOwner, status: RouteStatus) -> None:
        self._owner = owner
        self._status = status
        self._consumer: Consumer | None = None

    @property
    def transport(self) -> object:
        return self._owner.transport

    def begin(self) -> bool:
        """Take as many messages as the route sends at once; False if the queue does not exist."""
        engine, route = self._owner.engine, self._status.route
        try:
            self._consumer = engine.consumers.subscribe(
                self, request(engine, route, self._owner.container, forwards=False)
            )
        except EngineError:
            return False
        engine.consumers.grant(self._consumer, route.link.settings.window)
        return True

    def journals_deliveries(self, consumer: Consumer) -> bool:
        return False

    def deliver(self, consumer: Consumer, messages: Sequence[Message]) -> None:
        """They wait until the attempt ends."""

    def consumer_closed(self, consumer: Consumer, reason: str) -> None:
        """The queue was deleted."""
        self._consumer = None

    def end(self, text: str) -> None:
        """Return the messages: with a text as failed, if they may die."""
        consumer, consumers = self._consumer, self._owner.engine.consumers
        if consumer is None:
            return
        for id, message in list(consumer.unacked.items()):
            if text and self._status.may_die(message):
                consumers.give_back(consumer, id, redelivery.rejected(text))
        consumers.close(consumer, redelivery.CLOSED)
        self._consumer = None
