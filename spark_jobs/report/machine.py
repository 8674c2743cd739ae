"""A result for programs: one JSON document, or a directory with a file for each section and a manifest.

docs/audits.md documents the document's structure.  Additions are possible at any time; any other change gets a new
VERSION.  Unknown values are null; times are ISO 8601 in UTC; numbers and names are exact, never rounded, grouped or
escaped for people.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from spark_jobs.report.output import write_file, write_text
from spark_jobs.report.text import UNKNOWN
from spark_jobs.results import Coverage, Result, Section

#: The version of the document's structure.
VERSION: Final = 1

#: In a directory: everything but the tables.  It is written last: if it exists, everything else does too.
MANIFEST: Final = "manifest.json"

_SUFFIXES: Final = (".csv", ".parquet")


def document(result: Result) -> dict[str, Any]:
    """A result as a JSON document."""
    sections = {section.name: _head(section) | {"rows": _rows(section.table)} for section in result.sections}
    return _without_sections(result) | {"sections": sections}


def to_json(value: Mapping[str, Any]) -> str:
    """One JSON document, escaped to ASCII, so that nothing in it can control a terminal."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def write_csv(result: Result, directory: Path) -> None:
    """Write a file `SECTION.csv` for each section.  Raises OSError."""
    _write(result, directory, ".csv", lambda table, path: write_text(path, _csv(table)))


def write_parquet(result: Result, directory: Path) -> None:
    """Write a file `SECTION.parquet` for each section.  Raises OSError."""

    def write(table: pa.Table, path: Path) -> None:
        write_file(path, lambda file: parquet.write_table(table, file, compression="zstd"))

    _write(result, directory, ".parquet", write)


def _write(result: Result, directory: Path, suffix: str, write: Callable[[pa.Table, Path], None]) -> None:
    """Write all files.  Files of an earlier result that this one lacks are removed, so that they cannot be mixed up."""
    directory.mkdir(parents=True, exist_ok=True)
    manifest = directory / MANIFEST
    before = _files_of(manifest)
    manifest.unlink(missing_ok=True)
    sections = {}
    for section in result.sections:
        name = f"{section.name}{suffix}"
        write(section.table, directory / name)
        before.discard(name)
        sections[section.name] = _head(section) | {"file": name, "rows": section.table.num_rows}
    for name in before:
        (directory / name).unlink(missing_ok=True)
    write_text(manifest, to_json(_without_sections(result) | {"sections": sections}))


def _files_of(manifest: Path) -> set[str]:
    """The files of the result in this directory, if there is one; only names within this directory."""
    try:
        found = json.loads(manifest.read_bytes())
        if found["format"] != "bartleby-audit":
            return set()
        names = {str(section["file"]) for section in found["sections"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()
    return {name for name in names if Path(name).name == name and Path(name).suffix in _SUFFIXES}


def _without_sections(result: Result) -> dict[str, Any]:
    return {
        "format": "bartleby-audit",
        "version": VERSION,
        "audit": result.audit,
        "status": int(result.status),
        "verdict": result.verdict.value if result.verdict else None,
        "exceeded": result.exceeded,
        "problems": list(result.problems),
        "coverage": _coverage(result.coverage),
        "options": dict(result.options),
        "summary": _value(result.summary),
    }


def _coverage(coverage: Coverage) -> dict[str, Any]:
    members = asdict(coverage) | {
        "paths": list(coverage.paths),
        "first_position": _known(coverage.first_position),
        "next_position": _known(coverage.next_position),
        "first_time": _moment_ms(coverage.first_time),
        "last_time": _moment_ms(coverage.last_time),
        "damage": [
            asdict(place) | {"first_position": _known(place.first_position), "records": _known(place.records)}
            for place in coverage.damage
        ],
    }
    return {"whole": coverage.whole, **members}


def _head(section: Section) -> dict[str, Any]:
    return {"title": section.title, "note": section.note}


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return [{name: _value(value) for name, value in row.items()} for row in table.to_pylist()]


def _known(number: int) -> int | None:
    return None if number == UNKNOWN else number


def _moment_ms(ms: int) -> str | None:
    try:
        return _moment(datetime.fromtimestamp(ms / 1000, UTC)) if ms else None
    except (ValueError, OverflowError, OSError):  # damage can produce any number
        return None


def _moment(when: datetime) -> str:
    return when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _value(value: Any) -> Any:
    """A table's value in JSON."""
    if isinstance(value, datetime):
        return _moment(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(key): _value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_value(item) for item in value]
    return value


def _csv(table: pa.Table) -> str:
    """RFC 4180, with a heading; unknown values are empty, and structured values are JSON."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(table.column_names)
    for row in _rows(table):
        writer.writerow([json.dumps(cell) if isinstance(cell, dict | list) else cell for cell in row.values()])
    return text.getvalue()
