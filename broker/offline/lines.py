"""The lines of an export: their models, reading and writing.

Every member of a line is checked before any of it is applied.

docs/journal-export.md describes the lines.  Unknown members are ignored: newer software may write more.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from broker.engine import DivertRouting
from broker.engine.model import annotation
from broker.engine.model.attributes import FIELDS, parse
from broker.engine.model.errors import EngineError
from broker.engine.model.message import NUMBERS, ORIG_MESSAGE_ID, Format, Message, MessageHeader, RoutingType
from broker.engine.model.names import check_name, check_queue_name
from broker.engine.model.row import kebab

#: The version in the first line of an export.
VERSION: Final = 1

#: Bytes of a text in a record of the journal.
TEXT_BYTES_MAX: Final = 65_535

#: Queues of one message: the most that a record holds.
QUEUES_MAX: Final = 65_535

_LEVEL: Final = r"(?:[^/+#\0]*|\+)"
_FILTER: Final = re.compile(rf"(?:\$share/[^/+#\0]+/)?(?:#|{_LEVEL}(?:/{_LEVEL})*(?:/#)?)")


def _text(value: str) -> str:
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ValueError("is not valid Unicode") from None
    if size > TEXT_BYTES_MAX:
        raise ValueError(f"has more than {TEXT_BYTES_MAX} bytes")
    return value


def _named(value: str, check: Callable[[str], None]) -> str:
    try:
        check(_text(value))
    except EngineError as error:
        raise ValueError(f"is not a name: {error}") from None
    return value


def _filter(value: str) -> str:
    if not value or _FILTER.fullmatch(_text(value)) is None:
        raise ValueError("is not a topic filter")
    return value


#: Characters of Base64 that are decoded at a time: beside a thread that does it, others can run.
_BASE64_PART: Final = 1 << 20


def _base64(value: object) -> bytes:
    if not isinstance(value, str):
        raise ValueError("must be Base64 in a text")
    try:
        if len(value) <= _BASE64_PART or value.find("=", 0, -2) >= 0:
            return b64decode(value, validate=True)
        parts = range(0, len(value), _BASE64_PART)
        return b"".join([b64decode(value[at : at + _BASE64_PART], validate=True) for at in parts])
    except (binascii.Error, ValueError):
        raise ValueError("is not Base64") from None


def _encodable(value: Any) -> Any:
    """Check that a value, which is stored unchanged, can be written as JSON again."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        raise ValueError("cannot be written as JSON in UTF-8") from None
    return value


def _attributes(values: dict[str, Any]) -> dict[str, Any]:
    for field in FIELDS:
        name = kebab(field)
        if name in values:
            value = values[name]
            try:
                if parse(name, str(value).lower() if isinstance(value, bool) else str(value)) != {field: value}:
                    raise ValueError(f"has a value of the wrong kind for {name}")
            except EngineError as error:
                raise ValueError(f"cannot be: {error}") from None
    return values


Text = Annotated[str, AfterValidator(_text)]
Name = Annotated[str, AfterValidator(lambda value: _named(value, check_name))]
QueueName = Annotated[str, AfterValidator(lambda value: _named(value, check_queue_name))]
Bytes = Annotated[bytes, BeforeValidator(_base64)]
Anything = Annotated[dict[str, Any], AfterValidator(_encodable)]
Routing = Literal["ANYCAST", "MULTICAST"]

#: Milliseconds since the epoch; a signed number in the journal.
Time = Annotated[int, Field(ge=0, lt=1 << 63)]
Count = Annotated[int, Field(ge=0, lt=1 << 32)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class _Line(_Strict):
    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "-"), frozen=True)


class AddressLine(_Line):
    """An address."""

    name: Name
    routing_types: list[Routing]
    auto_created: bool
    configured: bool = False
    paused: bool = False


class QueueLine(_Line):
    """A queue on an address."""

    name: QueueName
    address: Name
    routing_type: Routing
    filter: Text
    no_local: Text
    auto_created: bool
    messages_max: Annotated[int, Field(ge=-1, lt=1 << 63)] = -1
    drop_oldest: bool = False
    attributes: Annotated[Anything, AfterValidator(_attributes)] = {}
    configured: bool = False
    paused: bool = False
    creator: Text = ""


