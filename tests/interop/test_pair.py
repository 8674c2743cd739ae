"""A pair of brokers over a real PostgreSQL: taking over, stepping down, being refused, and ways back."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from itertools import count
from pathlib import Path
from shutil import copy2, copytree, rmtree
from typing import Final

import pytest

from broker.reasons.exit_status import ExitStatus
from store.replicated.postgresql import Postgres
from store.replicated.server import PostgresSettings
from tests.interop.scram import salt_and_iterations
from tests.support.daemon import DaemonProcess
from tests.support.peers import free_port
from tests.support.postgresql import PostgreSQL, Server
from tests.support.process import awaited
from tests.support.sim_gate import cheap_user
from tests.support.stomp_client import StompSocket

QUEUE: Final = "/queue/orders"
_NUMBERS: Final = count(1)


@pytest.fixture(scope="module")
def server(postgresql: PostgreSQL) -> Iterator[Server]:
    """A server without a standby."""
    server = postgresql.server()
    server.start()
    yield server
    server.close()


class Brokers:
    """Brokers whose journal lies in a schema of their own."""

    def __init__(self, directory: Path, server: Server) -> None:
        self.schema = f"pair{next(_NUMBERS)}"
        self.server = server
        self.settings = f"""
[journal]
log = "postgresql"

