"""PostgreSQL as the database of a replicated log: the only place that knows SQL.

Each segment is a table, so that to trim one is to drop a table: nothing has to be vacuumed, and whoever reads an older
one (a backup, say) holds up nothing but its own removal.  All objects lie in one schema.

A commit returns when a synchronous standby has the transaction (`synchronous_commit`, `synchronous_standby_names`).
The server may end that wait early: with a warning when the statement is cancelled, and without one when no standby is
named any more.  Both are looked at for every change, once it has returned, and count as doubtful.
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

from store.database import Doubtful, Head, Lease, Row, Unavailable
from store.errors import DatabaseUnfit, LogFailed
from store.log import Place
from store.segment import SEGMENT_HEADER_BYTES, decode_header

#: The layout of the tables.
FORMAT: Final = 1

#: The first version that may be used, of the oldest one and of each that was mended later: before, a server that had
#: just started could confirm commits for a moment without its standby (release notes of 15.13).
VERSIONS_MIN: Final = {15: 150013, 16: 160009, 17: 170005}

#: How much each level of synchronous_commit promises.
_LEVELS: Final = {"off": 0, "local": 1, "remote_write": 2, "on": 3, "remote_apply": 4}

#: How long a removal of a segment waits for those who read it, in ms, before it is put off.
_TRIM_WAIT_MS: Final = 200

#: What a session must not take from the settings of its role or its server.  It hears every warning; and no timeout
#: ends it, but for a transaction that its client does not end, as a stopped process: that may not keep others from the
#: head.
_SESSION: Final = {
    "client_min_messages": "warning",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_session_timeout": "0",
    "transaction_timeout": "0",  # from 17 on
    "idle_in_transaction_session_timeout": "2000",
}

#: Sets those that the server knows.
_SET: Final = (
    "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS wanted (name, value)"
    " JOIN pg_settings USING (name)"
)

#: The prepared statement of `append`, and how its values are sent: numbers as text, the entries as they are.
_APPEND: Final = b"append"
_APPEND_FORMATS: Final = [*[Format.TEXT] * 5, Format.BINARY]

#: What a server says that will be able to do later what it cannot do now.
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

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS {schema}.head (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), format int NOT NULL, epoch bigint NOT NULL,
    segment bigint NOT NULL, at bigint NOT NULL, replicated_segment bigint NOT NULL, replicated_at bigint NOT NULL,
    broker_id bytea NOT NULL, entries bigint NOT NULL DEFAULT 0,
    confirmations bigint NOT NULL DEFAULT 0) WITH (fillfactor = 10);
CREATE TABLE IF NOT EXISTS {schema}.segments (segment bigint PRIMARY KEY);
CREATE TABLE IF NOT EXISTS {schema}.bodies (id bigint PRIMARY KEY, nbytes bigint NOT NULL);
CREATE TABLE IF NOT EXISTS {schema}.chunks (
    id bigint NOT NULL, chunk int NOT NULL, data bytea NOT NULL, PRIMARY KEY (id, chunk));
ALTER TABLE {schema}.chunks ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE IF NOT EXISTS {schema}.lease (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), owner text NOT NULL, epoch bigint NOT NULL,
    until timestamptz NOT NULL, replicated_segment bigint NOT NULL, replicated_at bigint NOT NULL)
    WITH (fillfactor = 10);
INSERT INTO {schema}.head (format, epoch, segment, at, replicated_segment, replicated_at, broker_id)
    VALUES ({format}, 0, 0, 0, 0, 0, '') ON CONFLICT DO NOTHING;
INSERT INTO {schema}.lease (owner, epoch, until, replicated_segment, replicated_at)
    VALUES ('', 0, 'epoch', 0, 0) ON CONFLICT DO NOTHING;
"""


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """`dsn` as libpq takes it, with several hosts if there are; times in ms.

    `synchronous_commit`: what a commit must promise at least.  `single_copy`: no standby is wanted.
    """

    dsn: str
    schema: str = "bartleby"
    connect_timeout: int = 2_000
    silence: int = 5_000
    synchronous_commit: str = "on"
    single_copy: bool = False


