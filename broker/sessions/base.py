"""What a connection is in every protocol: who calls it, when it is read, and how much it may have on its way out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from broker.engine import Engine
from broker.engine.model.access import Access
from broker.sessions.login import Peer
from broker.sessions.output_window import OutputWindow
from broker.sessions.reading import Reading
from broker.sessions.tick import Tick, Transport
from broker.sessions.unsendable import Unsendable


class BaseSession(ABC):
    """The broker's side of one connection.  A protocol's session says what its bytes mean.

    `established`: its client is known; `lost`: nothing more happens on it, but what is owed may still go out.
    """

    __slots__ = (
        "_transport",
        "engine",
        "established",
        "id",
        "lost",
        "reading",
        "remote",
        "tick",
        "unsendable",
        "window",
    )

    def __init__(self, tick: Tick, transport: Transport, connection_id: str, peer: Peer) -> None:
        self.established = False
        self.lost = False
        self.engine: Engine = tick.engine
        self.tick = tick
        self.remote = peer.remote
        self.id = connection_id
        self.reading = Reading(transport, self)
        self.unsendable = Unsendable(tick)
        self.window = OutputWindow(self)
        self._transport = transport

    @property
    def transport(self) -> Transport:
        """The connection: see Sink, Waiter, Producer."""
        return self._transport

    def touch(self) -> None:
        """There is something to say: it goes out with this tick."""
        self.tick.touch(self._transport)

    @abstractmethod
    def pause(self, paused: bool) -> None:
        """No deliveries to this connection for now, or again."""

    def write_blocked(self) -> None:
        """The operating system does not take more: no deliveries until it does."""
        self.window.block()

    def sent(self, nbytes: int) -> None:
        """So many bytes of messages go out with this tick."""
        self.window.sent(nbytes)
        self.touch()

    def opened(self, protocol: str, access: Access) -> None:
        """The client is known from now on, and operators see it."""
        self.established = True
        self.engine.connections.opened(self.id, protocol, self.remote, access, self._dismissed)

    def guarded(self, call: Callable[..., None]) -> Callable[..., None]:
        """The call, to be made for others: what comes out of it costs this connection."""
        return self.tick.guarded(self._transport, call)

    def _dismissed(self, reason: str) -> None:
        """Somebody else's call."""
        self.guarded(self.dismiss)(reason)

    @abstractmethod
    def dismiss(self, reason: str) -> None:
        """An operator ends the connection."""

    def report(self, code: str, /, **facts: str | int) -> None:
        """An event of this connection, for the log."""
        self.engine.report(code, connection=self.id, remote=self.remote, **facts)
