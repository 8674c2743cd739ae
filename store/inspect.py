"""Inspects a journal without changing it, whether a broker writes it or not.

Nothing here takes the lock or writes.  While a broker runs, the tail of the newest segment may be half written (status
TORN, which is normal then), and segments may vanish between listing and reading (they were trimmed; the check is
repeated).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Final

from store import decode
from store.bodies import body_path, sizes
from store.body import BodyReference
from store.body_check import BodyReport, Needed, check_bodies
from store.decode import RawRecord
from store.errors import Corrupt
from store.files import Files
from store.record import LARGE_VERSION, DeadLetterReason, Json, RecordError, RecordType, RemovalReason
from store.recovery import Recovery, check_end, check_follows, torn_bytes
from store.retention import kept, read_manifests
from store.segment import segment_number
from store.segment_directory import Segment, SegmentDirectory, open_segment, read_segment

#: How often a journal is listed again when segments vanish while it is read.
ATTEMPTS_MAX: Final = 5

_REMOVALS: Final[dict[int, str]] = {reason: reason.word for reason in RemovalReason}
_DEATHS: Final[dict[int, str]] = {reason: reason.word for reason in DeadLetterReason}


class Status(Enum):
    """The condition of a segment."""

    OK = "ok"
    TORN = "torn tail"
    CORRUPT = "corrupt"
    UNREADABLE = "unreadable"


@dataclass(slots=True)
class SegmentReport:
    """One segment.  Sizes in bytes, times in ms since the epoch; positions are those of its first and last record.

    `kept`: it is under retention/.  `error_offset` and `error` describe a problem, `unread_bytes`: how much follows it.
    """

    path: str
    number: int
    broker_id: str = ""
    kept: bool = False
    status: Status = Status.OK
    size: int = 0
    used: int = 0
    created: int = 0
    entries: int = 0
    records: int = 0
    first_position: int = 0
    last_position: int = 0
    first_timestamp: int = 0
    last_timestamp: int = 0
    types: Counter[str] = field(default_factory=Counter)
    error: str = ""
    error_offset: int = 0
    unread_bytes: int = 0


@dataclass(slots=True)
class Report:
    """The result of `verify`.  `problems` are sentences for people, none if all is well; the others list segments.

    `missing`: a broker needs them; `leftovers`: it removes them at its next start; `kept_missing`: the manifests of
    retention list them but they are not there, which matters only to audits.
    """

    broker_id: str = ""
    closed: bool = False
    segments: list[SegmentReport] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    leftovers: list[int] = field(default_factory=list)
    kept_missing: list[int] = field(default_factory=list)
    bodies: BodyReport = field(default_factory=BodyReport)
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether a broker would start on this journal."""
        return not self.problems

    @property
    def torn(self) -> bool:
        """Whether the newest segment has a torn tail, which a start would cut off."""
        return any(s.status is Status.TORN for s in self.segments)


@dataclass(slots=True)
class Line:
    """One record, readable.  `fields` are plain values; bytes are shown as their size unless `bodies` was requested."""

    segment: int
    offset: int
    position: int
    timestamp: int
    type: str
    fields: Json


@dataclass(slots=True)
class Stat:
    """Sizes and counts of a whole journal.  Times in ms since the epoch, 0 if there is nothing."""

    segments: int = 0
    bytes: int = 0
    used: int = 0
    kept_segments: int = 0
    kept_bytes: int = 0
    torn_copies: int = 0
    bodies: int = 0
    body_bytes: int = 0
    records: int = 0
    first_position: int = 0
    last_position: int = 0
    first_timestamp: int = 0
    last_timestamp: int = 0
    types: Counter[str] = field(default_factory=Counter)
    removals: Counter[str] = field(default_factory=Counter)


def verify(files: Files, directory: str) -> Report:
    """Check every segment, kept ones too, and whether any is missing.  Raises OSError if the directory is missing."""
    files.list_dir(directory)
    attempt = 0
    while True:
        attempt += 1
        try:
            report = _verify(files, directory)
            if not (report.missing or report.bodies.wrong) or attempt == ATTEMPTS_MAX:
                break
        except FileNotFoundError:
            if attempt == ATTEMPTS_MAX:
                raise Corrupt(f"{directory}/", 0, "segments keep vanishing") from None
    for path in kept(files, directory):
        with suppress(FileNotFoundError):  # removed by a limit
            found = _check(files, path, segment_number(path.rpartition("/")[2]), newest=False)
            found.kept = True
            _add(report, found)
    expected = read_manifests(files, directory).expected  # last: they record a move or removal before it happens
    there = {segment.number for segment in report.segments}.union(report.leftovers)
    newest = max(there, default=0)
    report.kept_missing = sorted(n for n in expected - there if n <= newest)
    return report


