"""Messages that another protocol has no room for, and errors of our own: one message at most, never its consumer."""

from __future__ import annotations

from typing import Any

import pytest

from broker.engine.model.message import DL_REASON, DL_TEXT, Message
from broker.management.models.messages import message_shown
from broker.sessions import convert
from broker.sessions.amqp import message as amqp_message
from protocols.amqp.message import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    DATA,
    FOOTER,
    MESSAGE_ANNOTATIONS,
    encode_annotations,
    encode_section,
)
from protocols.amqp.performatives import Accepted, Modified, Properties, Rejected
from protocols.amqp.types import Char, Symbol, Timestamp, UInt, ULong
from protocols.mqtt.codes import V5
from protocols.mqtt.properties import CONTENT_TYPE, USER_PROPERTY
from tests.simulation.world import held, small
from tests.support.amqp_client import AmqpSim, message
from tests.support.mqtt_world import FOR_EVER, SimWorld
from tests.support.sim_broker import SimBroker
from tests.support.stomp_client import ServerFrame

DEAD: dict[str, object] = {"match": "a", "dead-letter-address": "dead"}


def test_a_content_type_that_is_not_ascii_reaches_amqp_as_a_property() -> None:
    world = SimWorld()
    stomp, amqp = world.broker.connect(), AmqpSim(world.broker)
    stomp.send("/queue/a", b"1", **{"content-type": "text/pläin"})
    stomp.send("/queue/a", b"2")
    publisher = world.connect()
    world.broker.engine._state.registry.ensure_address("a")
    amqp.receiver("a")
    first, second = amqp.take()
    assert first.message.application_properties == {"content-type": "text/pläin"}
    assert (first.message.properties.content_type, first.body, second.body) == (None, "1", "2")
    amqp.receiver("topic://t")
    publisher.publish("t", b"3", 1, properties=[(CONTENT_TYPE, "tä")])
    [third] = amqp.take()
    assert third.message.application_properties == {"content-type": "tä"}
    assert third.message.body() == (DATA, [b"3"])


def test_annotations_of_an_amqp_consumer_reach_mqtt_as_far_as_they_have_room() -> None:
    world = SimWorld()
    amqp = AmqpSim(world.broker)
    reader = world.subscriber("reader", "DLQ", qos=1, clean=False, expiry=FOR_EVER)
    amqp.send(amqp.sender("queue://a"), message("body"))
    amqp.receiver("queue://a", credit=1)
    notes: dict[str, object] = {
        "x-opt-nul": "a\0b",
        "x-opt-note": "fits",
        "x-opt-long": "x" * 70_000,
        "destination": "other",
    }
    [delivery] = amqp.take()
    amqp.settle(delivery, state=Modified(message_annotations=notes))
    amqp.receiver("queue://a", credit=1)
    [again] = amqp.take()
    amqp.settle(again, state=Rejected())
    [dead] = reader.take()
    user = dict(dead.properties.get_all(USER_PROPERTY))
    assert (dead.payload, user["x-opt-note"], user[DL_REASON]) == (b"body", "fits", "rejected")
    assert user["x-opt-nul"] == "a\N{REPLACEMENT CHARACTER}b"
    assert not {"x-opt-long", "destination"} & user.keys()


def test_notes_keep_their_types_in_the_journal(broker: SimBroker) -> None:
    amqp = AmqpSim(broker)
    amqp.send(amqp.sender("queue://a"), message("body"))
    amqp.receiver("queue://a", credit=1)
    notes: dict[Any, Any] = {
        "x-opt-ulong": ULong(2**64 - 1),
        "x-opt-uint": UInt(5),
        "x-opt-time": Timestamp(2**63 - 1),
        "x-opt-symbol": Symbol("s"),
        "x-opt-char": Char("ä"),
        "x-opt-long": -5,
        "x-opt-true": True,
    }
    [delivery] = amqp.take()
    amqp.settle(delivery, state=Modified(message_annotations={Symbol(name): value for name, value in notes.items()}))
    amqp.receiver("queue://a", credit=1)
    amqp.settle(*amqp.take(), state=Rejected())
    broker = broker.restart()
    amqp = AmqpSim(broker)
    amqp.receiver("DLQ")
    [dead] = amqp.take()
    found = dead.message.message_annotations
    assert {name: (type(found[name]), found[name]) for name in notes} == {
        name: (type(value), value) for name, value in notes.items()
    }
    reader = broker.subscriber("DLQ")
    amqp.drop()
    assert reader.messages()[-1].headers["x-opt-ulong"] == str(2**64 - 1)


