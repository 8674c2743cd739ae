"""The records about a few messages, in order, as sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from spark_jobs.moment import milliseconds
from spark_jobs.results import UTC
from store.trail import text as trail_text
from store.trail.steps import StepKind, TrailStep

#: A record of the view `records`, by column.
Row = dict[str, Any]

#: Maximum number of records shown (the first): a message that is redelivered forever has one per delivery.
ROWS_MAX: Final = 10_000

#: The types that have a whole message: of one copied forward, the copy may be the only record.
WHOLE: Final = ("message", "copied")

#: The record types that concern messages.
TYPES: Final = (*WHOLE, "removed", "counts", "delivering", "scheduled", "inflight", "dead-lettered", "expired")

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

#: The types that move a message.
_MOVING: Final = ("message", "removed", "dead-lettered", "expired")

_KINDS: Final = {
    "message": StepKind.STORED,
    "copied": StepKind.COPIED,
    "removed": StepKind.LEFT,
    "counts": StepKind.RETURNED,
    "delivering": StepKind.DELIVERING,
    "scheduled": StepKind.SCHEDULED,
    "inflight": StepKind.IN_FLIGHT,
    "dead-lettered": StepKind.DIED,
    "expired": StepKind.EXPIRED,
}

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
    """Records of some messages (COLUMNS), in order, and how many more there are."""

    rows: list[Row]
    beyond: int

    def places(self) -> dict[tuple[int, int], list[str]]:
        """Where each message entered and left each queue, or died: (queue, message) -> places."""
        found: dict[tuple[int, int], list[str]] = {}
        for row in self.rows:
            for queue_id in row["queue_ids"] or [row["queue_id"]]:
                if row["record_type"] in _MOVING:
                    found.setdefault((queue_id, row["message_id"]), []).append(_where(row))
        return found

    def table(self, names: Mapping[int, str]) -> pa.Table:
        """A readable table; `names` has the names of queues by id."""
        return pa.Table.from_pylist(
            [
                {
                    "time": row["time"],
                    "position": row["position"],
                    "message": row["message_id"],
                    "queue": ", ".join(_queues(row, names)),
                    "what happened": sentence(row),
                    "where": _where(row),
                }
                for row in self.rows
            ],
            schema=_SCHEMA,
        )


def sentence(row: Row) -> str:
    """A record in words, as in a message's trail."""
    return trail_text.sentence(_step(row))


def _step(row: Row) -> TrailStep:
    """A row as a step of a trail, without names of queues."""
    client = row["client"] or row["session"] or ("" if row["session_id"] is None else str(row["session_id"]))
    texts: Row = {name: row[name] or "" for name in ("protocol", "address", "user", "reason", "text", "remote")}
    numbers: Row = {name: row[name] or 0 for name in ("size", "attempts", "consumers", "consumer_id", "packet_id")}
    return TrailStep(
        kind=_KINDS[row["record_type"]],
        message=row["message_id"],
        time=milliseconds(row["time"]),
        position=row["position"],
        segment=row["segment"],
        offset=row["offset"],
        client=client,
        expiration=milliseconds(row["expiration"]),
        scheduled=milliseconds(row["scheduled"]),
        new_id=row["new_message_id"] or 0,
        old_id=row["origin_message_id"] or 0,
        **texts,
        **numbers,
    )


def _where(row: Mapping[str, Any]) -> str:
    return f"{row['segment']}:{row['offset']}"


def _queues(row: Mapping[str, Any], names: Mapping[int, str]) -> list[str]:
    ids = row["queue_ids"] or ([] if row["queue_id"] is None else [row["queue_id"]])
    return [names.get(id) or f"queue {id}" for id in ids]
