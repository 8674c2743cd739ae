"""The audit log: a line for what happens once, a number for what clients repeat; no disk delays its callers."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from broker.log import Log
from broker.security import audit_log
from broker.security.audit_log import LINES_WAITING_MAX, AuditLog
from broker.security.repeats import ORIGINS_MAX, PERIOD_MS, Repeats


class Audited:
    """A log with an audit log, and a clock."""

    def __init__(self, path: Path) -> None:
        self.now = 0
        self.path = path
        self.text = io.StringIO()
        self.log = Log("info", "console", self.text, monotonic=lambda: self.now)
        self.log.open_audit(path)

    def end_period(self) -> None:
        self.now += PERIOD_MS
        self.log.tell_suppressed()

    def lines(self) -> list[dict[str, str | int]]:
        assert self.log.audit is not None
        assert self.log.audit.flush()
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def codes(self) -> list[str | int]:
        return [line["code"] for line in self.lines()]


@pytest.fixture
def audited(tmp_path: Path) -> Iterator[Audited]:
    """A log with an audit log."""
    found = Audited(tmp_path / "audit")
    yield found
    found.log.open_audit(None)


def test_a_flood_of_refusals_is_a_line_and_a_number(audited: Audited) -> None:
    log = audited.log
    for n in range(5_000):
        log("access.denied", user="eve", client="c", permission="send", address=f"topic-{n}", queue="")
        log("management.denied", remote=f"10.0.0.1:{n}", method="GET", path="/api/v1/status")
        log("session.refused", client=f"c{n}", user="eve", owner="alice", remote=f"10.0.0.1:{n}")
    log("queue.created", queue="q", user="bob")
    audited.end_period()
    codes = ["access.denied", "management.denied", "session.refused"]
    assert audited.codes() == [*codes, "queue.created", *codes]
    denied, unknown, refused = audited.lines()[-3:]
    assert (denied["user"], denied["origin"], denied["more"]) == ("eve", "", 4_999)
    assert (unknown["user"], unknown["origin"], unknown["more"]) == ("", "10.0.0.1", 4_999)
    assert (refused["user"], refused["origin"], refused["more"]) == ("eve", "10.0.0.1", 4_999)
    log("access.denied", user="eve", client="c", permission="send", address="again", queue="")
    assert audited.lines()[-1]["address"] == "again", "another period begins"


def test_logins_of_one_user_in_a_loop_are_a_line_and_a_number(audited: Audited) -> None:
    for n in range(5_000):
        audited.log("login.accepted", remote=f"10.0.0.1:{n}", user="eve", how="password")
        audited.log("login.refused", remote=f"10.1.{n // 250}.{n % 250}:1", user=f"nobody{n}", reason="no such user")
    audited.log("login.accepted", remote="10.0.0.1:1", user="bob", how="password")
    audited.log("login.accepted", remote="10.0.0.2:1", user="eve", how="password")
    audited.end_period()
    accepted = [line for line in audited.lines() if line["code"] == "login.accepted"]
    assert [(line["user"], line.get("remote"), line.get("more")) for line in accepted] == [
        ("eve", "10.0.0.1:0", None),
        ("bob", "10.0.0.1:1", None),
        ("eve", "10.0.0.2:1", None),
        ("eve", None, 4_999),
    ], "whatever is refused meanwhile"
    assert len(audited.lines()) < 4 * ORIGINS_MAX


def test_origins_are_bounded_and_nothing_is_uncounted() -> None:
    repeats = Repeats()
    written = 0
    for n in range(10_000):
        fields: dict[str, str | int] = {"user": f"user{n}", "remote": f"10.0.{n // 250}.{n % 250}:1"}
        written += repeats.note("login.refused", fields, 0)
    assert written <= 2 * ORIGINS_MAX + 1
    assert repeats.is_over(PERIOD_MS)
    assert written + sum(int(fields["more"]) for _, fields in repeats.take()) == 10_000
    assert not repeats.is_over(2 * PERIOD_MS)


def test_a_disk_that_hangs_delays_nobody_and_lines_that_wait_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, begun = Event(), Event()
    emit = audit_log._File.emit

    def hanging(self: audit_log._File, record: logging.LogRecord) -> None:
        begun.set()
        assert hangs.wait(60)
        emit(self, record)

    monkeypatch.setattr(audit_log._File, "emit", hanging)
    failures: list[str] = []
    audit = AuditLog(tmp_path / "audit", failures.append)
    audit.write("", "queue.created", {"n": -1})
    assert begun.wait(60)
    for n in range(LINES_WAITING_MAX + 3):
        audit.write("", "queue.created", {"n": n})
    assert len(failures) == 3, "these are in the log only"
    hangs.set()
    audit.close()
    lines = [json.loads(line)["n"] for line in (tmp_path / "audit").read_text().splitlines()]
    assert lines == list(range(-1, LINES_WAITING_MAX)), "in their order, and none is lost at the end"


def test_a_full_file_is_rotated_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    failures: list[str] = []
    audit = AuditLog(tmp_path / "audit", failures.append, bytes_max=1_000, files_max=2)
    for n in range(200):
        audit.write("", "queue.created", {"n": n})
    audit.close()
    files = sorted(tmp_path.iterdir(), reverse=True)
    assert [file.name for file in files] == ["audit.2", "audit.1", "audit"]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    numbers = [json.loads(line)["n"] for file in files for line in file.read_text().splitlines()]
    assert numbers == list(range(numbers[0], 200))
    assert failures == []


def test_lines_that_cannot_be_written_are_reported_and_later_ones_are_written(
    audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: audit_log._File, record: logging.LogRecord) -> bool:
        raise OSError("no space left on device")

    with monkeypatch.context() as planted:
        planted.setattr(audit_log._File, "shouldRollover", full)
        audited.log("queue.created", queue="lost", user="bob")
        assert audited.log.audit is not None
        assert audited.log.audit.flush()
    assert audited.log.counts["audit.failed"] == 1
    assert "cannot be written" in audited.text.getvalue()
    audited.log("queue.created", queue="there", user="bob")
    assert [line["queue"] for line in audited.lines()] == ["there"]
