"""The queues of clients' subscriptions: when they are created, which messages they accept, when they are deleted.

    at least once, and a lasting session      a durable queue; while the client is away its consumer stays
    at most once, or another session          a queue deleted with its consumer; a lasting session gets a new one when
                                              its client returns
    shared                                    a durable queue for all clients that share it, deleted with the last one
    borrowed                                  a queue that others consume too, and which stays: that of an anycast
                                              address, or one that the client named

A queue accepts only durable messages while its client, or every client that shares it, is away.  Messages in flight to
a client that stay so when its connection ends belong to its session.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final

from broker.engine.client_sessions.client import Client, ClientSubscription
from broker.engine.client_sessions.endings import SubscriptionKind
from broker.engine.delivery import redelivery
from broker.engine.delivery.consumers import Consumers
from broker.engine.delivery.redelivery import DeliveryOutcome
from broker.engine.delivery.subscribe import SubscribeRequest
from broker.engine.model.message import RoutingType
from broker.engine.queues import clearing
from broker.engine.queues.consumer import AckMode, Subscriber
from broker.engine.queues.queue import Consumer, Queue, Sink
from broker.engine.queues.state import State
from broker.engine.routing import alter, deletion

_ANYCAST_ONLY: Final = {RoutingType.ANYCAST}


class ClientSubscriptions:
    """All clients' subscriptions.  `shares`: the clients of each shared subscription by id, by the queue's name."""

    def __init__(self, state: State, consumers: Consumers) -> None:
        self._state = state
        self._consumers = consumers
        self.shares: dict[str, dict[str, Client]] = {}
        self._finishing: Counter[str] = Counter()  # ended subscriptions with messages in flight, by name

    def attach(self, subscription: ClientSubscription, sink: Sink, full_name: str = "") -> Consumer:
        """Give a subscription a consumer, and a queue if needed; `full_name`: of the queue that the client names.

        Raises the errors of `Consumers.subscribe`.
        """
        state, client, pattern = self._state, subscription.client, subscription.pattern
        subscription.consumer = None
        address = state.addresses.get(pattern)
        anycast = address is not None and address.routing_types == _ANYCAST_ONLY
        subscription.borrowed = full_name != "" or (anycast and not subscription.wildcard)
        request = SubscribeRequest(
            full_name or pattern,
            no_local=subscription.origin,
            ack_mode=AckMode.INDIVIDUAL if subscription.reliable else AckMode.AUTO,
            counted=subscription.reliable,
            client_id=client.id,
            remote=client.remote,
            user=client.access.user,
            access=client.access,
            filtered=subscription.filtered,
        )
        existing = state.queues.get(subscription.name)
        if not subscription.borrowed:
            request = replace(
                request,
                routing_type=RoutingType.MULTICAST,
                name=subscription.name,
                subscriber=Subscriber.SESSION,
                durable=subscription.shared or (client.lasting and subscription.reliable),
                shared=subscription.shared,
                common=subscription.shared,
            )
        subscription.consumer = consumer = self._consumers.subscribe(sink, request)
        own = consumer.queue.durable and subscription.kind is SubscriptionKind.OWN
        subscription.queue_id = consumer.queue.id if own else 0
        subscription.filtered_for = request.user if request.filtered else None
        consumer.away = not client.connected
        fresh = existing is None or (existing.messages_max < 0 and not subscription.shared)  # perhaps taken over
        if fresh and not subscription.borrowed:
            alter.limit(state, consumer.queue, client.queued_max, drop_oldest=client.drop_oldest)
        self._update_durable_only(subscription)
        return consumer

    def found(self, subscription: ClientSubscription) -> int:
        """The id of the queue that a stored subscription has, by name and address: earlier versions stored none."""
        queue = self._state.queues.get(subscription.name) if subscription.reliable else None
        if queue is None or queue.address.name != subscription.pattern:
            return 0
        return queue.id if queue.durable and queue.is_subscription else 0

    def change_no_local(self, subscription: ClientSubscription) -> None:
        """Make the queue of a subscription accept or reject the client's own messages, as the subscription says now."""
        consumer = subscription.attached
        if consumer is not None and not (subscription.borrowed or subscription.shared):
            alter.change_no_local(self._state, consumer.queue, subscription.origin)

    def join(self, subscription: ClientSubscription) -> None:
        """Add the client to those that share a subscription, if it is shared."""
        if subscription.shared:
            queue = self._state.queues.get(subscription.name)
            if queue is not None and subscription.name in self._finishing and subscription.name not in self.shares:
                self._reopen(queue)
            self.shares.setdefault(subscription.name, {})[subscription.client.id] = subscription.client
            self._update_durable_only(subscription)

    def reconnected(self, subscription: ClientSubscription) -> None:
        """Handle the return of a client to a subscription whose consumer has stayed."""
        assert subscription.consumer is not None, "the consumer has stayed"
        subscription.consumer.remote = subscription.client.remote
        subscription.consumer.away = False
        self._update_durable_only(subscription)

    def hand_over(self, subscription: ClientSubscription, user: str) -> None:
        """Note that a subscription's queue of its own is another user's from now on, as its session is.

        One that was filtered for its user is not: it may hold messages that the other user may not read.
        """
        queue = self._lasting(subscription)
        filtered = subscription.filtered or subscription.filtered_for is not None
        if queue is not None and subscription.kind is SubscriptionKind.OWN and not filtered:
            alter.hand_over(self._state, queue, user)

    def revoked(self, subscription: ClientSubscription) -> None:
        """Let a subscription's queue of its own take only what its user may read, who may not read all of it any more.

        Of a user who has been removed it takes nothing.  `attach` ends that.
        """
        queue = self._lasting(subscription)
        if queue is not None and subscription.kind is SubscriptionKind.OWN:
            alter.filter_for(self._state, queue, subscription.client.access)

    def resumed(self, subscription: ClientSubscription) -> None:
        """Let a subscription's queue take messages again, which had ended with messages in flight."""
        self._finishing -= Counter([subscription.name])
        self._reopen(self._state.queues[subscription.name])
        self.reconnected(subscription)

    def _reopen(self, queue: Queue) -> None:
        alter.become(self._state, queue, replace(queue.attributes, enabled=True))

    def disconnected(self, subscription: ClientSubscription) -> None:
        """Handle the disconnection of a client with a lasting session: its consumer is closed, unless it `stays`."""
        consumer = subscription.attached
        if consumer is not None:
            consumer.away = True
        if consumer is not None and not subscription.stays:
            how = redelivery.INTERRUPTED if subscription.borrowed else redelivery.CLOSED
            subscription.consumer = None
            self._consumers.close(consumer, how)
            if not (subscription.borrowed or subscription.shared or consumer.queue.deleted):
                deletion.delete_queue(self._state, consumer.queue)
        self._update_durable_only(subscription)

    def end(self, subscription: ClientSubscription, *, finishing: bool = False) -> None:
        """End a subscription.  Messages in flight are returned, unless its consumer stays to finish them (`finishing`).

        Its queue is deleted, even if the client may no longer read it; a shared one with its last client.  While
        messages in flight are being finished, a queue stays without the others, and takes no more.
        """
        consumer, state = subscription.attached, self._state
        queue = self._lasting(subscription) if consumer is None else consumer.queue
        if finishing:
            self.finishing(subscription)
        elif (subscription.shared or subscription.borrowed) and consumer is not None:
            self._consumers.close(consumer, redelivery.INTERRUPTED)
        if subscription.borrowed:
            return
        if subscription.shared:
            sharing = self.shares.get(subscription.name, {})
            sharing.pop(subscription.client.id, None)
            if sharing:
                self._update_durable_only(subscription)
                return
            self.shares.pop(subscription.name, None)
        if queue is None:
            return
        if subscription.name in self._finishing:
            alter.become(state, queue, replace(queue.attributes, enabled=False))
            clearing.leave_nothing(state, queue)
        elif queue.is_shared_subscription or consumer is not None or not queue.consumers:
            deletion.delete_queue(state, queue)

    def _lasting(self, subscription: ClientSubscription) -> Queue | None:
        """The queue that a subscription has with or without a consumer, if it has one.

        Another queue of its name is another subscriber's, who has made it meanwhile; so is its own if it has QoS 0 now,
        with which it has none without a consumer.  Those of shared ones are reserved.
        """
        queue = self._state.queues.get(subscription.name)
        own = queue is not None and subscription.reliable and queue.id == subscription.queue_id
        return queue if own or subscription.shared else None

    def finishing(self, subscription: ClientSubscription) -> None:
        """Note that an ended subscription has messages in flight."""
        self._finishing[subscription.name] += 1

    def finished(self, subscription: ClientSubscription, how: DeliveryOutcome) -> None:
        """Close the consumer of an ended subscription, and delete its queue if that was kept for it only."""
        consumer, name = subscription.consumer, subscription.name
        assert consumer is not None, "its consumer has stayed"
        self._consumers.close(consumer, how)
        self._finishing -= Counter([name])
        if name not in self._finishing and name not in self.shares and not consumer.queue.deleted:
            deletion.delete_queue(self._state, consumer.queue)

    def _update_durable_only(self, subscription: ClientSubscription) -> None:
        """Set whether the subscription's queue accepts only durable messages."""
        client, consumer = subscription.client, subscription.attached
        queue = consumer.queue if consumer is not None else None
        if subscription.shared:
            queue = self._state.queues.get(subscription.name)
        if queue is None or subscription.borrowed or (queue.durable_only and not client.connected):
            return
        clients = self.shares.get(subscription.name) or {client.id: client}
        here = (clients.get(consumer.client_id) for consumer in queue.consumers)
        queue.durable_only = not any(client is not None and client.connected for client in here)

    def delete_abandoned(self) -> None:
        """After a restart, delete shared subscriptions whose last client had no stored session or has left them."""
        for queue in list(self._state.queues.values()):
            kept = queue.name in self.shares or queue.name in self._finishing
            if queue.is_shared_subscription and not kept:
                deletion.delete_queue(self._state, queue)
