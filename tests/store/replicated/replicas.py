"""Brokers that share a log in a database, each a journal over its copy on a simulated disk of its own."""

from __future__ import annotations

from typing import Protocol

from store import decode, record
from store.bodies import BodyStore
from store.journal import Journal, JournalLimits
from store.log import FileLog, LogSettings
from store.record import RecordType
from store.replicated.database import Database, Doubtful, Leases, Unavailable
from store.replicated.following import NEW, Copying, Following, UpTo
from store.replicated.log import ReplicatedLog
from store.replicated.owner import LogOwner
from store.writer import InlineWriter
from tests.store.workload import BROKER_ID, DIRECTORY, EPOCH, Body
from tests.support.sim_files import SimFiles

LEASE_MS = 5_000

#: How often a change is tried before the lease counts as over.
TRIES = 20


class Shared(Protocol):
    """The database, simulated or real."""

    def connect(self) -> Database:
        """A connection of one thread."""

    def leases(self) -> Leases:
        """Another one, for the lease."""

    def pass_time(self, ms: int) -> None:
        """So much later, as far as the lease goes."""

    def wait(self) -> None:
        """Before something is tried again."""


class Replica:
    """One broker, as far as its journal goes.  `found`: the ids of the messages that its recovery read, in order.

    A change is tried `tries` times; `segment_bytes`: of a whole segment.
    """

    def __init__(
        self,
        shared: Shared,
        name: str,
        files: SimFiles | None = None,
        *,
        tries: int = TRIES,
        segment_bytes: int = 4096,
    ) -> None:
        self.shared = shared
        self.name = name
        self.files = files or SimFiles()
        self.database = shared.connect()
        self.leases = shared.leases()
        self.troubles: list[str] = []
        self.tries = 0
        self._segment_bytes = segment_bytes
        self.announced: list[int] = []
        self.failures: list[Exception] = []
        self.sent: dict[int, list[int]] = {}  # ids by the ticket that covers them
        owner = LogOwner(
            self.database,
            monotonic=lambda: 0.0,
            wait=self._wait,
            over=lambda: self.tries > tries,
            on_trouble=self.troubles.append,
        )
        self.log = ReplicatedLog(owner, self._copy, now=lambda: EPOCH, monotonic=lambda: 0.0)
        self.log.open()
        self.copying = Copying(self.files, self.log.copy, self.database)

    def _copy(self, bodies: BodyStore) -> FileLog:
        settings = LogSettings(segment_bytes=self._segment_bytes)
        return FileLog(self.files, DIRECTORY, settings, now=lambda: EPOCH, synced=False, elsewhere=bodies)

    def _wait(self) -> None:
        self.tries += 1
        self.shared.wait()

    def compare(self) -> None:
        """Compare the copy with the database, as at a start."""
        self.copying.compare()
        if self.copying.end != NEW:
            self.log.copy.mark_as_copy(self.name)

    def take_over(self) -> None:
        """Own the log: the lease is free, or over."""
        while True:
            self.shared.pass_time(LEASE_MS + 1)
            try:
                assert self.leases.take_lease(self.name, LEASE_MS)
                head = self.database.claim(self.name)
            except (Doubtful, Unavailable):
                continue
            assert head is not None
            break
        self.log.owner.own(head)
        if head.end == NEW:
            self.log.publish()
            self.copying.end = self.log.replicated
        self.log.copy.mark_as_copy(self.name)
        self.copying.fetch(self.log.replicated)
        self.copying.tidy()
        assert self.copying.end == self.log.replicated
        self.start()

    def start(self) -> None:
        """Recover the journal, and go on with it."""
        self.tries = 0
        self.writer = InlineWriter(self.log, self._durable, self.failures.append)
        self.journal = Journal(
            self.log,
            self.writer,
            now=lambda: EPOCH,
            new_broker_id=lambda: BROKER_ID,
            limits=JournalLimits(slack_bytes=512, reserve_bytes=512),
        )
        self.journal.recover(Following(UpTo(self.files, DIRECTORY, lambda: self.copying.end), lambda: False))
        self.found: list[int] = []
        for segment, _, _, type, buffer, offset in self.journal.replay():
            if type == RecordType.MESSAGE:
                self.journal.space.hold(segment, 1)
                self.found.append(decode.decode_message(buffer, offset).id)
        self.journal.start()
        self.step()

    def _durable(self, ticket: int) -> None:
        self.announced.append(ticket)
        self.journal.on_durable(ticket)

    def send(self, n: int = 1, size: int = 100, *, gone: bool = False) -> list[int]:
        """Add messages and hand them to the writer; their ids.  `gone`: they leave every queue at once."""
        self.journal.reserve(n * (size + 100))
        first = self.journal.allocate_ids(n)
        run = [Body(first + i, b"", b"x" * size) for i in range(n)]
        self.journal.add_messages(record.message_header(timestamp=1), 0, run)
        if gone:
            self.journal.refer(self.journal.segment, released=n)
        ids = [*range(first, first + n)]
        self.sent.setdefault(self.journal.commit(), []).extend(ids)
        return ids

    def step(self) -> None:
        """Let the writer do what it has been given."""
        self.tries = 0
        self.writer.step()

    def confirmed(self) -> list[int]:
        """The ids of all messages that were announced."""
        highest = max(self.announced, default=0)
        return [id for ticket, ids in self.sent.items() if ticket <= highest for id in ids]

    def end(self) -> SimFiles:
        """The process is gone; its disk stays."""
        self.log.close()
        self.leases.close()
        return self.files
