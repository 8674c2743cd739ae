"""The base of every protocol's session: its tick and transport, when it is read, and how much output may be pending."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from broker.engine import Engine
from broker.engine.model.access import Access
from broker.sessions.login import Peer
from broker.sessions.output_window import OutputWindow
from broker.sessions.reading import Reading
from broker.sessions.tick import Tick, Transport
from broker.sessions.unsendable import Unsendable

Error = TypeVar("Error", bound=Exception)


def without_calls(error: Error) -> Error:
    """Return an exception that is kept as a value: the calls of its traceback refer to the connection, and to it."""
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error


class BaseSession(ABC):
    """The broker's side of one connection.  Subclasses implement the protocols.

    `established`: the client has logged in; `lost`: the connection is over, but pending output may still be sent.
    """

    __slots__ = (
        "engine",
        "established",
        "id",
        "lost",
        "reading",
        "remote",
        "tick",
        "transport",
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
        self.reading = Reading(transport, tick)
        self.unsendable = Unsendable(tick)
        self.window = OutputWindow()
        self.transport = transport  # see Sink, Waiter, Producer

    def touch(self) -> None:
        """Flush the transport at the end of this tick: there is output."""
        self.tick.touch(self.transport)

    @abstractmethod
    def pause(self, paused: bool) -> None:
        """Pause or resume deliveries to this connection."""

    def write_blocked(self) -> None:
        """Stop deliveries: the operating system does not accept more output."""
        self.window.socket_full = True
        self.close_window()

    def close_window(self) -> None:
        """Stop deliveries until the operating system has accepted all output."""
        self.window.paused = True
        self.pause(True)

    def open_window(self) -> None:
        """Resume deliveries: the operating system has accepted all output."""
        if self.window.flushed():
            self.pause(False)

    def sent(self, nbytes: int) -> None:
        """Count bytes of messages that are sent in this tick."""
        if self.window.sent(nbytes):
            self.close_window()
        self.touch()

    def opened(self, protocol: str, access: Access) -> None:
        """Mark the client as logged in and register the connection: operators see it from now on."""
        self.established = True
        self.engine.ticks.begin_connection(self.transport)
        self.engine.connections.opened(self.id, protocol, self.remote, access, self._dismissed)

    def guarded(self, call: Callable[..., None]) -> Callable[..., None]:
        """Wrap a call that is made outside this connection: an exception from it ends only this connection."""
        return self.tick.guarded(self.transport, call)

    def _dismissed(self, reason: str) -> None:
        """Called on behalf of an operator: its errors must not reach the caller."""
        self.guarded(self.dismiss)(reason)

    @abstractmethod
    def dismiss(self, reason: str) -> None:
        """End the connection because an operator wants it closed."""

    def report(self, code: str, /, **fields: str | int) -> None:
        """Log an event of this connection."""
        self.engine.report(code, connection=self.id, remote=self.remote, **fields)
