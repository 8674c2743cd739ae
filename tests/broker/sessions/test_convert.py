"""Between STOMP and AMQP, both ways."""

from __future__ import annotations

import json

import pytest

from protocols.amqp.encode import encode
from protocols.amqp.message import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    DATA,
    encode_application_properties,
    encode_section,
)
from protocols.amqp.performatives import Header, Properties
from tests.simulation.world import held, small
from tests.support.sim_amqp import AmqpSim, message
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
    assert (properties.correlation_id, properties.reply_to, properties.subject) == ("c", "r", "order")
    assert (properties.group_id, properties.content_type, properties.to) == ("g", "text/plain", "a")
    assert told.application_properties == {"colour": "red:ish"}
    assert told.body() == (AMQP_VALUE, ["hello"])


@pytest.mark.parametrize("reply_to", ["/queue/answers", "answers", "/temp-queue/answers"])
def test_a_reply_from_amqp_reaches_who_asked_over_stomp(reply_to: str) -> None:
    broker, amqp = both()
    stomp = broker.connect()
    stomp.subscribe(reply_to, ack="auto", subscription_type="ANYCAST")
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
    stomp = broker.connect()
    stomp.subscribe("/queue/service", ack="auto")
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
    stomp = broker.connect()
    stomp.subscribe("/queue/a", ack="auto")
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
    assert "content-length" not in frame.headers
    assert "_AMQ_ORIG_ADDRESS" not in frame.headers


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
    stomp = broker.connect()
    stomp.subscribe("/queue/a", ack="auto")
    amqp.send(amqp.sender("a", "queue"), sections)
    [frame] = stomp.messages()
    assert (frame.body, frame.headers.get("content-type")) == (body, kind)
    if kind:
        json.loads(frame.body)


def test_what_has_no_words_in_stomp_is_a_dead_letter() -> None:
    broker, amqp = both()
    stomp = broker.connect()
    stomp.subscribe("/queue/a")
    bad = encode(Properties("id")) + encode_application_properties({"a": 1}) + b"\x00\x53\x77\xee"
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
