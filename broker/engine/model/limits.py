"""What holds for the whole engine."""

from __future__ import annotations


class Limits:
    """Engine-wide limits and periods; times in ms, sizes in bytes, -1: none."""

    __slots__ = (
        "addresses_max",
        "compact_min_files",
        "compact_percentage",
        "expiry_scan_period",
        "global_size_max",
        "reaper_period",
        "transaction_bytes_max",
        "transaction_timeout",
    )

    def __init__(
        self,
        *,
        addresses_max: int = -1,
        global_size_max: int = -1,
        expiry_scan_period: int = 30_000,
        reaper_period: int = 30_000,
        transaction_timeout: int = 300_000,
        transaction_bytes_max: int = 8 << 20,
        compact_min_files: int = 10,
        compact_percentage: int = 40,
    ) -> None:
        self.compact_min_files = compact_min_files
        self.compact_percentage = compact_percentage
        self.addresses_max = addresses_max
        self.global_size_max = global_size_max
        self.expiry_scan_period = expiry_scan_period
        self.reaper_period = reaper_period
        self.transaction_timeout = transaction_timeout
        self.transaction_bytes_max = transaction_bytes_max
