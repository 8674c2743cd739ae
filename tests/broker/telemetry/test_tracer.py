"""Which messages are traced, and the spans of what happens to them, in the SDK's exporter in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from broker.engine import MessageRange
from broker.engine.model.message import Message
from broker.telemetry.pending import TEXT_CHARS_MAX
from broker.telemetry.tracer import HEAD_BYTES_MAX, MessageTracer
from protocols.amqp.message import MESSAGE_ANNOTATIONS, encode_annotations
from protocols.amqp.types import Symbol
from protocols.mqtt.properties import USER_PROPERTY
from tests.broker.telemetry.harness import SAMPLED, SPAN_ID, TRACE_ID, UNSAMPLED, Traced, names, parent
from tests.simulation.world import small
from tests.support.amqp_client import AmqpSim, message
from tests.support.mqtt_world import SimWorld
from tests.support.sim_broker import SimBroker, SimClient
from tests.support.stomp_client import frame

TOLD: dict[str, str] = {"persistent": "true", "traceparent": SAMPLED}


def begun(broker: SimBroker | None = None, /, **headers: str) -> tuple[Traced, SimClient]:
    """A traced run, and a client of its broker."""
    traced = Traced(broker)
    return traced, traced.broker.connect(**headers)


def attributes(span: Any) -> dict[str, Any]:
    return dict(span.attributes)


def test_a_message_that_is_sent_delivered_and_acknowledged() -> None:
    traced, client = begun(**{"client-id": "shop"})
    client.send("/queue/orders", b"hello", tracestate="vendor=x", **TOLD)
    client.subscribe("/queue/orders")
    [got] = client.messages()
    client.ack(got)
    assert got.headers["traceparent"] == SAMPLED, "the broker does not change it"
    publish, deliver, ack = traced.spans()
    assert names([publish, deliver, ack]) == ["publish orders", "deliver orders", "ack orders"]
    assert [span.kind for span in (publish, deliver, ack)] == [SpanKind.SERVER, SpanKind.INTERNAL, SpanKind.INTERNAL]
    for span in (publish, deliver, ack):
        assert (span.context.trace_id, parent(span)) == (TRACE_ID, f"{SPAN_ID:016x}")
        assert span.context.trace_state.get("vendor") == "x"
        assert span.status.status_code is StatusCode.UNSET
        assert span.resource.attributes["service.name"] == "orders-broker"
    id = got.headers["message-id"].rpartition("-")[2]
    assert attributes(publish) == {
        "messaging.system": "bartleby",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.message.id": attributes(deliver)["messaging.message.id"],
        "messaging.message.body.size": 5,
        "messaging.client.id": "shop",
        "network.protocol.name": "stomp",
    }
    assert id.endswith(str(attributes(publish)["messaging.message.id"]))
    assert attributes(deliver)["messaging.destination.subscription.name"] == "orders"
    assert attributes(deliver)["messaging.bartleby.delivery.attempt"] == 1
    assert attributes(ack)["messaging.operation.type"] == "settle"


def test_a_publish_ends_when_its_message_is_durable() -> None:
    traced, client = begun(SimBroker(small(), lazy_disk=True))
    client.send("/queue/a", b"1", **TOLD)
    client.send("/queue/a", b"2", traceparent=SAMPLED)
    traced.broker.now += 7
    traced.broker.catch_up()
    passing, durable = traced.spans()
    assert passing.start_time == passing.end_time, "it has nothing to wait for"
    assert durable.end_time is not None
    assert durable.start_time is not None
    assert durable.end_time - durable.start_time == 7_000_000


def test_only_what_its_sender_samples() -> None:
    traced, client = begun()
    client.subscribe("/queue/a", ack="auto")
    for headers in (
        {},
        {"traceparent": UNSAMPLED},
        {"traceparent": "00-1-2-01"},
        {"other": f"traceparent:{UNSAMPLED}"},
    ):
        client.send("/queue/a", b"x", **headers)
    # What looks like one, and turns out to be none.
    client.send("/queue/a", b"x", traceparent=SAMPLED.replace("00-", "ff-", 1))
    client.send("/queue/a", b"x", x_traceparent=SAMPLED)
    assert traced.spans() == []


@pytest.mark.parametrize("more", [0, 1])
def test_headers_at_the_limit(more: int) -> None:
    traced, client = begun()
    told = len(f"traceparent:{SAMPLED}\npad:\n")
    client.send("/queue/a", b"x", traceparent=SAMPLED, pad="x" * (HEAD_BYTES_MAX - told + more))
    assert names(traced.spans()) == ([] if more else ["publish a"])


def test_every_protocol() -> None:
    """Of AMQP's sections what was noted on the way counts first."""
    world = SimWorld()
    traced = Traced(world.broker)
    noted = SAMPLED.replace(f"{SPAN_ID:016x}", "00000000000000ff")
    section = encode_annotations(MESSAGE_ANNOTATIONS, {Symbol("traceparent"): noted})
    amqp = AmqpSim(world.broker)
    link = amqp.sender("queue://a")
    amqp.send(link, message("x", application={"traceparent": SAMPLED}))
    amqp.send(link, message("x", application={"traceparent": SAMPLED}, annotations=section))
    world.connect("sensor").publish("t", b"x", 1, properties=[(USER_PROPERTY, ("traceparent", SAMPLED))])
    said, annotated, mqtt = traced.spans()
    assert [parent(span) for span in (said, annotated, mqtt)] == [f"{SPAN_ID:016x}", "00000000000000ff", parent(said)]
    protocols = [attributes(span)["network.protocol.name"] for span in (said, annotated, mqtt)]
    assert protocols == ["amqp", "amqp", "mqtt"]
    assert attributes(mqtt)["messaging.client.id"] == "sensor"


