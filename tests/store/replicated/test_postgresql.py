"""What a replicated log asks of its database: of PostgreSQL, and of the database in memory that stands in for it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from select import poll, select
from threading import Thread
from typing import Any, Final

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import DiagnosticField
from psycopg.pq.abc import PGconn, PGresult

from store.errors import DatabaseUnfit, LogFailed
from store.log import Place
from store.replicated import server as postgresql_server
from store.replicated.database import Chunk, Database, Doubtful, Head, Leases, Row, Unavailable
from store.replicated.postgresql import Postgres, PostgresLease
from store.replicated.server import PostgresSettings, Server, check_dsn
from store.replicated.standbys import Standbys
from store.segment import encode_header
from tests.support.postgresql import SYNCHRONOUS, Pair, PostgreSQL
from tests.support.process import PATIENCE_S, awaited
from tests.support.sim_database import SimDatabase

BROKER_ID: Final = b"a broker's id 16"
_NUMBERS: Final = count(1)

Connect = Callable[[], tuple[Database, Leases]]


@pytest.fixture(autouse=True)
def _closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test connects is closed."""
    made: list[Server] = []
    original = Server.__init__

    def init(self: Server, settings: PostgresSettings, *, lease_only: bool = False) -> None:
        original(self, settings, lease_only=lease_only)
        made.append(self)

    monkeypatch.setattr(Server, "__init__", init)
    yield
    for each in made:
        each.close()


@pytest.fixture(scope="module")
def pair(postgresql: PostgreSQL) -> Iterator[Pair]:
    with postgresql.pair() as pair:
        yield pair


def settings(pair: Pair, **more: object) -> PostgresSettings:
    """A schema that nothing is in."""
    given: dict[str, Any] = {"dsn": pair.dsn, "schema": f"log{next(_NUMBERS)}", **more}
    return PostgresSettings(**given)


