"""What clients publish: runs of PUBLISH packets become runs of messages, a topic at a time.

The packets of one read that agree in QoS, RETAIN and properties are published together, a topic's at once, unless some
queue gets messages of several of the topics.  Then they are mixed (`engine.mixed`), or go in turn where that is not
possible: MQTT demands order for each topic only (4.6), but who subscribes with a wildcard counts on the order of a
publisher, as Sparkplug's sequence numbers do.  What goes to the engine at once gets one reason code for each topic.

The message's own journal record and, for QoS 2, the packet identifiers that came with it are one entry: after a crash
there is either both or neither, so that a repeated PUBLISH is never a second message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, TypeVar

from broker.engine import arrival
from broker.engine.access import Access
from broker.engine.address import Address, Producer
from broker.engine.bodies import LargeBody
from broker.engine.engine import Engine
from broker.engine.errors import EngineError, InvalidName, RetainedFull
from broker.engine.message import Body, Facts, Message, RoutingType
from broker.engine.queue import Queue
from broker.engine.send import Send
from broker.sessions.mqtt_format import MQTT_FORMAT, make_head
from broker.sessions.mqtt_terms import RESERVED_TOPICS, refusal
from protocols.mqtt.codes import PacketType, ReasonCode
from protocols.mqtt.packets import Ack, Publish
from protocols.mqtt.properties import MESSAGE_EXPIRY_INTERVAL, NO_PROPERTIES, REASON_STRING, Properties
from protocols.mqtt.topics import AddressSyntax

T = TypeVar("T")

#: Addresses by topic that a publisher remembers: what a connection costs by that is some tens of KiB.
TOPICS_REMEMBERED_MAX: Final = 256

_MULTICAST_ONLY: Final = {RoutingType.MULTICAST}

#: Refusals that a client before 5.0 is not cut off for: it cannot be told, and the specification has the message
#: acknowledged and dropped (3.1.1, 3.3.5).
DROPPED_SILENTLY: Final = (ReasonCode.NOT_AUTHORIZED, ReasonCode.TOPIC_NAME_INVALID)

#: Called with the packet identifiers of messages that were just published.
Noted = Callable[[list[int]], None]


class Refused:
    """Why messages were not taken, in a code and a sentence."""

    __slots__ = ("reason", "sentence")

    def __init__(self, reason: ReasonCode, sentence: str) -> None:
        self.reason = reason
        self.sentence = sentence


#: By the place of a message in its run; None: it was taken, and nobody has subscribed.
Outcomes = dict[int, Refused | None]


class Publisher:
    """Somebody who publishes: a connection, or a session for its will.  `producer` is told when it may go on."""

    __slots__ = ("_access", "_addresses", "_engine", "_format", "_producer", "_syntax", "_version", "blocked")

    def __init__(self, engine: Engine, syntax: AddressSyntax, producer: Producer, access: Access) -> None:
        self.blocked = False  # an address is full: nothing more should be read
        self._engine = engine
        self._format = engine.core.formats[MQTT_FORMAT]
        self._producer = producer
        self._syntax = syntax
        self._access = access
        self._version = access.version  # of the permissions by which the addresses were found
        self._addresses: dict[str, Address] = {}

    def publish(self, run: Publish, repeated: Sequence[int] = (), noted: Noted | None = None) -> Outcomes:
        """Publish a run but for its `repeated` places; the places of messages that were not taken or had no takers.

        A message that found no subscriber has None.  `noted` gets packet identifiers as soon as their messages are
        published.
        """
        topics, payloads = run.topics, run.payloads
        first = topics[0]
        outcomes: Outcomes = {}
        if len(topics) == 1 or topics.count(first) == len(topics):
            places: Sequence[int] = range(len(topics))
            if repeated:
                places = _without(places, repeated)
                payloads = [payloads[at] for at in places]
            if payloads:
                self._publish(run, first, places, payloads, noted, outcomes)
            return outcomes
        left = set(repeated)
        by_topic: dict[str, list[int]] = {}
        for at, topic in enumerate(topics):
            if at not in left:
                by_topic.setdefault(topic, []).append(at)
        parts: Iterable[tuple[str, list[int]]] = by_topic.items()
        if not self._apart(by_topic):
            if not run.retain and self._publish_mixed(run, by_topic, noted, outcomes):
                return outcomes
            told = [(topic, at) for at, topic in enumerate(topics) if at not in left]
            parts = [(topic, [at for _, at in group]) for topic, group in groupby(told, itemgetter(0))]
        for topic, places in parts:
            self._publish(run, topic, places, [payloads[at] for at in places], noted, outcomes)
        return outcomes

    def _publish_mixed(
        self, run: Publish, by_topic: dict[str, list[int]], noted: Noted | None, outcomes: Outcomes
    ) -> bool:
        """Publish messages of several topics in the order of their places; whether that was possible."""
        head = make_head(run.qos, False, run.properties)
        by_place: dict[int, Message] = {}
        runs: list[Send] = []
        try:
            for topic, places in by_topic.items():
                address = self._address(topic)
                facts = self._facts(address, run.qos, run.properties)
                messages = [Message(facts, head, run.payloads[at]) for at in places]
                by_place.update(zip(places, messages, strict=True))
                runs.append(Send(address, None, None, messages))
        except EngineError:
            return False
        told = sorted(by_place)
        try:
            taken = self._engine.publish_mixed([by_place[at] for at in told], runs)
        except EngineError as error:
            outcomes.update(dict.fromkeys(told, Refused(refusal(error), str(error))))
            return True
        if taken is None:
            return False
        if noted is not None:
            noted([run.packet_ids[at] for at in told])
        for places, count in zip(by_topic.values(), taken, strict=True):
            if not count:
                outcomes.update(dict.fromkeys(places))
        return True

    def _apart(self, topics: Iterable[str]) -> bool:
        """Whether no queue gets messages of two of these topics."""
        targets = self._engine.router.bindings.targets
        reached: set[Queue] = set()
        count = 0
        for topic in topics:
            try:
                address = self._address(topic)
            except EngineError:
                continue  # it gets its reason code when it is published
            if address.handling is not None and address.handling.reach:
                return False  # diverts lead to others
            for queues in targets(address):
                reached.update(queues)
                count += len(queues)
        return len(reached) == count

    def _publish(
        self,
        run: Publish,
        topic: str,
        places: Sequence[int],
        payloads: Sequence[Body],
        noted: Noted | None,
        outcomes: Outcomes,
    ) -> None:
        if run.retain and len(places) > 1:  # one after the other: what is refused must not stay as the retained one
            for at, payload in zip(places, payloads, strict=True):
                self._publish(run, topic, (at,), (payload,), noted, outcomes)
            return
        try:
            taken = self.send(topic, payloads, run.qos, run.retain, run.properties)
        except EngineError as error:
            if noted is not None:
                noted([run.packet_ids[at] for at in places[: error.taken]])
            outcomes.update(dict.fromkeys(places[error.taken :], Refused(refusal(error), str(error))))
            return
        if noted is not None:
            noted([run.packet_ids[at] for at in places])
        if not taken:
            outcomes.update(dict.fromkeys(places))

    def check(self, topic: str) -> None:
        """Whether a message on a topic would be taken: its payload is still to come.  Raises EngineError."""
        arrival.check_admitted(self._engine.core, self._address(topic))

    def publish_alone(self, run: Publish, body: LargeBody, noted: Noted | None) -> Outcomes:
        """Publish the one message of a run, whose payload has come in parts."""
        outcomes: Outcomes = {}
        self._publish(run, run.topics[0], (0,), (body,), noted, outcomes)
        return outcomes

    def send(self, topic: str, payloads: Sequence[Body], qos: int, retain: bool, properties: Properties) -> int:
        """Publish messages on one topic, and return how many found a queue.  Raises EngineError."""
        engine = self._engine
        address = self._address(topic)
        head = make_head(qos, retain, properties)
        facts = self._facts(address, qos, properties)
        if retain:
            self._retain(address, facts, head, payloads[-1], told=qos > 0)
        make: Callable[[Facts, bytes, Any], Message] = Message if isinstance(payloads[0], bytes) else Message.of
        taken = engine.publish(address, None, None, [make(facts, head, payload) for payload in payloads])
        if engine.block_if_full(address, self._producer):
            self.blocked = True
        return taken

    def _facts(self, address: Address, qos: int, properties: Properties) -> Facts:
        """What messages on one topic have in common."""
        now = self._engine.now
        facts = Facts(
            address.name,
            self._format,
            durable=qos > 0,
            timestamp=now,
            user=self._access.user,
            origin=self._access.client_id,
        )
        expiration = 0
        if properties is not NO_PROPERTIES:
            interval = properties.get(MESSAGE_EXPIRY_INTERVAL)
            if interval is not None:
                expiration = now + max(interval * 1_000, 1)
        facts.expiration, facts.expiry_source = address.settings.expiration(expiration, now)
        return facts

    def _retain(self, address: Address, facts: Facts, head: bytes, payload: Body, *, told: bool) -> None:
        """Keep the last message of a topic, or none if it is empty ([MQTT-3.3.1-5] to [MQTT-3.3.1-7]).

        A publication of QoS 0 that cannot be retained still goes to those who are here.  Raises EngineError.
        """
        retained = self._engine.retained
        if not payload:
            retained.clear(address.name)
            return
        kept = Facts(
            facts.address,
            facts.format,
            durable=True,
            timestamp=facts.timestamp,
            expiration=facts.expiration,
            expiry_source=facts.expiry_source,
            user=facts.user,
            origin=facts.origin,
        )
        try:
            retained.set(address, Message.of(kept, head, payload))
        except RetainedFull:
            if told:
                raise

    def _address(self, topic: str) -> Address:
        """The address of a topic, made if it is missing.  Raises Denied, InvalidName, NotFound, RoutingTypeMismatch."""
        engine = self._engine
        if self._version != self._access.version:
            self._version = self._access.version
            self._addresses.clear()
        address = self._addresses.get(topic)
        if address is not None and engine.core.addresses.get(address.name) is address:
            return address
        if topic.startswith(RESERVED_TOPICS):
            raise InvalidName(f"on the topic {topic[:80]} only the broker publishes")
        name = self._syntax.to_address(topic)
        known = name in engine.core.addresses
        address, _ = engine.router.destination(name, None if known else RoutingType.MULTICAST, access=self._access)
        if address.routing_types == _MULTICAST_ONLY:  # the queue of another may have to be made again
            if len(self._addresses) >= TOPICS_REMEMBERED_MAX:
                self._addresses.clear()
            self._addresses[topic] = address
        return address


def answers(kind: PacketType, run: Publish, outcomes: Outcomes) -> Iterator[Ack]:
    """PUBACKs or PUBRECs of 5.0 for a run, in its order, of which some are not plain."""

    def outcome(at: int) -> Refused | int:
        return (outcomes[at] or ReasonCode.NO_MATCHING_SUBSCRIBERS) if at in outcomes else 0

    for said, group in groupby(range(len(run.topics)), outcome):
        ids = [run.packet_ids[at] for at in group]
        if isinstance(said, Refused):
            yield Ack(kind, ids, said.reason, Properties([(REASON_STRING, said.sentence)]))
        else:
            yield Ack(kind, ids, said)


def _without(items: Sequence[T], places: Sequence[int]) -> list[T]:
    left = set(places)
    return [item for at, item in enumerate(items) if at not in left]
