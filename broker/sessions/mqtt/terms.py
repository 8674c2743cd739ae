"""What MQTT's words mean to the broker: the acceptor's options, reason codes for refusals, full names of queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from broker.engine import NEVER_EXPIRES, Engine
from broker.engine.model.errors import (
    AddressFull,
    AlreadyInUse,
    Denied,
    DiskFull,
    EngineError,
    InvalidName,
    NoQueue,
    NotFound,
    RetainedFull,
    RoutingTypeMismatch,
    TooLarge,
    TooManyAddresses,
    TooManyQueues,
)
from broker.engine.model.names import FQQN_SEPARATOR
from protocols.mqtt.codes import ReasonCode
from protocols.mqtt.inflight import RECEIVE_MAXIMUM_DEFAULT
from protocols.mqtt.properties import REASON_STRING, Properties
from protocols.mqtt.topics import AddressSyntax

#: The largest keep alive, in seconds (two bytes).
KEEP_ALIVE_MAX: Final = 0xFFFF

#: Topics on which only the broker speaks: `$SYS`, and the addresses that it keeps for itself.
RESERVED_TOPICS: Final = ("$SYS/", "$sys/", "$SYS.", "$sys.")


class TooMany(EngineError):
    """There are as many sessions as there may be, or a session has as many subscriptions as it may have."""

    code = "too-many"


@dataclass(frozen=True, slots=True)
class MqttOptions:
    """What an acceptor allows.  Times in seconds.

    `keep_alive_max`: of clients of 5.0, which are told, and `early_keep_alive_max` of earlier ones, which are refused;
    0: what clients ask for.  `nameless`: whether client identifiers may be empty.  `payload_bytes_max`: of a message,
    -1: no limit.  `expiry_default`: of sessions before 5.0 without Clean Session.
    `inflight_bytes_max`: payloads of QoS 1 and 2 on their way to a client, -1: no limit.
    `queued_max`: messages a subscription keeps, -1: no limit.  `filtered`: whether a topic filter that covers what its
    client may not read is granted without that, instead of refused.  `failover`: the brokers of a pair, as a Server
    Reference.
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


#: What of the engine's refusals a client is told, by the most specific class.
_REASONS: Final[dict[type[EngineError], ReasonCode]] = {
    Denied: ReasonCode.NOT_AUTHORIZED,
    AddressFull: ReasonCode.QUOTA_EXCEEDED,
    DiskFull: ReasonCode.QUOTA_EXCEEDED,
    RetainedFull: ReasonCode.QUOTA_EXCEEDED,
    TooLarge: ReasonCode.QUOTA_EXCEEDED,
    TooMany: ReasonCode.QUOTA_EXCEEDED,
    TooManyAddresses: ReasonCode.QUOTA_EXCEEDED,
    TooManyQueues: ReasonCode.QUOTA_EXCEEDED,
    InvalidName: ReasonCode.TOPIC_NAME_INVALID,
    NotFound: ReasonCode.TOPIC_NAME_INVALID,
    RoutingTypeMismatch: ReasonCode.TOPIC_NAME_INVALID,
    NoQueue: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
}

#: The same for a subscription: its codes are others (3.9.3).
_SUBSCRIPTION_REASONS: Final[dict[type[EngineError], ReasonCode]] = {
    TooMany: ReasonCode.QUOTA_EXCEEDED,
    TooManyAddresses: ReasonCode.QUOTA_EXCEEDED,
    TooManyQueues: ReasonCode.QUOTA_EXCEEDED,
    Denied: ReasonCode.NOT_AUTHORIZED,
    DiskFull: ReasonCode.QUOTA_EXCEEDED,
    InvalidName: ReasonCode.TOPIC_FILTER_INVALID,
    NotFound: ReasonCode.TOPIC_FILTER_INVALID,
    RoutingTypeMismatch: ReasonCode.TOPIC_FILTER_INVALID,
    NoQueue: ReasonCode.TOPIC_FILTER_INVALID,
    AlreadyInUse: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
}


def refusal(error: EngineError, *, subscribing: bool = False) -> ReasonCode:
    """The reason code for a refused publication or subscription."""
    reasons = _SUBSCRIPTION_REASONS if subscribing else _REASONS
    return reasons.get(type(error), ReasonCode.UNSPECIFIED_ERROR)


def full_queue_name(engine: Engine, syntax: AddressSyntax, text: str) -> str:
    """`address::queue` if a topic or filter means a queue by its full name; empty: it is a topic like any other.

    The address may be written as a topic (`a/b::q`) or as others write it (`a.b::q`).
    """
    written, separator, queue_name = text.partition(FQQN_SEPARATOR)
    if not (separator and written and queue_name):
        return ""
    return engine.full_queue_name((syntax.to_address(written), written), queue_name)


def reason_words(code: int, properties: Properties) -> str:
    """A reason code of the other end's in figures and words, and what it says of it."""
    said = properties.get(REASON_STRING)
    words = f"0x{code:02X} {ReasonCode(code).name.replace('_', ' ').lower()}"
    return f"{words}: {said}" if said else words
