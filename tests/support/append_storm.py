"""Appends to a real pair of PostgreSQL servers that go wrong: of a zombie, in a stopped process, on broken connections.

zombies     who lost the log goes on writing: every change is refused
stops       a process is stopped at a random moment of an append; another takes over, and writes; it goes on
breaks      at a random moment of each append its connection breaks, its server process is ended, or the wait for the
            standby is called off; at times the primary is killed, too

What a writer announced as durable must be there for whoever takes over, and nothing of it may go afterwards.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from random import Random
from statistics import median
from typing import Final, Self

import psycopg
from psycopg import sql

from store.database import Database
from store.errors import LogFenced
from store.log import Place
from store.postgresql import Postgres, PostgresSettings
from tests.store.replicas import Replica
from tests.support.postgresql import Pair
from tests.support.process import PATIENCE_S, ROOT, state
from tests.support.sim_files import SimFiles

#: How long a writer waits before it tries again, in seconds, and how often: until a server has been replaced.
RETRY_S: Final = 0.02
TRIES: Final = 5_000

#: Small, so that segments begin and end among the appends too.
SEGMENT_BYTES: Final = 32_768


class RealDatabase:
    """A log in a schema of its own; see replicas.Shared.  No connection outlives it."""

    def __init__(self, dsn: str, schema: str) -> None:
        self._made: list[Postgres] = []
        self.schema = schema
        self._dsn = dsn
        self._tired = threading.Event()
        self.connect().check()

    def connect(self) -> Postgres:
        """A connection of one thread, which PostgreSQL knows by the schema's name."""
        settings = PostgresSettings(f"{self._dsn} application_name={self.schema}", schema=self.schema)
        self._made.append(Postgres(settings))
        return self._made[-1]

    def pass_time(self, ms: int) -> None:
        """The lease is over."""
        with self.admin() as admin:
            table = sql.Identifier(self.schema, "lease")
            admin.execute(sql.SQL("UPDATE {} SET until = 'epoch'").format(table))

    def wait(self) -> None:
        """Before something is tried again."""
        self._tired.wait(RETRY_S)

    def admin(self) -> psycopg.Connection:
        """A connection of the tests' own, whose changes wait for no standby."""
        return psycopg.connect(f"{self._dsn} options='-c synchronous_commit=local'", autocommit=True)

    def replica(self, name: str, files: SimFiles | None = None) -> Replica:
        """A broker whose copy is compared, and which owns nothing yet."""
        replica = Replica(self, name, files, tries=TRIES, segment_bytes=SEGMENT_BYTES)
        replica.compare()
        return replica

    def owner(self, name: str, files: SimFiles | None = None) -> Replica:
        """A broker that has taken over."""
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
    """So many appends of a fenced owner, at the place where it thinks the log ends and at the one where it does."""
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
        assert not zombie.database.append(zombie.log.epoch, end, b"of a zombie", 1)
    for refused in _other_changes(zombie.database, zombie.log.epoch, owner.log.replicated):
        assert not refused
    zombie.send()
    zombie.step()
    assert isinstance(zombie.failures[0], LogFenced), zombie.failures
    assert not owner.failures
    found = owner.found + owner.confirmed()
    assert shared.owner("three").found == found


def _other_changes(database: Database, epoch: int, end: Place) -> Iterator[bool]:
    yield database.confirm(epoch)
    yield database.trim(epoch, [end.segment])
    yield database.put_body(epoch, 1, 0, b"of a zombie", nbytes=11)
    yield database.drop_bodies(epoch, [1])


# -- stops -------------------------------------------------------------------------------------------------------------


