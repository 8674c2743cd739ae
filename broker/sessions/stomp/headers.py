"""Converts headers of STOMP frames: those of SEND to message headers, message headers to those of MESSAGE."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from broker.engine import AckMode
from broker.engine.model.errors import EngineError
from broker.engine.model.limits import TIME_MAX
from broker.engine.model.message import (
    INGRESS_TIMESTAMP,
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    RESERVED_PREFIXES,
    Format,
    MessageHeader,
    RoutingType,
    group_of,
)
from broker.sessions.plain_values import header_text
from broker.sessions.stomp.format import BROKERS, CONTENT_LENGTH, NEUTRAL_NAMES, STOMP_FORMAT, encode_head
from protocols.stomp.connection import parse_heartbeat
from protocols.stomp.errors import StompError, format_value
from protocols.stomp.frames import Frame
from protocols.stomp.headers import escape, is_name

Headers = dict[bytes, bytes]

#: Headers of SEND that the broker consumes; all others travel with the message.
CONSUMED: Final = BROKERS.union(
    {
        b"receipt",
        b"transaction",
        b"AMQ_SCHEDULED_CRON",
        b"AMQ_SCHEDULED_DELAY",
        b"AMQ_SCHEDULED_PERIOD",
        b"AMQ_SCHEDULED_REPEAT",
        b"AMQ_SCHEDULED_TIME",
        b"_AMQ_SCHED_DELIVERY",
    }
)

#: Those of CONSUMED that ordinary sends have; a send with any other does not take the fast path.
USUAL: Final = (b"destination", b"persistent", b"transaction", b"priority", b"expires")
UNUSUAL: Final = CONSUMED.difference(USUAL, {b"receipt"})

#: Headers that put a message in a group; they stay in the message.
GROUPING: Final = frozenset({b"JMSXGroupID", b"_AMQ_GROUP_ID"})
_ABOUT_GROUPS: Final = (*sorted(GROUPING), b"JMSXGroupSeq", b"_AMQ_GROUP_SEQUENCE")

#: A rare byte of `_AMQ_`, as a number: searching for one byte is six times as fast as for several.
_Q: Final = 0x51

_RESERVED: Final = tuple(prefix.encode() for prefix in RESERVED_PREFIXES)


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Prefixes of destinations that state a routing type (acceptor options anycast-prefix, multicast-prefix)."""

    anycast: tuple[str, ...] = ("/queue/",)
    multicast: tuple[str, ...] = ("/topic/",)

    @property
    def of_replies(self) -> tuple[str, str]:
        """The prefixes for a reply-to, indexed by RoutingType."""
        return next(iter(self.multicast), ""), next(iter(self.anycast), "")

    def split(self, destination: str) -> tuple[str, str, RoutingType | None]:
        """Return the prefix, the name after it, and the routing type that the prefix states."""
        for prefix in self.anycast:
            if destination.startswith(prefix):
                return prefix, destination[len(prefix) :], RoutingType.ANYCAST
        for prefix in self.multicast:
            if destination.startswith(prefix):
                return prefix, destination[len(prefix) :], RoutingType.MULTICAST
        return "", destination, None


@dataclass(frozen=True, slots=True)
class Options:
    """The acceptor's settings for its sessions; times in ms, sizes in bytes.

    `failover`: the brokers of a pair, for the header `redirect` of ERROR.
    """

    server: str = "bartleby"
    prefixes: Prefixes = field(default_factory=Prefixes)
    window: int = 1 << 20
    ttl: int = 60_000
    ttl_min: int = 1_000
    ttl_max: int = -1
    ttl_modifier: float = 2.0
    subscriptions_max: int = 1_000
    transactions_max: int = 100
    failover: str = ""


def error(command: str, message: str, detail: str, headers: Headers) -> StompError:
    """Return an error about a frame, with its receipt."""
    return StompError(message, f"{command}: {detail}", headers.get(b"receipt"))


def refused(command: str, refusal: EngineError, headers: Headers) -> StompError:
    """Convert a refusal by the engine to an error about a frame."""
    text = str(refusal)
    return error(command, text.partition(": ")[0], text, headers)


def routing_type(value: bytes | None, name: str, command: str, headers: Headers) -> RoutingType | None:
    """Parse the value of destination-type or subscription-type.  Raises StompError."""
    if value is None:
        return None
    try:
        return RoutingType[value.decode()]
    except KeyError:
        detail = f"{name} must be ANYCAST or MULTICAST, not {format_value(value)}"
        raise error(command, f"invalid {name}", detail, headers) from None


