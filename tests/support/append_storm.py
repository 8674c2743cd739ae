"""Appends to a real pair of PostgreSQL servers under faults: a zombie owner, a stopped process, broken connections.

zombies     a writer that has lost the log goes on writing: every change is refused
stops       a process is stopped at a point of an append; another takes over and writes; the first one continues
breaks      at a random moment of each append its connection breaks, its server process is ended, or the wait for the
            standby is cancelled; sometimes the primary is killed, too

Everything that a writer announced as durable must be there for the next owner, and none of it may disappear later.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from random import Random
from statistics import median
from types import FrameType
from typing import Final, Self, TypeVar

import psycopg
from psycopg import sql

from store.errors import LogFenced
from store.log import Place
from store.replicated.database import Database
from store.replicated.postgresql import Postgres, PostgresLease
from store.replicated.server import PostgresSettings
from tests.store.replicated.replicas import Replica
from tests.support.postgresql import Pair
from tests.support.process import PATIENCE_S, ROOT, state
from tests.support.sim_files import SimFiles

#: How long a writer waits before each retry, in seconds, and how often: until a server has been replaced.
RETRY_S: Final = 0.02
TRIES: Final = 5_000

#: Small, so that appends also begin and end segments.
SEGMENT_BYTES: Final = 32_768


Opened = TypeVar("Opened", Postgres, PostgresLease)


class RealDatabase:
    """A log in a schema of its own; see replicas.Shared.  No connection outlives it."""

    def __init__(self, dsn: str, schema: str) -> None:
        self._made: list[Postgres | PostgresLease] = []
        self.schema = schema
        self._dsn = dsn
        self._tired = threading.Event()
        self.connect().check()

    def connect(self) -> Postgres:
        """Open a connection for one thread; its name in PostgreSQL is the schema's."""
        settings = PostgresSettings(f"{self._dsn} application_name={self.schema}", schema=self.schema)
        return self._open(Postgres(settings))

    def leases(self) -> PostgresLease:
        """Open a connection for the lease."""
        return self._open(PostgresLease(PostgresSettings(self._dsn, schema=self.schema)))

    def _open(self, connection: Opened) -> Opened:
        self._made.append(connection)
        return connection

    def pass_time(self, ms: int) -> None:
        """Let the lease expire."""
        with self.admin() as admin:
            table = sql.Identifier(self.schema, "lease")
            admin.execute(sql.SQL("UPDATE {} SET until = 'epoch'").format(table))

    def wait(self) -> None:
        """Wait before a retry."""
        self._tired.wait(RETRY_S)

    def admin(self) -> psycopg.Connection:
        """Open a connection for the test itself, whose commits wait for no standby."""
        return psycopg.connect(f"{self._dsn} options='-c synchronous_commit=local'", autocommit=True)

    def replica(self, name: str, files: SimFiles | None = None) -> Replica:
        """Return a broker whose copy is up to date, and which does not own the log yet."""
        replica = Replica(self, name, files, tries=TRIES, segment_bytes=SEGMENT_BYTES)
        replica.compare()
        return replica

    def owner(self, name: str, files: SimFiles | None = None) -> Replica:
        """Return a broker that has taken over the log."""
        replica = self.replica(name, files)
        replica.take_over()
        assert not replica.failures, replica.failures
        return replica

    def close(self) -> None:
        """End all connections."""
        for database in self._made:
            database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# -- zombies -----------------------------------------------------------------------------------------------------------


def zombies(dsn: str, schema: str, times: int) -> None:
    """Try appends of a fenced owner, at its own stale end of the log and at the real one, in turn."""
    with RealDatabase(dsn, schema) as shared:
        _refused(shared, times)


def _refused(shared: RealDatabase, times: int) -> None:
    zombie = shared.owner("one")
    zombie.send()
    zombie.step()
    stale = zombie.log.replicated
    owner = shared.owner("two")
    for number in range(times):
        if number % 10 == 0:
            owner.send()
            owner.step()
        end = stale if number % 2 else owner.log.replicated
        assert not zombie.database.append(zombie.log.owner.epoch, end, b"of a zombie", 1)
    for refused in _other_changes(zombie.database, zombie.log.owner.epoch, owner.log.replicated):
        assert not refused
    zombie.send()
    zombie.step()
    assert isinstance(zombie.failures[0], LogFenced), zombie.failures
    assert not owner.failures
    found = owner.found + owner.confirmed()
    assert shared.owner("three").found == found


