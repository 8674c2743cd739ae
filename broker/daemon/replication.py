"""A journal in PostgreSQL: the extra parts of a broker in a pair, as standby and as owner of the log.

start -> standby -> owner -> (fenced, cut off, or told to hand over) -> standby ...
             \\-> the start fails: the database is unfit, the copy belongs to another log or is ahead
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from broker.config import Config
from broker.config.sections import PostgresqlSection
from broker.daemon.lease import LeaseKeeper
from broker.daemon.standby import UNASKED, Owned, Standby
from broker.daemon.wiring import Broker, Environment, file_log
from broker.management.ports import Replicated
from broker.security.checks import problems
from store.bodies import BodyStore
from store.errors import DatabaseUnfit, LogFailed
from store.log import FileLog
from store.replicated.log import ReplicatedLog
from store.replicated.owner import LogOwner
from store.replicated.postgresql import Postgres, PostgresLease
from store.replicated.server import PostgresSettings, check_dsn

#: How long a writer waits before it tries again, in seconds.
RETRY_SECONDS: Final = 0.1


def postgres_settings(section: PostgresqlSection) -> PostgresSettings:
    """Return the connection settings.  Raises DatabaseUnfit if the dsn cannot be read."""
    try:
        dsn = section.dsn if section.dsn_file is None else section.dsn_file.read_text("utf-8").strip()
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise DatabaseUnfit(f"{section.dsn_file} cannot be read: {why}") from error
    check_dsn(dsn)
    return PostgresSettings(
        dsn,
        schema=section.schema_name,
        connect_timeout=section.connect_timeout,
        silence=section.lease,
        synchronous_commit=section.synchronous_commit,
        single_copy=section.single_copy,
    )


class Replication:
    """The replication of one life of a broker in a pair: from standing by until it releases the log.

    `patience`: how long it does not compete for the log at first, in ms.  Raises DatabaseUnfit.
    """

    def __init__(self, config: Config, outside: Environment, *, patience: int = 0) -> None:
        self._config = config
        self._section = section = config.journal.postgresql
        self._outside = outside
        self._patience = patience
        self._settings = postgres_settings(section)
        self._ending = threading.Event()
        self._lease: LeaseKeeper | None = None
        self._standby: Standby | None = None
        self.stands_by = True
        self._database = Postgres(self._settings)
        self._leases = PostgresLease(self._settings)

        def make_copy(bodies: BodyStore) -> FileLog:
            return file_log(config, outside, elsewhere=bodies)

        owner = LogOwner(
            self._database,
            monotonic=outside.monotonic,
            wait=self._wait,
            over=lambda: self._ending.is_set() or self.over,
            on_trouble=self._report,
        )
        self.log = ReplicatedLog(owner, make_copy, now=outside.wall_ms, monotonic=outside.monotonic)

    def _wait(self) -> None:
        self._ending.wait(RETRY_SECONDS)

    def _report(self, trouble: str) -> None:
        self._outside.report("replication.trouble", error=trouble)

    async def stand_by(
        self, make_broker: Callable[[], Broker], stop: asyncio.Event, taken: Callable[[], Sequence[str]]
    ) -> Owned | None:
        """Return when this broker owns the log, or None when told to stop.  Raises JournalError, as `restore` does.

        `taken`: why it could not listen, asked in a thread.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Owned | Exception] = loop.create_future()

        def announce(result: Owned | Exception) -> None:
            loop.call_soon_threadsafe(ended.set_result, result)

        name = self.log.copy_name() or self._new_name()

        def keep_lease(epoch: int, since: float) -> LeaseKeeper:
            self._lease = LeaseKeeper(
                self._leases,
                name=name,
                epoch=epoch,
                since=since,
                lease=self._section.lease,
                renewal=self._section.renewal,
                replicated=lambda: self.log.replicated,
                monotonic=self._outside.monotonic,
            )
            return self._lease

        self._standby = standby = Standby(
            self.log,
            self._database,
            self._leases,
            self._outside.files,
            name=name,
            lease_ms=self._section.lease,
            patience_s=self._patience / 1000,
            make_broker=make_broker,
            keep_lease=keep_lease,
            check=self._database.check,
            unable=lambda: "; ".join([*self._unusable(), *taken()]),
            ended=announce,
            report=self._outside.report,
            monotonic=self._outside.monotonic,
        )
        standby.start()
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait((ended, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        self.stands_by = False
        result = ended.result() if ended.done() else None
        if not isinstance(result, Owned):
            await asyncio.to_thread(standby.stop)
            await asyncio.to_thread(self.end, give_up=True)
        if isinstance(result, Exception):
            raise result
        if result is not None and not self._database.standbys.visible:
            self._outside.report("replication.privilege_missing")
        return result

    def _unusable(self) -> list[str]:
        """Which files that its configuration names this broker could not use if it served."""
        return [f"{each.key}: {each.value} {each.fix}" for each in problems(self._config, "")]

    def replicated(self) -> Replicated:
        """This broker's role, and its progress while it stands by."""
        if not self.stands_by:
            owner = self.log.owner
            return Replicated("owner", owner.epoch, trouble=owner.trouble, confirmed_by=self._confirmed_by())
        return UNASKED if self._standby is None else self._standby.state

    def _confirmed_by(self) -> str:
        if self._section.single_copy:
            return "the primary alone (single-copy)"
        standbys = self._database.standbys
        if not standbys.visible:
            return "a standby that cannot be shown: GRANT pg_read_all_stats TO the user of the dsn"
        return ", ".join(standbys.confirming)

    @property
    def over(self) -> bool:
        """Whether another broker may own the log."""
        return self._lease is not None and self._lease.over

    @property
    def stalled(self) -> bool:
        """Whether the database has not answered for so long that producers have to wait."""
        since = self.log.owner.waiting_since
        return since is not None and (self._outside.monotonic() - since) * 1000 > self._section.stall_timeout

    def interrupt(self) -> None:
        """Stop retrying, and interrupt calls that wait for the database."""
        self._ending.set()
        self._database.interrupt()

    def rename(self) -> None:
        """Give this broker another name for its next life, after another broker has taken its lease.

        That may have the same name, as its data directory is a copy of this one's.  The two would take the lease from
        each other for ever, each as its own.
        """
        with suppress(LogFailed):  # the disk has failed: the name stays
            if self.log.copy_name():
                self.log.copy.mark_as_copy(self._new_name())

    def _new_name(self) -> str:
        return f"{self._outside.random.getrandbits(128):032x}"

    async def let_go(self, broker: Broker, *, give_up: bool) -> None:
        """Release the log: another broker can own it (at once if `give_up`), or this process in its next life."""
        if not give_up:  # the writer's thread may wait for the database
            self.interrupt()
        await asyncio.to_thread(broker.writer.close)
        await asyncio.to_thread(self.end, give_up=give_up)
        broker.log.close()

    def end(self, *, give_up: bool) -> None:
        """Release the lease; another broker can take it at once if `give_up`."""
        self._ending.set()
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.end(give_up=give_up)
        self._leases.close()