def number(headers: Headers, name: bytes, command: str, *, low: int, high: int) -> int | None:
    """Parse a header that is a whole number; None if absent.  Raises StompError."""
    value = headers.get(name)
    if value is None:
        return None
    text = value.strip()
    if len(text) <= 20 and text.lstrip(b"-").isdigit() and low <= int(text) <= high:
        return int(text)
    word = name.decode()
    raise error(command, f"invalid {word}", f"{word} must be {low} to {high}, not {format_value(value)}", headers)


def boolean(headers: Headers, name: bytes, command: str, *, default: bool) -> bool:
    """Parse a header that is true or false, in any case: Python clients write True.  Raises StompError."""
    value = headers.get(name)
    if value is None:
        return default
    lower = value.lower()
    if lower in (b"true", b"false"):
        return lower == b"true"
    word = name.decode()
    raise error(command, f"invalid {word}", f"{word} must be true or false, not {format_value(value)}", headers)


def make_header(
    headers: Headers, routing_type: RoutingType | None, format: Format, *, now: int, user: str, origin: str
) -> MessageHeader:
    """Make the message header of a SEND; publishing completes it.  Raises StompError.

    So a SEND with an invalid header is refused before an address is made for it.
    """
    priority = number(headers, b"priority", "SEND", low=0, high=PRIORITY_MAX)
    expires = number(headers, b"expires", "SEND", low=0, high=TIME_MAX)
    return MessageHeader(
        "",
        format,
        durable=boolean(headers, b"persistent", "SEND", default=False),
        priority=PRIORITY_DEFAULT if priority is None else priority,
        timestamp=now,
        expiration=expires or 0,
        scheduled=_scheduled(headers, now),
        routing_type=routing_type,
        user=user,
        origin=origin,
    )


#: Headers of ActiveMQ Classic that ask for repeated delivery, which is not supported.
_REPEATING: Final = (b"AMQ_SCHEDULED_CRON", b"AMQ_SCHEDULED_PERIOD", b"AMQ_SCHEDULED_REPEAT")


def _scheduled(headers: Headers, now: int) -> int:
    """Return the earliest delivery time of a message, 0 if none; an absolute time takes precedence over a delay.

    Raises StompError for a repeating schedule.
    """
    for name in _REPEATING:
        if headers.get(name, b"0").strip() not in (b"", b"0"):
            why = f"{name.decode()} asks for repeated delivery, which is not supported; a message is delivered once"
            raise error("SEND", "not supported", f"{why}, after AMQ_SCHEDULED_DELAY or at AMQ_SCHEDULED_TIME", headers)
    for name in (b"AMQ_SCHEDULED_TIME", b"_AMQ_SCHED_DELIVERY"):
        due = number(headers, name, "SEND", low=-TIME_MAX, high=TIME_MAX)
        if due is not None and due > 0:
            return due
    delay = number(headers, b"AMQ_SCHEDULED_DELAY", "SEND", low=-TIME_MAX, high=TIME_MAX)
    return now + delay if delay is not None and delay > 0 else 0


def message_group(headers: Headers) -> tuple[str, bool]:
    """Return the message group of a SEND, empty for none, and whether the message closes it."""
    named = {name.decode(): headers[name].decode() for name in _ABOUT_GROUPS if name in headers}
    return group_of({NEUTRAL_NAMES.get(name, name): value for name, value in named.items()})


def usual_lines(headers: Headers) -> list[bytes]:
    """Return the header lines of a SEND that the broker consumes, as they usually look on the wire, in their order."""
    return [b"%b:%b\n" % header for header in headers.items() if header[0] in USUAL]


def strip(frame: Frame, consumed: list[bytes], lead: bytes) -> bytes | None:
    """Return the encoded headers of a SEND that stay in the message: the received lines without `consumed`.

    `lead` is `consumed` in one piece: the lines usually begin with it.  Returns None if the lines cannot be forwarded
    unchanged, or do not contain `consumed`.
    """
    lines = frame.lines
    if lines is None:
        return None
    if lines.startswith(lead):
        head = lines[len(lead) :]
    else:
        left = lines.splitlines(keepends=True)
        try:
            for line in consumed:
                left.remove(line)
        except ValueError:  # a different value, or escaped on the wire
            return None
        head = b"".join(left)
    return encode_headers(frame.headers) if _may_be_reserved(head) else head


def encode_plain(lines: bytes) -> bytes:
    """Encode header lines, each ended by LF and with one colon: drop those that only the broker may write."""
    if not _may_be_reserved(lines):
        return lines
    return b"".join([b"%b:%b\n" % item for item in _pairs(lines) if _travels(item[0])])


def _pairs(lines: bytes) -> list[tuple[bytes, bytes]]:
    found = [line.partition(b":") for line in lines.split(b"\n")]
    return [(name, value) for name, colon, value in found if colon]


