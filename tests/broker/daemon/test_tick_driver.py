"""What the event loop does for a broker, with a real journal and its thread."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path

from broker.config import Config
from broker.daemon.tick_driver import TickDriver
from broker.daemon.wiring import assemble, recover, this_machine
from broker.engine.queues.steps import BUDGET, LongWork
from store.writer import WriterThread


class Life:
    """A broker without acceptors, and its driver."""

    def __init__(self, directory: Path) -> None:
        config = Config.model_validate({"broker": {"data-directory": str(directory)}})
        outside = this_machine(lambda code, /, **fields: self.events.append(code))
        self.events: list[str] = []
        self.congested: list[bool] = []
        self.failures: list[Exception] = []
        self.driver = TickDriver(outside.report, 1000, self.failures.append)
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
        assert life.driver.lives()
        assert not life.driver.lives(), "none has ended since"
        await asyncio.sleep(0)
        assert life.driver.lives()
        await life.end()

    asyncio.run(main())


def test_clients_wait_while_the_database_is_silent(tmp_path: Path) -> None:
    async def main() -> None:
        life = Life(tmp_path)
        for stalled in (True, True, False):
            life.driver.stall(stalled)
        assert life.congested == [True, False]
        assert life.events[-2:] == ["replication.stalled", "replication.goes_on"]
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
