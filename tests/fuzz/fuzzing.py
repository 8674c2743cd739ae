"""Feeding a target, and what to watch meanwhile: no crash, no input that takes long, no growth."""

from __future__ import annotations

import ctypes
import gc
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from tests.fuzz.mutation import Mutator
from tests.fuzz.targets import Target

#: Milliseconds of the processor that an input may take.  Not of the clock: others use the machine too.
INPUT_MS_MAX: Final = 100.0

#: Inputs after which caches are full: the memory counts from there on, or from the first tenth.
SETTLED_INPUTS_MAX: Final = 200_000

#: Bytes that the process may grow by after that.
GROWTH_BYTES_MAX: Final = 32 << 20


class Failed(AssertionError):
    """An input that did what none may; the text says what, and the input."""


@dataclass(slots=True)
class Figures:
    """What was seen: inputs, processor seconds, milliseconds of the slowest input and its bytes, bytes of growth."""

    inputs: int = 0
    seconds: float = 0.0
    slowest_ms: float = 0.0
    slowest: bytes = b""
    settled_bytes: int = 0
    grown_bytes: int = 0


class Watch:
    """Runs inputs and keeps the figures; `settled`: after how many inputs the memory counts, and may grow so far."""

    def __init__(self, target: Target, settled: int, growth_bytes_max: int = GROWTH_BYTES_MAX) -> None:
        self.figures = Figures()
        self._target = target
        self._settled = max(settled, 1)
        self._growth_bytes_max = growth_bytes_max

    def feed(self, data: bytes) -> None:
        """One input.  Raises Failed."""
        figures, took = self.figures, self._run(data)
        if took > INPUT_MS_MAX:  # the machine's page faults count, too: an input that takes long does so again
            took = min(took, self._run(data))
        figures.inputs += 1
        figures.seconds += took / 1e3
        if took > figures.slowest_ms:
            figures.slowest_ms, figures.slowest = took, data
            if took > INPUT_MS_MAX:
                raise Failed(f"{took:.0f} ms: {data!r}")
        if figures.inputs == self._settled:
            figures.settled_bytes = resident_bytes()

    def _run(self, data: bytes) -> float:
        """The milliseconds that an input takes.  Raises Failed."""
        begun = time.thread_time_ns()
        try:
            self._target.run(data)
        except Exception as error:
            raise Failed(f"{type(error).__name__}: {error}: {data!r}") from error
        return (time.thread_time_ns() - begun) / 1e6

    def finish(self) -> Figures:
        """The figures.  Raises Failed if the process has grown."""
        figures = self.figures
        if figures.settled_bytes:
            figures.grown_bytes = resident_bytes() - figures.settled_bytes
            if figures.grown_bytes > self._growth_bytes_max:
                raise Failed(f"the process grew by {figures.grown_bytes:,} bytes")
        return figures


def resident_bytes() -> int:
    """The memory of this process, without what the allocator keeps for later."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def fuzz(target: Target, *, inputs: int, seed: int, growth_bytes_max: int = GROWTH_BYTES_MAX) -> Figures:
    """So many inputs by chance, or until it is interrupted (SIGINT).  Raises Failed."""
    watch = Watch(target, min(inputs // 10, SETTLED_INPUTS_MAX), growth_bytes_max)
    gc.collect()
    gc.freeze()  # what else is in this process is not for a target's collections to walk through
    with suppress(KeyboardInterrupt):
        for data in target.seeds:
            watch.feed(data)
        mutator = Mutator(Random(seed), target.seeds, target.tokens, target.bytes_max)
        while watch.figures.inputs < inputs:
            watch.feed(mutator.next())
    return watch.finish()
