"""A standby: it copies the owner's log and reads the copy, until it owns the log itself.

    copying thread    compare the copy -> follow -> ... -> take the lease -> claim an epoch -> copy the rest -> owned
    reading thread    recover what is copied -> read new entries -> ... -> (owned) finish

So little is left to read when the owner is gone.  The threads share nothing else with the event loop, which asks for
`state` and is called back at the end.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from broker.daemon.lease import LeaseKeeper
from broker.daemon.memory import collect_and_exempt
from broker.daemon.wiring import Broker, restore
from broker.engine import Restored
from broker.engine.model.report import Report
from broker.management.ports import Replicated
from store.errors import Corrupt, LogFailed
from store.files import Files
from store.log import Place
from store.recovery import Verdict
from store.replicated.database import Database, Doubtful, Leases, Unavailable
from store.replicated.following import NEW, Copying, Following, UpTo
from store.replicated.log import ReplicatedLog

#: How often the database is asked for more, in seconds: a small part of the shortest lease.
POLL_SECONDS: Final = 0.2

#: How often newly copied entries are read, in seconds: each time the newest segment is read from its start.
READ_SECONDS: Final = 1.0

#: How often to look for segments and bodies that the log no longer needs, in seconds.
TIDY_SECONDS: Final = 2.0

#: After reading this many bytes plus twice the journal's size, the standby starts reading anew: what it remembers of
#: messages that are gone must not grow for ever.
READ_BYTES_MIN: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Owned:
    """The result of a standby that owns the log: the lease, which is being renewed, and the restored broker."""

    lease: LeaseKeeper
    broker: Broker
    verdict: Verdict
    restored: Restored


#: The state before the first query.
UNASKED: Final = Replicated("standby", 0, trouble="the database has not been asked yet")


class _Again(Exception):
    """Everything has to be read anew."""


class _Stopped(Exception):
    """The standby is stopping."""


class Standby:
    """One standby.  `patience_s`: how long it does not compete for the log at first.

    `make_broker` makes the parts that the journal is read into.  `keep_lease` starts renewing the lease: its arguments
    are the epoch and when the lease was taken.  `ended` is called once, in one of the threads, with the result or the
    error.  `check` checks that the database is fit, `unable` says why this broker could not serve (empty: it could).
    """

    def __init__(
        self,
        log: ReplicatedLog,
        database: Database,
        leases: Leases,
        files: Files,
        *,
        name: str,
        lease_ms: int,
        patience_s: float,
        make_broker: Callable[[], Broker],
        keep_lease: Callable[[int, float], LeaseKeeper],
        check: Callable[[], None],
        unable: Callable[[], str],
        ended: Callable[[Owned | Exception], None],
        report: Report,
        monotonic: Callable[[], float],
    ) -> None:
        self._log = log
        self._database = database
        self._leases = leases
        self._files = files
        self._name = name
        self._lease_ms = lease_ms
        self._make_broker = make_broker
        self._keep_lease = keep_lease
        self._check = check
        self._unable = unable
        self._disabled = ""  # why this broker could not serve, when last asked
        self._ended = ended
        self._report = report
        self._monotonic = monotonic
        self._copying = Copying(files, log.copy, database)
        self._patient_until = monotonic() + patience_s
        self._changed = threading.Condition()
        self._stopping = False
        self._comparing = True
        self._reads = False  # the reader has read what was copied when it began
        self._complete = False  # this broker owns the log and has all of it
        self._lease: LeaseKeeper | None = None
        self._read_to = Place(0, 0)
        self._read_at = 0.0
        self._copied_before = self._bytes_before = 0
        self._trouble = UNASKED.trouble
        self._equal = monotonic()  # when the copy was last complete, and this broker could serve
        self._threads = [
            threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
            for name, work in (("journal-copying", self._copy), ("journal-reading", self._read))
        ]

    def start(self) -> None:
        """Start both threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop standing by; returns when both threads have ended."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for database in (self._database, self._leases):
            database.interrupt()
        for thread in self._threads:
            thread.join()

    @property
    def state(self) -> Replicated:
        """The current progress."""
        copying = self._copying
        head = copying.known
        lag = max(0, head.entries - copying.entries) if head is not None else 0
        trouble = self._trouble or self._disabled
        seconds = self._monotonic() - self._equal if lag or trouble else 0.0
        return Replicated("standby", head.epoch if head is not None else 0, lag, seconds, trouble, self._starting)

    @property
    def _starting(self) -> str:
        if self._comparing:
            return "comparing its copy with the journal in the database"
        return "" if self._prepared else "reading its copy of the journal"

    @property
    def _prepared(self) -> bool:
        """Whether it can serve soon after a claim: it has read the journal once, or there is nothing to read.

        Until then it leaves the log to a broker that is further, or that can read it.
        """
        head = self._copying.known
        return self._reads or (head is not None and head.end == NEW)

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            with self._changed:
                first, self._stopping = not self._stopping, True
                self._changed.notify_all()
            if first:
                self._ended(error)

    # -- copying ---------------------------------------------------------------------------------------------------

    def _copy(self) -> None:
        self._try_until_done(self._compare)
        with self._changed:
            self._comparing = False
            self._changed.notify_all()
        self._ask_if_able()
        tidied = self._monotonic()
        while not self._stopping:
            try:
                self._copying.follow()
                self._look()
                if self._monotonic() - tidied > TIDY_SECONDS:
                    tidied = self._monotonic()
                    self._ask_if_able()
                    self._copying.tidy()
                # Only a claim can make an inconsistent copy whole: its end counts as replicated.
                if (self._prepared or not self._copying.consistent) and self._may_own():
                    self._take_over()
                    return
            except (Doubtful, Unavailable) as trouble:
                self._report_trouble(str(trouble))
            self._pause()

    def _ask_if_able(self) -> None:
        """Note whether this broker could serve; one that could not leaves the log to another one."""
        before, self._disabled = self._disabled, self._unable()
        if self._disabled and self._disabled != before:
            self._report("replication.disabled", error=self._disabled)

    def _compare(self) -> None:
        self._check()
        self._copying.compare()
        if self._copying.end != NEW:
            self._log.copy.mark_as_copy(self._name)

    def _try_until_done(self, work: Callable[[], None]) -> None:
        while not self._stopping:
            try:
                work()
            except (Doubtful, Unavailable) as trouble:
                self._report_trouble(str(trouble))
                self._pause()
            else:
                self._report_trouble("")
                return

    def _report_trouble(self, trouble: str) -> None:
        before, self._trouble = self._trouble, trouble  # first: who reads the log's line may ask for the status
        if trouble and trouble != before:
            self._report("replication.trouble", error=trouble)

    def _look(self) -> None:
        """Note that the copy follows the log, and wake the reader."""
        self._report_trouble("")
        copying = self._copying
        assert copying.known is not None
        if copying.entries == copying.known.entries and not self._disabled:
            self._equal = self._monotonic()
        with self._changed:
            self._changed.notify_all()

    def _pause(self) -> None:
        with self._changed:
            if not self._stopping:
                self._changed.wait(POLL_SECONDS)

    def _may_own(self) -> bool:
        """Take the lease if this broker should, and could serve now."""
        lease = self._leases.lease()
        if lease.left > 0 and lease.owner != self._name:
            self._patient_until = 0.0  # another broker has taken the lease since
            return False
        self._ask_if_able()
        if self._disabled or self._monotonic() < self._patient_until:
            return False
        return self._leases.take_lease(self._name, self._lease_ms)

    def _take_over(self) -> None:
        """Claim a new epoch: everything before its end is replicated, and no other broker can append any more."""
        head, since = None, self._monotonic()
        while head is None and not self._stopping:
            since = self._monotonic()
            try:
                if self._leases.take_lease(self._name, self._lease_ms):
                    head = self._database.claim(self._name)
            except (Doubtful, Unavailable) as trouble:
                self._report_trouble(str(trouble))
            if head is None:
                self._pause()
        if head is None:
            return
        self._lease = self._keep_lease(head.epoch, since)
        self._report("replication.claimed", epoch=head.epoch)
        self._log.owner.own(head)
        if head.end == NEW:
            self._log.publish()
            self._copying.end = self._log.replicated
        self._log.copy.mark_as_copy(self._name)
        self._try_until_done(self._copy_rest)
        if self._copying.end != self._log.replicated and not self._stopping:
            raise LogFailed("the database lacks part of the log that it claims to have: rows are missing")
        with self._changed:
            self._complete = True
            self._changed.notify_all()

    def _copy_rest(self) -> None:
        self._copying.fetch(self._log.replicated)
        self._copying.tidy()

    # -- reading ---------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._readable)
                gaps = self._copying.gaps
            if self._stopping:
                return
            try:
                broker, verdict, restored = self._read_all(gaps)
            except (_Again, FileNotFoundError):  # of a segment that was deleted meanwhile
                continue
            except Corrupt:
                if self._copying.gaps == gaps:
                    raise
                continue
            except _Stopped:
                return
            assert self._lease is not None, "a complete log is owned"
            self._ended(Owned(self._lease, broker, verdict, restored))
            return

    def _readable(self) -> bool:
        return self._stopping or (not self._comparing and self._copying.consistent)

    def _readable_to(self) -> Place:
        """Return the end of the copy.  Called for each segment: reading all takes minutes.  Raises _Stopped."""
        if self._stopping:
            raise _Stopped
        return self._copying.end

    def _read_all(self, gaps: int) -> tuple[Broker, Verdict, Restored]:
        """Read the journal until it is complete and owned.  Raises _Again, _Stopped, and errors of `restore`."""
        gc.unfreeze()  # what was read before is garbage now
        source = UpTo(self._files, self._log.directory, self._readable_to)
        self._reads = False
        self._copying.read_to = NEW
        self._read_to = self._copying.end
        self._read_at = self._monotonic()
        self._copied_before = self._copying.copied
        self._bytes_before = sum(self._files.size(source.path(segment)) for segment in source.segments())
        broker = self._make_broker()
        recovery = Following(source, lambda: self._more(gaps))
        restored = restore(broker, recovery)
        return broker, recovery.verdict, restored

    def _more(self, gaps: int) -> bool:
        """Wait until there is more to read.  Returns False once everything is read.  Raises _Again, _Stopped.

        `gaps`: the copy's count of gaps when reading began.
        """
        self._copying.read_to = self._read_to
        if not self._reads:
            collect_and_exempt()  # before it may claim: afterwards clients would wait for it
        if self._copying.copied - self._copied_before > 2 * self._bytes_before + READ_BYTES_MIN:
            raise _Again
        with self._changed:
            self._reads = True
            self._changed.notify_all()
            while True:
                if self._stopping:
                    raise _Stopped
                if self._copying.gaps != gaps:
                    raise _Again
                if self._complete:
                    gc.disable()  # until the broker runs: objects made now live long
                    return False
                end, now = self._copying.end, self._monotonic()
                if end != self._read_to and now - self._read_at >= READ_SECONDS:
                    self._read_to, self._read_at = end, now
                    return True
                self._changed.wait(READ_SECONDS)
