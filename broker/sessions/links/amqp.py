"""A link over AMQP 1.0: the side that connects, logs in, and attaches the routes.

Each route has an AMQP session of its own: some brokers end the session for what is wrong with one link of it, and the
other routes are to go on.

    TCP (TLS)   SASL   OPEN          link: running
                       BEGIN ATTACH  a route each: starting, then running; or refused: retrying
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.engine import AckMode, Consumer, DeliveryOutcome, Reserve, SubscribeRequest, redelivery
from broker.engine.model.access import UNRESTRICTED
from broker.engine.model.errors import EngineError
from broker.engine.model.message import Message, RoutingType
from broker.engine.model.names import LINK_SESSIONS
from broker.sessions.amqp.attach import refuse
from broker.sessions.amqp.endpoint import SHARED, AmqpEndpoint, Handlers
from broker.sessions.amqp.incoming import Peer as Sending
from broker.sessions.amqp.incoming import Place
from broker.sessions.amqp.link_encoder import Stamp
from broker.sessions.amqp.link_id import LINK_CAPABILITY, ON_DEMAND, RESERVE_MS, RESERVE_NAME, RESERVE_PART
from broker.sessions.amqp.terms import ANONYMOUS_RELAY, PRODUCT, QUEUE, TOPIC, AmqpOptions
from broker.sessions.amqp.transactions import OpenTransaction
from broker.sessions.links.links import Links
from broker.sessions.links.model import Link, Route, RouteSettings, State, has_come
from broker.sessions.links.routes import ReceivingRoute, SendingRoute, UnsendableByRoutes, words
from broker.sessions.login import Peer
from broker.sessions.tick import Tick, Transport
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.errors import NOT_ALLOWED, AmqpError, link_error
from protocols.amqp.events import (
    Attached,
    Available,
    Began,
    Connected,
    Detached,
    Ended,
    LinkFailed,
    SessionFailed,
    Transfers,
)
from protocols.amqp.limits import Limits
from protocols.amqp.link import Channel
from protocols.amqp.link import Link as AmqpLink
from protocols.amqp.performatives import (
    Close,
    Error,
    Open,
    SaslChallenge,
    SaslCode,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SenderSettleMode,
    Source,
    Target,
    TerminusDurability,
)
from protocols.amqp.receiver import Receiver
from protocols.amqp.sender import Sender
from protocols.amqp.session import Session
from protocols.amqp.types import Described

#: Of termini: without it RabbitMQ makes a queue that does not outlast its restart.
_KEPT: Final = TerminusDurability.UNSETTLED_STATE

#: A source's filter by a selector (apache.org registry).
_SELECTOR: Final = "apache.org:selector-filter:string"

_OUTCOMES: Final = ("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list")


class AmqpLinkSession(AmqpEndpoint):
    """Our side of a link's connection."""

    def __init__(
        self,
        tick: Tick,
        transport: Transport,
        links: Links,
        link: Link,
        limits: Limits,
        *,
        broker_name: str,
        version: str,
        hostname: str,
        connection_id: str,
        peer: Peer,
    ) -> None:
        settings = link.settings
        options = AmqpOptions(
            container_id=f"{broker_name}.{link.name}",
            version=version,
            anycast_prefixes=(),
            multicast_prefixes=(),
            credits=settings.window,
            low_credits=settings.window // 3,
            idle_timeout=settings.idle_timeout,
        )
        codec = AmqpConnection(limits, container_id=options.container_id, server=False, mechanisms=("ANONYMOUS",))
        super().__init__(tick, transport, options, codec, connection_id=connection_id, peer=peer)
        self.access = UNRESTRICTED
        self.unsendable = UnsendableByRoutes(tick)
        self._links = links
        self._link = link
        self._broker_name = broker_name
        self._hostname = hostname
        self._relays = False  # the other end takes messages for any address
        self._bartleby = False  # so is the other end
        self._routes: dict[Channel, Route] = {}  # by our end of its AMQP session
        self._running: dict[str, SendingRoute | ReceivingRoute] = {}  # by the route's name
        self._attempts: list[_Attempt] = []
        self._parts_made = 0
        self._why = ""  # the connection ends

    @property
    def handlers(self) -> Handlers:
        return _HANDLERS

    @property
    def window_messages(self) -> int:
        """Messages of a route that may be under way."""
        return self._link.settings.window

    def where(self, route: Route) -> str:
        """Where a route's messages go, for people; the link is told beside it."""
        return route.settings.remote or "an address of the same name"

    # -- coming in -------------------------------------------------------------------------------------------------

    def _on_mechanisms(self, event: SaslMechanisms) -> None:
        offered = event.sasl_server_mechanisms
        settings = self._link.settings
        if settings.user and "PLAIN" in offered:
            response = b"\0" + settings.user.encode() + b"\0" + settings.password
            self.codec.send_sasl(SaslInit("PLAIN", response, self._hostname))
        elif not settings.user and "EXTERNAL" in offered and self._link.remote.startswith("amqps"):
            self.codec.send_sasl(SaslInit("EXTERNAL", b"", self._hostname))
        elif not settings.user and "ANONYMOUS" in offered:
            self.codec.send_sasl(SaslInit("ANONYMOUS", b"anonymous", self._hostname))
        else:
            wanted = "PLAIN" if settings.user else "ANONYMOUS or EXTERNAL"
            self._give_up(f"the other broker lets in by {', '.join(offered) or 'nothing'}, and not by {wanted}")
        self.touch()

    def _on_challenge(self, event: SaslChallenge) -> None:
        self._give_up("the other broker asks for more than a user and a password")

    def _on_outcome(self, event: SaslOutcome) -> None:
        if event.code != SaslCode.OK:
            who = f"user {self._link.settings.user}" if self._link.settings.user else "an anonymous client"
            self._give_up(f"login refused: the other broker does not let in {who}")

    def _on_connected(self, event: Connected) -> None:
        self.codec.send_open(
            hostname=self._hostname,
            idle_time_out=self.options.idle_timeout // 2 or None,
            desired_capabilities=(ANONYMOUS_RELAY,),
            properties={"product": PRODUCT, "version": self.options.version},
        )
        self.touch()

    def _on_open(self, event: Open) -> None:
        self.container = event.container_id
        product = (event.properties or {}).get("product", "")
        self._relays = ANONYMOUS_RELAY in event.offered_capabilities
        self._bartleby = product == PRODUCT
        self.opened("AMQP", self.access)
        self._links.opened(self._link, self, f"{product} {event.container_id}".strip())

    def _on_closed(self, event: Close) -> None:
        self._why = f"the other broker closed the connection: {words(event.error)}" if event.error else ""
        self._on_close(event)

    def _give_up(self, why: str) -> None:
        self._why = why
        self.codec.send_close()
        self.touch()
        self.end(redelivery.CLOSED)

    def fail_with(self, error: AmqpError) -> None:
        self._why = self._why or f"{error.condition}: {error.description}"
        super().fail_with(error)

    def ending(self) -> None:
        for attempt in self._attempts:
            attempt.end("")
        self._attempts.clear()

    def ended(self) -> None:
        self._running.clear()
        self._routes.clear()
        self._links.lost(self._link, self._why)

    # -- routes ----------------------------------------------------------------------------------------------------

    def start_routes(self) -> None:
        self._end_attempts()
        for route in self._link.routes.values():
            if route.state in (State.STOPPED, State.PAUSED):
                self._start(route)
        self.touch()

    def pause_routes(self) -> None:
        for route in self._link.routes.values():
            route.move("pause")
            running = self._running.get(route.name)
            if isinstance(running, SendingRoute):
                running.pause(False)
            elif running is not None:
                running.stop()
        self.touch()

    def check(self) -> None:
        """What is due: routes that wait try again; one that has passed messages on for long enough is well again.

        Not at once: where little is taken now and then, it is the same trouble still.
        """
        self._end_attempts()
        now, interval = self.engine.now, self._link.settings.retry_interval
        for route in self._link.routes.values():
            if route.state is State.RETRYING and has_come(route.retry_at, now, interval):
                self._start(route)
                continue
            running = self._running.get(route.name)
            if running is None or route.state is not State.RUNNING:
                continue
            if isinstance(running, ReceivingRoute):
                if route.settings.only_with_consumers:
                    running.fetch_for_consumers()
            elif route.error and not running.probing and has_come(route.since + interval, now, interval):
                self._well(route)

    def _end_attempts(self) -> None:
        """What could not even be sent goes back, before a route begins that would send what comes behind it."""
        for attempt in self._attempts:
            attempt.end(attempt.route.error)
        self._attempts.clear()

    def _well(self, route: Route) -> None:
        """A route passes messages on, and nothing is wrong with it."""
        route.error = ""
        self.report("link.route_running", link=self._link.name, route=route.name)

    def _start(self, route: Route) -> None:
        running = self._running.get(route.name)
        if running is not None:  # attached, and was only waiting
            route.move("attach")
            route.move("attached")
            if isinstance(running, SendingRoute):
                running.go_on()
            else:
                running.top_up()
            self.touch()
            return
        if route in self._routes.values():  # on its way since before a pause
            route.move("attach")
            return
        route.move("attach")
        try:
            session = self.codec.new_session()
        except AmqpError as error:
            self.route_waits(route, str(error.description))
            return
        self._routes[session] = route
        session.send_begin()
        self.touch()

    def _on_began(self, event: Began) -> None:
        if event.begin.remote_channel is None:  # the other end's own, for which there is no use
            event.session.send_begin()
            event.session.send_end()
            return
        route = self._routes.get(event.session)
        if route is None:
            return  # it has been ended since
        name = f"{self.options.container_id}.{route.name}"
        if route.settings.reads:
            self._attach_sender(event.session.new_sender(name), route.settings)
        else:
            self._attach_receiver(event.session.new_receiver(name), route.settings, name)
        self.touch()

    def _attach_sender(self, sender: Sender, settings: RouteSettings) -> None:
        kind = QUEUE if settings.routing_type is RoutingType.ANYCAST else TOPIC
        sender.send_attach(
            source=Source(settings.local, outcomes=_OUTCOMES),
            target=Target(settings.remote or None, _KEPT, capabilities=(kind,)),
            snd_settle_mode=SenderSettleMode.MIXED,
            desired_capabilities=(LINK_CAPABILITY,),
        )

    def begin_part(self, whole: ReceivingRoute, selector: str) -> ReceivingRoute:
        """A receiver of a route for the consumers here that have this selector."""
        route = whole.route
        self._parts_made += 1
        session = whole.link.session
        assert isinstance(session, Session)
        receiver = session.new_receiver(f"{self.options.container_id}.{route.name}.{self._parts_made}")
        receiver.order = whole.link.order
        self._attach_receiver(receiver, route.settings, whole.link.name, selector)
        part = ReceivingRoute(self, receiver, route, whole.place, whole.peer, selector)
        self.incoming[receiver] = part
        self.touch()
        return part

    def end_part(self, part: ReceivingRoute) -> None:
        """No consumer has had its selector for a while."""
        self.drop(part.link, closed=False)
        part.link.send_detach()
        self.touch()

    def _is_part(self, route: Route | None, link: AmqpLink) -> bool:
        """Whether a link is only a part of a route that runs."""
        running = None if route is None else self._running.get(route.name)
        return running is not None and running.link is not link

    def _attach_receiver(self, receiver: Receiver, settings: RouteSettings, whole: str, selector: str = "") -> None:
        filters: dict[str, object] = {}
        asked = [each for each in (settings.selector, selector) if each]
        if asked:
            filters["selector"] = Described(_SELECTOR, asked[0] if len(asked) == 1 else "({}) AND ({})".format(*asked))
        receiver.streams = receiver.session.limits.streamed_bytes_max > 0
        receiver.send_attach(
            source=Source(settings.remote, _KEPT, filter=filters or None, outcomes=_OUTCOMES, capabilities=(QUEUE,)),
            target=Target(settings.local),
            snd_settle_mode=SenderSettleMode.UNSETTLED,
            desired_capabilities=(LINK_CAPABILITY,),
            properties=self._stated(settings, receiver.name, whole=whole),
        )

    def _stated(self, settings: RouteSettings, name: str, whole: str) -> dict[str, object] | None:
        """What a receiver tells the other end of itself; `whole`: the name of the route's first one."""
        told: dict[str, object] = {"priority": settings.priority} if settings.priority else {}
        if settings.only_with_consumers:
            told[ON_DEMAND] = True
        if self._bartleby and settings.reserve:
            told[RESERVE_NAME] = f"{self.engine.journal.broker_id.hex()}/{whole}"
            told[RESERVE_MS] = settings.reserve
            if name != whole:
                told[RESERVE_PART] = True
        return told or None

    def _on_available(self, event: Available) -> None:
        """The other end has told how many messages it has kept for a route."""
        route = self.incoming.get(event.link)
        if route is not None:
            route.top_up()

    def _on_attached(self, event: Attached) -> None:
        link, attach = event.link, event.attach
        if link.local is None:
            refuse(link, Error(NOT_ALLOWED, "this broker has connected to pass messages on: it serves no clients here"))
            return
        route = self._routes.get(link.session)
        if route is None:
            return  # it has been ended since
        refused = attach.target is None if isinstance(link, Sender) else attach.source is None
        if refused:
            return  # DETACH follows, and says why
        if self._is_part(route, link):
            return
        if not route.settings.remote and isinstance(link, Sender) and not self._relays:
            self._end_session(route, "the other broker has no anonymous relay, which a topics route needs")
            return
        bartleby = LINK_CAPABILITY in attach.offered_capabilities
        try:
            if route.settings.holds and not bartleby and self._left_by_a_crash(route):
                self._end_session(route, "")
                return
            made = self._made(link, route, bartleby=bartleby)
        except EngineError as error:
            self._end_session(route, f"this broker: {error}")
            return
        self._running[route.name] = made
        route.bartleby = bartleby
        route.move("attached")
        if route.state is State.RUNNING:  # not paused meanwhile
            self._well(route)
        if isinstance(made, SendingRoute):
            made.pause(self.window.paused)
            made.more_room()
        else:
            made.top_up()

    def _made(self, link: AmqpLink, route: Route, *, bartleby: bool) -> SendingRoute | ReceivingRoute:
        """What a route is, once the other end has attached its link.  Raises EngineError."""
        settings, engine = route.settings, self.engine
        if isinstance(link, Sender):
            broker_id = engine.journal.broker_id if bartleby else b""
            stamp = Stamp(self._broker_name, self._link.name, broker_id, relayed=not settings.remote)
            made = SendingRoute(self, link, route, stamp)
            made.subscribe(self._request(settings, forwards=bartleby))
            self.outgoing[link] = made
            return made
        assert isinstance(link, Receiver)
        address, queue = engine.destination(settings.local, settings.routing_type, access=self.access, attached=True)
        sending = Sending.BARTLEBY if bartleby else Sending.BROKER
        receiving = ReceivingRoute(self, link, route, Place(address, queue, settings.routing_type), sending)
        link.order = address.name
        self.incoming[link] = receiving
        return receiving

    def _request(self, settings: RouteSettings, *, forwards: bool) -> SubscribeRequest:
        queue = self.engine.queues.get(settings.local)
        selector = f"AMQAddress = '{settings.origin.replace(chr(39), chr(39) * 2)}'" if settings.origin else ""
        return SubscribeRequest(
            settings.local if queue is None else f"{queue.address.name}::{queue.name}",
            RoutingType.ANYCAST if queue is None else None,
            selector=selector,
            ack_mode=AckMode.INDIVIDUAL,
            counted=True,
            client_id=f"link {self._link.name}",
            remote=self._link.remote,
            access=UNRESTRICTED,
            forwards=forwards,
            reserve=Reserve(f"{LINK_SESSIONS}out/{self._link.name}/{settings.name}", settings.reserve)
            if forwards and settings.reserve
            else None,
        )

    def may_die(self, route: Route, message: Message) -> bool:
        """Whether what the other end refuses becomes a dead letter here."""
        return route.settings.use_dead_letter and self.is_kept(route, message)

    def is_kept(self, route: Route, message: Message) -> bool:
        """Whether nothing durable is lost if a message dies here."""
        queue = self.engine.queues.get(route.settings.local)
        return not message.header.durable or (queue is not None and self.engine.messages.may_die(queue, message))

    def route_waits(self, route: Route, text: str) -> None:
        """A route passes nothing on for a while."""
        route.retry_at = self.engine.now + self._link.settings.retry_interval
        again = text == route.error
        route.move("refused", text)
        if not again:
            self.report("link.route_waiting", link=self._link.name, route=route.name, error=text)

    def left_in_doubt(self, route: Route, ids: set[int]) -> None:
        """Messages were under way when their AMQP link went, and nobody knows whether they arrived."""
        if route.settings.holds and not route.bartleby:
            self._hold(route, ids)

    def _left_by_a_crash(self, route: Route) -> bool:
        """Whether this broker, when it ran before, died with messages under way on a route, which are held now.

        Raises NotReadable.
        """
        if route.looked_back:
            return False
        queue, messages = self.engine.queues.get(route.settings.local), self.engine.messages
        left = set() if queue is None else set(queue.states)  # strict mode counts a delivery before it leaves
        origin = route.settings.origin
        if queue is not None and origin:  # others share its transmission queue
            left = {id for id in left if messages.find(queue, id)[0].header.address == origin}
        route.looked_back = True
        if left:
            self._hold(route, left)
        return bool(left)

    def _hold(self, route: Route, ids: set[int]) -> None:
        route.doubtful |= ids
        route.move("doubt")
        self.report("link.route_doubtful", link=self._link.name, route=route.name, messages=len(ids))

    # -- what ends a route -----------------------------------------------------------------------------------------

    def drop(
        self, link: AmqpLink, *, closed: bool, detached: bool = False, how: DeliveryOutcome = redelivery.CLOSED
    ) -> None:
        super().drop(link, closed=closed, detached=detached, how=how)
        route = self._routes.get(link.session)
        if route is not None and not self._is_part(route, link):
            self._running.pop(route.name, None)

    def _on_route_detached(self, event: Detached) -> None:
        route = self._routes.get(event.link.session)
        if self._is_part(route, event.link):  # the consumers of its selector get what comes here by itself
            self._on_detached(event)
            return
        ran = self._blame(route, event.error)
        self._on_detached(event)
        if route is not None:
            self._refuse(route, words(event.error), ran=ran)
            self._end_session(route, "")

    def _on_session_ended(self, event: Ended) -> None:
        route = self._routes.pop(event.session, None)
        ran = self._blame(route, event.error)
        self._on_ended(event)
        if route is not None:
            self._refuse(route, words(event.error), ran=ran)

    def _on_route_failed(self, event: LinkFailed) -> None:
        route = self._routes.get(event.link.session)
        self.lose(event.link, event.error)
        if route is not None:
            self._end_session(route, f"{event.error.condition}: {event.error.description}")

    def _on_failed(self, event: SessionFailed) -> None:
        route = self._routes.pop(event.session, None)
        self._on_session_failed(event)
        if route is not None:
            self._running.pop(route.name, None)
            self.route_waits(route, f"{event.error.condition}: {event.error.description}")

    def detach(self, link: AmqpLink, error: Error) -> None:
        route = self._routes.get(link.session)
        super().detach(link, error)
        if route is not None:
            self._end_session(route, f"this broker: {words(error)}")

    def _end_session(self, route: Route, text: str) -> None:
        """The AMQP session of a route is not needed any more; with a text the route waits."""
        for session, each in list(self._routes.items()):
            if each is route:
                del self._routes[session]
                assert isinstance(session, Session)
                session.send_end()
        if text:
            self.route_waits(route, text)
        self.touch()

    def _blame(self, route: Route | None, error: Error | None) -> bool:
        """Whether the other end ends a route that ran: with an error a message that was under way may be to blame.

        If none was, it is a refusal, even after an ATTACH that looked like success: Proton gives an empty target then.
        """
        running = None if route is None else self._running.get(route.name)
        if route is None or not isinstance(running, SendingRoute):
            return False
        return error is None or running.blame(f"{self.where(route)}: {words(error)}")

    def _refuse(self, route: Route, said: str, *, ran: bool) -> None:
        """The other end does not let a route attach: what waits for it has failed once more.  Or it has ended it."""
        text = f"{self.where(route)}: {said}"
        self._running.pop(route.name, None)
        if route.state is State.IN_DOUBT:
            return
        self.route_waits(route, text)
        if route.settings.reads and route.settings.use_dead_letter and not ran:
            attempt = _Attempt(self, route)
            if attempt.begin(self._request(route.settings, forwards=False)):
                self._attempts.append(attempt)

    # -- nothing of clients' ---------------------------------------------------------------------------------------

    def transfers_elsewhere(self, event: Transfers) -> None:
        """Messages for a route that has just ended: they stay where they are."""

    def transaction(self, txn_id: bytes) -> OpenTransaction:
        raise link_error(NOT_ALLOWED, "a link has no transactions")


