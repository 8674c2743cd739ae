"""What the event loop does for a broker, with a real journal and its thread."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from dataclasses import replace
from pathlib import Path

from broker.config import Config
from broker.daemon.tick_driver import TickDriver
from broker.daemon.wiring import assemble, recover, this_machine
from broker.engine.queues.steps import BUDGET, LongWork
from store import record
from store.files import Files, OsFile, OsFiles
from store.record import RemovalReason
from store.writer import WriterThread
from tests.support.process import PATIENCE_S

#: The smallest segments that can be configured.
SEGMENT_BYTES = 4 << 20


class PausedFile(OsFile):
    """A file that is allocated once that is allowed."""

    def __init__(self, fd: int, allowed: threading.Semaphore) -> None:
        super().__init__(fd)
        self.allowed = allowed

    def allocate(self, nbytes: int) -> None:
        assert self.allowed.acquire(timeout=10)
        super().allocate(nbytes)


class PausedFiles(OsFiles):
    """A disk that allocates one file, and further ones once they are allowed."""

    def __init__(self) -> None:
        self.allowed = threading.Semaphore(1)

    def create(self, path: str) -> PausedFile:
        return PausedFile(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC), self.allowed)


class Life:
    """A broker without acceptors, and its driver."""

    def __init__(self, directory: Path, files: Files | None = None, pending_max: int = 1000) -> None:
        journal = {"segment-size": SEGMENT_BYTES}
        config = Config.model_validate({"broker": {"data-directory": str(directory)}, "journal": journal})
        outside = this_machine(lambda code, /, **fields: self.events.append(code))
        if files is not None:
            outside = replace(outside, files=files)
        self.events: list[str] = []
        self.congested: list[bool] = []
        self.failures: list[Exception] = []
        self.driver = TickDriver(outside.report, pending_max, self.failures.append)
        self.driver.set_congested = self.congested.append
        self.broker = assemble(config, outside, self.driver.make_writer, self.driver.wake)
        self.driver.drive(self.broker)
        self.broker.log.open()
        assert isinstance(self.broker.writer, WriterThread)
        self.broker.writer.start()
        recover(self.broker, config)

    async def end(self) -> None:
        """Close the journal, and let the event loop make the calls that it has been asked for."""
        self.broker.journal.close()
        await asyncio.sleep(0)
        self.driver.stop()
        await asyncio.sleep(0)


def test_nothing_of_a_life_is_left_behind_it(tmp_path: Path) -> None:
    """The next one stands by for days, and the memory of what it had read is gone."""

    async def live() -> weakref.ref[TickDriver]:
        life = Life(tmp_path)
        life.broker.tick.enter()
        await life.driver.drain()
        await life.end()
        return weakref.ref(life.driver)

    async def main() -> None:
        left = await live()
        gc.collect()
        assert left() is None

    asyncio.run(main())


def test_it_says_whether_ticks_end(tmp_path: Path) -> None:
    async def main() -> None:
        life = Life(tmp_path)
        await life.driver.drain()
        assert life.driver.is_alive()
        assert not life.driver.is_alive(), "none has ended since"
        await asyncio.sleep(0)
        assert life.driver.is_alive()
        await life.end()

    asyncio.run(main())


def test_clients_wait_while_the_database_is_silent(tmp_path: Path) -> None:
    async def main() -> None:
        life = Life(tmp_path)
        for stalled in (True, True, False):
            life.driver.stall(stalled)
        assert life.congested == [True, False]
        assert life.events[-2:] == ["replication.stalled", "replication.resumed"]
        await life.end()

    asyncio.run(main())


def test_a_clean_stop_completes_what_goes_on_in_steps(tmp_path: Path) -> None:
    """What a connection held that ends at the stop comes back marked as redelivered."""

    async def main() -> None:
        life = Life(tmp_path)
        await life.driver.drain()
        done: list[int] = []

        def work() -> LongWork:
            for number in range(5):
                done.append(number)
                yield BUDGET

        life.broker.tick.enter()
        life.broker.engine.ticks.begin_work("work", work(), None)
        assert done == [0]
        await life.driver.complete()
        assert done == [*range(5)]
        await life.end()

    asyncio.run(main())


def test_the_loop_goes_on_while_a_segment_is_allocated_and_clients_wait_for_it(tmp_path: Path) -> None:
    """The disk is paused after it has written everything: only the next segment is missing."""

    async def main() -> None:
        files = PausedFiles()
        life = Life(tmp_path, files, pending_max=64 << 20)
        broker, journal = life.broker, life.broker.journal
        goes_on = asyncio.Event()

        def congest(congested: bool) -> None:
            life.congested.append(congested)
            if not congested:
                goes_on.set()

        life.driver.set_congested = congest
        while not life.congested:
            assert journal.end < 2 * SEGMENT_BYTES
            broker.tick.enter()
            for _ in range(16):
                journal.reserve(1 << 16)
                journal.add(record.removed(1, RemovalReason.CONSUMED, range(1, 1 << 12)))
            await asyncio.sleep(0)
        assert (journal.segment, journal.is_ahead, life.congested) == (1, True, [True])
        assert journal.end < SEGMENT_BYTES, "what is for removals is left"
        files.allowed.release(9)
        await asyncio.wait_for(goes_on.wait(), PATIENCE_S)
        assert (life.congested, journal.is_ahead) == ([True, False], False)
        await life.end()

    asyncio.run(main())