def _verify(files: Files, directory: str) -> Report:
    source = SegmentDirectory(files, directory)
    report = Report()
    present = source.segments()
    wanted = _needed(source, report)
    report.missing = sorted(wanted.keys() - set(present))
    report.leftovers = [n for n in present if wanted and n not in wanted]
    report.problems += [f"{source.path(n)}: the segment is missing" for n in report.missing]
    position = previous = 0
    needed = Needed()
    for number in present:
        if number in report.leftovers:
            continue
        found = _check(files, source.path(number), number, newest=number == present[-1], needed=needed)
        _add(report, found)
        if found.broker_id:
            report.broker_id = report.broker_id or found.broker_id
            whole = found.status is Status.OK  # behind damage no position is known
            stated_end = wanted.get(number, decode.UNSTATED) if whole else decode.UNSTATED
            _compare(report, found, previous, position, stated_end)
            previous, position = (number, found.last_position + 1) if whole else (0, 0)
    report.bodies = check_bodies(files, directory, needed, contents=True)
    report.problems += [f"{body_path(directory, id)}: {why}" for id, why in report.bodies.wrong.items()]
    return report


def _compare(report: Report, found: SegmentReport, previous: int, position: int, stated_end: int) -> None:
    """Check that a segment follows the others, and ends where the newest one says."""
    if found.broker_id != report.broker_id:
        _problem(report, found.path, 0, "the segment belongs to another broker")
    try:
        check_follows(found.path, found.number, found.first_position, previous, position)
        check_end(found.path, found.used, found.last_position + 1, stated_end)
    except Corrupt as corrupt:
        _problem(report, corrupt.path, corrupt.offset, corrupt.what)


def _problem(report: Report, path: str, offset: int, what: str) -> None:
    problem = f"{path}: {what} at byte {offset}"
    if problem not in report.problems:
        report.problems.append(problem)


def _needed(source: SegmentDirectory, report: Report) -> dict[int, int]:
    """The segments that there must be, and where they end if known; empty if the journal cannot say."""
    try:
        recovery = Recovery(source, strict=False)
    except Corrupt as corrupt:
        _problem(report, corrupt.path, corrupt.offset, corrupt.what)
        return {}
    except OSError:  # reported with its segment, or checked again if that is gone
        return {}
    report.broker_id = recovery.broker_id.hex()
    report.closed = recovery.verdict.closed
    return dict.fromkeys(recovery.segments, decode.UNSTATED) | recovery.stated_ends


def _add(report: Report, segment: SegmentReport) -> None:
    report.segments.append(segment)
    if segment.status in (Status.CORRUPT, Status.UNREADABLE):
        _problem(report, segment.path, segment.error_offset, segment.error)


