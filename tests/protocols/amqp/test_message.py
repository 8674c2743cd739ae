"""Messages: where their sections are, what they say, and forwarding the bare message untouched."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import proton
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.amqp.decode import decode
from protocols.amqp.encode import encode
from protocols.amqp.errors import DecodeError
from protocols.amqp.limits import Limits
from protocols.amqp.message import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    Message,
    encode_annotations,
    encode_application_properties,
    encode_section,
)
from protocols.amqp.performatives import Header, Properties
from protocols.amqp.types import Described, Pairs, Symbol, UInt, ULong
from tests.protocols.amqp.messages import encoded, messages
from tests.protocols.amqp.values import typed


@settings(max_examples=50)
@given(messages())
def test_sections(made: tuple[dict[int, Any], int, list[object]]) -> None:
    sections, kind, body = made
    raw = encoded(sections, kind, body)
    message = Message(b"".join(raw.values()))
    for code in (HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES):
        assert message.section(code) == raw.get(code, b"")
    assert message.body_at == sum(len(part) for code, part in raw.items() if code < DATA)
    assert message.bare == b"".join([part for code, part in raw.items() if code >= PROPERTIES])
    assert message.bare_at == len(message.payload) - len(message.bare)
    assert message.header == sections.get(HEADER, Header())
    assert message.properties == sections.get(PROPERTIES, Properties())
    assert typed(message.message_annotations) == typed(sections.get(MESSAGE_ANNOTATIONS, {}))
    assert typed(message.application_properties) == typed(sections.get(APPLICATION_PROPERTIES, {}))
    assert typed(list(message.body())) == typed([kind, body])


@settings(max_examples=50)
@given(messages(), st.data())
def test_cut_short(made: tuple[dict[int, Any], int, list[object]], data: st.DataObject) -> None:
    payload = b"".join(encoded(*made).values())
    cut = payload[: data.draw(st.integers(0, len(payload) - 1))]
    message = Message(cut)
    offset = 0
    try:
        assert message.bare == cut[message.bare_at :]
        _ = message.header, message.properties, message.application_properties
        message.body()
    except DecodeError as error:
        offset = error.offset
    assert 0 <= offset <= len(cut)


# -- proton as the oracle ----------------------------------------------------------------------------------------------


def by_proton() -> proton.Message:
    """A message of proton's with something everywhere."""
    message = proton.Message(body={"a": [1, "b"]}, durable=True, priority=7, ttl=5.0, delivery_count=3)
    message.id = "id"
    message.user_id = b"user"
    message.address = "to"
    message.subject = "subject"
    message.reply_to = "reply"
    message.correlation_id = UUID(int=5)
    message.content_type = "text/plain"
    message.content_encoding = "gzip"
    message.expiry_time = 1.5
    message.creation_time = 2.5
    message.group_id = "group"
    message.group_sequence = 9
    message.reply_to_group_id = "other"
    message.instructions = {proton.symbol("x-opt-delivery"): 1}
    message.annotations = {proton.symbol("x-opt-message"): "v"}
    vars(message)["properties"] = {"p": 1.5, "q": None}
    return message


PROPERTIES_BY_HAND = Properties(
    "id", b"user", "to", "subject", "reply", UUID(int=5), "text/plain", "gzip", 1500, 2500, "group", 9, "other"
)


def test_messages_that_proton_writes() -> None:
    message = Message(bytes(by_proton().encode()))
    assert message.header == Header(True, 7, 5000, False, 3)
    assert message.properties == PROPERTIES_BY_HAND
    assert typed(message.message_annotations) == typed({Symbol("x-opt-message"): "v"})
    assert typed(message.application_properties) == typed({"p": 1.5, "q": None})
    assert message.body() == (AMQP_VALUE, [{"a": [1, "b"]}])


