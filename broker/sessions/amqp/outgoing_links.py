"""The sending links of a connection: what they do when a tick ends, and when its bytes are flushed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from broker.engine import Consumer, DeliveryOutcome, Engine, Unreadable
from broker.engine.model.message import Message
from broker.sessions.amqp.incoming_links import LinkErrors
from broker.sessions.amqp.large import LargeOut
from broker.sessions.base import BaseSession
from protocols.amqp.errors import AmqpError
from protocols.amqp.events import Credit, Dispositions, WindowOpened
from protocols.amqp.link import Link
from protocols.amqp.sender import Sender

#: The consumer of a link that ends, if it has one, and what becomes of its deliveries.
Closing = Sequence[tuple[Consumer, DeliveryOutcome]]


class Outgoing(Protocol):
    """A consumer's link, or a browser's."""

    link: Sender
    large: LargeOut | None  # the large message that it is sending

    def more_room(self) -> None:
        """Continue to send: there is credit, or room in the session's window or in the span of unsettled ids."""

    def settle(self, event: Dispositions) -> None:
        """Apply the receiver's outcome of deliveries.  Raises AmqpError."""

    def large_out(self, message: Message, error: Unreadable | None) -> None:
        """Continue after a large message, which is sent, or could not be read to its end."""

    def finish_drain(self, tick: int) -> bool:
        """Answer a drain if all messages up to this tick are sent.  Returns whether that is done."""

    def flushed(self) -> None:
        """Note that the operating system has everything that was sent."""

    def pause(self, paused: bool) -> None:
        """Pause or resume deliveries."""

    def end(self, how: DeliveryOutcome) -> Closing:
        """Clean up after the link has ended.  Returns what is to be closed."""


class OutgoingLinks:
    """The sending links of one connection, which is passed to each call: an ended one is in no reference cycle.

    `pulling` are the links that send large messages, in turn a piece each.
    """

    __slots__ = ("_draining", "_engine", "_sending", "by_link", "pulling")

    def __init__(self, engine: Engine) -> None:
        self.by_link: dict[Link, Outgoing] = {}
        self.pulling: dict[Outgoing, None] = {}
        self._engine = engine
        self._draining: dict[Outgoing, int] = {}  # and the tick of the request
        self._sending: dict[Outgoing, None] = {}  # settled deliveries count as consumed once they are flushed

    def add(self, made: Outgoing) -> None:
        """Add an attached link."""
        self.by_link[made.link] = made

    def drop(self, link: Link, how: DeliveryOutcome) -> None:
        """Remove a link that has ended."""
        made = self.by_link.pop(link, None)
        if made is not None:
            self._draining.pop(made, None)
            for consumer, outcome in made.end(how):
                self._engine.consumers.close(consumer, outcome)

    def close(self, how: DeliveryOutcome, transport: object, then: Callable[[], None]) -> None:
        """Remove all links: the connection has ended.  Then call `then`."""
        closing = dict([each for made in self.by_link.values() for each in made.end(how)])
        self.by_link.clear()
        self.pulling.clear()
        self._sending.clear()
        self.forget()
        self._engine.consumers.close_all(closing, transport, then)

    def credit(self, event: Credit) -> None:
        """Let a link use new credit of its receiver, which may ask to drain it when the tick ends."""
        made = self.by_link.get(event.link)
        if made is not None:
            made.more_room()
            if event.link.drain:
                self._draining[made] = self._engine.ticks.number

    def window_opened(self, event: WindowOpened) -> None:
        """Let the links of a session continue, as its window has room again."""
        for link, made in list(self.by_link.items()):  # a browser may end: the disk cannot be read
            if link.session is event.session:
                made.more_room()

    def dispositions(self, errors: LinkErrors, event: Dispositions) -> None:
        """Pass the outcome of deliveries to their link."""
        made = self.by_link.get(event.link)
        if made is None:
            errors.dropped(event.state)
            return
        try:
            made.settle(event)
        except AmqpError as error:
            errors.lose(event.link, error)

    def sent(self, owner: BaseSession, made: Outgoing, nbytes: int) -> None:
        """Note that messages of a link are sent with this tick."""
        self._sending[made] = None
        owner.sent(nbytes)

    def forget(self) -> None:
        """Forget the drains that are not finished."""
        self._draining.clear()

    def finish(self, owner: BaseSession) -> None:
        """End of a tick: send more of the large messages, and answer drains."""
        if self.pulling and not owner.window.socket_full:
            owner.tick.enter()
            self._pull()
        if self._draining:
            self._draining = {made: tick for made, tick in self._draining.items() if not made.finish_drain(tick)}
            if self._draining:  # there is more to send first: try again after the next tick
                owner.touch()

    def _pull(self) -> None:
        """Send a piece on each link that has room, and remove links that are gone or done."""
        for made in list(self.pulling):
            large = made.large
            error: Unreadable | None = None
            if large is not None and large.room:
                try:
                    if not large.pull():
                        continue
                except Unreadable as unreadable:
                    large.abort()
                    error = unreadable
                made.large = None
                made.large_out(large.message, error)
            if made.large is None:
                self.pulling.pop(made, None)

    def flushed(self, owner: BaseSession) -> None:
        """Note that the operating system has all bytes."""
        sending, self._sending = self._sending, {}
        for made in sending:
            made.flushed()
        if any([made.large is not None and made.large.room for made in self.pulling]):
            owner.touch()

    def pause(self, paused: bool) -> None:
        """Pause or resume all links."""
        for made in list(self.by_link.values()):  # a browser may end, as above
            made.pause(paused)
