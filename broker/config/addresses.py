"""The sections [addresses.NAME] and [[address-settings]]."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from broker.config.section import Section, kebab
from broker.config.units import BytesOrUnlimited, Milliseconds, MillisecondsOrOff
from broker.engine.message import RoutingType
from broker.engine.settings import (
    SETTING_NAMES,
    AddressFullPolicy,
    AddressSettings,
    DeliveryCountPersistence,
)

#: The default of every field of an address setting, by field name: the engine's own.
DEFAULTS: Final[dict[str, object]] = {name: getattr(AddressSettings(), name) for name in sorted(SETTING_NAMES)}

NOT_IN_THIS_VERSION: Final = "not in this version: remove it"

#: Artemis's address settings that Bartleby does not take, each with the reason.
REFUSED_SETTINGS: Final[dict[str, str]] = {
    "max-redelivery-records": "delivery counts are never forgotten, so there is nothing to set: remove it",
    "page-max-cache-size": "it has no meaning here, and none in Artemis any more: remove it",
    "queue-prefetch": "a subscription has its window, stomp-consumer-window-size of its acceptor: remove it",
    "initial-queue-buffer-size": "queues here have no buffer of a fixed size: remove it",
    "last-value-queue": NOT_IN_THIS_VERSION,
} | dict.fromkeys(
    (
        "send-to-dla-on-no-route",
        "max-size-bytes-reject-threshold",
        "disk-full-policy",
        "page-size-bytes",
        "max-read-page-messages",
        "max-read-page-bytes",
        "prefetch-page-messages",
        "prefetch-page-bytes",
        "page-limit-bytes",
        "page-limit-messages",
        "page-full-policy",
        "message-counter-history-day-limit",
        "default-last-value-queue",
        "default-last-value-key",
        "default-non-destructive",
        "default-exclusive-queue",
        "default-group-rebalance",
        "default-group-rebalance-pause-dispatch",
        "default-group-buckets",
        "default-group-first-key",
        "default-consumers-before-dispatch",
        "default-delay-before-dispatch",
        "default-max-consumers",
        "default-purge-on-no-consumers",
        "default-ring-size",
        "default-consumer-window-size",
        "redistribution-delay",
        "slow-consumer-threshold",
        "slow-consumer-threshold-measurement-unit",
        "slow-consumer-check-period",
        "slow-consumer-policy",
        "auto-delete-created-queues",
        "config-delete-queues",
        "config-delete-addresses",
        "config-delete-diverts",
        "management-message-attribute-size-limit",
        "retroactive-message-count",
        "enable-metrics",
        "enable-ingress-timestamp",
        "id-cache-size",
        "auto-create-jms-queues",
        "auto-create-jms-topics",
        "auto-delete-jms-queues",
        "auto-delete-jms-topics",
    ),
    NOT_IN_THIS_VERSION,
)


def _routing_type(value: object) -> object:
    if isinstance(value, str) and value in RoutingType.__members__:
        return RoutingType[value]
    raise ValueError('give "ANYCAST" or "MULTICAST"')


def _full_policy(value: object) -> object:
    if value == "PAGE":
        raise ValueError('paging is not in this version: give "BLOCK", "DROP" or "FAIL"')
    return _word(AddressFullPolicy, value)


def _persistence(value: object) -> object:
    return _word(DeliveryCountPersistence, value)


def _word(kind: type[StrEnum], value: object) -> StrEnum:
    if isinstance(value, str) and value in list(kind):
        return kind(value)
    raise ValueError(f"give one of {', '.join(json.dumps(word) for word in kind)}")


Routing = Annotated[RoutingType, BeforeValidator(_routing_type)]
FullPolicy = Annotated[AddressFullPolicy, BeforeValidator(_full_policy)]
Persistence = Annotated[DeliveryCountPersistence, BeforeValidator(_persistence)]


class Queue(Section):
    """A queue that exists from the start and is never deleted automatically."""

    routing_type: Routing
    """ANYCAST: each message to one consumer; MULTICAST: the queue is a subscription and gets its own copy."""
    durable: bool = True
    """false: queue and messages end with the broker."""
    filter: str = ""
    """Only messages that this selector fits come into the queue; empty: all."""


class AddressSection(Section):
    """An address that exists from the start and is never deleted automatically."""

    routing_types: Annotated[tuple[Routing, ...], Field(strict=False)] = ()
    """What the address hands its messages to, beside the routing types of the queues given with it."""
    queues: dict[str, Queue] = Field(default_factory=dict)

    @property
    def all_routing_types(self) -> frozenset[RoutingType]:
        """The address's own and those of its queues."""
        return frozenset(self.routing_types) | {queue.routing_type for queue in self.queues.values()}