def _other_changes(database: Database, epoch: int, end: Place) -> Iterator[bool]:
    yield database.confirm(epoch, end)
    yield database.trim(epoch, [end.segment])
    yield database.put_body(epoch, 1, 0, b"of a zombie", nbytes=11)
    yield database.drop_bodies(epoch, [1])


# -- stops -------------------------------------------------------------------------------------------------------------


class Appender:
    """A process that takes over the log on request, and appends until it is fenced: see `main`."""

    def __init__(self, dsn: str, schema: str) -> None:
        command = [sys.executable, "-m", __name__, dsn, schema]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, cwd=ROOT)
        self._heard = b""

    def own(self, point: int) -> None:
        """Take over, append, and stop within the second append, after `point` calls and returns of functions in it."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{point}\n".encode())

    def hear(self) -> tuple[str, int]:
        """Return its next line: `append` or `confirmed` with a message's id; `steps` and their number; `fenced`."""
        while b"\n" not in self._heard:
            self._read()
        line, _, self._heard = self._heard.partition(b"\n")
        word, _, number = line.decode().partition(" ")
        assert word in ("append", "confirmed", "steps", "fenced"), f"the appender says {word!r}"
        return word, int(number or 0)

    def _read(self) -> None:
        assert self._process.stdout is not None
        data = self._process.stdout.read(1 << 16)
        assert data, "the appender has ended: what it said is above"
        self._heard += data

    def stopped(self) -> list[tuple[str, int]]:
        """Wait until it has stopped itself; returns its lines until then."""
        assert self._process.stdout is not None
        until = time.monotonic() + PATIENCE_S
        while state(self._process.pid) != "T":
            assert time.monotonic() < until
            os.sched_yield()
        while select.select([self._process.stdout], [], [], 0)[0]:
            self._read()
        return [self.hear() for _ in range(self._heard.count(b"\n"))]

    def go_on(self) -> None:
        """Send SIGCONT."""
        os.kill(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def appending(dsn: str, schema: str) -> Iterator[Appender]:
    """Run an appender, and end it afterwards."""
    appender = Appender(dsn, schema)
    try:
        yield appender
    finally:
        appender.close()


def stops(dsn: str, schema: str, times: int) -> Counter[str]:
    """Stop an owner within an append while another takes over; counts the outcomes of these appends.

    The points are spread evenly over the calls and returns of an append.
    """
    with RealDatabase(dsn, schema) as shared, appending(dsn, schema) as appender:
        return _stopped(shared, appender, times)


def _stopped(shared: RealDatabase, appender: Appender, times: int) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    files: SimFiles | None = None
    before: list[int] = []
    steps = 1 << 30  # not known yet: the first one is stopped at the end of its append
    for number in range(times):
        appender.own(1 + steps * number // times if number else steps)
        said = appender.stopped()
        assert [word for word, _ in said] == ["append", "confirmed", "append"], said
        stopped = said[-1][1]
        other = shared.owner("other", files)
        appender.go_on()
        other.send()
        other.step()
        assert not other.failures, other.failures
        while said[-1][0] != "fenced":
            said.append(appender.hear())
        steps = next(n for word, n in said if word == "steps")
        confirmed = {id for word, id in said if word == "confirmed"}
        lost = confirmed - set(other.found)
        assert not lost, f"{lost} were confirmed, and whoever took over has them not"
        assert other.found[: len(before)] == before, "what was there has gone"
        outcomes["it was there" if stopped in other.found[len(before) :] else "it was refused"] += 1
        before, files = other.found + other.confirmed(), other.end()
    return outcomes


def main(dsn: str, schema: str) -> None:
    """Run the appender: for each line that it reads, it owns the log until it is fenced."""
    with RealDatabase(dsn, schema) as shared:
        _append(shared)


def _append(shared: RealDatabase) -> None:
    files: SimFiles | None = None
    for line in sys.stdin:
        replica = shared.owner("appender", files)
        _send(replica, replica.step)
        stopping = Stopping(int(line))
        _send(replica, partial(stopping.run, replica.step))
        _say(f"steps {stopping.steps}")
        while not replica.failures:
            _send(replica, replica.step)
        assert isinstance(replica.failures[0], LogFenced), replica.failures
        files = replica.end()
        _say("fenced")


def _send(replica: Replica, step: Callable[[], None]) -> None:
    (id,) = replica.send()
    _say(f"append {id}")
    before = len(replica.announced)
    step()
    if len(replica.announced) > before:
        _say(f"confirmed {id}")


class Stopping:
    """Stops this process after `point` calls and returns of functions, or at the end of the work."""

    def __init__(self, point: int) -> None:
        self.steps = 0
        self._point = point

    def run(self, do: Callable[[], None]) -> None:
        """Do some work, and stop within it."""
        sys.setprofile(self._count)
        do()
        sys.setprofile(None)
        if self.steps < self._point:
            os.kill(os.getpid(), signal.SIGSTOP)

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        self.steps += 1
        if self.steps == self._point:
            os.kill(os.getpid(), signal.SIGSTOP)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


# -- breaks ------------------------------------------------------------------------------------------------------------

#: The database's functions that end a connection or its statement; the third way is the client's own.
_ENDS: Final = {"terminate": "pg_terminate_backend", "cancel": "pg_cancel_backend"}


class Breaker:
    """Breaks a replica's connection, from a thread of its own."""

    def __init__(self, shared: RealDatabase, replica: Replica) -> None:
        self._shared = shared
        self._database = replica.database
        self._admin: psycopg.Connection | None = None
        self._executor = ThreadPoolExecutor(1)
        self._never = threading.Event()

    def after(self, seconds: float, how: str) -> None:
        """Break the connection after some seconds."""
        self._done = self._executor.submit(self._break, seconds, how)

    def wait(self) -> None:
        """Wait until the connection was broken."""
        self._done.result()

    def _break(self, seconds: float, how: str) -> None:
        self._never.wait(seconds)
        if how == "hang up":
            self._database.interrupt()
            return
        with suppress(psycopg.Error):  # between two servers
            if self._admin is None or self._admin.closed:
                self._admin = self._shared.admin()
            self._admin.execute(
                f"SELECT {_ENDS[how]}(pid) FROM pg_stat_activity WHERE application_name = %s", (self._shared.schema,)
            )

    def close(self) -> None:
        """End it."""
        self._executor.shutdown()
        if self._admin is not None:
            self._admin.close()


def breaks(pair: Pair, schema: str, times: int, seed: int, *, failovers: int = 0) -> tuple[int, int]:
    """Break the connections of appends, amid `failovers`; returns how many appends were confirmed, and in doubt."""
    with RealDatabase(pair.dsn, schema) as shared:
        return _broken(shared, pair, times, Random(seed), failovers)


def _broken(shared: RealDatabase, pair: Pair, times: int, random: Random, failovers: int) -> tuple[int, int]:
    replica = shared.owner("one")
    breaker = Breaker(shared, replica)
    to_fail_over = {times * (n + 1) // (failovers + 1) for n in range(failovers)}
    took = [0.002]
    with ThreadPoolExecutor(1) as executor:
        for number in range(times):
            failing_over = executor.submit(pair.fail_over) if number in to_fail_over else None
            ids, troubles = replica.send(), len(replica.troubles)
            breaker.after(random.uniform(0, 1.2 * median(took[-50:])), random.choice(["hang up", *_ENDS]))
            begun = time.perf_counter()
            replica.step()
            if len(replica.troubles) == troubles:
                took.append(time.perf_counter() - begun)
            breaker.wait()
            assert not replica.failures, replica.failures
            assert replica.confirmed()[-1:] == ids
            if failing_over is not None:
                failing_over.result()
    breaker.close()
    confirmed = replica.confirmed()
    pair.fail_over()
    found = shared.owner("two").found
    assert found == confirmed, f"lost: {set(confirmed) - set(found)}; never confirmed, or twice: {len(found)}"
    return len(confirmed), len(replica.troubles)


if __name__ == "__main__":
    main(*sys.argv[1:])
