"""Messages as the API shows them: what is shown of one is bounded, whatever its sender put into it."""

from __future__ import annotations

import base64
import binascii
import codecs
from math import isfinite
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from broker.engine import Queue, Unreadable, read_body
from broker.engine.model.limits import TIME_MAX
from broker.engine.model.message import PRIORITY_DEFAULT, PRIORITY_MAX, Annotations, Format, Message, Value
from broker.engine.model.message import Body as MessageBody
from broker.log import cut
from broker.management.models.base import ID_MAX, Body, Next, RoutingTypeName, Shown, model_of

#: Bytes of a body that are shown in a list: enough to recognise a message.
BODY_PREVIEW_BYTES: Final = 1_024

#: Bytes of a body that are shown of one message; the whole body can be downloaded.
BODY_SHOWN_BYTES: Final = 64 << 10

#: Bytes of the longest body that is decoded as a whole; of a longer one only text and data are shown decoded.
BODY_DECODED_BYTES_MAX: Final = 1 << 16

#: Characters of one property, whatever the settings say, and properties of one message in a list: a list of 1,000
#: messages stays below some MiB while management-message-attribute-size-limit has its default, 256.
PROPERTY_CHARS_MAX: Final = 1 << 16
PROPERTIES_MAX: Final = 64

#: Properties of a message shown on its own: far more than protocols let a client send.
ALL_PROPERTIES_MAX: Final = 10_000

#: Properties of a message to send, and characters of a header.
SENT_PROPERTIES_MAX: Final = 1_000
HEADER_CHARS_MAX: Final = 4_096

#: Characters of a piece of a body in Base64: 768 KiB.
UPLOADED_CHARS_MAX: Final = 1 << 20

#: Control characters that text may contain.
_TEXT_CONTROLS: Final = "\t\n\r"

State = Literal["ready", "scheduled", "delivering"]


# -- what is shown -----------------------------------------------------------------------------------------------------


class BytesShown(Shown):
    """A property of bytes."""

    base64: str
    bytes: int = Field(description="How many bytes it has; `base64` may hold fewer.")


class BodyShown(Shown):
    """The beginning of a body, as text if possible."""

    encoding: Literal["text", "base64"]
    data: str
    bytes: int = Field(description="The length of the whole encoded body.")
    truncated: bool


PropertyShown = str | int | float | bool | None | BytesShown


class MessageShown(Shown):
    """A message on a queue: its header, its properties, the broker's annotations, and the beginning of its body."""

    id: int
    state: State
    address: str
    durable: bool
    priority: int
    timestamp: int
    expiration: int
    scheduled: int
    redelivered: bool
    failed_deliveries: int
    size: int
    protocol: str
    user: str
    origin: str
    properties: dict[str, PropertyShown]
    properties_omitted: int
    annotations: dict[str, str | int | float | bool]
    body: BodyShown


class MessageList(Shown):
    """Some of a queue's messages, in the order of their delivery."""

    messages: list[MessageShown]
    limit: int = Field(description="The most messages of this page.")
    next: Next


class Sent(Shown):
    """A sent message."""

    address: str
    message: int = Field(description="Its id.")
    taken: bool = Field(description="Whether a queue took it.")


# -- what is asked for -------------------------------------------------------------------------------------------------


