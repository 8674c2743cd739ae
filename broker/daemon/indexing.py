"""Maintains the indexes of message ids in a thread of the running broker that mostly sleeps.

A thread that computes holds up the event loop.  This one works for about a millisecond and then sleeps for nine.  So it
uses a tenth of a processor while it indexes a segment (64 MiB in 2 s), and clients do not notice.  While the broker is
busy it sleeps ten times as long and uses a hundredth: segments then wait for their index.
"""

from __future__ import annotations

import asyncio
from typing import Final

from broker import clock
from broker.engine.model.report import Report
from store.files import Files
from store.trail.id_index import Indexer

#: How often to look for complete segments, in seconds; a search reads a segment without an index from end to end.
PERIOD_SECONDS: Final = 5.0

#: How long the thread sleeps after some work; and how often in a row while the process uses half a processor or more.
REST_SECONDS: Final = 0.009
RESTS_MAX: Final = 10
BUSY: Final = 0.5


class _Stopped(Exception):
    pass


class Indexing:
    """Maintains the indexes in a journal's directory until it is stopped."""

    def __init__(self, files: Files, directory: str, report: Report) -> None:
        self._indexer = Indexer(files, directory, self._rest)
        self._report = report
        self._stopped = False
        self._failed = ""

    def _rest(self) -> None:
        """Sleep; called in the thread.  Raises _Stopped."""
        for _ in range(RESTS_MAX):
            before = clock.cpu_seconds()
            clock.rest(REST_SECONDS)
            if self._stopped:
                raise _Stopped
            if clock.cpu_seconds() - before < BUSY * REST_SECONDS:
                break

    async def run(self) -> None:
        """Index until stopped; an error of the disk is reported once, and indexing tried again."""
        while True:
            try:
                await asyncio.to_thread(self._indexer.work)
                self._failed = ""
            except _Stopped:
                return
            except OSError as error:
                if str(error) != self._failed:
                    self._failed = str(error)
                    self._report("journal.index_failed", error=self._failed)
            await asyncio.sleep(PERIOD_SECONDS)

    def stop(self) -> None:
        """End the thread within a few milliseconds."""
        self._stopped = True