def _check(files: Files, path: str, number: int, *, newest: bool, needed: Needed | None = None) -> SegmentReport:
    report = SegmentReport(path, number)
    try:
        data = files.read(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        report.status, report.error = Status.UNREADABLE, error.strerror or str(error)
        return report
    report.size = len(data)
    try:
        segment = open_segment(path, number, data)
    except Corrupt as corrupt:
        report.status, report.error, report.unread_bytes = Status.CORRUPT, corrupt.what, len(data)
        return report
    _describe(report, segment, newest=newest, needed=needed or Needed())
    return report


def _describe(report: SegmentReport, segment: Segment, *, newest: bool, needed: Needed) -> None:
    header, found = segment.header, segment.found
    report.broker_id = header.broker_id.hex()
    report.created = header.created
    report.used = found.end
    report.entries = len(found.entries)
    report.records = found.position - header.first_position
    report.first_position = header.first_position
    report.last_position = found.position - 1
    if found.entries:
        report.first_timestamp = found.entries[0].timestamp
        report.last_timestamp = found.entries[-1].timestamp
    try:
        report.types = _count_types(segment, needed)
        if found.damage:
            report.error, report.error_offset = found.damage, found.end
            report.unread_bytes = len(segment.data.rstrip(b"\0")) - found.end
            report.status = Status.TORN
            if not newest:
                segment.check_undamaged()
            torn_bytes(segment)
    except Corrupt as corrupt:
        report.status, report.error, report.error_offset = Status.CORRUPT, corrupt.what, corrupt.offset


def _count_types(segment: Segment, needed: Needed) -> Counter[str]:
    types: Counter[str] = Counter()
    large = False
    for (type, version), n in segment.count_types().items():
        types[RecordType(type).name] += n
        large |= version == LARGE_VERSION
    if large or needed.bodies:
        for raw in segment.records():
            needed.note(raw)
    return types


def iter_records(files: Files, directory: str, *, bodies: bool = False) -> Iterator[Line]:
    """Every record of the existing segments, oldest first, without a torn tail.  Raises Corrupt at damage."""
    source = SegmentDirectory(files, directory)
    present = source.segments()
    for number in present:
        try:
            segment = read_segment(source, number)
        except FileNotFoundError:
            continue
        for raw in segment.records():
            yield _readable(segment.path, raw, bodies)
        if number != present[-1]:
            segment.check_undamaged()


def _readable(path: str, raw: RawRecord, bodies: bool) -> Line:
    segment, position, timestamp, type, data, offset = raw
    try:
        plain = _plain(decode.decode(data, offset), bodies)
    except RecordError as error:
        raise Corrupt(path, offset, str(error)) from error
    return Line(segment, offset, position, timestamp, RecordType(type).name, plain)


def _plain(record: object, bodies: bool) -> Json:
    """A decoded record's fields as plain values; a message's header is part of them."""
    plain: Json = {}
    for each in fields(record):  # type: ignore[arg-type]  # every record is a dataclass
        value = getattr(record, each.name)
        if isinstance(value, decode.MessageHeader):
            plain.update(_plain(value, bodies))
        elif isinstance(value, BodyReference):
            plain |= {f"{each.name}_bytes": value.nbytes, f"{each.name}_file": value.id, f"{each.name}_crc": value.crc}
        elif isinstance(value, bytes):
            plain[f"{each.name}_bytes"] = len(value)
            if bodies or each.name == "annotations":
                plain[each.name] = value.decode("utf-8", "backslashreplace")
        else:
            plain[each.name] = list(value) if isinstance(value, tuple) else value
    if isinstance(record, decode.Removed | decode.Dropped):
        plain["reason"] = _REMOVALS.get(record.reason, record.reason)
    elif isinstance(record, decode.DeadLettered):
        plain["reason"] = _DEATHS.get(record.reason, record.reason)
    return plain


def stat(files: Files, directory: str) -> Stat:
    """Sizes and counts.  Damaged parts are left out: ask `verify` for those.  Raises OSError."""
    result = Stat()
    source = SegmentDirectory(files, directory)
    for number in source.segments():
        try:
            data = source.read(number)
        except FileNotFoundError:
            continue
        result.segments += 1
        result.bytes += len(data)
        _count(result, source.path(number), number, data)
    for path in kept(files, directory):
        with suppress(FileNotFoundError):  # removed by a limit
            result.kept_bytes += files.size(path)
            result.kept_segments += 1
    bodies = sizes(files, directory)
    result.bodies, result.body_bytes = len(bodies), sum(bodies.values())
    if "torn" in files.list_dir(directory):
        result.torn_copies = len(files.list_dir(f"{directory}/torn"))
    return result


def _count(result: Stat, path: str, number: int, data: bytes) -> None:
    try:
        segment = open_segment(path, number, data)
    except Corrupt:
        return
    found = segment.found
    result.used += found.end
    if not found.entries:
        return
    first = segment.header.first_position
    if not result.records:
        result.first_position = first
        result.first_timestamp = found.entries[0].timestamp
    result.records += found.position - first
    result.last_position = found.position - 1
    result.last_timestamp = found.entries[-1].timestamp
    try:
        for raw in segment.records():
            _count_record(result, raw[3], data, raw[5])
    except (Corrupt, RecordError):  # the rest of the segment is unknown
        return


def _count_record(result: Stat, type: int, data: bytes, offset: int) -> None:
    result.types[RecordType(type).name] += 1
    if type == RecordType.REMOVED:
        removed = decode.decode_removed(data, offset)
        result.removals[_REMOVALS.get(removed.reason, str(removed.reason))] += len(removed.ids)
