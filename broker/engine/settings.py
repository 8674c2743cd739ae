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

from broker.engine.message import RoutingType


class AddressFullPolicy(StrEnum):
    """What happens to a sender when an address holds as much as it may."""

    BLOCK = "BLOCK"
    DROP = "DROP"
    FAIL = "FAIL"


class DeliveryCountPersistence(StrEnum):
    """When a delivery is journalled: as it comes back, or before its first byte leaves."""

    ON_RETURN = "on-return"
    STRICT = "strict"


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
    # Artemis's PAGE needs paging; until then a full address stops its producers, which loses nothing either.
    address_full_policy: AddressFullPolicy = AddressFullPolicy.BLOCK
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
    management_browse_page_size: int = 200

    @property
    def strict(self) -> bool:
        """Whether deliveries are journalled before they leave."""
        return self.delivery_count_persistence is DeliveryCountPersistence.STRICT

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

    def delay_before_redelivery(self, count: int, random: Random) -> int:
        """How long a message waits after its `count`-th failed delivery, in ms.

        The cap is applied after the jitter, so it is never exceeded.
        """
        if self.redelivery_delay <= 0:
            return 0
        cap = self.max_redelivery_delay if self.max_redelivery_delay >= 0 else 10 * self.redelivery_delay
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
