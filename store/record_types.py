"""The types of records, and the codes in them; `record` encodes them."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class RecordType(IntEnum):
    """The types written today.  docs/journal-format.md lists reserved numbers."""

    MESSAGE = 1
    REMOVED = 2
    COUNTS = 3
    DELIVERING = 4
    SCHEDULED = 5
    DEAD_LETTERED = 6
    EXPIRED = 7
    DROPPED = 8
    COPIED = 9
    ADDRESS = 16
    ADDRESS_DELETED = 17
    QUEUE = 18
    QUEUE_DELETED = 19
    DIVERT = 20
    DIVERT_DELETED = 21
    TASK = 24
    TASK_DELETED = 25
    OPENED = 32
    CLOSED = 33
    IDS = 34
    TRIMMED = 35
    LOST = 37
    DUPLICATE_ID = 64
    SESSION = 65
    SESSION_DELETED = 67
    INFLIGHT = 68
    RELEASED = 69
    RECEIVED = 70
    COMPLETED = 71
    SESSION_PART = 72
    SESSION_PART_DELETED = 73


#: The encodings of a message's head, by the names of their protocols.
FORMATS: Final = {1: "stomp", 2: "amqp", 3: "mqtt"}

#: The types that define something under an id of its own, and those that delete it.
DELETING: Final = frozenset([type for type in RecordType if type.name.endswith("_DELETED")])
DEFINING: Final = frozenset([RecordType[type.name.removesuffix("_DELETED")] for type in DELETING])


class _Reason(IntEnum):
    @property
    def word(self) -> str:
        """The reason as people read it."""
        return self.name.lower().replace("_", "-")


class RemovalReason(_Reason):
    """Why a message left a queue.  The list is closed: a message leaves only by one of these."""

    CONSUMED = 1
    EXPIRED = 2
    DEAD_LETTERED = 3
    REPLACED = 4
    EVICTED = 5
    PURGED = 6
    DROPPED = 7
    MOVED = 8
    DELETED = 9
    UNROUTABLE = 10
    KILLED = 11
    DISPLACED = 12
    DISCARDED = 13
    FORWARDED = 14


class DeadLetterReason(_Reason):
    """Why a message could not be delivered."""

    MAX_DELIVERIES = 1
    REJECTED = 2
    EXPIRED = 3
    QUEUE_FULL = 4
    TOO_LARGE = 5
    NO_ROUTE = 6
    NOT_AUTHORISED = 7
    PUT_DISABLED = 8
    ADMIN = 9
    LINK_HOPS = 10
    DECODE_ERROR = 11
