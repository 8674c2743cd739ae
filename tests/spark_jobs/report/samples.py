"""Results as the audits make them, without a journal: realistic, empty, damaged, huge, and full of hostile texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

import pyarrow as pa

from spark_jobs.results import Chart, Coverage, Damage, Result, Section, Verdict

MOMENT: Final = pa.timestamp("us", tz="UTC")
START: Final = datetime(2026, 11, 17, 22, 0, 0, tzinfo=UTC)

#: A text that would steer a terminal, close a tag, begin a formula or hide what it is, if it were let.
HOSTILE: Final = "\x1b[2J\x9b31m</table><script>alert(1)</script>&amp;\"'\u202e$\\frac{1}{2}$\r\n=1+1\u2066"

WHOLE: Final = Coverage(
    broker_id="5d0c8a3f9be1447a",
    paths=("/var/lib/bartleby",),
    segments=148,
    bytes=9_663_676_416,
    first_position=1,
    next_position=41_208_338,
    first_time=1_795_039_200_000,
    last_time=1_795_298_399_512,
    torn_bytes=4_181,
)

DAMAGED: Final = replace(
    WHOLE,
    trimmed_records=912_004,
    torn_bytes=0,
    damage=(
        Damage("/var/lib/bartleby/journal/0000000098.journal", 0, 27_114_002, 280_117, "the segment is missing"),
        Damage(
            "/var/lib/bartleby/journal/0000000112.journal", 5_120_764, 31_020_117, 41, "an entry fails its checksum"
        ),
        Damage("/var/lib/bartleby/journal/0000000120.journal", 64, -1, -1, "records of an unknown type (43)"),
    ),
)

_WAYS: Final = ("consumed", "expired", "dead-lettered", "replaced", "evicted", "purged", "dropped", "moved", "deleted")


def table(columns: Mapping[str, pa.DataType], rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as a table; what a row does not say is null."""
    return pa.Table.from_pylist([dict(row) for row in rows], pa.schema(list(columns.items())))


def ledger(queues: int = 7, coverage: Coverage = WHOLE, verdict: Verdict = Verdict.BALANCED) -> Result:
    """A ledger of some queues."""
    random = Random(4)
    names = ["orders", "orders.eu", "invoices", "shipments.created", "mail.outgoing", "DLQ", "ExpiryQueue"]
    rows: list[dict[str, Any]] = []
    for number in range(queues):
        name = names[number] if number < len(names) else f"tenant-{number:04}.orders.incoming"
        counts = {way: int(random.paretovariate(0.6)) * 7 for way in _WAYS[:3]} | {"present": random.randrange(4_000)}
        counts["consumed"] = random.randrange(100_000, 12_000_000)
        row = {"queue": name, "address": name.split(".")[0], "opening": 0, **dict.fromkeys(_WAYS, 0), **counts}
        row |= {"enqueued": sum(counts.values()), "difference": 0, "queue id": number + 3}
        row["oldest present"] = START + timedelta(minutes=random.randrange(3_000))
        rows.append(row)
    faults = []
    if verdict is Verdict.VIOLATED:
        rows[0]["difference"], rows[0]["enqueued"] = 2, rows[0]["enqueued"] + 2
        faults = [
            _fault(
                "left twice", 4_711_002, entered=1, left=2, way="consumed", where="112:5120764, 112:5121340, 113:64"
            ),
            _fault("left without entering", 4_711_377, entered=0, left=1, way="purged", where="114:90112"),
        ]
    columns = ("opening", "enqueued", *_WAYS, "present", "difference")
    kinds: dict[str, pa.DataType] = {"queue": pa.string(), "address": pa.string(), **dict.fromkeys(columns, pa.int64())}
    kinds |= {"oldest present": MOMENT, "queue id": pa.int64()}
    totals = {name: sum(row[name] for row in rows) for name in columns}
    ways = [{"way": way, "messages": totals[way]} for way in (*_WAYS, "present")]
    return Result(
        audit="ledger",
        coverage=coverage,
        summary={"queues": queues, "messages stored": totals["enqueued"], **totals, "faults": len(faults)},
        sections=(
            Section(
                "ways",
                "What became of them",
                table({"way": pa.string(), "messages": pa.int64()}, ways),
                chart=Chart("way", ("messages",), "What became of the messages"),
            ),
            Section(
                "queues", "The books of the queues", table(kinds, rows), "opening + enqueued = the ways out + present."
            ),
            Section("faults", "Faults", table(_FAULTS, faults), "" if faults else "There are none."),
        ),
        verdict=verdict,
        problems=tuple(f"1 message: {fault['fault']}" for fault in faults),
        options={"top": "20"},
    )


