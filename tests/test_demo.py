"""`make demo` tells its story, and notices when the books do not balance."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from demo.__main__ import _fate, _print_balance
from demo.orders import Order

ROOT = Path(__file__).parents[1]


def test_the_story(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    result = subprocess.run([sys.executable, "-m", "demo"], cwd=ROOT, capture_output=True, text=True, timeout=20)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    told = result.stdout
    assert "Marked as redelivered: yes" in told
    assert "consumed, after the crash" in told
    assert "customer 4711 is unknown" in told
    balance = re.search(r"(\d+) sent = (\d+) consumed \+ (\d+) dead letters \+ (\d+) expired \+ (\d+) waiting", told)
    assert balance is not None
    sent, *fates = map(int, balance.groups())
    assert sent == sum(fates)
    assert min(fates) > 0


Where = list[tuple[str, dict[str, Any]]]


@pytest.mark.parametrize(
    ("consumed", "where", "fate"),
    [
        (True, [], "consumed"),
        (False, [("orders", {})], "waiting"),
        (False, [("ExpiryQueue", {})], "expired"),
        (False, [("DLQ", {"_AMQ_DL_REASON": "rejected"})], "dead letter: rejected"),
        (False, [], "LOST"),
        (True, [("orders", {})], "DOUBLED"),
        (False, [("orders", {}), ("DLQ", {})], "DOUBLED"),
    ],
)
def test_the_balance(consumed: bool, where: Where, fate: str) -> None:
    order = Order(1, "tea", consumed=consumed, deliveries=["first"])
    assert _fate(order, where)[0] == fate
    assert _print_balance([order], {1: where}) == int(fate.isupper())
