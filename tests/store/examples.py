"""A record of each type."""

from __future__ import annotations

from store import record
from store.record import RecordType, RemovalReason
from tests.store.workload import Body, death


def _message() -> bytes:
    parts: list[bytes] = []
    header = record.message_header(timestamp=1, queue_ids=[2, 3], address="addr", user="u")
    record.encode_messages(parts, header, 1, [Body(9, b"head", b"body")])
    return b"".join(parts)


def _copied() -> bytes:
    parts: list[bytes] = []
    header = record.message_header(timestamp=1, queue_ids=[2], address="addr")
    record.encode_copies(parts, header, 1, [Body(9, b"head", b"body")], 7)
    return b"".join(parts)


EXAMPLES = {
    RecordType.MESSAGE: _message(),
    RecordType.COPIED: _copied(),
    RecordType.REMOVED: record.removed(1, 2, [3, 4]),
    RecordType.COUNTS: record.counts(1, 2, [3, 4]),
    RecordType.DELIVERING: record.delivering(1, 2, [3, 4]),
    RecordType.SCHEDULED: record.scheduled(1, 2, [3, 4]),
    RecordType.DEAD_LETTERED: death(),
    RecordType.EXPIRED: record.expired(
        queue_id=1, old_id=2, new_id=3, enqueued=4, expiration=5, attempts=6, source=1, consumers=2, address="addr"
    ),
    RecordType.DROPPED: record.dropped(RemovalReason.UNROUTABLE, 2, 3, "addr"),
    RecordType.ADDRESS: record.address(1, {"name": "addr"}),
    RecordType.ADDRESS_DELETED: record.address_deleted(1, {"name": "addr"}),
    RecordType.QUEUE: record.queue(1, {"name": "q"}),
    RecordType.QUEUE_DELETED: record.queue_deleted(1, {"name": "q"}),
    RecordType.OPENED: record.opened(1, {2: 40, 3: 70}, {"version": "1"}),
    RecordType.CLOSED: record.closed(),
    RecordType.IDS: record.ids(1),
    RecordType.LOST: record.lost(),
    RecordType.TRIMMED: record.trimmed([1, 2]),
    RecordType.DIVERT: record.divert(1, {"name": "d"}),
    RecordType.DIVERT_DELETED: record.divert_deleted(1, {"name": "d"}),
    RecordType.TASK: record.task(1, {"name": "d"}),
    RecordType.TASK_DELETED: record.task_deleted(1, {"name": "d"}),
    RecordType.DUPLICATE_ID: record.duplicate_id(1, 2, b"id"),
    RecordType.SESSION: record.session(1, {"name": "c"}),
    RecordType.SESSION_DELETED: record.session_deleted(1, {"name": "c"}),
    RecordType.SESSION_PART: record.session_part(1, {"name": "p", "session": 2, "part": {}}),
    RecordType.SESSION_PART_DELETED: record.session_part_deleted(1, {"name": "p"}),
    RecordType.INFLIGHT: record.inflight(1, 2, [3, 4], [5, 6]),
    RecordType.RELEASED: record.released(1, [2, 3]),
    RecordType.RECEIVED: record.received(1, [2, 3]),
    RecordType.COMPLETED: record.completed(1, [2, 3], sent=True),
}