_FAULTS: Final[dict[str, pa.DataType]] = {
    "fault": pa.string(),
    "message": pa.int64(),
    "queue": pa.string(),
    "entered": pa.int64(),
    "left": pa.int64(),
    "way": pa.string(),
    "where": pa.string(),
}


def _fault(fault: str, message: int, **more: int | str) -> dict[str, int | str]:
    return {"fault": fault, "message": message, "queue": "orders", **more}


def dlq(hours: int = 62, coverage: Coverage = WHOLE) -> Result:
    """Dead letters over some hours, none in the small ones of the night."""
    random = Random(5)
    by_hour: list[dict[str, Any]] = []
    for hour in range(hours):
        when = START + timedelta(hours=hour)
        if 1 <= when.hour <= 4:
            continue
        peak = 240 if hour in (40, 41) else 30
        by_hour.append({"hour": when, "max-deliveries": random.randrange(peak), "rejected": random.randrange(18)})
    dead = sum(row["max-deliveries"] + row["rejected"] for row in by_hour)
    reasons: dict[str, pa.DataType] = {"max-deliveries": pa.int64(), "rejected": pa.int64()}
    places = [
        _place("orders", "orders", 412, 1, 4.8, 5),
        _place("invoices", "invoices", 96, 10, 10.0, 10),
        _place("shipments.created", "shipments.created::warehouse-north", 31, 1, 1.0, 1),
    ]
    waiting = [
        {
            "message": 4_710_050 + n,
            "was": 4_698_221 + 17 * n,
            "address": "orders",
            "reason": "max-deliveries",
            "attempts": 5,
            "died": START + timedelta(hours=3 * n, milliseconds=12_345),
            "age (s)": 202_000.25 - 10_800.0 * n,
        }
        for n in range(6)
    ]
    return Result(
        audit="dlq",
        coverage=coverage,
        summary={
            "dead letters and killed": dead,
            "killed": 0,
            "still waiting": 501,
            "brought back": 38,
            "brought back and consumed": 35,
            "brought back and died again": 3,
            "oldest waiting (s)": 202_000,
        },
        sections=(
            Section(
                "hours",
                "When they died",
                table({"hour": MOMENT} | reasons, by_hour),
                chart=Chart("hour", tuple(reasons), "Dead letters by hour (UTC)"),
            ),
            Section(
                "places",
                "Where they died",
                table(_PLACES, places),
                chart=Chart("address", ("dead letters",), "Dead letters by address of origin"),
            ),
            Section("oldest", "The oldest that still wait", table(_WAITING, waiting), "Ages to the last record read."),
            Section("poison", "Poison candidates", table({"key": pa.string(), "deaths": pa.int64()}, [])),
        ),
        problems=("3 of the dead letters that were brought back have died again",),
        options={"addresses": "orders.#", "fail over": "1000", "top": "20"},
    )


_PLACES: Final[dict[str, pa.DataType]] = {
    "address": pa.string(),
    "queue": pa.string(),
    "dead letters": pa.int64(),
    "attempts min": pa.int32(),
    "attempts mean": pa.float64(),
    "attempts max": pa.int32(),
    "first death": MOMENT,
    "last death": MOMENT,
}
_WAITING: Final[dict[str, pa.DataType]] = {
    "message": pa.int64(),
    "was": pa.int64(),
    "address": pa.string(),
    "reason": pa.string(),
    "attempts": pa.int32(),
    "died": MOMENT,
    "age (s)": pa.float64(),
}


