"""PostgreSQL as the database of a replicated log: tables and statements.

Each segment is a table, so trimming it means dropping a table: nothing has to be vacuumed, and a session that reads an
old segment (a backup, say) only delays the removal of that segment.  All objects are in one schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from psycopg import errors, sql
from psycopg.pq import Format

from store.errors import DatabaseUnfit
from store.log import Place
from store.replicated.database import Chunk, Head, Lease, Row
from store.replicated.server import Connection, PostgresSettings, Server, error_text
from store.replicated.standbys import Standbys
from store.segment import SEGMENT_HEADER_BYTES, decode_header

#: The layout of the tables and of the journal in them: 2 has segments of format version 2.  An owner raises it with its
#: claim, so that older software does not start on what it cannot read.
FORMAT: Final = 2

#: How long the removal of a segment waits for sessions that read it, in ms, before it is postponed.
_TRIM_WAIT_MS: Final = 200

#: The prepared statement of `append`, and the formats of its values: numbers as text, the entries as binary.
_APPEND: Final = b"append"
_APPEND_FORMATS: Final = [*[Format.TEXT] * 5, Format.BINARY]

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

#: Makes the table of a segment.
_BEGIN_SEGMENT: Final = (
    "CREATE TABLE {log} (at bigint PRIMARY KEY, epoch bigint NOT NULL, entries bigint NOT NULL, data bytea NOT NULL);"
    " ALTER TABLE {log} ALTER COLUMN data SET STORAGE EXTERNAL;"
    " INSERT INTO {schema}.segments VALUES ({segment});"
)

#: A change of the head by the owner of an epoch: its commit waits for the standby, even if nothing else is to be done.
_OWNED: Final = "UPDATE {schema}.head SET confirmations = confirmations + 1 WHERE epoch = "

#: What `_head` reads.
_HEAD: Final = "epoch, segment, at, replicated_segment, replicated_at, broker_id, entries"


class _OnServer:
    """Queries common to `Postgres` and `PostgresLease`, over one connection."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.interrupt = server.interrupt
        self.close = server.close

    def lease(self) -> Lease:
        query = (
            "SELECT owner, epoch, greatest(extract(epoch FROM until - clock_timestamp()) * 1000, -1e9),"
            " replicated_segment, replicated_at FROM {schema}.lease"
        )
        [(owner, epoch, left, segment, at)] = self._server.rows(query)
        return Lease(owner, epoch, int(left), Place(segment, at))