[journal.postgresql]
dsn = "{server.dsn}"
schema-name = "{self.schema}"
single-copy = true
lease = "1s"
renewal = "200ms"
"""
        self._directory = directory
        self._stack = ExitStack()

    def make(self, name: str, settings: str = "", **ports: int) -> DaemonProcess:
        """One that does not run yet, whose ports stay; these are given."""
        directory = self._directory / name
        directory.mkdir()
        fixed = {acceptor: free_port() for acceptor in ("stomp", "amqp", "mqtt", "http")} | ports
        broker = DaemonProcess(directory, settings or self.settings, fixed=fixed)
        self._stack.callback(broker.close)
        return broker

    def both(self) -> tuple[DaemonProcess, DaemonProcess]:
        """An owner and a standby."""
        one, two = self.make("one"), self.make("two")
        one.start()
        two.begin()
        two.await_standby()
        return one, two

    def sql(self, *statements: str) -> None:
        """Change what is in the schema."""
        for statement in statements:
            self.server.sql(statement.replace("{schema}", self.schema))

    def move_the_epoch_after(self, epoch: int) -> None:
        """As soon as this epoch is claimed, another broker claims the next one."""
        self.sql(
            "CREATE FUNCTION {schema}.fence() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN UPDATE {schema}.head SET epoch = epoch + 1; RETURN NULL; END $$",
            "CREATE TRIGGER fence AFTER UPDATE ON {schema}.head FOR EACH ROW"
            f" WHEN (NEW.epoch = {epoch} AND OLD.epoch = {epoch - 1}) EXECUTE FUNCTION {{schema}}.fence()",
        )

    def close(self) -> None:
        """End all."""
        self._stack.close()


@pytest.fixture
def brokers(tmp_path: Path, server: Server) -> Iterator[Brokers]:
    made = Brokers(tmp_path, server)
    yield made
    made.close()


def send(broker: DaemonProcess, body: bytes) -> None:
    """Have a message confirmed."""
    with StompSocket(broker.port) as client:
        client.connect().confirmed(QUEUE, body)


def waiting(broker: DaemonProcess, expected: int) -> list[bytes]:
    """What waits on the queue, once there is so much."""
    with StompSocket(broker.port) as client:
        client.connect().subscribe(QUEUE)
        client.wait(lambda: len(client.frames) >= expected)
        return client.bodies()


def refused(broker: DaemonProcess, status: ExitStatus, code: str) -> str:
    """Why a broker does not start: the line of its log."""
    broker.begin()
    assert broker.wait() == status, broker.log
    assert "Traceback" not in broker.log
    [line] = [line for line in broker.log.splitlines() if f" {code} " in line]
    return line


def journal(broker: DaemonProcess) -> Path:
    return broker.data / "journal"


# -- who owns the journal ----------------------------------------------------------------------------------------------


def test_a_standby_takes_over(brokers: Brokers) -> None:
    one, two = brokers.both()
    send(one, b"first")
    assert one.get("status")["replication"]["role"] == "owner"
    assert one.get("status")["replication"]["confirmed_by"] == "the primary alone (single-copy)"
    assert two.get("status")["replication"]["role"] == "standby"
    awaited(lambda: not two.get("status")["replication"]["starting"], what="the standby has read the journal")
    one.kill()
    two.await_ready()
    assert waiting(two, 1) == [b"first"]
    one.begin()
    one.await_standby()
    two.post("failover")
    one.await_ready()
    two.await_standby()
    assert waiting(one, 1) == [b"first"]
    assert (two.stop(), one.stop()) == (0, 0)


def test_unknown_users_look_alike_at_both_brokers(brokers: Brokers) -> None:
    """Both have the same users file and its secret, as docs/high-availability.md asks for."""
    one, two = brokers.make("one"), brokers.make("two")
    one.set_users({"alice": cheap_user("secret", "amq")})
    one.start()
    two.data.mkdir(exist_ok=True)
    for name in ("users.toml", "users.secret"):
        copy2(one.data / name, two.data / name)
    two.begin()
    two.await_standby()
    names = ("alice", "mallory", "nobody")
    before = [salt_and_iterations(one.ports["amqp"], name) for name in names]
    one.kill()
    two.await_ready()
    assert [salt_and_iterations(two.ports["amqp"], name) for name in names] == before


def test_a_copied_data_directory_makes_two_brokers(brokers: Brokers) -> None:
    """Both have the same name at first; they do not take the journal from each other again and again."""
    one, two = brokers.make("one"), brokers.make("two")
    one.start()
    send(one, b"first")
    one.kill()
    copytree(one.data, two.data)
    one.start()
    two.begin()
    two.await_ready()  # as if it were the first one, started again
    one.await_standby()
    two.kill()
    one.await_log("ready version", times=3)
    two.begin()
    two.await_standby()
    assert waiting(one, 1) == [b"first"]


@pytest.mark.parametrize("moment", ["it publishes its files", "it recovers"])
def test_an_owner_that_is_fenced_before_it_serves_stands_by(brokers: Brokers, moment: str) -> None:
    files = moment == "it publishes its files"
    broker = brokers.make("one", "\n" if files else "")
    broker.start()
    send(broker, b"first")
    assert broker.stop() == 0
    if files:
        with closing(Postgres(PostgresSettings(brokers.server.dsn, schema=brokers.schema, single_copy=True))) as made:
            made.check()
        broker.config.write_text(brokers.settings)
    if moment == "it recovers":  # what is left of an upload goes at once, before anything is written
        brokers.sql("INSERT INTO {schema}.bodies VALUES (77, 1)", "INSERT INTO {schema}.chunks VALUES (77, 0, 'x')")
    brokers.move_the_epoch_after(1 if files else 2)
    broker.start()
    assert waiting(broker, 1) == [b"first"]
    assert broker.log.count(" replication.stepped_down ") == 1
    broker.await_log(" ready ", times=2)  # before the fence and after it; a client may come before the line does
    assert " start." not in broker.log
    assert broker.stop() == 0


def test_an_owner_that_dies_while_it_publishes_its_files_does_it_again(brokers: Brokers) -> None:
    broker = brokers.make("one", "\n")
    broker.start()
    send(broker, b"first")
    assert broker.stop() == 0
    with closing(Postgres(PostgresSettings(brokers.server.dsn, schema=brokers.schema, single_copy=True))) as made:
        made.check()
    broker.config.write_text(brokers.settings)
    brokers.sql(
        "CREATE FUNCTION {schema}.slow() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_sleep(60); RETURN NULL; END $$",
        "CREATE TRIGGER slow AFTER INSERT ON {schema}.segments FOR EACH ROW EXECUTE FUNCTION {schema}.slow()",
    )
    broker.begin()
    sleeps = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    awaited(lambda: brokers.server.sql(sleeps), what="the journal is being written")
    broker.kill()
    brokers.server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
    brokers.sql("DROP TRIGGER slow ON {schema}.segments")
    broker.start()
    assert waiting(broker, 1) == [b"first"]


def test_an_owner_that_is_told_to_stop_while_it_steps_down_ends(brokers: Brokers) -> None:
    broker = brokers.make("one")
    broker.start()
    with StompSocket(broker.port) as client:  # it does not go, so that stepping down takes its time
        client.connect()
        brokers.sql("UPDATE {schema}.head SET epoch = epoch + 1")
        client.send(QUEUE, b"too late", persistent="true")
        broker.await_log(" replication.stepped_down ")
        broker.signal(signal.SIGTERM)
        assert broker.wait() == 0
    assert " stopped status=0" in broker.log


def test_a_standby_is_reloaded_once_it_owns_the_journal(brokers: Brokers) -> None:
    one, two = brokers.both()
    two.config.write_text(brokers.settings + '\n[addresses.late.queues.late]\nrouting-type = "ANYCAST"\n')
    two.signal(signal.SIGHUP)
    assert two.get("status")["replication"]["role"] == "standby", "it goes on"
    assert one.stop() == 0
    two.await_ready()
    two.await_log("reload.done")
    assert "late" in two.queue_names()


def test_a_standby_whose_files_are_unusable_waits_until_they_are_corrected(brokers: Brokers) -> None:
    """Else it would take over and end, and be disabled by systemd when it is needed."""
    one, two = brokers.both()
    users = two.data / "users.toml"
    users.touch()
    users.chmod(0o644)
    two.await_log("replication.disabled")
    one.kill()
    assert "other users can access the users file" in two.get("status")["replication"]["trouble"]
    users.chmod(0o600)
    two.await_ready()


def test_a_standby_whose_port_is_taken_waits_until_it_is_free(brokers: Brokers) -> None:
    """Else it would claim the journal, fence the owner, and end."""
    one = brokers.make("one")
    one.start()
    send(one, b"first")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        two = brokers.make("two", stomp=port)
        two.begin()
        two.await_log("replication.disabled")
        one.kill()
        awaited(lambda: two.get("status")["replication"]["lag_seconds"] > 0, what="the standby has noticed")
        lease = f"SELECT until < clock_timestamp() FROM {brokers.schema}.lease"
        awaited(lambda: brokers.server.sql(lease) == [(True,)], what="the lease is over")
        trouble = two.get("status")["replication"]["trouble"]
        assert f"acceptors.stomp: 127.0.0.1:{port}: address already in use: another process uses this port" in trouble
        assert brokers.server.sql(f"SELECT epoch FROM {brokers.schema}.head") == [(1,)], "it has not claimed"
    two.await_ready()
    assert waiting(two, 1) == [b"first"]


def test_a_configuration_that_contradicts_the_journal_keeps_no_standby_from_taking_over(brokers: Brokers) -> None:
    """An operator may have changed the queue since the standby was started."""
    one = brokers.make("one")
    one.start()
    send(one, b"first")
    two = brokers.make("two", brokers.settings + '\n[addresses.other.queues.orders]\nrouting-type = "ANYCAST"\n')
    two.begin()
    two.await_standby()
    assert one.stop() == 0
    two.await_ready()
    two.await_log("reload.declaration_failed")
    assert waiting(two, 1) == [b"first"]


@pytest.mark.parametrize("unconfirmed", [b"a message", b""])
def test_an_owner_whose_database_is_silent_ends_with_its_lease(brokers: Brokers, unconfirmed: bytes) -> None:
    """Without a message it is the last entry that the database does not answer."""
    broker = brokers.make("one")
    broker.start()
    with StompSocket(broker.port) as client:
        client.connect()
        brokers.server.pause()
        try:
            if unconfirmed:
                client.send(QUEUE, unconfirmed, persistent="true")
            assert broker.stop() == 0
        finally:
            brokers.server.resume()
    assert ' replication.stepped_down cause="the lease could not be renewed"' in broker.log


def test_a_reload_is_not_forgotten_by_one_that_is_fenced_as_it_takes_over(brokers: Brokers) -> None:
    one, two = brokers.both()
    two.config.write_text(brokers.settings + '\n[addresses.late.queues.late]\nrouting-type = "ANYCAST"\n')
    two.signal(signal.SIGHUP)
    # What is left of an upload goes at once, before it serves: so it learns of the fence.
    brokers.sql("INSERT INTO {schema}.bodies VALUES (77, 1)", "INSERT INTO {schema}.chunks VALUES (77, 0, 'x')")
    brokers.move_the_epoch_after(2)
    assert one.stop() == 0
    two.await_log(" replication.stepped_down ")
    two.await_ready()
    two.await_log("reload.done")
    assert "late" in two.queue_names()


def test_one_that_hands_over_does_not_stop_for_the_service_manager(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which would end it, once it has waited as long as a service may take to stop."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        one = brokers.make("one")
        one.start()
        monkeypatch.delenv("NOTIFY_SOCKET")
        two = brokers.make("two")
        two.begin()
        two.await_standby()
        one.post("failover")
        one.await_standby()
        assert one.stop() == 0
        told = list(received(manager))
    assert told.count(b"READY=1") == 3, "as a standby, as the owner, as a standby"
    assert b"STOPPING=1" not in told[: -1 - told[::-1].index(b"READY=1")]
    assert told[-1] == b"STOPPING=1", "since it was told to"


def received(manager: socket.socket) -> Iterator[bytes]:
    """What a service manager has been told."""
    manager.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            yield manager.recv(4096)


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_an_unfit_database_is_refused(brokers: Brokers) -> None:
    broker = brokers.make("one", brokers.settings.replace("single-copy = true", ""))
    why = refused(broker, ExitStatus.USAGE, "start.database")
    assert "set synchronous_standby_names" in why


def test_a_file_with_the_dsn_that_cannot_be_read_is_named(brokers: Brokers) -> None:
    missing = brokers.server.directory / "no-dsn"
    broker = brokers.make("one", brokers.settings.replace(f'dsn = "{brokers.server.dsn}"', f'dsn-file = "{missing}"'))
    why = refused(broker, ExitStatus.USAGE, "start.database")
    assert f"{missing} cannot be read: No such file or directory" in why


def test_the_copy_of_another_pair_is_refused(brokers: Brokers, tmp_path: Path, server: Server) -> None:
    (tmp_path / "others").mkdir()
    others = Brokers(tmp_path / "others", server)
    for each in (brokers, others):
        broker = each.make("one")
        broker.start()
        assert broker.stop() == 0
    broker.config.write_text(brokers.settings)
    why = refused(broker, ExitStatus.DISK_FAILED, "start.corrupt")
    assert "belongs to another broker than the log in the database" in why


@pytest.mark.parametrize("protocol", ["http", "stomp"])
def test_a_standby_names_where_it_cannot_listen(brokers: Brokers, protocol: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = f"""
{brokers.settings}redirect = true
[broker]
failover-hosts = ["127.0.0.1"]
[acceptors.mine]
protocol = "{protocol}"
"""
        why = refused(brokers.make("one", settings, mine=port), ExitStatus.FAILED, "start.listen")
    assert f"acceptor=mine address=127.0.0.1:{port} " in why
    assert "address already in use" in why


# -- ways between files and a database, and out of one that has lost something -----------------------------------------


def test_a_journal_goes_from_files_to_a_database_and_back(brokers: Brokers) -> None:
    broker = brokers.make("one", "\n")
    for settings, body in (("\n", b"first"), (brokers.settings, b"second"), ("\n", b"third")):
        broker.config.write_text(settings)
        broker.start()
        send(broker, body)
        assert broker.stop() == 0
        (journal(broker) / "copy").unlink(missing_ok=True)
    broker.start()
    assert waiting(broker, 3) == [b"first", b"second", b"third"]


def lose_what_was_confirmed(brokers: Brokers) -> tuple[DaemonProcess, DaemonProcess]:
    """The database is that of a backup, which has the first of two messages: neither broker starts."""
    one, two = brokers.both()
    send(one, b"first")
    [(segment, at, entries)] = brokers.server.sql(f"SELECT segment, at, entries FROM {brokers.schema}.head")
    send(one, b"second")
    assert one.stop() == 0
    two.await_ready()
    assert two.stop() == 0
    brokers.sql(
        f"DROP TABLE {{schema}}.log_{segment + 1:010d}",
        f"DELETE FROM {{schema}}.segments WHERE segment > {segment}",
        f"DELETE FROM {{schema}}.log_{segment:010d} WHERE at >= {at}",
        f"UPDATE {{schema}}.head SET segment = {segment}, at = {at}, entries = {entries}",
    )
    for broker in (one, two):
        before = {path: path.read_bytes() for path in journal(broker).glob("*.journal")}
        why = refused(broker, ExitStatus.DISK_FAILED, "start.database")
        assert f"but the log in the database ends at byte {at} of segment {segment}: " in why
        assert "docs/high-availability.md" in why
        assert {path: path.read_bytes() for path in before} == before, "nothing was changed"
    return one, two


def test_the_messages_of_a_copy_are_kept(brokers: Brokers) -> None:
    one, two = lose_what_was_confirmed(brokers)
    brokers.sql("DROP SCHEMA {schema} CASCADE")
    (journal(two) / "copy").unlink()  # that copy goes further
    rmtree(journal(one))
    two.start()
    one.begin()
    one.await_standby()
    assert two.stop() == 0
    one.await_ready()
    assert waiting(one, 2) == [b"first", b"second"]


def test_a_broker_continues_with_the_contents_of_the_database(brokers: Brokers) -> None:
    one, two = lose_what_was_confirmed(brokers)
    for broker in (one, two):
        rmtree(journal(broker))
    one.start()
    two.begin()
    two.await_standby()
    assert one.stop() == 0
    two.await_ready()
    assert waiting(two, 1) == [b"first"]


def test_a_copy_is_not_the_journal_of_an_empty_database(brokers: Brokers) -> None:
    """As with another schema or database in the dsn: it would own a journal of its own beside the other broker."""
    one, two = brokers.both()
    send(one, b"first")
    assert one.stop() == 0
    two.await_ready()
    assert two.stop() == 0
    two.config.write_text(brokers.settings.replace(brokers.schema, f"{brokers.schema}mistyped"))
    why = refused(two, ExitStatus.DISK_FAILED, "start.database")
    assert "but the log in the database is empty (is it another database or schema than before?)" in why
    two.config.write_text(brokers.settings)
    two.start()
    assert waiting(two, 1) == [b"first"]
