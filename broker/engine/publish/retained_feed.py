"""Sends retained messages to new subscriptions through their queues, in steps, so that 100,000 delay no client.

Clients take turns, and each client's subscriptions get theirs one after the other.  A message that is replaced or
cleared before its turn is not sent: the subscription gets its replacement when that is published.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from broker.engine.client_sessions.client import Client, ClientSubscription
from broker.engine.model.errors import EngineError
from broker.engine.model.message import Message, MessageHeader, RoutingType
from broker.engine.publish import publish
from broker.engine.publish.retained import Retained
from broker.engine.publish.send import Send
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State
from broker.engine.queues.steps import LongWork
from broker.engine.routing import destinations

#: What it costs to send a message, to look at some that are not sent, and to find out that there are none, in
#: microseconds.
SENT_COST: Final = 100
LOOKED_COST: Final = 200
SEARCHED_COST: Final = 5

#: Makes the head of a subscription's copy of a retained message, and says whether the copy is durable.
CopyHead = Callable[[bytes], tuple[bytes, bool]]
Unsent = Callable[[EngineError], None]


@dataclass(slots=True, eq=False)
class _Feed:
    """What a subscription is to be sent: what is retained and older than `below`."""

    below: int
    copy_head: CopyHead
    unsent: Unsent


#: The subscriptions of one client that are not done, in the order of their turns.
_Feeds = dict[ClientSubscription, _Feed]


class RetainedFeed:
    """The subscriptions that are still to be sent retained messages."""

    def __init__(self, state: State, retained: Retained) -> None:
        self._state = state
        self._retained = retained
        self._feeds: dict[Client, _Feeds] = {}

    def __len__(self) -> int:
        """How many subscriptions are not done."""
        return sum([len(feeds) for feeds in self._feeds.values()])

    def begin(self, subscription: ClientSubscription, copy_head: CopyHead, unsent: Unsent) -> None:
        """Send a subscription the retained messages that match it; from the first one, if it is being sent them.

        `unsent` is called if one of them is refused, and no more are sent.  A borrowed queue gets none: it is not the
        subscription's own.
        """
        if subscription.borrowed:
            return
        client, feed = subscription.client, _Feed(self._state.journal.next_id, copy_head, unsent)
        feeds = self._feeds.get(client)
        if feeds is not None:
            feeds.pop(subscription, None)
            feeds[subscription] = feed
            return
        self._feeds[client] = feeds = {subscription: feed}
        self._state.steps.begin(("retained", client), self._send_all(client, feeds))

    def stop(self, subscription: ClientSubscription) -> None:
        """Send a subscription no more; no effect if it is done."""
        feeds = self._feeds.get(subscription.client)
        if feeds is not None:
            feeds.pop(subscription, None)

    def _send_all(self, client: Client, feeds: _Feeds) -> LongWork:
        try:
            while feeds:
                subscription, feed = next(iter(feeds.items()))
                yield from self._send(feeds, subscription, feed)
                yield SEARCHED_COST
                if feeds.get(subscription) is feed:
                    del feeds[subscription]
        finally:
            del self._feeds[client]

    def _send(self, feeds: _Feeds, subscription: ClientSubscription, feed: _Feed) -> LongWork:
        with closing(self._retained.search(subscription.pattern, feed.below)) as search:
            for message in search:
                consumer = subscription.attached
                if consumer is None or feeds.get(subscription) is not feed:
                    return
                if message is None:
                    yield LOOKED_COST
                    continue
                try:
                    self._publish(consumer.queue, message, feed.copy_head)
                except EngineError as error:
                    feed.unsent(error)
                    return
                yield SENT_COST

    def _publish(self, queue: Queue, message: Message, copy_head: CopyHead) -> None:
        state, header = self._state, message.header
        head, durable = copy_head(message.head)
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
