"""Links between simulated brokers: the sessions of both ends, over perfect wires, under one virtual time.

    a = SimBroker(linked("orders.out", "orders"))
    b = SimBroker()
    links = SimLinks(a, {"b": b})
    links.run()

`cut` breaks a wire, and loses the bytes that `hold` has kept back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol, runtime_checkable

from broker.config import Config, LinkSection
from broker.daemon.linking import LinkSessions, link_settings
from broker.net.listener import CHECK_PERIOD_MS
from broker.sessions.links.links import Links
from broker.sessions.links.model import Link as BrokerLink
from broker.sessions.links.model import Route
from broker.sessions.login import Peer
from broker.sessions.tick import Tick
from tests.support.sim_broker import SimBroker, SimPeer, configured
from tests.support.sim_gate import Result, outcome

#: Rounds after which both brokers count as exchanging bytes without end.
ROUNDS_MAX: Final = 10_000


def linked(
    *settings: dict[str, object], name: str = "a", sections: Mapping[str, object] | None = None, **routes: Any
) -> Config:
    """Return the configuration of a broker with a link to `b`; `routes` are the tables of its section."""
    section = LinkSection.model_validate({"url": "amqp://b:5672", **routes})
    shipped = configured(*settings, **(sections or {}))
    broker = shipped.broker.model_copy(update={"name": name})
    return shipped.model_copy(update={"links": {"b": section}, "broker": broker})


class OtherEnd(Protocol):
    """The other end of one connection."""

    closed: bool

    def raw(self, data: bytes) -> None:
        """Process bytes of the link."""

    def abort(self) -> None:
        """Note the end of the connection."""


@runtime_checkable
class Answering(Protocol):
    """Another broker, defined by a test."""

    def accept(self, remote: str, heard: list[bytes]) -> OtherEnd:
        """Accept a connection; bytes for the link are appended to `heard`."""

    def run(self) -> None:
        """Turn until nothing is left to do."""

    def advance(self, ms: int) -> None:
        """Let time pass."""


class SimLinks:
    """The links of a broker to others, by the names of the links."""

    def __init__(self, broker: SimBroker, others: Mapping[str, SimBroker | Answering]) -> None:
        self.broker = broker
        self.others = dict(others)
        self.down: set[str] = set()  # links whose other end cannot be reached
        broker.tick.enter()
        self.links = Links(broker.engine, link_settings(broker.config))
        self.computing: list[Callable[[], None]] = []  # logins' work, which a real broker does on a thread
        self.make_session = LinkSessions(
            broker.config, broker.tick, self.links, broker.accepting.mqtt_sessions, self._compute_later
        )
        self.make_session.restore()
        self.wires: dict[str, Wire] = {}
        self._made = 0

    def _compute_later(self, work: Callable[[], Result], then: Callable[[Result | BaseException], None]) -> None:
        self.computing.append(lambda: then(outcome(work)))

    def link(self, name: str = "b") -> BrokerLink:
        """Return a link."""
        return self.links.by_name[name]

    def route(self, name: str, link: str = "b") -> Route:
        """Return a route."""
        return self.links.by_name[link].routes[name]

    def do(self, verb: Callable[..., Any], *args: Any, **more: Any) -> Any:
        """Make an operator's call, within a tick."""
        self.broker.tick.enter()
        try:
            return verb(*args, **more)
        finally:
            self.run()

    def look(self) -> None:
        """Connect the links that are due, as the dialer does every quarter of a second."""
        self.broker.tick.enter()
        self.links.check()
        for link in self.links.due():
            link.remote = link.settings.urls[0]
            if link.name in self.down:
                self.links.lost(link, "connection refused")
                continue
            self._made += 1
            self.wires[link.name] = Wire(self, link, self._made)

    def run(self) -> None:
        """Carry bytes both ways until nothing is left to send."""
        self.look()
        for _ in range(ROUNDS_MAX):
            self.broker.run()
            for other in self.others.values():
                other.run()
            computing, self.computing = self.computing, []
            for compute in computing:
                self.broker.tick.enter()
                compute()
            if not any([wire.carry() for wire in list(self.wires.values())]) and not computing:
                return
        raise AssertionError("the brokers do not come to rest")

    def advance(self, ms: int) -> None:
        """Let time pass at all brokers."""
        for _ in range(-(-ms // CHECK_PERIOD_MS)):
            self.broker.advance(CHECK_PERIOD_MS)
            for other in self.others.values():
                other.advance(CHECK_PERIOD_MS)
            self.run()

    def cut(self, name: str = "b", *, down: bool = False) -> None:
        """Cut a connection, with the bytes in transit; `down`: there is no other one until `mend`."""
        if down:
            self.down.add(name)
        self.wires.pop(name).cut()

    def mend(self, ms: int) -> None:
        """Let all links connect again, and time pass."""
        self.down.clear()
        self.advance(ms)

    def forget(self, name: str, broker: SimBroker) -> None:
        """Replace the other end of a link, which has died, by another run of it."""
        self.cut(name)
        self.others[name] = broker


class Wire:
    """Our end of a link's connection: its session's transport; the other end is a client of the other broker."""

    def __init__(self, links: SimLinks, link: BrokerLink, number: int) -> None:
        self.holding = False  # the bytes of both sides wait
        self._links = links
        self._name = link.name
        self.remote = link.remote
        self._out: list[bytes] = []
        self._in: list[bytes] = []
        self._closed = False
        self._reading = True
        other = links.others[link.name]
        self.peer = (
            other.accept(link.remote, self._in)
            if isinstance(other, Answering)
            else _accept(other, link.remote, self._in)
        )
        self.session = links.make_session(self, link, number, Peer(self.remote))
        links.links.connected(link, self.session)
        self.flush()

    @property
    def _tick(self) -> Tick:
        return self._links.broker.tick

    def flush(self) -> None:
        """See Transport."""
        if self._closed:
            return
        data = self.session.data_to_send()
        if data:
            self._out.append(data)
        self._tick.enter()
        self.session.flushed()
        if self.session.close_expected:
            self.carry()
            self.abort()

    def carry(self) -> bool:
        """Deliver the bytes of each side to the other; whether there were any."""
        if self.holding:
            return False
        out, self._out = self._out, []
        for data in out:
            if not self.peer.closed:
                self.peer.raw(data)
        came = 0
        while self._in and self._reading and not self._closed:
            self._tell(partial(self.session.receive_data, self._in.pop(0)))
            self._tick.touch(self)
            came += 1
        if self.peer.closed and not self._closed and not self._in:
            self.abort()
        return bool(out or came)

    def deliver_there(self) -> None:
        """Deliver our bytes to the other end; its answers wait."""
        out, self._out = self._out, []
        for data in out:
            self.peer.raw(data)
        self._links.others[self._name].run()

    def _tell(self, call: Callable[[], None]) -> None:
        self._tick.enter()
        try:
            call()
        except BaseException as error:
            self._tick.failed(self, error)

    def pause_reading(self) -> None:
        """See Transport."""
        self._reading = False

    def resume_reading(self) -> None:
        """See Transport."""
        self._reading = True

    def abort(self) -> None:
        """End the connection at both sides."""
        if not self._closed:
            self._closed = True
            self._links.wires.pop(self._name, None)
            self._tell(self.session.connection_lost)
            self.peer.abort()

    def cut(self) -> None:
        """Cut the connection, with the bytes in transit."""
        self._out.clear()
        self._in.clear()
        self.abort()
        self._links.broker.run()


def _accept(broker: SimBroker, remote: str, heard: list[bytes]) -> OtherEnd:
    return _OtherEnd(broker, "mqtt" if remote.startswith("mqtt") else "amqp", heard)


class _OtherEnd(SimPeer):
    """The link's connection as the other broker sees it: a client of one of its acceptors."""

    def __init__(self, broker: SimBroker, acceptor: str, heard: list[bytes]) -> None:
        self._heard = heard
        super().__init__(broker, acceptor, broker.number())
        broker.attached(self)

    def heard(self, data: bytes) -> None:
        """Add the broker's bytes to the wire."""
        self._heard.append(data)
