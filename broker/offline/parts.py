"""A broker's parts without sockets and threads, for a journal that no running broker uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from broker.config import Config
from broker.daemon.wiring import Broker, assemble, recover, this_machine
from broker.engine import UnknownFormat
from broker.engine.model.errors import EngineError
from broker.engine.model.report import Report
from store.errors import DirectoryLocked, JournalError
from store.log import Log
from store.writer import InlineWriter

#: Ticks after which a command that still has work is considered stuck in a loop.
TICKS_MAX: Final = 1_000_000


class Stopped:
    """The parts of a broker that serves no clients.  `settle` ends the tick and waits for the disk."""

    def __init__(self, config: Config, report: Report) -> None:
        self._failure: Exception | None = None
        self._woken = False
        outside = this_machine(report)
        self.parts: Broker = assemble(config, outside, self._make_writer, self._wake)
        self.parts.log.open()
        recover(self.parts, config, serves=False)
        self.run_ticks()

    def _make_writer(self, log: Log) -> InlineWriter:
        self._writer = InlineWriter(log, self._announce, self._failed)
        return self._writer

    def _announce(self, ticket: int) -> None:
        self.parts.tick.durable(ticket)

    def _failed(self, error: Exception) -> None:
        self._failure = error

    def _wake(self) -> None:
        self._woken = True

    def run_ticks(self) -> None:
        """End the tick; return when everything done so far is on disk.  Raises LogError."""
        for _ in range(TICKS_MAX):
            self._woken = False
            self.parts.tick.end()
            self._writer.step()
            if self._failure is not None:
                raise self._failure
            if not self._woken:
                return
        raise AssertionError("a stopped broker does not come to rest")


class Unusable(Exception):
    """The journal cannot be used; the message says why and what to do."""


@contextmanager
def stopped(config: Config, report: Report) -> Iterator[Stopped]:
    """Open a stopped broker, and close it cleanly unless something fails.  Errors are raised as Unusable."""
    try:
        broker = Stopped(config, report)
        yield broker
        broker.run_ticks()
        broker.parts.journal.close()
    except DirectoryLocked as locked:
        raise Unusable(f"{locked}: stop the broker first") from locked
    except (JournalError, UnknownFormat, EngineError) as error:
        raise Unusable(str(error)) from error


#: Reports the progress of a command: done, and of how many.
Progress = Callable[[int, int], None]
