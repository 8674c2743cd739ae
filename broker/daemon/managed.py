"""The running broker behind the interface of management."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from broker import __version__, clock
from broker.config import Config
from broker.daemon.server import Server
from broker.daemon.wiring import Broker
from broker.engine import Engine
from broker.log import Log
from broker.management.ports import AcceptorState, Replicated
from broker.sessions.links.links import Links
from broker.sessions.login import Gate
from broker.sessions.tick import Tick
from store.log import Counters


class Managed:
    """One broker, from its start: implements `management.ports.Broker`.  `server` is set once it serves."""

    server: Server

    def __init__(
        self,
        config: Config,
        log: Log,
        broker: Broker,
        *,
        replicated: Callable[[], Replicated | None],
        hand_over: Callable[[], None],
    ) -> None:
        self.broker = broker
        self.name = config.broker.name
        self.version = __version__
        self.started = clock.wall_ms()
        self.data_directory = config.broker.data_directory
        self.events: Mapping[str, int] = log.counts
        self.replicated = replicated
        self.hand_over = hand_over
        #: Why the broker is not ready for clients, in addition to the state of the disk; for people to read.
        self.reasons = ["the journal is being recovered"]

    @property
    def engine(self) -> Engine:
        return self.broker.engine

    @property
    def tick(self) -> Tick:
        return self.broker.tick

    @property
    def counters(self) -> Counters:
        return self.broker.log.counters

    @property
    def gate(self) -> Gate:
        return self.server.security.gate

    @property
    def links(self) -> Links:
        return self.server.links

    def acceptors(self) -> Sequence[AcceptorState]:
        return list(self.server.acceptors.states(self.server.security.certificate_end))

    def unready(self) -> list[str]:
        disk = self.engine.usage.disk
        if not self.broker.journal.accepting:
            return [*self.reasons, self.broker.journal.lacking]
        if disk.full:
            return [*self.reasons, f"{disk.unmet}: producers wait"]
        return list(self.reasons)
