"""`make demo` notices when the books do not balance; what it tells, test_readme.py sees."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from demo.__main__ import SETTINGS, _agrees, _fate, _look_around, _print_balance
from demo.broker import Broker
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


def test_its_broker_can_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "broker.toml"
    config.write_text(SETTINGS)
    broker = Broker(tmp_path / "data", config)
    broker.start()
    try:
        monkeypatch.setattr("builtins.input", lambda: _logged_in(capsys.readouterr().out))
        _look_around(broker)
    finally:
        broker.end(signal.SIGTERM)


def _logged_in(said: str) -> str:
    """Whoever was told so opens the console and logs in."""
    (url,), (token,) = re.findall(r"http://\S+", said), re.findall(r"token (\S+)", said)
    with httpx.Client(follow_redirects=True, trust_env=False) as browser:
        form = browser.get(url)
        fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form.text))
        page = browser.post(form.url, data={**fields, "user": "", "password": token})
        assert page.url == url
        assert "Dead letters" in page.text
    return ""
