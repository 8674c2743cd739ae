"""What answers on each acceptor: from the configuration to the sessions of its connections."""

from __future__ import annotations

from collections.abc import Callable

from broker import __version__
from broker.config import AmqpAcceptor, Config, MessagingAcceptor, StompAcceptor
from broker.net.listener import MakeSession
from broker.sessions.amqp import AmqpSession, Containers
from broker.sessions.amqp_terms import AmqpOptions
from broker.sessions.detect import DetectingSession
from broker.sessions.session import Session
from broker.sessions.stomp import StompSession
from broker.sessions.stomp_headers import Options, Prefixes
from broker.sessions.turn import Outlet, Turn
from broker.sessions.websocket import WebSocketSession
from broker.users import ConfiguredUsers
from protocols.amqp.limits import Limits as AmqpLimits
from protocols.stomp.limits import Limits as StompLimits


class Accepting:
    """Makes sessions; what they share over all acceptors is here."""

    def __init__(self, config: Config, turn: Turn) -> None:
        self._config = config
        self._turn = turn
        self._containers = Containers()
        self._users: ConfiguredUsers | None = None
        if config.users:
            passwords = {name: user.password.get_secret_value().encode() for name, user in config.users.items()}
            self._users = ConfiguredUsers(passwords, turn.engine.core.random.randbytes(32))

    def sessions(self, acceptor: MessagingAcceptor) -> MakeSession:
        """What makes the session of each connection to an acceptor."""
        make = self._of_one(acceptor)
        others: dict[str, MakeSession] = {}
        for name in acceptor.others:
            other = self._config.acceptors[name]
            assert isinstance(other, MessagingAcceptor), "the configuration is checked"
            others[other.protocol] = self._of_one(other)
        if not others:
            return make
        served: dict[str, MakeSession] = {acceptor.protocol: make, **others}

        def detecting(outlet: Outlet, number: int, remote: str) -> Session:
            return DetectingSession({name: _bound(each, outlet, number, remote) for name, each in served.items()})

        return detecting

    def _of_one(self, acceptor: MessagingAcceptor) -> MakeSession:
        if isinstance(acceptor, StompAcceptor):
            return self._stomp(acceptor)
        assert isinstance(acceptor, AmqpAcceptor), "a protocol for which there are sessions"
        make = self._amqp(acceptor)
        return self._over_websocket(make, "amqp", acceptor) if acceptor.websocket else make

    def _over_websocket(self, make: MakeSession, subprotocol: str, acceptor: AmqpAcceptor) -> MakeSession:
        most = self._config.limits.body_bytes_max + self._config.limits.header_bytes_max + acceptor.max_frame_size

        def wrapped(outlet: Outlet, number: int, remote: str) -> Session:
            return WebSocketSession({subprotocol: _bound(make, outlet, number, remote)}, message_bytes_max=most)

        return wrapped

    def _connection_id(self, number: int) -> str:
        return f"{self._turn.engine.core.random.getrandbits(32):08x}-{number}"

    def _stomp(self, acceptor: StompAcceptor) -> MakeSession:
        config = self._config
        limits = StompLimits(
            header_count_max=config.limits.header_count_max,
            header_line_bytes_max=config.limits.header_line_bytes_max,
            header_bytes_max=config.limits.header_bytes_max,
            body_bytes_max=config.limits.body_bytes_max,
            connect_bytes_max=config.limits.connect_bytes_max,
        )
        options = Options(
            server=f"bartleby/{__version__}",
            prefixes=Prefixes(acceptor.anycast_prefixes, acceptor.multicast_prefixes),
            window=acceptor.stomp_consumer_window_size,
            ttl=config.connection_ttl(acceptor),
            ttl_min=acceptor.connection_ttl_min,
            ttl_max=acceptor.connection_ttl_max,
            ttl_modifier=acceptor.heart_beat_to_connection_ttl_modifier,
            subscriptions_max=config.limits.subscriptions_per_connection_max,
            transactions_max=config.limits.transactions_per_connection_max,
        )
        authenticate = None if self._users is None else self._users.check

        def make(outlet: Outlet, number: int, remote: str) -> Session:
            return StompSession(
                self._turn,
                outlet,
                options,
                limits,
                connection_id=self._connection_id(number),
                remote=remote,
                authenticate=authenticate,
            )

        return make

    def _amqp(self, acceptor: AmqpAcceptor) -> MakeSession:
        config = self._config
        limits = AmqpLimits(
            frame_bytes_max=acceptor.max_frame_size,
            handshake_bytes_max=config.limits.connect_bytes_max,
            message_bytes_max=config.limits.body_bytes_max + config.limits.header_bytes_max,
            links_max=config.limits.subscriptions_per_connection_max,
        )
        options = AmqpOptions(
            container_id=config.broker.name,
            version=__version__,
            anycast_prefixes=acceptor.anycast_prefixes,
            multicast_prefixes=acceptor.multicast_prefixes,
            credits=acceptor.amqp_credits,
            low_credits=acceptor.amqp_low_credits,
            idle_timeout=max(acceptor.amqp_idle_timeout, 0),
            transactions_max=config.limits.transactions_per_connection_max,
        )

        def make(outlet: Outlet, number: int, remote: str) -> Session:
            return AmqpSession(
                self._turn,
                outlet,
                options,
                limits,
                connection_id=self._connection_id(number),
                remote=remote,
                users=self._users,
                containers=self._containers,
            )

        return make


def _bound(make: MakeSession, outlet: Outlet, number: int, remote: str) -> Callable[[], Session]:
    return lambda: make(outlet, number, remote)