@pytest.fixture(params=["simulated", "postgresql"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Makes connections to a database that is new: one for the log, one for the lease."""
    if request.param == "simulated":
        database = SimDatabase()
        yield lambda: (database.connect(), database.connect())
        return
    chosen = settings(request.getfixturevalue("pair"))
    first = Postgres(chosen)
    first.check()
    yield lambda: (first, PostgresLease(chosen))


def header(segment: int) -> bytes:
    return encode_header(number=segment, broker_id=BROKER_ID, created=1, first_position=1)


def owned(database: Database, leases: Leases, owner: str = "one") -> Head:
    assert leases.take_lease(owner, 60_000)
    head = database.claim(owner)
    assert head is not None
    return head


# -- the same of both --------------------------------------------------------------------------------------------------


def test_a_log_grows_under_one_epoch(connect: Connect) -> None:
    database, leases = connect()
    assert database.head() == Head(0, Place(0, 0), Place(0, 0), b"", 0)
    assert database.segments() == []
    head = owned(database, leases)
    assert head == Head(1, Place(0, 0), Place(0, 0), b"", 0)
    assert database.begin(1, head.end, 1, header(1))
    assert database.append(1, Place(1, 64), b"first", 2)
    assert database.append(1, Place(1, 69), bytearray(b"x" * 100_000), 1)
    assert database.head() == Head(1, Place(1, 100_069), Place(1, 69), BROKER_ID, 3)
    assert database.confirm(1, Place(1, 100_069))
    assert database.head().replicated == Place(1, 100_069)
    assert database.begin(1, Place(1, 100_069), 5, header(5))
    assert database.segments() == [1, 5]
    assert database.head() == Head(1, Place(5, 64), Place(1, 100_069), BROKER_ID, 3)


def test_a_log_is_published_whole_or_not_at_all(connect: Connect) -> None:
    database, leases = connect()
    owned(database, leases)
    rows = [
        Row(Place(1, 0), header(1), 0),
        Row(Place(1, 64), b"a" * 100, 3),
        Row(Place(4, 0), header(4), 3),
        Row(Place(4, 64), b"b" * 50, 4),
    ]
    bodies = [Chunk(7, 0, b"of ", -1), Chunk(7, 1, b"two", 6), Chunk(9, 0, b"one", 3)]

    def torn() -> Iterator[Row]:
        yield from rows[:3]
        raise OSError("the disk")

    with pytest.raises(OSError, match="the disk"):
        database.publish(1, torn(), bodies)
    assert not database.publish(2, rows, bodies)
    assert database.head() == Head(1, Place(0, 0), Place(0, 0), b"", 0)
    assert database.segments() == []
    assert database.publish(1, rows, bodies)
    assert database.head() == Head(1, Place(4, 114), Place(0, 0), BROKER_ID, 4)
    assert database.segments() == [1, 4]
    assert database.rows(Place(1, 0), 1 << 20) + database.rows(Place(4, 0), 1 << 20) == rows
    assert database.bodies() == {7: 6, 9: 3}
    assert [*database.read_body(7)] == [b"of ", b"two"]
    assert not database.publish(1, rows, bodies)
    assert database.append(1, Place(4, 114), b"more", 1)


def test_rows_come_from_the_one_in_which_the_start_lies(connect: Connect) -> None:
    database, leases = connect()
    head = owned(database, leases)
    assert database.begin(1, head.end, 1, header(1))
    assert database.append(1, Place(1, 64), b"a" * 100, 1)
    assert database.append(1, Place(1, 164), b"b" * 100, 4)
    first, second, third = (
        Row(Place(1, 0), header(1), 0),
        Row(Place(1, 64), b"a" * 100, 1),
        Row(Place(1, 164), b"b" * 100, 5),
    )
    assert database.rows(Place(1, 0), 1 << 20) == [first, second, third]
    assert database.rows(Place(1, 0), 1) == [first]
    assert database.rows(Place(1, 64), 1) == [second]
    assert database.rows(Place(1, 100), 1) == [second]
    assert database.rows(Place(1, 163), 2) == [second, third]
    assert database.rows(Place(1, 264), 1 << 20) == []
    assert database.rows(Place(9, 0), 1 << 20) == []


def test_another_epoch_or_place_changes_nothing(connect: Connect) -> None:
    database, leases = connect()
    head = owned(database, leases)
    assert database.begin(1, head.end, 1, header(1))
    assert database.put_body(1, 7, 0, b"body", nbytes=4)
    before = database.head(), database.segments(), database.bodies()
    for epoch in (0, 2):
        assert not database.append(epoch, Place(1, 64), b"x", 1)
        assert not database.begin(epoch, Place(1, 64), 2, header(2))
        assert not database.confirm(epoch, Place(1, 64))
        assert not database.trim(epoch, [1])
        assert not database.put_body(epoch, 8, 0, b"x", nbytes=1)
        assert not database.drop_bodies(epoch, [7])
    for end in (Place(1, 0), Place(1, 63), Place(1, 65)):
        assert not database.append(1, end, b"x", 1)
        assert not database.begin(1, end, 2, header(2))
        assert not database.confirm(1, end)
    assert (database.head(), database.segments(), database.bodies()) == before


def test_a_claim_marks_the_tables_for_older_software(pair: Pair) -> None:
    """It refuses any format but its own; until the claim it may still own the journal."""
    chosen = settings(pair)
    with closing(Postgres(chosen)) as database, closing(PostgresLease(chosen)) as leases:
        database.check()
        head = f"SELECT format FROM {chosen.schema}.head"
        statement(pair, f"UPDATE {chosen.schema}.head SET format = 1")
        database.check()
        assert pair.primary.sql(head) == [(1,)]
        assert leases.take_lease("one", 60_000)
        assert database.claim("one")
        assert pair.primary.sql(head) == [(2,)]
        statement(pair, f"UPDATE {chosen.schema}.head SET format = 3")
        assert database.claim("one") is None, "newer software has had it since this one started"


def test_only_the_owner_of_the_lease_claims(connect: Connect) -> None:
    database, leases = connect()
    assert database.claim("one") is None
    owned(database, leases)
    assert not leases.take_lease("two", 60_000)
    assert database.claim("two") is None
    assert owned(database, leases).epoch == 2, "its own lease may be taken again"
    assert leases.renew_lease("one", 2, 60_000, Place(1, 5))
    assert not leases.renew_lease("two", 2, 60_000, Place(1, 5))
    lease = database.lease()
    assert (lease.owner, lease.epoch, lease.replicated) == ("one", 2, Place(1, 5))
    assert not leases.renew_lease("one", 1, 60_000, Place(1, 6)), "another of the same name has claimed a later epoch"
    assert 50_000 < lease.left <= 60_000
    leases.give_up_lease("two")
    assert database.lease().left > 0
    leases.give_up_lease("one")
    assert database.lease().left < 0
    assert database.claim("one") is None
    assert leases.take_lease("two", 60_000)


def test_bodies_come_in_chunks_and_go_together(connect: Connect) -> None:
    database, leases = connect()
    owned(database, leases)
    for id in (7, 8):
        assert database.put_body(1, id, 0, b"a" * 1000, nbytes=-1)
        assert database.put_body(1, id, 1, b"b" * 500, nbytes=1500)
        assert database.put_body(1, id, 1, b"b" * 500, nbytes=1500), "once more, as after a doubt"
    assert database.put_body(1, 9, 0, b"not whole", nbytes=-1)
    assert database.bodies() == {7: 1500, 8: 1500}
    assert list(database.read_body(7)) == [b"a" * 1000, b"b" * 500]
    assert database.drop_bodies(1, [7, 9])
    assert database.bodies() == {8: 1500}
    assert list(database.read_body(7)) == list(database.read_body(9)) == []


def test_segments_go(connect: Connect) -> None:
    database, leases = connect()
    head = owned(database, leases)
    for segment in (1, 2, 3):
        assert database.begin(1, head.end, segment, header(segment))
        head = database.head()
    assert database.trim(1, [1, 2])
    assert database.trim(1, [2]), "once more, as after a doubt"
    assert database.trim(1, [])
    assert database.segments() == [3]
    assert database.rows(Place(1, 0), 1) == []


# -- of PostgreSQL alone -----------------------------------------------------------------------------------------------


@contextmanager
def once_it_waits(pair: Pair, then: Callable[[int], object]) -> Iterator[None]:
    """Do something with the id of the server's process that waits for a standby, as soon as one does."""

    def watch() -> None:
        with psycopg.connect(pair.primary.dsn, autocommit=True) as connection:
            while True:
                row = connection.execute("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'").fetchone()
                if row is not None:
                    then(row[0])
                    return
                connection.execute("SELECT pg_sleep(0.01)")

    thread = Thread(target=watch)
    thread.start()
    yield
    thread.join()


def postgres(pair: Pair, **more: object) -> Postgres:
    database = Postgres(settings(pair, **more))
    database.check()
    return database


def begun(pair: Pair, **more: object) -> Postgres:
    """A log that is owned, with one segment."""
    database = postgres(pair, **more)
    head = owned(database, PostgresLease(database._server.settings))
    assert database.begin(1, head.end, 1, header(1))
    return database


@contextmanager
def configured(pair: Pair, **values: str) -> Iterator[None]:
    """Other settings of the primary for a while."""
    before = {name: pair.primary.sql(f"SHOW {name}")[0][0] for name in values}
    pair.primary.configure(**values)
    try:
        yield
    finally:
        pair.primary.configure(**before)


@contextmanager
def without_standby(pair: Pair) -> Iterator[None]:
    """The standby is away for a while, and is named again afterwards."""
    pair.without_standby()
    try:
        yield
    finally:
        pair.primary.configure(synchronous_standby_names=SYNCHRONOUS)
        pair.with_standby()


def role(pair: Pair, *says: str, may: str = "SUPERUSER") -> str:
    """How a role whose sessions begin so names the servers."""
    name = f"role{next(_NUMBERS)}"
    statement(pair, f"CREATE ROLE {name} LOGIN {may}")
    for each in filter(None, says):
        statement(pair, f"ALTER ROLE {name} SET {each}")
    return make_conninfo(pair.dsn, user=name)


def statement(pair: Pair, text: str) -> None:
    pair.primary.sql(text)


def test_the_tables_are_made_once_and_known_again(pair: Pair) -> None:
    chosen = settings(pair)
    for _ in range(2):
        database = Postgres(chosen)
        database.check()
        database.close()
    statement(pair, f"UPDATE {chosen.schema}.head SET format = 9")
    with pytest.raises(DatabaseUnfit, match="format 9, this software knows 1 to 2"):
        Postgres(chosen).check()


def test_a_user_that_may_make_no_schema_takes_one_of_its_own(pair: Pair) -> None:
    dsn = role(pair, may="NOSUPERUSER")
    chosen, user = settings(pair, dsn=dsn), conninfo_to_dict(dsn)["user"]
    told = f"permission denied for database .*CREATE SCHEMA {chosen.schema} AUTHORIZATION {user}$"
    with pytest.raises(DatabaseUnfit, match=told):
        Postgres(chosen).check()
    statement(pair, f"CREATE SCHEMA {chosen.schema}")
    with pytest.raises(DatabaseUnfit, match=f"permission denied for schema {chosen.schema}"):
        Postgres(chosen).check()
    statement(pair, f"ALTER SCHEMA {chosen.schema} OWNER TO {user}")
    database = Postgres(chosen)
    database.check()
    assert owned(database, PostgresLease(database._server.settings)).epoch == 1
    statement(pair, f"ALTER TABLE {chosen.schema}.head OWNER TO postgres")
    with pytest.raises(DatabaseUnfit, match="permission denied for table head"):
        Postgres(chosen).check()


@pytest.mark.parametrize(
    ("changed", "more", "told"),
    [
        ({"synchronous_standby_names": ""}, {}, "names no synchronous standby.*single-copy = true"),
        ({"synchronous_standby_names": "ANY 1 (*)"}, {}, r"is ANY 1 \(\*\): with \* also a running backup counts"),
        ({"synchronous_standby_names": "two, pg_receivewal"}, {}, "has pg_receivewal, as which backups connect"),
        ({"synchronous_commit": "local"}, {}, "synchronous_commit is local, which is weaker than on"),
        ({"synchronous_commit": "on"}, {"synchronous_commit": "remote_apply"}, "weaker than remote_apply"),
        ({"synchronous_commit": "off", "synchronous_standby_names": ""}, {"single_copy": True}, "commits may be lost"),
        ({"fsync": "off"}, {}, "fsync is off"),
    ],
)
def test_a_database_that_would_not_keep_it_is_refused(
    pair: Pair, changed: dict[str, str], more: dict[str, object], told: str
) -> None:
    with configured(pair, **changed), pytest.raises(DatabaseUnfit, match=told):
        Postgres(settings(pair, **more)).check()


def test_one_copy_is_enough_for_who_says_so(pair: Pair) -> None:
    with configured(pair, synchronous_standby_names=""):
        database = postgres(pair, single_copy=True)
        assert owned(database, PostgresLease(database._server.settings)).epoch == 1
        database.close()


@pytest.mark.parametrize(
    ("version", "fit"), [(140020, False), (150012, False), (150013, True), (160008, False), (180000, True)]
)
def test_old_servers_are_refused(pair: Pair, monkeypatch: pytest.MonkeyPatch, version: int, fit: bool) -> None:
    monkeypatch.setattr(psycopg.ConnectionInfo, "server_version", property(lambda info: version))
    if fit:
        postgres(pair).close()
    else:
        with pytest.raises(DatabaseUnfit, match=r"too old: it must be 15\.13, 16\.9, 17\.5, or later$"):
            Postgres(settings(pair)).check()


def test_a_pooler_is_refused(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives its clients process ids of its own."""
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", property(lambda info: 1))
    with pytest.raises(DatabaseUnfit, match=r"a connection pooler is between .* name the server itself in the dsn"):
        Postgres(settings(pair)).check()


def test_nobody_waits_for_a_standby_that_is_no_longer_named(pair: Pair) -> None:
    """The change is made, and is doubtful."""
    database = postgres(pair)
    head = owned(database, PostgresLease(database._server.settings))
    with configured(pair, synchronous_standby_names=""):
        with pytest.raises(Doubtful, match=r"names no synchronous standby"):
            database.begin(1, head.end, 1, header(1))
        with pytest.raises(Doubtful, match=r"names no synchronous standby"):
            database.append(1, Place(1, 64), b"x", 1)
        assert database.head().end == Place(1, 65)
        with pytest.raises(Doubtful):
            database.confirm(1, Place(1, 65))
        database.close()
        with pytest.raises(Unavailable, match="names no synchronous standby"):
            database.head()
    assert database.confirm(1, Place(1, 65))


@pytest.mark.parametrize("role_says", ["", "client_min_messages = error"])
def test_a_wait_that_is_cancelled_is_doubtful(pair: Pair, role_says: str) -> None:
    """The server commits, and only warns: whoever took that for a success would confirm what one server has."""
    database = begun(pair, dsn=role(pair, role_says))
    with without_standby(pair):
        with (
            once_it_waits(pair, lambda pid: pair.primary.sql("SELECT pg_cancel_backend(%s)", pid)),
            pytest.raises(Doubtful, match=r"may not have been replicated|canceling"),
        ):
            database.append(1, Place(1, 64), b"x", 1)
        assert database.head().end == Place(1, 65)
    assert database.confirm(1, Place(1, 65))


# -- who may confirm ---------------------------------------------------------------------------------------------------


@contextmanager
def backup(pair: Pair, place: PostgreSQL, **more: str) -> Iterator[None]:
    """A backup of the primary is running, as slow as pg_basebackup can be; `more`: of its connection string."""
    target = place.directory / f"backup{next(_NUMBERS)}"
    options = ["--pgdata", str(target), "--wal-method=stream", "--max-rate=32k", "--checkpoint=fast", "--no-sync"]
    running = subprocess.Popen(
        [str(place.programs / "pg_basebackup"), *options, "--dbname", make_conninfo(pair.primary.dsn, **more)],
        env=place.environment,
        user=place.user,
        cwd=place.directory,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    name = more.get("application_name", "pg_basebackup")
    streams = "SELECT application_name, state FROM pg_stat_replication WHERE replay_lsn IS NULL"
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_replication WHERE replay_lsn IS NULL"
    try:
        awaited(lambda: (name, "streaming") in pair.primary.sql(streams), what="the backup receives the log")
        yield
    finally:
        os.killpg(running.pid, signal.SIGKILL)  # it has a process for the log
        running.wait()
        awaited(lambda: not pair.primary.sql(end), what="the backup has ended")


def let_it_confirm(pair: Pair) -> None:
    """A backup confirms what is in segments of the log that it has in full."""
    pair.primary.sql("SELECT pg_switch_wal()")


def test_a_backup_does_not_confirm_while_anybody_may(pair: Pair, postgresql: PostgreSQL) -> None:
    """What it confirms is lost with the primary: the setting is refused at the start, and while it runs."""
    database = begun(pair)
    with without_standby(pair):
        pair.primary.configure(synchronous_standby_names="ANY 1 (*)")
        with (
            backup(pair, postgresql),
            once_it_waits(pair, lambda pid: let_it_confirm(pair)),
            pytest.raises(Doubtful, match="also a running backup counts"),
        ):
            database.append(1, Place(1, 64), b"x", 1)
    assert database.confirm(1, Place(1, 65))


def test_a_backup_does_not_confirm_under_the_name_of_a_standby(pair: Pair, postgresql: PostgreSQL) -> None:
    database = begun(pair)
    with (
        without_standby(pair),
        backup(pair, postgresql, application_name="two"),
        once_it_waits(pair, lambda pid: let_it_confirm(pair)),
        pytest.raises(Doubtful, match="calls itself two counts as the synchronous standby, but replays nothing"),
    ):
        database.append(1, Place(1, 64), b"x", 1)
    assert database.confirm(1, Place(1, 65))
    assert database.standbys.confirming == ("two",)


def test_a_backup_beside_the_standby_delays_nothing(pair: Pair, postgresql: PostgreSQL) -> None:
    database = begun(pair)
    with backup(pair, postgresql):
        assert database.append(1, Place(1, 64), b"x", 1)
        assert database.standbys == Standbys(("two",))


def test_a_name_that_patroni_gives_after_a_promotion_is_waited_out(pair: Pair) -> None:
    """It sets * until a standby has caught up: no reason for a broker to end, and none to confirm."""
    chosen = settings(pair)
    with configured(pair, synchronous_standby_names="*"):
        database = Postgres(chosen)
        for _ in range(2):
            with pytest.raises(Unavailable, match="also a running backup counts"):
                database.check()
    database.check()
    head = owned(database, PostgresLease(chosen))
    with configured(pair, synchronous_standby_names="*"):
        with pytest.raises(Doubtful, match="Patroni does so when a standby has caught up"):
            database.begin(1, head.end, 1, header(1))
        leases = PostgresLease(chosen)
        assert leases.renew_lease("one", 1, 60_000, head.end), "it waits for no standby"
    assert database.confirm(1, Place(1, 64))


def test_a_user_that_may_not_look_sees_no_standbys(pair: Pair) -> None:
    dsn = role(pair, may="NOSUPERUSER")
    chosen, user = settings(pair, dsn=dsn), conninfo_to_dict(dsn)["user"]
    statement(pair, f"CREATE SCHEMA {chosen.schema} AUTHORIZATION {user}")
    database = Postgres(chosen)
    database.check()
    owned(database, PostgresLease(chosen))
    assert database.standbys == Standbys((), visible=False)
    statement(pair, f"GRANT pg_read_all_stats TO {user}")
    assert database.confirm(1, Place(0, 0))
    assert database.standbys == Standbys(("two",))


@pytest.mark.parametrize("change", ["append", "begin", "confirm", "claim", "put_body", "drop_bodies", "trim"])
def test_a_wait_that_ends_as_no_standby_is_named_any_more_is_doubtful(pair: Pair, change: str) -> None:
    """The server lets go of all that wait, without a warning: Patroni may do so, or an operator."""
    database = begun(pair)
    end = Place(1, 64)
    changes: dict[str, Callable[[], object]] = {
        "append": lambda: database.append(1, end, b"x", 1),
        "begin": lambda: database.begin(1, end, 2, header(2)),
        "confirm": lambda: database.confirm(1, end),
        "claim": lambda: database.claim("one"),
        "put_body": lambda: database.put_body(1, 7, 0, b"x", nbytes=1),
        "drop_bodies": lambda: database.drop_bodies(1, [7]),
        "trim": lambda: database.trim(1, [1]),
    }
    if change == "drop_bodies":
        assert database.put_body(1, 7, 0, b"x", nbytes=1)
    with (
        without_standby(pair),
        once_it_waits(pair, lambda pid: pair.primary.configure(synchronous_standby_names="")),
        pytest.raises(Doubtful, match="names no synchronous standby"),
    ):
        changes[change]()


def test_a_connection_that_breaks_in_a_wait_is_doubtful(pair: Pair) -> None:
    database = begun(pair)
    with (
        without_standby(pair),
        once_it_waits(pair, lambda pid: database.interrupt()),
        pytest.raises(Doubtful, match="broke"),
    ):
        database.append(1, Place(1, 64), b"x", 1)
    awaited(lambda: database.confirm(1, Place(1, 65)), what="the server ends the transaction by itself")
    assert database.head().end == Place(1, 65)


def test_last_words_are_doubtful_before_the_connection_has_broken(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """libpq calls it good until it finds its end, which may come later."""

    class LastWords:
        def error_field(self, field: int) -> bytes | None:
            return b"FATAL" if field == DiagnosticField.SEVERITY_NONLOCALIZED else None

    def say(*_: object) -> None:
        raise errors.AdminShutdown("terminating connection", info=LastWords())  # type: ignore[arg-type]

    database = begun(pair)
    with monkeypatch.context() as patched:
        patched.setattr("store.replicated.server._in_one_go", say)
        with pytest.raises(Doubtful, match="terminating connection"):
            database.append(1, Place(1, 64), b"x", 1)
    assert database.append(1, Place(1, 64), b"x", 1)


def test_a_statement_that_cannot_be_sent_is_doubtful(pair: Pair) -> None:
    """libpq reads what there is before it tells of that, and calls the connection good until it finds its end."""
    database = begun(pair)
    connection = database._server._connection
    assert connection is not None
    connection.execute("LISTEN something_to_read")
    statement(pair, "NOTIFY something_to_read")
    with socket.socket(fileno=os.dup(connection.fileno())) as ours:
        assert select([ours], [], [], PATIENCE_S)[0]
        ours.shutdown(socket.SHUT_WR)
        with pytest.raises(Doubtful, match="broke"):
            database.append(1, Place(1, 64), b"x", 1)
    assert database.append(1, Place(1, 64), b"x", 1)


def test_nothing_is_interrupted_where_nothing_is_under_way(pair: Pair) -> None:
    database = Postgres(settings(pair))
    database.interrupt()
    database.check()
    database.interrupt()


def test_a_segment_that_somebody_reads_goes_later(pair: Pair) -> None:
    database = begun(pair)
    with psycopg.connect(pair.dsn) as reader:
        reader.execute(f"SELECT * FROM {database._server.settings.schema}.log_0000000001")
        with pytest.raises(Unavailable, match="lock timeout"):
            database.trim(1, [1])
    assert database.segments() == [1]
    assert database.trim(1, [1])
    assert database.segments() == []


def test_an_error_that_will_not_change_by_itself_is_reported(pair: Pair) -> None:
    database = begun(pair)
    assert database.append(1, Place(1, 64), b"x", 1)
    statement(pair, f"DROP SCHEMA {database._server.settings.schema} CASCADE")
    for _ in range(2):
        with pytest.raises(LogFailed, match="does not exist"):
            database.append(1, Place(1, 65), b"x", 1)


def test_a_connection_keeps_the_statement_of_one_segment(pair: Pair) -> None:
    chosen = settings(pair)
    database, leases = Postgres(chosen), PostgresLease(chosen)
    database.check()
    end = owned(database, leases).end
    for segment in (1, 2, 3):
        assert database.begin(1, end, segment, header(segment))
        assert database.append(1, Place(segment, 64), b"ab", 1)
        assert database.append(1, Place(segment, 66), b"c", 1)
        end = Place(segment, 67)
    with database._server.connected() as connection:
        kept = connection.execute("SELECT statement FROM pg_prepared_statements WHERE name = 'append'").fetchall()
    assert ["log_0000000003" in statement for (statement,) in kept] == [True]


def test_neither_timeouts_nor_encodings_of_the_role_matter(pair: Pair) -> None:
    timeouts = ("idle_session_timeout", "lock_timeout", "statement_timeout")
    dsn = role(pair, *(f"{name} = '1min'" for name in timeouts), "client_encoding = 'SQL_ASCII'")
    with psycopg.connect(dsn) as plain:
        assert {plain.execute(f"SHOW {name}").fetchone() for name in timeouts} == {(b"1min",)}
    database = postgres(pair, dsn=dsn)
    with database._server.connected() as connection:
        assert {connection.execute(f"SHOW {name}").fetchone() for name in timeouts} == {("0",)}


def test_a_notice_that_is_no_warning_leaves_no_doubt(pair: Pair) -> None:
    database = begun(pair)
    with database._server.connected() as connection:
        connection.execute("SET client_min_messages = notice")
        connection.execute("DO $$ BEGIN RAISE NOTICE 'of no account'; END $$")
    assert database._server._warning == ""
    assert database.append(1, Place(1, 64), b"x", 1)


def test_a_connection_that_breaks_between_two_results_has_no_second_one(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by pg_terminate_backend: libpq gives its last error in place of the sync's result, and nothing after it."""
    database = begun(pair)
    results = count(1)

    def until_broken(connection: PGconn, server: poll) -> PGresult | None:
        number = next(results)
        if number == 3:
            database.interrupt()
        return receive(connection, server) if number <= 3 else None

    receive = postgresql_server._next
    with monkeypatch.context() as patched:
        patched.setattr(postgresql_server, "_next", until_broken)
        with pytest.raises(Doubtful, match="broke"):
            database.append(1, Place(1, 64), b"x", 1)
    assert database.head().end == Place(1, 65)


def test_an_entry_larger_than_the_buffers_of_a_connection_is_appended(pair: Pair) -> None:
    database = begun(pair)
    data = os.urandom(16 << 20)
    assert database.append(1, Place(1, 64), data, 1)
    assert database.rows(Place(1, 64), 1) == [Row(Place(1, 64), data, 1)]


@pytest.mark.parametrize("change", ["append", "begin", "confirm"])
def test_a_commit_that_is_not_looked_at_is_doubtful(pair: Pair, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """As by pg_cancel_backend, between the commit and the question whether it has waited for a standby.

    Here the server does not know the prepared statement that asks, and refuses the other.
    """
    database = begun(pair)
    changes: dict[str, Callable[[], object]] = {
        "append": lambda: database.append(1, Place(1, 64), b"x", 1),
        "begin": lambda: database.begin(1, Place(1, 64), 2, header(2)),
        "confirm": lambda: database.confirm(1, Place(1, 64)),
    }
    with monkeypatch.context() as patched:
        patched.setattr("store.replicated.server._STANDBYS", b"missing")
        patched.setattr("store.replicated.server.STANDBYS", b"DO $$ BEGIN RAISE query_canceled; END $$")
        with pytest.raises(Doubtful):
            changes[change]()
    assert database.head().end == {"append": Place(1, 65), "begin": Place(2, 64), "confirm": Place(1, 64)}[change]


def test_no_server_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="connecting to PostgreSQL"):
        Postgres(PostgresSettings("host=127.0.0.1 port=1 user=x dbname=x")).head()


def test_a_connection_that_cannot_be_set_up_is_closed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[psycopg.Connection] = []

    def broken(self: Postgres, connection: psycopg.Connection) -> str:
        made.append(connection)
        raise psycopg.OperationalError("the server went away")

    monkeypatch.setattr(Server, "unfit", broken)
    with pytest.raises(Unavailable, match="the server went away"):
        Postgres(settings(pair)).head()
    assert [connection.closed for connection in made] == [True]


def test_a_server_that_is_no_primary_is_not_taken(pair: Pair) -> None:
    standby = PostgresSettings(pair.standby.dsn)
    with pytest.raises(Unavailable, match=r"read-write|read-only"):
        Postgres(standby).head()


def test_a_primary_that_is_gone_is_replaced_by_its_standby(pair: Pair) -> None:
    database = begun(pair)
    pair.fail_over()
    with pytest.raises(Doubtful):
        database.append(1, Place(1, 64), b"x", 1)
    assert database.append(1, Place(1, 64), b"x", 1)


@pytest.mark.parametrize("dsn", ["host", "postgresql://[", "nonsense=1 password=secret"])
def test_a_dsn_that_cannot_be_read_is_refused_and_not_told(dsn: str) -> None:
    with pytest.raises(DatabaseUnfit, match="cannot be read: give host=one,two") as raised:
        check_dsn(dsn)
    assert "secret" not in str(raised.value)
