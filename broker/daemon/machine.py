"""The environment of a real broker; simulations bring their own."""

from __future__ import annotations

import os

from broker import clock
from broker.daemon.wiring import Environment
from broker.engine.model.report import Report
from store.files import OsFiles


def this_machine(report: Report) -> Environment:
    """Return the real disk, clocks and random numbers."""
    return Environment(
        files=OsFiles(),
        wall_ms=clock.wall_ms,
        monotonic=clock.monotonic_seconds,
        random=clock.chance(),
        report=report,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )
