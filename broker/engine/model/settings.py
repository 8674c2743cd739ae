"""What an address is told to do: the merged settings of everything that matches it.

Names and defaults are Artemis's; where Bartleby differs the comment says so.  The defaults
here are the only ones: the configuration model takes them from this class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import IntEnum, StrEnum
from random import Random
from typing import Final

from broker.engine.model.attributes import QueueAttributes
from broker.engine.model.message import RoutingType


class AddressFullPolicy(StrEnum):
    """What happens to a sender when an address holds as much as it may."""

    BLOCK = "BLOCK"
    DROP = "DROP"
    FAIL = "FAIL"
    PAGE = "PAGE"


class PageFullPolicy(StrEnum):
    """What happens to a sender when an address has as much on disk as it may; OFF: it may have any amount."""

    OFF = "OFF"
    DROP = "DROP"
    FAIL = "FAIL"


class DeliveryCountPersistence(StrEnum):
    """When a delivery is journalled: as it comes back, or before its first byte leaves."""

    ON_RETURN = "on-return"
    STRICT = "strict"


class ConfigDelete(StrEnum):
    """What becomes of something that the configuration had and no longer has."""

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

    dead_letter_address: str | None = None
    auto_create_dead_letter_resources: bool = False
    dead_letter_queue_prefix: str = "DLQ."
    dead_letter_queue_suffix: str = ""
    expiry_address: str | None = None
    auto_create_expiry_resources: bool = False
    expiry_queue_prefix: str = "EXP."
    expiry_queue_suffix: str = ""
    no_expiry: bool = False
    expiry_delay: int = -1
    min_expiry_delay: int = -1
    max_expiry_delay: int = -1
    redelivery_delay: int = 0
    redelivery_delay_multiplier: float = 1.0
    redelivery_collision_avoidance_factor: float = 0.0
    max_redelivery_delay: int = -1
    max_delivery_attempts: int = 10
    delivery_count_persistence: DeliveryCountPersistence = DeliveryCountPersistence.ON_RETURN
    max_size_bytes: int = -1
    max_size_messages: int = -1
    default_last_value_queue: bool = False
    default_last_value_key: str = ""
    default_non_destructive: bool = False
    default_exclusive_queue: bool = False
    default_max_consumers: int = -1
    default_purge_on_no_consumers: bool = False
    default_ring_size: int = -1
    default_consumers_before_dispatch: int = 0
    default_delay_before_dispatch: int = -1
    default_group_rebalance: bool = False
    default_group_rebalance_pause_dispatch: bool = False
    default_group_buckets: int = -1
    default_group_first_key: str = ""
    max_size_bytes_reject_threshold: int = -1
    address_full_policy: AddressFullPolicy = AddressFullPolicy.PAGE
    max_read_page_bytes: int = 20 << 20
    max_read_page_messages: int = -1
    page_limit_bytes: int = -1
    page_limit_messages: int = -1
    page_full_policy: PageFullPolicy = PageFullPolicy.OFF
    default_queue_routing_type: RoutingType = RoutingType.MULTICAST
    default_address_routing_type: RoutingType = RoutingType.MULTICAST
    auto_create_queues: bool = True
    auto_create_addresses: bool = True
    auto_delete_queues: bool = True
    auto_delete_addresses: bool = True
    auto_delete_queues_delay: int = 0
    auto_delete_addresses_delay: int = 0
    auto_delete_queues_message_count: int = 0
    auto_delete_queues_skip_usage_check: bool = False
    auto_delete_addresses_skip_usage_check: bool = False
    auto_delete_created_queues: bool = False
    config_delete_queues: ConfigDelete = ConfigDelete.OFF
    config_delete_addresses: ConfigDelete = ConfigDelete.OFF
    config_delete_diverts: ConfigDelete = ConfigDelete.OFF
    id_cache_size: int = 20_000
    send_to_dla_on_no_route: bool = False
    enable_ingress_timestamp: bool = False
    enable_metrics: bool = True
    retroactive_message_count: int = 0
    slow_consumer_threshold: int = -1
    slow_consumer_threshold_measurement_unit: SlowConsumerUnit = SlowConsumerUnit.MESSAGES_PER_SECOND
    slow_consumer_check_period: int = 5_000
    slow_consumer_policy: SlowConsumerPolicy = SlowConsumerPolicy.NOTIFY
    management_message_attribute_size_limit: int = 256
    management_browse_page_size: int = 200

    @property
    def strict(self) -> bool:
        """Whether deliveries are journalled before they leave."""
        return self.delivery_count_persistence is DeliveryCountPersistence.STRICT

    @property
    def queue_attributes(self) -> QueueAttributes:
        """What a queue of such an address is like when it is made and nobody asks for anything else."""
        return QueueAttributes(
            last_value=self.default_last_value_queue,
            last_value_key=self.default_last_value_key,
            non_destructive=self.default_non_destructive,
            exclusive=self.default_exclusive_queue,
            max_consumers=self.default_max_consumers,
            purge_on_no_consumers=self.default_purge_on_no_consumers,
            ring_size=self.default_ring_size,
            consumers_before_dispatch=self.default_consumers_before_dispatch,
            delay_before_dispatch=self.default_delay_before_dispatch,
            group_rebalance=self.default_group_rebalance,
            group_rebalance_pause_dispatch=self.default_group_rebalance_pause_dispatch,
            group_buckets=self.default_group_buckets,
            group_first_key=self.default_group_first_key,
        )

    def expiration(self, own: int, now: int) -> tuple[int, ExpirySource]:
        """The expiration a message gets on arrival, by the rules of ActiveMQ Artemis.

        `own` is the one it came with (0: none).  Precedence: no-expiry, then expiry-delay for messages without one,
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
        """No message waits longer for its redelivery, in ms."""
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


SETTING_NAMES: Final = frozenset(field.name for field in fields(AddressSettings))


def from_mapping(values: Mapping[str, object]) -> AddressSettings:
    """Settings from merged values by field name.  Raises TypeError on a name that is no setting."""
    return AddressSettings(**values)  # type: ignore[arg-type]
