"""Looking into a result."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from spark_jobs.results import Result


def rows(result: Result, name: str) -> list[dict[str, Any]]:
    """The rows of a section."""
    found: list[dict[str, Any]] = next(s.table for s in result.sections if s.name == name).to_pylist()
    return found


def counted(result: Result, name: str, by: str, number: str) -> dict[Any, int]:
    """One column of a section by another."""
    return {row[by]: row[number] for row in rows(result, name)}


def ms(value: datetime) -> int:
    """A time of a table in ms since the epoch."""
    return round(value.timestamp() * 1000)


def nearest_rank(values: list[int], share: float) -> float:
    """The smallest value that has this share of all at or below it, in seconds."""
    ordered = sorted(values)
    index = next(i for i in range(len(ordered)) if (i + 1) / len(ordered) >= share)
    return round(ordered[index] / 1000, 3)
