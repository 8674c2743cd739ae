"""What MQTT's words mean to the broker: the acceptor's options, reason codes for refusals, names of queues."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from broker.engine.errors import (
    AddressFull,
    AlreadyInUse,
    Denied,
    DiskFull,
    EngineError,
    InvalidName,
    NotFound,
    RetainedFull,
    TooLarge,
    TooManyQueues,
)
from broker.engine.names import NAME_BYTES_MAX
from protocols.mqtt.codes import ReasonCode
from protocols.mqtt.inflight import RECEIVE_MAXIMUM_DEFAULT

#: A session expiry interval that means for ever (3.1.2.11.2), in seconds.
NEVER: Final = 0xFFFF_FFFF

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

    `keep_alive_max`: 0: what clients ask for.  `expiry_default`: of sessions before 5.0 without Clean Session, and
    `expiry_max`: NEVER has no end.  `queued_max`: messages a subscription keeps, -1: no limit.
    """

    keep_alive_max: int = 60
    expiry_default: int = NEVER
    expiry_max: int = NEVER
    receive_maximum: int = RECEIVE_MAXIMUM_DEFAULT
    inflight_max: int = RECEIVE_MAXIMUM_DEFAULT
    queued_max: int = -1
    drop_oldest: bool = False
    link_stealing: bool = True
    subscriptions_max: int = 1_000
    sessions_max: int = 100_000


#: What of the engine's refusals a client is told, by the most specific class.
_REASONS: Final[dict[type[EngineError], ReasonCode]] = {
    Denied: ReasonCode.NOT_AUTHORIZED,
    AddressFull: ReasonCode.QUOTA_EXCEEDED,
    DiskFull: ReasonCode.QUOTA_EXCEEDED,
    RetainedFull: ReasonCode.QUOTA_EXCEEDED,
    TooLarge: ReasonCode.QUOTA_EXCEEDED,
    TooMany: ReasonCode.QUOTA_EXCEEDED,
    TooManyQueues: ReasonCode.QUOTA_EXCEEDED,
    InvalidName: ReasonCode.TOPIC_NAME_INVALID,
    NotFound: ReasonCode.TOPIC_NAME_INVALID,
}

#: The same for a subscription: its codes are others (3.9.3).
_SUBSCRIPTION_REASONS: Final[dict[type[EngineError], ReasonCode]] = {
    TooMany: ReasonCode.QUOTA_EXCEEDED,
    TooManyQueues: ReasonCode.QUOTA_EXCEEDED,
    Denied: ReasonCode.NOT_AUTHORIZED,
    DiskFull: ReasonCode.QUOTA_EXCEEDED,
    InvalidName: ReasonCode.TOPIC_FILTER_INVALID,
    NotFound: ReasonCode.TOPIC_FILTER_INVALID,
    AlreadyInUse: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
}


def refusal(error: EngineError, *, subscribing: bool = False) -> ReasonCode:
    """The reason code for a refused publication or subscription."""
    reasons = _SUBSCRIPTION_REASONS if subscribing else _REASONS
    return reasons.get(type(error), ReasonCode.UNSPECIFIED_ERROR)


def queue_name(client_id: str, pattern: str) -> str:
    r"""The queue of a client's subscription: `client.a.b`; different clients and patterns have different names.

    What would end the client's part too early, or look like a shared subscription, is escaped: client `a.b` has
    `a\.b.c`, as topics are.
    """
    return _fitting(_escaped(client_id), pattern)


def shared_queue_name(share: str, pattern: str) -> str:
    """The queue of a shared subscription: `$share.group.a.b`."""
    return _fitting(f"$share.{_escaped(share)}", pattern)


def _fitting(owner: str, pattern: str) -> str:
    """Owner and pattern; a digest instead of a pattern that is too long, after a `#` as no pattern has it."""
    name = f"{owner}.{pattern}"
    if len(name.encode()) <= NAME_BYTES_MAX:
        return name
    return f"{owner}.#{sha256(pattern.encode()).hexdigest()}"


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\\\").replace(".", "\\.")
    while "::" in text:
        text = text.replace("::", ":\\:")
    return "\\" + text if text.startswith("$") else text