def check_dsn(dsn: str) -> None:
    """Raises DatabaseUnfit for what libpq does not understand; nothing of it is told, as it may have a password."""
    try:
        conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        raise DatabaseUnfit(
            "the dsn of the database cannot be read: give host=one,two dbname=bartleby user=bartleby password=..., or a"
            " postgresql:// URI"
        ) from None


class Postgres:
    """See Database.  With `lease_only` it serves the lease, which need not be on a standby: no change waits for one."""

    def __init__(self, settings: PostgresSettings, *, lease_only: bool = False) -> None:
        self._settings = settings
        self._lease_only = lease_only
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._warning = ""
        self._checked = False  # it was fit, once
        self._prepared = 0  # the segment of the connection's statement that appends; 0: there is none

    # -- the connection --------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Make the tables that are missing.  Raises DatabaseUnfit, Unavailable, Doubtful, LogFailed."""
        with self._connected() as connection:
            unfit = self._unfit(connection)
            if unfit:
                raise DatabaseUnfit(unfit)
            schema = self._settings.schema
            try:
                self._make_tables(connection)
                found = self._one(connection, "SELECT format FROM {schema}.head")
            except errors.InsufficientPrivilege as error:
                raise DatabaseUnfit(
                    f"PostgreSQL: {_told(error)}: all in schema {schema} must belong to the user of the dsn; if it is"
                    f" missing, let an administrator say CREATE SCHEMA {schema} AUTHORIZATION {connection.info.user}"
                ) from error
            if found[0] != FORMAT:
                raise DatabaseUnfit(
                    f"the tables in schema {schema} have format {found[0]}, this software knows {FORMAT}"
                )
        self._checked = True

    def _make_tables(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        """One at a time: IF NOT EXISTS does not keep two from trying, and asks for rights that it does not need."""
        schema = self._settings.schema
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"bartleby {schema}",))
            known = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone()
            if known is None:
                connection.execute(self._sql("CREATE SCHEMA {schema}"))
            known = connection.execute(
                "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'lease'", (schema,)
            ).fetchone()
            if known is None:
                connection.execute(self._sql(_TABLES, format=sql.Literal(FORMAT)))

    def _unfit(self, connection: psycopg.Connection[tuple[Any, ...]]) -> str:
        """Why the log must not be kept there; empty if it may."""
        version = connection.info.server_version
        if version < VERSIONS_MIN.get(version // 10000, min(VERSIONS_MIN.values())):
            least = ", ".join(f"{each // 10000}.{each % 10000}" for each in VERSIONS_MIN.values())
            return f"PostgreSQL {version // 10000}.{version % 10000} is too old: it must be {least}, or later ones"
        fsync, level, names, process = self._one(
            connection,
            "SELECT current_setting('fsync'), current_setting('synchronous_commit'),"
            " current_setting('synchronous_standby_names'), pg_backend_pid()",
        )
        if process != connection.info.backend_pid:  # what is set for the lease might be in force for the log
            return (
                "a connection pooler is between the broker and the server, and may give the broker's sessions to"
                " others: name the server itself in the dsn"
            )
        if fsync != "on":
            return "the server's fsync is off, so that it may lose what it has committed: set fsync = on"
        if self._settings.single_copy:
            if level == "off":
                return "synchronous_commit is off, so that commits are lost in a crash: set it to on"
            return ""
        if not names:
            return (
                "the server has no synchronous standby: set synchronous_standby_names, on the standby too, which may be"
                " promoted; or say in the broker's configuration that one copy is enough:"
                " journal.postgresql.single-copy = true"
            )
        asked = self._settings.synchronous_commit
        if not self._lease_only and _LEVELS[level] < _LEVELS[asked]:
            return f"the server's synchronous_commit is {level}, which is weaker than {asked}: set it to {asked}"
        return ""

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        settings = self._settings
        given: dict[str, Any] = {
            "target_session_attrs": "read-write",
            "connect_timeout": max(2, -(-settings.connect_timeout // 1000)),  # libpq knows no less than two
            "application_name": "bartleby",
            "keepalives_idle": 1,
            "keepalives_interval": 1,
            "keepalives_count": max(1, settings.silence // 1000 - 1),
            "tcp_user_timeout": settings.silence,
            **conninfo_to_dict(settings.dsn),
            "client_encoding": "utf8",  # by default that of the database, which may be none
        }
        connection = psycopg.connect(make_conninfo("", **given), autocommit=True)
        try:
            self._set_up(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_up(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        connection.add_notice_handler(self._on_notice)
        connection.prepared_max = 20
        unfit = self._unfit(connection)
        if unfit and self._checked:  # since then the server has been set up otherwise, or it is another one
            raise Unavailable(f"PostgreSQL: {unfit}")
        if not unfit:
            level = "local" if self._lease_only else self._settings.synchronous_commit
            wanted = _SESSION | {"synchronous_commit": level}
            connection.execute(_SET, ([*wanted], [*wanted.values()]))

    def _on_notice(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self._warning = notice.message_primary or "a warning"

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """The connection; what goes wrong on it is translated."""
        if self._connection is None:
            try:
                self._connection = self._connect()
            except psycopg.Error as error:
                raise Unavailable(f"connecting to PostgreSQL: {_told(error)}") from error
        connection = self._connection
        try:
            yield connection
        except psycopg.Error as error:
            # What a server says has a code.  libpq may call a connection good on which it could not send, or whose
            # last words it has just read.
            last = error.diag.severity_nonlocalized in ("FATAL", "PANIC")
            broken = last or error.sqlstate is None or connection.broken or connection.closed
            self.close()
            if broken:
                raise Doubtful(f"the connection to PostgreSQL broke: {_told(error)}") from error
            if isinstance(error, _PASSING):
                raise Unavailable(f"PostgreSQL: {_told(error)}") from error
            raise LogFailed(f"PostgreSQL: {_told(error)}") from error

    def interrupt(self) -> None:
        connection = self._connection
        with suppress(psycopg.Error, OSError):
            if connection is not None:
                channel = socket.socket(fileno=connection.fileno())
                try:
                    channel.shutdown(socket.SHUT_RDWR)
                finally:
                    channel.detach()  # it stays the connection's

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._prepared = 0
        if connection is not None:
            connection.close()

    def _sql(self, text: str, **parts: sql.Composable) -> sql.Composed:
        return sql.SQL(text).format(schema=sql.Identifier(self._settings.schema), **parts)

    def _one(self, connection: psycopg.Connection[tuple[Any, ...]], text: str, *values: object) -> tuple[Any, ...]:
        """The one row that a query gives."""
        row = connection.execute(self._sql(text), values).fetchone()
        assert row is not None, "the tables have their rows"
        return row

    def _change(self, query: sql.Composed, *values: object) -> tuple[Any, ...] | None:
        """A change that a standby must have, and the row that it returns; None if it changed nothing.

        Raises Doubtful, Unavailable, LogFailed.
        """
        with self._connected() as connection:
            self._warning = ""
            row = connection.execute(query, values, prepare=True).fetchone()
            if row is not None:
                self._look(connection)
            return row

    def _look(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        """Whether a commit that has returned is replicated.  Raises Doubtful."""
        try:
            found = connection.execute(_STANDBYS).fetchone()
        except psycopg.Error as error:
            raise self._not_looked(error) from error
        assert found is not None
        self._judge(found[0])

    def _not_looked(self, error: psycopg.Error) -> Doubtful:
        """The commit has returned, and more is not known of it."""
        self.close()
        return Doubtful(f"PostgreSQL: {_told(error)}")

    def _judge(self, standbys: str) -> None:
        """See `_look`; `standbys`: which are named after the commit."""
        if self._settings.single_copy:
            return
        if self._warning:
            raise Doubtful(f"PostgreSQL warns: {self._warning}")
        if not standbys:
            raise Doubtful("PostgreSQL no longer names a synchronous standby (synchronous_standby_names)")

    # -- the log ---------------------------------------------------------------------------------------------------

    def head(self) -> Head:
        with self._connected() as connection:
            return _head(self._one(connection, f"SELECT {_HEAD} FROM {{schema}}.head"))

    def claim(self, owner: str) -> Head | None:
        query = self._sql(
            "UPDATE {schema}.head SET epoch = epoch + 1, replicated_segment = segment, replicated_at = at WHERE EXISTS"
            " (SELECT 1 FROM {schema}.lease WHERE owner = %s AND until > clock_timestamp()) RETURNING"
            f" {_HEAD}"
        )
        row = self._change(query, owner)
        return None if row is None else _head(row)

    def append(self, epoch: int, end: Place, data: bytes | bytearray, entries: int) -> bool:
        """By libpq itself: a cursor of psycopg's takes as long in Python as the server takes for the statement."""
        segment, at = end
        values = [b"%d" % value for value in (at + len(data), entries, epoch, segment, at)]
        with self._connected() as connection:
            self._prepare_append(connection, segment)
            self._warning = ""
            appended, *looked = _in_one_go(connection.pgconn, [*values, data])
            if not looked:
                raise errors.error_from_result(appended)
            if not appended.command_tuples:
                return False
            if looked[0].status != ExecStatus.TUPLES_OK:
                raise self._not_looked(errors.error_from_result(looked[0]))
            self._judge((looked[0].get_value(0, 0) or b"").decode())
            return True

    def _prepare_append(self, connection: psycopg.Connection[tuple[Any, ...]], segment: int) -> None:
        """Of a connection only one segment's, so that it does not hold the plans of all."""
        if self._prepared == segment:
            return
        if self._prepared:
            connection.execute(b"DEALLOCATE " + _APPEND)
            self._prepared = 0
        query = self._sql(
            "WITH moved AS (UPDATE {schema}.head SET at = $1::bigint, replicated_segment = segment, replicated_at = at,"
            " entries = entries + $2::bigint WHERE epoch = $3::bigint AND segment = $4::bigint AND at = $5::bigint"
            " RETURNING entries)"
            " INSERT INTO {log} (at, epoch, data, entries)"
            " SELECT $5::bigint, $3::bigint, $6::bytea, entries FROM moved",
            log=self._log(segment),
        )
        result = connection.pgconn.prepare(_APPEND, query.as_bytes(connection))
        if result.status != ExecStatus.COMMAND_OK:
            raise errors.error_from_result(result)
        self._prepared = segment

    def begin(self, epoch: int, end: Place, segment: int, header: bytes) -> bool:
        """One message with all statements: a writer that stops in the middle leaves no transaction open."""
        query = self._sql(
            "DO $$ BEGIN"
            " UPDATE {schema}.head SET segment = {segment}, at = {bytes}, replicated_segment = segment,"
            " replicated_at = at, broker_id = {broker_id} WHERE epoch = {epoch} AND segment = {last} AND at = {at};"
            " IF NOT FOUND THEN RAISE no_data_found; END IF;"
            " CREATE TABLE {log} (at bigint PRIMARY KEY, epoch bigint NOT NULL, entries bigint NOT NULL,"
            " data bytea NOT NULL);"
            " ALTER TABLE {log} ALTER COLUMN data SET STORAGE EXTERNAL;"
            " INSERT INTO {schema}.segments VALUES ({segment});"
            " INSERT INTO {log} SELECT 0, {epoch}, entries, {header} FROM {schema}.head;"
            " END $$",
            log=self._log(segment),
            segment=sql.Literal(segment),
            bytes=sql.Literal(SEGMENT_HEADER_BYTES),
            broker_id=sql.Literal(decode_header(header).broker_id),
            epoch=sql.Literal(epoch),
            last=sql.Literal(end.segment),
            at=sql.Literal(end.offset),
            header=sql.Literal(header),
        )
        return self._do(query)

    def _do(self, query: sql.Composed) -> bool:
        with self._connected() as connection:
            self._warning = ""
            try:
                connection.execute(query)
            except errors.NoDataFound:
                return False
            self._look(connection)
            return True

    def confirm(self, epoch: int) -> bool:
        query = self._sql(
            "UPDATE {schema}.head SET confirmations = confirmations + 1, replicated_segment = segment,"
            " replicated_at = at WHERE epoch = %s RETURNING 1"
        )
        return self._change(query, epoch) is not None

    def trim(self, epoch: int, segments: Sequence[int]) -> bool:
        """The head is locked, so that no epoch begins meanwhile."""
        if not segments:
            return True
        query = self._sql(
            "DO $$ BEGIN SET LOCAL lock_timeout = {wait};"
            " PERFORM 1 FROM {schema}.head WHERE epoch = {epoch} FOR UPDATE;"
            " IF NOT FOUND THEN RAISE no_data_found; END IF;"
            " DROP TABLE IF EXISTS {logs};"
            " DELETE FROM {schema}.segments WHERE segment = ANY({segments});"
            " END $$",
            wait=sql.Literal(_TRIM_WAIT_MS),
            epoch=sql.Literal(epoch),
            logs=sql.SQL(", ").join(map(self._log, segments)),
            segments=sql.Literal([*segments]),
        )
        return self._do(query)

    def _log(self, segment: int) -> sql.Identifier:
        return sql.Identifier(self._settings.schema, f"log_{segment:010d}")

    def segments(self) -> list[int]:
        with self._connected() as connection:
            found = connection.execute(self._sql("SELECT segment FROM {schema}.segments ORDER BY segment")).fetchall()
            return [row[0] for row in found]

    def rows(self, start: Place, nbytes: int) -> list[Row]:
        query = self._sql(
            "SELECT at, data, entries FROM {log} WHERE at >= (SELECT max(at) FROM {log} WHERE at <= %s) AND at < %s"
            " AND at + length(data) > %s ORDER BY at",
            log=self._log(start.segment),
        )
        with self._connected() as connection:
            try:
                found = connection.execute(
                    query, (start.offset, start.offset + max(nbytes, 1), start.offset), binary=True
                ).fetchall()
            except errors.UndefinedTable:
                return []
            return [Row(Place(start.segment, at), bytes(data), entries) for at, data, entries in found]

    # -- bodies ----------------------------------------------------------------------------------------------------

    def bodies(self) -> dict[int, int]:
        with self._connected() as connection:
            return dict(connection.execute(self._sql("SELECT id, nbytes FROM {schema}.bodies")).fetchall())

    def read_body(self, id: int) -> Iterator[bytes]:
        query = self._sql("SELECT data FROM {schema}.chunks WHERE id = %s AND chunk = %s")
        number = 0
        while True:
            with self._connected() as connection:
                row = connection.execute(query, (id, number), binary=True).fetchone()
            if row is None:
                return
            yield bytes(row[0])
            number += 1

    def put_body(self, epoch: int, id: int, chunk: int, data: bytes, *, nbytes: int) -> bool:
        query = self._sql(
            "WITH whole AS (INSERT INTO {schema}.bodies SELECT %s, %s FROM {schema}.head WHERE epoch = %s AND %s >= 0"
            " ON CONFLICT DO NOTHING), put AS (INSERT INTO {schema}.chunks SELECT %s, %s, %b FROM {schema}.head"
            " WHERE epoch = %s ON CONFLICT DO NOTHING)"
            " SELECT 1 FROM {schema}.head WHERE epoch = %s"
        )
        return self._change(query, id, nbytes, epoch, nbytes, id, chunk, data, epoch, epoch) is not None

    def drop_bodies(self, epoch: int, ids: Sequence[int]) -> bool:
        query = self._sql(
            "WITH whole AS (DELETE FROM {schema}.bodies WHERE id = ANY(%s)"
            " AND EXISTS (SELECT 1 FROM {schema}.head WHERE epoch = %s)),"
            " chunk AS (DELETE FROM {schema}.chunks WHERE id = ANY(%s)"
            " AND EXISTS (SELECT 1 FROM {schema}.head WHERE epoch = %s))"
            " SELECT 1 FROM {schema}.head WHERE epoch = %s"
        )
        return self._change(query, [*ids], epoch, [*ids], epoch, epoch) is not None

    # -- the lease -------------------------------------------------------------------------------------------------

    def lease(self) -> Lease:
        query = (
            "SELECT owner, epoch, greatest(extract(epoch FROM until - clock_timestamp()) * 1000, -1e9),"
            " replicated_segment, replicated_at FROM {schema}.lease"
        )
        with self._connected() as connection:
            owner, epoch, left, segment, at = self._one(connection, query)
            return Lease(owner, epoch, int(left), Place(segment, at))

    def take_lease(self, owner: str, ms: int) -> bool:
        query = self._sql(
            "UPDATE {schema}.lease SET owner = %s, until = clock_timestamp() + %s * interval '1 ms'"
            " WHERE until < clock_timestamp() OR owner = %s RETURNING 1"
        )
        with self._connected() as connection:
            return connection.execute(query, (owner, ms, owner)).fetchone() is not None

    def renew_lease(self, owner: str, epoch: int, ms: int, replicated: Place) -> bool:
        query = self._sql(
            "UPDATE {schema}.lease SET epoch = %s, until = clock_timestamp() + %s * interval '1 ms',"
            " replicated_segment = %s, replicated_at = %s WHERE owner = %s RETURNING 1"
        )
        with self._connected() as connection:
            return connection.execute(query, (epoch, ms, *replicated, owner)).fetchone() is not None

    def give_up_lease(self, owner: str) -> None:
        query = self._sql("UPDATE {schema}.lease SET owner = '', until = 'epoch' WHERE owner = %s")
        with self._connected() as connection:
            connection.execute(query, (owner,))


#: What `_head` reads.
_HEAD: Final = "epoch, segment, at, replicated_segment, replicated_at, broker_id, entries"

#: Which standbys the server waits for at a commit.  It may have been told otherwise since, also while a commit waited:
#: so this is asked once that has returned.  The server's process hears of it before whoever waits is let go.
_STANDBYS: Final = b"SELECT current_setting('synchronous_standby_names')"


def _in_one_go(connection: PGconn, values: Sequence[bytes | bytearray]) -> list[PGresult]:
    """What the server says to `_APPEND`, and to `_STANDBYS` after its commit: one way there and back.

    It ends with the first that goes wrong: the connection cannot be used any more then.
    """
    connection.enter_pipeline_mode()
    connection.send_query_prepared(_APPEND, values, _APPEND_FORMATS)
    connection.pipeline_sync()
    connection.send_query_params(_STANDBYS, None)
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
        assert result is not None, "what was sent has an answer, if only libpq's"
        found.append(result)
        if result.status != expected:
            return found
        _next(connection, server)  # there are no more of it
        _next(connection, server)  # the next one begins
    connection.exit_pipeline_mode()
    return found


def _next(connection: PGconn, server: poll) -> PGresult | None:
    """What the server says next; libpq would wait for it with the interpreter's lock."""
    while connection.is_busy():
        server.poll()
        connection.consume_input()
    return connection.get_result()


def _head(row: Sequence[Any]) -> Head:
    epoch, segment, at, replicated_segment, replicated_at, broker_id, entries = row[:7]
    return Head(epoch, Place(segment, at), Place(replicated_segment, replicated_at), bytes(broker_id), entries)


def _told(error: psycopg.Error) -> str:
    """What libpq or the server said, in one line."""
    primary = error.diag.message_primary
    return primary or " ".join(str(error).split()) or type(error).__name__
