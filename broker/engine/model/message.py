"""A message as the engine sees it: few objects, and the sender's bytes unchanged.

Messages that arrive together in a run usually differ only in identity, headers and body.  All else is one
`MessageHeader` object, shared by all of them and never changed; each has one small `Message` of its own.  A
message that is moved gets a new header and a new identity: it shares nothing with the record it came from (promise P2).

`head` holds the application headers in the sender's encoding.  They are not parsed on the way through; `PropertyView`
asks the encoding's `Format` when a filter needs a name that the header does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from enum import IntEnum
from sys import getsizeof
from typing import Final, Protocol

from store.body import LargeBody
from store.record import StoredMessage

#: The bytes of a body, or the file that they are in.
Body = bytes | LargeBody
Value = str | int | float | bool | bytes | None
Annotations = dict[str, str | int]

#: Bytes that a message costs in memory beside its headers and body (objects, references, bookkeeping); measured on
#: CPython 3.11 for a message on one queue whose `MessageHeader` has nothing of its own (`MessageHeader.charge`).
MESSAGE_OVERHEAD_BYTES: Final = 288

#: Bytes of a `MessageHeader` and its numbers, without its group and annotations.
HEADER_BYTES: Final = 192

#: Bytes that each message with an expiration or a schedule costs where its time is watched, and those that the time
#: itself costs there, which the messages of a run share.
TIMER_BYTES: Final = 192
TIME_BYTES: Final = 288

#: The most bytes that a body in a file counts for.  A piece of it is in memory while it is delivered, so the windows of
#: consumers, which count bytes, must count something.
LARGE_BODY_BYTES: Final = 256 << 10

PRIORITY_DEFAULT: Final = 4
PRIORITY_MAX: Final = 9

# Names that only the broker writes (artemis-compatible where Artemis has them).
ORIG_ADDRESS: Final = "_AMQ_ORIG_ADDRESS"
ORIG_QUEUE: Final = "_AMQ_ORIG_QUEUE"
ORIG_MESSAGE_ID: Final = "_AMQ_ORIG_MESSAGE_ID"
ORIG_ROUTING_TYPE: Final = "_AMQ_ORIG_ROUTING_TYPE"
ACTUAL_EXPIRY: Final = "_AMQ_ACTUAL_EXPIRY"
INGRESS_TIMESTAMP: Final = "_AMQ_INGRESS_TIMESTAMP"
GROUP_ID: Final = "_AMQ_GROUP_ID"
REPLAY: Final = "_AMQ_REPLAY"
REPLAY_TIME: Final = "_AMQ_REPLAY_TIME"
DL_REASON: Final = "_AMQ_DL_REASON"
DL_TEXT: Final = "_AMQ_DL_TEXT"
DL_TIME: Final = "_AMQ_DL_TIME"
DL_ATTEMPTS: Final = "_AMQ_DL_ATTEMPTS"
DL_COUNT: Final = "_AMQ_DL_COUNT"
DL_HOPS: Final = "_AMQ_DL_HOPS"
DL_RETRIES: Final = "_AMQ_DL_RETRIES"
DL_RULE: Final = "_AMQ_DL_RULE"
DL_CLIENT: Final = "_AMQ_DL_CLIENT"
DL_CLIENT_ADDRESS: Final = "_AMQ_DL_CLIENT_ADDRESS"
DL_LINK: Final = "_AMQ_DL_LINK"
DL_REMOTE_ADDRESS: Final = "_AMQ_DL_REMOTE_ADDRESS"
DL_REMOTE_BROKER: Final = "_AMQ_DL_REMOTE_BROKER"
DL_ORIG_EXPIRATION: Final = "_AMQ_DL_ORIG_EXPIRATION"
DL_ORIG_TIMESTAMP: Final = "_AMQ_DL_ORIG_TIMESTAMP"
DL_ORIG_USER: Final = "_AMQ_DL_ORIG_USER"
DL_ORIG_CLIENT: Final = "_AMQ_DL_ORIG_CLIENT"
DL_FIRST_ADDRESS: Final = "_AMQ_DL_FIRST_ADDRESS"
DL_FIRST_QUEUE: Final = "_AMQ_DL_FIRST_QUEUE"
DL_FIRST_MESSAGE_ID: Final = "_AMQ_DL_FIRST_MESSAGE_ID"
DL_FIRST_REASON: Final = "_AMQ_DL_FIRST_REASON"
DL_FIRST_TIME: Final = "_AMQ_DL_FIRST_TIME"

#: Those of them that are numbers.
NUMBERS: Final = frozenset(
    {
        ACTUAL_EXPIRY,
        DL_ATTEMPTS,
        DL_COUNT,
        DL_FIRST_MESSAGE_ID,
        DL_FIRST_TIME,
        DL_HOPS,
        DL_ORIG_EXPIRATION,
        DL_ORIG_TIMESTAMP,
        DL_RETRIES,
        DL_TIME,
        INGRESS_TIMESTAMP,
        ORIG_MESSAGE_ID,
        ORIG_ROUTING_TYPE,
        REPLAY_TIME,
    }
)

#: The prefix of all of them.
OWN_PREFIX: Final = "_AMQ_"

#: Prefixes of names that only the broker writes, or ActiveMQ Artemis does: set by a client, they would be mistaken for
#: the broker's own.  Sessions drop them from arriving messages and accept the rest, so a tool may send a dead letter
#: back with the headers it came with.
RESERVED_PREFIXES: Final = (
    "_AMQ_ORIG_",
    "_AMQ_DL_",
    "_AMQ_REPLAY",
    "_AMQ_ACTUAL_EXPIRY",
    "_AMQ_INGRESS_TIMESTAMP",
    "_AMQ_VALIDATED_USER",
)


class RoutingType(IntEnum):
    """How an address routes its messages; the values are those of `_AMQ_ROUTING_TYPE`."""

    MULTICAST = 0
    ANYCAST = 1


#: The address that a message names for answers, empty for none, and its routing type if that is known.
ReplyTo = tuple[str, RoutingType | None]


class Format(Protocol):
    """An encoding of `head`, known to the engine by its number only."""

    number: int
    name: str
    typed: bool  # whether properties keep their types

    def composed(self, properties: Mapping[str, str | int]) -> tuple[bytes, bytes]:
        """Head and body of a message that has properties only."""

    def content(self, part: bytes) -> bytes:
        """The content of a body, or of its beginning, decoded: text as UTF-8, values as JSON."""

    def noted(self, annotations: Annotations) -> Mapping[str, Value]:
        """The broker's annotations, under every name by which a filter on such a message may ask for them."""

    def readable(self, head: bytes, body_bytes: int) -> bool:
        """Whether `head` is valid in this format, for such a body; checked for heads the broker did not make itself."""

    def properties(self, head: bytes) -> dict[str, Value]:
        """The application properties in `head`, by their neutral names."""

    def duplicate_id(self, head: bytes) -> bytes | None:
        """The property `_AMQ_DUPL_ID` in `head` as bytes, text being UTF-8; None without it."""

    def hops(self, head: bytes) -> int:
        """How many brokers the message has passed, over links between them."""

    def reply_to(self, head: bytes) -> ReplyTo:
        """Where the message wants answers."""

    def edited(self, head: bytes, remove: Collection[str], add: Mapping[str, str | int]) -> bytes:
        """`head` without some application properties and with others, which replace those of the same name."""

    def refilled(self, head: bytes, body: Body, content: bytes) -> tuple[bytes, bytes]:
        """Head and body of the same message with new content, given as `content` returns it."""


