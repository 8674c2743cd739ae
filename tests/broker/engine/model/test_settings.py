"""The two formulas of address settings: redelivery delay and expiration."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.engine.model.settings import SETTINGS, AddressSettings, DeliveryCountPersistence, ExpirySource, from_mapping

NOW = 1_000_000


def delays(count: int, **values: object) -> list[int]:
    settings = from_mapping(values)
    return [settings.delay_before_redelivery(n, Random(1)) for n in range(1, count + 1)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, [0, 0, 0]),
        ({"redelivery_delay": 5000}, [5000, 5000, 5000]),
        # as ActiveMQ Artemis has it
        (
            {"redelivery_delay": 1000, "redelivery_delay_multiplier": 2.0, "max_redelivery_delay": 10_000},
            [1000, 2000, 4000, 8000, 10_000, 10_000],
        ),
        # as ActiveMQ Artemis has it
        (
            {"redelivery_delay": 5000, "redelivery_delay_multiplier": 1.5},
            [5000, 7500, 11_250, 16_875, 25_312, 37_968, 50_000, 50_000],
        ),
        # The example of the manuals: 5 s, doubled, at most 15 s.
        (
            {"redelivery_delay": 5000, "redelivery_delay_multiplier": 2.0, "max_redelivery_delay": 15_000},
            [5000, 10_000, 15_000, 15_000],
        ),
        ({"redelivery_delay": 100, "max_redelivery_delay": 0}, [0, 0]),
        ({"redelivery_delay": 1000, "redelivery_delay_multiplier": 0.5}, [1000, 500, 250, 125, 62]),
        ({"redelivery_delay_multiplier": 2.0, "max_redelivery_delay": 10}, [0, 0]),
    ],
)
def test_the_delay_before_a_redelivery(values: dict[str, object], expected: list[int]) -> None:
    assert delays(len(expected), **values) == expected


def test_a_message_that_failed_a_million_times_waits_for_the_cap() -> None:
    settings = AddressSettings(redelivery_delay=1000, redelivery_delay_multiplier=2.0)
    assert settings.delay_before_redelivery(1_000_000, Random(1)) == 10_000
    assert settings.delay_before_redelivery(0, Random(1)) == 1000


@given(st.integers(0, 1 << 32), st.integers(1, 20))
def test_the_cap_comes_after_the_jitter(seed: int, count: int) -> None:
    """ActiveMQ Artemis: delay 100, factor 0.5, max 120."""
    settings = AddressSettings(
        redelivery_delay=100, redelivery_collision_avoidance_factor=0.5, max_redelivery_delay=120
    )
    assert 50 <= settings.delay_before_redelivery(count, Random(seed)) <= 120


def test_the_jitter_goes_both_ways_and_uses_its_whole_range() -> None:
    settings = AddressSettings(redelivery_delay=1000, redelivery_collision_avoidance_factor=0.25)
    found = [settings.delay_before_redelivery(1, Random(seed)) for seed in range(500)]
    assert min(found) < 770
    assert max(found) > 1230
    assert all(750 <= delay <= 1250 for delay in found)


@pytest.mark.parametrize(
    ("values", "own", "expected", "source"),
    [
        ({}, 0, 0, ExpirySource.NONE),
        ({}, NOW + 5, NOW + 5, ExpirySource.OWN),
        ({}, NOW - 5, NOW - 5, ExpirySource.OWN),
        # as ActiveMQ Artemis has it
        ({"expiry_delay": 1000}, 0, NOW + 1000, ExpirySource.EXPIRY_DELAY),
        ({"expiry_delay": 1000}, NOW + 3_600_000, NOW + 3_600_000, ExpirySource.OWN),
        ({"expiry_delay": 0}, 0, NOW, ExpirySource.EXPIRY_DELAY),
        (
            {"expiry_delay": 1000, "min_expiry_delay": 2000, "max_expiry_delay": 3000},
            NOW + 1,
            NOW + 1,
            ExpirySource.OWN,
        ),
        ({"min_expiry_delay": 2000, "max_expiry_delay": 5000}, 0, NOW + 5000, ExpirySource.MAX_EXPIRY_DELAY),
        ({"min_expiry_delay": 2000, "max_expiry_delay": 5000}, NOW + 1000, NOW + 2000, ExpirySource.MIN_EXPIRY_DELAY),
        ({"min_expiry_delay": 2000, "max_expiry_delay": 5000}, NOW + 3000, NOW + 3000, ExpirySource.OWN),
        ({"min_expiry_delay": 2000, "max_expiry_delay": 5000}, NOW + 9000, NOW + 5000, ExpirySource.MAX_EXPIRY_DELAY),
        ({"min_expiry_delay": 2000}, 0, NOW + 2000, ExpirySource.MIN_EXPIRY_DELAY),
        ({"no_expiry": True}, NOW + 5, 0, ExpirySource.NONE),
        ({"no_expiry": True, "expiry_delay": 5, "max_expiry_delay": 5}, 0, 0, ExpirySource.NONE),
    ],
)
def test_the_expiration_on_arrival(values: dict[str, object], own: int, expected: int, source: ExpirySource) -> None:
    assert from_mapping(values).expiration(own, NOW) == (expected, source)


def test_strict() -> None:
    assert AddressSettings(delivery_count_persistence=DeliveryCountPersistence.STRICT).strict
    assert not AddressSettings().strict


def test_names() -> None:
    assert "max_delivery_attempts" in SETTINGS
    with pytest.raises(TypeError, match="colour"):
        from_mapping({"colour": 1})
