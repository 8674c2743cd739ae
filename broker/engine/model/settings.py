"""The settings of an address, merged from everything that matches it.

Names and defaults are Artemis's.  A setting is a row here, from which everything else about it is made (`row`): to add
one, add its row, and read it where it takes effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import IntEnum, StrEnum
from random import Random
from typing import Final

from broker.engine.model.attributes import ATTRIBUTES, PLAIN, SETTING_OF, QueueAttributes, with_requested
from broker.engine.model.message import RoutingType
from broker.engine.model.row import Described, duration, kebab, row, rows, size


class AddressFullPolicy(StrEnum):
    """What happens to a sender when an address is at its size limit."""

    BLOCK = "BLOCK"
    DROP = "DROP"
    FAIL = "FAIL"
    PAGE = "PAGE"


class PageFullPolicy(StrEnum):
    """What happens to a sender when an address is at its page limits on disk; OFF: there are none."""

    OFF = "OFF"
    DROP = "DROP"
    FAIL = "FAIL"


class DeliveryCountPersistence(StrEnum):
    """When a delivery is journalled: once it has failed, or before its first byte is sent."""

    ON_RETURN = "on-return"
    STRICT = "strict"


class ConfigDelete(StrEnum):
    """What happens to something that was removed from the configuration."""

    OFF = "OFF"
    FORCE = "FORCE"


class SlowConsumerPolicy(StrEnum):
    """What happens to a consumer that is too slow."""

    NOTIFY = "NOTIFY"
    KILL = "KILL"


class SlowConsumerUnit(StrEnum):
    """What slow-consumer-threshold counts."""

    MESSAGES_PER_SECOND = "MESSAGES_PER_SECOND"
    MESSAGES_PER_MINUTE = "MESSAGES_PER_MINUTE"
    MESSAGES_PER_HOUR = "MESSAGES_PER_HOUR"
    MESSAGES_PER_DAY = "MESSAGES_PER_DAY"


class ExpirySource(IntEnum):
    """Which rule gave a message its expiration; the values are those in the journal."""

    NONE = 0
    OWN = 1
    EXPIRY_DELAY = 2
    MIN_EXPIRY_DELAY = 3
    MAX_EXPIRY_DELAY = 4


@dataclass(frozen=True, slots=True)
class AddressSettings:
    """The settings of one address; times in milliseconds, sizes in bytes, -1 means off or unlimited."""

    dead_letter_address: str | None = row(
        None,
        "Where dead messages go, after max-delivery-attempts failures; empty: they are removed and logged.",
    )
    auto_create_dead_letter_resources: bool = row(
        False, "Create a dead-letter queue for each address whose messages die, named prefix + address + suffix."
    )
    dead_letter_queue_prefix: str = row("DLQ.", "Prefix in the name of an auto-created dead-letter queue.")
    dead_letter_queue_suffix: str = row("", "Suffix in the name of an auto-created dead-letter queue.")
    expiry_address: str | None = row(
        None, "Where expired messages go; empty: they are removed, even if a less specific match has an expiry address."
    )
    auto_create_expiry_resources: bool = row(
        False, "Create an expiry queue for each address whose messages expire, named prefix + address + suffix."
    )
    expiry_queue_prefix: str = row("EXP.", "Prefix in the name of an auto-created expiry queue.")
    expiry_queue_suffix: str = row("", "Suffix in the name of an auto-created expiry queue.")
    no_expiry: bool = row(
        False, "true: messages lose their expiration on arrival; takes precedence over the three below."
    )
    expiry_delay: int = duration(-1, "The time to live of messages that arrive without one; -1: none.")
    min_expiry_delay: int = duration(-1, "The shortest time to live: a shorter one is raised to it; -1: no limit.")
    max_expiry_delay: int = duration(
        -1, "The longest time to live: a longer one, or none, is lowered to it; -1: no limit."
    )
    redelivery_delay: int = duration(
        0, "How long a message waits after its first failed delivery; other messages do not wait for it.", low=0
    )
    redelivery_delay_multiplier: float = row(
        1.0, "Each further failure multiplies the delay by this; above 1, delays grow.", low=0
    )
    redelivery_collision_avoidance_factor: float = row(
        0.0,
        "The random part of the delay, so that messages that failed together do not return together.",
        low=0,
        high=1,
    )
    max_redelivery_delay: int = duration(-1, "The longest delay; -1: ten times redelivery-delay.")
    max_delivery_attempts: int = row(
        10, "Failed deliveries after which a message dies; 0 or -1: it never dies.", low=-1
    )
    delivery_count_persistence: DeliveryCountPersistence = row(
        DeliveryCountPersistence.ON_RETURN,
        "on-return: journal failed deliveries; strict: also deliveries before they leave, so that a crash hides none.",
    )
    max_size_bytes: int = size(-1, "Memory of its messages above which the address is full; -1: only global-max-size.")
    max_size_messages: int = row(-1, "Messages above which the address is full; -1: no limit.", low=-1)
    max_size_bytes_reject_threshold: int = size(
        -1, "Memory above which a full address with BLOCK refuses messages of senders that do not stop; -1: never."
    )
    address_full_policy: AddressFullPolicy = row(
        AddressFullPolicy.PAGE,
        "At a full address: BLOCK stops reading from senders, FAIL refuses, DROP drops and counts, PAGE keeps on disk.",
    )
    max_read_page_bytes: int = size(
        20 << 20, "Memory for paged messages of one queue that were read back and are not yet acknowledged.", low=1
    )
    max_read_page_messages: int = row(-1, "The same as a number of messages; -1: only the limit in bytes.", low=-1)
    page_limit_bytes: int = size(
        -1, "Disk space of an address's paged messages above which page-full-policy applies; -1: no limit."
    )
    page_limit_messages: int = row(
        -1, "The same as a number of messages; a message counts once for each queue.", low=-1
    )
    page_full_policy: PageFullPolicy = row(
        PageFullPolicy.OFF,
        "At an address beyond its page limits: DROP drops and counts, FAIL refuses; OFF: no page limits.",
    )
    #: Each attribute is a setting (SETTING_OF).
    queue_attributes: QueueAttributes = PLAIN
    default_queue_routing_type: RoutingType = row(
        RoutingType.MULTICAST, "The routing type of auto-created queues if the client names none."
    )
    default_address_routing_type: RoutingType = row(
        RoutingType.MULTICAST, "The routing type of auto-created addresses if the client names none."
    )
    auto_create_queues: bool = row(
        True, "Create the queue that a client sends to or consumes from; false: the client is refused."
    )
    auto_create_addresses: bool = row(
        True, "Create the address that a client sends to or consumes from; false: the client is refused."
    )
    auto_delete_queues: bool = row(True, "Delete auto-created queues that were used, are empty, and have no consumer.")
    auto_delete_addresses: bool = row(
        True, "Delete auto-created addresses that were used, have no queue, and have no message on any queue."
    )
    auto_delete_queues_delay: int = duration(
        0, "How long a queue must have been without consumers before it is deleted.", low=0
    )
    auto_delete_addresses_delay: int = duration(
        0, "How long an address must have been without queues before it is deleted.", low=0
    )
    auto_delete_queues_message_count: int = row(
        0, "Messages that a queue may still hold, and loses, when it is deleted; -1: any number.", low=-1
    )
    auto_delete_queues_skip_usage_check: bool = row(False, "true: also delete queues that were never used.")
    auto_delete_addresses_skip_usage_check: bool = row(
        False, "true: also delete addresses that never had a queue and to which nothing was sent."
    )
    auto_delete_created_queues: bool = row(
        False,
        "true: also delete queues that an operator or a client created by name; never those of the configuration.",
    )
    config_delete_queues: ConfigDelete = row(
        ConfigDelete.OFF, "FORCE: delete queues removed from the configuration, with their messages; OFF: keep them."
    )
    config_delete_addresses: ConfigDelete = row(
        ConfigDelete.OFF, "FORCE: delete addresses removed from the configuration, with their queues; OFF: keep them."
    )
    config_delete_diverts: ConfigDelete = row(
        ConfigDelete.OFF, "FORCE: delete diverts removed from the configuration; OFF: keep them."
    )
    id_cache_size: int = row(
        20_000,
        "Duplicate ids (_AMQ_DUPL_ID) that an address remembers, to refuse a second message with one; 0: none.",
        low=0,
        high=1_000_000,
    )
    send_to_dla_on_no_route: bool = row(
        False, "true: messages that no queue takes go to the dead-letter address; false: they are dropped and counted."
    )
    enable_ingress_timestamp: bool = row(
        False,
        "true: each message carries its time of arrival: header ingress-timestamp, annotation x-opt-ingress-time.",
    )
    enable_metrics: bool = row(True, "false: the address's queues have no metrics of their own, but count in totals.")
    retroactive_message_count: int = row(
        0, "How many of the address's last messages a new queue gets; 0: none.", low=0, high=1_000_000
    )
    slow_consumer_threshold: int = row(
        -1, "A busy consumer is slow if it acknowledges fewer messages than this per unit; -1: none is slow.", low=-1
    )
    slow_consumer_threshold_measurement_unit: SlowConsumerUnit = row(
        SlowConsumerUnit.MESSAGES_PER_SECOND, "The unit of slow-consumer-threshold."
    )
    slow_consumer_check_period: int = duration(
        5_000, "How often slow consumers are looked for; in Artemis this is in seconds, here a duration.", low=1_000
    )
    slow_consumer_policy: SlowConsumerPolicy = row(
        SlowConsumerPolicy.NOTIFY,
        "NOTIFY: report a slow consumer; KILL: also close it, over STOMP with its connection.",
    )
    management_message_attribute_size_limit: int = row(
        256, "Characters of a property that browsing shows; -1: all.", low=-1, high=1_000_000
    )
    management_browse_page_size: int = row(200, "Messages on one page of browsing.", low=1, high=10_000)

    @property
    def strict(self) -> bool:
        """Whether deliveries are journalled before they leave."""
        return self.delivery_count_persistence is DeliveryCountPersistence.STRICT

    def expiration(self, own: int, now: int) -> tuple[int, ExpirySource]:
        """The expiration of an arriving message, by the rules of ActiveMQ Artemis.

        `own` is the one its sender set (0: none).  Precedence: no-expiry, then expiry-delay for messages without one,
        then min and max.
        """
        if self.no_expiry:
            return 0, ExpirySource.NONE
        if self.expiry_delay >= 0:
            return (own, ExpirySource.OWN) if own else (now + self.expiry_delay, ExpirySource.EXPIRY_DELAY)
        if not own:
            if self.max_expiry_delay >= 0:
                return now + self.max_expiry_delay, ExpirySource.MAX_EXPIRY_DELAY
            if self.min_expiry_delay >= 0:
                return now + self.min_expiry_delay, ExpirySource.MIN_EXPIRY_DELAY
            return 0, ExpirySource.NONE
        if self.min_expiry_delay >= 0 and own < now + self.min_expiry_delay:
            return now + self.min_expiry_delay, ExpirySource.MIN_EXPIRY_DELAY
        if self.max_expiry_delay >= 0 and own > now + self.max_expiry_delay:
            return now + self.max_expiry_delay, ExpirySource.MAX_EXPIRY_DELAY
        return own, ExpirySource.OWN

    @property
    def redelivery_delay_max(self) -> int:
        """The longest that a message waits for its redelivery, in ms."""
        return self.max_redelivery_delay if self.max_redelivery_delay >= 0 else 10 * self.redelivery_delay

    def delay_before_redelivery(self, count: int, random: Random) -> int:
        """How long a message waits after its `count`-th failed delivery, in ms.

        The cap is applied after the jitter, so it is never exceeded.
        """
        if self.redelivery_delay <= 0:
            return 0
        cap = self.redelivery_delay_max
        try:
            delay = int(self.redelivery_delay * self.redelivery_delay_multiplier ** (max(count, 1) - 1))
        except OverflowError:  # a large multiplier and a message that has failed hundreds of times
            delay = cap
        if self.redelivery_collision_avoidance_factor > 0:
            sign = 1 if random.random() < 0.5 else -1
            delay = int(delay + delay * sign * self.redelivery_collision_avoidance_factor * random.random())
        return min(delay, cap)


def _all_rows() -> dict[str, Described]:
    own = rows(AddressSettings)
    found: dict[str, Described] = {}
    for each in fields(AddressSettings):
        if each.name in own:
            found[each.name] = own[each.name]
            continue
        for attribute, name in SETTING_OF.items():
            _, type, default, row = ATTRIBUTES[attribute]
            none = "; empty: none" if type is str else ""
            why = f"Default {kebab(attribute)} of queues{none}."
            found[name] = Described(name, type, default, replace(row, why=why))
    return found


#: Every setting of an address by field name, including those for the attributes of queues.
SETTINGS: Final = _all_rows()

_ATTRIBUTE_OF: Final = {setting: attribute for attribute, setting in SETTING_OF.items()}


def from_mapping(values: Mapping[str, object]) -> AddressSettings:
    """Settings from merged values by name.  Raises TypeError on an unknown name."""
    own = {name: value for name, value in values.items() if name not in _ATTRIBUTE_OF}
    attributes = {_ATTRIBUTE_OF[name]: value for name, value in values.items() if name in _ATTRIBUTE_OF}
    return AddressSettings(**own, queue_attributes=with_requested(PLAIN, attributes))  # type: ignore[arg-type]


def as_mapping(settings: AddressSettings) -> dict[str, object]:
    """The inverse of `from_mapping`."""
    attributes = settings.queue_attributes
    return {
        name: getattr(attributes, _ATTRIBUTE_OF[name]) if name in _ATTRIBUTE_OF else getattr(settings, name)
        for name in SETTINGS
    }
