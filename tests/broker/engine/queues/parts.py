"""Messages and queues made by hand, without an engine."""

from __future__ import annotations

from broker.engine.model.message import Message, MessageHeader, RoutingType
from broker.engine.model.settings import AddressSettings
from broker.engine.queues.address import Address
from broker.engine.queues.queue import Queue
from broker.sessions.stomp.format import StompFormat

FORMAT = StompFormat()


def message(id: int, priority: int = 4, body: bytes = b"", *, address: str = "a") -> Message:
    made = Message(MessageHeader(address, FORMAT, priority=priority), b"", body)
    made.id = id
    return made


def ids(messages: list[Message]) -> list[int]:
    return [m.id for m in messages]


def queue(**more: object) -> Queue:
    address = Address(1, "a", {RoutingType.ANYCAST}, AddressSettings())
    return Queue(2, "q", address, RoutingType.ANYCAST, **more)  # type: ignore[arg-type]
