"""How much an address holds, and when it is full."""

from __future__ import annotations

import pytest

from broker.engine.model.message import RoutingType
from broker.engine.model.settings import AddressSettings
from broker.engine.queues.address import Address
from tests.broker.engine.queues.parts import message


@pytest.mark.parametrize(
    ("limits", "count", "full"),
    [
        ({}, 1000, False),
        ({"max_size_messages": 3}, 2, False),
        ({"max_size_messages": 3}, 3, True),
        ({"max_size_messages": 0}, 0, True),
        ({"max_size_bytes": 1000}, 2, False),
        ({"max_size_bytes": 1000}, 4, True),
        ({"max_size_bytes": -1, "max_size_messages": -1}, 1000, False),
    ],
)
def test_full(limits: dict[str, int], count: int, full: bool) -> None:
    address = Address(1, "a", {RoutingType.ANYCAST}, AddressSettings(**limits))  # type: ignore[arg-type]
    messages = [message(n) for n in range(count)]
    assert address.charge(messages) == sum(m.size for m in messages)
    assert address.size_messages == count
    assert address.full is full