def test_a_delivery_that_fails_and_a_dead_letter() -> None:
    config = small({"match": "a", "max-delivery-attempts": 2, "dead-letter-address": "dead"})
    traced, client = begun(SimBroker(config), **{"client-id": "shop"})
    client.send("/queue/a", b"x", **TOLD)
    client.subscribe("/queue/a")
    for _ in range(2):
        client.nack(*client.messages(), reason="no stock")
    spans = traced.spans()
    assert names(spans) == [
        "publish a",
        "deliver a",
        "return a",
        "deliver a",
        "return a",
        "dead-letter a",
    ]
    failed, dead = spans[4], spans[5]
    assert failed.status.status_code is StatusCode.ERROR
    assert attributes(failed)["error.type"] == "delivery_failed"
    assert attributes(spans[3])["messaging.bartleby.delivery.attempt"] == 2
    assert dead.status.status_code is StatusCode.ERROR
    told = attributes(dead)
    assert told["error.type"] == told["messaging.bartleby.dead_letter.reason"] == "max-deliveries"
    assert "no stock" in told["messaging.bartleby.dead_letter.text"]
    assert told["messaging.bartleby.dead_letter.attempts"] == 2
    assert told["messaging.bartleby.moved.address"] == "dead"
    assert told["messaging.message.id"] == attributes(spans[0])["messaging.message.id"]
    [letter] = traced.broker.engine.queue("dead").backlog
    assert told["messaging.bartleby.moved.message.id"] == str(letter.id)
    assert told["messaging.client.id"] == "shop"


def test_a_message_that_is_released_has_not_failed() -> None:
    traced, client = begun()
    client.send("/queue/a", b"x", **TOLD)
    client.subscribe("/queue/a")
    client.do("UNSUBSCRIBE", {"id": "s"})
    spans = traced.spans()
    assert names(spans) == ["publish a", "deliver a", "return a"]
    assert spans[2].status.status_code is StatusCode.UNSET
    assert attributes(spans[2])["messaging.bartleby.delivery.outcome"] == "the consumer was closed"


@pytest.mark.parametrize("kept", [True, False])
def test_a_message_that_expires(kept: bool) -> None:
    traced, client = begun(SimBroker(small({"match": "a", "expiry-address": "late" if kept else ""})))
    expiration = traced.broker.now + 1000
    client.send("/queue/a", b"x", expires=str(expiration), **TOLD)
    traced.broker.advance(60_000)
    publish, expire = traced.spans()
    assert names([publish, expire]) == ["publish a", "expire a"]
    assert parent(expire) == f"{SPAN_ID:016x}"
    told = attributes(expire)
    assert told["messaging.bartleby.expiration"] == expiration
    assert told.get("messaging.bartleby.moved.address") == ("late" if kept else None)


def test_a_message_that_is_refused() -> None:
    traced, client = begun(SimBroker(small({"match": "a", "max-size-messages": 1, "address-full-policy": "FAIL"})))
    client.send("/queue/a", b"1", **TOLD)
    client.send("/queue/a", b"2", **TOLD)
    taken, refused = traced.spans()
    assert taken.status.status_code is StatusCode.UNSET
    assert (refused.name, refused.status.status_code) == ("publish a", StatusCode.ERROR)
    assert attributes(refused)["error.type"] == "AddressFull"
    assert "is full" in (refused.status.description or "")
    assert "messaging.message.id" not in attributes(refused)