def test_messages_that_proton_reads() -> None:
    message = proton.Message()
    message.decode(
        Header(True, 7, 5000, False, 3).encode()
        + encode_annotations(DELIVERY_ANNOTATIONS, {"x-opt-delivery": 1})
        + encode_annotations(MESSAGE_ANNOTATIONS, {"x-opt-message": "v", ULong(5): 6})
        + PROPERTIES_BY_HAND.encode()
        + encode_application_properties({"p": 1.5, "q": None})
        + encode_section(AMQP_VALUE, {"a": [1, "b"]})
        + encode_annotations(FOOTER, {"x-opt-hash": b"h"})
    )
    theirs = by_proton()
    for name in ("id", "user_id", "address", "subject", "reply_to", "correlation_id", "content_type", "body", "ttl"):
        assert getattr(message, name) == getattr(theirs, name)
    assert vars(message)["properties"] == vars(theirs)["properties"]
    assert message.annotations == {proton.symbol("x-opt-message"): "v", proton.ulong(5): 6}
    assert message.instructions == theirs.instructions
    assert (message.durable, message.priority, message.delivery_count) == (True, 7, 3)
    assert (message.group_id, message.group_sequence, message.reply_to_group_id) == ("group", 9, "other")
    assert (message.expiry_time, message.creation_time) == (1.5, 2.5)


@pytest.mark.parametrize("body", [b"data", "text", [1, "a"], {"k": 1}, 5, True, proton.timestamp(7)])
def test_bodies_of_proton(body: Any) -> None:
    message = proton.Message(body=body, inferred=True)
    kinds: dict[type, int] = {bytes: DATA, list: AMQP_SEQUENCE}
    assert Message(bytes(message.encode())).body() == (kinds.get(type(body), AMQP_VALUE), [body])


def test_proton_sends_no_body_for_none() -> None:
    assert Message(bytes(proton.Message().encode())).body() == (0, [])


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_an_empty_message() -> None:
    message = Message(b"")
    assert (message.bare_at, message.body_at, message.bare, message.section(HEADER)) == (0, 0, b"", b"")
    assert (message.header, message.properties, message.body()) == (Header(), Properties(), (0, []))


def test_other_encodings_of_sections() -> None:
    raw = (
        b"\x00\x80" + HEADER.to_bytes(8) + b"\xc0\x02\x01\x41"
        + encode(Described(Symbol("amqp:message-annotations:map"), {Symbol("a"): 1}))
        + b"\x00\x53\x73" + b"\xd0\x00\x00\x00\x07\x00\x00\x00\x01\xa1\x01i"
        + encode(Described(Symbol("amqp:amqp-value:*"), "v"))
    )  # fmt: skip
    message = Message(raw)
    assert message.header == Header(True)
    assert message.message_annotations == {"a": 1}
    assert message.properties == Properties("i")
    assert message.body() == (AMQP_VALUE, ["v"])
    assert message.bare == raw[message.bare_at :]


def test_maps_with_keys_that_python_cannot_hold_apart() -> None:
    same = Pairs([("a", 1), (Symbol("a"), 2)])
    assert Message(encode_section(MESSAGE_ANNOTATIONS, same)).message_annotations == {"a": 2}
    assert Message(encode_section(APPLICATION_PROPERTIES, same)).application_properties == {"a": 2}
    assert Message(encode_section(MESSAGE_ANNOTATIONS, Pairs([([1], 1)]))).message_annotations == {}


MALFORMED = [
    (b"\x40", 0, "a section begins with its descriptor"),
    (b"\x00", 1, "the end, where a value should begin"),
    (b"\x00\x53", 2, "1 bytes are needed, 0 are there"),
    (b"\x00\x53\x70", 3, "the end, where a value should begin"),
    (b"\x00\x53\x70\xc0", 4, "1 bytes are needed, 0 are there"),
    (b"\x00\x53\x70\xc0\x05\x01\x40", 5, "5 bytes are needed, 2 are there"),
    (b"\x00\x53\x6f\x45", 0, "no section of a message: 0x6F"),
    (b"\x00\x53\x79\x45", 0, "no section of a message: 0x79"),
    (b"\x00\x55\x70\x45", 0, "no section of a message: 0x70"),
    (encode(Described(Symbol("amqp:open:list"), [])), 0, "no section of a message: of type symbol"),
    (b"\x00\x45\x45", 0, "no section of a message: of type list"),
    (Properties().encode() + Header().encode(), 4, "header after properties"),
    (Header().encode() * 2, 4, "header after header"),
    (encode_application_properties({"a": 1}) + Properties().encode(), 11, "properties after application-properties"),
]