class AddressSetting(Section):
    """Settings for the addresses that `match` fits.  What is unset is left to less specific matches."""

    match: Annotated[str, Field(min_length=1)]
    """An address, address::queue, or a pattern: `*` is any one word, `#` at the end any number of words."""
    dead_letter_address: str | None = None
    """Where a message goes that failed max-delivery-attempts times; unset or empty: it is removed, and logged."""
    auto_create_dead_letter_resources: bool | None = None
    """Make a dead-letter queue for each address of dead messages, named prefix + address + suffix."""
    dead_letter_queue_prefix: str | None = None
    """Before the address in the name of an auto-created dead-letter queue."""
    dead_letter_queue_suffix: str | None = None
    """After the address in the name of an auto-created dead-letter queue."""
    expiry_address: str | None = None
    """Where an expired message goes; empty: none, also where a less specific match gives one; then it is removed."""
    auto_create_expiry_resources: bool | None = None
    """Make an expiry queue for each address of expired messages, named prefix + address + suffix."""
    expiry_queue_prefix: str | None = None
    """Before the address in the name of an auto-created expiry queue."""
    expiry_queue_suffix: str | None = None
    """After the address in the name of an auto-created expiry queue."""
    no_expiry: bool | None = None
    """true: messages lose their expiration on arrival; beats the three below."""
    expiry_delay: MillisecondsOrOff | None = None
    """The time to live of messages that come without one; -1: none."""
    min_expiry_delay: MillisecondsOrOff | None = None
    """The shortest time to live: a shorter one is raised to it; -1: no limit."""
    max_expiry_delay: MillisecondsOrOff | None = None
    """The longest time to live: a longer one, or none, is lowered to it; -1: no limit."""
    redelivery_delay: Milliseconds | None = None
    """How long a message waits after its first failed delivery; others flow meanwhile."""
    redelivery_delay_multiplier: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """What each further failure multiplies the delay by: above 1 it backs off."""
    redelivery_collision_avoidance_factor: Annotated[float, Field(ge=0, le=1)] | None = None
    """The part of the delay that is left to chance, so that messages that failed together do not return together."""
    max_redelivery_delay: MillisecondsOrOff | None = None
    """The longest delay; -1: ten times redelivery-delay."""
    max_delivery_attempts: Annotated[int, Field(ge=-1)] | None = None
    """Failed deliveries after which a message is dead; 0 or -1: it is tried for ever."""
    delivery_count_persistence: Persistence | None = None
    """on-return journals failed deliveries; strict also what leaves, so that a crash cannot hide a delivery."""
    persist_delivery_count_before_delivery: bool | None = None
    """Artemis's name for the same: true is delivery-count-persistence = "strict", false is "on-return"."""
    max_size_bytes: BytesOrUnlimited | None = None
    """Memory of the address's messages above which it is full; -1: no limit but global-max-size."""
    max_size_messages: Annotated[int, Field(ge=-1)] | None = None
    """Messages above which the address is full; -1: no limit."""
    address_full_policy: FullPolicy | None = None
    """For senders to a full address: BLOCK stops reading from them, FAIL is an error, DROP drops and counts."""
    default_queue_routing_type: Routing | None = None
    """The routing type of auto-created queues when the client names none."""
    default_address_routing_type: Routing | None = None
    """The routing type of auto-created addresses when the client names none."""
    auto_create_queues: bool | None = None
    """Make the queue that a client sends to or consumes from; false: that is an error."""
    auto_create_addresses: bool | None = None
    """Make the address that a client sends to or consumes from; false: that is an error."""
    auto_delete_queues: bool | None = None
    """Delete auto-created queues that are empty, were used, and have no consumer."""
    auto_delete_addresses: bool | None = None
    """Delete auto-created addresses that had a queue and have none."""
    auto_delete_queues_delay: Milliseconds | None = None
    """How long a queue must have been without consumers before it is deleted."""
    auto_delete_addresses_delay: Milliseconds | None = None
    """How long an address must have been without queues before it is deleted."""
    auto_delete_queues_message_count: Annotated[int, Field(ge=-1)] | None = None
    """Messages that a queue may still hold when it is deleted, and loses; -1: any number."""
    auto_delete_queues_skip_usage_check: bool | None = None
    """true: also queues that were never used."""
    auto_delete_addresses_skip_usage_check: bool | None = None
    """true: also addresses that never had a queue."""
    management_browse_page_size: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Messages that one page of browsing shows."""

    def fields(self) -> dict[str, object]:
        """What is set, by the engine's field names."""
        values: dict[str, object] = {
            name: value for name in SETTING_NAMES if (value := getattr(self, name)) is not None
        }
        if self.persist_delivery_count_before_delivery is not None:
            strict = self.persist_delivery_count_before_delivery
            persistence = DeliveryCountPersistence.STRICT if strict else DeliveryCountPersistence.ON_RETURN
            values.setdefault("delivery_count_persistence", persistence)
        return values


assert {kebab(name) for name in SETTING_NAMES}.isdisjoint(REFUSED_SETTINGS)
