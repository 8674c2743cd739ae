"""A journal on a simulated disk."""

from __future__ import annotations

from store import decode, record
from store.journal import Journal, JournalLimits
from store.log import FileLog, LogSettings
from store.retention import RetentionSettings
from store.writer import InlineWriter
from tests.store.workload import BROKER_ID, DIRECTORY, EPOCH, Body
from tests.support.sim_files import SimFiles


class Unhurried:
    """A writer that makes no room in haste: as its thread, it does one thing after the other."""

    def __init__(self, writer: InlineWriter) -> None:
        self.error = writer.error
        self.submit = writer.submit
        self.prepare = writer.prepare
        self.wait_ready = writer.wait_ready
        self.close = writer.close

    def hasten(self, segment: int) -> None: ...


class Desk:
    """A journal on a simulated disk; what it announces is noted.  `hastens`: whether that is as fast as anything."""

    def __init__(
        self,
        files: SimFiles | None = None,
        *,
        segment_bytes: int = 4096,
        retention: RetentionSettings | None = None,
        hastens: bool = True,
        **limits: int,
    ) -> None:
        self.files = files or SimFiles()
        self.now = EPOCH
        self.announced: list[int] = []
        self.failures: list[Exception] = []
        settings = LogSettings(segment_bytes=segment_bytes, retention=retention or RetentionSettings())
        self.log = FileLog(self.files, DIRECTORY, settings, now=lambda: self.now)
        self.log.open()
        self.writer = InlineWriter(self.log, self._durable, self.failures.append)
        self.journal = Journal(
            self.log,
            self.writer if hastens else Unhurried(self.writer),
            now=lambda: self.now,
            new_broker_id=lambda: BROKER_ID,
            limits=JournalLimits(**limits),
            about={"version": "1.2"},
        )

    def _durable(self, ticket: int) -> None:
        self.announced.append(ticket)
        self.journal.on_durable(ticket)

    def start(self) -> list[tuple[int, int, int, decode.Record]]:
        """Recover and start; returns (segment, position, type, record) of everything found."""
        self.journal.recover()
        found = []
        for segment, position, _, type, buffer, offset in self.journal.replay():
            found.append((segment, position, type, decode.decode(buffer, offset)))
            self.fold(segment, found[-1][3])
        self.journal.start()
        self.writer.step()
        return found

    def fold(self, segment: int, found: decode.Record) -> None:
        """Note what a record of an earlier run says."""
        if isinstance(found, decode.Message):
            self.journal.space.hold(segment, 1)

    def empty(self) -> bool:
        return self.journal.empty

    def accepting(self) -> bool:
        return self.journal.accepting

    def again(self) -> list[tuple[int, int, int, decode.Record]]:
        """What another journal finds on the same disk."""
        self.log.close()
        return Desk(self.files).start()

    def send(self, size: int, n: int = 1, *, gone: bool = False) -> None:
        first = self.journal.allocate_ids(n)
        run = [Body(first + i, b"", b"x" * size) for i in range(n)]
        self.journal.add_messages(record.message_header(timestamp=1), 0, run)
        if gone:
            self.journal.refer(self.journal.segment, released=n)

    def commit(self) -> int:
        ticket = self.journal.commit()
        self.writer.step()
        return ticket
