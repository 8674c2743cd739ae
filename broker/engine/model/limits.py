"""What holds for the whole engine."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass


@dataclass(slots=True, eq=False)
class Limits:
    """Engine-wide limits and periods; times in ms, sizes in bytes, -1: none."""

    _: KW_ONLY
    addresses_max: int = -1
    global_size_max: int = -1
    expiry_scan_period: int = 30000
    reaper_period: int = 30000
    transaction_timeout: int = 300000
    transaction_bytes_max: int = 8 << 20
    compact_min_files: int = 10
    compact_percentage: int = 40