def test_a_transaction_is_published_when_it_commits() -> None:
    traced, client = begun()
    for id in ("undone", "done"):
        client.do("BEGIN", {"transaction": id})
        client.send("/queue/a", id.encode(), transaction=id, **TOLD)
    client.do("ABORT", {"transaction": "undone"})
    client.do("COMMIT", {"transaction": "done"})
    assert names(traced.spans()) == ["publish a"]


def test_names_of_temporary_destinations_are_no_names_of_spans() -> None:
    """There are endlessly many of them."""
    traced, client = begun()
    client.subscribe("/temp-queue/answers", ack="auto")
    client.send("/temp-queue/answers", b"x", traceparent=SAMPLED)
    spans = traced.spans()
    assert names(spans) == ["publish", "deliver", "ack"]
    assert all(attributes(span)["messaging.destination.temporary"] for span in spans)


def test_texts_are_bounded() -> None:
    traced, client = begun()
    client.send("/queue/a", b"x", **TOLD)
    client.subscribe("/queue/a")
    client.nack(*client.messages(), reason="x" * 2 * TEXT_CHARS_MAX)
    span = traced.spans()[2]
    assert len(attributes(span)["messaging.bartleby.delivery.outcome"]) == TEXT_CHARS_MAX
    assert len(span.status.description or "") == TEXT_CHARS_MAX


def test_a_share_of_messages_without_a_context() -> None:
    """What is chosen once is traced to its end, across a restart, in a trace of its own; so is what dies."""
    config = small({"match": "a", "max-delivery-attempts": 1, "dead-letter-address": "dead"})
    before = Traced(SimBroker(config), sample_ratio=0.25)
    client = before.broker.connect()
    for number in range(400):
        client.send("/queue/a", b"%d" % number, persistent="true")
    begun = before.spans()
    assert len(begun) == pytest.approx(100, abs=2)
    assert {span.parent for span in begun} == {None}
    after = Traced(before.broker.restart(), sample_ratio=0.25)
    consumer = after.broker.connect()
    consumer.subscribe("/queue/a")
    for each in consumer.messages():
        consumer.nack(each)
    consumer.subscribe("/queue/dead", id="dead", ack="auto")
    spans = after.spans()
    assert {span.name for span in spans} == {"deliver a", "return a", "dead-letter a", "deliver dead", "ack dead"}
    assert len(spans) == 5 * len(begun)
    roots = {span.context.trace_id: span.context.span_id for span in begun if span.context}
    for span in spans:
        assert span.context is not None
        assert parent(span) == f"{roots[span.context.trace_id]:016x}"


def test_all_messages_or_none() -> None:
    for ratio, expected in ((1.0, 20), (0.0, 0)):
        traced = Traced(sample_ratio=ratio)
        client = traced.broker.connect()
        for _ in range(20):
            client.send("/queue/a", b"x")
        assert len(traced.spans()) == expected


def test_a_retried_dead_letter_goes_on_in_its_trace() -> None:
    traced, client = begun()
    client.send("/queue/a", b"x", **TOLD)
    client.subscribe("/queue/a")
    client.nack(*client.messages(), requeue="false")
    traced.broker.tick.enter()
    engine = traced.broker.engine
    engine.messages.retry(engine.queue("DLQ"), MessageRange())
    traced.broker.run()
    assert names(traced.spans()) == ["publish a", "deliver a", "dead-letter a", "deliver a"]


def test_a_fault_of_the_tracer_costs_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = Traced(SimBroker(small(), tolerant=True))

    def fail(*_: object) -> object:
        raise RuntimeError("a bug")

    monkeypatch.setattr(MessageTracer, "_notes", fail)
    client = traced.broker.connect()
    client.send("/queue/a", b"x", **TOLD)
    client.subscribe("/queue/a", ack="auto")
    assert client.bodies() == [b"x"]
    assert "RuntimeError: a bug" in str(traced.broker.reported("broker.error")[0]["error"])


def test_it_is_told_once_for_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a broker without one looks at one attribute for each run, not for each message."""
    told: list[tuple[str, int]] = []

    def count(_: MessageTracer, operation: str, messages: Sequence[Message]) -> list[object]:
        told.append((operation, len(messages)))
        return []

    monkeypatch.setattr(MessageTracer, "_notes", count)
    _, client = begun()
    client.subscribe("/queue/a", ack="auto")
    client.raw(frame("SEND", {"destination": "/queue/a", **TOLD}, b"x") * 100)
    assert len(client.bodies()) == 100
    delivered = [count for operation, count in told if operation == "deliver"]
    assert [told[0], told[-1]] == [("publish", 100), ("ack", 100)]
    assert (sum(delivered), len(delivered), len(told)) == (100, 1, 3)
