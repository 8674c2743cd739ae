"""The subscriptions of a connection: from SUBSCRIBE to a consumer or a browser, until UNSUBSCRIBE.

There are two ways to ask for a durable subscription.  In Artemis and ActiveMQ Classic a header names it, within the
`client-id` of CONNECT.  In RabbitMQ there is `durable:true`: then the id of the SUBSCRIBE names it, within the
`client-id` or else the address.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.engine import Consumer, DeliveryOutcome, Engine, LongWork, SubscribeRequest, redelivery
from broker.engine.model.access import Access
from broker.engine.model.errors import EngineError, NotBrowsable
from broker.engine.model.query import split_query
from broker.sessions.stomp.browse import Browser
from broker.sessions.stomp.delivery import Subscription
from broker.sessions.stomp.headers import (
    Headers,
    Options,
    ack_mode,
    boolean,
    consumer_window,
    error,
    refused,
    routing_type,
)
from broker.sessions.stomp.port import Port
from broker.sessions.stomp.temporary import Destinations, is_temporary
from protocols.stomp.errors import format_value
from protocols.stomp.frames import Frame

_DURABLE_NAMES: Final = (b"durable-subscription-name", b"durable-subscriber-name", b"activemq.subscriptionName")
_DURABLE_FLAGS: Final = (b"durable", b"persistent")
_NO_LOCALS: Final = (b"no-local", b"activemq.noLocal")


class Subscriptions:
    """The subscriptions and browsers of one connection."""

    def __init__(self, engine: Engine, destinations: Destinations) -> None:
        self._engine = engine
        self._destinations = destinations
        self._by_id: dict[bytes, Subscription | Browser] = {}
        self._by_number: dict[bytes, Subscription | Browser] = {}
        self._browsers = 0  # how many there have been
        self._showing: list[Browser] = []  # browsers that have not shown everything yet
        self._busy = False  # with them
        self._subscribing = False  # a SUBSCRIBE has just begun one
        self._unflushed: dict[Consumer, None] = {}  # see Subscription

    def subscribe(self, port: Port, frame: Frame) -> None:
        """Process a SUBSCRIBE.  Raises StompError, EngineError."""
        headers = frame.headers
        destination = headers[b"destination"]
        if is_temporary(destination) and destination in self._by_id:
            self._end(self._by_id[destination])  # replaces the automatic subscription
        id = headers.get(b"id", b"subscription/" + destination)
        if id in self._by_id:
            raise error("SUBSCRIBE", "duplicate subscription", f"id {format_value(id)} is already in use", headers)
        most = port.options.subscriptions_max
        if len(self._by_id) >= most:
            raise error("SUBSCRIBE", "too many subscriptions", f"a connection may have {most}", headers)
        request, prefix = read_subscribe(headers, port.options, self._destinations, port.remote)
        memory, user = self._engine.client_memory, self._destinations.access.user
        memory.hold(user, memory_of(id))
        try:
            self._begin(port, id, request, prefix, headers)
        finally:
            if id not in self._by_id:
                memory.release(user, memory_of(id))

    def _begin(self, port: Port, id: bytes, request: SubscribeRequest, prefix: str, headers: Headers) -> None:
        if boolean(headers, b"browser", "SUBSCRIBE", default=False):
            self._browse(port, id, request, prefix, headers)
            return
        subscription = Subscription(port, id, request, prefix, self._unflushed)
        if port.window.paused:
            self._engine.consumers.pause(subscription.consumer)
        self._add(subscription)

    def _browse(self, port: Port, id: bytes, request: SubscribeRequest, prefix: str, headers: Headers) -> None:
        self._browsers += 1
        number = b"b%d" % self._browsers  # no consumer has such a number
        replies, version = port.options.prefixes.of_replies, port.codec.version
        try:
            browser = Browser(self._engine, request, id, number, prefix, version, replies=replies)
        except NotBrowsable as topic:
            raise error("SUBSCRIBE", "invalid browser", str(topic), headers) from topic
        self._add(browser)
        self._showing.append(browser)
        if len(self._showing) == 1:
            self._subscribing = True
            try:
                self._show(port)
            finally:
                self._subscribing = False

    def _add(self, subscription: Subscription | Browser) -> None:
        self._by_id[subscription.id] = subscription
        self._by_number[subscription.number] = subscription

    def expect_reply(self, port: Port, destination: bytes) -> None:
        """Subscribe to a temporary destination without consumers, for answers.  Raises StompError, EngineError."""
        self.subscribe(port, Frame("SUBSCRIBE", {b"destination": destination, b"id": destination}))

    def unsubscribe(self, frame: Frame) -> None:
        """Process UNSUBSCRIBE: end a subscription, delete a durable one, or both.  Raises StompError, EngineError."""
        headers, access = frame.headers, self._destinations.access
        durable = durable_name(headers, "UNSUBSCRIBE", access)
        id = headers.get(b"id")
        if id is None and b"destination" in headers:
            id = b"subscription/" + headers[b"destination"]
        subscription = self._by_id.get(id) if id is not None else None
        if subscription is None and not durable:
            raise error(
                "UNSUBSCRIBE", "unknown subscription", f"there is no subscription {format_value(id or b'')}", headers
            )
        if subscription is not None:
            self._end(subscription)
            if isinstance(subscription, Subscription):
                if not subscription.consumer.queue.is_subscription:
                    durable = ""  # on a queue the name means nothing, as in SUBSCRIBE
                elif not durable and deletes(headers):
                    durable = subscription.durable
        if durable:
            self._engine.delete_subscription(durable, access=access)

    def _end(self, subscription: Subscription | Browser) -> None:
        self._engine.client_memory.release(self._destinations.access.user, memory_of(subscription.id))
        del self._by_id[subscription.id]
        del self._by_number[subscription.number]
        subscription.close(self._engine, redelivery.CLOSED)
        if subscription in self._showing:
            self._showing.remove(subscription)

    def numbered(self, number: bytes) -> Subscription | Browser | None:
        """Return the subscription or browser whose message-ids begin with this number."""
        return self._by_number.get(number)

    def close(self, how: DeliveryOutcome, transport: object, then: Callable[[], None]) -> None:
        """End all, and return their unacknowledged messages: the connection ends.  Then call `then`."""
        consumers = {each.consumer: how for each in self._by_id.values() if isinstance(each, Subscription)}
        nbytes = sum([memory_of(id) for id in self._by_id])
        self._engine.client_memory.release(self._destinations.access.user, nbytes)
        self._showing.clear()
        self._by_id.clear()
        self._by_number.clear()
        self._engine.consumers.close_all(consumers, transport, then)

    def flushed(self, port: Port) -> None:
        """Acknowledge deliveries with ack:auto: the operating system has accepted them.  Then continue browsers."""
        for consumer in self._unflushed:
            if not consumer.closed:
                self._engine.consumers.acknowledge_all(consumer)
        self._unflushed.clear()
        self._show(port)

    def _show(self, port: Port) -> None:
        """Continue browsers, in this tick and in later ones, as far as the output window permits."""
        if self._showing and not self._busy:
            self._busy = True
            self._engine.ticks.begin_work(self, self._show_in_steps(port), port.transport)

    def _show_in_steps(self, port: Port) -> LongWork:
        try:
            while self._showing and not port.window.paused:
                nbytes, done = self._showing[0].show(port.codec.output, port.window.room)
                port.sent(nbytes)
                if done:
                    del self._showing[0]
                port.touch()
                yield 0  # it has spent what it costs
        except EngineError as refusal:  # of the disk: the client must not take part of the messages for all
            if self._subscribing:
                raise
            port.fail_with(refused("SUBSCRIBE", refusal, {}))
        finally:
            self._busy = False

    def pause(self, paused: bool) -> None:
        """Pause or resume deliveries; browsers get messages from `_show` only."""
        consumers = self._engine.consumers
        for subscription in self._by_id.values():
            if isinstance(subscription, Subscription):
                (consumers.pause if paused else consumers.resume)(subscription.consumer)


def memory_of(id: bytes) -> int:
    """Return what the id of a subscription takes in memory, in bytes: as it is, and as its messages begin."""
    return 2 * len(id)


def read_subscribe(
    headers: Headers, options: Options, destinations: Destinations, remote: str
) -> tuple[SubscribeRequest, str]:
    """Parse a SUBSCRIBE.  Returns the request, and the prefix of its destination.  Raises StompError, Denied."""
    access = destinations.access
    mode = ack_mode(headers)
    prefix, name, stated = destinations.split(headers[b"destination"].decode())
    asked = routing_type(headers.get(b"subscription-type"), "subscription-type", "SUBSCRIBE", headers)
    name, query = split_query(name)
    durable = durable_name(headers, "SUBSCRIBE", access)
    if not durable and any(boolean(headers, n, "SUBSCRIBE", default=False) for n in _DURABLE_FLAGS):
        if b"id" not in headers:
            raise error("SUBSCRIBE", "missing header", "a durable subscription needs the header id", headers)
        durable = f"{access.client_id or name}.{headers[b'id'].decode()}"
    window = consumer_window(headers, mode, options.window)
    no_local = any(boolean(headers, n, "SUBSCRIBE", default=False) for n in _NO_LOCALS)
    request = SubscribeRequest(
        name,
        next((t for t in (asked, stated, query.routing_type) if t is not None), None),
        name=durable,
        durable=bool(durable),
        selector=headers.get(b"selector", b"").decode(),
        no_local=destinations.origin if no_local else "",
        ack_mode=mode,
        window=window.size,
        counted=window.counted,
        client_id=access.client_id,
        remote=remote,
        user=access.user,
        access=access,
        priority=query.priority or 0,
        asked=query.asked,
    )
    return request, prefix


def durable_name(headers: Headers, command: str, access: Access) -> str:
    """Return the name of the durable subscription in a frame, empty for none.  Raises StompError."""
    name = next((headers[n] for n in _DURABLE_NAMES if n in headers), b"").decode()
    client = access.client_id
    if name and not client:
        detail = "a durable subscription needs the client-id header on CONNECT"
        raise error(command, "client-id missing", detail, headers)
    return f"{client}.{name}" if name else ""


def deletes(headers: Headers) -> bool:
    """Whether an UNSUBSCRIBE also deletes the durable subscription, as in RabbitMQ.  Raises StompError."""
    return any(boolean(headers, n, "UNSUBSCRIBE", default=False) for n in _DURABLE_FLAGS)
