"""Sends retained messages to new subscriptions through their queues, some each tick, so that 100,000 delay no client.

All subscriptions wait in one line.  A message that is replaced or cleared before its turn is not sent: the subscription
gets its replacement when that is published.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from broker.engine.client_sessions.client import ClientSubscription
from broker.engine.model.errors import EngineError
from broker.engine.model.message import Message, MessageHeader, RoutingType
from broker.engine.publish import publish
from broker.engine.publish.retained import Retained
from broker.engine.publish.send import Send
from broker.engine.queues.consumer import Consumer
from broker.engine.queues.state import State
from broker.engine.routing import destinations

_ALARM: Final = "retained"

#: Makes the head of a subscription's copy of a retained message, and says whether the copy is durable.
CopyHead = Callable[[bytes], tuple[bytes, bool]]
Unsent = Callable[[EngineError], None]


@dataclass(slots=True, eq=False)
class _Waiting:
    """A subscription in the line; `unsent` is called if one of its messages is refused, and no more are sent."""

    consumer: Consumer
    messages: deque[Message]
    copy_head: CopyHead
    unsent: Unsent


class RetainedFeed:
    """The line of subscriptions waiting for retained messages, of which `retained_step_max` are sent in a tick."""

    def __init__(self, state: State, retained: Retained) -> None:
        self._state = state
        self._retained = retained
        self._line: deque[_Waiting] = deque()

    def __bool__(self) -> bool:
        """Whether there is something left to send."""
        return bool(self._line)

    def add(self, subscription: ClientSubscription, copy_head: CopyHead, unsent: Unsent) -> None:
        """Send a new subscription the retained messages that match it, from the end of this tick on.

        A borrowed queue gets none: it is not the subscription's own.
        """
        messages = () if subscription.borrowed else self._retained.match(subscription.pattern)
        if messages:
            assert subscription.consumer is not None, "a new subscription has a consumer"
            self._line.append(_Waiting(subscription.consumer, deque(messages), copy_head, unsent))
            self._state.alarms.at(_ALARM, self._state.now, self._send)

    def _send(self) -> None:
        """Send some messages, to each subscription in turn."""
        left = self._state.limits.retained_step_max
        while self._line and left > 0:
            waiting = self._line.popleft()
            part = min(left, len(waiting.messages))
            left -= part
            try:
                while part and not waiting.consumer.closed:
                    part -= 1
                    self._publish(waiting, waiting.messages.popleft())
            except EngineError as error:
                waiting.unsent(error)
                continue
            if waiting.messages and not waiting.consumer.closed:
                self._line.append(waiting)
        if self._line:
            self._state.alarms.at(_ALARM, self._state.now, self._send)

    def _publish(self, waiting: _Waiting, message: Message) -> None:
        state, header, queue = self._state, message.header, waiting.consumer.queue
        if self._retained.get(header.address) is not message:
            return
        head, durable = waiting.copy_head(message.head)
        copy = MessageHeader(
            header.address,
            header.format,
            durable=durable,
            priority=header.priority,
            timestamp=header.timestamp,
            expiration=header.expiration,
            expiry_source=header.expiry_source,
            user=header.user,
            origin=header.origin,
        )
        sent = Message.of(copy, head, message.body)
        address = state.addresses.get(header.address)
        if address is None:  # deleted since; retaining the message had created it
            address, _ = destinations.destination(state, header.address, RoutingType.MULTICAST)
        if queue.accepts(sent):
            publish.publish(state, [Send.at(address, queue, None, [sent])], [sent]).check()