#: `attempts` of a message that was never delivered.
NEW: Final = -1


class MessageHeader:
    """The part that the messages of a run share.  Immutable by convention once the first message refers to it.

    Times are milliseconds since the epoch; `expiration` and `scheduled` are 0 when there is none.  `group` is the
    message group, empty for none; its last message sets `closes_group`.  The messages of one run may be of several
    groups, but not some in groups and others in none.  `attempts` counts deliveries that failed at another broker
    before the message came here; the queue goes on counting.  `retained`: it also became the retained message of its
    address, or cleared that one, so that it is not lost if no queue takes it.  `each_bytes` is what
    each further message counts for it in its size, -1 while none does.
    """

    __slots__ = (
        "address",
        "annotations",
        "attempts",
        "closes_group",
        "durable",
        "each_bytes",
        "expiration",
        "expiry_source",
        "format",
        "group",
        "origin",
        "priority",
        "retained",
        "routing_type",
        "scheduled",
        "timestamp",
        "user",
    )

    def __init__(
        self,
        address: str,
        format: Format,
        *,
        durable: bool = False,
        priority: int = PRIORITY_DEFAULT,
        timestamp: int = 0,
        expiration: int = 0,
        expiry_source: int = 0,
        scheduled: int = 0,
        routing_type: RoutingType | None = None,
        user: str = "",
        origin: str = "",
        annotations: Annotations | None = None,
        group: str = "",
        closes_group: bool = False,
        attempts: int = NEW,
    ) -> None:
        self.address = address
        self.format = format
        self.durable = durable
        self.priority = priority
        self.timestamp = timestamp
        self.expiration = expiration
        self.expiry_source = expiry_source
        self.scheduled = scheduled
        self.routing_type = routing_type
        self.user = user
        self.origin = origin
        self.annotations = annotations
        self.group = group
        self.closes_group = closes_group
        self.attempts = attempts
        self.retained = False
        self.each_bytes = -1

    def __copy__(self) -> MessageHeader:
        return MessageHeader(
            self.address,
            self.format,
            durable=self.durable,
            priority=self.priority,
            timestamp=self.timestamp,
            expiration=self.expiration,
            expiry_source=self.expiry_source,
            scheduled=self.scheduled,
            routing_type=self.routing_type,
            user=self.user,
            origin=self.origin,
            annotations=self.annotations,
            group=self.group,
            closes_group=self.closes_group,
            attempts=self.attempts,
        )

    def copy(self, address: str, annotations: Annotations) -> MessageHeader:
        """The header of a message moved to `address`: no expiration, no schedule, no routing type."""
        moved = copy(self)
        moved.address, moved.annotations = address, annotations
        moved.expiration = moved.expiry_source = moved.scheduled = 0
        moved.routing_type, moved.attempts = None, NEW
        return moved

    def charge(self) -> int:
        """The bytes that one more message with this header counts for it: the first one counts all that they share.

        A header without times, group and annotations counts nothing.
        """
        if self.each_bytes >= 0:
            return self.each_bytes
        timed = self.expiration or self.scheduled
        self.each_bytes = TIMER_BYTES if timed else 0
        if not (timed or self.group or self.annotations):
            return 0
        nbytes = HEADER_BYTES + TIMER_BYTES + TIME_BYTES if timed else HEADER_BYTES
        if self.group:
            nbytes += getsizeof(self.group)
        return nbytes + annotations_bytes(self.annotations) if self.annotations else nbytes

    def in_group(self, group: str, *, closes: bool) -> MessageHeader:
        """The same header for another group of messages."""
        grouped = copy(self)
        grouped.group, grouped.closes_group = group, closes
        return grouped


