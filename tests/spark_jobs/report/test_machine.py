"""JSON, CSV and Parquet: everything that is in a result, as it is."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from spark_jobs.report import text
from spark_jobs.report.machine import MANIFEST, document, to_json, write_csv, write_parquet
from spark_jobs.results import Damage, Result, Section
from tests.spark_jobs.report.samples import ALL, HOSTILE, MOMENT, START, WHOLE, dlq, empty, ledger

WRITERS = pytest.mark.parametrize(("write", "suffix"), [(write_csv, ".csv"), (write_parquet, ".parquet")])


def read(result: Result) -> Any:
    """The document as a program reads it."""
    return json.loads(to_json(document(result)))


def of(**columns: Any) -> Result:
    """A result with one table."""
    return Result("dlq", WHOLE, {}, (Section("some", "Some", pa.table(columns)),))


def test_the_shape_of_the_document() -> None:
    found = read(ALL["dlq damaged"])
    assert list(found) == [
        "format",
        "version",
        "audit",
        "status",
        "verdict",
        "exceeded",
        "problems",
        "coverage",
        "options",
        "summary",
        "sections",
    ]
    assert (found["format"], found["version"], found["audit"], found["status"]) == ("bartleby-audit", 1, "dlq", 7)
    assert found["verdict"] is None
    assert found["summary"]["oldest waiting (s)"] == 202_000
    assert found["coverage"] == {
        "whole": False,
        "broker_id": "5d0c8a3f9be1447a",
        "paths": ["/var/lib/bartleby"],
        "segments": 148,
        "bytes": 9_663_676_416,
        "first_position": 1,
        "next_position": 41_208_338,
        "first_time": "2026-11-18T22:00:00.000Z",
        "last_time": "2026-11-21T21:59:59.512Z",
        "trimmed_records": 912_004,
        "torn_bytes": 0,
        "damage": found["coverage"]["damage"],
    }
    assert found["coverage"]["damage"][2] == {
        "path": "/var/lib/bartleby/journal/0000000120.journal",
        "offset": 64,
        "first_position": None,
        "records": None,
        "what": "records of an unknown type (43)",
    }
    assert found["sections"]["oldest"]["rows"][0] == {
        "message": 4_710_050,
        "was": 4_698_221,
        "address": "orders",
        "reason": "max-deliveries",
        "attempts": 5,
        "died": "2026-11-17T22:00:12.345Z",
        "age (s)": 202_000.25,
    }


@pytest.mark.parametrize("name", ALL)
def test_every_result_is_a_document_that_steers_no_terminal(name: str) -> None:
    written = to_json(document(ALL[name]))
    assert written.isascii()
    assert all(line.isprintable() for line in written.split("\n"))
    assert list(json.loads(written)["sections"]) == [section.name for section in ALL[name].sections]
    assert json.loads(written)["status"] == int(ALL[name].status)


def test_texts_are_as_they_are() -> None:
    found = read(ALL["hostile"])
    assert found["sections"]["hostile"]["rows"][0][HOSTILE] == HOSTILE
    assert found["problems"] == [HOSTILE]


@pytest.mark.parametrize(
    ("value", "kind", "read_as"),
    [
        (None, pa.int64(), None),
        (2**62, pa.int64(), 2**62),
        (1.5, pa.float64(), 1.5),
        (float("nan"), pa.float64(), None),
        (float("inf"), pa.float64(), None),
        (True, pa.bool_(), True),
        (Decimal("12"), pa.decimal128(10, 0), 12),
        (Decimal("1.50"), pa.decimal128(10, 2), 1.5),
        (b"\x00\xff", pa.binary(), "00ff"),
        (["a", None], pa.list_(pa.string()), ["a", None]),
        ({"a": START}, pa.struct([("a", MOMENT)]), {"a": "2026-11-17T22:00:00.000Z"}),
        (START, MOMENT, "2026-11-17T22:00:00.000Z"),
        (START.date(), pa.date32(), "2026-11-17"),
    ],
)
def test_values(value: object, kind: pa.DataType, read_as: object) -> None:
    found = read(of(a=pa.array([value], kind)))["sections"]["some"]["rows"]
    assert found == [{"a": read_as}]


def test_times_that_are_not_known_or_cannot_be() -> None:
    coverage = replace(WHOLE, first_time=0, last_time=1 << 62, damage=(Damage("p", 0, 0, 0, "w"),))
    found = read(replace(empty(), coverage=coverage))["coverage"]
    assert (found["first_time"], found["last_time"]) == (None, None)
    assert (found["damage"][0]["first_position"], found["damage"][0]["records"]) == (0, 0)


@WRITERS
@pytest.mark.parametrize("name", ALL)
def test_a_directory_has_a_file_for_each_section_and_a_manifest(
    name: str, write: Any, suffix: str, tmp_path: Path
) -> None:
    result = ALL[name]
    write(result, tmp_path / "a" / "b")
    manifest = json.loads((tmp_path / "a" / "b" / MANIFEST).read_text())
    files = {section["file"] for section in manifest["sections"].values()}
    assert {path.name for path in (tmp_path / "a" / "b").iterdir()} == files | {MANIFEST}
    for section in result.sections:
        head = manifest["sections"][section.name]
        assert head == {
            "title": section.title,
            "note": section.note,
            "file": section.name + suffix,
            "rows": section.table.num_rows,
        }
    whole = document(result)
    assert {key: value for key, value in manifest.items() if key != "sections"} == {
        key: value for key, value in whole.items() if key != "sections"
    }


def test_parquet_has_the_table_with_its_types(tmp_path: Path) -> None:
    write_parquet(dlq(), tmp_path)
    for section in dlq().sections:
        assert parquet.read_table(tmp_path / f"{section.name}.parquet").equals(section.table)


def test_csv_has_the_values_of_the_document(tmp_path: Path) -> None:
    write_csv(ALL["hostile"], tmp_path)
    (row, other) = csv.DictReader(io.StringIO((tmp_path / "hostile.csv").read_bytes().decode(), newline=""))
    assert row[HOSTILE] == HOSTILE
    assert (row["n"], row["raw"], json.loads(row["struct"]), json.loads(row["list"])) == (
        "3",
        "1b",
        {"key": HOSTILE},
        [HOSTILE, HOSTILE],
    )
    assert (other["n"], other[HOSTILE], other["list"]) == ("2", "", "")
    write_csv(dlq(), tmp_path)
    (first, *_) = csv.DictReader(io.StringIO((tmp_path / "oldest.csv").read_text()))
    assert (first["died"], first["age (s)"]) == ("2026-11-17T22:00:12.345Z", "202000.25")


@WRITERS
def test_files_of_an_earlier_result_go(write: Any, suffix: str, tmp_path: Path) -> None:
    write(ledger(), tmp_path)
    (tmp_path / "mine.txt").write_text("not the report's")
    write(dlq(), tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"{section.name}{suffix}" for section in dlq().sections} | {MANIFEST, "mine.txt"}


@pytest.mark.parametrize(
    "manifest",
    [
        "",
        "[]",
        "null",
        '{"format": "something else", "sections": {"a": {"file": "mine.txt"}}}',
        '{"format": "bartleby-audit", "sections": {"a": {"file": "../mine.txt"}}}',
        '{"format": "bartleby-audit", "sections": {"a": {"file": ".."}}}',
        '{"format": "bartleby-audit", "sections": {"a": {"file": "mine.txt"}}}',
        '{"format": "bartleby-audit", "sections": []}',
    ],
)
def test_a_manifest_that_is_not_ours_removes_nothing(manifest: str, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    target = tmp_path / "out"
    target.mkdir()
    (target / "mine.txt").write_text("mine")
    (target / MANIFEST).write_text(manifest)
    write_csv(empty(), target)
    assert (tmp_path / "mine.txt").exists()
    assert (target / "mine.txt").exists()


def test_where_writing_ends_early_there_is_no_manifest(tmp_path: Path) -> None:
    write_csv(ledger(), tmp_path)
    (tmp_path / "places.csv").mkdir()
    with pytest.raises(OSError, match=r"places\.csv"):
        write_csv(dlq(), tmp_path)
    assert not (tmp_path / MANIFEST).exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_time_of_the_head_is_written_as_those_of_tables() -> None:
    since = datetime(2026, 5, 28, 20, 26, 40, tzinfo=UTC)
    result = replace(of(died=[since]), summary={"oldest waiting since": since})
    assert read(result)["summary"]["oldest waiting since"] == "2026-05-28T20:26:40.000Z"
    assert read(result)["sections"]["some"]["rows"] == [{"died": "2026-05-28T20:26:40.000Z"}]
    assert text.figure("oldest waiting since", since) == "2026-05-28 20:26:40"
