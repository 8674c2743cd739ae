"""The composite types of AMQP 1.0: frame bodies (part 2, 2.7), delivery states and termini (part 3, 3.4 and 3.5),
message sections that are lists (part 3, 3.2), transactions (part 4, 4.5) and SASL (part 5, 5.3.3).

This is the table from which `composite` derives decoding and encoding.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Final
from uuid import UUID

from protocols.amqp.composite import (
    ANY,
    BINARY,
    BOOLEAN,
    DELIVERY_STATE,
    FIELDS_MAP,
    INFO_MAP,
    MANDATORY,
    OUTCOME,
    STRING,
    SYMBOL,
    SYMBOLS,
    TIMESTAMP,
    UBYTE,
    UINT,
    ULONG,
    UNSETTLED,
    USHORT,
    Composite,
    choice,
    composite,
    one_of,
    provided,
)
from protocols.amqp.types import Described, ULong

#: The role of a link's endpoint, as encoded in ATTACH and DISPOSITION.
SENDER: Final = False
RECEIVER: Final = True

UINT_MAX: Final = 0xFFFF_FFFF
USHORT_MAX: Final = 0xFFFF


class SenderSettleMode(IntEnum):
    """How a sender sends its deliveries."""

    UNSETTLED = 0
    SETTLED = 1
    MIXED = 2


class ReceiverSettleMode(IntEnum):
    """When a receiver settles: at once, or after the sender."""

    FIRST = 0
    SECOND = 1


class TerminusDurability(IntEnum):
    """Which state of a terminus survives a restart of its node."""

    NONE = 0
    CONFIGURATION = 1
    UNSETTLED_STATE = 2


class SaslCode(IntEnum):
    """The outcome of a SASL exchange."""

    OK = 0
    AUTH = 1  # wrong credentials
    SYS = 2
    SYS_PERM = 3
    SYS_TEMP = 4


LINK_DETACH: Final = "link-detach"
SESSION_END: Final = "session-end"
CONNECTION_CLOSE: Final = "connection-close"
NEVER: Final = "never"

_SENDER_SETTLE_MODE: Final = choice(UBYTE, frozenset({0, 1, 2}))
_RECEIVER_SETTLE_MODE: Final = choice(UBYTE, frozenset({0, 1}))
_DURABILITY: Final = choice(UINT, frozenset({0, 1, 2}))
_EXPIRY_POLICY: Final = choice(SYMBOL, frozenset({LINK_DETACH, SESSION_END, CONNECTION_CLOSE, NEVER}))
_SASL_CODE: Final = choice(UBYTE, frozenset(range(5)))
_SOURCE: Final = provided("source")
_TARGET: Final = provided("target")
_ERROR: Final = provided("error")
_MESSAGE_ID: Final = one_of("message-id", ULong, UUID, bytes, str)

MessageId = ULong | UUID | bytes | str


@composite("error", 0x1D, "error")
@dataclass(slots=True)
class Error(Composite):
    """Why something ended or was rejected."""

    condition: Annotated[str, SYMBOL, MANDATORY]
    description: Annotated[str | None, STRING] = None
    info: Annotated[dict[str, object] | None, INFO_MAP] = None

    def __str__(self) -> str:
        return f"{self.condition}: {self.description}" if self.description else self.condition

    @property
    def brief(self) -> Error:
        """The error without its description."""
        return Error(self.condition, None, self.info)


# -- delivery states ---------------------------------------------------------------------------------------------------


@composite("received", 0x23, "delivery-state")
@dataclass(slots=True)
class Received(Composite):
    """How much of a message has arrived."""

    section_number: Annotated[int, UINT, MANDATORY]
    section_offset: Annotated[int, ULONG, MANDATORY]


@composite("accepted", 0x24, "delivery-state", "outcome")
@dataclass(slots=True)
class Accepted(Composite):
    """Processed."""


@composite("rejected", 0x25, "delivery-state", "outcome")
@dataclass(slots=True)
class Rejected(Composite):
    """Invalid, and cannot be processed."""

    error: Annotated[Error | None, _ERROR] = None


@composite("released", 0x26, "delivery-state", "outcome")
@dataclass(slots=True)
class Released(Composite):
    """Not acted upon."""


@composite("modified", 0x27, "delivery-state", "outcome")
@dataclass(slots=True)
class Modified(Composite):
    """Not acted upon, and changed."""

    delivery_failed: Annotated[bool | None, BOOLEAN] = None
    undeliverable_here: Annotated[bool | None, BOOLEAN] = None
    message_annotations: Annotated[dict[str, object] | None, FIELDS_MAP] = None


@composite("declared", 0x33, "delivery-state", "outcome")
@dataclass(slots=True)
class Declared(Composite):
    """A transaction has begun."""

    txn_id: Annotated[bytes, BINARY, MANDATORY]


Outcome = Accepted | Rejected | Released | Modified | Declared


@composite("transactional-state", 0x34, "delivery-state")
@dataclass(slots=True)
class TransactionalState(Composite):
    """Part of a transaction, with the outcome that applies if the transaction commits."""

    txn_id: Annotated[bytes, BINARY, MANDATORY]
    outcome: Annotated[Outcome | Described | None, OUTCOME] = None


#: Described: a state unknown to this codec.
DeliveryState = Received | Outcome | TransactionalState | Described


# -- termini -----------------------------------------------------------------------------------------------------------


@composite("delete-on-close", 0x2B, "lifetime-policy")
@dataclass(slots=True)
class DeleteOnClose(Composite):
    """A dynamic node lives as long as the link that created it."""


@composite("delete-on-no-links", 0x2C, "lifetime-policy")
@dataclass(slots=True)
class DeleteOnNoLinks(Composite):
    """... as long as any link to or from it."""


@composite("delete-on-no-messages", 0x2D, "lifetime-policy")
@dataclass(slots=True)
class DeleteOnNoMessages(Composite):
    """... as long as its first link and any message in it."""


@composite("delete-on-no-links-or-messages", 0x2E, "lifetime-policy")
@dataclass(slots=True)
class DeleteOnNoLinksOrMessages(Composite):
    """... as long as any link, and any message in it."""


@composite("source", 0x28, "source")
@dataclass(slots=True)
class Source(Composite):
    """The place where a link's messages come from."""

    address: Annotated[str | None, STRING] = None
    durable: Annotated[int, _DURABILITY] = TerminusDurability.NONE
    expiry_policy: Annotated[str, _EXPIRY_POLICY] = SESSION_END
    timeout: Annotated[int, UINT] = 0
    dynamic: Annotated[bool, BOOLEAN] = False
    dynamic_node_properties: Annotated[dict[str, object] | None, FIELDS_MAP] = None
    distribution_mode: Annotated[str | None, SYMBOL] = None
    filter: Annotated[dict[str, object] | None, FIELDS_MAP] = None
    default_outcome: Annotated[Outcome | Described | None, OUTCOME] = None
    outcomes: Annotated[tuple[str, ...], SYMBOLS] = ()
    capabilities: Annotated[tuple[str, ...], SYMBOLS] = ()


