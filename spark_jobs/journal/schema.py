"""The columns of the two views of a journal: `records` and `segments`.

All columns can be null.  Times have microseconds in UTC, as Spark requires; the journal has milliseconds.  A time of 0
is null.  A time that not every calendar can show in every time zone (before 0001-01-03 or after 9999-12-30, which is
possible for an expiration) becomes the first or last millisecond that all can show, so that conversions do not fail.
Ids are unsigned in the journal and signed here: they count up from 1, so the difference does not matter.

An empty string in a record (no user, no client ...) is null.  A code without a name in this software is `reason-N`,
`source-N` or `format-N`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its Arrow type, the same type in Spark's syntax, and its description."""

    name: str
    type: pa.DataType
    ddl: str
    doc: str


_TYPES: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "tinyint": pa.int8(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "array<bigint>": pa.list_(pa.field("element", pa.int64())),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}

#: Type names whose meaning depends on the session's settings, and the unambiguous name.
_FIRMLY: Final = {"timestamp": "timestamp_ltz"}

#: The `record_type` of rows for damage.
DAMAGE: Final = "damage"

#: The `record_type` of rows that count messages that came and went (see `unfinished`).
FINISHED: Final = "finished"


def _columns(rows: Iterable[tuple[str, str, str]]) -> dict[str, Column]:
    return {name: Column(name, _TYPES[ddl], ddl, doc) for name, ddl, doc in rows}


RECORDS: Final = _columns(
    (
        ("broker_id", "string", "the broker's id, 32 hex digits"),
        ("segment", "bigint", "number of the segment"),
        ("offset", "bigint", "byte offset of the record in the segment"),
        ("position", "bigint", "position of the record; damage: of the first lost record, null if unknown"),
        ("time", "timestamp", "when the record's entry was sealed"),
        ("record_type", "string", "message, removed, dead-lettered ... as in docs/journal-format.md, or damage"),
        (
            "message_id",
            "bigint",
            "the message; removed, counts, delivering, scheduled and inflight have a row for each",
        ),
        ("new_message_id", "bigint", "dead-lettered, expired: id of the message that replaces it; null: none"),
        ("queue_id", "bigint", "the queue that the record concerns; dead-lettered: null if the message was unroutable"),
        ("queue_ids", "array<bigint>", "message: the durable queues that it entered"),
        ("queue", "string", "name of queue_id, from the definitions in the segment"),
        (
            "address",
            "string",
            "address to which the message was sent; definitions: the defined address, or the queue's",
        ),
        ("protocol", "string", "message: stomp, amqp or mqtt, according to the encoding of its head"),
        ("user", "string", "the sender"),
        ("origin", "string", "message: the sender's client id or connection"),
        ("size", "bigint", "message: bytes of head and body; dropped: of all the messages"),
        ("body_bytes", "bigint", "message: bytes of the body"),
        ("priority", "tinyint", "message: 0 to 9"),
        ("sent", "timestamp", "message: when the broker accepted it"),
        ("expiration", "timestamp", "message, expired: when it expires"),
        ("expiry_source", "string", "what set the expiration: own, expiry-delay, min-, max-expiry-delay or unknown"),
        ("scheduled", "timestamp", "message, scheduled: earliest time of delivery"),
        ("reason", "string", "removed, dropped: why it left or entered no queue; dead-lettered: why it died"),
        ("text", "string", "dead-lettered: the reason in words; damage: what was found"),
        ("attempts", "int", "dead-lettered, expired: deliveries so far; counts: the delivery count"),
        (
            "enqueued",
            "timestamp",
            "dead-lettered, expired: when the broker accepted the message; duplicate-id: when its sender did",
        ),
        ("first_failure", "timestamp", "dead-lettered: time of the first failed delivery"),
        ("consumers", "int", "expired: number of consumers on the queue when the expiry was noticed"),
        ("client", "string", "dead-lettered: the last consumer's client id"),
        ("remote", "string", "dead-lettered: the last consumer's network address"),
        ("consumer_id", "bigint", "delivering: the consumer"),
        ("session_id", "bigint", "the client's session that the record concerns"),
        ("session", "string", "name of the session, from the definitions in the segment"),
        ("packet_id", "int", "the packet id; inflight, released, received and completed have a row for each"),
        ("direction", "string", "of the packet id: to-client if the broker assigned it, from-client if the client did"),
        ("count", "bigint", "dropped: number of messages; damage: number of lost records, null if unknown"),
        ("annotations", "string", "message: what the broker added, a JSON object"),
        ("previous_segment", "bigint", "copied: the segment of the original"),
        ("origin_message_id", "bigint", "message: its id before it was moved (_AMQ_ORIG_MESSAGE_ID)"),
        ("address_id", "bigint", "duplicate-id: the address that remembers the id"),
        ("duplicate_id", "binary", "duplicate-id: the id, or its SHA-256"),
        ("link_broker_id", "string", "duplicate-id from a link: the broker that sent the message"),
        ("link_message_id", "bigint", "duplicate-id from a link: the message's id there"),
        ("link_queue_id", "bigint", "duplicate-id from a link: the queue that it left there, 0: any"),
        ("definition", "string", "address, queue, session and their deletions, opened: the JSON object"),
        (
            "properties",
            "map<string,string>",
            "message: its headers, for AMQP the application properties; null for MQTT",
        ),
        ("body", "binary", "message: its body, null if it is in a file"),
        ("body_hash", "string", "message: 8-byte BLAKE2b of the body in hex; if it is in a file: crc32c-HEX-BYTES"),
    )
)

#: The columns that are read if none are named: all that are cheap.
DEFAULT_RECORDS: Final = tuple(name for name in RECORDS if name not in ("properties", "body", "body_hash"))

SEGMENTS: Final = _columns(
    (
        ("path", "string", "where the segment is"),
        ("segment", "bigint", "its number"),
        ("broker_id", "string", "the broker's id, 32 hex digits"),
        ("created", "timestamp", "when it was created"),
        ("size", "bigint", "bytes of the file"),
        ("used", "bigint", "bytes up to the end of the last valid entry"),
        ("entries", "bigint", "valid entries"),
        ("records", "bigint", "records that can be read"),
        ("first_position", "bigint", "position of its first record"),
        ("last_position", "bigint", "position of the last record that can be read; null: there is none"),
        ("first_time", "timestamp", "when the first entry was sealed"),
        ("last_time", "timestamp", "when the last entry was sealed"),
        ("status", "string", "ok, torn-tail, corrupt, unreadable (nothing can be read) or empty (no bytes)"),
        ("error_offset", "bigint", "byte offset of the first damage, or of the torn tail"),
        ("unread_bytes", "bigint", "bytes that contain data but no valid entry"),
        ("lost_records", "bigint", "number of lost records; null: unknown"),
        ("error", "string", "what is wrong"),
    )
)


def arrow_schema(view: Mapping[str, Column], names: Sequence[str] | None = None) -> pa.Schema:
    """The schema of batches with these columns in this order, or with all.  Raises KeyError for unknown names."""
    return pa.schema([pa.field(name, view[name].type) for name in (view if names is None else names)])


def ddl(view: Mapping[str, Column], names: Sequence[str] | None = None) -> str:
    """The same schema in Spark's syntax, with the columns' descriptions.  Raises KeyError for an unknown name."""
    columns = [view[name] for name in (view if names is None else names)]
    comments = [each.doc.replace("'", r"\'") for each in columns]  # double quotes may delimit names
    return ", ".join(
        f"`{each.name}` {_FIRMLY.get(each.ddl, each.ddl)} COMMENT '{comment}'"
        for each, comment in zip(columns, comments, strict=True)
    )
