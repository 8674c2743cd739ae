"""What the deliveries of a session ask of the connection through which they go."""

from __future__ import annotations

from typing import Protocol

from broker.engine import Consumer
from broker.sessions.convert import ConversionError
from broker.sessions.mqtt.large import LargePayload
from broker.sessions.mqtt.render import Renderer, Run
from broker.sessions.unsendable import Unsendable
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.encode import PublishHead, PublishHeads
from protocols.mqtt.packets import Ack

#: PUBLISH packets: what they share or the head of each, payloads and packet identifiers; or one with a large payload.
Publishing = tuple[PublishHead | PublishHeads, list[bytes] | LargePayload, list[int]]


class Port(Protocol):
    """The connection through which a session sends."""

    @property
    def transport(self) -> object:
        """The connection's transport."""

    codec: MqttConnection
    unsendable: Unsendable
    renderer: Renderer

    def emit(self, ticket: int, packet: Ack | Publishing) -> None:
        """Send once a tick is durable; 0: at once."""

    def spend(self, messages: int, nbytes: int) -> None:
        """So many messages of so many bytes go out."""

    def dismiss(self, reason: str) -> None:
        """An operator has ended a subscription of the session: so is the connection, for its client to notice."""

    def durable(self, number: int) -> None:
        """Everything up to and including the tick `number` is on disk."""


def keep_fitting(port: Port, consumer: Consumer, head: PublishHead, run: Run, payloads: list[bytes]) -> list[bytes]:
    """Leave of a run only what the client has room for; the rest are dead letters [MQTT-3.1.2-25]."""
    most = port.codec.packet_bytes_max_out
    sizes = [head.packet_bytes(payload) for payload in payloads]
    if max(sizes) <= most:
        return payloads
    fitting = []
    for message, payload, size in zip(run.messages, payloads, sizes, strict=True):
        if size > most:
            why = f"{size} bytes, and the client takes {most}"
            port.unsendable.add(consumer, message, ConversionError(why, too_large=True))
        else:
            fitting.append((message, payload))
    run.messages = [message for message, _ in fitting]
    return [payload for _, payload in fitting]
