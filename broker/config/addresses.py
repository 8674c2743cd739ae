"""The sections [addresses.NAME] and [[address-settings]]."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field

from broker.config.section import Section, kebab
from broker.config.units import Bytes, BytesOrUnlimited, Milliseconds, MillisecondsOrOff
from broker.engine.model.attributes import FIELDS, NUMBER_MAX, PROPERTY_NAME_CHARS_MAX
from broker.engine.model.message import RoutingType
from broker.engine.model.settings import (
    SETTING_NAMES,
    AddressFullPolicy,
    AddressSettings,
    ConfigDelete,
    DeliveryCountPersistence,
    PageFullPolicy,
    SlowConsumerPolicy,
    SlowConsumerUnit,
)

#: The default of every field of an address setting, by field name: the engine's own.
DEFAULTS: Final[dict[str, object]] = {name: getattr(AddressSettings(), name) for name in sorted(SETTING_NAMES)}


#: Artemis's address settings that Bartleby does not take, each with the reason.
REFUSED_SETTINGS: Final[dict[str, str]] = {
    "max-redelivery-records": "delivery counts are never forgotten, so there is nothing to set: remove it",
    "page-max-cache-size": "it has no meaning here, and none in Artemis any more: remove it",
    "page-size-bytes": "paged messages stay in the journal, whose files have journal.segment-size: remove it",
    "prefetch-page-messages": "what is read back is bounded by max-read-page-messages: remove it",
    "prefetch-page-bytes": "what is read back is bounded by max-read-page-bytes: remove it",
    "queue-prefetch": "a subscription has its window, stomp-consumer-window-size of its acceptor: remove it",
    "redistribution-delay": "a broker alone has nowhere to hand messages on to: remove it",
    "message-counter-history-day-limit": "whoever scrapes /metrics keeps the history: remove it",
    "default-consumer-window-size": "it is for the core protocol; of others the acceptor has the window: remove it",
    "auto-create-jms-queues": "an old name: give auto-create-queues and auto-create-addresses",
    "auto-create-jms-topics": "an old name: give auto-create-addresses",
    "auto-delete-jms-queues": "an old name: give auto-delete-queues",
    "auto-delete-jms-topics": "an old name: give auto-delete-addresses",
    "initial-queue-buffer-size": "queues here have no buffer of a fixed size: remove it",
    "disk-full-policy": "on a disk that is too full address-full-policy holds: remove it",
}


def _routing_type(value: object) -> object:
    if isinstance(value, str) and value in RoutingType.__members__:
        return RoutingType[value]
    raise ValueError('give "ANYCAST" or "MULTICAST"')


def _full_policy(value: object) -> object:
    return _word(AddressFullPolicy, value)


def _page_full_policy(value: object) -> object:
    return _word(PageFullPolicy, value)


def _persistence(value: object) -> object:
    return _word(DeliveryCountPersistence, value)


def _config_delete(value: object) -> object:
    return _word(ConfigDelete, value)


def _slow_policy(value: object) -> object:
    return _word(SlowConsumerPolicy, value)


def _slow_unit(value: object) -> object:
    return _word(SlowConsumerUnit, value)


def _ring_size(value: int) -> int:
    if value == 0:
        raise ValueError("a ring of 0 would lose every message: give at least 1, or -1 for no limit")
    return value


def _word(kind: type[StrEnum], value: object) -> StrEnum:
    if isinstance(value, str) and value in list(kind):
        return kind(value)
    raise ValueError(f"give one of {', '.join(json.dumps(word) for word in kind)}")


Routing = Annotated[RoutingType, BeforeValidator(_routing_type)]
FullPolicy = Annotated[AddressFullPolicy, BeforeValidator(_full_policy)]
PageFull = Annotated[PageFullPolicy, BeforeValidator(_page_full_policy)]
Deleting = Annotated[ConfigDelete, BeforeValidator(_config_delete)]
SlowPolicy = Annotated[SlowConsumerPolicy, BeforeValidator(_slow_policy)]
SlowUnit = Annotated[SlowConsumerUnit, BeforeValidator(_slow_unit)]
Persistence = Annotated[DeliveryCountPersistence, BeforeValidator(_persistence)]


PropertyName = Annotated[str, Field(max_length=PROPERTY_NAME_CHARS_MAX)]
Limit = Annotated[int, Field(ge=-1, le=NUMBER_MAX)]
Count = Annotated[int, Field(ge=0, le=NUMBER_MAX)]
RingSize = Annotated[Limit, AfterValidator(_ring_size)]


class Queue(Section):
    """A queue that exists from the start and is never deleted automatically."""

    routing_type: Routing
    """ANYCAST: each message to one consumer; MULTICAST: the queue is a subscription and gets its own copy."""
    durable: bool = True
    """false: queue and messages end with the broker."""
    filter: str = ""
    """Only messages that this selector fits come into the queue; empty: all."""
    last_value: bool | None = None
    """true: a message replaces the waiting one with the same key; without last-value-key that is _AMQ_LVQ_NAME."""
    last_value_key: PropertyName | None = None
    """The property by which messages replace each other; naming one makes the queue a last-value queue."""
    non_destructive: bool | None = None
    """true: each consumer gets every message, and none is removed by consuming it."""
    exclusive: bool | None = None
    """true: one consumer gets everything; the others wait for it to leave."""
    max_consumers: Limit | None = None
    """Consumers at a time; 0: nobody, -1: any number."""
    purge_on_no_consumers: bool | None = None
    """true: the queue takes messages only while it has consumers, and loses them with the last one."""
    ring_size: RingSize | None = None
    """Messages that may wait, beyond which the oldest leaves for each new one; -1: no limit."""
    consumers_before_dispatch: Count | None = None
    """Deliveries begin once there are so many consumers."""
    delay_before_dispatch: MillisecondsOrOff | None = None
    """Deliveries begin so long after the first consumer came, though there be too few; -1: never for that."""
    group_rebalance: bool | None = None
    """true: when a consumer comes, all message groups are dealt out anew."""
    group_rebalance_pause_dispatch: bool | None = None
    """true: and only when nothing is in delivery any more."""
    group_buckets: Limit | None = None
    """Message groups are hashed into so many; 0: groups mean nothing, -1: each is one of its own."""
    group_first_key: PropertyName | None = None
    """The property that is true on the first message of a group that a consumer gets."""
    enabled: bool | None = None
    """false: no new messages enter, and those that are there can be consumed; unset: as an operator left it."""

    def asked(self) -> dict[str, object]:
        """The attributes that are set, by the engine's field names."""
        return {name: value for name in FIELDS if (value := getattr(self, name)) is not None}


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
    max_size_bytes_reject_threshold: BytesOrUnlimited | None = None
    """Memory above which a full address with BLOCK refuses messages of senders that did not stop; -1: it never does."""
    address_full_policy: FullPolicy | None = None
    """Senders to a full address: BLOCK does not read from them, FAIL is an error, DROP drops and counts, PAGE pages."""
    max_read_page_bytes: Annotated[Bytes, Field(ge=1)] | None = None
    """Memory for paged messages of one queue that are read back and not yet delivered."""
    max_read_page_messages: Annotated[int, Field(ge=-1)] | None = None
    """The same in messages; -1: no limit but that in bytes."""
    page_limit_bytes: BytesOrUnlimited | None = None
    """Paged messages of an address on disk above which page-full-policy holds; -1: no limit."""
    page_limit_messages: Annotated[int, Field(ge=-1)] | None = None
    """The same in messages; a message counts once a queue."""
    page_full_policy: PageFull | None = None
    """Senders to an address beyond its page limits: DROP drops and counts, FAIL is an error; OFF: no such limits."""
    default_last_value_queue: bool | None = None
    """last-value of queues that do not say."""
    last_value_queue: bool | None = None
    """An old name of default-last-value-queue."""
    default_last_value_key: PropertyName | None = None
    """last-value-key of queues that do not say; empty: none."""
    default_non_destructive: bool | None = None
    """non-destructive of queues that do not say."""
    default_exclusive_queue: bool | None = None
    """exclusive of queues that do not say."""
    default_max_consumers: Limit | None = None
    """max-consumers of queues that do not say."""
    default_purge_on_no_consumers: bool | None = None
    """purge-on-no-consumers of queues that do not say."""
    default_ring_size: RingSize | None = None
    """ring-size of queues that do not say."""
    default_consumers_before_dispatch: Count | None = None
    """consumers-before-dispatch of queues that do not say."""
    default_delay_before_dispatch: MillisecondsOrOff | None = None
    """delay-before-dispatch of queues that do not say."""
    default_group_rebalance: bool | None = None
    """group-rebalance of queues that do not say."""
    default_group_rebalance_pause_dispatch: bool | None = None
    """group-rebalance-pause-dispatch of queues that do not say."""
    default_group_buckets: Limit | None = None
    """group-buckets of queues that do not say."""
    default_group_first_key: PropertyName | None = None
    """group-first-key of queues that do not say; empty: none."""
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
    """Delete auto-created addresses that were used, have no queue, and of which no queue holds a message."""
    auto_delete_queues_delay: Milliseconds | None = None
    """How long a queue must have been without consumers before it is deleted."""
    auto_delete_addresses_delay: Milliseconds | None = None
    """How long an address must have been without queues before it is deleted."""
    auto_delete_queues_message_count: Annotated[int, Field(ge=-1)] | None = None
    """Messages that a queue may still hold when it is deleted, and loses; -1: any number."""
    auto_delete_queues_skip_usage_check: bool | None = None
    """true: also queues that were never used."""
    auto_delete_addresses_skip_usage_check: bool | None = None
    """true: also addresses that never had a queue, and to which nothing was sent."""
    auto_delete_created_queues: bool | None = None
    """true: also queues that an operator or a client made by name; never those of the configuration."""
    config_delete_queues: Deleting | None = None
    """FORCE deletes queues that were in the configuration and no longer are, with their messages; OFF keeps them."""
    config_delete_addresses: Deleting | None = None
    """FORCE deletes addresses that were in the configuration and no longer are, with their queues; OFF keeps them."""
    config_delete_diverts: Deleting | None = None
    """FORCE deletes diverts that were in the configuration and no longer are; OFF keeps them."""
    id_cache_size: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Duplicate ids (_AMQ_DUPL_ID) that an address remembers: a second message with one is refused; 0: none."""
    send_to_dla_on_no_route: bool | None = None
    """true: what no queue takes goes to the dead-letter address; false: it is dropped and counted."""
    enable_ingress_timestamp: bool | None = None
    """true: each message is told when it arrived: header ingress-timestamp, annotation x-opt-ingress-time."""
    enable_metrics: bool | None = None
    """false: the address's queues have no metrics of their own; totals count them."""
    retroactive_message_count: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """The last messages of an address that a new queue gets; 0: none."""
    slow_consumer_threshold: Annotated[int, Field(ge=-1)] | None = None
    """Acknowledged messages in a unit below which a consumer with enough to do is slow; -1: none is."""
    slow_consumer_threshold_measurement_unit: SlowUnit | None = None
    """The unit of slow-consumer-threshold."""
    slow_consumer_check_period: Annotated[Milliseconds, Field(ge=1_000)] | None = None
    """How often consumers are looked at; Artemis writes seconds here, Bartleby a duration like everywhere."""
    slow_consumer_policy: SlowPolicy | None = None
    """NOTIFY tells of a slow consumer; KILL closes it, over STOMP with its connection."""
    management_message_attribute_size_limit: Annotated[int, Field(ge=-1, le=1_000_000)] | None = None
    """Characters of one property that browsing shows; -1: all."""
    management_browse_page_size: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Messages that one page of browsing shows."""

    def fields(self) -> dict[str, object]:
        """What is set, by the engine's field names."""
        values: dict[str, object] = {
            name: value for name in SETTING_NAMES if (value := getattr(self, name)) is not None
        }
        if self.last_value_queue is not None:
            values.setdefault("default_last_value_queue", self.last_value_queue)
        if self.persist_delivery_count_before_delivery is not None:
            strict = self.persist_delivery_count_before_delivery
            persistence = DeliveryCountPersistence.STRICT if strict else DeliveryCountPersistence.ON_RETURN
            values.setdefault("delivery_count_persistence", persistence)
        return values


assert {kebab(name) for name in SETTING_NAMES}.isdisjoint(REFUSED_SETTINGS)
