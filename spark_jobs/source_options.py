"""The options of the data source `bartleby-journal`: what each means, and which belong to which view.

An option that is unknown, or that the view does not use, is an error: a bound without effect would mislead.
Names are not case-sensitive, as everywhere in Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from spark_jobs.journal.bounds import Bounds
from spark_jobs.journal.decode import Condition, Selection
from spark_jobs.journal.files import location, locations
from spark_jobs.journal.schema import DAMAGE, DEFAULT_RECORDS, RECORDS, SEGMENTS, Column
from spark_jobs.journal.snapshot import PARTITION_BYTES, Snapshot, take
from spark_jobs.moment import parse_moment
from store.record import RecordType

VIEWS: Final[dict[str, Mapping[str, Column]]] = {"records": RECORDS, "segments": SEGMENTS}

#: `mode`: stop at damage, or turn it into rows and continue after it.
MODES: Final = ("FAILFAST", "PERMISSIVE")

#: The selection without options.
EVERYTHING: Final = Selection()

#: The highest message id that the columns can hold.
ID_MAX: Final = (1 << 63) - 1

#: The value of `fromPosition` for a stream of only new records.
LATEST: Final = "latest"

_TYPES: Final = {type.name.lower().replace("_", "-"): int(type) for type in RecordType}
_BOUNDS: Final = ("fromposition", "toposition", "fromtime", "totime")
_RECORDS: Final = ("types", "messageids", "notnull")
_EVERYWHERE: Final = ("path", "paths", "snapshot", "view", "columns", "targetbytes", "gaps")
_BATCH: Final[dict[str, tuple[str, ...]]] = {
    "records": (*_EVERYWHERE, *_BOUNDS, *_RECORDS, "mode", "finished"),
    "segments": (*_EVERYWHERE, *_BOUNDS),
}
_STREAM: Final = (
    "path",
    "view",
    "columns",
    *_RECORDS,
    "fromposition",
    "fromtime",
    "mode",
    "targetbytes",
    "maxsegments",
)
_SIZE: Final = re.compile(r"(\d+)([kmg]?)")


class BadOption(ValueError):
    """An impossible option of the data source; the message says what is possible."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The parsed options.

    `selection`: what to read from each segment.  `paths` or `snapshot`: which journal to read; a snapshot has
    precedence.  `gaps`: missing segments count as damage; otherwise the caller handles `Snapshot.missing` itself.
    `finished`: include messages that came and went within a task individually (journal.unfinished).  For streams:
    `latest` begins with new records, `segments_max` limits one trigger (None: no limit).
    """

    view: str = "records"
    selection: Selection = EVERYTHING
    strict: bool = True
    gaps: bool = True
    finished: bool = True
    target_bytes: int = PARTITION_BYTES
    paths: tuple[str, ...] = ()
    snapshot: str = ""
    latest: bool = False
    segments_max: int | None = None

    def pinned(self) -> Snapshot:
        """The selected part of the given snapshot, or of a new one of the paths.

        Raises the same exceptions as `snapshot.take`.
        """
        whole = Snapshot.from_json(self.snapshot) if self.snapshot else take(self.paths)
        return whole.within(self.selection.bounds)


def parse(given: Mapping[str, str], *, stream: bool = False) -> SourceOptions:
    """Parse the options.  Raises BadOption, files.BadLocation."""
    options = {name.lower(): value for name, value in given.items()}
    view = _choice("view", options.get("view", "records"), VIEWS)
    if stream and view != "records":
        raise BadOption(f"view={view}: only records can be read as a stream")
    possible = _STREAM if stream else _BATCH[view]
    for name in options:
        if name not in possible:
            raise BadOption(
                f"{name}: {'a stream' if stream else f'view={view}'} has no such option, only {', '.join(possible)}"
            )
    paths = _paths(options)
    if not paths and not options.get("snapshot"):
        raise BadOption("path: name a data directory or a journal, as in .load('/var/lib/bartleby')")
    if not _flag(options, "finished") and ("messageids" in options or "notnull" in options):
        raise BadOption("finished: this requires all records of the messages; leave out messageIds and notNull")
    latest = stream and options.get("fromposition") == LATEST
    if latest:
        del options["fromposition"]
    return SourceOptions(
        view=view,
        selection=Selection(
            parse_columns(view, options.get("columns")),
            parse_types(options.get("types")),
            _bounds(options),
            _conditions(options),
        ),
        strict=_choice("mode", options.get("mode", MODES[0]).upper(), MODES) == MODES[0],
        gaps=_flag(options, "gaps"),
        finished=_flag(options, "finished"),
        target_bytes=_optional(options, "targetbytes", parse_size) or PARTITION_BYTES,
        paths=paths,
        snapshot=options.get("snapshot", ""),
        latest=latest,
        segments_max=_optional(options, "maxsegments", _positive),
    )


def _bounds(options: Mapping[str, str]) -> Bounds:
    return Bounds(
        _optional(options, "fromposition", _number),
        _optional(options, "toposition", _number),
        _optional(options, "fromtime", parse_time),
        _optional(options, "totime", parse_time),
    )


def _conditions(options: Mapping[str, str]) -> tuple[Condition, ...]:
    """Conditions for columns that must not be null, and for the ids of messages.  Raises BadOption."""
    columns = _words(options.get("notnull", ""))
    for name in columns:
        _choice("notNull", name, RECORDS)
    found = [Condition(name) for name in columns]
    ids = options.get("messageids")
    if ids is not None:
        found.append(Condition("message_id", tuple(_id("messageIds", id) for id in _words(ids))))
    return tuple(found)


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    """The locations in `path`, and in the JSON list that Spark makes of `.load([...])`.  Raises files.BadLocation."""
    listed = json.loads(options.get("paths", "[]"))
    return (*locations(options.get("path", "")), *map(location, listed))


def parse_columns(view: str, text: str | None) -> tuple[str, ...]:
    """The columns in a comma-separated list, in order; None: the view's cheap columns.  Raises BadOption."""
    if text is None:
        return DEFAULT_RECORDS if view == "records" else tuple(VIEWS[view])
    names = _words(text)
    for name in names:
        _choice("columns", name, VIEWS[view])
    if not names or len(set(names)) != len(names):
        raise BadOption(f"columns={text}: name at least one column, and each only once")
    return names


