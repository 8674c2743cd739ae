"""The interface of a STOMP session to what it consists of; `session` implements it."""

from __future__ import annotations

from abc import abstractmethod

from broker.sessions.base import BaseSession
from broker.sessions.login import Peer
from broker.sessions.stomp.headers import Options
from broker.sessions.tick import Tick, Transport
from protocols.stomp.connection import StompConnection
from protocols.stomp.errors import StompError


class Port(BaseSession):
    """A STOMP session as its subscriptions and its uploads see it."""

    def __init__(
        self, tick: Tick, transport: Transport, options: Options, codec: StompConnection, connection_id: str, peer: Peer
    ) -> None:
        super().__init__(tick, transport, connection_id, peer)
        self.codec = codec
        self.options = options

    @abstractmethod
    def fail_with(self, failure: StompError) -> None:
        """Send an ERROR, and end."""

    @abstractmethod
    def process(self) -> None:
        """Process the frames that have arrived."""

    @abstractmethod
    def proceed(self) -> None:
        """Continue after a large message has been processed."""

    @abstractmethod
    def queue_receipt(self, receipt: bytes) -> None:
        """Send a receipt once everything so far, with the gathered sends, is processed and durable."""