class _Attempt:
    """Messages that could not even be sent, as the other end has nothing for them: a failed delivery of each."""

    def __init__(self, session: AmqpLinkSession, route: Route) -> None:
        self.route = route
        self._session = session
        self._consumer: Consumer | None = None

    @property
    def transport(self) -> object:
        return self._session.transport

    def begin(self, request: SubscribeRequest) -> bool:
        """Take as many as a route sends at once; False if there is no such queue."""
        consumers = self._session.engine.consumers
        try:
            self._consumer = consumers.subscribe(self, request)
        except EngineError:
            return False
        consumers.grant(self._consumer, self._session.window_messages)
        return True

    def records(self, consumer: Consumer) -> bool:
        """Deliveries leave without a record of their own."""
        return False

    def deliver(self, consumer: Consumer, messages: Sequence[Message]) -> None:
        """They wait for the end of this attempt."""

    def consumer_closed(self, consumer: Consumer, reason: str) -> None:
        """The queue is gone."""
        self._consumer = None

    def end(self, text: str) -> None:
        """They go back: with a text as failed, as far as they may die."""
        consumer, consumers = self._consumer, self._session.engine.consumers
        if consumer is None:
            return
        for id, message in list(consumer.unacked.items()):
            if text and self._session.may_die(self.route, message):
                consumers.give_back(consumer, id, redelivery.rejected(text))
        consumers.close(consumer, redelivery.CLOSED)
        self._consumer = None


#: What is done about each event; one table for all connections, as those that have not logged in must cost little.
_HANDLERS: Final[Handlers] = {
    **SHARED,
    SaslMechanisms: AmqpLinkSession._on_mechanisms,
    SaslChallenge: AmqpLinkSession._on_challenge,
    SaslOutcome: AmqpLinkSession._on_outcome,
    Connected: AmqpLinkSession._on_connected,
    Open: AmqpLinkSession._on_open,
    Close: AmqpLinkSession._on_closed,
    Began: AmqpLinkSession._on_began,
    Attached: AmqpLinkSession._on_attached,
    Available: AmqpLinkSession._on_available,
    Detached: AmqpLinkSession._on_route_detached,
    Ended: AmqpLinkSession._on_session_ended,
    LinkFailed: AmqpLinkSession._on_route_failed,
    SessionFailed: AmqpLinkSession._on_failed,
}
