"""How many functions some work calls: what it costs, whatever the machine does meanwhile."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def counted_calls(*, builtin: bool = False) -> Iterator[Counter[str]]:
    """Count the calls of Python's functions by name; `builtin`: also those that it makes of functions in C."""
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            calls[frame.f_code.co_name] += 1
        elif event == "c_call" and builtin:
            calls[getattr(argument, "__name__", "")] += 1

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)
