"""Publishing for clients: runs of PUBLISH packets become runs of messages, one for each topic.

The packets of one read that agree in QoS, RETAIN and properties are published together, in the order of arrival.  MQTT
demands that for each topic only (4.6), but subscribers with wildcards rely on the order of a publisher, as Sparkplug's
sequence numbers do.

A message's journal record and, for QoS 2, its packet identifier are one entry: after a crash there are both or neither,
so a repeated PUBLISH is never a second message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from broker.engine import Address, Engine, Producer, PublishResult, Send
from broker.engine.model.access import Access
from broker.engine.model.errors import EngineError, InvalidName, RetainedFull
from broker.engine.model.message import Body, Message, MessageHeader, RoutingType
from broker.engine.model.names import FQQN_SEPARATOR
from broker.engine.model.permissions import Permission
from broker.sessions.mqtt.format import MQTT_FORMAT, make_head
from broker.sessions.mqtt.terms import RESERVED_TOPICS, full_queue_name, refusal
from protocols.mqtt.codes import PacketType, ReasonCode
from protocols.mqtt.errors import MqttError
from protocols.mqtt.packets import Ack, Publish
from protocols.mqtt.properties import MESSAGE_EXPIRY_INTERVAL, NO_PROPERTIES, Properties, explanation
from protocols.mqtt.topics import AddressSyntax

#: How many addresses a publisher caches, by topic: some tens of KiB for each connection.
TOPICS_REMEMBERED_MAX: Final = 256

#: What it costs, in nanoseconds, to find the address of a topic, or to refuse it; that it leads to a queue, and that a
#: message enters one; and what is published together costs so much at most, unless it is one message.
_FIND_NS: Final = 20_000
_TOPIC_NS: Final = 5_000
_MESSAGE_NS: Final = 20
_PART_NS: Final = 4_000_000

#: After so many messages it is asked whether to look for their queues has used up the tick's budget.
_ASKED_AFTER: Final = 4

#: How many messages are published together whatever is left of the budget, and what one takes at most, in microseconds,
#: if its topic has few subscriptions.
_FEW_TOGETHER: Final = 256
_EACH_US: Final = 4

#: How many messages are retained together: each is journaled, and replaces another one.
RETAINED_TOGETHER: Final = 32

_MULTICAST_ONLY: Final = {RoutingType.MULTICAST}

#: Refusals that do not disconnect a client before 5.0: it cannot be told of them, and the specification lets the broker
#: acknowledge and drop the message (3.1.1, 3.3.5).
DROPPED_SILENTLY: Final = (ReasonCode.NOT_AUTHORIZED, ReasonCode.TOPIC_NAME_INVALID)

#: Called with the packet identifiers of messages as they are published.
Noted = Callable[[Sequence[int]], None]


@dataclass(slots=True, eq=False)
class Refused:
    """Why messages were not accepted, as a code and a sentence."""

    reason: ReasonCode
    sentence: str


class NotTaken(MqttError):
    """Refused messages end the connection; accepted ones are acknowledged first, or the client would resend them."""


#: By the position of a message in its run; None: it was accepted, but has no subscriber.
Outcomes = dict[int, Refused | None]


class _TopicSend(Send):
    """Messages on one topic, with their positions in the run and, for `noted`, their packet identifiers."""

    __slots__ = ("_id_of", "noted", "packet_ids", "places", "topic")

    def __init__(
        self,
        topic: str,
        name: str,
        header: MessageHeader,
        noted: Noted | None,
        *,
        access: Access,
        made: RoutingType | None,
        known: Address | None,
    ) -> None:
        super().__init__(name, None, header, access=access, made=made, known=known)
        self.topic = topic
        self.noted = noted
        self.places: list[int] = []
        self.packet_ids: list[int] = []
        self._id_of: dict[Message, int] | None = None  # made once, as there may be as many parts as messages

    @property
    def is_joined(self) -> bool:
        return self.noted is not None

    def accepted(self, messages: list[Message]) -> None:
        if self.noted is not None:
            ids = self.packet_ids
            if len(messages) < len(self.messages):
                if self._id_of is None:
                    self._id_of = dict(zip(self.messages, ids, strict=True))
                ids = [self._id_of[message] for message in messages]
            self.noted(ids)


class NeverBlocked:
    """The producer of a will: one message, so it is never blocked."""

    transport = None

    def unblock(self) -> None:
        """Do nothing: it was not blocked."""


class Publisher:
    """Publishes for a connection, or for a session's will.  `producer` is called when it may publish again."""

    __slots__ = ("_access", "_addresses", "_engine", "_format", "_producer", "_syntax", "_version", "blocked")

    def __init__(self, engine: Engine, syntax: AddressSyntax, producer: Producer, access: Access) -> None:
        self.blocked = False  # an address is full: the connection should not be read
        self._engine = engine
        self._format = engine.formats[MQTT_FORMAT]
        self._producer: Producer = producer
        self._syntax = syntax
        self._addresses: dict[str, Address] = {}
        self.give_access(access)

    def forget_producer(self) -> None:
        """Refer to the producer no longer, which refers to this: nothing more is published for it."""
        self._producer = NeverBlocked()

    def give_access(self, access: Access) -> None:
        """Set the permissions for what is published from now on."""
        self._access = access
        self._version = access.version  # of the permissions that the addresses were looked up with
        self._addresses.clear()

    def fitting(self, run: Publish) -> int:
        """How many of a run's first messages to publish together, so that no tick is long: at least one.

        A run of 2,000 topics to 300 subscribers of all of them took three seconds, and so did one of 8,000 topics that
        the client may not send to.
        """
        count, producers = len(run.topics), self._engine.producers
        if run.retain:
            return min(count, RETAINED_TOGETHER)
        if count > _FEW_TOGETHER:
            count = min(count, max(self._engine.ticks.left // _EACH_US, _FEW_TOGETHER))
        topics = len(set(run.topics if count == len(run.topics) else run.topics[:count]))
        most = topics * _FIND_NS + producers.reach_max * (topics * _TOPIC_NS + count * _MESSAGE_NS)
        if most <= _PART_NS and not producers.filtering:
            return count
        costs: dict[str, int] = {}
        cost = 0
        for at, topic in enumerate(run.topics[:count]):
            each = costs.get(topic)
            if each is None:
                name = self._syntax.to_address(topic)
                reach = producers.reach(name)
                each = costs[topic] = reach * _MESSAGE_NS + producers.match_cost(name) * 1_000
                cost += reach * _TOPIC_NS + (0 if topic in self._addresses else _FIND_NS)
            cost += each
            if at and (cost > _PART_NS or (at % _ASKED_AFTER == 0 and self._engine.ticks.exhausted)):
                count = at
                break
        self._engine.ticks.spend(min(cost, _PART_NS) // 1_000)
        return count

    def publish(
        self, run: Publish, payloads: Sequence[Body], leave: Sequence[int] = (), noted: Noted | None = None
    ) -> Outcomes:
        """Publish a run, except for the positions to `leave`.  Returns the messages that were refused or not routed.

        A message without a subscriber has None.  `noted` is called with packet identifiers as their messages are
        published.
        """
        outcomes: Outcomes = {}
        left = set(leave)
        # One by one: a refused message must not become the retained one, and a body in a file wants a send of its own.
        if run.retain or (payloads and not isinstance(payloads[0], bytes)):
            for at, payload in enumerate(payloads):
                if at not in left:
                    self._publish_one(run, at, payload, noted, outcomes)
            return outcomes
        sends, arrived = self._sends(run, left, noted, outcomes)
        if not sends:
            return outcomes
        result = self._engine.producers.publish(sends, arrived, producer=self._producer)
        self.blocked |= result.blocked
        if result.refusals:
            place_of = {message: at for send in sends for message, at in zip(send.messages, send.places, strict=True)}
            for refused in result.refusals:
                why = Refused(refusal(refused.error), str(refused.error))
                outcomes.update(dict.fromkeys([place_of[message] for message in refused.messages], why))
        for send in sends:
            self._remember(send)
            if not send.routed:
                for at in send.places:
                    outcomes.setdefault(at)
        return outcomes

    def _sends(
        self, run: Publish, left: set[int], noted: Noted | None, outcomes: Outcomes
    ) -> tuple[list[_TopicSend], list[Message]]:
        """Return a send for each topic of a run, in the order of the first messages, without the positions in `left`;
        and all messages in the order of arrival.
        """
        head = make_head(run.qos, False, run.properties)
        sends: dict[str, _TopicSend | Refused] = {}
        arrived: list[Message] = []
        payloads, packet_ids = run.payloads, run.packet_ids
        for at, topic in enumerate(run.topics):
            if left and at in left:
                continue
            send = sends.get(topic)
            if send is None:
                try:
                    send = self._begin(topic, run.qos, run.properties, noted)
                except EngineError as error:
                    send = Refused(refusal(error), str(error))
                sends[topic] = send
            if isinstance(send, Refused):
                outcomes[at] = send
                continue
            message = Message(send.header, head, payloads[at])
            send.messages.append(message)
            send.places.append(at)
            if noted is not None:
                send.packet_ids.append(packet_ids[at])
            arrived.append(message)
        return [send for send in sends.values() if isinstance(send, _TopicSend)], arrived

    def _begin(self, topic: str, qos: int, properties: Properties, noted: Noted | None) -> _TopicSend:
        """Return a send to a topic, without messages yet.  Raises InvalidName."""
        access = self._access
        if self._version != access.version:
            self._version = access.version
            self._addresses.clear()
        known = self._addresses.get(topic)
        name, made = self._target(topic) if known is None else (known.name, RoutingType.MULTICAST)
        header = self._header(name, qos, properties)
        return _TopicSend(topic, name, header, noted, access=access, made=made, known=known)

    def _publish_one(self, run: Publish, at: int, payload: Body, noted: Noted | None, outcomes: Outcomes) -> None:
        id = run.packet_ids[at] if noted is not None else 0
        try:
            routed = self.send(run.topics[at], payload, run.qos, run.retain, run.properties, noted, id)
        except EngineError as error:
            outcomes[at] = Refused(refusal(error), str(error))
        else:
            if not routed:
                outcomes[at] = None

    def check(self, topic: str) -> None:
        """Check that a message on a topic would be accepted, before its payload arrives.  Raises EngineError."""
        send = self._begin(topic, 0, NO_PROPERTIES, None)
        producers = self._engine.producers
        producers.find(send)
        try:
            producers.check_admitted(send)
        finally:
            producers.give_up([send])  # the payload may never come

    def send(
        self,
        topic: str,
        payload: Body,
        qos: int,
        retain: bool,
        properties: Properties,
        noted: Noted | None = None,
        packet_id: int = 0,
    ) -> int:
        """Publish one message.  Returns 1 if it reached a queue, else 0.  Raises EngineError."""
        producers = self._engine.producers
        send = self._begin(topic, qos, properties, noted)
        head = make_head(qos, retain, properties)
        send.messages, send.packet_ids = [Message.of(send.header, head, payload)], [packet_id]
        if retain:
            producers.find(send)
            try:
                result = self._publish_retained(send, head, payload, qos)
            except EngineError:
                producers.give_up([send])
                raise
        else:
            result = producers.publish([send], producer=self._producer)
        self.blocked |= result.blocked
        result.check()
        self._remember(send)
        return send.routed

    def _publish_retained(self, send: Send, head: bytes, payload: Body, qos: int) -> PublishResult:
        """Publish a message and retain it, in one journal entry.  Raises EngineError: then neither is done."""
        if send.queue is not None:
            raise InvalidName(f"a message to the single queue {send.queue.name} cannot be retained")
        producers = self._engine.producers
        need = self._engine.retained.needed(send.messages[0])
        with producers.together(send, need, essential=not payload):
            send.header.retained = self._retain(send.address, send.header, head, payload, acknowledged=qos > 0)
            return producers.publish([send], producer=self._producer)

    def _header(self, name: str, qos: int, properties: Properties) -> MessageHeader:
        """Return the header of messages on one topic; publishing completes it."""
        now = self._engine.now
        header = MessageHeader(
            name,
            self._format,
            durable=qos > 0,
            timestamp=now,
            user=self._access.user,
            origin=self._access.client_id,
        )
        if properties is not NO_PROPERTIES:
            interval = properties.get(MESSAGE_EXPIRY_INTERVAL)
            if interval is not None:
                header.expiration = now + max(interval * 1_000, 1)
        return header

    def _retain(
        self, address: Address, header: MessageHeader, head: bytes, payload: Body, *, acknowledged: bool
    ) -> bool:
        """Retain the last message of a topic, or clear it if it is empty ([MQTT-3.3.1-5] to [MQTT-3.3.1-7]).

        A message that cannot be retained still goes to current subscribers, unless its packet is `acknowledged`, and
        the client thus learns of the refusal.  Returns whether it is done.  Raises EngineError.
        """
        retained = self._engine.retained
        if not payload:
            retained.clear(address.name)
            return True
        kept = MessageHeader(
            header.address,
            header.format,
            durable=True,
            timestamp=header.timestamp,
            expiration=header.expiration,
            expiry_source=header.expiry_source,
            user=header.user,
            origin=header.origin,
        )
        try:
            retained.set(address, Message.of(kept, head, payload))
        except RetainedFull:
            if acknowledged:
                raise
            return False
        return True

    def _target(self, topic: str) -> tuple[str, RoutingType | None]:
        """Return the name of a topic's address and its routing type if it is made, or the full name of a queue.

        Raises InvalidName.
        """
        if topic.startswith(RESERVED_TOPICS):
            raise InvalidName(f"on the topic {topic[:80]} only the broker publishes")
        if FQQN_SEPARATOR in topic:
            named = full_queue_name(self._engine, self._syntax, topic, self._access, Permission.SEND)
            if named:
                return named, None
        return self._syntax.to_address(topic), RoutingType.MULTICAST

    def _remember(self, send: _TopicSend) -> None:
        """Remember the address of a topic, unless a queue may have to be made for it again."""
        if not send.found or send.queue is not None or send.address is send.known:
            return
        if send.address.routing_types == _MULTICAST_ONLY:
            if len(self._addresses) >= TOPICS_REMEMBERED_MAX:
                self._addresses.clear()
            self._addresses[send.topic] = send.address


def answers(kind: PacketType, run: Publish, outcomes: Outcomes) -> Iterator[Ack]:
    """Yield the PUBACKs or PUBRECs of 5.0 for a run, in its order, with reason codes from `outcomes`."""

    def outcome(at: int) -> Refused | int:
        return (outcomes[at] or ReasonCode.NO_MATCHING_SUBSCRIBERS) if at in outcomes else 0

    for result, group in groupby(range(len(run.topics)), outcome):
        ids = [run.packet_ids[at] for at in group]
        if isinstance(result, Refused):
            yield Ack(kind, ids, result.reason, Properties([explanation(result.sentence)]))
        else:
            yield Ack(kind, ids, result)
