"""The links of a connection on which the broker receives, and when what they gather is published."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from protocols.amqp.connection import AmqpConnection
from protocols.amqp.errors import AmqpError
from protocols.amqp.events import Aborted, Portion, Transfers
from protocols.amqp.link import Link
from protocols.amqp.receiver import Receiver


class Incoming(Protocol):
    """A producer's link, or a coordinator."""

    link: Receiver

    def add(self, event: Transfers) -> None:
        """Messages have come.  Raises AmqpError."""

    def add_portion(self, event: Portion) -> None:
        """A part of a large message has come.  Raises AmqpError."""

    def aborted(self) -> None:
        """A message has come to nothing."""

    def publish(self) -> None:
        """Publish what was gathered."""

    def top_up(self) -> None:
        """Give credit again when little is left."""

    def gone(self) -> None:
        """The link is gone."""


class IncomingLinks:
    """Those of one connection; one that breaks a rule is told to `lose`.

    One link an address gathers: where a second one comes, what the first has gathered is published before, so that
    messages to an address keep their order whatever links they come on.  The anonymous relay's may go to any address.
    """

    __slots__ = ("_codec", "_gathering", "_lose", "by_link")

    def __init__(self, codec: AmqpConnection, lose: Callable[[Link, AmqpError], None]) -> None:
        self.by_link: dict[Link, Incoming] = {}
        self._codec = codec
        self._lose = lose
        self._gathering: dict[str | None, Incoming] = {}  # by the order of their links

    def add(self, made: Incoming) -> None:
        """A link is attached."""
        self.by_link[made.link] = made

    def drop(self, link: Link) -> None:
        """A link is gone."""
        made = self.by_link.pop(link, None)
        if made is not None:
            made.gone()

    def close(self) -> None:
        """The connection is gone."""
        for made in self.by_link.values():
            made.gone()
        self.by_link.clear()

    def transfers(self, event: Transfers) -> None:
        """Whole messages: a link gathers them.  Those for one that has just ended are for nobody."""
        made = self.by_link.get(event.link)
        if made is None:
            return
        try:
            self._gather(made)
            if event.link in self.by_link:  # what was gathered before has not ended it
                made.add(event)
        except AmqpError as error:
            self._lose(event.link, error)

    def _gather(self, made: Incoming) -> None:
        gathering, order = self._gathering, made.link.order
        if gathering.get(order) is not made:
            if gathering and (order is None or order in gathering or None in gathering):
                self.publish()
            self._gathering[order] = made

    def publish(self) -> None:
        """Publish what was gathered."""
        if self._gathering:
            gathering, self._gathering = self._gathering, {}
            for made in gathering.values():
                made.publish()

    def portion(self, event: Portion) -> None:
        """A part of a large message."""
        self.publish()
        made = self.by_link.get(event.link)
        try:
            if made is not None:
                made.add_portion(event)
                return
        except AmqpError as error:
            self._lose(event.link, error)
        if event.last:
            self._codec.resume()

    def aborted(self, event: Aborted) -> None:
        """A message has come to nothing."""
        made = self.by_link.get(event.link)
        if made is not None:
            made.aborted()