def test_numbers_that_are_no_longs_are_sent_from_journals_that_have_no_types() -> None:
    assert amqp_message._typed(2**64 - 1) == 2**64 - 1
    assert type(amqp_message._typed(2**64 - 1)) is ULong
    assert amqp_message._typed(2**64) == str(2**64)


def test_annotations_of_a_consumer_are_bounded(broker: SimBroker) -> None:
    amqp = AmqpSim(broker)
    amqp.send(amqp.sender("queue://a"), message("body"))
    for number in range(30):
        amqp.receiver("queue://a", credit=1)
        [delivery] = amqp.take()
        amqp.settle(delivery, state=Modified(message_annotations={f"x-opt-{number:02}": "x" * 4_000}))
    [(held_message, _)] = broker.engine.messages.browse(broker.engine.queue("a"))
    notes = held_message.header.annotations or {}
    chars = sum(len(name) + len(str(value)) for name, value in notes.items())
    assert 60_000 < chars <= amqp_message.ANNOTATIONS_CHARS_MAX


def test_annotations_with_names_that_are_no_symbols_go_on(broker: SimBroker) -> None:
    """A sender's mistake (part 3, 3.2.10) is not its consumer's."""
    amqp = AmqpSim(broker)
    raw = encode_annotations(MESSAGE_ANNOTATIONS, {"x-opt-ä": 1})
    amqp.send(amqp.sender("queue://a"), message("body", annotations=raw))
    amqp.receiver("queue://a", credit=1)
    amqp.settle(*amqp.take(), state=Rejected())
    amqp.receiver("DLQ")
    [dead] = amqp.take()
    assert dead.message.message_annotations["x-opt-ä"] == 1


#: A message of AMQP that comes in portions, since its properties are long, and that has no body.
BODILESS = message(None, properties=Properties(subject="x" * 120_000))[: -len(b"\0Sw@")]


def test_an_empty_body_behind_long_properties_arrives() -> None:
    """Its body is in a file: one of no bytes."""
    world = SimWorld()
    broker = world.broker
    amqp, stomp, mqtt = AmqpSim(broker), broker.connect(), world.connect("reader")
    mqtt.subscribe("a", qos=1)
    stomp.subscribe("/topic/a", ack="auto")
    receiver = amqp.receiver("topic://a")
    amqp.send(amqp.sender("topic://a"), BODILESS, BODILESS + encode_section(DATA, b""))
    assert receiver is not None
    assert [delivery.message.body() for delivery in amqp.take()] == [(0, []), (DATA, [b""])]
    assert stomp.bodies() == [b"", b""]
    assert mqtt.payloads() == [b"", b""]


def failing(original: Any) -> Any:
    """A converter with a bug: it cannot do what has this body."""

    def convert(message: Message, *more: Any) -> Any:
        if b"poison" in bytes(message.body):  # type: ignore[arg-type]
            raise RuntimeError("a bug")
        return original(message, *more)

    return convert


BODIES = [b"1", b"poison", b"2", b"3"]


def check_dead(broker: SimBroker, queue: str = "dead") -> None:
    """The one message is dead, for a reason that can be read, and the bug is told."""
    [(dead, _)] = broker.engine.messages.browse(broker.engine.queue(queue))
    notes = dead.header.annotations or {}
    assert notes[DL_REASON] == "decode-error"
    assert "an error of the broker, RuntimeError: a bug" in str(notes[DL_TEXT])
    [told] = broker.reported("message.conversion_failed")
    assert (told["address"], told["error"]) == ("a", "a bug")
    assert "in convert" in str(told["traceback"])


def test_an_error_of_ours_costs_one_message_over_stomp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.sessions.stomp.delivery.to_stomp", failing(convert.to_stomp))
    broker = SimBroker(small(DEAD))
    amqp = AmqpSim(broker)
    amqp.send(amqp.sender("queue://a"), *[message(body) for body in BODIES])
    client = broker.subscriber("a", browser="true", id="b")
    browsed: list[ServerFrame] = client.messages()
    assert [frame.body for frame in browsed if "browser" not in frame.headers] == [b"1", b"2", b"3"]
    broker.reports.clear()
    client.subscribe("a", ack="auto")
    assert client.bodies() == [b"1", b"2", b"3"]
    check_dead(broker)


