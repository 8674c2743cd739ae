"""Messages of every protocol with everything that it can say, and what each protocol must make of them.

What is expected here is written from the specifications and the pages (docs/stomp.md, amqp.md, mqtt.md), not from the
code that converts: a body is the same bytes or the same value, a property is there by its name, and what is left out
is what the pages say a protocol has no room for.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hypothesis import strategies as st

from broker.sessions.stomp.headers import CONSUMED
from protocols.amqp.encode import encode
from protocols.amqp.message import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    MESSAGE_ANNOTATIONS,
    Message,
    encode_application_properties,
    encode_section,
)
from protocols.amqp.performatives import Properties
from protocols.amqp.types import Decimal32, Decimal64, Decimal128, Float, Symbol, Timestamp, ULong
from protocols.mqtt.fields import acceptable
from protocols.mqtt.properties import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    PAYLOAD_FORMAT_INDICATOR,
    RESPONSE_TOPIC,
    USER_PROPERTY,
)
from tests.protocols.amqp.values import SIMPLE, simple, values

#: Bytes of a string of MQTT at most (5.0, 1.5.4).
MQTT_TEXT_MAX: Final = 65_535

_ODD: Final = (
    "",
    "pläin",
    "a\0b",
    "a:b",
    "a\nb",
    "a\rb\r\n",
    "\\",
    "\\c\\",
    "\ufffe",
    "\U0001f600",
    "\x7f\x80",
    "#/+",
    "a.*.b",
    "queue://back",
    "topic://back",
    "/queue/back",
    "/topic/back",
    "/temp-queue/back",
    "content-length",
    "destination",
    "None",
    "true",
    "18446744073709551615",
    "k",
    "convert_string_expressions:k",
)
_LONG: Final = ("x" * 70_000, "é" * 33_000, "y" * MQTT_TEXT_MAX, "z" * (MQTT_TEXT_MAX + 1))

texts: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(_ODD)
long_texts: Final = st.one_of(*[texts] * 12, st.sampled_from(_LONG))
names: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=10) | st.sampled_from(
    ("content-type", "reply-to", "content-length", "receipt", "pläin", "a:b", "x\0", "JMSXUserID", "_AMQ_GROUP_ID_x")
)


@dataclass(slots=True)
class Sent:
    """A message as a client sends it; `bytes` and `text`: what its body is to all, one of them is None.

    `properties` are those of the application, `value` the body that is neither bytes nor text.
    """

    protocol: str
    version: Any = ""
    headers: dict[str, str] = field(default_factory=dict)
    payload: bytes = b""
    pairs: list[tuple[Any, Any]] = field(default_factory=list)
    durable: bool = True
    priority: int = 4
    qos: int = 0
    retain: bool = False
    noted: bytes = b""  # AMQP: annotations, and then properties; `payload` is what follows
    bare: Properties | None = None
    value: object = None
    properties: dict[str, object] = field(default_factory=dict)


#: With any of them a message comes before the next one, which has 4.
priorities: Final = st.sampled_from((4, 4, 9, 10, 255))
#: JSON has none of them, and Java's text of them is not Python's.
odd_numbers: Final = st.sampled_from((float("inf"), float("-inf"), float("nan"), -0.0)).map(Float) | st.just(
    float("nan")
)


# -- STOMP -------------------------------------------------------------------------------------------------------------

#: Headers that the broker reads or replaces, which are none of the application's.
_OBEYED: Final = frozenset(
    name.decode()
    for name in CONSUMED | {b"content-length", b"content-type", b"reply-to", b"correlation-id", b"type", b"JMSXGroupID"}
)
#: Headers in which STOMP subscribers are told what a sender of another protocol says of itself: no property is one.
_SAID: Final = frozenset({"NATIVE_MESSAGE_ID", "JMSXUserID", "timestamp"})
#: What the header lines of a version cannot hold.
_UNSAYABLE: Final = {"1.0": "\r\n\0:", "1.1": "\r\0", "1.2": "\0"}


def _sayable(text: str, version: str) -> str:
    said = "".join(c for c in text if c not in _UNSAYABLE[version])
    return said.strip() if version == "1.0" else said  # which does not count the blanks around a header's parts


@st.composite
def from_stomp(draw: st.DrawFn) -> Sent:
    """A SEND."""
    version = draw(st.sampled_from(("1.0", "1.1", "1.2")))
    given = draw(st.dictionaries(names, texts, max_size=3))
    application = {_sayable(name, version): _sayable(value, version) for name, value in given.items()}
    application = {
        name: value
        for name, value in application.items()
        if name and name not in _OBEYED and not name.startswith("_AMQ") and name == name.strip()
    }
    headers = dict(application)
    for name in ("content-type", "reply-to", "correlation-id", "type", "JMSXGroupID"):
        value = draw(st.none() | texts)
        if value is not None:
            headers[name] = _sayable(value, version)
    body = draw(st.binary(max_size=20) | texts.map(str.encode))
    if draw(st.booleans()) or b"\0" in body:
        headers["content-length"] = str(len(body))
    priority = draw(priorities)
    if priority != 4:
        headers["priority"] = str(priority)
    return Sent("stomp", version, headers, body, durable=draw(st.booleans()), properties=dict(application))


# -- AMQP --------------------------------------------------------------------------------------------------------------

ids: Final[st.SearchStrategy[Any]] = st.one_of(st.none(), long_texts, SIMPLE["ulong"], SIMPLE["uuid"], SIMPLE["binary"])
symbols: Final[st.SearchStrategy[Any]] = st.none() | st.sampled_from(
    ("text/plain", "application/json", "", "\0", "x" * 70_000)
).map(Symbol)
times: Final[st.SearchStrategy[Any]] = st.none() | st.integers(-(2**63), 2**63 - 1).map(Timestamp)
#: Beyond the year 9999 or none: what is over at once would not be delivered.
far: Final[st.SearchStrategy[Any]] = st.none() | st.integers(253_402_300_800_000, 2**63 - 1).map(Timestamp)
maybe_text: Final = st.none() | long_texts
annotation_keys: Final = (
    SIMPLE["symbol"].filter(lambda key: not str(key).startswith("x-opt-"))
    | SIMPLE["ulong"]
    | st.sampled_from(("_AMQ_DL_REASON", "_AMQ_DL_", "k")).map(Symbol)
)
noted_by_sender: Final[st.SearchStrategy[dict[Any, Any]]] = st.dictionaries(
    annotation_keys, values | long_texts, max_size=3
)
bodies: Final[st.SearchStrategy[tuple[int, list[Any]]]] = st.one_of(
    st.lists(SIMPLE["binary"], min_size=1, max_size=3).map(lambda parts: (DATA, parts)),
    st.lists(st.lists(values, max_size=3), min_size=1, max_size=3).map(lambda parts: (AMQP_SEQUENCE, parts)),
    values.map(lambda value: (AMQP_VALUE, [value])),
    odd_numbers.map(lambda value: (AMQP_VALUE, [[value, {"k": value}]])),
    long_texts.map(lambda value: (AMQP_VALUE, [value])),
    st.just((0, [])),
)


@st.composite
def bare_properties(draw: st.DrawFn) -> Properties:
    """All that the properties section may say."""
    return Properties(
        message_id=draw(ids),
        user_id=draw(st.none() | SIMPLE["binary"]),  # type: ignore[arg-type]
        to=draw(maybe_text),
        subject=draw(maybe_text),
        reply_to=draw(maybe_text),
        correlation_id=draw(ids),
        content_type=draw(symbols),
        content_encoding=draw(symbols),
        absolute_expiry_time=draw(far),
        creation_time=draw(times),
        group_id=draw(maybe_text),
        group_sequence=draw(st.none() | SIMPLE["uint"]),  # type: ignore[arg-type]
        reply_to_group_id=draw(maybe_text),
    )


@st.composite
def from_amqp(draw: st.DrawFn) -> Sent:
    """A transfer, whose header is made when it is sent."""
    noted = encode_section(DELIVERY_ANNOTATIONS, draw(noted_by_sender))
    noted += encode_section(MESSAGE_ANNOTATIONS, draw(noted_by_sender))
    properties = draw(st.dictionaries(long_texts, simple | long_texts | odd_numbers, max_size=3))
    properties = {name: value for name, value in properties.items() if not name.startswith("_AMQ")}
    kind, sections = draw(bodies)
    body = b"".join([b"\0\x53" + bytes([kind]) + encode(section) for section in sections])
    if kind:
        body += encode_section(FOOTER, draw(st.just({}) | st.dictionaries(annotation_keys, values, max_size=2)))
    value: object = b""
    if kind == DATA:
        value = b"".join(sections)
    elif kind == AMQP_SEQUENCE:
        value = [item for section in sections for item in section]
    elif kind == AMQP_VALUE and sections[0] is not None:
        value = sections[0]
    return Sent(
        "amqp",
        payload=encode_application_properties(properties) + body,
        durable=draw(st.booleans()),
        priority=draw(priorities),
        noted=noted,
        bare=draw(st.none() | bare_properties()),
        value=value,
        properties=dict(properties),
    )


# -- MQTT --------------------------------------------------------------------------------------------------------------

mqtt_texts: Final = st.one_of(texts, texts, st.just("y" * 30_000)).map(lambda text: text.replace("\0", ""))


@st.composite
def from_mqtt(draw: st.DrawFn) -> Sent:
    """A PUBLISH."""
    version = draw(st.sampled_from((4, 5, 5, 5)))
    payload = draw(st.binary(max_size=20) | texts.map(str.encode))
    pairs: list[tuple[Any, Any]] = []
    application: dict[str, object] = {}
    if version == 5:
        for property, strategy in (
            (PAYLOAD_FORMAT_INDICATOR, st.sampled_from((0, 1))),
            (CONTENT_TYPE, mqtt_texts),
            (RESPONSE_TOPIC, mqtt_texts.map(lambda text: text.replace("+", "").replace("#", "") or "t")),
            (CORRELATION_DATA, st.binary(max_size=20) | st.just(b"\xff" * MQTT_TEXT_MAX)),
        ):
            value = draw(st.none() | strategy)
            if value is not None:
                pairs.append((property, value))
        if dict((p.id, v) for p, v in pairs).get(PAYLOAD_FORMAT_INDICATOR.id):
            payload = draw(texts).encode()
        for name, value in draw(st.lists(st.tuples(mqtt_texts, mqtt_texts), max_size=3)):
            if not name.startswith("_AMQ") and name not in ("JMSType", "JMSXGroupID", "JMSXUserID"):
                pairs.append((USER_PROPERTY, (name, value)))
                application[name] = value
    qos = draw(st.sampled_from((0, 1, 2)))
    retain = draw(st.booleans())
    return Sent("mqtt", version, {}, payload, pairs, durable=qos > 0, qos=qos, retain=retain, properties=application)


sent: Final = st.one_of(from_stomp(), from_amqp(), from_mqtt())


# -- what becomes of it ------------------------------------------------------------------------------------------------


def stomp_line(text: str, version: str) -> str:
    """A header as this version reads it: what it cannot write is a space; a name of 1.0 has no colon."""
    return text.translate(dict.fromkeys(map(ord, {"1.0": "\r\n\0", "1.1": "\0", "1.2": "\0"}[version]), " "))


def shown(value: object) -> str:
    """A property as text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal32 | Decimal64 | Decimal128):
        value = value.raw
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def check_body(sent: Sent, got: object) -> None:
    """The body that a consumer of another protocol, or of the same, has: bytes, or a text."""
    raw = got.encode() if isinstance(got, str) else got
    assert isinstance(raw, bytes), got
    if sent.protocol != "amqp":
        assert raw == sent.payload
    elif isinstance(sent.value, bytes):
        assert raw == sent.value
    elif isinstance(sent.value, str):
        assert raw == sent.value.encode()
    else:  # JSON, as RFC 8259 has it: no NaN, no Infinity
        json.loads(raw, parse_constant=lambda name: _no_json(name))