def parse_types(text: str | None) -> frozenset[int] | None:
    """The record types in a comma-separated list.  Raises BadOption.

    Damage is always read; naming only `damage` selects nothing else.
    """
    if text is None:
        return None
    words = _words(text)
    for word in words:
        _choice("types", word, (*_TYPES, DAMAGE))
    if not words:
        raise BadOption("types: name at least one")
    return frozenset(_TYPES[word] for word in words if word != DAMAGE)


def parse_time(name: str, text: str) -> int:
    """Parse a time like parse_moment, into milliseconds since the epoch.  Raises BadOption."""
    try:
        return parse_moment(text)
    except ValueError:
        raise BadOption(f"{name}={text}: not a time like 2026-03-01T12:00:00Z") from None


def parse_size(name: str, text: str) -> int:
    """Parse a number of bytes, with k, m or g for powers of 1024.  Raises BadOption."""
    found = _SIZE.fullmatch(text.lower())
    if found is None or not int(found[1]):
        raise BadOption(f"{name}={text}: not a size like 64m")
    return int(found[1]) << 10 * "kmg".find(found[2]) + 10 if found[2] else int(found[1])


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise BadOption(f"{name}={text}: not a whole number of at least 0")
    return int(text)


def _id(name: str, text: str) -> int:
    number = _number(name, text)
    if number > ID_MAX:
        raise BadOption(f"{name}={text}: ids are at most {ID_MAX}")
    return number


def _positive(name: str, text: str) -> int:
    number = _number(name, text)
    if not number:
        raise BadOption(f"{name}={text}: it must be at least 1")
    return number


def _optional(options: Mapping[str, str], name: str, parsed: Callable[[str, str], int]) -> int | None:
    text = options.get(name)
    return None if text is None else parsed(name, text)


def _flag(options: Mapping[str, str], name: str) -> bool:
    return _choice(name, options.get(name, "true").lower(), ("true", "false")) == "true"


def _choice(name: str, value: str, possible: Mapping[str, object] | tuple[str, ...]) -> str:
    if value not in possible:
        raise BadOption(f"{name}={value}: possible values are {', '.join(possible)}")
    return value


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in (part.strip() for part in text.split(",")) if word)
