"""The receiving links of a connection, and when the messages that they gather are published."""

from __future__ import annotations

from typing import Final, Protocol

from protocols.amqp.connection import AmqpConnection
from protocols.amqp.errors import AmqpError
from protocols.amqp.events import Aborted, Portion, Posting, Transfers
from protocols.amqp.link import Link
from protocols.amqp.performatives import DeliveryState, TransactionalState
from protocols.amqp.receiver import Receiver

#: What filters may cost for a message to an address that is not known yet, in microseconds.
UNKNOWN_MATCH_COST: Final = 500


class Incoming(Protocol):
    """A producer's link, or a coordinator's."""

    link: Receiver

    @property
    def match_cost(self) -> int:
        """What filters cost for a message of this link, in microseconds."""

    def add(self, event: Transfers) -> None:
        """Handle whole messages.  Raises AmqpError."""

    def add_portion(self, event: Portion) -> None:
        """Handle a part of a large message.  Raises AmqpError."""

    def post(self, state: TransactionalState) -> None:
        """Note that the first of several frames of a message in a transaction has arrived.  Raises AmqpError."""

    def aborted(self) -> None:
        """Handle a message that was aborted, or resumed and not known here."""

    def publish(self) -> None:
        """Publish the gathered messages."""

    def top_up(self) -> None:
        """Grant credit if little is left."""

    def gone(self) -> None:
        """Clean up after the link has ended."""


class LinkErrors(Protocol):
    """What a connection does about errors of its links."""

    def lose(self, link: Link, error: AmqpError) -> None:
        """End a link: the peer has violated a rule of it."""

    def dropped(self, state: DeliveryState | None) -> None:
        """Note that a message, or the state of deliveries, came when its link had ended, and has no effect."""


class IncomingLinks:
    """The receiving links of one connection, which is passed to each call: an ended one is in no reference cycle.

    Only one link per address gathers messages: before a second one does, those of the first are published.  So the
    messages to an address keep their order across links.  The anonymous relay's messages may go to any address.
    """

    __slots__ = ("_codec", "_gathering", "by_link")

    def __init__(self, codec: AmqpConnection) -> None:
        self.by_link: dict[Link, Incoming] = {}
        self._codec = codec
        self._gathering: dict[str | None, Incoming] = {}  # by the order of their links

    def add(self, made: Incoming) -> None:
        """Add an attached link."""
        self.by_link[made.link] = made

    def drop(self, link: Link) -> None:
        """Remove a link that has ended."""
        made = self.by_link.pop(link, None)
        if made is not None:
            made.gone()

    def close(self) -> None:
        """Remove all links: the connection has ended."""
        for made in self.by_link.values():
            made.gone()
        self.by_link.clear()
        self._gathering.clear()

    def transfers(self, errors: LinkErrors, event: Transfers) -> None:
        """Hand whole messages to their link; those for a link that has just ended are dropped."""
        made = self.by_link.get(event.link)
        if made is None:
            errors.dropped(event.state)
            return
        try:
            self._gather(made)
            if event.link in self.by_link:
                made.add(event)
            else:  # what was gathered before has ended it
                errors.dropped(event.state)
        except AmqpError as error:
            errors.lose(event.link, error)

    def _gather(self, made: Incoming) -> None:
        gathering, order = self._gathering, made.link.order
        if gathering.get(order) is not made:
            if gathering and (order is None or order in gathering or None in gathering):
                self.publish()
            self._gathering[order] = made

    def match_cost(self, link: Link) -> int:
        """What filters cost for a message of a link, in microseconds; a guess if each message has its own address."""
        made = self.by_link.get(link)
        return UNKNOWN_MATCH_COST if made is None else made.match_cost

    def publish(self) -> None:
        """Publish all gathered messages."""
        if self._gathering:
            gathering, self._gathering = self._gathering, {}
            for made in gathering.values():
                made.publish()

    def posting(self, errors: LinkErrors, event: Posting) -> None:
        """Tell a link that a message in a transaction has begun."""
        made = self.by_link.get(event.link)
        try:
            if made is not None:
                made.post(event.state)
        except AmqpError as error:
            errors.lose(event.link, error)

    def portion(self, errors: LinkErrors, event: Portion) -> None:
        """Hand a part of a large message to its link."""
        self.publish()
        made = self.by_link.get(event.link)
        if made is None:
            errors.dropped(event.state)
        try:
            if made is not None:
                made.add_portion(event)
                return
        except AmqpError as error:
            errors.lose(event.link, error)
        if event.last:
            self._codec.resume()

    def aborted(self, event: Aborted) -> None:
        """Tell a link that a message was aborted."""
        made = self.by_link.get(event.link)
        if made is not None:
            made.aborted()
