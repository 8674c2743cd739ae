"""The columns of the two views of a journal: `records` and `segments`.

All columns can be null.  Times have microseconds in UTC as Spark wants them; the journal knows milliseconds.  A time of
0 is null, and one that not every calendar shows in every time zone (before 0001-01-03 or behind 9999-12-30, an
expiration can be that) is the first or last millisecond that does, so that nothing breaks that converts it.  Ids are
unsigned in the journal and signed here: they count up from 1, so the difference does not come up.
An empty string of a record (no user, no client ...) is null.  A code that this software has no word for is `reason-N`,
`source-N` or `format-N`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its Arrow type, the same as Spark writes it, and what it says."""

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

#: What a session's settings may take for another type, by the name that none does.
_FIRMLY: Final = {"timestamp": "timestamp_ltz"}

#: The `record_type` of a row that stands for damage.
DAMAGE: Final = "damage"

#: The `record_type` of rows that stand for messages that came and went (see `unfinished`).
FINISHED: Final = "finished"


def _columns(rows: Iterable[tuple[str, str, str]]) -> dict[str, Column]:
    return {name: Column(name, _TYPES[ddl], ddl, doc) for name, ddl, doc in rows}


RECORDS: Final = _columns(
    (
        ("broker_id", "string", "the broker's id, 32 hex digits"),
        ("segment", "bigint", "number of the segment"),
        ("offset", "bigint", "byte of the segment at which the record begins"),
        ("position", "bigint", "position of the record; damage: of the first record lost, null if not known"),
        ("time", "timestamp", "when the record's entry was sealed"),
        ("record_type", "string", "message, removed, dead-lettered ... as docs/journal-format.md has them, or damage"),
        ("message_id", "bigint", "the message; removed, counts, delivering, scheduled, inflight have one row for each"),
        ("new_message_id", "bigint", "dead-lettered, expired: what it lives on as; null: as nothing"),
        ("queue_id", "bigint", "the queue that the record is about; dead-lettered: null if none took the message"),
        ("queue_ids", "array<bigint>", "message: the durable queues that took it"),
        ("queue", "string", "name of queue_id, by the definitions in the segment"),
        ("address", "string", "where the message was sent; definitions: the address defined, or the queue's"),
        ("protocol", "string", "message: stomp, amqp, mqtt, by the encoding of its head"),
        ("user", "string", "the sender"),
        ("origin", "string", "message: the sender's client id or connection"),
        ("size", "bigint", "message: bytes of head and body; dropped: of all the messages"),
        ("body_bytes", "bigint", "message: bytes of the body"),
        ("priority", "tinyint", "message: 0 to 9"),
        ("sent", "timestamp", "message: when the broker took it"),
        ("expiration", "timestamp", "message, expired: when it expires"),
        ("expiry_source", "string", "what set the expiration: own, expiry-delay, min-, max-expiry-delay or unknown"),
        ("scheduled", "timestamp", "message, scheduled: not to be delivered before"),
        ("reason", "string", "removed, dropped: why it left or got nowhere; dead-lettered: why it died"),
        ("text", "string", "dead-lettered: the reason as a sentence; damage: what was found"),
        ("attempts", "int", "dead-lettered, expired: deliveries so far; counts: the delivery count"),
        (
            "enqueued",
            "timestamp",
            "dead-lettered, expired: when the broker took the message; duplicate-id: when its sender did",
        ),
        ("first_failure", "timestamp", "dead-lettered: when a delivery failed first"),
        ("consumers", "int", "expired: consumers on the queue when it was noticed"),
        ("client", "string", "dead-lettered: the last consumer's client id"),
        ("remote", "string", "dead-lettered: the last consumer's network address"),
        ("consumer_id", "bigint", "delivering: the consumer"),
        ("session_id", "bigint", "the client's session that the record is about"),
        ("session", "string", "its name, by the definitions in the segment"),
        ("packet_id", "int", "inflight, released, received and completed have one row for each"),
        ("direction", "string", "of the packet id: to-client if the broker gave it, from-client if the client did"),
        ("count", "bigint", "dropped: messages; damage: records lost, null if not known"),
        ("annotations", "string", "message: what the broker added, a JSON object"),
        ("previous_segment", "bigint", "copied: the segment of which it is a copy"),
        ("origin_message_id", "bigint", "message: what it was before it was moved (_AMQ_ORIG_MESSAGE_ID)"),
        ("address_id", "bigint", "duplicate-id: the address that remembers it"),
        ("duplicate_id", "binary", "duplicate-id: the id, or its SHA-256"),
        ("link_broker_id", "string", "duplicate-id, of a link: the broker that sent the message"),
        ("link_message_id", "bigint", "duplicate-id, of a link: the message's id there"),
        ("link_queue_id", "bigint", "duplicate-id, of a link: the queue that it left there, 0: any"),
        ("definition", "string", "address, queue, session and their deletions, opened: the JSON object"),
        ("properties", "map<string,string>", "message: its headers, of AMQP the application properties; null for MQTT"),
        ("body", "binary", "message: its body, null if that is in a file"),
        ("body_hash", "string", "message: BLAKE2b of the body with 8 bytes, as hex; if in a file crc32c-HEX-BYTES"),
    )
)

#: What is read unless columns are named: all that costs little.
DEFAULT_RECORDS: Final = tuple(name for name in RECORDS if name not in ("properties", "body", "body_hash"))

SEGMENTS: Final = _columns(
    (
        ("path", "string", "where the segment is"),
        ("segment", "bigint", "its number"),
        ("broker_id", "string", "the broker's id, 32 hex digits"),
        ("created", "timestamp", "when it was begun"),
        ("size", "bigint", "bytes of the file"),
        ("used", "bigint", "bytes up to the end of the last valid entry"),
        ("entries", "bigint", "valid entries"),
        ("records", "bigint", "records that can be read"),
        ("first_position", "bigint", "position of its first record"),
        ("last_position", "bigint", "position of the last record read; null: there is none"),
        ("first_time", "timestamp", "when the first entry was sealed"),
        ("last_time", "timestamp", "when the last entry was sealed"),
        ("status", "string", "ok, torn-tail, corrupt, unreadable (nothing could be read) or empty (no byte)"),
        ("error_offset", "bigint", "byte of the first damage, or of the torn tail"),
        ("unread_bytes", "bigint", "bytes that hold something but no valid entry"),
        ("lost_records", "bigint", "records lost; null: not known how many"),
        ("error", "string", "what is wrong"),
    )
)


def arrow_schema(view: Mapping[str, Column], names: Sequence[str] | None = None) -> pa.Schema:
    """The schema of batches with these columns in this order, or with all.  Raises KeyError for an unknown name."""
    return pa.schema([pa.field(name, view[name].type) for name in (view if names is None else names)])


def ddl(view: Mapping[str, Column], names: Sequence[str] | None = None) -> str:
    """The same schema as Spark reads it, with what the columns say.  Raises KeyError for an unknown name."""
    columns = [view[name] for name in (view if names is None else names)]
    comments = [each.doc.replace("'", r"\'") for each in columns]  # double quotes may be those of names
    return ", ".join(
        f"`{each.name}` {_FIRMLY.get(each.ddl, each.ddl)} COMMENT '{comment}'"
        for each, comment in zip(columns, comments, strict=True)
    )
