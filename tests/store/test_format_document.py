"""docs/journal-format.md says what the code does."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from store import manifest, segment
from store.manifest import KeptSegment, Manifest, kept_line
from store.record import DeadLetterReason, RecordType, RemovalReason
from tests.store.examples import EXAMPLES

TEXT = (Path(__file__).parents[2] / "docs" / "journal-format.md").read_text("utf-8")


def test_every_type_is_there_and_no_other() -> None:
    overview = TEXT.partition("### MESSAGE")[0]
    rows = re.findall(r"^\| +(\d+) \| ([A-Z_]+) +\|", overview, re.MULTILINE)
    assert {(int(number), name) for number, name in rows} == {(t.value, t.name) for t in RecordType}


@pytest.mark.parametrize("type", RecordType)
def test_every_type_is_explained(type: RecordType) -> None:
    assert re.search(rf"^###.*\b{type.name} \({type.value}\)", TEXT, re.MULTILINE)


def test_every_reason_is_there() -> None:
    numbers, _, words = re.search(r"^\| 1 \| 2 \|.*\n.*\n.*killed \|.*$", TEXT, re.MULTILINE)[0].split("\n")  # type: ignore[index]
    listed = zip(numbers.strip("| ").split(" | "), words.strip("| ").split(" | "), strict=True)
    assert [(int(n), word) for n, word in listed] == [(r.value, r.word) for r in RemovalReason]
    deaths = ", ".join(f"{r.value} {r.word}" for r in DeadLetterReason)
    assert deaths in " ".join(TEXT.split())


def test_the_example_is_a_message() -> None:
    example = re.search(r"^```\n([0-9a-f \n]+)```", TEXT, re.MULTILINE)
    assert example
    assert bytes.fromhex(example[1]) == EXAMPLES[RecordType.MESSAGE]


def test_sizes_and_magic() -> None:
    assert f"segment header, {segment.SEGMENT_HEADER_BYTES} bytes" in TEXT
    assert segment.ENTRY_HEADER_BYTES == 48
    assert segment.ENTRY_MAGIC.hex(" ").upper() in TEXT
    assert segment.SEGMENT_MAGIC.decode() in TEXT


def test_the_lines_of_a_manifest() -> None:
    section = TEXT.partition("### The manifest")[2]
    blocks = re.findall(r"^```json\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    found = Manifest()
    for block in blocks:
        found.add(block.encode())
    assert found.unreadable == 0
    (kept,) = found.kept.values()
    assert kept_line(kept).decode() == blocks[0]
    assert (found.why_removed(1), found.why_removed(4), found.why_removed(9)) == ("age", "gone", "gone")
    members = {name for row in re.findall(r"^\| (`.*?`) +\|", section, re.MULTILINE) for name in row.split(", ")}
    assert members == {f"`{each.name}`" for each in fields(KeptSegment)}
    for why in (manifest.AGE, manifest.BYTES, manifest.OFF, manifest.GONE):
        assert f"`{why}`" in section
