"""Facts, and what a filter may ask of a message."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest

from broker.engine.model.message import MESSAGE_OVERHEAD_BYTES, Message, MessageHeader, PropertyView, RoutingType
from broker.sessions.stomp.format import StompFormat, encode_head
from tests.support.attributes import attributes_of
from tests.support.interpreted import interpreted

FORMAT = StompFormat()


def view(pairs: dict[bytes, bytes], body: bytes = b"body", **header: object) -> PropertyView:
    made = Message(MessageHeader("orders.eu", FORMAT, **header), encode_head(list(pairs.items())), body)  # type: ignore[arg-type]
    made.id = 42
    return PropertyView(made)


def given(**more: Any) -> MessageHeader:
    """Facts of which none is as it is by default."""
    return MessageHeader(
        "a",
        FORMAT,
        durable=True,
        priority=7,
        timestamp=5,
        expiration=6,
        expiry_source=1,
        scheduled=9,
        routing_type=RoutingType.ANYCAST,
        user="u",
        origin="o",
        **more,
    )


def test_a_moved_message_keeps_what_it_is_and_loses_when_and_how_it_was_to_be_delivered() -> None:
    moved = given().copy("DLQ", {"why": "so"})
    assert (moved.address, moved.durable, moved.priority, moved.timestamp) == ("DLQ", True, 7, 5)
    assert (moved.user, moved.origin, moved.annotations) == ("u", "o", {"why": "so"})
    assert (moved.expiration, moved.expiry_source, moved.scheduled, moved.routing_type) == (0, 0, 0, None)


def test_a_copy_agrees_in_everything() -> None:
    header = given(annotations={"why": "so"}, group="g", closes_group=True)
    assert attributes_of(copy(header)) == attributes_of(header)
    message = Message(header, b"12345", b"123")
    message.id, message.refs, message.segment = 42, 3, 7
    other = copy(message)
    assert attributes_of(other) == attributes_of(message)
    assert other.header is header
    other.head = b"other"
    assert message.head == b"12345"


def test_the_size_is_what_it_costs() -> None:
    header = MessageHeader("a", FORMAT)
    assert Message(header, b"12345", b"123").size == MESSAGE_OVERHEAD_BYTES + 8


def test_annotations_and_the_name_of_a_group_count_once() -> None:
    header = MessageHeader("a", FORMAT, group="g" * 1000, annotations={"x-a": "v" * 1000})
    first, second = (Message(header, b"", b"") for _ in range(2))
    assert 2000 < first.size - MESSAGE_OVERHEAD_BYTES < 3000
    assert second.size == MESSAGE_OVERHEAD_BYTES
    for size in (1000, 2000, 500):
        second.annotate({"x-b": "€" * size})
        assert 2000 + 2 * size < second.size - MESSAGE_OVERHEAD_BYTES < 3000 + 2 * size


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AMQPriority", 7),
        ("AMQExpiration", 6),
        ("AMQDurable", "DURABLE"),
        ("AMQTimestamp", 5),
        ("JMSMessageID", "ID:42"),
        ("AMQAddress", "orders.eu"),
        ("AMQGroupID", "g"),
        ("AMQSize", len(b"JMSXGroupID:g\ncolour:red\n") + 4),
        ("colour", "red"),
        ("AMQother", None),
        ("missing", None),
    ],
)
def test_names_of_filters(name: str, value: object) -> None:
    seen = view({b"JMSXGroupID": b"g", b"colour": b"red"}, priority=7, expiration=6, durable=True, timestamp=5)
    assert seen.get(name) == value
    if value is None:
        with pytest.raises(KeyError):
            seen[name]
    else:
        assert seen[name] == value


def test_amq_user_id_is_the_message_id_that_the_sender_gave() -> None:
    """ActiveMQ Artemis: null without one, and else in the form ID:..."""
    assert view({b"colour": b"red"})["AMQUserID"] is None
    assert view({b"JMSMessageID": b"7"})["AMQUserID"] == view({b"JMSMessageID": b"ID:7"})["AMQUserID"] == "ID:7"


def test_the_address_for_answers_has_no_prefix() -> None:
    format = StompFormat((("/queue/", RoutingType.ANYCAST),))
    message = Message(MessageHeader("a", format), b"reply-to:/queue/answers\n", b"")
    assert message.reply_to == ("answers", RoutingType.ANYCAST)
    assert PropertyView(message)["AMQReplyTo"] == "answers"
    assert view({b"x": b"reply-to:answers"})["AMQReplyTo"] is None


def test_not_durable() -> None:
    assert view({})["AMQDurable"] == "NON_DURABLE"


def test_annotations_are_properties_and_win_over_headers() -> None:
    seen = view({b"x": b"header", b"y": b"header"}, annotations={"x": "annotation", "n": 5})
    assert (seen["x"], seen["y"], seen["n"]) == ("annotation", "header", 5)
    assert set(seen) == {"x", "y", "n"}
    assert len(seen) == 3


@interpreted
def test_headers_are_parsed_only_when_somebody_asks_for_one() -> None:
    parsed: list[bytes] = []

    class Counting(StompFormat):
        def properties(self, head: bytes) -> dict[str, str | int | float | bool | bytes | None]:
            parsed.append(head)
            return super().properties(head)

    seen = PropertyView(Message(MessageHeader("a", Counting()), b"x:1\n", b""))
    assert seen["AMQPriority"] == 4
    assert parsed == []
    assert (seen["x"], seen.get("y")) == ("1", None)
    assert parsed == [b"x:1\n"]