def test_an_error_of_ours_costs_one_message_over_amqp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.sessions.amqp.message.to_amqp", failing(convert.to_amqp))
    broker = SimBroker(small(DEAD))
    client = broker.connect()
    for body in BODIES:
        client.confirmed("/queue/a", body)
    amqp = AmqpSim(broker)
    amqp.receiver("a", distribution_mode="copy")
    assert amqp.bodies() == ["1", "2", "3"]
    broker.reports.clear()
    amqp.receiver("a")
    assert amqp.bodies() == ["1", "2", "3"]
    check_dead(broker)


def test_an_error_of_ours_costs_one_message_over_mqtt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.sessions.mqtt.render.to_mqtt", failing(convert.to_mqtt))
    world = SimWorld(small(DEAD))
    reader = world.subscriber("reader", "a", qos=1, version=V5)
    client = world.broker.connect()
    for body in BODIES:
        client.send("/topic/a", body, persistent="true", receipt="r")
    assert reader.payloads() == [b"1", b"2", b"3"]
    check_dead(world.broker)


def test_a_dead_letter_that_its_consumer_cannot_be_sent_stays_and_the_others_come(broker: SimBroker) -> None:
    """On the dead-letter queue itself there is nowhere to go: it neither comes again and again nor is it lost."""
    amqp = AmqpSim(broker)
    amqp.send(amqp.sender("queue://DLQ"), message(b"x" * 2_000), message("next"))
    limited = AmqpSim(broker)
    limited.receiver("DLQ", max_message_size=1_000)
    assert limited.bodies() == ["next"]
    assert len(held(broker, "DLQ")) == 2
    other = AmqpSim(broker)
    other.receiver("DLQ")
    assert other.bodies() == [b"x" * 2_000]


def test_footers_and_sections_that_stomp_has_no_word_for_are_left_out(broker: SimBroker) -> None:
    amqp, client = AmqpSim(broker), broker.connect()
    amqp.send(amqp.sender("queue://a"), message("body") + encode_section(FOOTER, {Symbol("x-f"): 1}))
    client.subscribe("a", ack="auto")
    assert client.bodies() == [b"body"]


@pytest.mark.parametrize(
    "body", [b"\0Sw\xa1\x05abc", b"\0Sw\xc1\x04\x02\xa1\x05a", b"\0Sw\xa1\x02\xff\xfe", b"\0SwA" + b"junk"]
)
def test_a_body_that_cannot_be_decoded_is_refused_at_the_door(broker: SimBroker, body: bytes) -> None:
    amqp = AmqpSim(broker)
    sender = amqp.sender("queue://a")
    bare = message(None)[: -len(b"\0Sw@")]
    outcomes = amqp.send(sender, message("1"), bare + body, message("2"))
    by_context = {outcome.context: outcome.state for outcome in outcomes}
    refused = by_context.pop(1)
    assert isinstance(refused, Rejected)
    assert refused.error is not None
    assert refused.error.condition == "amqp:decode-error"
    assert all(isinstance(state, Accepted) for state in by_context.values())
    assert len(held(broker, "a")) == 2


LONG_TEXT = "ä" * 100_000


@pytest.mark.parametrize(
    ("body", "encoding", "data"),
    [
        (encode_section(AMQP_VALUE, "text"), "text", "text"),
        (encode_section(DATA, b"one ") + encode_section(DATA, b"two"), "text", "one two"),
        (encode_section(DATA, b"\x00\xff"), "base64", "AP8="),
        (encode_section(AMQP_VALUE, b"bytes"), "text", "bytes"),
        (encode_section(AMQP_VALUE, {"a": [1, ULong(2), None], "b": True}), "text", '{"a":[1,2,null],"b":true}'),
        (encode_section(AMQP_SEQUENCE, [1, "x"]) * 2, "text", '[[1,"x"],[1,"x"]]'),
        (encode_section(AMQP_VALUE, Timestamp(5)) + encode_section(FOOTER, {"x-f": 1}), "text", "5"),
        (b"", "text", ""),
        (encode_section(AMQP_VALUE, LONG_TEXT), "text", "ä" * 512),
    ],
)
def test_an_operator_sees_what_is_in_an_amqp_body(broker: SimBroker, body: bytes, encoding: str, data: str) -> None:
    """Whether it is in memory or, the last one, in a file."""
    amqp = AmqpSim(broker)
    amqp.send(amqp.sender("queue://a"), message(None)[: -len(b"\0Sw@")] + body)
    queue = broker.engine.queue("a")
    [(found, place)] = broker.engine.messages.browse(queue)
    shown = message_shown(found, queue, place).model_dump()["body"]
    assert shown == {"encoding": encoding, "data": data, "bytes": len(body), "truncated": len(body) > 1_024}