class Message(StoredMessage):
    """A message: identity, headers, body, and where it is held.

    `refs` counts the queues that hold it (one, until it is routed to more), `segment` is the journal segment of its
    record (0: not journalled), `size` is its cost in memory in bytes; of a body in a file only a piece counts.  Of
    `size`, `header_bytes` are for its header: 0 if another message counts that.
    """

    __slots__ = ("header", "header_bytes", "refs", "segment", "size")

    def __init__(self, header: MessageHeader, head: bytes, body: bytes) -> None:
        # Not through super().__init__(): uncompiled, that call costs as much as the rest.
        self.id = 0
        self.head = head
        self.body = body
        self.header = header
        self.header_bytes = header.charge() if header.each_bytes < 0 else header.each_bytes
        self.size = len(head) + len(body) + MESSAGE_OVERHEAD_BYTES + self.header_bytes
        self.refs = 1
        self.segment = 0

    def __copy__(self) -> Message:
        message = Message(self.header, self.head, b"")
        message.id, message.body, message.size = self.id, self.body, self.size
        message.header_bytes = self.header_bytes
        message.refs, message.segment = self.refs, self.segment
        return message

    def copied_to(self, segment: int) -> None:
        """Note that its record is in another segment now."""
        self.segment = segment

    @property
    def hops(self) -> int:
        """How many brokers it has passed, over links between them: 0 if it was published here."""
        return self.header.format.hops(self.head)

    @property
    def reply_to(self) -> ReplyTo:
        """Where it wants answers."""
        return self.header.format.reply_to(self.head)

    def annotate(self, annotations: Annotations) -> None:
        """Add annotations to this message alone: it gets its own copy of the shared header, and its size changes.

        Of a message on a queue `Room.annotate` does it, which charges the difference.
        """
        header = copy(self.header)
        header.annotations = (header.annotations or {}) | annotations
        self.use_header(header)

    def use_header(self, header: MessageHeader) -> None:
        """Replace its header: its size changes by what the headers cost."""
        before, self.header_bytes = self.header_bytes, header.charge()
        self.size += self.header_bytes - before
        self.header = header

    def regroup(self) -> None:
        """Put it in the group that its properties name; a shared header is copied, not changed."""
        header = self.header
        group, closes = group_of(PropertyView(self))
        if (group, closes) != (header.group, header.closes_group):
            self.use_header(header.in_group(group, closes=closes))

    def with_content(self, head: bytes, body: bytes) -> Message:
        """A copy with new content, for conversion; it is on no queue."""
        message = Message(self.header, head, body)
        message.id = self.id
        return message

    @classmethod
    def of(cls, header: MessageHeader, head: bytes, body: Body) -> Message:
        """A message with either kind of body; one with its body in a file needs its own header and its own run."""
        if isinstance(body, bytes):
            return cls(header, head, body)
        message = cls(header, head, b"")
        message.body = body
        message.size += min(len(body), LARGE_BODY_BYTES)
        return message


