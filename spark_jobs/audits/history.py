"""The records about a few messages, in order, as sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from spark_jobs.audits.tables import UTC, many

#: A record as the view `records` has it, by column.
Row = dict[str, Any]

#: Records that are shown, the first ones: a message that is delivered over and over has one a delivery.
ROWS_MAX: Final = 10_000

#: Records that speak of messages.
TYPES: Final = ("message", "removed", "counts", "delivering", "scheduled", "inflight", "dead-lettered", "expired")

COLUMNS: Final = (
    "record_type",
    "segment",
    "offset",
    "position",
    "time",
    "message_id",
    "new_message_id",
    "origin_message_id",
    "queue_id",
    "queue_ids",
    "queue",
    "address",
    "user",
    "protocol",
    "size",
    "expiration",
    "scheduled",
    "reason",
    "text",
    "attempts",
    "consumers",
    "client",
    "remote",
    "consumer_id",
    "session_id",
    "session",
    "packet_id",
)

#: Those that move it.
_MOVING: Final = ("message", "removed", "dead-lettered", "expired")

_SCHEMA: Final = pa.schema(
    [
        ("time", UTC),
        ("position", pa.int64()),
        ("message", pa.int64()),
        ("queue", pa.string()),
        ("what happened", pa.string()),
        ("where", pa.string()),
    ]
)


@dataclass(slots=True)
class History:
    """Records about some messages (COLUMNS), in order, and how many more there are."""

    rows: list[Row]
    beyond: int

    def places(self) -> dict[tuple[int, int], list[str]]:
        """Where each message entered and left each queue, and what was told of that: (queue, message) -> places."""
        found: dict[tuple[int, int], list[str]] = {}
        for row in self.rows:
            for queue_id in row["queue_ids"] or [row["queue_id"]]:
                if row["record_type"] in _MOVING:
                    found.setdefault((queue_id, row["message_id"]), []).append(_where(row))
        return found

    def table(self, names: Mapping[int, str]) -> pa.Table:
        """For people; `names` of queues by id."""
        return pa.Table.from_pylist(
            [
                {
                    "time": row["time"],
                    "position": row["position"],
                    "message": row["message_id"],
                    "queue": ", ".join(_queues(row, names)),
                    "what happened": told(row),
                    "where": _where(row),
                }
                for row in self.rows
            ],
            schema=_SCHEMA,
        )


def told(row: Row) -> str:
    """What a record says."""
    return _TELL[row["record_type"]](row)


def _where(row: Mapping[str, Any]) -> str:
    return f"{row['segment']}:{row['offset']}"


def _queues(row: Mapping[str, Any], names: Mapping[int, str]) -> list[str]:
    ids = row["queue_ids"] or ([] if row["queue_id"] is None else [row["queue_id"]])
    return [names.get(id) or f"queue {id}" for id in ids]


def _stored(row: Row) -> str:
    parts = [f"stored on {row['address']}, {row['size']:,} bytes"]
    if row["protocol"]:
        parts[0] += f" by {row['protocol']}"
    if row["user"]:
        parts.append(f"from {row['user']}")
    if row["origin_message_id"]:
        parts.append(f"it was {row['origin_message_id']} before")
    if row["scheduled"]:
        parts.append(f"not before {_time(row['scheduled'])}")
    if row["expiration"]:
        parts.append(f"expires {_time(row['expiration'])}")
    return "; ".join(parts)


def _time(value: datetime) -> str:
    return value.isoformat(timespec="milliseconds")


def _scheduled(row: Row) -> str:
    return f"waits until {_time(row['scheduled'])}" if row["scheduled"] else "waits no longer"


def _dead(row: Row) -> str:
    said = f"died after {many(row['attempts'] or 0, 'delivery', 'deliveries')}: {row['reason']}"
    if row["text"]:
        said += f" ({row['text']})"
    if row["client"] or row["remote"]:
        said += f", last held by {row['client'] or row['remote']}"
    return f"{said}; {_heir(row)}"


def _expired(row: Row) -> str:
    readers = row["consumers"] or 0
    return f"expired ({_time(row['expiration'])}), {many(readers, 'consumer')} on the queue; {_heir(row)}"


def _heir(row: Row) -> str:
    return f"lives on as {row['new_message_id']}" if row["new_message_id"] else "nothing is left of it"


_TELL: Final = {
    "message": _stored,
    "removed": lambda row: f"left: {row['reason']}",
    "counts": lambda row: f"came back, failed {many(row['attempts'] or 0, 'time')} so far",
    "delivering": lambda row: f"about to leave for consumer {row['consumer_id']}",
    "scheduled": _scheduled,
    "inflight": lambda row: f"about to leave for {row['session'] or row['session_id']} as packet {row['packet_id']}",
    "dead-lettered": _dead,
    "expired": _expired,
}
