"""A link over AMQP 1.0: the side that connects, logs in, and attaches the routes.

Each route has an AMQP session of its own: some brokers end the session for an error of one of its links, which should
not affect other routes (`route_session`).

    TCP (TLS)   SASL   OPEN          link: running
                       BEGIN ATTACH  a route each: starting, then running; or refused: retrying
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.engine import DeliveryOutcome, redelivery
from broker.engine.model.access import UNRESTRICTED
from broker.sessions.amqp.attach import refuse
from broker.sessions.amqp.endpoint import SHARED, AmqpEndpoint, Handlers
from broker.sessions.amqp.terms import AmqpOptions
from broker.sessions.amqp.transactions import OpenTransaction
from broker.sessions.links.links import Links
from broker.sessions.links.login import Aside, LinkLogin
from broker.sessions.links.model import Link, State
from broker.sessions.links.route_session import RouteSession
from broker.sessions.links.routes import UnsendableByRoutes, words
from broker.sessions.links.scram import LoginFailed
from broker.sessions.login import Peer
from broker.sessions.reading import LOGIN
from broker.sessions.tick import Tick, Transport
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.errors import NOT_ALLOWED, AmqpError, link_error
from protocols.amqp.events import Attached, Available, Began, Connected, Detached, Ended
from protocols.amqp.limits import Limits
from protocols.amqp.link import Channel
from protocols.amqp.link import Link as AmqpLink
from protocols.amqp.performatives import Close, Error, Open, SaslChallenge, SaslMechanisms, SaslOutcome
from protocols.amqp.session import Session


class AmqpLinkSession(AmqpEndpoint):
    """Our side of a link's connection; `routes` by name, once it has logged in."""

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
        readable: bool,
        aside: Aside,
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
        self.routes: dict[str, RouteSession] = {}
        self._sessions: dict[Channel, RouteSession] = {}
        self._links = links
        self._link = link
        self._broker_name = broker_name
        self._aside = aside
        self._login = LinkLogin(codec, link, hostname, options, readable=readable)
        self._why = ""  # why the connection ends

    @property
    def handlers(self) -> Handlers:
        return _HANDLERS

    # -- login and end ---------------------------------------------------------------------------------------------

    def _on_sasl(self, event: SaslMechanisms | SaslChallenge | SaslOutcome) -> None:
        self._log_in(lambda: self._login.step(event, self._compute))

    def _log_in(self, step: Callable[[], None]) -> None:
        try:
            step()
        except LoginFailed as failure:
            self._why = str(failure)
            self.codec.send_close()
            self.end(redelivery.CLOSED)
        self.touch()

    def _compute(self, work: Callable[[], bytes], then: Callable[[bytes | BaseException], None]) -> None:
        """Compute a step of the login on a thread; nothing is read meanwhile."""

        def computed(result: bytes | BaseException) -> None:
            if not self.lost:
                self._log_in(lambda: then(result))
                self.process()

        self._aside(work, self.reading.until(LOGIN, computed))

    def _on_connected(self, event: Connected) -> None:
        self._login.send_open()
        self.touch()

    def _on_open(self, event: Open) -> None:
        self.container = event.container_id
        peer = self._login.opened(event)
        for name, route in self._link.routes.items():
            self.routes[name] = RouteSession(self, route, self._broker_name, self._login, self._sessions)
        self.opened("AMQP", self.access)
        self._links.opened(self._link, self, peer)

    def _on_closed(self, event: Close) -> None:
        self._why = f"the other broker closed the connection: {words(event.error)}" if event.error else ""
        self._on_close(event)

    def fail_with(self, error: AmqpError) -> None:
        self._why = self._why or str(error)
        super().fail_with(error)

    def ending(self) -> None:
        for each in self.routes.values():
            each.end_attempt("")

    def ended(self) -> None:
        self.routes.clear()
        self._sessions.clear()
        self._links.lost(self._link, self._why)

    # -- routes ----------------------------------------------------------------------------------------------------

    def start_routes(self) -> None:
        self._end_attempts()
        for each in self.routes.values():
            if each.route.state in (State.STOPPED, State.PAUSED):
                each.start()
        self.touch()

    def pause_routes(self) -> None:
        for each in self.routes.values():
            each.pause()
        self.touch()

    def check(self) -> None:
        self._end_attempts()
        for each in self.routes.values():
            each.check()

    def _end_attempts(self) -> None:
        """Return messages that could not be sent, before a route starts and sends later ones."""
        for each in self.routes.values():
            each.end_attempt(each.route.error)

    def _on_began(self, event: Began) -> None:
        if event.begin.remote_channel is None:  # a session of the other broker's, which is of no use
            event.session.send_begin()
            event.session.send_end()
            return
        route = self._sessions.get(event.session)
        if route is not None:  # it has not been ended since
            route.began(event.session)
            self.touch()

    def _on_available(self, event: Available) -> None:
        """Fetch the messages that the other broker has reserved for a route."""
        receiving = self.incoming.by_link.get(event.link)
        if receiving is not None:
            receiving.top_up()

    def _on_attached(self, event: Attached) -> None:
        link = event.link
        if link.local is None:
            refuse(link, Error(NOT_ALLOWED, "this broker has connected to pass messages on: it serves no clients here"))
            return
        route = self._sessions.get(link.session)
        if route is not None:  # it has not been ended since
            route.attached(link, event.attach)

    # -- what ends a route -----------------------------------------------------------------------------------------

    def drop(
        self, link: AmqpLink, *, closed: bool, detached: bool = False, how: DeliveryOutcome = redelivery.CLOSED
    ) -> None:
        super().drop(link, closed=closed, detached=detached, how=how)
        route = self._sessions.get(link.session)
        if route is not None:
            route.dropped(link)

    def _on_route_detached(self, event: Detached) -> None:
        route = self._sessions.get(event.link.session)
        if route is None or not route.has(event.link):
            # Consumers with the selector of a part get only messages that arrive here otherwise.
            self.on_detached(event)
            return
        ran = route.blame(event.error)
        self.on_detached(event)
        self.part(event.link)
        route.refuse(event.error, ran=ran)
        route.end("")

    def _on_route_ended(self, event: Ended) -> None:
        route = self._sessions.get(event.session)
        ran = route is not None and route.blame(event.error)
        self.end_session(event.session, redelivery.CLOSED)
        if route is not None:
            route.refuse(event.error, ran=ran)

    def end_session(self, session: Session, how: DeliveryOutcome, error: AmqpError | None = None) -> None:
        route = self._sessions.get(session)
        if route is not None:
            route.over()
        super().end_session(session, how, error)
        if route is not None and error is not None:
            route.status.retry_later(str(error))

    def lose(self, link: AmqpLink, error: AmqpError) -> None:
        super().lose(link, error)
        self._end_route(link, str(error))

    def detach(self, link: AmqpLink, error: Error) -> None:
        super().detach(link, error)
        self._end_route(link, f"this broker: {words(error)}")

    def _end_route(self, link: AmqpLink, why: str) -> None:
        route = self._sessions.get(link.session)
        if route is not None:
            route.end(why)

    def transaction(self, txn_id: bytes) -> OpenTransaction:
        raise link_error(NOT_ALLOWED, "a link has no transactions")


#: The handler of each event; one table for all connections: one that has not logged in must cost little.
_HANDLERS: Final[Handlers] = {
    **SHARED,
    **dict.fromkeys((SaslMechanisms, SaslChallenge, SaslOutcome), AmqpLinkSession._on_sasl),
    Connected: AmqpLinkSession._on_connected,
    Open: AmqpLinkSession._on_open,
    Close: AmqpLinkSession._on_closed,
    Began: AmqpLinkSession._on_began,
    Attached: AmqpLinkSession._on_attached,
    Available: AmqpLinkSession._on_available,
    Detached: AmqpLinkSession._on_route_detached,
    Ended: AmqpLinkSession._on_route_ended,
}