class Appender:
    """A process that owns the log when it is told to, and appends until it is fenced: see `main`."""

    def __init__(self, dsn: str, schema: str) -> None:
        command = [sys.executable, "-m", __name__, dsn, schema]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, cwd=ROOT
        )

    def own(self) -> None:
        """Take over, and begin to append."""
        assert self._process.stdin is not None
        self._process.stdin.write("own\n")

    def hear(self) -> tuple[str, int]:
        """What it says next: `append`, `confirmed` with the id of a message; `fenced`."""
        assert self._process.stdout is not None
        word, _, number = self._process.stdout.readline().strip().partition(" ")
        assert word in ("append", "confirmed", "fenced"), f"the appender says {word!r}"
        return word, int(number or 0)

    def stop(self) -> None:
        """SIGSTOP; it has stopped when this returns."""
        os.kill(self._process.pid, signal.SIGSTOP)
        until = time.monotonic() + PATIENCE_S
        while state(self._process.pid) != "T":
            assert time.monotonic() < until
            os.sched_yield()

    def go_on(self) -> None:
        """SIGCONT."""
        os.kill(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def appending(dsn: str, schema: str) -> Iterator[Appender]:
    """A process that has ended afterwards."""
    appender = Appender(dsn, schema)
    try:
        yield appender
    finally:
        appender.close()


def stops(dsn: str, schema: str, times: int, seed: int) -> Counter[str]:
    """An owner that is stopped within an append while another takes over; what became of that append, how often."""
    with RealDatabase(dsn, schema) as shared, appending(dsn, schema) as appender:
        return _stopped(shared, appender, times, Random(seed))


def _stopped(shared: RealDatabase, appender: Appender, times: int, random: Random) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    files: SimFiles | None = None
    before: list[int] = []
    took = [0.002]
    for _ in range(times):
        appender.own()
        confirmed: list[int] = []
        for _ in range(random.randint(1, 3)):
            begun, id = _begun(appender, confirmed)
            took.append(time.perf_counter() - begun)
        last = id
        _pause(random.uniform(0, 1.5 * median(took[-50:])))
        appender.stop()
        other = shared.owner("other", files)
        appender.go_on()
        other.send()
        other.step()
        assert not other.failures, other.failures
        while (said := appender.hear())[0] != "fenced":
            if said[0] == "confirmed":
                confirmed.append(said[1])
            else:
                last = said[1]
        lost = set(confirmed) - set(other.found)
        assert not lost, f"{lost} were confirmed, and whoever took over has them not"
        assert other.found[: len(before)] == before, "what was there has gone"
        here = "there" if last in other.found[len(before) :] else "not there"
        outcomes[f"{'confirmed' if last in confirmed else 'not confirmed'}, {here}"] += 1
        before, files = other.found + other.confirmed(), other.end()
    return outcomes


def _begun(appender: Appender, confirmed: list[int]) -> tuple[float, int]:
    """The next append begins: when, and of which message."""
    begun = time.perf_counter()
    while (said := appender.hear())[0] != "append":
        assert said[0] == "confirmed", said
        confirmed.append(said[1])
    return begun, said[1]


def _pause(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        os.sched_yield()


def main(dsn: str, schema: str) -> None:
    """The appender: owns the log for each line that it reads, until it is fenced."""
    with RealDatabase(dsn, schema) as shared:
        _append(shared)


def _append(shared: RealDatabase) -> None:
    files: SimFiles | None = None
    for _ in sys.stdin:
        replica = shared.owner("appender", files)
        while not replica.failures:
            (id,) = replica.send()
            _say(f"append {id}")
            before = len(replica.announced)
            replica.step()
            if len(replica.announced) > before:
                _say(f"confirmed {id}")
        assert isinstance(replica.failures[0], LogFenced), replica.failures
        files = replica.end()
        _say("fenced")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


# -- breaks ------------------------------------------------------------------------------------------------------------

#: How the database is asked to end what a connection does; the third way is the client's own.
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
        """Once so long has passed."""
        self._done = self._executor.submit(self._break, seconds, how)

    def wait(self) -> None:
        """Until it has happened."""
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
    """Appends whose connection breaks, `failovers` of the servers meanwhile; how many were confirmed, and in doubt."""
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
