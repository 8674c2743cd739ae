"""`make demo` notices when the books do not balance; what it tells, test_readme.py sees."""

from __future__ import annotations

from typing import Any

import pytest

from demo.__main__ import _agrees, _fate, _print_balance
from demo.orders import Order

Where = list[tuple[str, dict[str, Any]]]


@pytest.mark.parametrize(
    ("consumed", "where", "fate"),
    [
        (True, [], "consumed"),
        (False, [("orders", {})], "waiting"),
        (False, [("ExpiryQueue", {})], "expired"),
        (False, [("DLQ", {"_AMQ_DL_REASON": "rejected"})], "dead: rejected"),
        (False, [], "LOST"),
        (True, [("orders", {})], "DOUBLED"),
        (False, [("orders", {}), ("DLQ", {})], "DOUBLED"),
    ],
)
def test_the_balance(consumed: bool, where: Where, fate: str) -> None:
    order = Order(1, "tea", consumed=consumed, deliveries=["first"])
    assert _fate(order, where)[0] == fate
    assert _print_balance([order], {1: where}) is not fate.isupper()


@pytest.mark.parametrize(
    ("status", "consumed", "present", "right"), [(0, 1, 1, True), (4, 1, 1, False), (0, 2, 1, False), (0, 1, 0, False)]
)
def test_the_journal_has_the_last_word(status: int, consumed: int, present: int, right: bool) -> None:
    orders = [Order(1, "tea", consumed=True), Order(2, "coffee")]
    assert _agrees({"status": status, "summary": {"consumed": consumed, "present": present}}, orders) is right