@composite("target", 0x29, "target")
@dataclass(slots=True)
class Target(Composite):
    """The place where a link's messages go."""

    address: Annotated[str | None, STRING] = None
    durable: Annotated[int, _DURABILITY] = TerminusDurability.NONE
    expiry_policy: Annotated[str, _EXPIRY_POLICY] = SESSION_END
    timeout: Annotated[int, UINT] = 0
    dynamic: Annotated[bool, BOOLEAN] = False
    dynamic_node_properties: Annotated[dict[str, object] | None, FIELDS_MAP] = None
    capabilities: Annotated[tuple[str, ...], SYMBOLS] = ()


@composite("coordinator", 0x30, "target")
@dataclass(slots=True)
class Coordinator(Composite):
    """The target of a link that declares and discharges transactions."""

    capabilities: Annotated[tuple[str, ...], SYMBOLS] = ()


@composite("declare", 0x31)
@dataclass(slots=True)
class Declare(Composite):
    """The body of a message to a coordinator: begin a transaction."""

    global_id: Annotated[object, ANY] = None  # of distributed transactions, which the specification leaves open


@composite("discharge", 0x32)
@dataclass(slots=True)
class Discharge(Composite):
    """The body of a message to a coordinator: commit a transaction, or with `fail` roll it back."""

    txn_id: Annotated[bytes, BINARY, MANDATORY]
    fail: Annotated[bool | None, BOOLEAN] = None


# -- frame bodies ------------------------------------------------------------------------------------------------------


