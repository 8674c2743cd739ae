"""Refusals in the audit log: however many there are, few lines, and none uncounted."""

from __future__ import annotations

import io
import json
from pathlib import Path

from broker.log import Log
from broker.security.audit_log import AuditLog
from broker.security.refusals import ORIGINS_MAX, PERIOD_MS, Refusals


def test_a_flood_is_a_line_and_a_number(tmp_path: Path) -> None:
    now = 0
    log = Log("info", "console", io.StringIO(), monotonic=lambda: now)
    log.audit = AuditLog(tmp_path / "audit")
    for n in range(5_000):
        log("access.denied", user="eve", client="c", permission="send", address=f"topic-{n}", queue="")
        log("management.denied", remote=f"10.0.0.1:{n}", method="GET", path="/api/v1/status")
    for n in range(3):
        log("login.accepted", remote=f"10.0.0.1:{n}", user="bob", how="password")
    now = PERIOD_MS
    log.tell_suppressed()
    lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert [line["code"] for line in lines] == [
        "access.denied",
        "management.denied",
        *["login.accepted"] * 3,
        "access.denied",
        "management.denied",
    ]
    denied, unknown = lines[-2:]
    assert (denied["user"], denied["origin"], denied["more"]) == ("eve", "", 4_999)
    assert (unknown["user"], unknown["origin"], unknown["more"]) == ("", "10.0.0.1", 4_999)
    log("access.denied", user="eve", client="c", permission="send", address="again", queue="")
    assert "again" in (tmp_path / "audit").read_text(), "another period begins"
    log.audit.close()


def test_origins_are_bounded_and_nothing_is_uncounted() -> None:
    refusals = Refusals()
    written = 0
    for n in range(10_000):
        fields: dict[str, str | int] = {"user": f"user{n}", "remote": f"10.0.{n // 250}.{n % 250}:1"}
        written += refusals.note("login.refused", fields, 0)
    assert written <= 2 * ORIGINS_MAX + 1
    assert refusals.is_over(PERIOD_MS)
    assert written + sum(int(fields["more"]) for _, fields in refusals.take()) == 10_000
    assert not refusals.is_over(2 * PERIOD_MS)
