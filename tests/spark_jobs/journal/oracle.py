"""The view `records`, made the slow way: one record after the other, as `store.decode` reads it, into dictionaries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

from spark_jobs.journal.headers import amqp_headers
from store import decode
from store.body import BodyReference
from store.decode import RawRecord
from store.record import DeadLetterReason, RecordType, RemovalReason
from store.segment import decode_header
from store.segment_directory import open_segment

Row = dict[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SOURCES = ("unknown", "own", "expiry-delay", "min-expiry-delay", "max-expiry-delay")
_INT32_MAX = (1 << 31) - 1


def raw(data: bytes, number: int = 1) -> list[RawRecord]:
    """Every record of a good segment."""
    return list(open_segment("segment", number, data).records())


def rows(data: bytes, number: int = 1) -> list[Row]:
    """All rows of a good segment; a column that is not there is null."""
    records = raw(data, number)
    queues: dict[int, str | None] = {}
    sessions: dict[int, str | None] = {}
    for _, _, _, type, buffer, offset in records:
        if type in (RecordType.QUEUE, RecordType.QUEUE_DELETED):
            definition = decode.decode_definition(buffer, offset)
            name = _string(definition.definition.get("name"))
            if type == RecordType.QUEUE:
                queues[definition.id] = name
            else:
                queues.setdefault(definition.id, name)
        elif type in (RecordType.SESSION, RecordType.SESSION_DELETED):
            definition = decode.decode_definition(buffer, offset)
            sessions[definition.id] = _string(definition.definition.get("name"))
    found = []
    for segment, position, time, type, buffer, offset in records:
        common: Row = {
            "broker_id": decode_header(data).broker_id.hex(),
            "segment": segment,
            "offset": offset,
            "position": position,
            "time": _time(time),
            "record_type": RecordType(type).name.lower().replace("_", "-"),
        }
        for row in _rows(decode.decode(buffer, offset), type):
            if "queue_id" in row:
                row["queue"] = queues.get(row["queue_id"])
            if "session_id" in row:
                row["session"] = sessions.get(row["session_id"])
            found.append({**common, **{name: value for name, value in row.items() if value is not None}})
    return found


def _rows(record: decode.Record, type: int) -> Iterator[Row]:
    match record:
        case decode.Message():
            yield _message(record)
        case decode.Copied():
            yield {**_message(record), "previous_segment": record.previous}
        case decode.Removed():
            reason = _word(RemovalReason, record.reason)
            yield from ({"message_id": id, "queue_id": record.queue_id, "reason": reason} for id in record.ids)
        case decode.Counts():
            attempts = min(record.count, _INT32_MAX)
            yield from ({"message_id": id, "queue_id": record.queue_id, "attempts": attempts} for id in record.ids)
        case decode.Delivering():
            consumer = record.consumer_id
            yield from ({"message_id": id, "queue_id": record.queue_id, "consumer_id": consumer} for id in record.ids)
        case decode.Scheduled():
            due = _time(record.due)
            yield from ({"message_id": id, "queue_id": record.queue_id, "scheduled": due} for id in record.ids)
        case decode.Inflight():
            about: Row = {"queue_id": record.queue_id, "session_id": record.session_id, "direction": "to-client"}
            yield from (
                {**about, "message_id": id, "packet_id": packet_id}
                for id, packet_id in zip(record.ids, record.packet_ids, strict=True)
            )
        case decode.Packets():
            direction = "to-client" if record.sent else "from-client"
            about = {"session_id": record.session_id, "direction": direction}
            yield from ({**about, "packet_id": packet_id} for packet_id in record.packet_ids)
        case decode.DeadLettered() | decode.Expired():
            yield _death(record)
        case decode.Dropped():
            yield {
                "reason": _word(RemovalReason, record.reason),
                "count": record.count,
                "size": record.size,
                "address": record.address or None,
            }
        case decode.Definition():
            yield _definition(record, type)
        case decode.DuplicateId():
            yield _duplicate_id(record)
        case decode.Opened():
            yield {"definition": _json(record.about)}
        case _:
            yield {}


def _message(message: decode.Message | decode.Copied) -> Row:
    header = message.header
    return {
        "message_id": message.id,
        "queue_ids": list(header.queue_ids),
        "address": header.address or None,
        "protocol": {1: "stomp", 2: "amqp", 3: "mqtt"}.get(header.format, f"format-{header.format}"),
        "user": header.user or None,
        "origin": header.origin or None,
        "size": len(message.head) + _length(message.body),
        "body_bytes": _length(message.body),
        "priority": min(header.priority, 127),
        "sent": _time(header.timestamp),
        "expiration": _time(header.expiration),
        "expiry_source": _source(header.expiry_source) if header.expiration else None,
        "scheduled": _time(header.scheduled),
        "annotations": header.annotations.decode("utf-8", "backslashreplace") or None,
        "origin_message_id": _origin(header.annotations),
        "properties": _properties(message.head, header.format),
        **_body(message.body),
    }


def _length(body: bytes | BodyReference) -> int:
    return body.nbytes if isinstance(body, BodyReference) else len(body)


def _body(body: bytes | BodyReference) -> Row:
    if isinstance(body, BodyReference):
        return {"body": None, "body_hash": f"crc32c-{body.crc:08x}-{body.nbytes}"}
    return {"body": body, "body_hash": blake2b(body, digest_size=8).hexdigest()}


def _duplicate_id(record: decode.DuplicateId) -> Row:
    row: Row = {
        "message_id": record.message_id,
        "address_id": record.address_id,
        "duplicate_id": record.id or None,
    }
    if record.id.startswith(b"link:") and len(record.id) == 53:
        row["link_broker_id"] = record.id[5:21].hex()
        row["link_message_id"] = int.from_bytes(record.id[21:29], signed=True)
        row["link_queue_id"] = int.from_bytes(record.id[37:45], signed=True)
        row["enqueued"] = _time(int.from_bytes(record.id[29:37], signed=True))
    return row


def _death(record: decode.DeadLettered | decode.Expired) -> Row:
    values = {each.name: getattr(record, each.name) for each in fields(record)}
    row: Row = {name: value or None for name, value in values.items() if isinstance(value, str)}
    row |= {
        "message_id": record.old_id,
        "new_message_id": record.new_id or None,
        "queue_id": record.queue_id or None,
        "attempts": min(record.attempts, _INT32_MAX),
        "enqueued": _time(record.enqueued),
    }
    if isinstance(record, decode.DeadLettered):
        row["reason"] = _word(DeadLetterReason, record.reason)
        row["first_failure"] = _time(record.first_failure)
    else:
        row["expiration"] = _time(record.expiration)
        row["expiry_source"] = _source(record.source)
        row["consumers"] = record.consumers
    return row


_NAMELESS = (
    *(RecordType.QUEUE_DELETED, RecordType.DIVERT, RecordType.DIVERT_DELETED),
    *(RecordType.TASK, RecordType.TASK_DELETED),
    *(RecordType.SESSION_PART, RecordType.SESSION_PART_DELETED),
)


def _definition(record: decode.Definition, type: int) -> Row:
    row: Row = {"definition": _json(record.definition)}
    if type in (RecordType.QUEUE, RecordType.QUEUE_DELETED):
        row["queue_id"] = record.id
    if type in (RecordType.SESSION, RecordType.SESSION_DELETED):
        row["session_id"] = record.id
    elif type not in _NAMELESS:
        row["address"] = _string(record.definition.get("address" if type == RecordType.QUEUE else "name"))
    return row


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _word(reasons: type[RemovalReason] | type[DeadLetterReason], code: int) -> str:
    return reasons(code).word if code in set(reasons) else f"reason-{code}"


def _source(code: int) -> str:
    return _SOURCES[code] if code < len(_SOURCES) else f"source-{code}"


def _time(milliseconds: int) -> datetime | None:
    if milliseconds == 0:
        return None
    first, last = datetime(1, 1, 3, tzinfo=UTC), datetime(9999, 12, 30, 23, 59, 59, 999_000, tzinfo=UTC)
    try:
        return min(max(_EPOCH + timedelta(milliseconds=milliseconds), first), last)
    except OverflowError:
        return last if milliseconds > 0 else first


def _origin(annotations: bytes) -> int | None:
    try:
        value = json.loads(annotations)["_AMQ_ORIG_MESSAGE_ID"]
    except (ValueError, KeyError, TypeError):
        return None
    return value if type(value) is int and value > 0 else None


def _properties(head: bytes, format: int) -> list[tuple[str, str | None]] | None:
    if format != 1:
        return amqp_headers(head) if format == 2 else None  # which has its own oracle, in test_headers
    found: dict[str, str] = {}
    for line in head.split(b"\n")[:-1]:
        name, _, value = line.decode("utf-8", "backslashreplace").partition(":")
        found.setdefault(_unescaped(name), _unescaped(value))
    return list(found.items())


def _unescaped(value: str) -> str:
    out, at = "", 0
    meanings = {"r": "\r", "n": "\n", "c": ":", "\\": "\\"}
    while at < len(value):
        if value[at] == "\\" and value[at + 1 : at + 2] in meanings:
            out += meanings[value[at + 1]]
            at += 2
        else:
            out += value[at]
            at += 1
    return out