def _header(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("not-unicode", "is not valid Unicode") from None
    if "\0" in text:
        raise PydanticCustomError("nul", "must not have the character NUL")
    return text


Header = Annotated[str, Field(max_length=HEADER_CHARS_MAX), AfterValidator(_header)]
PropertyName = Annotated[str, Field(min_length=1, max_length=HEADER_CHARS_MAX), AfterValidator(_header)]
PropertyValue = Annotated[str, AfterValidator(_header)]


class Headers(Body):
    """Standard headers of a message; omitted ones are not sent."""

    content_type: Header = ""
    correlation_id: Header = ""
    reply_to: Header = ""
    type: Header = ""
    group: Header = Field("", description="Its message group.")


class NewMessage(Body):
    """A message to send: with a text or bytes as its body, or without a body."""

    text: str | None = Field(None, description="The body as text.")
    base64: str | None = Field(None, description="The body as bytes in Base64.")
    durable: bool = True
    priority: int = Field(PRIORITY_DEFAULT, ge=0, le=PRIORITY_MAX, description="9 is the highest.")
    expiration: int = Field(0, ge=0, le=TIME_MAX, description="When it expires; 0: as set for the address.")
    scheduled: int = Field(0, ge=0, le=TIME_MAX, description="The earliest time of delivery; 0: at once.")
    routing_type: RoutingTypeName | None = Field(None, description="Only to queues of this type; null: any.")
    headers: Headers = Headers()
    properties: dict[PropertyName, PropertyValue] = Field(
        {}, max_length=SENT_PROPERTIES_MAX, description="Its properties; all values are strings."
    )

    @model_validator(mode="after")
    def _one_body(self) -> NewMessage:
        if self.text is not None and self.base64 is not None:
            raise PydanticCustomError("two-bodies", "give text or base64, not both")
        return self

    @property
    def content(self) -> bytes:
        """The body.  Raises ValueError."""
        if self.base64 is None:
            return (self.text or "").encode()
        try:
            return base64.b64decode(self.base64, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("base64 is not Base64") from None


# -- from the engine ---------------------------------------------------------------------------------------------------


def message_shown(message: Message, queue: Queue, state: str, *, alone: bool = False) -> MessageShown:
    """One message on a queue; `alone`: in full rather than cut for a list."""
    header = message.header
    properties = header.format.properties(message.head)
    limit = queue.address.settings.management_message_attribute_size_limit
    chars = PROPERTY_CHARS_MAX if limit < 0 or alone else min(limit, PROPERTY_CHARS_MAX)
    most = ALL_PROPERTIES_MAX if alone else PROPERTIES_MAX
    return model_of(
        MessageShown,
        header,
        id=message.id,
        state=state,
        scheduled=queue.due_of(message.id) if state == "scheduled" else 0,
        redelivered=message.id in queue.states,
        failed_deliveries=queue.delivery_count(message.id),
        size=len(message.head) + len(message.body),
        protocol=header.format.name,
        properties={cut(name): _value(properties[name], chars) for name in list(properties)[:most]},
        properties_omitted=max(len(properties) - most, 0),
        annotations=_notes(header.annotations or {}),
        body=body_shown(message.body, header.format, BODY_SHOWN_BYTES if alone else BODY_PREVIEW_BYTES),
    )


def _notes(annotations: Annotations) -> dict[str, Any]:
    """Annotations with plain numbers, without the number types of protocols."""
    return {
        name: int(value) if isinstance(value, int) and not isinstance(value, bool) else value
        for name, value in annotations.items()
    }


def _value(value: Value, chars: int) -> object:
    if isinstance(value, str):
        return cut(value, chars)
    if isinstance(value, bytes):
        return BytesShown(base64=base64.b64encode(value[:chars]).decode(), bytes=len(value))
    if isinstance(value, float):
        return float(value) if isfinite(value) else str(value)  # JSON has no such numbers
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def body_shown(body: MessageBody, format: Format, shown_bytes: int = BODY_PREVIEW_BYTES) -> BodyShown:
    """The beginning of a body, as text if possible, else in base64; `bytes` is the length of the whole encoded body."""
    try:
        if isinstance(body, bytes):
            raw = body if len(body) <= BODY_DECODED_BYTES_MAX else body[: 2 * shown_bytes]
        else:
            raw = read_body(body, 0, 2 * shown_bytes)
    except Unreadable as error:
        return BodyShown(encoding="text", data=f"({error})", bytes=len(body), truncated=True)
    content = format.content(raw)
    part = content[:shown_bytes]
    truncated = len(part) < len(content) or len(raw) < len(body)
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(part, final=not truncated)
    except UnicodeDecodeError:
        text = "\0"
    if any(ord(c) < 32 and c not in _TEXT_CONTROLS for c in text):
        data = base64.b64encode(part).decode()
        return BodyShown(encoding="base64", data=data, bytes=len(body), truncated=truncated)
    return BodyShown(encoding="text", data=text, bytes=len(body), truncated=truncated)


# -- exports -----------------------------------------------------------------------------------------------------------


class ExportedMessage(Shown):
    """A message as a line of an export (docs/journal-export.md), and its state."""

    state: State
    line: dict[str, Any] = Field(description="With `body-bytes` in place of a body that has to be read in pieces.")


class ExportedMessages(Shown):
    """Some messages of a queue, oldest first."""

    messages: list[ExportedMessage]
    next: Next


class MessagesImported(Shown):
    """What became of imported messages."""

    imported: int
    refused: dict[str, int] = Field(description="How many were not imported, by reason.")
    known: bool = Field(description="Whether this very request of this name was already done.")


class UploadPiece(Body):
    """The next piece of a body."""

    offset: int = Field(0, ge=0, le=ID_MAX, description="How many bytes were sent before; 0: this is the first piece.")
    base64: Annotated[str, Field(max_length=UPLOADED_CHARS_MAX, description="The piece in Base64.")]
    last: bool = Field(False, description="true: this piece completes the body.")
    durable: bool = Field(True, description="Whether its message is durable.")


class Upload(Shown):
    """An upload of a body, under way or complete."""

    id: str
    bytes: int = Field(description="How many bytes were received.")
