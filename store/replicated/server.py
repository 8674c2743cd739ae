"""One connection to a PostgreSQL server, with checks that its commits are as durable as a log needs.

A commit returns when a synchronous standby has the transaction (`synchronous_commit`, `synchronous_standby_names`).
The server may end that wait early: with a warning if the statement is cancelled, and without one if no standby is named
any more.  What ended it may be a backup (see `standbys`).  All of these are checked after every change, and make it
doubtful.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from select import POLLIN, POLLOUT, poll
from typing import Any, Final

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult

from store.errors import DatabaseUnfit, LogFailed
from store.replicated.database import Doubtful, Unavailable
from store.replicated.standbys import STANDBYS, Standbys, doubt_about, judged

#: By major version, the first minor version without this bug: shortly after its start a server could confirm commits
#: without its standby (release notes of 15.13).  Older major versions are not supported; newer ones never had the bug.
VERSIONS_MIN: Final = {15: 150013, 16: 160009, 17: 170005}

#: The levels of synchronous_commit; higher ones promise more.
_LEVELS: Final = {"off": 0, "local": 1, "remote_write": 2, "on": 3, "remote_apply": 4}

#: Settings that a session must not inherit from its role or its server.  It gets every warning.  The only timeout is
#: the one for idle transactions: a stopped process must not keep the head locked.
_SESSION: Final = {
    "client_min_messages": "warning",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_session_timeout": "0",
    "transaction_timeout": "0",  # from 17 on
    "idle_in_transaction_session_timeout": "2000",
}

#: Sets those of these settings that the server has.
_SET: Final = (
    "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS wanted (name, value)"
    " JOIN pg_settings USING (name)"
)

#: Errors that may pass: the server may be able to do later what it cannot do now.
_PASSING: Final = (
    errors.ReadOnlySqlTransaction,
    errors.InsufficientResources,
    errors.LockNotAvailable,
    errors.QueryCanceled,
    errors.CannotConnectNow,
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.IoError,
)

#: The prepared statement `STANDBYS`.  The setting may change, even while a commit waits, so it is read after the commit
#: has returned: the server's process sees a change before it ends the wait.
_STANDBYS: Final = b"standbys"

#: What Patroni sets from a promotion until a standby has caught up.
_ANYBODY: Final = "*"

Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """`dsn` in libpq's syntax, which may name several hosts; times in ms.

    `synchronous_commit`: the lowest level allowed.  `single_copy`: no standby is required.
    """

    dsn: str
    schema: str = "bartleby"
    connect_timeout: int = 2_000
    silence: int = 5_000
    synchronous_commit: str = "on"
    single_copy: bool = False


def check_dsn(dsn: str) -> None:
    """Check that libpq can parse a dsn.  Raises DatabaseUnfit, without quoting it: it may contain a password."""
    try:
        conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        raise DatabaseUnfit(
            "the dsn of the database cannot be read: give host=one,two dbname=bartleby user=bartleby password=..., or a"
            " postgresql:// URI"
        ) from None


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why the log must not be stored on a server; `passing`: it may be soon, without anybody's help."""

    why: str
    passing: bool = False


