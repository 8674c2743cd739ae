"""The network side of a broker that owns its journal: logins, acceptors, and links to other brokers."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from broker import clock
from broker.config import Config
from broker.console.console import Console
from broker.daemon.accepting import Accepting, served_protocols
from broker.daemon.acceptors import Acceptors
from broker.daemon.descriptors import limit, open_now, report_few, share_out
from broker.daemon.linking import LinkSessions, link_settings, make_dialer
from broker.daemon.wiring import Broker
from broker.engine import LongWork
from broker.log import Log
from broker.management.callers import require_step
from broker.management.http import HttpServer
from broker.management.ports import Broker as BrokerPort
from broker.management.runtime import Listening
from broker.management.shared import Shared
from broker.net.runner import LoopRunner
from broker.security.reload import BrokerSecurity
from broker.security.users_file import UnusableFile
from broker.sessions.links.links import Links

#: What it costs to close a connection whose login is over, and to find out that it is not, in microseconds
#: (`broker.engine.queues.steps`).
EXPEL_COST: Final = 50
LOOK_COST: Final = 1


class Server:
    """Serves one broker.  Raises UnusableFile."""

    def __init__(self, config: Config, broker: Broker, log: Log) -> None:
        self._config = config
        self._broker = broker
        self._log = log
        self.acceptors = Acceptors(config, broker.tick, log)
        self.runner = LoopRunner(broker.tick)
        try:
            log.open_audit(config.security.audit_file)
            self.security = BrokerSecurity(config, broker.engine, self.runner, report=log, now=clock.monotonic_ms)
            self.links = Links(broker.engine, link_settings(config))
            self._accepting = Accepting(config, broker.tick, self.security.gate)
            self._link_sessions = LinkSessions(
                config, broker.tick, self.links, self._accepting.mqtt_sessions, self.runner.for_links
            )
            self.dialer = make_dialer(config, broker.tick, self.links, self._link_sessions, log)
        except OSError as error:
            raise UnusableFile(str(error)) from None

    async def open(self, managed: BrokerPort, token: str) -> list[Listening]:
        """Restore clients' sessions of an earlier run, resume its tasks, and listen.  Returns the addresses.

        HTTP comes first: to make its applications takes some 200 ms, in which no message must wait.

        Raises CannotListen.
        """
        config = self._config
        self._broker.tick.enter()
        self._broker.disk.start()
        self._accepting.mqtt_sessions.restore()
        self._link_sessions.restore()
        descriptors = share_out(config, limit(), open_now())
        report_few(self._log, config, descriptors)
        self.acceptors.total.limit = descriptors.connections
        engine = self._broker.engine
        engine.tasks.go_on(partial(require_step, engine))
        shared = Shared(managed)
        console = Console(managed, token, reports=config.broker.audit_reports, shared=shared)
        for name, http_acceptor in config.http_acceptors.items():
            server = HttpServer(
                managed,
                token,
                name=name,
                context=self.security.context(name),
                logins=self.acceptors.logins,
                open_metrics=http_acceptor.open_metrics,
                connections_max=descriptors.http[name][0],
                reserved_max=descriptors.http[name][1],
                allowed_hosts=http_acceptor.allowed_hosts,
                console=console if http_acceptor.console else None,
                shared=shared,
            )
            await self.acceptors.open_http(name, server)
        await asyncio.sleep(0)  # the tick in which all this was restored ends before anybody connects
        for name, acceptor in config.messaging_acceptors.items():
            await self.acceptors.open(
                name,
                self._accepting.sessions(acceptor),
                context=self.security.context(name),
                left=self.security.gate.left,
                served=served_protocols(config, acceptor),
            )
        return self.acceptors.addresses

    def set_congested(self, congested: bool) -> None:
        """Stop or resume reading from all connections: the journal cannot take more, or can again."""
        self.acceptors.set_congested(congested)
        self.dialer.set_congested(congested)

    async def check(self) -> None:
        """Wait a moment, then check the timers of connections and whether their logins are still valid."""
        await self.acceptors.check()
        tick, gate = self._broker.tick, self.security.gate
        try:
            self.security.look(self.expel)
            if gate.peers.any_expired(clock.wall_ms()) or gate.peers.any_withdrawn():
                self.expel()
        except BaseException as error:
            tick.failed(None, error)

    def expel(self) -> None:
        """Close connections whose login is no longer valid: its user, certificate rule, role or token is gone.

        All may be of one user, so it is done in steps.
        """
        self._broker.tick.enter()
        self._broker.engine.ticks.add_work("logins that are over", self._expel(), None)

    def _expel(self) -> LongWork:
        peers, now = self.security.gate.peers, clock.wall_ms()
        for connection in list(self.acceptors.connections()):
            gone = peers.gone(connection.peer)
            if not gone and not peers.expired(connection.peer, now):
                yield LOOK_COST
                continue
            self._log("login.revoked" if gone else "login.expired", remote=connection.remote)
            connection.abort()
            yield EXPEL_COST

    def give_up(self, why: str, *, moved: bool) -> None:
        """Disconnect all clients with a reason; nothing more is confirmed.  `moved`: see Session."""
        self.acceptors.close()
        for connection in self.acceptors.connections():
            self._broker.tick.give_up(connection, why, moved=moved)

    async def disconnect_clients(self, *, moved: bool) -> None:
        """Shut down all sessions, and return when all clients have disconnected.  `moved`: see Session."""
        self.dialer.shut_down()
        await self.acceptors.disconnect_clients(moved=moved)

    async def abort(self, http_seconds: float) -> None:
        """Stop listening, give HTTP requests some seconds to finish, and close all connections."""
        await self.acceptors.abort(http_seconds)
        self.dialer.abort()
        self.runner.close()