class PagedMessage(Message):
    """A message that was read from its record in the journal, and can go back to it.

    `offset` and `nbytes` say where that is in `segment`; `offset` is 0 if it is not known, or not up to date.
    """

    __slots__ = ("nbytes", "offset")

    def __init__(self, header: MessageHeader, head: bytes, body: bytes, offset: int, nbytes: int) -> None:
        self.id = 0  # as in Message, and for the same reason
        self.head = head
        self.body = body
        self.header = header
        self.header_bytes = header.charge() if header.each_bytes < 0 else header.each_bytes
        self.size = len(head) + len(body) + MESSAGE_OVERHEAD_BYTES + self.header_bytes
        self.refs = 1
        self.segment = 0
        self.offset = offset
        self.nbytes = nbytes

    def copied_to(self, segment: int) -> None:
        self.segment = segment
        self.offset = 0

    def annotate(self, annotations: Annotations) -> None:
        super().annotate(annotations)
        self.offset = 0


def annotations_bytes(annotations: Annotations) -> int:
    """What annotations cost in memory, in bytes; the broker's own names are there once for all messages."""
    nbytes = getsizeof(annotations)
    for name, value in annotations.items():
        nbytes += getsizeof(value) if name.startswith(OWN_PREFIX) else getsizeof(name) + getsizeof(value)
    return nbytes


def recharge_headers(messages: Sequence[Message]) -> None:
    """Count again what headers cost that were changed, for messages that are charged nowhere yet."""
    for header in {id(message.header): message.header for message in messages}.values():
        header.each_bytes = -1
    for message in messages:
        message.use_header(message.header)


def size_of(messages: list[Message]) -> int:
    """The cost of messages in memory, in bytes."""
    size = 0
    for message in messages:
        size += message.size
    return size


