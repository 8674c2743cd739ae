"""The indexes of message ids are kept beside the running broker, by a thread that mostly rests.

A thread that computes holds up the event loop.  This one works for about a millisecond and then rests for nine, so that
it costs a tenth of a processor while a segment is indexed (64 MiB in 2 s), and nobody waits for it.  While the broker
has much to do it rests ten times as long, which costs a hundredth: segments then wait for their index.
"""

from __future__ import annotations

import asyncio
from typing import Final

from broker import clock
from broker.engine.model.report import Report
from store.files import Files
from store.indexing import Indexer

#: How often it looks for segments that are complete, in seconds; until then a search reads them whole.
PERIOD_SECONDS: Final = 5.0

#: How long it rests after some work; and up to so many times while the process uses half a processor or more.
REST_SECONDS: Final = 0.009
RESTS_MAX: Final = 10
BUSY: Final = 0.5


class _Stopped(Exception):
    pass


class Indexing:
    """Keeps the indexes of a journal's directory until it is stopped."""

    def __init__(self, files: Files, directory: str, report: Report) -> None:
        self._indexer = Indexer(files, directory, self._rest)
        self._report = report
        self._stopped = False
        self._failed = ""

    def _rest(self) -> None:
        """Called by the thread."""
        for _ in range(RESTS_MAX):
            before = clock.cpu_seconds()
            clock.rest(REST_SECONDS)
            if self._stopped:
                raise _Stopped
            if clock.cpu_seconds() - before < BUSY * REST_SECONDS:
                break

    async def run(self) -> None:
        """Never returns; a disk that fails is reported once, and tried again."""
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
        """Its thread ends within a few milliseconds."""
        self._stopped = True