class Postgres(_OnServer):
    """The database of a log, in PostgreSQL."""

    def __init__(self, settings: PostgresSettings) -> None:
        super().__init__(Server(settings))
        self._prepared: tuple[Connection, int] | None = None  # the connection with `_APPEND`, and the segment of that

    @property
    def standbys(self) -> Standbys:
        """The standby servers that the last change has waited for."""
        return self._server.standbys

    def check(self) -> None:
        """Check the server, and make missing tables.  Raises DatabaseUnfit, Unavailable, Doubtful, LogFailed."""
        with self._server.connected() as connection:
            unfit = self._server.unfit(connection)
            if unfit is not None:
                raise DatabaseUnfit(unfit.why)
            schema = self._server.settings.schema
            try:
                self._make_tables(connection)
                found = self._server.one(connection, "SELECT format FROM {schema}.head")
            except errors.InsufficientPrivilege as error:
                raise DatabaseUnfit(
                    f"PostgreSQL: {error_text(error)}: all objects in schema {schema} must belong to the user of the"
                    " dsn; if the schema is missing, have an administrator run"
                    f" CREATE SCHEMA {schema} AUTHORIZATION {connection.info.user}"
                ) from error
            if not 1 <= found[0] <= FORMAT:
                raise DatabaseUnfit(
                    f"the tables in schema {schema} have format {found[0]}, this software knows 1 to {FORMAT}"
                )
        self._server.fit = True

    def _make_tables(self, connection: Connection) -> None:
        """Make them under a lock: two brokers may start at once, and IF NOT EXISTS checks rights even if all exist."""
        schema = self._server.settings.schema
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"bartleby {schema}",))
            known = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone()
            if known is None:
                connection.execute(self._server.query("CREATE SCHEMA {schema}"))
            known = connection.execute(
                "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'lease'", (schema,)
            ).fetchone()
            if known is None:
                connection.execute(self._server.query(_TABLES, format=sql.Literal(FORMAT)))

    # -- the log ---------------------------------------------------------------------------------------------------

    def head(self) -> Head:
        [row] = self._server.rows(f"SELECT {_HEAD} FROM {{schema}}.head")
        return _head(row)

    def claim(self, owner: str) -> Head | None:
        query = self._server.query(
            "UPDATE {schema}.head SET format = {format}, epoch = epoch + 1, replicated_segment = segment,"
            " replicated_at = at WHERE format <= {format} AND EXISTS"
            " (SELECT 1 FROM {schema}.lease WHERE owner = %s AND until > clock_timestamp()) RETURNING"
            f" {_HEAD}",
            format=sql.Literal(FORMAT),
        )
        row = self._server.change(query, owner)
        return None if row is None else _head(row)

    def publish(self, epoch: int, rows: Iterable[Row], bodies: Iterable[Chunk]) -> bool:
        """One transaction, which locks the head first, and moves it last."""
        query, server = self._server.query, self._server
        with server.transaction() as connection:
            if not connection.execute(query(f"{_OWNED}%s AND segment = 0 AND at = 0"), [epoch]).rowcount:
                return False
            broker_id, row = b"", None
            for row in rows:
                segment, at = row.place
                log = self._log(segment)
                if at == 0:
                    connection.execute(query(_BEGIN_SEGMENT, log=log, segment=sql.Literal(segment)))
                    broker_id = decode_header(row.data).broker_id
                insert = query("INSERT INTO {log} (at, epoch, entries, data) VALUES (%s, %s, %s, %b)", log=log)
                connection.execute(insert, [at, epoch, row.entries, row.data])
            for id, number, data, nbytes in bodies:
                connection.execute(query("INSERT INTO {schema}.chunks VALUES (%s, %s, %b)"), [id, number, data])
                if nbytes >= 0:
                    connection.execute(query("INSERT INTO {schema}.bodies VALUES (%s, %s)"), [id, nbytes])
            assert row is not None, "what is published is not empty"
            connection.execute(
                query("UPDATE {schema}.head SET segment = %s, at = %s, broker_id = %s, entries = %s"),
                [*row.end, broker_id, row.entries],
            )
        return True

    def append(self, epoch: int, end: Place, data: bytes | bytearray, entries: int) -> bool:
        segment, at = end
        values = [b"%d" % value for value in (at + len(data), entries, epoch, segment, at)]
        with self._server.connected() as connection:
            self._prepare_append(connection, segment)
        return self._server.change_at_once(_APPEND, [*values, data], _APPEND_FORMATS)

    def _prepare_append(self, connection: Connection, segment: int) -> None:
        """Prepare `_APPEND` for a segment.  A connection has it for one segment only, not the plans of all."""
        if self._prepared == (connection, segment):
            return
        again = self._prepared is not None and self._prepared[0] is connection
        self._prepared = None
        query = self._server.query(
            "WITH moved AS (UPDATE {schema}.head SET at = $1::bigint, replicated_segment = segment, replicated_at = at,"
            " entries = entries + $2::bigint WHERE epoch = $3::bigint AND segment = $4::bigint AND at = $5::bigint"
            " RETURNING entries)"
            " INSERT INTO {log} (at, epoch, data, entries)"
            " SELECT $5::bigint, $3::bigint, $6::bytea, entries FROM moved",
            log=self._log(segment),
        )
        self._server.prepare(connection, _APPEND, query.as_bytes(connection), again=again)
        self._prepared = connection, segment

    def begin(self, epoch: int, end: Place, segment: int, header: bytes) -> bool:
        """Send all statements in one message: a writer that stops in the middle leaves no transaction open."""
        query = self._server.query(
            "DO $$ BEGIN"
            " UPDATE {schema}.head SET segment = {segment}, at = {bytes}, replicated_segment = segment,"
            " replicated_at = at, broker_id = {broker_id} WHERE epoch = {epoch} AND segment = {last} AND at = {at};"
            f" IF NOT FOUND THEN RAISE no_data_found; END IF; {_BEGIN_SEGMENT}"
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
        return self._server.run(query)

    def confirm(self, epoch: int, end: Place) -> bool:
        query = self._server.query(
            "UPDATE {schema}.head SET confirmations = confirmations + 1, replicated_segment = segment,"
            " replicated_at = at WHERE epoch = %s AND segment = %s AND at = %s RETURNING 1"
        )
        return self._server.change(query, epoch, *end) is not None

    def trim(self, epoch: int, segments: Sequence[int]) -> bool:
        """Its change locks the head, so that no epoch begins meanwhile."""
        if not segments:
            return True
        query = self._server.query(
            "DO $$ BEGIN SET LOCAL lock_timeout = {wait};"
            f" {_OWNED}{{epoch}};"
            " IF NOT FOUND THEN RAISE no_data_found; END IF;"
            " DROP TABLE IF EXISTS {logs};"
            " DELETE FROM {schema}.segments WHERE segment = ANY({segments});"
            " END $$",
            wait=sql.Literal(_TRIM_WAIT_MS),
            epoch=sql.Literal(epoch),
            logs=sql.SQL(", ").join(map(self._log, segments)),
            segments=sql.Literal([*segments]),
        )
        return self._server.run(query)

    def _log(self, segment: int) -> sql.Identifier:
        return sql.Identifier(self._server.settings.schema, f"log_{segment:010d}")

    def segments(self) -> list[int]:
        return [row[0] for row in self._server.rows("SELECT segment FROM {schema}.segments ORDER BY segment")]

    def rows(self, start: Place, nbytes: int) -> list[Row]:
        query = self._server.query(
            "SELECT at, data, entries FROM {log} WHERE at >= (SELECT max(at) FROM {log} WHERE at <= %s) AND at < %s"
            " AND at + length(data) > %s ORDER BY at",
            log=self._log(start.segment),
        )
        with self._server.connected() as connection:
            try:
                found = connection.execute(
                    query, (start.offset, start.offset + max(nbytes, 1), start.offset), binary=True
                ).fetchall()
            except errors.UndefinedTable:
                return []
            return [Row(Place(start.segment, at), bytes(data), entries) for at, data, entries in found]

    # -- bodies ----------------------------------------------------------------------------------------------------

    def bodies(self) -> dict[int, int]:
        return dict(self._server.rows("SELECT id, nbytes FROM {schema}.bodies"))

    def read_body(self, id: int) -> Iterator[bytes]:
        query, number = "SELECT data FROM {schema}.chunks WHERE id = %s AND chunk = %s", 0
        while rows := self._server.rows(query, id, number):
            yield bytes(rows[0][0])
            number += 1

    def put_body(self, epoch: int, id: int, chunk: int, data: bytes, *, nbytes: int) -> bool:
        query = self._server.query(
            f"WITH owned AS ({_OWNED}%s RETURNING 1),"
            " whole AS (INSERT INTO {schema}.bodies SELECT %s, %s FROM owned WHERE %s >= 0 ON CONFLICT DO NOTHING),"
            " put AS (INSERT INTO {schema}.chunks SELECT %s, %s, %b FROM owned ON CONFLICT DO NOTHING)"
            " SELECT 1 FROM owned"
        )
        return self._server.change(query, epoch, id, nbytes, nbytes, id, chunk, data) is not None

    def drop_bodies(self, epoch: int, ids: Sequence[int]) -> bool:
        query = self._server.query(
            f"WITH owned AS ({_OWNED}%s RETURNING 1),"
            " whole AS (DELETE FROM {schema}.bodies WHERE id = ANY(%s) AND EXISTS (SELECT 1 FROM owned)),"
            " chunk AS (DELETE FROM {schema}.chunks WHERE id = ANY(%s) AND EXISTS (SELECT 1 FROM owned))"
            " SELECT 1 FROM owned"
        )
        return self._server.change(query, epoch, [*ids], [*ids]) is not None


class PostgresLease(_OnServer):
    """The lease, in PostgreSQL.  It need not be replicated: no change waits for a standby."""

    def __init__(self, settings: PostgresSettings) -> None:
        super().__init__(Server(settings, lease_only=True))

    def take_lease(self, owner: str, ms: int) -> bool:
        query = self._server.query(
            "UPDATE {schema}.lease SET owner = %s, until = clock_timestamp() + %s * interval '1 ms'"
            " WHERE until < clock_timestamp() OR owner = %s RETURNING 1"
        )
        return self._server.change(query, owner, ms, owner) is not None

    def renew_lease(self, owner: str, epoch: int, ms: int, replicated: Place) -> bool:
        query = self._server.query(
            "UPDATE {schema}.lease SET epoch = %s, until = clock_timestamp() + %s * interval '1 ms',"
            " replicated_segment = %s, replicated_at = %s WHERE owner = %s AND epoch <= %s RETURNING 1"
        )
        return self._server.change(query, epoch, ms, *replicated, owner, epoch) is not None

    def give_up_lease(self, owner: str) -> None:
        query = "UPDATE {schema}.lease SET owner = '', until = 'epoch' WHERE owner = %s RETURNING 1"
        self._server.change(self._server.query(query), owner)


def _head(row: Sequence[Any]) -> Head:
    epoch, segment, at, replicated_segment, replicated_at, broker_id, entries = row[:7]
    return Head(epoch, Place(segment, at), Place(replicated_segment, replicated_at), bytes(broker_id), entries)
