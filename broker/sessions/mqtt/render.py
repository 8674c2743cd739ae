"""Messages as PUBLISH packets for one connection.

The part that messages of one topic share is made once for all subscribers of a version (`Heads`); a run of messages
with the same header and head then costs one dictionary lookup.  Messages of other protocols are converted one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from typing import Final

from broker.engine import Stream
from broker.engine.model.message import Message, MessageHeader
from broker.sessions.convert import ConversionError, rendering_error, to_mqtt, user_properties
from broker.sessions.mqtt.format import MQTT_FORMAT, QOS, RETAIN, RETAINED
from broker.sessions.mqtt.large import LargePayload, to_large_mqtt
from broker.sessions.mqtt.mount import Outward
from broker.sessions.mqtt.subscription import Subscription
from protocols.mqtt.codes import V5
from protocols.mqtt.encode import PublishHead, PublishHeads
from protocols.mqtt.fields import acceptable
from protocols.mqtt.properties import MESSAGE_EXPIRY_INTERVAL, Properties, acceptable_properties
from protocols.mqtt.topics import AddressSyntax

#: How many heads are cached, and how many bytes of properties each may have; larger ones rarely repeat.
HEADS_MAX: Final = 8192
PROPERTIES_CACHED_BYTES_MAX: Final = 256

#: The largest message expiry interval, in seconds (four bytes).
_EXPIRY_MAX: Final = 0xFFFF_FFFF

_KIND: Final = attrgetter("header", "head")

_Key = tuple[int, str, int, bool, bool, bytes]


def published_qos(message: Message) -> int:
    """Return the QoS of a message; 2 for a durable one of another protocol, as in Artemis."""
    if message.header.format.number == MQTT_FORMAT:
        return message.head[0] & QOS
    return 2 if message.header.durable else 0


class Heads:
    """A cache of heads, shared by all connections with the same topic names."""

    __slots__ = ("_heads", "_renderers", "_syntax", "mount")

    def __init__(self, syntax: AddressSyntax, mount: Outward | None = None) -> None:
        self.mount = mount
        self._syntax = syntax
        self._heads: dict[_Key, PublishHead] = {}
        self._renderers: dict[int, Renderer] = {}

    def renderer(self, version: int) -> Renderer:
        """Return the renderer shared by all connections of a version."""
        if version not in self._renderers:
            self._renderers[version] = Renderer(self, version)
        return self._renderers[version]

    def get(self, version: int, address: str, qos: int, retain: bool, dup: bool, properties: bytes) -> PublishHead:
        """Return the head of PUBLISH packets.  Raises ConversionError for an address that is no topic."""
        key = (version, address, qos, retain, dup, properties)
        head = self._heads.get(key)
        if head is None:
            topic = self._syntax.to_topic(address)
            if topic is not None and self.mount is not None:
                topic = self.mount.peer_topic(topic)
            if topic is None:
                raise ConversionError(f"MQTT has no topic for the address {address}")
            try:
                head = PublishHead(
                    version,
                    acceptable(topic),
                    qos=qos,
                    retain=retain,
                    dup=dup,
                    properties=acceptable_properties(properties),
                )
            except ValueError as error:
                raise ConversionError(f"MQTT has no topic for the address {address}: {error}") from error
            if len(properties) <= PROPERTIES_CACHED_BYTES_MAX:
                if len(self._heads) >= HEADS_MAX:
                    self._heads.clear()
                self._heads[key] = head
        return head


class Run:
    """Consecutive messages with one head, or one QoS and a head each; or unsendable ones, with no head but `why`.

    A message with a large payload has a run of its own.
    """

    __slots__ = ("head", "messages", "payloads", "why")

    def __init__(
        self,
        messages: list[Message],
        head: PublishHead | PublishHeads | None,
        payloads: list[bytes] | LargePayload,
        why: ConversionError | None = None,
    ) -> None:
        self.messages = messages
        self.head = head
        self.payloads = payloads
        self.why = why


class Renderer:
    """Renders messages for connections of one version."""

    __slots__ = ("_heads", "_version")

    def __init__(self, heads: Heads, version: int) -> None:
        self._heads = heads
        self._version = version

    def runs(
        self, subscription: Subscription, messages: list[Message], now: int, *, mixing: bool = False
    ) -> Iterator[Run]:
        """Yield runs of messages, in order; `now` in ms since the epoch, `mixing`: heads may differ in a run."""
        done = 0
        try:
            for run in self._runs(subscription, messages, now, mixing=mixing):
                done += len(run.messages)
                yield run
            return
        except Exception as error:  # a bug of ours must cost one message only: try one by one
            if len(messages) == 1:
                yield Run(messages, None, [], rendering_error(error))
                return
        for message in messages[done:]:
            yield from self.runs(subscription, [message], now)

    def _runs(self, subscription: Subscription, messages: list[Message], now: int, *, mixing: bool) -> Iterator[Run]:
        if mixing and _are_mixed(messages):
            mixed = self._mixed(subscription, messages, now)
            if mixed is not None:
                yield mixed
                return
        for (header, head), group in groupby(messages, _KIND):
            run = list(group)
            if header.format.number != MQTT_FORMAT:
                for message in run:
                    yield self._converted(subscription, message, now)
                continue
            try:
                publish_head = self._first_head(subscription, header, head, now)
            except ConversionError as error:
                yield Run(run, None, [], error)
                continue
            yield from _readable(run, publish_head)

    def _first_head(self, subscription: Subscription, header: MessageHeader, head: bytes, now: int) -> PublishHead:
        """Return the head of MQTT messages that are sent for the first time.  Raises ConversionError."""
        flags = head[0]
        retain = flags & RETAINED != 0 or (flags & RETAIN != 0 and subscription.retain_as_published)
        return self.head(subscription, header, flags & QOS, retain, head[1:], now, None, False)

    def _mixed(self, subscription: Subscription, messages: list[Message], now: int) -> Run | None:
        """Return messages of several topics as one run, if all are MQTT, in memory and of one QoS; else None."""
        known: dict[MessageHeader, tuple[bytes, PublishHead]] = {}
        heads: list[PublishHead] = []
        payloads: list[bytes] = []
        for message in messages:
            header, body = message.header, message.body
            if not isinstance(body, bytes):
                return None
            found = known.get(header)
            if found is None or found[0] != message.head:
                if header.format.number != MQTT_FORMAT:
                    return None
                try:
                    found = known[header] = message.head, self._first_head(subscription, header, message.head, now)
                except ConversionError:
                    return None
                if heads and found[1].qos != heads[0].qos:
                    return None
            heads.append(found[1])
            payloads.append(body)
        return Run(messages.copy(), PublishHeads(heads), payloads)

    def again(
        self, subscription: Subscription, message: Message, now: int, qos: int, *, dup: bool
    ) -> tuple[PublishHead, list[bytes] | LargePayload]:
        """Return head and payload of a message that was sent with this QoS before.  Raises ConversionError."""
        header, head = message.header, message.head
        if header.format.number != MQTT_FORMAT:
            properties, payload = _translated(message)
            return self.head(subscription, header, qos, False, properties.raw, now, qos, dup), payload
        retain = head[0] & RETAINED != 0 or (head[0] & RETAIN != 0 and subscription.retain_as_published)
        body = message.body
        payload = [body] if isinstance(body, bytes) else LargePayload(message, Stream(body))
        return self.head(subscription, header, qos, retain, head[1:], now, qos, dup), payload

    def _converted(self, subscription: Subscription, message: Message, now: int) -> Run:
        """Return the run of a message of another protocol."""
        header = message.header
        try:
            properties, payload = _translated(message)
            head = self.head(subscription, header, published_qos(message), False, properties.raw, now, None, False)
        except ConversionError as error:
            return Run([message], None, [], error)
        return Run([message], head, payload)

    def head(
        self,
        subscription: Subscription,
        header: MessageHeader,
        published: int,
        retain: bool,
        properties: bytes,
        now: int,
        qos: int | None,
        dup: bool,
    ) -> PublishHead:
        """Return the head of messages of one header; `qos` None: the lower of `published` and the subscription's.

        Raises ConversionError.
        """
        version = self._version
        if qos is None:
            qos = min(published, subscription.qos)
        if version != V5:
            return self._heads.get(version, header.address, qos, retain, dup, b"")
        if self._heads.mount is not None:
            properties = self._heads.mount.peer_properties(properties)
        if subscription.lead:
            properties = subscription.lead + properties
        if header.expiration or header.annotations:
            properties = _broker_properties(header, now) + properties
        return self._heads.get(version, header.address, qos, retain, dup, properties)


def _are_mixed(messages: list[Message]) -> bool:
    """Whether messages have several headers, by the look of a few of them."""
    count, first = len(messages), messages[0].header
    return any([messages[at].header is not first for at in (count // 4, count // 2, count - 1)])


def _readable(run: list[Message], head: PublishHead) -> Iterator[Run]:
    """Yield the runs of messages with one head: if a body is in a file, each message is a run of its own."""
    payloads = [message.body for message in run if isinstance(message.body, bytes)]
    if len(payloads) == len(run):
        yield Run(run, head, payloads)
        return
    for message in run:
        body = message.body
        yield Run([message], head, [body] if isinstance(body, bytes) else LargePayload(message, Stream(body)))


def _translated(message: Message) -> tuple[Properties, list[bytes] | LargePayload]:
    """Return properties and payload of another protocol's message.  Raises ConversionError."""
    body = message.body
    large = None if isinstance(body, bytes) else to_large_mqtt(message, body)
    if large is not None:
        return large
    properties, data = to_mqtt(message)
    return properties, [data]


def _broker_properties(header: MessageHeader, now: int) -> bytes:
    """Return the remaining expiry interval [MQTT-3.3.2-6], and the broker's annotations as user properties."""
    pairs = []
    if header.expiration:
        left = -(-(header.expiration - now) // 1_000)
        pairs.append((MESSAGE_EXPIRY_INTERVAL, min(max(left, 0), _EXPIRY_MAX)))
    raw = Properties(pairs).raw
    if header.annotations:
        raw += Properties(user_properties(header.annotations)).raw
    return raw
