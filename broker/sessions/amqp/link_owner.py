"""What the links of an AMQP connection have of it, and may ask it to do; `session` is what does it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol

from broker.engine import DeliveryOutcome
from broker.engine.model.access import NOBODY
from broker.sessions.amqp.format import AMQP_FORMAT
from broker.sessions.amqp.large import Pulling
from broker.sessions.amqp.terms import AmqpOptions
from broker.sessions.amqp.transactions import OpenTransaction
from broker.sessions.base import BaseSession
from broker.sessions.login import Peer
from broker.sessions.tick import Tick, Transport
from protocols.amqp.errors import AmqpError
from protocols.amqp.events import Credit, Dispositions
from protocols.amqp.link import Channel, Link
from protocols.amqp.performatives import DeliveryState, Error
from protocols.amqp.sender import Sender


class Outgoing(Protocol):
    """Either kind of link on which the broker sends."""

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


class LinkOwner(BaseSession):
    """A connection as its links see it.  `origin`: whose messages no-local means; `container`: what the client is."""

    def __init__(self, tick: Tick, transport: Transport, options: AmqpOptions, connection_id: str, peer: Peer) -> None:
        super().__init__(tick, transport, connection_id, peer)
        self.options = options
        self.format = tick.engine.formats[AMQP_FORMAT]
        self.access = tick.engine.security.access(NOBODY, "")
        self.origin = connection_id
        self.container = ""
        self.pulling = Pulling()

    @abstractmethod
    def answer(
        self, session: Channel, role: bool, ids: Sequence[int], state: DeliveryState | None, *, settled: bool = True
    ) -> None:
        """Settle deliveries, or only say their state, once everything done so far is durable."""

    @abstractmethod
    def transaction(self, txn_id: bytes) -> OpenTransaction:
        """An open transaction.  Raises AmqpError."""

    @abstractmethod
    def detach(self, link: Link, error: Error) -> None:
        """The broker ends a link."""

    @abstractmethod
    def lose(self, link: Link, error: AmqpError) -> None:
        """A link has failed."""

    @abstractmethod
    def dropped(self, target: str, messages: int, why: Error) -> None:
        """Messages that their sender has settled were refused."""

    @abstractmethod
    def go_on(self) -> None:
        """The codec may read what follows a large message."""

    @abstractmethod
    def sent_on(self, link: Outgoing, nbytes: int) -> None:
        """Messages for a link go out with this tick."""

    @abstractmethod
    def drain_later(self, link: Outgoing) -> None:
        """Ask the link to `finish_drain` when the tick ends."""
