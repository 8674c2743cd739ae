"""Retained messages for new subscriptions: through the queue of each, some in a tick, so that nobody waits for 100,000.

All subscriptions share one line.  A message that is replaced or cleared before its turn is not sent: the subscription
gets what took its place as it is published.
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

#: The head of the copy that a subscription gets of a retained message, and whether the copy is durable.
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
    """The line of the subscriptions that get retained messages, of which `retained_step_max` go out in a tick."""

    def __init__(self, state: State, retained: Retained) -> None:
        self._state = state
        self._retained = retained
        self._line: deque[_Waiting] = deque()

    def __bool__(self) -> bool:
        """Whether there is something to send yet."""
        return bool(self._line)

    def add(self, subscription: ClientSubscription, copy_head: CopyHead, unsent: Unsent) -> None:
        """A subscription that was just made gets the retained messages that match it, from the end of this tick on.

        A borrowed queue gets none: it is no subscription of its own.
        """
        messages = () if subscription.borrowed else self._retained.match(subscription.pattern)
        if messages:
            assert subscription.consumer is not None, "a subscription that was just made"
            self._line.append(_Waiting(subscription.consumer, deque(messages), copy_head, unsent))
            self._state.alarms.at(_ALARM, self._state.now, self._send)

    def _send(self) -> None:
        """Send some, to each in turn."""
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
        if address is None:  # it was deleted meanwhile; retaining the message had made it
            address, _ = destinations.destination(state, header.address, RoutingType.MULTICAST)
        if queue.accepts(sent):
            publish.publish(state, [Send(address, queue, None, [sent])], [sent]).check()
