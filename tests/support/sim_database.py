"""A database in memory that stores a replicated log, with the faults of a real one.

    shared = SimDatabase(seed=3)
    mine, other = shared.connect(), shared.connect()

Each connection serves one broker.  A change is visible at once, but replicated only after `replicate`, which a commit
waits for while there is a `standby`.  The fault of a change is drawn from the seed, or planned:

    before      the connection breaks before the change
    after       it breaks after the change is made, and before it is replicated
    replicated  it breaks after the change is replicated, and before its answer
    busy        the database refuses it for the moment
    lost        as `after`, and then the standby takes over, without the change
    overtaken   the standby takes over just before it, without what was not replicated
    cut         nothing answers from now on
    fenced      another broker claims the log just before

`fail_over` loses what was not replicated.  The lease's time is `now`, in ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import Final

from store.log import Place
from store.replicated.database import Chunk, Doubtful, Head, Lease, Row, Unavailable
from store.segment import SEGMENT_HEADER_BYTES, decode_header

_NEW: Final = Place(0, 0)

#: Temporary faults, after which the same change succeeds in the end.
PASSING: Final = ("before", "after", "replicated", "busy", "lost", "overtaken")

#: All faults that can be planned.
FAULTS: Final = (*PASSING, "cut", "fenced")


@dataclass(slots=True)
class _Tables:
    """The tables, which a transaction changes as a whole."""

    epoch: int = 0
    end: Place = _NEW
    replicated: Place = _NEW
    broker_id: bytes = b""
    entries: int = 0
    rows: dict[int, list[Row]] = field(default_factory=dict)
    bodies: dict[int, int] = field(default_factory=dict)
    chunks: dict[tuple[int, int], bytes] = field(default_factory=dict)


class SimDatabase:
    """The state shared by all connections.  `fault_rate`: the probability that a change fails."""

    def __init__(self, seed: int = 0, *, fault_rate: float = 0.0) -> None:
        self.random = Random(seed)
        self.fault_rate = fault_rate
        self.standby = True
        self.reachable = True
        self.now = 0
        self.faults = 0
        self.changes = 0
        self._planned: dict[int, str] = {}
        self.tables = _Tables()
        self.on_standby = _Tables()
        self.owner = ""
        self.lease_epoch = 0
        self.until = -1
        self.confirmed = _NEW

    def connect(self) -> SimConnection:
        """Open a connection for one thread."""
        return SimConnection(self)

    leases = connect

    def pass_time(self, ms: int) -> None:
        """Let time pass."""
        self.now += ms

    def wait(self) -> None:
        """Wait before a retry: no time passes."""

    def plan(self, at: int, *faults: str) -> None:
        """Plan the faults of the `at`-th change from the beginning, and of those that follow it; and no others."""
        self._planned = dict(enumerate(faults, at))

    def fail_over(self) -> None:
        """Let the standby take over: unreplicated changes are lost."""
        self.tables = deepcopy(self.on_standby)

    def replicate(self) -> None:
        """Copy everything to the standby."""
        self.on_standby = deepcopy(self.tables)

    def change(self, do: Callable[[_Tables], bool]) -> bool:
        """Run one transaction, with its fault, if any."""
        if not self.reachable:
            raise Unavailable("no connection")
        self.changes += 1
        kind = self.random.choice(PASSING) if self.random.random() < self.fault_rate else ""
        kind = self._planned.get(self.changes, kind)
        self.faults += bool(kind)
        if kind == "cut":
            self.reachable = False
            raise Doubtful("the connection broke")
        if kind == "fenced":
            self.tables.epoch += 1
            self.owner = "another"
            self.replicate()
        if kind == "before":
            raise Doubtful("the connection broke before anything happened")
        if kind == "busy":
            raise Unavailable("not now")
        if kind == "overtaken":
            self.fail_over()
        if not do(self.tables):
            return False
        if kind == "after" or not self.standby:
            raise Doubtful("the connection broke before a standby had it")
        if kind == "lost":
            self.fail_over()
            raise Doubtful("the standby took over, and had it not")
        self.replicate()
        if kind == "replicated":
            raise Doubtful("the connection broke before the answer came")
        return True


class SimConnection:
    """See Database."""

    def __init__(self, shared: SimDatabase) -> None:
        self._shared = shared

    def _look(self) -> _Tables:
        if not self._shared.reachable:
            raise Unavailable("no connection")
        return self._shared.tables

    def head(self) -> Head:
        found = self._look()
        return Head(found.epoch, found.end, found.replicated, found.broker_id, found.entries)

    def claim(self, owner: str) -> Head | None:
        shared = self._shared

        def do(tables: _Tables) -> bool:
            if shared.owner != owner or shared.until <= shared.now:
                return False
            tables.epoch += 1
            tables.replicated = tables.end
            return True

        return self.head() if shared.change(do) else None

    def publish(self, epoch: int, rows: Iterable[Row], bodies: Iterable[Chunk]) -> bool:
        def do(tables: _Tables) -> bool:
            if (tables.epoch, tables.end) != (epoch, _NEW):
                return False
            for row in [*rows]:
                tables.rows.setdefault(row.place.segment, []).append(row)
                tables.end, tables.entries = row.end, row.entries
                if row.place.offset == 0:
                    tables.broker_id = decode_header(row.data).broker_id
            for id, number, data, nbytes in bodies:
                tables.chunks[id, number] = data
                if nbytes >= 0:
                    tables.bodies[id] = nbytes
            return True

        return self._shared.change(do)

    def append(self, epoch: int, end: Place, data: bytes | bytearray, entries: int) -> bool:
        def do(tables: _Tables) -> bool:
            if (tables.epoch, tables.end) != (epoch, end):
                return False
            tables.replicated = end
            tables.entries += entries
            tables.end = Place(end.segment, end.offset + len(data))
            tables.rows[end.segment].append(Row(end, bytes(data), tables.entries))
            return True

        return self._shared.change(do)

    def begin(self, epoch: int, end: Place, segment: int, header: bytes) -> bool:
        def do(tables: _Tables) -> bool:
            if (tables.epoch, tables.end) != (epoch, end):
                return False
            tables.replicated = end
            tables.broker_id = decode_header(header).broker_id
            tables.end = Place(segment, SEGMENT_HEADER_BYTES)
            tables.rows[segment] = [Row(Place(segment, 0), header, tables.entries)]
            return True

        return self._shared.change(do)

    def _owned(self, epoch: int, change: Callable[[_Tables], None]) -> bool:
        def do(tables: _Tables) -> bool:
            if tables.epoch == epoch:
                change(tables)
            return tables.epoch == epoch

        return self._shared.change(do)

    def confirm(self, epoch: int, end: Place) -> bool:
        def do(tables: _Tables) -> bool:
            if (tables.epoch, tables.end) != (epoch, end):
                return False
            tables.replicated = end
            return True

        return self._shared.change(do)

    def trim(self, epoch: int, segments: Sequence[int]) -> bool:
        def change(tables: _Tables) -> None:
            for segment in segments:
                tables.rows.pop(segment, None)

        return self._owned(epoch, change)

    def segments(self) -> list[int]:
        return sorted(self._look().rows)

    def rows(self, start: Place, nbytes: int) -> list[Row]:
        rows = self._look().rows.get(start.segment, [])
        return [row for row in rows if row.end > start and row.place.offset < start.offset + max(nbytes, 1)]

    def bodies(self) -> dict[int, int]:
        return dict(self._look().bodies)

    def read_body(self, id: int) -> Iterator[bytes]:
        number = 0
        while (id, number) in self._look().chunks:
            yield self._look().chunks[id, number]
            number += 1

    def put_body(self, epoch: int, id: int, chunk: int, data: bytes, *, nbytes: int) -> bool:
        def change(tables: _Tables) -> None:
            tables.chunks.setdefault((id, chunk), data)
            if nbytes >= 0:
                tables.bodies.setdefault(id, nbytes)

        return self._owned(epoch, change)

    def drop_bodies(self, epoch: int, ids: Sequence[int]) -> bool:
        def change(tables: _Tables) -> None:
            for id in ids:
                tables.bodies.pop(id, None)
                for key in [key for key in tables.chunks if key[0] == id]:
                    del tables.chunks[key]

        return self._owned(epoch, change)

    # -- the lease -------------------------------------------------------------------------------------------------

    def lease(self) -> Lease:
        self._look()
        shared = self._shared
        return Lease(shared.owner, shared.lease_epoch, shared.until - shared.now, shared.confirmed)

    def take_lease(self, owner: str, ms: int) -> bool:
        self._look()
        shared = self._shared
        if shared.until > shared.now and shared.owner != owner:
            return False
        shared.owner, shared.until = owner, shared.now + ms
        return True

    def renew_lease(self, owner: str, epoch: int, ms: int, replicated: Place) -> bool:
        self._look()
        shared = self._shared
        if shared.owner != owner or shared.lease_epoch > epoch:
            return False
        shared.lease_epoch, shared.until, shared.confirmed = epoch, shared.now + ms, replicated
        return True

    def give_up_lease(self, owner: str) -> None:
        self._look()
        if self._shared.owner == owner:
            self._shared.owner, self._shared.until = "", -1

    def interrupt(self) -> None: ...

    def close(self) -> None: ...
