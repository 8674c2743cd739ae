"""The manifest of a day's kept segments: describes them, for audits, and records which were removed.

`manifest.jsonl` is beside the segments, one JSON object on each line.  Every line is valid, whichever day's manifest it
is in:

    {"segment": 7, "broker_id": ..., "first_position": ..., ...}      it is kept, and has these contents
    {"segment": 7, "removed": "age"}                                  it was removed, and why
    {"segment": 2, "through": 5, "removed": "gone"}                   all of these were removed

1. A line is durable before the action it describes.  So after a crash at any point a segment is where it was, or where
   the line says; it never disappears without a record.  A segment that exists counts, whatever a line says.
2. A line about removed segments is in the manifest of the newest day, so that it stays as long as any segment kept
   beside them.
3. Lines are only appended.  The remains of a line unfinished at a power failure are not JSON: readers skip them, and
   the next line overwrites them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from store.files import Files, write_all

MANIFEST: Final = "manifest.jsonl"

#: Why a segment was removed: it was too old, all together were too large, or retention was off; or it was gone already,
#: for whatever reason, when an older one began to be kept.
AGE: Final = "age"
BYTES: Final = "bytes"
OFF: Final = "off"
GONE: Final = "gone"


@dataclass(frozen=True, slots=True)
class KeptSegment:
    """A manifest's description of a kept segment.

    Its positions are `first_position` to below `next_position`.  `created`, and `first_time` and `last_time`, the
    lowest and highest time of its entries, are in ms since the epoch (0: it has none); `bytes` is its size.
    """

    segment: int
    broker_id: str
    first_position: int
    next_position: int
    created: int
    first_time: int
    last_time: int
    bytes: int


@dataclass(slots=True)
class Manifest:
    """The combined contents of manifests: kept segments, removed ones and why, and the number of unreadable lines."""

    kept: dict[int, KeptSegment] = field(default_factory=dict)
    removed: dict[int, str] = field(default_factory=dict)
    runs: list[tuple[range, str]] = field(default_factory=list)
    unreadable: int = 0

    @property
    def expected(self) -> set[int]:
        """The segments that must be in retention, unless they are still in the journal."""
        return {segment for segment in self.kept if not self.why_removed(segment)}

    def why_removed(self, segment: int) -> str:
        """Why a segment was removed, "" if no line says that it was."""
        return self.removed.get(segment) or next((why for run, why in self.runs if segment in run), "")

    def add(self, data: bytes) -> None:
        """Add the contents of a manifest file."""
        *lines, _unfinished = data.split(b"\n")
        for line in lines:
            try:
                self._add(json.loads(line))
            except (TypeError, ValueError):
                self.unreadable += 1

    def _add(self, line: Any) -> None:
        """Add a line, ignoring unknown members.  Raises TypeError, ValueError."""
        if not isinstance(line, dict) or not isinstance(line.get("segment"), int):
            raise ValueError("not about a segment")
        if "removed" in line:
            if "through" in line:
                self.runs.append((range(line["segment"], int(line["through"]) + 1), str(line["removed"])))
            else:
                self.removed[line["segment"]] = str(line["removed"])
            return
        if not all(isinstance(line.get(name), type) for name, type in _TYPES.items()):
            raise ValueError("not all that is known of a kept segment")
        members: dict[str, Any] = {name: line[name] for name in _TYPES}
        self.kept[line["segment"]] = KeptSegment(**members)


_TYPES: Final = {each.name: str if each.name == "broker_id" else int for each in fields(KeptSegment)}


def kept_line(kept: KeptSegment) -> bytes:
    """The line for a kept segment."""
    return _line(asdict(kept))


def removed_line(segment: int, why: str, *, through: int = 0) -> bytes:
    """The line for a removed segment, or for all `through` another one."""
    return _line({"segment": segment, "removed": why} | ({"through": through} if through > segment else {}))


def _line(members: dict[str, Any]) -> bytes:
    return json.dumps(members).encode() + b"\n"


def append(files: Files, day: str, lines: Iterable[bytes]) -> None:
    """Append lines to the manifest in a day's directory; they are durable when this returns.  Raises OSError."""
    path = f"{day}/{MANIFEST}"
    try:
        written = files.read(path)
        file = files.open(path)
    except FileNotFoundError:
        written = b""
        file = files.create(path)
    whole = written.rfind(b"\n") + 1
    with closing(file):
        if whole < len(written):
            file.truncate(whole)
            file.sync()
        write_all(file, b"".join(lines), whole)
        file.sync()
    files.sync_dir(day)
