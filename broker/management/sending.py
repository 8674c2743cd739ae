"""Sending one message, as a client would, to try out an address."""

from __future__ import annotations

from dataclasses import dataclass

from broker.engine import Address, Engine, Queue, Send
from broker.engine.model.access import UNRESTRICTED
from broker.engine.model.message import PRIORITY_DEFAULT, Message, MessageHeader, RoutingType
from broker.sessions.stomp.format import STOMP_FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message to send, encoded as STOMP, and its user; times in ms since the epoch, 0: none."""

    head: bytes
    body: bytes
    user: str
    durable: bool = True
    priority: int = PRIORITY_DEFAULT
    scheduled: int = 0
    expiration: int = 0
    routing_type: RoutingType | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """Where a message was sent; `taken`: whether a queue took it."""

    address: Address
    queue: Queue | None
    message: Message
    taken: bool


def send(engine: Engine, name: str, outgoing: Outgoing) -> Taken:
    """Send to an address, or to a queue as ADDRESS::QUEUE; call within a tick.

    Raises what `Producers.destination` raises, and the refusal of the address.
    """
    header = MessageHeader(
        name,
        engine.formats[STOMP_FORMAT],
        durable=outgoing.durable,
        priority=outgoing.priority,
        timestamp=engine.now,
        expiration=outgoing.expiration,
        scheduled=outgoing.scheduled,
        routing_type=outgoing.routing_type,
        user=outgoing.user,
    )
    message = Message(header, outgoing.head, outgoing.body)
    message.regroup()
    sent = Send(name, outgoing.routing_type, message.header, access=UNRESTRICTED)
    sent.messages.append(message)
    engine.producers.publish([sent]).check()
    return Taken(sent.address, sent.queue, message, sent.routed > 0)