def _place(address: str, queue: str, dead: int, low: int, mean: float, high: int) -> dict[str, Any]:
    return {
        "address": address,
        "queue": queue,
        "dead letters": dead,
        "attempts min": low,
        "attempts mean": mean,
        "attempts max": high,
        "first death": START + timedelta(minutes=17, milliseconds=250),
        "last death": START + timedelta(hours=49),
    }


def trace() -> Result:
    """One message that died and was brought back."""
    told = [
        "stored on orders, 412 bytes by stomp; from shop",
        "came back, failed 1 time so far",
        "died after 5 deliveries: max-deliveries (no stock of SKU 22-881: the warehouse did not answer within 30 s, "
        "and the order cannot be split), last held by warehouse-2; lives on as 4710050",
        "left: dead-lettered",
    ]
    rows = [
        {
            "time": START + timedelta(seconds=40 * n, milliseconds=7 * n),
            "position": 812_004 + 131 * n,
            "message": 4_698_221,
            "queue": "orders",
            "what happened": what,
            "where": f"3:{64 + 9_000 * n}",
        }
        for n, what in enumerate(told)
    ]
    kinds: dict[str, pa.DataType] = {"time": MOMENT, "position": pa.int64(), "message": pa.int64()}
    kinds |= dict.fromkeys(("queue", "what happened", "where"), pa.string())
    return Result(
        audit="trace",
        coverage=WHOLE,
        summary={"message": 4_698_221, "ids": 2, "records": 4, "now": "on DLQ as 4710050"},
        sections=(Section("life", "What happened to it", table(kinds, rows)),),
    )


def empty() -> Result:
    """Nothing at all was found in an empty journal."""
    coverage = Coverage("5d0c8a3f9be1447a", ("/var/lib/bartleby",), 1, 64, 1, 1, 0, 0)
    chart = Chart("address", ("dead letters",), "Dead letters by address")
    none = Section("places", "Where they died", table(_PLACES, []), chart=chart)
    return Result("dlq", coverage, {"dead letters and killed": 0}, (none,))


def hostile() -> Result:
    """Every text is one that a client chose to do harm."""
    kinds: dict[str, pa.DataType] = {
        HOSTILE: pa.string(),
        "n": pa.int64(),
        "raw": pa.binary(),
        "struct": pa.struct([("key", pa.string())]),
        "list": pa.list_(pa.string()),
    }
    row = {HOSTILE: HOSTILE, "n": 3, "raw": b"\x1b", "struct": {"key": HOSTILE}, "list": [HOSTILE, HOSTILE]}
    chart = Chart(HOSTILE, ("n",), HOSTILE)
    return Result(
        audit=HOSTILE,
        coverage=replace(WHOLE, paths=(HOSTILE,), damage=(Damage(HOSTILE, 3, 4, 5, HOSTILE),)),
        summary={HOSTILE: HOSTILE},
        sections=(Section("hostile", HOSTILE, table(kinds, [row, {"n": 2}]), HOSTILE, chart),),
        problems=(HOSTILE,),
        options={HOSTILE: HOSTILE},
    )


#: By name, for tests that hold for all of them.
ALL: Final[dict[str, Result]] = {
    "balanced": ledger(),
    "violated": ledger(verdict=Verdict.VIOLATED),
    "not provable": ledger(coverage=DAMAGED, verdict=Verdict.NOT_PROVABLE),
    "huge": ledger(queues=500),
    "dlq": dlq(),
    "dlq damaged": dlq(coverage=DAMAGED),
    "dlq exceeded": replace(dlq(hours=1), exceeded=True),
    "trace": trace(),
    "empty": empty(),
    "hostile": hostile(),
}
