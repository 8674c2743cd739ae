"""Attributes of queues in the configuration: every one, its limits, and the defaults by address settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.config import ConfigError, load
from broker.config.addresses import AddressSetting, Queue
from broker.engine.model.attributes import FIELDS, NUMBER_MAX


def test_the_configuration_knows_every_attribute() -> None:
    assert set(FIELDS) <= set(Queue.model_fields)
    numbers = ("max_consumers", "ring_size", "group_buckets")
    requested: dict[str, object] = {name: 2 if name in numbers else True for name in FIELDS}
    requested |= {
        "last_value_key": "k",
        "group_first_key": "f",
        "consumers_before_dispatch": 3,
        "delay_before_dispatch": 5,
    }
    values = {name.replace("_", "-"): value for name, value in requested.items()}
    assert Queue.model_validate({"routing-type": "ANYCAST", **values}).requested() == requested


def test_unset_attributes_are_not_requested() -> None:
    assert Queue.model_validate({"routing-type": "ANYCAST"}).requested() == {}
    assert Queue.model_validate({"routing-type": "ANYCAST", "enabled": False}).requested() == {"enabled": False}


@pytest.mark.parametrize(
    ("setting", "fits", "too_much"),
    [
        ("max-consumers", [-1, 0, NUMBER_MAX], [-2, NUMBER_MAX + 1]),
        ("ring-size", [-1, 1, NUMBER_MAX], [-2, 0, NUMBER_MAX + 1]),
        ("group-buckets", [-1, 0, NUMBER_MAX], [-2, NUMBER_MAX + 1]),
        ("consumers-before-dispatch", [0, NUMBER_MAX], [-1, NUMBER_MAX + 1]),
        ("delay-before-dispatch", [-1, 0, "5s"], [-2]),
        ("last-value-key", ["", "k" * 255], ["k" * 256]),
    ],
)
def test_limits(setting: str, fits: list[object], too_much: list[object]) -> None:
    for value in fits:
        Queue.model_validate({"routing-type": "ANYCAST", setting: value})
        AddressSetting.model_validate({"match": "#", f"default-{setting}": value})
    for value in too_much:
        with pytest.raises(ValueError, match=setting):
            Queue.model_validate({"routing-type": "ANYCAST", setting: value})
        with pytest.raises(ValueError, match=setting):
            AddressSetting.model_validate({"match": "#", f"default-{setting}": value})


def test_the_old_name_of_last_value_queues() -> None:
    """The seeds' 4.17: last-value-queue of two matches, of which the more specific one wins."""
    assert AddressSetting.model_validate({"match": "#", "last-value-queue": True}).fields() == {
        "default_last_value_queue": True
    }
    both = {"match": "#", "last-value-queue": True, "default-last-value-queue": False}
    assert AddressSetting.model_validate(both).fields() == {"default_last_value_queue": False}


def test_a_file_with_kinds_of_queues(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text(
        '[addresses."my.address".queues.prices1]\nrouting-type = "MULTICAST"\nlast-value-key = "stock_ticker"\n'
        '[addresses.myRing.queues.myRing]\nrouting-type = "ANYCAST"\nring-size = 5\n'
        '[[address-settings]]\nmatch = "ring.#"\ndefault-ring-size = 3\n'
    )
    config = load(path)
    assert config.addresses["my.address"].queues["prices1"].requested() == {"last_value_key": "stock_ticker"}
    path.write_text(path.read_text().replace("ring-size = 5", "ring-size = 0"))
    with pytest.raises(ConfigError, match="a ring of 0 would lose every message"):
        load(path)