@composite("open", 0x10, "frame")
@dataclass(slots=True)
class Open(Composite):
    """Negotiate a connection."""

    container_id: Annotated[str, STRING, MANDATORY]
    hostname: Annotated[str | None, STRING] = None
    max_frame_size: Annotated[int, UINT] = UINT_MAX
    channel_max: Annotated[int, USHORT] = USHORT_MAX
    idle_time_out: Annotated[int | None, UINT] = None
    outgoing_locales: Annotated[tuple[str, ...], SYMBOLS] = ()
    incoming_locales: Annotated[tuple[str, ...], SYMBOLS] = ()
    offered_capabilities: Annotated[tuple[str, ...], SYMBOLS] = ()
    desired_capabilities: Annotated[tuple[str, ...], SYMBOLS] = ()
    properties: Annotated[dict[str, object] | None, FIELDS_MAP] = None


@composite("begin", 0x11, "frame")
@dataclass(slots=True)
class Begin(Composite):
    """Begin a session on a channel."""

    remote_channel: Annotated[int | None, USHORT] = None
    next_outgoing_id: Annotated[int, UINT, MANDATORY] = 0
    incoming_window: Annotated[int, UINT, MANDATORY] = 0
    outgoing_window: Annotated[int, UINT, MANDATORY] = 0
    handle_max: Annotated[int, UINT] = UINT_MAX
    offered_capabilities: Annotated[tuple[str, ...], SYMBOLS] = ()
    desired_capabilities: Annotated[tuple[str, ...], SYMBOLS] = ()
    properties: Annotated[dict[str, object] | None, FIELDS_MAP] = None


@composite("attach", 0x12, "frame")
@dataclass(slots=True)
class Attach(Composite):
    """Attach a link to a session."""

    name: Annotated[str, STRING, MANDATORY]
    handle: Annotated[int, UINT, MANDATORY]
    role: Annotated[bool, BOOLEAN, MANDATORY]
    snd_settle_mode: Annotated[int, _SENDER_SETTLE_MODE] = SenderSettleMode.MIXED
    rcv_settle_mode: Annotated[int, _RECEIVER_SETTLE_MODE] = ReceiverSettleMode.FIRST
    source: Annotated[Source | Described | None, _SOURCE] = None
    target: Annotated[Target | Coordinator | Described | None, _TARGET] = None
    unsettled: Annotated[dict[bytes, DeliveryState | None] | None, UNSETTLED] = None
    incomplete_unsettled: Annotated[bool, BOOLEAN] = False
    initial_delivery_count: Annotated[int | None, UINT] = None
    max_message_size: Annotated[int | None, ULONG] = None
    offered_capabilities: Annotated[tuple[str, ...], SYMBOLS] = ()
    desired_capabilities: Annotated[tuple[str, ...], SYMBOLS] = ()
    properties: Annotated[dict[str, object] | None, FIELDS_MAP] = None


@composite("flow", 0x13, "frame")
@dataclass(slots=True)
class Flow(Composite):
    """The state of a session's windows, and of a link's credit."""

    next_incoming_id: Annotated[int | None, UINT] = None
    incoming_window: Annotated[int, UINT, MANDATORY] = 0
    next_outgoing_id: Annotated[int, UINT, MANDATORY] = 0
    outgoing_window: Annotated[int, UINT, MANDATORY] = 0
    handle: Annotated[int | None, UINT] = None
    delivery_count: Annotated[int | None, UINT] = None
    link_credit: Annotated[int | None, UINT] = None
    available: Annotated[int | None, UINT] = None
    drain: Annotated[bool, BOOLEAN] = False
    echo: Annotated[bool, BOOLEAN] = False
    properties: Annotated[dict[str, object] | None, FIELDS_MAP] = None


@composite("transfer", 0x14, "frame")
@dataclass(slots=True)
class Transfer(Composite):
    """A message, or a part of one, which follows it in its frame."""

    handle: Annotated[int, UINT, MANDATORY]
    delivery_id: Annotated[int | None, UINT] = None
    delivery_tag: Annotated[bytes | None, BINARY] = None
    message_format: Annotated[int | None, UINT] = None
    settled: Annotated[bool | None, BOOLEAN] = None
    more: Annotated[bool, BOOLEAN] = False
    rcv_settle_mode: Annotated[int | None, _RECEIVER_SETTLE_MODE] = None
    state: Annotated[DeliveryState | None, DELIVERY_STATE] = None
    resume: Annotated[bool, BOOLEAN] = False
    aborted: Annotated[bool, BOOLEAN] = False
    batchable: Annotated[bool, BOOLEAN] = False