@pytest.mark.parametrize(("raw", "offset", "reason"), MALFORMED, ids=[row[2] for row in MALFORMED])
def test_malformed_sections(raw: bytes, offset: int, reason: str) -> None:
    with pytest.raises(DecodeError) as caught:
        _ = Message(raw).body_at
    assert (caught.value.offset, caught.value.reason) == (offset, reason)


BODY = encode_section(DATA, b"x")
MALFORMED_BODIES = [
    (BODY + Header().encode(), 6, "header does not belong there"),
    (BODY + encode_section(AMQP_VALUE, 1), 6, "amqp-value does not belong there"),
    (BODY + encode_section(AMQP_SEQUENCE, [1]), 6, "amqp-sequence does not belong there"),
    (encode_section(AMQP_VALUE, 1) * 2, 5, "amqp-value does not belong there"),
    (encode_section(FOOTER, {1: 2}) + BODY, 10, "data does not belong there"),
    (encode_section(FOOTER, {1: 2}) * 2, 10, "footer does not belong there"),
    (encode_section(DATA, "x"), 0, "data cannot be a str"),
    (encode_section(AMQP_SEQUENCE, 5), 0, "amqp-sequence cannot be a int"),
    (encode_section(FOOTER, [1]), 0, "footer is a map"),
    (BODY + b"\x00\x53\x75\xa0\x05x", 11, "5 bytes are needed, 1 are there"),
]


@pytest.mark.parametrize(("raw", "offset", "reason"), MALFORMED_BODIES, ids=[row[2] for row in MALFORMED_BODIES])
def test_malformed_bodies(raw: bytes, offset: int, reason: str) -> None:
    with pytest.raises(DecodeError) as caught:
        Message(raw).body()
    assert (caught.value.offset, caught.value.reason) == (offset, reason)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (HEADER, "header is a list of fields, not of type long"),
        (PROPERTIES, "properties is a list of fields, not of type long"),
        (MESSAGE_ANNOTATIONS, "message-annotations is a map"),
        (APPLICATION_PROPERTIES, "application-properties is a map"),
    ],
)
def test_sections_of_the_wrong_type(code: int, reason: str) -> None:
    prefix = Header().encode() if code > HEADER else b""
    message = Message(prefix + encode_section(code, 500))
    with pytest.raises(DecodeError) as caught:
        _ = message.header, message.message_annotations, message.properties, message.application_properties
    assert (caught.value.offset, caught.value.reason) == (len(prefix), reason)


def test_sections_that_nobody_asks_for_are_not_parsed() -> None:
    raw = Header(True).encode() + b"\x00\x53\x74\xc1\x03\xff\xff\xff" + BODY
    message = Message(raw)
    assert message.header == Header(True)
    assert message.body() == (DATA, [b"x"])
    assert message.bare == raw[message.bare_at :]
    with pytest.raises(DecodeError):
        _ = message.application_properties


def test_limits() -> None:
    most = Limits().values_max // 2 - 1
    pairs: dict[str, object] = {str(at): at for at in range(most)}
    assert len(Message(encode_application_properties(pairs)).application_properties) == most
    with pytest.raises(DecodeError, match="too many values in one"):
        _ = Message(encode_application_properties(pairs | {"one": "more"})).application_properties


def test_sections_of_nothing() -> None:
    assert encode_annotations(MESSAGE_ANNOTATIONS, {}) == b""
    assert encode_application_properties({}) == b""
    assert encode_section(AMQP_VALUE, None) == b"\x00\x53\x77\x40"
    assert typed(decode(encode_annotations(FOOTER, {"a": UInt(1)}))) == typed(
        Described(ULong(FOOTER), {Symbol("a"): UInt(1)})
    )