class Server:
    """One connection, opened when it is needed.  With `lease_only` no change waits for a standby.

    `fit`: whether the server has passed `unfit` once.  `standbys`: those that the last change has waited for.
    """

    def __init__(self, settings: PostgresSettings, *, lease_only: bool = False) -> None:
        self.settings = settings
        self.fit = False
        self.standbys = Standbys()
        self._told: tuple[bytes, bytes] = (b"", b"")  # what `standbys` was made from
        self._lease_only = lease_only
        self._connection: Connection | None = None
        self._warning = ""

    # -- the connection --------------------------------------------------------------------------------------------

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """The connection; its errors are raised as Doubtful, Unavailable or LogFailed."""
        if self._connection is None:
            try:
                self._connection = self._connect()
            except psycopg.Error as error:
                raise Unavailable(f"connecting to PostgreSQL: {error_text(error)}") from error
        connection = self._connection
        try:
            yield connection
        except psycopg.Error as error:
            # Errors from the server have a code.  libpq may call a connection good although it could not send on it, or
            # has just read the server's last error from it.
            last = error.diag.severity_nonlocalized in ("FATAL", "PANIC")
            broken = last or error.sqlstate is None or connection.broken or connection.closed
            self.close()
            if broken:
                raise Doubtful(f"the connection to PostgreSQL broke: {error_text(error)}") from error
            if isinstance(error, _PASSING):
                raise Unavailable(f"PostgreSQL: {error_text(error)}") from error
            raise LogFailed(f"PostgreSQL: {error_text(error)}") from error

    def _connect(self) -> Connection:
        settings = self.settings
        given: dict[str, Any] = {
            "target_session_attrs": "read-write",
            "connect_timeout": max(2, -(-settings.connect_timeout // 1000)),  # libpq's minimum is two seconds
            "application_name": "bartleby",
            "keepalives_idle": 1,
            "keepalives_interval": 1,
            "keepalives_count": max(1, settings.silence // 1000 - 1),
            "tcp_user_timeout": settings.silence,
            **conninfo_to_dict(settings.dsn),
            "client_encoding": "utf8",  # the default is the database's, which may be SQL_ASCII
        }
        connection = psycopg.connect(make_conninfo("", **given), autocommit=True)
        try:
            self._set_up(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_up(self, connection: Connection) -> None:
        connection.add_notice_handler(self._on_notice)
        connection.prepared_max = 20
        unfit = self.unfit(connection)
        if unfit is not None and (self.fit or unfit.passing):  # its settings have changed, or it is another server
            raise Unavailable(f"PostgreSQL: {unfit.why}")
        if unfit is None:
            level = "local" if self._lease_only else self.settings.synchronous_commit
            wanted = _SESSION | {"synchronous_commit": level}
            connection.execute(_SET, ([*wanted], [*wanted.values()]))

    def prepare(self, connection: Connection, name: bytes, statement: bytes, *, again: bool) -> None:
        """Prepare the statement of `change_at_once`, for the first time on this connection or `again`."""
        wanted = {name: statement}
        if again:
            connection.execute(b"DEALLOCATE " + name)
        else:
            wanted[_STANDBYS] = STANDBYS
        for each, text in wanted.items():
            prepared = connection.pgconn.prepare(each, text)
            if prepared.status != ExecStatus.COMMAND_OK:
                raise errors.error_from_result(prepared)

    def _on_notice(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self._warning = notice.message_primary or "a warning"

    def unfit(self, connection: Connection) -> Unfit | None:
        """Return why the log must not be stored on this server; None if it may."""
        version = connection.info.server_version
        if version < VERSIONS_MIN.get(version // 10000, min(VERSIONS_MIN.values())):
            least = ", ".join(f"{each // 10000}.{each % 10000}" for each in VERSIONS_MIN.values())
            return Unfit(f"PostgreSQL {version // 10000}.{version % 10000} is too old: it must be {least}, or later")
        fsync, level, names, process = self.one(
            connection,
            "SELECT current_setting('fsync'), current_setting('synchronous_commit'),"
            " current_setting('synchronous_standby_names'), pg_backend_pid()",
        )
        if process != connection.info.backend_pid:  # the settings for the lease might apply to the log
            return Unfit(
                "a connection pooler is between the broker and the server, and may share the broker's sessions with"
                " other clients: name the server itself in the dsn"
            )
        if fsync != "on":
            return Unfit("the server's fsync is off, so it may lose what it has committed: set fsync = on")
        if self.settings.single_copy:
            if level == "off":
                return Unfit("synchronous_commit is off, so commits may be lost in a crash: set it to on")
            return None
        if self._lease_only:
            return None
        doubt = doubt_about(names)
        if doubt:
            one_copy = "" if names else "; or accept one copy in the broker's configuration: single-copy = true"
            return Unfit(f"{doubt}{one_copy}", passing=names == _ANYBODY)
        asked = self.settings.synchronous_commit
        if _LEVELS[level] < _LEVELS[asked]:
            return Unfit(f"the server's synchronous_commit is {level}, which is weaker than {asked}: set it to {asked}")
        return None

    def interrupt(self) -> None:
        """Break the connection from another thread: a call that waits for the server raises Doubtful."""
        connection = self._connection
        with suppress(psycopg.Error, OSError):
            if connection is not None:
                channel = socket.socket(fileno=connection.fileno())
                try:
                    channel.shutdown(socket.SHUT_RDWR)
                finally:
                    channel.detach()  # the descriptor belongs to the connection

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # -- statements ------------------------------------------------------------------------------------------------

    def query(self, text: str, **parts: sql.Composable) -> sql.Composed:
        """Return a statement with the schema's name and `parts` filled in."""
        return sql.SQL(text).format(schema=sql.Identifier(self.settings.schema), **parts)

    def rows(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self.connected() as connection:
            return connection.execute(self.query(text), values, binary=True).fetchall()

    def one(self, connection: Connection, text: str, *values: object) -> tuple[Any, ...]:
        """Return the only row of a query."""
        row = connection.execute(self.query(text), values).fetchone()
        assert row is not None, "the tables have their rows"
        return row

    def change(self, query: sql.Composed, *values: object) -> tuple[Any, ...] | None:
        """Make a change; returns the row that it returns, None if it changed nothing.

        Unless `lease_only`, it is replicated.  Raises Doubtful, Unavailable, LogFailed.
        """
        with self.connected() as connection:
            self._warning = ""
            row = connection.execute(query, values, prepare=True).fetchone()
            if row is not None:
                self._look(connection)
            return row

    def run(self, query: sql.Composed) -> bool:
        """Make a change in several statements; False if they raise no_data_found."""
        with self.connected() as connection:
            self._warning = ""
            try:
                connection.execute(query)
            except errors.NoDataFound:
                return False
            self._look(connection)
            return True

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Make a change in several steps, which is replicated at the end; an exception takes it back."""
        with self.connected() as connection:
            self._warning = ""
            with connection.transaction():
                yield connection
            self._look(connection)

    def change_at_once(self, statement: bytes, values: Sequence[bytes | bytearray], formats: Sequence[Format]) -> bool:
        """Like `change`, with a statement that the connection has prepared; returns whether it changed anything.

        Calls libpq directly: a cursor of psycopg takes as long in Python as the server takes for the statement.
        """
        with self.connected() as connection:
            self._warning = ""
            changed, *looked = _in_one_go(connection.pgconn, statement, values, formats)
            if not looked:
                raise errors.error_from_result(changed)
            if not changed.command_tuples:
                return False
            if looked[0].status != ExecStatus.TUPLES_OK:
                raise self._not_looked(errors.error_from_result(looked[0]))
            self._judge(looked[0])
            return True

    def _look(self, connection: Connection) -> None:
        """Check that a commit that has returned is replicated.  Raises Doubtful."""
        looked = connection.pgconn.exec_params(STANDBYS, None)
        if looked.status != ExecStatus.TUPLES_OK:
            raise self._not_looked(errors.error_from_result(looked))
        self._judge(looked)

    def _not_looked(self, error: psycopg.Error) -> Doubtful:
        """Return the error for a commit that has returned, but could not be checked."""
        self.close()
        return Doubtful(f"PostgreSQL: {error_text(error)}")

    def _judge(self, looked: PGresult) -> None:
        """Check that a commit was replicated; `looked`: the standbys after it.  Raises Doubtful."""
        if self.settings.single_copy or self._lease_only:
            return
        if self._warning:
            raise Doubtful(f"PostgreSQL warns: {self._warning}")
        told = looked.get_value(0, 0) or b"", looked.get_value(0, 1) or b""
        if told != self._told:
            self._told, self.standbys = told, judged(told[0].decode(), told[1].decode())
        if self.standbys.doubt:
            raise Doubtful(self.standbys.doubt)


def _in_one_go(
    connection: PGconn, statement: bytes, values: Sequence[bytes | bytearray], formats: Sequence[Format]
) -> list[PGresult]:
    """Return the results of the statement, and of `_STANDBYS` after its commit, in one round trip.

    If a result is a failure, it is the last one, and the connection cannot be used any more.
    """
    connection.enter_pipeline_mode()
    connection.send_query_prepared(statement, values, formats)
    connection.pipeline_sync()
    connection.send_query_prepared(_STANDBYS, None)
    connection.pipeline_sync()
    server = poll()
    server.register(connection.socket, POLLIN | POLLOUT)
    while connection.flush():
        server.poll()
        connection.consume_input()
    server.modify(connection.socket, POLLIN)
    found: list[PGresult] = []
    for expected in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
        result = _next(connection, server)
        if result is None:  # the connection broke after the result before this one
            raise psycopg.OperationalError(connection.get_error_message())
        found.append(result)
        if result.status != expected:
            return found
        _next(connection, server)  # None: the end of this query's results
        _next(connection, server)  # the result of the pipeline's sync
    connection.exit_pipeline_mode()
    return found


def _next(connection: PGconn, server: poll) -> PGresult | None:
    """Return the next result once it has arrived; libpq would wait with the interpreter's lock held."""
    while connection.is_busy():
        server.poll()
        connection.consume_input()
    return connection.get_result()


def error_text(error: psycopg.Error) -> str:
    """Return the message of libpq or the server, in one line."""
    primary = error.diag.message_primary
    return primary or " ".join(str(error).split()) or type(error).__name__
