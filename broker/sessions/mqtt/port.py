"""The interface of a connection to the session of its client."""

from __future__ import annotations

from abc import abstractmethod

from broker.engine import Consumer
from broker.engine.model.message import Message
from broker.sessions.base import BaseSession
from broker.sessions.login import Peer
from broker.sessions.mqtt.large import LargePayload
from broker.sessions.mqtt.render import Heads
from broker.sessions.tick import Tick, Transport
from protocols.mqtt.codes import V5
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.encode import PublishHead, PublishHeads
from protocols.mqtt.errors import MqttError
from protocols.mqtt.packets import Ack

#: PUBLISH packets: a common head or one for each, payloads and packet identifiers; or one with a large payload.
Publishing = tuple[PublishHead | PublishHeads, list[bytes] | LargePayload, list[int]]


class Port(BaseSession):
    """An MQTT connection as its client's session sees it, in both directions; `session` implements it."""

    __slots__ = ("codec", "renderer")

    def __init__(
        self, tick: Tick, transport: Transport, codec: MqttConnection, heads: Heads, connection_id: str, peer: Peer
    ) -> None:
        super().__init__(tick, transport, connection_id, peer)
        self.codec = codec
        self.renderer = heads.renderer(V5)  # until the version is known

    @abstractmethod
    def emit(self, ticket: int, packet: Ack | Publishing) -> None:
        """Send a packet once a tick is durable; 0: at once."""

    @abstractmethod
    def follow(self, packet: Publishing) -> None:
        """Send a packet behind those that wait for the journal, at once if none does."""

    @abstractmethod
    def count_published(self, messages: int, nbytes: int) -> None:
        """Count messages, and their bytes, that are sent."""

    def refused(self, consumer: Consumer, message: Message, text: str, code: int) -> None:
        """Reject a message in delivery: the client refuses it for good, with a reason code."""
        self.engine.consumers.reject(consumer, message.id, text=text)

    @abstractmethod
    def durable(self, number: int) -> None:
        """Everything up to and including the tick `number` is on disk."""

    @abstractmethod
    def queue_answer(self, ack: Ack) -> None:
        """Owe an acknowledgement, to be sent once everything before it is durable."""

    @abstractmethod
    def confirm(self) -> None:
        """Send the pending acknowledgements: now, or once their effects are on disk."""

    @abstractmethod
    def dropped(self, messages: int, sentence: str) -> None:
        """Report messages that were dropped without telling the sender."""

    @abstractmethod
    def proceed(self, failure: MqttError | None) -> None:
        """Continue after a large message, or fail."""

    @property
    @abstractmethod
    def works(self) -> bool:
        """Whether packets of its client wait, or one is being handled in steps."""

    @abstractmethod
    def taken_over(self) -> None:
        """End, and tell the client why: it has another connection now."""
