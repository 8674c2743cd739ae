"""What one protocol accepts every other can render, or it is a dead letter that says why, and its consumer goes on.

Each example sends one message by one protocol, lets something happen to it (it dies, it expires, an operator moves it)
and a second message after it; then the power may fail.  Consumers of all protocols read both, from queues of their
own: the first whole, or it is on the dead-letter address of their queue; the second in any case.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.engine.model.message import DL_REASON, DL_TEXT, RoutingType
from broker.engine.moves.transfer import MessageRange
from broker.management.models.messages import message_shown
from protocols.amqp.encode import encode
from protocols.amqp.performatives import Accepted, Error, Header, Modified, Rejected, Source
from protocols.amqp.types import Described, Symbol, Timestamp
from protocols.mqtt.limits import Limits
from protocols.mqtt.properties import MESSAGE_EXPIRY_INTERVAL
from tests.simulation.crossing import (
    Sent,
    check_amqp,
    check_mqtt,
    check_stomp,
    noted,
    sent,
    texts,
)
from tests.simulation.world import small
from tests.support.amqp_client import AmqpSim
from tests.support.mqtt_client import MqttClient
from tests.support.mqtt_world import FOR_EVER, Connecting, SimCarrier
from tests.support.sim_broker import SimBroker

#: A hundred thousand in `make explore` over all fates, some two hundred in `make test`.
EXAMPLES: Final = 25_000 if settings().max_examples >= 2_000 else 50

STOMP_VERSIONS: Final = ("1.0", "1.1", "1.2")
MQTT_VERSIONS: Final = (4, 5)
#: Clients that take whatever a broker may send.
LIMITS: Final = Limits(properties_bytes_max=1 << 28, user_properties_max=1 << 16, topic_bytes_max=1 << 16)
NEXT: Final = b"the next one"
#: It looks at everything, and lets everything through.
SELECTOR: Final = """
    JMSType = 'x' OR JMSCorrelationID LIKE '%a_' OR JMSMessageID = 'x' OR JMSPriority > 10 OR JMSTimestamp < 0
    OR JMSReplyTo = 'a' OR JMSXGroupID IN ('a', 'b') OR JMSXUserID = 'b' OR "content-type" = 'k' OR "m.k" = 'k'
    OR k BETWEEN 1 AND 2 OR NOT k = 1.5 OR k + 1 > 2 OR AMQSize >= 0
"""

#: Where everything arrives, and what becomes of it on the way: an address and its settings.
SETTINGS: Final[tuple[dict[str, object], ...]] = (
    {"match": "jobs", "dead-letter-address": "out"},
    {"match": "tasks", "dead-letter-address": "park"},
    {"match": "late", "expiry-address": "out", "expiry-delay": 1_000},
    {"match": "out", "dead-letter-address": "DLQ", "auto-delete-addresses": False},
)


@dataclass
class Mqtt(Connecting):
    """MQTT clients of a broker."""

    broker: SimBroker

    def stranger(self) -> MqttClient:
        client = MqttClient(limits=LIMITS)
        return client.over(SimCarrier(self.broker))


@cache
def _prepared() -> SimBroker:
    """A broker with a queue for each consumer, that has stopped."""
    broker = SimBroker(small(*SETTINGS, segment_bytes=1 << 18, retained=False))
    state = broker.enter()._state
    for name in ("jobs", "tasks", "late", "park"):
        state.registry.create_queue(state.registry.ensure_address(name), name, RoutingType.ANYCAST, durable=True)
    out = state.registry.ensure_address("out")
    for name in (*(f"stomp{version}" for version in STOMP_VERSIONS), "amqp"):
        state.registry.create_queue(out, name, RoutingType.MULTICAST, durable=True)
    broker.run()
    for version in MQTT_VERSIONS:
        client = subscriber(broker, version)
        assert client.subscribe("out", qos=2) == [2]
        client.drop()
    broker.shut_down()
    return broker


def prepared() -> SimBroker:
    """The same, on a disk of its own, that has just started."""
    stopped = _prepared()
    return SimBroker(stopped.config, files=stopped.files.fork(0), seed=1)


def subscriber(broker: SimBroker, version: int) -> MqttClient:
    """An MQTT client with its lasting session."""
    expiry = FOR_EVER if version == 5 else None
    return Mqtt(broker).connect(f"mqtt{version}", version=version, clean=False, expiry=expiry)


def post(broker: SimBroker, message: Sent, address: str, *, expiring: bool = False) -> bool:
    """Send a message; whether the broker took it."""
    if message.protocol == "stomp":
        client = broker.connect(message.version)
        headers = {"destination": address, "persistent": "true" if message.durable else "false", "receipt": "r"}
        if expiring:
            headers["expires"] = str(broker.now + 1_000)
        client.do("SEND", headers | message.headers, message.payload)
        return bool(client.take("RECEIPT"))
    if message.protocol == "amqp":
        sender = AmqpSim(broker)
        head_section, bare = Header(message.durable, message.priority), message.bare
        if expiring:
            head_section = replace(head_section, ttl=1_000)
            if bare is not None and bare.absolute_expiry_time is not None:
                bare = replace(bare, absolute_expiry_time=Timestamp(broker.now + 1_000))
        parts = [encode(head_section), message.noted, encode(bare) if bare is not None else b"", message.payload]
        [outcome] = sender.send(sender.sender(address), b"".join(parts))
        return isinstance(outcome.state, Accepted)
    publisher = Mqtt(broker).connect("publisher", version=message.version)
    pairs = message.pairs + ([(MESSAGE_EXPIRY_INTERVAL, 1)] if expiring and message.version == 5 else [])
    publisher.publish(address, message.payload, message.qos, retain=message.retain, properties=pairs)
    return not publisher.closed


def kill(broker: SimBroker, queue: str, notes: dict[Any, Any], why: str, *, failed: bool) -> None:
    """An AMQP consumer notes something on a message, gets it again and rejects it."""
    consumer = AmqpSim(broker)
    consumer.receiver(queue, credit=1)
    for delivery in consumer.take():
        consumer.settle(delivery, state=Modified(failed, False, notes))
    consumer.drop()
    consumer = AmqpSim(broker)
    consumer.receiver(queue, credit=1)
    for delivery in consumer.take():
        consumer.settle(delivery, state=Rejected(Error("amqp:internal-error", why)))
    consumer.drop()


def browse(broker: SimBroker) -> None:
    """What an operator and browsers see; it is not the last, so it does not stop them."""
    for queue in list(broker.engine.queues.values()):
        for message, place in broker.engine.messages.browse(queue):
            message_shown(message, queue, place).model_dump_json()
    client = broker.connect()
    for number, selector in enumerate((SELECTOR, "convert_string_expressions:" + SELECTOR)):
        client.subscribe("out::stomp1.2", browser="true", id=f"b{number}", selector=selector)
        *_, last, end = client.messages()
        assert (last.body, end.headers.get("browser")) == (NEXT, "end"), client.frames
    client.drop()
    looker = AmqpSim(broker)
    fits = Described(Symbol("apache.org:selector-filter:string"), SELECTOR)
    looker.receiver(None, source=Source("out::amqp", distribution_mode="copy", filter={"fits": fits}))
    assert looker.arrived, "the next message at least"
    looker.drop()


def died(broker: SimBroker, name: str) -> bool:
    """Whether the message of a queue is on the dead-letter address, with a reason that can be read."""
    for message, _ in broker.engine.messages.browse(broker.engine.queue("DLQ")):
        notes = message.header.annotations or {}
        if name in str(notes.get("_AMQ_ORIG_QUEUE")):
            assert notes[DL_REASON] in ("decode-error", "too-large"), notes
            assert "cannot be sent to" in str(notes[DL_TEXT])
            assert "an error of the broker" not in str(notes[DL_TEXT]), "a bug that is caught is still a bug"
            return True
    return False


def waiting(broker: SimBroker, prefix: str, message: Sent | None) -> int:
    """How many messages are on a consumer's queue, each of which it must get or find among the dead."""
    [queue] = [queue for name, queue in broker.engine.queues.items() if name.startswith(prefix)]
    count = len(list(broker.engine.messages.browse(queue)))
    if message is None:
        assert count == 1
    else:  # a session without a connection has no room for what is not durable
        assert count == 2 or (count == 1 and prefix.startswith("mqtt") and not message.durable)
    return count


