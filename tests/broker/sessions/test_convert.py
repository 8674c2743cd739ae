"""Between STOMP and AMQP, both ways."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import pytest

from broker.engine.model.message import Message, MessageHeader
from broker.sessions import convert
from broker.sessions.convert import CACHED_BYTES_MAX
from protocols.amqp.encode import encode
from protocols.amqp.message import AMQP_SEQUENCE, AMQP_VALUE, DATA, encode_section
from protocols.amqp.performatives import Header, Properties
from protocols.amqp.types import Symbol, Timestamp, ULong
from protocols.mqtt.properties import USER_PROPERTY
from tests.simulation.world import held, small
from tests.support.amqp_client import AmqpSim, message
from tests.support.mqtt_world import SimWorld
from tests.support.sim_broker import SimBroker


def both() -> tuple[SimBroker, AmqpSim]:
    broker = SimBroker(small())
    return broker, AmqpSim(broker)


def test_from_stomp_to_amqp() -> None:
    broker, amqp = both()
    stomp = broker.connect()
    headers = {
        "persistent": "true",
        "priority": "7",
        "correlation-id": "c",
        "reply-to": "/queue/r",
        "type": "order",
        "JMSXGroupID": "g",
        "content-type": "text/plain",
        "colour": "red:ish",
    }
    stomp.do("SEND", {"destination": "/queue/a", **headers}, b"hello")
    amqp.receiver("a")
    [delivery] = amqp.take()
    told = delivery.message
    properties = told.properties
    assert (told.header.durable, told.header.priority) == (True, 7)
    assert (properties.correlation_id, properties.reply_to, properties.subject) == ("c", "queue://r", "order")
    assert (properties.group_id, properties.content_type, properties.to) == ("g", "text/plain", "a")
    assert told.application_properties == {"colour": "red:ish"}
    assert told.body() == (AMQP_VALUE, ["hello"])


@pytest.mark.parametrize("protocol", ["stomp", "mqtt"])
def test_a_large_message_is_converted_once_for_all_subscriptions(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    name = f"_to_{protocol}"
    convert_it: Callable[..., object] = getattr(convert, name)

    def noting(*of: object) -> object:
        made.append(of)
        return convert_it(*of)

    monkeypatch.setattr(convert, name, noting)
    world = SimWorld()
    readers = [world.subscriber(f"c{number}", "t") for number in range(3)] if protocol == "mqtt" else []
    stomp = [] if readers else [world.broker.connect() for _ in range(3)]
    for client in stomp:
        client.subscribe("/topic/t")
    amqp = AmqpSim(world.broker)
    link = amqp.sender("t", "topic")
    application: dict[str, object] = {f"k{number}": 30 * "v" for number in range(200)}
    for number in range(3):
        amqp.send(link, message(str(number), application=application))
    assert len(made) == 3
    for client in stomp:
        found = client.messages()
        assert [(frame.body, frame.headers["k199"]) for frame in found] == [
            (body, 30 * "v") for body in (b"0", b"1", b"2")
        ]
    for reader in readers:
        assert [publish.payload for publish in reader.take()] == [b"0", b"1", b"2"]


def test_cached_conversions_are_bounded() -> None:
    broker, cache = SimBroker(small()), convert._ConversionCache[int]()
    header = MessageHeader("a", broker.engine.formats[1])
    messages = [Message(header, b"", bytes(CACHED_BYTES_MAX // 4)) for _ in range(9)]
    for number, each in enumerate(messages):
        assert cache.get(each, None, partial(int, number)) == number
        assert cache._bytes <= CACHED_BYTES_MAX
        assert len(cache._found) <= 3
    tiny = Message(header, b"", b"x")
    assert [cache.get(tiny, None, partial(int, number)) for number in range(2)] == [0, 1], "not cached"


@pytest.mark.parametrize(
    ("group", "sequence"), [("JMSXGroupID", "JMSXGroupSeq"), ("_AMQ_GROUP_ID", "_AMQ_GROUP_SEQUENCE")]
)
@pytest.mark.parametrize(("said", "number"), [("3", 3), ("-1", 0xFFFF_FFFF), ("4294967295", 0xFFFF_FFFF)])
def test_a_group_of_stomp_is_one_of_amqp(group: str, sequence: str, said: str, number: int) -> None:
    broker, amqp = both()
    broker.connect().send("/queue/a", b"x", **{group: "g", sequence: said})
    amqp.receiver("a")
    [delivery] = amqp.take()
    properties = delivery.message.properties
    assert (properties.group_id, properties.group_sequence) == ("g", number)
    assert delivery.message.application_properties == {}


@pytest.mark.parametrize("said", ["many", "-2147483649", "4294967296", ""])
def test_a_sequence_that_is_none_is_a_text(said: str) -> None:
    broker, amqp = both()
    broker.connect().send("/queue/a", b"x", JMSXGroupSeq=said)
    amqp.receiver("a")
    [delivery] = amqp.take()
    assert delivery.message.properties.group_sequence is None
    assert delivery.message.application_properties == {"JMSXGroupSeq": said}


@pytest.mark.parametrize(("number", "said"), [(3, "3"), (0xFFFF_FFFF, "-1")])
def test_a_group_of_amqp_is_one_of_the_others(number: int, said: str) -> None:
    world = SimWorld()
    reader = world.subscriber("reader", "t")
    stomp, amqp = world.broker.subscriber("/topic/t", ack="auto"), AmqpSim(world.broker)
    properties = Properties(group_id="g", group_sequence=number)
    amqp.send(amqp.sender("t", "topic"), message("x", properties=properties, application={"JMSXGroupSeq": 7}))
    [frame] = stomp.messages()
    assert (frame.headers["JMSXGroupID"], frame.headers["JMSXGroupSeq"]) == ("g", said)
    [publish] = reader.take()
    pairs = [("JMSXGroupID", "g"), ("JMSXGroupSeq", said)]
    assert publish.properties.get_all(USER_PROPERTY) == pairs
    amqp.receiver("t", "topic")
    reader.publish("t", b"x", properties=[(USER_PROPERTY, pair) for pair in pairs])
    [delivery] = amqp.take()
    assert (delivery.message.properties.group_id, delivery.message.properties.group_sequence) == ("g", number)
    assert delivery.message.application_properties == {}


def test_properties_that_only_amqp_has_keep_the_names_of_artemis() -> None:
    world = SimWorld()
    reader = world.subscriber("reader", "t")
    stomp, amqp = world.broker.subscriber("/topic/t", ack="auto"), AmqpSim(world.broker)
    said = Properties(content_encoding=Symbol("gzip"), reply_to_group_id="answers")
    amqp.send(amqp.sender("t", "topic"), message("x", properties=said))
    names = {"JMS_AMQP_ContentEncoding": "gzip", "JMS_AMQP_ReplyToGroupID": "answers"}
    [frame] = stomp.messages()
    assert {name: frame.headers.get(name) for name in names} == names
    [publish] = reader.take()
    assert dict(publish.properties.get_all(USER_PROPERTY)) == names
    amqp.receiver("t", "topic")
    stomp.send("/topic/t", b"x", **names)
    reader.publish("t", b"x", properties=[(USER_PROPERTY, pair) for pair in names.items()])
    for delivery in amqp.take():
        properties = delivery.message.properties
        assert (properties.content_encoding, properties.reply_to_group_id) == ("gzip", "answers")
        assert delivery.message.application_properties == {}
    stomp.send("/topic/t", b"x", JMS_AMQP_ContentEncoding="gép")
    [delivery] = amqp.take()
    assert delivery.message.application_properties == {"JMS_AMQP_ContentEncoding": "gép"}, "symbols are ASCII"


@pytest.mark.parametrize("reply_to", ["/queue/answers", "answers", "/temp-queue/answers"])
def test_a_reply_from_amqp_reaches_who_asked_over_stomp(reply_to: str) -> None:
    broker, amqp = both()
    stomp = broker.subscriber(reply_to, ack="auto", subscription_type="ANYCAST")
    stomp.send("/queue/service", b"6 * 7", **{"reply-to": reply_to})
    amqp.receiver("service", "queue")
    [request] = amqp.take()
    to = request.message.properties.reply_to
    assert to is not None
    amqp.send(amqp.sender(None), message("42", properties=Properties(to=to)))
    amqp.send(amqp.sender(to, "queue"), message("43"))
    assert stomp.bodies() == [b"42", b"43"]


@pytest.mark.parametrize("reply_to", ["queue://answers", "answers"])
def test_a_reply_from_stomp_reaches_who_asked_over_amqp(reply_to: str) -> None:
    broker, amqp = both()
    amqp.receiver("answers", "queue")
    amqp.send(amqp.sender("service", "queue"), message("6 * 7", properties=Properties(reply_to=reply_to)))
    stomp = broker.subscriber("/queue/service", ack="auto")
    [request] = stomp.messages()
    stomp.send(request.headers["reply-to"], b"42")
    assert amqp.bodies() == ["42"]


@pytest.mark.parametrize("body", [b"\x00\xff", b"text"])
def test_a_sized_body_is_bytes_and_one_that_is_no_text_too(body: bytes) -> None:
    broker, amqp = both()
    broker.connect().do("SEND", {"destination": "/queue/a", "content-length": str(len(body))}, body)
    amqp.receiver("a")
    assert amqp.take()[0].message.body() == (DATA, [body])


def test_from_amqp_to_stomp() -> None:
    broker, amqp = both()
    stomp = broker.subscriber("/queue/a", ack="auto")
    properties = Properties("id", None, None, "order", "r", "c", "text/plain", group_id="g")
    application = {"colour": "red:ish", "n": 5, "yes": True, "none": None, "_AMQ_ORIG_ADDRESS": "forged"}
    amqp.send(
        amqp.sender("a", "queue"),
        message("hello", header=Header(True, 7), properties=properties, application=application),
    )
    [frame] = stomp.messages()
    assert frame.body == b"hello"
    wanted = {
        "persistent": "true",
        "priority": "7",
        "correlation-id": "c",
        "reply-to": "r",
        "type": "order",
        "JMSXGroupID": "g",
        "content-type": "text/plain",
        "colour": "red:ish",
        "n": "5",
        "yes": "true",
        "none": "",
    }
    assert {name: frame.headers.get(name) for name in wanted} == wanted
    assert frame.headers["content-length"] == "5"
    assert "_AMQ_ORIG_ADDRESS" not in frame.headers


def test_fields_of_an_amqp_sender_are_headers_over_stomp() -> None:
    """As ActiveMQ Artemis has it: NATIVE_MESSAGE_ID, JMSXUserID and the time of creation."""
    broker, amqp = both()
    stomp = broker.subscriber("/queue/a", ack="auto")
    link = amqp.sender("a", "queue")
    for id in ("order-1", b"\x01\xff", ULong(7)):
        properties = Properties(message_id=id, user_id=b"carol", creation_time=Timestamp(1_000))
        amqp.send(link, message("x", properties=properties, application={"NATIVE_MESSAGE_ID": "forged"}))
    amqp.send(link, message("y"))
    *told, plain = stomp.messages()
    assert [m.headers["NATIVE_MESSAGE_ID"] for m in told] == ["order-1", "ID:AMQP_BINARY:01FF", "ID:AMQP_ULONG:7"]
    assert {(m.headers["JMSXUserID"], m.headers["timestamp"]) for m in told} == {("carol", "1000")}
    assert not {"NATIVE_MESSAGE_ID", "JMSXUserID"} & plain.headers.keys()
    assert plain.headers["timestamp"] == str(broker.now), "when it came"


def test_the_user_who_logged_in_is_told_and_not_the_one_that_a_sender_claims() -> None:
    broker = SimBroker(small(), users={"eve": "pw"})
    stomp = broker.connect(login="eve", passcode="pw")
    stomp.subscribe("/queue/a", ack="auto")
    amqp = AmqpSim(broker, login=("eve", "pw"))
    amqp.send(amqp.sender("a", "queue"), message("x", properties=Properties(user_id=b"admin")))
    assert [m.headers["JMSXUserID"] for m in stomp.messages()] == ["eve"]


def test_a_selector_may_ask_whether_the_sender_gave_a_message_id() -> None:
    broker, amqp = both()
    link = amqp.sender("a", "queue")
    for id in ("m-1", "ID:m-2", None):
        amqp.send(link, message(id or "none", properties=Properties(message_id=id)))
    broker.connect().send("/queue/a", b"stomp")
    for selector, wanted in {
        "AMQUserID IS NULL": [b"none", b"stomp"],
        "AMQUserID = 'ID:m-1'": [b"m-1"],
        "AMQUserID LIKE 'ID:m-%'": [b"m-1", b"ID:m-2"],
    }.items():
        stomp = broker.subscriber("/queue/a", selector=selector, browser="true")
        assert stomp.bodies() == [*wanted, b""], selector


@pytest.mark.parametrize(
    ("sections", "body", "kind"),
    [
        (encode_section(DATA, b"a\0b") + encode_section(DATA, b"c"), b"a\0bc", None),
        (encode_section(AMQP_VALUE, b"raw"), b"raw", None),
        (encode_section(AMQP_VALUE, None), b"", None),
        (encode_section(AMQP_VALUE, {"a": [1, None, 2.5]}), b'{"a":[1,null,2.5]}', "application/json"),
        (
            encode_section(AMQP_SEQUENCE, [1, "x"]) + encode_section(AMQP_SEQUENCE, [True]),
            b'[1,"x",true]',
            "application/json",
        ),
        (encode_section(AMQP_VALUE, 7), b"7", "application/json"),
    ],
)
def test_bodies_of_every_kind(sections: bytes, body: bytes, kind: str | None) -> None:
    broker, amqp = both()
    stomp = broker.subscriber("/queue/a", ack="auto")
    amqp.send(amqp.sender("a", "queue"), sections)
    [frame] = stomp.messages()
    assert (frame.body, frame.headers.get("content-type")) == (body, kind)
    if kind:
        json.loads(frame.body)


def test_a_message_that_stomp_cannot_express_is_a_dead_letter() -> None:
    broker, amqp = both()
    stomp = broker.subscriber("/queue/a")
    bad = encode(Properties("id")) + b"\x00\x53\x74\xc1\x04\x02\xa1\x05a" + encode_section(AMQP_VALUE, "bad")
    amqp.send(amqp.sender("a", "queue"), bad, message("good"))
    assert [frame.body for frame in stomp.messages()] == [b"good"]
    assert len(held(broker, "DLQ")) == 1
    [fields] = broker.reported("message.dead_lettered")
    assert fields["reason"] == "decode-error"


def test_dead_letters_of_one_are_read_by_the_other() -> None:
    broker, amqp = both()
    stomp = broker.connect()
    stomp.send("/queue/a", b"x", persistent="true")
    stomp.subscribe("/queue/a")
    stomp.do("NACK", {"id": stomp.messages()[0].headers["ack"], "requeue": "false"})
    amqp.receiver("DLQ")
    [letter] = amqp.take()
    assert letter.message.message_annotations["x-opt-ORIG-ADDRESS"] == "a"
    assert letter.message.message_annotations["x-opt-DL-REASON"] == "rejected"
