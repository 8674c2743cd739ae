"""Limits and periods of the whole engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: The latest time that a message may state, in ms since the epoch: the end of year 9999.
TIME_MAX: Final = 253_402_300_799_999

#: The longest that messages a link may already have received stay reserved after its connection ends, in ms: a day.
RESERVE_MS_MAX: Final = 86_400_000


@dataclass(slots=True, eq=False, kw_only=True)
class Limits:
    """Engine-wide limits and periods; times in ms, sizes in bytes, -1: none."""

    addresses_max: int = -1
    global_size_max: int = -1
    expiry_scan_period: int = 30000
    reaper_period: int = 30000
    transaction_timeout: int = 300000
    selector_terms_max: int = 16_384
    transaction_bytes_max: int = 8 << 20
    open_transactions_bytes_max: int = 32 << 20
    compact_min_files: int = 10
    compact_percentage: int = 40
    #: Milliseconds between slices of cleaning.
    cleaning_period: int = 20
    #: Messages that one step of a retry, a move or a discard looks at: some 5 ms, in which all clients wait.
    move_step_max: int = 64
    #: Messages on disk that one step of grouping dead letters looks at, beside four times as many in memory: some 3 ms.
    group_step_max: int = 256
    #: Bytes not yet on disk above which a task waits before its next step: some ms of writing.
    task_pending_max: int = 64 << 10
    #: Messages that one step of a purge removes: some 5 ms.
    purge_step_max: int = 4096
