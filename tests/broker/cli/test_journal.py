"""`bartleby journal` on journals that a broker has written, whole, damaged and in use."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from store.manifest import MANIFEST, KeptSegment, kept_line
from store.record import RecordType
from tests.broker.cli.harness import Operator, invoke
from tests.broker.management.harness import Client, TestBroker, serve


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a broker that has ended."""

    async def fill(broker: TestBroker, client: Client) -> None:
        await broker.sent("orders", [b"first body", b"second"], headers=[(b"color", b"red")])
        broker.tick.enter()
        broker.engine.messages.purge(broker.queue("orders"))

    serve(tmp_path, fill)
    return tmp_path


@pytest.mark.parametrize("within", ["", "journal"])
def test_a_whole_journal_is_ok(data: Path, within: str) -> None:
    result = invoke("journal", "verify", str(data / within))
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split()[:2] == ["segment", "status"]
    assert lines[1].split()[:2] == ["1", "ok"]
    assert lines[-1] == "ok, closed cleanly"


def test_a_reader_that_has_read_enough(data: Path) -> None:
    """As in `bartleby journal print DIR | head`: nothing is wrong with the journal."""
    reader, writer = os.pipe()
    os.close(reader)
    run = [sys.executable, "-m", "broker", "journal", "print", str(data)]
    result = subprocess.run(run, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (result.returncode, result.stderr) == (1, "")


def test_what_is_printed_has_no_progress_in_it(data: Path) -> None:
    assert invoke("journal", "compact", "--data", str(data)).stdout.startswith("1 segment, now 1; ")


def test_verify_as_json(data: Path) -> None:
    report = json.loads(invoke("journal", "verify", str(data), "-o", "json").stdout)
    assert (report["ok"], report["closed"], report["torn"], report["problems"]) == (True, True, False, [])
    assert report["segments"][0]["status"] == "ok"
    assert report["segments"][0]["types"]["MESSAGE"] == 2


def test_damage_is_7_and_says_where(data: Path) -> None:
    segment = data / "journal" / "0000000001.journal"
    content = bytearray(segment.read_bytes())
    at = content.index(b"first body")
    content[at] ^= 1
    segment.write_bytes(content)
    result = invoke("journal", "verify", str(data))
    assert result.exit_code == 7
    assert segment.name in result.stderr
    assert "at byte" in result.stderr
    assert json.loads(invoke("journal", "verify", str(data), "-o", "json").stdout)["ok"] is False


def test_a_torn_tail_is_told_and_no_failure(data: Path) -> None:
    segment = data / "journal" / "0000000001.journal"
    content = segment.read_bytes().rstrip(b"\0")
    segment.write_bytes(content[:-3])
    result = invoke("journal", "verify", str(data))
    assert result.exit_code == 0, result.output
    assert "torn tail" in result.stdout
    assert result.stdout.splitlines()[-1] == "ok"


def test_a_kept_segment_that_is_gone_is_told_and_no_failure(data: Path) -> None:
    day = data / "journal" / "retention" / "date=2026-01-01"
    day.mkdir(parents=True)
    kept = KeptSegment(1, "00" * 16, 0, 9, 1, 1, 1, 4096)
    (day / MANIFEST).write_bytes(kept_line(replace(kept, segment=0)) + kept_line(kept))
    result = invoke("journal", "verify", str(data))
    assert result.exit_code == 0, result.output
    assert "kept, but no longer there: 0;" in result.stdout
    assert result.stdout.splitlines()[-1] == "ok, closed cleanly"
    report = json.loads(invoke("journal", "verify", str(data), "-o", "json").stdout)
    assert (report["ok"], report["kept_missing"]) == (True, [0])


async def test_a_journal_is_read_while_a_broker_writes_it(broker: TestBroker, tmp_path: Path) -> None:
    await broker.sent("orders", [b"x"])
    result = invoke("journal", "verify", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "MESSAGE" in invoke("journal", "print", str(tmp_path)).stdout


def test_print_shows_every_record_without_bodies(data: Path) -> None:
    lines = invoke("journal", "print", str(data)).stdout.splitlines()
    positions = [int(line.split()[0]) for line in lines]
    assert positions == list(range(positions[0], positions[0] + len(positions)))
    text = "\n".join(lines)
    assert "address=orders" in text
    assert "reason=purged" in text
    assert "first body" not in text
    assert "color" not in text


def test_print_shows_bodies_on_request(data: Path) -> None:
    text = invoke("journal", "print", str(data), "--bodies").stdout
    assert "first body" in text
    assert r"color:red\n" in text


def test_print_selects(data: Path) -> None:
    everything = [json.loads(line) for line in invoke("journal", "print", str(data), "-o", "json").stdout.splitlines()]
    messages = invoke("journal", "print", str(data), "--type", "message", "-o", "json").stdout.splitlines()
    assert [json.loads(line) for line in messages] == [line for line in everything if line["type"] == "MESSAGE"]
    two = invoke("journal", "print", str(data), "--type", "QUEUE", "--type", "address", "-o", "json").stdout
    assert {json.loads(line)["type"] for line in two.splitlines()} == {"QUEUE", "ADDRESS"}
    start = everything[2]["position"]
    rest = invoke("journal", "print", str(data), "--from", str(start), "--limit", "2", "-o", "json").stdout
    assert [json.loads(line) for line in rest.splitlines()] == everything[2:4]


def test_print_of_an_unknown_type_is_2_and_lists_them(data: Path) -> None:
    result = invoke("journal", "print", str(data), "--type", "letter")
    assert result.exit_code == 2
    assert "LETTER" in result.stderr
    assert all(name in result.stderr for name in RecordType.__members__)


def test_print_ends_at_damage_with_7(data: Path) -> None:
    segment = data / "journal" / "0000000001.journal"
    segment.write_bytes(b"x" * 100)
    result = invoke("journal", "print", str(data))
    assert result.exit_code == 7
    assert "bartleby journal verify" in result.stderr


def test_stat_counts(data: Path) -> None:
    found = json.loads(invoke("journal", "stat", str(data), "-o", "json").stdout)
    assert found["segments"] == 1
    assert found["types"]["MESSAGE"] == 2
    assert found["removals"] == {"purged": 2}
    text = invoke("journal", "stat", str(data)).stdout
    assert "removed because" in text
    assert "purged" in text


@pytest.mark.parametrize("command", ["verify", "print", "stat", "repair"])
def test_a_directory_that_is_not_there_is_6(tmp_path: Path, command: str) -> None:
    result = invoke("journal", command, str(tmp_path / "none"))
    assert result.exit_code == 6
    assert "No such file or directory" in result.stderr


@pytest.mark.parametrize("command", ["verify", "print", "stat", "repair", "export", "replay", "compact"])
def test_a_directory_without_a_journal_is_6_and_stays_as_it_is(tmp_path: Path, command: str) -> None:
    """A backup or a check of the wrong directory must not succeed."""
    options = {"repair": ["--dry-run"], "replay": ["--dry-run"]}.get(command, [])
    where = ["--data", str(tmp_path)] if command == "compact" else [str(tmp_path)]
    result = invoke("journal", command, *where, *options)
    assert (result.exit_code, result.output) == (
        6,
        f"bartleby: {tmp_path}: there is no journal: it has no segments\n",
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["verify", "print", "stat", "export", "repair", "replay"])
def test_a_directory_that_may_not_be_read_is_6(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str) -> None:
    def denied(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    monkeypatch.setattr(Path, "is_dir", denied)
    result = invoke("journal", command, str(tmp_path))
    assert (result.exit_code, result.stderr) == (6, f"bartleby: {tmp_path}: Permission denied\n")


def test_repair(data: Path, tmp_path: Path) -> None:
    """Damage, a dry run, a refusal, the repair, and a journal that is well, with the old file beside it."""
    segment = data / "journal" / "0000000001.journal"
    content = bytearray(segment.read_bytes())
    content[content.index(b"first body")] ^= 1
    segment.write_bytes(content)
    backup = tmp_path / "before"
    dry = invoke("journal", "repair", str(data), "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "records are lost for certain" in dry.stdout
    assert segment.read_bytes() == content
    assert invoke("journal", "repair", str(data), "--backup", str(backup), input="n\n").exit_code == 1
    assert not backup.exists()
    done = invoke("journal", "repair", str(data), "--backup", str(backup), "--yes")
    assert done.exit_code == 0, done.output
    assert (backup / segment.name).read_bytes() == content
    assert invoke("journal", "verify", str(data)).exit_code == 0
    assert "LOST" in invoke("journal", "print", str(data)).stdout
    again = invoke("journal", "repair", str(data), "--yes")
    assert (again.exit_code, "nothing to repair" in again.stderr) == (1, True)


async def test_repair_of_a_journal_in_use(operator: Operator) -> None:
    result = invoke("journal", "repair", str(operator.directory), "--yes")
    assert (result.exit_code, "stop the broker first" in result.stderr) == (1, True)