def consume(broker: SimBroker, message: Sent | None, *, moved: bool) -> None:
    """All consumers read what there is; `message`: what must have come first, if anything has."""
    for version in STOMP_VERSIONS:
        client = broker.connect(version)
        count = waiting(broker, f"stomp{version}", message)
        client.subscribe(f"out::stomp{version}", ack="auto")
        *first, second = client.messages()
        assert second.body == NEXT
        assert len(first) == count - 1 - died(broker, f"stomp{version}")
        for frame in first:
            assert message is not None
            check_stomp(message, frame.headers, frame.body, version)
        client.drop()
    amqp = AmqpSim(broker)
    count = waiting(broker, "amqp", message)
    amqp.receiver("out::amqp")
    *deliveries, last = amqp.take()
    assert last.body == NEXT.decode()
    assert len(deliveries) == count - 1 - died(broker, "amqp")
    for delivery in deliveries:
        assert message is not None
        check_amqp(message, delivery.payload, moved=moved)
    amqp.drop()
    for number in MQTT_VERSIONS:
        count = waiting(broker, f"mqtt{number}", message)
        reader = subscriber(broker, number)
        *published, end = reader.take()
        assert end.payload == NEXT
        assert len(published) == count - 1 - died(broker, f"mqtt{number}")
        for publish in published:
            assert message is not None
            check_mqtt(message, publish.payload, number, publish.properties)
        reader.drop()
        if message is None or not message.retain:
            continue
        late = Mqtt(broker).connect(f"late{number}", version=number)
        late.subscribe("out", qos=2)
        for publish in late.take():
            check_mqtt(message, publish.payload, number, publish.properties)


FATES: Final = ("plain", "dead", "expired", "moved")


@pytest.mark.timeout(0)
@pytest.mark.parametrize("fate", FATES)
@settings(max_examples=EXAMPLES)
@given(message=sent, notes=noted, why=texts, failed=st.booleans(), crash=st.booleans())
def test_accepted_messages_can_be_rendered(
    fate: str, message: Sent, notes: dict[Any, Any], why: str, failed: bool, crash: bool
) -> None:
    """Between all protocols, both plain and after a death, an expiry or a move, and also from the journal."""
    broker = prepared()
    if crash:
        message.durable = True
        message.qos = max(message.qos, 1)
    went = {"plain": "out", "dead": "jobs", "moved": "tasks", "expired": "late"}[fate]
    taken = post(broker, message, went, expiring=fate == "expired")
    if fate in ("dead", "moved") and taken:
        kill(broker, went, notes, why, failed=failed)
    if fate == "moved" and taken:
        broker.enter().messages.move(broker.engine.queue("park"), "out", MessageRange())
        broker.run()
    if fate == "expired":
        broker.advance(10_000)
    client = broker.connect()
    client.confirmed("out", NEXT)
    client.drop()
    if crash:
        broker = broker.restart()
    browse(broker)
    consume(broker, message if taken else None, moved=fate != "plain")
    assert broker.failure is None
