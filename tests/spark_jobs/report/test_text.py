"""Values as people read them, and the words for a result, which agree with its exit status."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from spark_jobs.report import text
from spark_jobs.report.text import Tone
from spark_jobs.results import Coverage, Damage, ExitStatus, Result, Verdict
from tests.spark_jobs.report.samples import ALL, DAMAGED, HOSTILE, WHOLE


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("messages", 1_234_567, "1,234,567"),
        ("difference", -1_234, "-1,234"),
        ("message", 1_234_567, "1234567"),
        ("was", 1_234_567, "1234567"),
        ("queue id", 1_234, "1234"),
        ("position", 1_234_567, "1234567"),
        ("messages stored", 1_234, "1,234"),
        ("age (s)", 3_661.5, "1h 1m"),
        ("size (bytes)", 1_536, "1.5 KiB"),
        ("share", 1_234.5678, "1,234.57"),
    ],
)
def test_a_number_is_shown_as_its_name_demands(name: str, value: float, shown: str) -> None:
    assert text.number(name, value, 2) == shown


def test_a_unit_is_not_in_the_heading() -> None:
    assert [text.heading(name) for name in ("age (s)", "size (bytes)", "queue (s) id")] == [
        "age",
        "size",
        "queue (s) id",
    ]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (0.0001, "0 ms"),
        (0.25, "250 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1m 0s"),
        (3_599.7, "1h 0m"),
        (90_061, "1d 1h"),
        (400 * 86_400, "400d 0h"),
        (5_000 * 86_400, "5,000d 0h"),
        (-90, "-1m 30s"),
    ],
)
def test_durations(seconds: float, shown: str) -> None:
    assert text.duration(seconds) == shown


@pytest.mark.parametrize(
    ("nbytes", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (5 << 30, "5.0 GiB"),
        (3 << 40, "3.0 TiB"),
        (4 << 50, "4,096.0 TiB"),
    ],
)
def test_sizes(nbytes: int, shown: str) -> None:
    assert text.size(nbytes) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        (True, "yes"),
        (False, "no"),
        (b"\x01\xff", "01ff"),
        ({"a": 1, "b": "\n"}, r"a=1, b=\n"),
        (["a", "\x07"], r"a, \x07"),
        (datetime(2026, 3, 1, 12, 0, 5, tzinfo=timezone(timedelta(hours=2))), "2026-03-01 10:00:05"),
        (7, "7"),
    ],
)
def test_other_values(value: object, shown: str) -> None:
    assert text.plain(value) == shown


def test_times_of_a_coverage() -> None:
    shown = [text.moment_ms(ms) for ms in (0, 1_700_000_000_123, 1 << 62)]
    assert shown == ["", "2023-11-14 22:13:20", str(1 << 62)]


def test_text_of_a_client_cannot_steer_anything() -> None:
    assert text.clean(HOSTILE).isprintable()
    assert text.clean("größe → 数") == "größe → 数"
    assert text.clean("\ud800") == r"\ud800"


def test_a_text_is_cut_at_its_limit() -> None:
    longest = "x" * text.CELL_CHARS_MAX
    assert text.clean(longest) == longest
    assert text.clean(longest + "x") == longest + "…"


def test_every_status_has_its_headline() -> None:
    tones = {
        ExitStatus.OK: (Tone.GOOD, Tone.WARN),
        ExitStatus.DAMAGED: (Tone.WARN,),
        ExitStatus.VIOLATED: (Tone.BAD,),
        ExitStatus.EXCEEDED: (Tone.BAD,),
    }
    for name, result in ALL.items():
        assert text.headline(result).tone in tones[result.status], name


@pytest.mark.parametrize("verdict", [None, *Verdict])
@pytest.mark.parametrize("coverage", [WHOLE, DAMAGED])
@pytest.mark.parametrize("exceeded", [False, True])
def test_the_headline_never_says_better_than_the_status(
    verdict: Verdict | None, coverage: Coverage, exceeded: bool
) -> None:
    result = Result("ledger", coverage, {}, (), verdict, exceeded=exceeded)
    said = text.headline(result)
    assert (said.tone is Tone.GOOD) == (result.status is ExitStatus.OK)
    assert (said.word == "VIOLATED") == (result.status is ExitStatus.VIOLATED)
    assert ("--fail-over" in said.sentence) == exceeded
    if result.status is ExitStatus.DAMAGED:
        assert said.word in ("NOT PROVABLE", "INCOMPLETE")


def test_a_clean_result_with_problems_is_marked() -> None:
    result = ALL["dlq"]
    assert text.headline(result).tone is Tone.WARN
    assert text.headline(replace(result, problems=())).tone is Tone.GOOD


@pytest.mark.parametrize(
    ("records", "told"),
    [
        ((), "none"),
        ((1,), "1 place, 1 record lost"),
        ((0,), "1 place, 0 records lost"),
        ((-1,), "1 place, number of lost records not known"),
        ((1_000, 234, -1), "3 places, at least 1,234 records lost"),
        ((1_000, 234), "2 places, 1,234 records lost"),
    ],
)
def test_how_much_is_lost(records: tuple[int, ...], told: str) -> None:
    assert text.lost(Damage("p", 1, 2, n, "what") for n in records) == told


def test_a_damaged_place_in_a_line() -> None:
    assert text.described(Damage("a/1.journal", 77, 5, 3, "bad checksum")) == (
        "a/1.journal at byte 77: bad checksum, 3 records lost, from position 5 on"
    )
    assert text.described(Damage("a/1.journal", 0, -1, -1, "the segment is missing")) == (
        "a/1.journal: the segment is missing"
    )


def test_the_coverage_in_words() -> None:
    fields = text.covered(WHOLE)
    assert fields["first position"] == "1 (2026-11-18 22:00:00 UTC)"
    assert fields["last position"] == "41208337 (2026-11-21 21:59:59 UTC)"
    assert fields["damage"] == "none"
    assert fields["unfinished end"].startswith("4.1 KiB")
    assert "removed earlier" not in fields
    assert text.covered(DAMAGED)["removed earlier"].startswith("912,004 records")
    assert text.covered(ALL["empty"].coverage)["last position"] == "none"
    assert datetime.fromtimestamp(WHOLE.first_time / 1000, UTC).hour == 22
