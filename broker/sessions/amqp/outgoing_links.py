"""The links of a connection on which the broker sends, and what they have to do when a tick ends, or its bytes left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.engine import DeliveryOutcome
from broker.sessions.amqp.large import Pulling
from broker.sessions.base import BaseSession
from protocols.amqp.errors import AmqpError
from protocols.amqp.events import Credit, Dispositions, WindowOpened
from protocols.amqp.link import Link
from protocols.amqp.sender import Sender


class Outgoing(Protocol):
    """A consumer's link, or a browser's."""

    link: Sender

    def credit(self, event: Credit) -> None:
        """The receiver gave credit."""

    def more_room(self) -> None:
        """The session's window, or the span of unsettled ids, has room again."""

    def settle(self, event: Dispositions) -> None:
        """The receiver's outcome.  Raises AmqpError."""

    def finish_drain(self, tick: int) -> bool:
        """If nothing more is to send of what had come by this tick, say so; whether that is done."""

    def flushed(self) -> None:
        """The operating system has taken what was sent."""

    def pause(self, paused: bool) -> None:
        """The operating system does not take more for now, or does again."""

    def close(self, how: DeliveryOutcome) -> None:
        """The link is gone."""


class OutgoingLinks:
    """Those of one connection; one that breaks a rule is told to `lose`.  `pulling`: large messages that go out."""

    __slots__ = ("_draining", "_lose", "_owner", "_sending", "by_link", "pulling")

    def __init__(self, owner: BaseSession, lose: Callable[[Link, AmqpError], None]) -> None:
        self.by_link: dict[Link, Outgoing] = {}
        self.pulling = Pulling()
        self._owner = owner
        self._lose = lose
        self._draining: dict[Outgoing, int] = {}  # and the tick in which that was asked
        self._sending: dict[Outgoing, None] = {}  # settled deliveries count as consumed once they are flushed

    def add(self, made: Outgoing) -> None:
        """A link is attached."""
        self.by_link[made.link] = made

    def drop(self, link: Link, how: DeliveryOutcome) -> None:
        """A link is gone."""
        made = self.by_link.pop(link, None)
        if made is not None:
            self._draining.pop(made, None)
            made.close(how)

    def close(self, how: DeliveryOutcome) -> None:
        """The connection is gone."""
        for made in self.by_link.values():
            made.close(how)
        self.by_link.clear()
        self.forget()

    # -- what the peer says ----------------------------------------------------------------------------------------

    def credit(self, event: Credit) -> None:
        """A receiver gave credit."""
        made = self.by_link.get(event.link)
        if made is not None:
            made.credit(event)

    def window_opened(self, event: WindowOpened) -> None:
        """A session may send again."""
        for link, made in list(self.by_link.items()):  # a browser may end: the disk cannot be read
            if link.session is event.session:
                made.more_room()

    def dispositions(self, event: Dispositions) -> None:
        """The receiver's outcome for deliveries."""
        made = self.by_link.get(event.link)
        if made is not None:
            try:
                made.settle(event)
            except AmqpError as error:
                self._lose(event.link, error)

    # -- what goes out ---------------------------------------------------------------------------------------------

    def sent(self, made: Outgoing, nbytes: int) -> None:
        """Messages of a link go out with this tick."""
        self._sending[made] = None
        self._owner.sent(nbytes)

    def drain_later(self, made: Outgoing) -> None:
        """Ask a link to `finish_drain` when the tick ends."""
        self._draining[made] = self._owner.engine.ticks.number

    def forget(self) -> None:
        """Nothing more is said about credit."""
        self._draining.clear()

    def finish(self) -> None:
        """The tick is over: large messages go on, and drains are answered."""
        if self.pulling.links and not self._owner.window.socket_full:
            self._owner.tick.enter()
            self.pulling.pull()
        if self._draining:
            self._draining = {made: tick for made, tick in self._draining.items() if not made.finish_drain(tick)}
            if self._draining:  # there is more to send first: look again after the next tick
                self._owner.touch()

    def flushed(self) -> None:
        """The operating system has taken all."""
        sending, self._sending = self._sending, {}
        for made in sending:
            made.flushed()
        if self.pulling.links and self.pulling.ready:
            self._owner.touch()

    def pause(self, paused: bool) -> None:
        """Nothing goes out for now, or again."""
        for made in list(self.by_link.values()):  # a browser may end, as above
            made.pause(paused)