@composite("disposition", 0x15, "frame")
@dataclass(slots=True)
class Disposition(Composite):
    """The state of a range of deliveries."""

    role: Annotated[bool, BOOLEAN, MANDATORY]
    first: Annotated[int, UINT, MANDATORY]
    last: Annotated[int | None, UINT] = None
    settled: Annotated[bool, BOOLEAN] = False
    state: Annotated[DeliveryState | None, DELIVERY_STATE] = None
    batchable: Annotated[bool, BOOLEAN] = False


@composite("detach", 0x16, "frame")
@dataclass(slots=True)
class Detach(Composite):
    """Detach a link from its session, or close it."""

    handle: Annotated[int, UINT, MANDATORY]
    closed: Annotated[bool, BOOLEAN] = False
    error: Annotated[Error | None, _ERROR] = None


@composite("end", 0x17, "frame")
@dataclass(slots=True)
class End(Composite):
    """End a session."""

    error: Annotated[Error | None, _ERROR] = None


@composite("close", 0x18, "frame")
@dataclass(slots=True)
class Close(Composite):
    """Close a connection."""

    error: Annotated[Error | None, _ERROR] = None


# -- SASL --------------------------------------------------------------------------------------------------------------


@composite("sasl-mechanisms", 0x40, "sasl-frame")
@dataclass(slots=True)
class SaslMechanisms(Composite):
    """The server's mechanisms, the best first."""

    sasl_server_mechanisms: Annotated[tuple[str, ...], SYMBOLS, MANDATORY]


@composite("sasl-init", 0x41, "sasl-frame")
@dataclass(slots=True)
class SaslInit(Composite):
    """The client's choice."""

    mechanism: Annotated[str, SYMBOL, MANDATORY]
    initial_response: Annotated[bytes | None, BINARY] = None
    hostname: Annotated[str | None, STRING] = None


@composite("sasl-challenge", 0x42, "sasl-frame")
@dataclass(slots=True)
class SaslChallenge(Composite):
    """The server's question."""

    challenge: Annotated[bytes, BINARY, MANDATORY]


@composite("sasl-response", 0x43, "sasl-frame")
@dataclass(slots=True)
class SaslResponse(Composite):
    """The client's answer."""

    response: Annotated[bytes, BINARY, MANDATORY]


@composite("sasl-outcome", 0x44, "sasl-frame")
@dataclass(slots=True)
class SaslOutcome(Composite):
    """The result of the exchange."""

    code: Annotated[int, _SASL_CODE, MANDATORY]
    additional_data: Annotated[bytes | None, BINARY] = None


# -- message sections --------------------------------------------------------------------------------------------------


@composite("header", 0x70, "section")
@dataclass(slots=True)
class Header(Composite):
    """How a message is handled on its way."""

    durable: Annotated[bool, BOOLEAN] = False
    priority: Annotated[int, UBYTE] = 4
    ttl: Annotated[int | None, UINT] = None
    first_acquirer: Annotated[bool, BOOLEAN] = False
    delivery_count: Annotated[int, UINT] = 0


@composite("properties", 0x73, "section")
@dataclass(slots=True)
class Properties(Composite):
    """The immutable properties of a message."""

    message_id: Annotated[MessageId | None, _MESSAGE_ID] = None
    user_id: Annotated[bytes | None, BINARY] = None
    to: Annotated[str | None, STRING] = None
    subject: Annotated[str | None, STRING] = None
    reply_to: Annotated[str | None, STRING] = None
    correlation_id: Annotated[MessageId | None, _MESSAGE_ID] = None
    content_type: Annotated[str | None, SYMBOL] = None
    content_encoding: Annotated[str | None, SYMBOL] = None
    absolute_expiry_time: Annotated[int | None, TIMESTAMP] = None
    creation_time: Annotated[int | None, TIMESTAMP] = None
    group_id: Annotated[str | None, STRING] = None
    group_sequence: Annotated[int | None, UINT] = None
    reply_to_group_id: Annotated[str | None, STRING] = None
