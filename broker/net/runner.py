"""Runs slow work in threads, and calls for later; both call back within a tick."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from broker.sessions.tick import Tick

#: Threads that hash passwords: each uses a processor and 19 MiB meanwhile.
THREADS: Final = 2

Result = TypeVar("Result")


class LoopRunner:
    """Runs work in threads, and calls back within a tick."""

    threads = THREADS

    def __init__(self, tick: Tick) -> None:
        self._loop = asyncio.get_running_loop()
        self._tick = tick
        self._threads = ThreadPoolExecutor(THREADS, "login")
        self._fetcher = ThreadPoolExecutor(1, "keys")
        self._linker = ThreadPoolExecutor(1, "links")

    def run(self, work: Callable[[], Result], then: Callable[[Result | BaseException], None]) -> None:
        self._run_on(self._threads, work, then)

    def aside(self, work: Callable[[], Result], then: Callable[[Result | BaseException], None]) -> None:
        """As `run`, for work that waits for other servers: it has its own thread, and no login waits for it."""
        self._run_on(self._fetcher, work, then)

    def for_links(self, work: Callable[[], Result], then: Callable[[Result | BaseException], None]) -> None:
        """As `run`, for logins of links: other brokers say how long they take, so clients do not wait for them."""
        self._run_on(self._linker, work, then)

    def _run_on(
        self, threads: ThreadPoolExecutor, work: Callable[[], Result], then: Callable[[Result | BaseException], None]
    ) -> None:
        def done(future: asyncio.Future[Result]) -> None:
            if not future.cancelled():
                self._call(lambda: then(future.exception() or future.result()))

        try:
            self._loop.run_in_executor(threads, work).add_done_callback(done)
        except (RuntimeError, MemoryError) as fault:  # no thread could be started
            self._loop.call_soon(self._call, partial(then, fault))

    def later(self, ms: int, call: Callable[[], None]) -> None:
        self._loop.call_later(ms / 1000, self._call, call)

    def _call(self, call: Callable[[], None]) -> None:
        self._tick.enter()
        try:
            call()
        except BaseException as error:
            self._tick.failed(None, error)

    def close(self) -> None:
        """Stop the threads; pending work never calls back."""
        for threads in (self._threads, self._fetcher, self._linker):
            threads.shutdown(wait=False, cancel_futures=True)
