"""Retention: segments that are no longer needed, kept for audits.

A segment moves to `retention/date=YYYY-MM-DD/`, the UTC day on which it was created.  Two limits apply after each
move, by age and by bytes; what exceeds them goes oldest first.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from store.files import Files
from store.segment import SEGMENT_HEADER_BYTES, decode_header, segment_name, segment_number

DIRECTORY: Final = "retention"
_PREFIX: Final = "date="


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """`age_days` counts from the end of a segment's day, `bytes_max` all kept segments; -1: no limit."""

    enabled: bool = False
    age_days: int = -1
    bytes_max: int = -1


def retain(files: Files, directory: str, segment: int) -> None:
    """Move a segment out of the journal, durably.  Raises OSError."""
    path = f"{directory}/{segment_name(segment)}"
    header = decode_header(files.read_head(path, SEGMENT_HEADER_BYTES))
    day = f"{directory}/{DIRECTORY}/{_PREFIX}{_day(header.created)}"
    files.make_dir(day)
    files.rename(path, f"{day}/{segment_name(segment)}")
    files.sync_dir(day)
    files.sync_dir(directory)


def _day(ms: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)).date().isoformat()


def kept(files: Files, directory: str) -> list[str]:
    """The paths of all kept segments, oldest first."""
    root = f"{directory}/{DIRECTORY}"
    try:
        days = [name for name in files.list_dir(root) if name.startswith(_PREFIX)]
    except FileNotFoundError:
        return []
    return [f"{root}/{day}/{name}" for day in days for name in files.list_dir(f"{root}/{day}") if segment_number(name)]


def enforce(files: Files, directory: str, settings: RetentionSettings, now: int) -> None:
    """Remove kept segments that are too old or too many.  Raises OSError."""
    paths = kept(files, directory)
    sizes = {path: files.size(path) for path in paths}
    total = sum(sizes.values())
    oldest = _day(now - (settings.age_days + 1) * 86_400_000) if settings.age_days >= 0 else ""
    for path in paths:
        day = path.rpartition("/")[0]
        too_old = day.rpartition(_PREFIX)[2] <= oldest
        if not too_old and not 0 <= settings.bytes_max < total:
            break
        files.remove(path)
        total -= sizes[path]
        if not files.list_dir(day):
            files.remove_dir(day)
    # Not synced: a segment that comes back after a power cut is removed again.