class DivertLine(_Line):
    """A divert."""

    name: Text
    address: Name
    forwarding_addresses: Annotated[list[Name], Field(min_length=1)]
    exclusive: bool
    filter: Text
    routing_type: Literal[tuple(each.value for each in DivertRouting)]  # type: ignore[valid-type]
    add_headers: dict[Text, Text]
    remove_headers: list[Text]
    configured: bool
    internal: bool


class _Will(_Strict):
    topic: Text
    payload: Bytes
    head: Annotated[Bytes, Field(min_length=1)]
    delay: Count
    expiry: Annotated[int, Field(ge=-1, lt=1 << 32)]


class Subscription(_Strict):
    """A part of a session."""

    filter: Annotated[str, AfterValidator(_filter)]
    qos: Annotated[int, Field(ge=0, le=2)]
    no_local: bool
    retain_as_published: bool
    identifier: Count


class _Session(_Strict):
    user: Text
    expiry: Count
    disconnected: Time
    queued_max: Annotated[int, Field(ge=-1, lt=1 << 63)]
    drop_oldest: bool
    filtered: bool = False
    will: _Will | None
    subscriptions: list[Subscription] = []


class SessionLine(_Line):
    """A session of an MQTT client."""

    name: Annotated[Text, Field(min_length=1)]
    session: _Session


class SessionPartLine(_Line):
    """A subscription of a session."""

    name: Text
    session: Annotated[Text, Field(min_length=1)]
    part: Subscription


class PlaceLine(_Line):
    """A queue that a message is on."""

    name: QueueName
    delivery_count: Count | None = None
    due: Time = 0


#: An annotation with its type in the protocol.
TypedNote = Annotated[dict[Text, Text | int], Field(min_length=1, max_length=1)]


def _notes(values: dict[str, Any]) -> dict[str, Any]:
    for name, value in _encodable(values).items():
        number = next(iter(value.values())) if isinstance(value, dict) else value
        if name in NUMBERS and not isinstance(number, int):
            raise ValueError(f"has something other than a number for {name}")
        if isinstance(number, int) and not -(1 << 63) <= number < 1 << 64:
            raise ValueError(f"has for {name} a number of more than 64 bits")
    return values


class _StoredMessage(_Line):
    """A message as it was stored."""

    address: Name
    protocol: Literal["stomp", "amqp", "mqtt"]
    timestamp: Time
    priority: Annotated[int, Field(ge=0, le=9)]
    expiration: Time = 0
    expiry_source: Annotated[int, Field(ge=0, le=255)] = 0
    scheduled: Time = 0
    routing_type: Routing | None = None
    user: Text = ""
    origin: Text = ""
    durable: bool = True
    annotations: Annotated[dict[Text, Text | int | bool | TypedNote], AfterValidator(_notes)] = {}
    head: Bytes
    body: Bytes = b""

    def header(self, format: Format) -> MessageHeader:
        """The header for the engine, without the head."""
        return MessageHeader(
            self.address,
            format,
            durable=self.durable,
            priority=self.priority,
            timestamp=self.timestamp,
            expiration=self.expiration,
            expiry_source=self.expiry_source,
            scheduled=self.scheduled,
            routing_type=RoutingType[self.routing_type] if self.routing_type else None,
            user=self.user,
            origin=self.origin,
            annotations=annotation.from_json(self.annotations) if self.annotations else None,
        )

    def check_head(self, format: Format, body_bytes: int) -> None:
        """Raises ValueError for errors that would otherwise show only at delivery."""
        try:
            readable = format.readable(self.head, body_bytes)
        except Exception:  # these readers expect heads that the broker wrote
            readable = False
        if not readable:
            raise ValueError(f"head is not the head of a {self.protocol} message")


class MessageLine(_StoredMessage):
    """A message; its body is in `body`, in lines of its own (`body_bytes` in all), or over HTTP in an `upload`."""

    queues: Annotated[list[PlaceLine], Field(min_length=1, max_length=QUEUES_MAX)]
    upload: Text = ""
    body_bytes: Annotated[int, Field(ge=1, lt=1 << 63)] | None = None

    def header(self, format: Format) -> MessageHeader:
        """The header without the id that the message had before: on the importing broker it is another message's."""
        header = super().header(format)
        notes = header.annotations or {}
        header.annotations = {name: notes[name] for name in notes if name != ORIG_MESSAGE_ID} or None
        return header


class PastLine(_StoredMessage):
    """A message that left a queue and is to be brought back, there or to the target `to`."""

    id: Annotated[int, Field(ge=1, lt=1 << 63)]
    queue: Text
    to: Text = ""


class BodyLine(_Line):
    """A part of a body."""

    data: Annotated[Bytes, Field(min_length=1)]


AnyLine = AddressLine | QueueLine | DivertLine | SessionLine | SessionPartLine | MessageLine | BodyLine

KINDS: Final[dict[str, type[AnyLine]]] = {
    "address": AddressLine,
    "queue": QueueLine,
    "divert": DivertLine,
    "session": SessionLine,
    "session-part": SessionPartLine,
    "message": MessageLine,
    "body": BodyLine,
}


def read_json(text: bytes) -> dict[str, Any]:
    """A line as an object.  Raises ValueError with what is wrong."""
    try:
        line = json.loads(text)
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: column {error.colno} is wrong") from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except ValueError:
        raise ValueError("it has a number with too many digits") from None
    if not isinstance(line, dict):
        raise ValueError('it is not an object: {"kind": ...}')
    return line


def read_line(line: dict[str, Any]) -> AnyLine:
    """Parse a line.  Raises ValueError with what is wrong."""
    kind = line.get("kind")
    model = KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        raise ValueError(f"kind {_format_value(kind)} is unknown: newer software wrote it, or it is not an export")
    return read_as(model, line)


OneLine = TypeVar("OneLine", bound=_Line)


def read_as(model: type[OneLine], line: object) -> OneLine:
    """Parse a line of this kind.  Raises ValueError with what is wrong."""
    try:
        return model.model_validate(line)
    except ValidationError as error:
        raise ValueError(_wrong(error.errors(include_url=False)[0])) from None


#: The expected value, by pydantic's type of error.
_EXPECTED: Final = {
    "bool_type": "is true or false",
    "dict_type": "is an object",
    "int_type": "is a whole number",
    "list_type": "is a list",
    "model_type": "is an object",
    "string_type": "is a text",
    "string_unicode": "is not valid Unicode",
    "too_short": "is empty",
    "string_too_short": "is empty",
    "bytes_too_short": "is empty",
}


def _wrong(error: ErrorDetails) -> str:
    where = ".".join(map(str, error["loc"])) or "the line"
    kind, context = error["type"], error.get("ctx", {})
    if kind == "missing":
        return f"{where} is missing"
    if kind == "value_error":
        what = str(context["error"])
    elif kind in _EXPECTED:
        what = _EXPECTED[kind]
    elif kind == "literal_error":
        what = f"is {context['expected']}"
    else:
        bounds = [f"{word} {context[bound]}" for bound, word in _BOUNDS.items() if bound in context]
        what = f"is {' and '.join(bounds)}" if bounds else "is invalid"
    return f"{where} {what}, not {_format_value(error['input'])}"


_BOUNDS: Final = {"ge": "at least", "le": "at most", "lt": "less than", "max_length": "of a length of at most"}


def _format_value(value: object) -> str:
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= 75 else f"{text[:75]}..."


# -- writing -----------------------------------------------------------------------------------------------------------

#: A line as it is written.
Line = dict[str, object]


def message_line(message: Message, queues: list[Line]) -> Line:
    """The line of a message in an export, without its body."""
    header = message.header
    return {
        "kind": "message",
        "id": message.id,
        "queues": queues,
        "address": header.address,
        "protocol": header.format.name,
        "timestamp": header.timestamp,
        "priority": header.priority,
        **{name: value for name, value in _optional(header).items() if value},
        **({} if header.durable else {"durable": False}),
        "head": b64encode(message.head).decode(),
    }


def _optional(header: MessageHeader) -> Line:
    return {
        "expiration": header.expiration,
        "expiry-source": int(header.expiry_source),
        "scheduled": header.scheduled,
        "routing-type": "" if header.routing_type is None else header.routing_type.name,
        "user": header.user,
        "origin": header.origin,
        "annotations": annotation.to_json(header.annotations or {}),
    }