def _no_json(name: str) -> None:
    """JSON has no such number."""
    raise AssertionError(f"{name} is no JSON")


def check_amqp(sent: Sent, payload: bytes, *, moved: bool) -> None:
    """What an AMQP receiver got."""
    message = Message(payload)
    kind, sections = message.body()
    properties, application = message.properties, message.application_properties
    _ = message.header, message.message_annotations
    if sent.protocol == "amqp":
        original = Message(sent.noted)
        assert payload.endswith(sent.payload)
        if sent.bare is not None:
            expires = properties.absolute_expiry_time if moved else sent.bare.absolute_expiry_time
            assert properties == replace(sent.bare, absolute_expiry_time=expires)
        given = {key for key in original.message_annotations if not str(key).startswith("_AMQ")}  # the broker's own
        assert given <= set(message.message_annotations)
        return
    check_body(sent, b"".join(sections) if kind == DATA else sections[0])  # type: ignore[arg-type]
    for name, value in sent.properties.items():
        assert application[name] == value
    content_type = sent.headers.get("content-type") or dict((p.id, v) for p, v in sent.pairs).get(CONTENT_TYPE.id)
    if content_type:
        assert properties.content_type == (content_type if content_type.isascii() else None)


def check_stomp(sent: Sent, headers: dict[str, str], body: bytes, version: str) -> None:
    """What a STOMP subscriber got."""
    check_body(sent, body)
    for name, value in sent.properties.items():
        line, text = stomp_line(name, version), shown(value)
        if not name or name in _OBEYED or (version == "1.0" and ":" in name):
            continue
        if name in _SAID and sent.protocol != "stomp":
            continue
        if sum(stomp_line(other, version) == line for other in sent.properties) > 1:
            continue  # of two headers with one name only one is read
        assert headers[line] == stomp_line(text, version), (name, value)


def check_mqtt(sent: Sent, payload: bytes, version: int, properties: Any) -> None:
    """What an MQTT subscriber got; before 5.0 there is only the payload."""
    check_body(sent, payload)
    if version < 5:
        return
    user = dict(properties.get_all(USER_PROPERTY))
    for name, value in sent.properties.items():
        key, text = acceptable(name), acceptable(shown(value))  # code points that clients refuse are replaced
        if sum(acceptable(other) == key for other in sent.properties) > 1:
            continue  # they have one name now
        fits = all(len(part.encode()) <= MQTT_TEXT_MAX for part in (key, text))
        assert user.get(key) == text if fits else key not in user, (name, value)
    if properties.get(PAYLOAD_FORMAT_INDICATOR):
        payload.decode()


#: What an AMQP consumer may note on a message when it gives it back.
noted: Final = st.dictionaries(
    (SIMPLE["symbol"].map("x-opt-{}".format) | st.sampled_from(("content-length", "destination", ""))).map(Symbol),
    values | long_texts | st.sampled_from((ULong(2**64 - 1), Timestamp(2**63 - 1), "a\0b", "x" * 70_000)),
    max_size=3,
)
