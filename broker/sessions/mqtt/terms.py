"""MQTT's terms in the broker's: the acceptor's options, reason codes for refusals, full queue names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from broker.engine import NEVER_EXPIRES, Engine
from broker.engine.model.access import Access
from broker.engine.model.errors import (
    AddressFull,
    AlreadyInUse,
    Denied,
    DiskFull,
    EngineError,
    InvalidName,
    MemoryFull,
    NoQueue,
    NotFound,
    QueueDisabled,
    RetainedFull,
    RoutingTypeMismatch,
    TooLarge,
    TooManyAddresses,
    TooManyQueues,
)
from broker.engine.model.names import FQQN_SEPARATOR
from broker.engine.model.permissions import Permission
from protocols.mqtt.codes import ReasonCode
from protocols.mqtt.inflight import RECEIVE_MAXIMUM_DEFAULT
from protocols.mqtt.properties import REASON_STRING, Properties
from protocols.mqtt.topics import SEPARATOR, AddressSyntax

#: The largest keep alive, in seconds (two bytes).
KEEP_ALIVE_MAX: Final = 0xFFFF

#: Topics on which only the broker publishes: `$SYS`, and its reserved addresses.
RESERVED_TOPICS: Final = ("$SYS/", "$sys/", "$SYS.", "$sys.")


class TooMany(EngineError):
    """The limit of sessions, or of a session's subscriptions, is reached."""

    code = "too-many"


@dataclass(frozen=True, slots=True)
class MqttOptions:
    """The options of an acceptor.  Times in seconds.

    `keep_alive_max`: lowers the keep alive of 5.0 clients; `early_keep_alive_max`: earlier clients that ask for more
    are refused; 0: no limit.  `nameless`: whether client identifiers may be empty.  `payload_bytes_max`: of a message,
    -1: no limit.  `expiry_default`: session expiry of clients before 5.0 without Clean Session.
    `inflight_bytes_max`: payloads of QoS 1 and 2 in flight to a client, -1: no limit.
    `queued_max`: messages that a subscription stores, -1: no limit.  `filtered`: whether a topic filter that also
    covers topics its client may not read is granted without those, instead of refused.  `failover`: the brokers of a
    pair, as a Server Reference.  `mounted`: the mount points of other acceptors, with which the identifiers of their
    clients begin.
    """

    keep_alive_max: int = 60
    early_keep_alive_max: int = 0
    nameless: bool = True
    qos_max: int = 2
    retain: bool = True
    payload_bytes_max: int = -1
    expiry_default: int = NEVER_EXPIRES
    expiry_max: int = NEVER_EXPIRES
    receive_maximum: int = RECEIVE_MAXIMUM_DEFAULT
    inflight_max: int = RECEIVE_MAXIMUM_DEFAULT
    inflight_bytes_max: int = -1
    filtered: bool = False
    queued_max: int = -1
    drop_oldest: bool = False
    link_stealing: bool = True
    subscriptions_max: int = 1_000
    sessions_max: int = 100_000
    failover: str = ""
    mounted: tuple[str, ...] = ()


#: The reason codes of the engine's refusals.
_REASONS: Final[dict[type[EngineError], ReasonCode]] = {
    Denied: ReasonCode.NOT_AUTHORIZED,
    AddressFull: ReasonCode.QUOTA_EXCEEDED,
    DiskFull: ReasonCode.QUOTA_EXCEEDED,
    MemoryFull: ReasonCode.QUOTA_EXCEEDED,
    RetainedFull: ReasonCode.QUOTA_EXCEEDED,
    TooLarge: ReasonCode.QUOTA_EXCEEDED,
    TooMany: ReasonCode.QUOTA_EXCEEDED,
    TooManyAddresses: ReasonCode.QUOTA_EXCEEDED,
    TooManyQueues: ReasonCode.QUOTA_EXCEEDED,
    InvalidName: ReasonCode.TOPIC_NAME_INVALID,
    NotFound: ReasonCode.TOPIC_NAME_INVALID,
    RoutingTypeMismatch: ReasonCode.TOPIC_NAME_INVALID,
    NoQueue: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    QueueDisabled: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
}

#: The same for subscriptions, which have some other codes (3.9.3).
_SUBSCRIPTION_REASONS: Final = _REASONS | {
    InvalidName: ReasonCode.TOPIC_FILTER_INVALID,
    NotFound: ReasonCode.TOPIC_FILTER_INVALID,
    RoutingTypeMismatch: ReasonCode.TOPIC_FILTER_INVALID,
    NoQueue: ReasonCode.TOPIC_FILTER_INVALID,
    AlreadyInUse: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
}


def refusal(error: EngineError, *, subscribing: bool = False) -> ReasonCode:
    """Return the reason code for a refused publication or subscription."""
    reasons = _SUBSCRIPTION_REASONS if subscribing else _REASONS
    return reasons.get(type(error), ReasonCode.UNSPECIFIED_ERROR)


def full_queue_name(engine: Engine, syntax: AddressSyntax, text: str, access: Access, permission: Permission) -> str:
    """Return `address::queue` if a topic or filter is the full name of a queue, else an empty text.

    Both may be written as topics (`a/b::q/r`) or as in other protocols (`a.b::q.r`).  To a client without the
    permission for that queue it is a topic, whether the queue exists or not.
    """
    written, separator, queue_name = text.partition(FQQN_SEPARATOR)
    if not (separator and written and queue_name):
        return ""
    queue_names = (queue_name, syntax.to_address(queue_name)) if SEPARATOR in queue_name else (queue_name,)
    addresses = (syntax.to_address(written), written)
    return engine.producers.full_queue_name(addresses, queue_names, access, permission)


def reason_words(code: int, properties: Properties) -> str:
    """Return a received reason code in hexadecimal and in words, with its Reason String if there is one."""
    reason_string = properties.get(REASON_STRING)
    words = f"0x{code:02X} {ReasonCode(code).name.replace('_', ' ').lower()}"
    return f"{words}: {reason_string}" if reason_string else words