def _may_be_reserved(lines: bytes) -> bool:
    return _Q in lines and lines.find(b"_AMQ_") >= 0


def encode_headers(headers: Headers) -> bytes:
    """Encode the headers of any SEND that stay in the message, one by one."""
    return encode_head([item for item in headers.items() if _travels(item[0])])


def _travels(name: bytes) -> bool:
    return name not in CONSUMED and not name.startswith(_RESERVED)


def is_application_header(name: bytes) -> bool:
    """Whether senders choose a header freely: it stays in the message, and does not describe the frame."""
    return name != CONTENT_LENGTH and _travels(name)


#: Annotations of the broker that have another name in STOMP.
_SHOWN_AS: Final = {INGRESS_TIMESTAMP: "ingress-timestamp"}


def message_common(header: MessageHeader, prefix: str, version: str, *, redelivered: bool) -> bytes:
    """Encode the headers of MESSAGE that messages with the same message header share; begins with LF, ends without.

    Messages from other protocols have individual timestamps (`convert.to_stomp`).
    """
    common = b"\ndestination:%b\nredelivered:%b\npriority:%d\npersistent:%b\nexpires:%d" % (
        escape((prefix + header.address).encode(), version),
        b"true" if redelivered else b"false",
        header.priority,
        b"true" if header.durable else b"false",
        header.expiration,
    )
    if header.format.number == STOMP_FORMAT:
        common += b"\ntimestamp:%d" % header.timestamp
    pairs: list[tuple[str, str]] = []
    if header.routing_type is not None:
        common += b"\ndestination-type:ANYCAST" if header.routing_type else b"\ndestination-type:MULTICAST"
    if header.user:
        pairs.append(("JMSXUserID", header.user))
    if header.annotations:
        pairs += [(_SHOWN_AS.get(name, name), header_text(value)) for name, value in header.annotations.items()]
    more = [
        b"\n%b:%b" % (escape(name.encode(), version), escape(value.encode(), version))
        for name, value in pairs
        if is_name(name.encode(), version)
    ]
    return common + b"".join(more)


def ack_mode(headers: Headers) -> AckMode:
    """Return the acknowledgement mode of a SUBSCRIBE.  Raises StompError."""
    value = headers.get(b"ack", b"auto")
    try:
        return AckMode(value.decode())
    except ValueError:
        detail = f"ack must be auto, client or client-individual, not {format_value(value)}"
        raise error("SUBSCRIBE", "invalid ack", detail, headers) from None


@dataclass(frozen=True, slots=True)
class Window:
    """How much may be in delivery to a subscription: bytes, or with `counted` messages; -1: unlimited."""

    size: int
    counted: bool = False


def consumer_window(headers: Headers, mode: AckMode, default: int) -> Window:
    """Return the window that a SUBSCRIBE asks for: in bytes as in Artemis, or in messages as in other brokers.

    Unlimited is the default for ack:auto, and the meaning of prefetch-count 0.
    """
    size = number(headers, b"consumer-window-size", "SUBSCRIBE", low=-1, high=1 << 40)
    if size is not None:
        return Window(size)
    for name in (b"prefetch-count", b"activemq.prefetchSize"):
        count = number(headers, name, "SUBSCRIBE", low=-1, high=1 << 40)
        if count is not None:
            unlimited = count < 0 or (count == 0 and name == b"prefetch-count")
            return Window(-1) if unlimited else Window(count, counted=True)
    return Window(-1 if mode is AckMode.AUTO else default)


#: Shortest heart-beat interval that the broker offers, in ms: shorter ones cost more than they are worth.
HEARTBEAT_MIN_MS: Final = 500


def heartbeat(header: bytes | None, options: Options) -> tuple[int, int, bytes]:
    """Return the timers of both directions (STOMP 1.2, heart-beating), and the answer in CONNECTED.

    The first is the longest silence of the broker that the client accepts, the second the silence after which the
    client counts as dead; both in ms, 0: none.  For clients without heart-beats the acceptor's time to live applies.
    """
    can_send, wants = parse_heartbeat(header) if header is not None else (0, 0)
    send_interval = max(wants, HEARTBEAT_MIN_MS) if wants else 0
    offered = HEARTBEAT_MIN_MS if wants else 0
    if not can_send:
        return send_interval, max(options.ttl, 0), b"%d,0" % offered
    timeout = max(int(can_send * options.ttl_modifier), options.ttl_min)
    if options.ttl_max >= 0:
        timeout = min(timeout, options.ttl_max)
    return send_interval, timeout, b"%d,%d" % (offered, int(timeout / options.ttl_modifier))
