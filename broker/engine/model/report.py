"""The interface by which the engine reports to an operator: a code that is stable across versions, and plain values."""

from __future__ import annotations

from typing import Protocol


class Report(Protocol):
    """Where reports go: the log, or a list in a test."""

    def __call__(self, code: str, /, **fields: str | int) -> None: ...
