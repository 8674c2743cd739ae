"""Retained messages for new subscriptions: through the queue of each, some in a tick, so that nobody waits for 100,000.

All sessions share one line.  What is replaced or cleared before its turn is not sent: the subscription gets what took
its place as it is published.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from broker.engine import Consumer, Engine, Send
from broker.engine.model.access import UNRESTRICTED
from broker.engine.model.errors import EngineError
from broker.engine.model.message import Message, MessageHeader, RoutingType
from broker.sessions.mqtt.format import qos_of, retained_head

#: Retained messages that go to queues in a tick, of all sessions: some 5 ms.
RETAINED_PER_TICK_MAX: Final = 100

_ALARM: Final = "mqtt retained"


class RetainedFeed:
    """The line of those who get retained messages."""

    __slots__ = ("_engine", "_line")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._line: deque[tuple[Consumer, str, deque[Message]]] = deque()

    def add(self, consumer: Consumer, filter: str, pattern: str) -> None:
        """A consumer gets the retained messages that match, from the end of this tick on."""
        messages = self._engine.retained.match(pattern)
        if messages:
            self._line.append((consumer, filter, deque(messages)))
            self._engine.alarms.at(_ALARM, self._engine.now, self._send)

    def _send(self) -> None:
        """Send some, to each in turn."""
        left = RETAINED_PER_TICK_MAX
        while self._line and left > 0:
            consumer, filter, messages = self._line.popleft()
            part = min(left, len(messages))
            left -= part
            try:
                while part and not consumer.closed:
                    part -= 1
                    self._publish(consumer, messages.popleft())
            except EngineError as error:
                self._engine.report("mqtt.retained_unsent", client=consumer.client_id, filter=filter, error=str(error))
                continue
            if messages and not consumer.closed:
                self._line.append((consumer, filter, messages))
        if self._line:
            self._engine.alarms.at(_ALARM, self._engine.now, self._send)

    def _publish(self, consumer: Consumer, message: Message) -> None:
        engine, header = self._engine, message.header
        if engine.retained.get(header.address) is not message:
            return
        address = engine.addresses.get(header.address)
        if address is None:
            # The broker's own doing: retaining the message had made the address.
            address, _ = engine.destination(header.address, RoutingType.MULTICAST, access=UNRESTRICTED)
        copy = MessageHeader(
            header.address,
            header.format,
            durable=qos_of(message.head) > 0,
            priority=header.priority,
            timestamp=header.timestamp,
            expiration=header.expiration,
            expiry_source=header.expiry_source,
            user=header.user,
            origin=header.origin,
        )
        sent = Message.of(copy, retained_head(message.head), message.body)
        if consumer.queue.accepts(sent):
            engine.publish([Send(address, consumer.queue, None, [sent])]).check()