#: The properties that may hold a message's sequence in its group, by JMS's name and by Artemis's.
_GROUP_SEQUENCES: Final = ("JMSXGroupSeq", "_AMQ_GROUP_SEQUENCE")

#: The sequences that close a group: -1, and the same bits read as an unsigned number.
_CLOSING: Final = frozenset({"-1", "4294967295"})


def group_of(properties: Mapping[str, Value]) -> tuple[str, bool]:
    """The group that a message belongs to by its properties, empty for none, and whether the message closes it."""
    group = properties.get(GROUP_ID)
    if group is None or group == "":
        return "", False
    return str(group), any(str(properties.get(name)) in _CLOSING for name in _GROUP_SEQUENCES)


class PropertyView(Mapping[str, Value]):
    """A message's properties by the names a filter may use.  Headers are parsed only when one is needed."""

    __slots__ = ("_message", "_properties")

    def __init__(self, message: Message) -> None:
        self._message = message
        self._properties: dict[str, Value] | None = None

    def _parsed(self) -> dict[str, Value]:
        if self._properties is None:
            header = self._message.header
            self._properties = header.format.properties(self._message.head)
            if header.annotations:
                self._properties.update(header.format.noted(header.annotations))
        return self._properties

    def __getitem__(self, name: str) -> Value:
        if name.startswith("AMQ"):
            known = _BROKER_NAMES.get(name)
            if known is not None:
                return known(self)
        if name == "JMSXUserID" and self._message.header.user:  # who logged in, whatever the sender calls itself
            return self._message.header.user
        properties = self._parsed()
        if name not in properties and name.startswith("JMS"):
            known = _JMS_NAMES.get(name)
            if known is not None:
                return known(self)
        return properties[name]

    def get(self, name: str, default: Value = None) -> Value:  # type: ignore[override]
        if name[:3] not in _SPECIAL:
            return (self._properties or self._parsed()).get(name, default)
        try:
            return self[name]
        except KeyError:
            return default

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._parsed())

    def __len__(self) -> int:
        return len(self._parsed())

    @property
    def user_id(self) -> str | None:
        """The message id that the sender gave, in the form `ID:...`; None without one."""
        id = self._parsed().get("JMSMessageID")
        if not isinstance(id, str):
            return None
        return id if id.startswith("ID:") else f"ID:{id}"

    @property
    def message(self) -> Message:
        """The message of this view."""
        return self._message


#: How the names begin that are not only properties.
_SPECIAL: Final = frozenset(("AMQ", "JMS"))

_BROKER_NAMES: Final[dict[str, Callable[[PropertyView], Value]]] = {
    "AMQPriority": lambda view: view.message.header.priority,
    "AMQExpiration": lambda view: view.message.header.expiration,
    "AMQDurable": lambda view: "DURABLE" if view.message.header.durable else "NON_DURABLE",
    "AMQTimestamp": lambda view: view.message.header.timestamp,
    "AMQSize": lambda view: len(view.message.head) + len(view.message.body),
    "AMQUserID": lambda view: view.user_id,
    "AMQAddress": lambda view: view.message.header.address,
    "AMQGroupID": lambda view: view.get("_AMQ_GROUP_ID"),
    "AMQHops": lambda view: view.message.hops,
    "AMQReplyTo": lambda view: view.message.reply_to[0] or None,
}

#: JMS's names for the same, as in ActiveMQ Artemis; headers and properties with these names take precedence.
_JMS_NAMES: Final[dict[str, Callable[[PropertyView], Value]]] = {
    "JMSPriority": _BROKER_NAMES["AMQPriority"],
    "JMSExpiration": _BROKER_NAMES["AMQExpiration"],
    "JMSTimestamp": _BROKER_NAMES["AMQTimestamp"],
    "JMSMessageID": lambda view: f"ID:{view.message.id}",
    "JMSXUserID": lambda view: view.message.header.user,
    "JMSDeliveryMode": lambda view: "PERSISTENT" if view.message.header.durable else "NON_PERSISTENT",
    "JMSDestination": _BROKER_NAMES["AMQAddress"],
}
