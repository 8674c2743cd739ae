"""Whatever a crash leaves, an audit misses nothing that the broker did not lose, and reads what the broker would."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest

from spark_jobs.journal.snapshot import Snapshot
from store.recovery import Recovery
from store.retention import RetentionSettings
from store.segment import segment_name, segment_number
from tests.spark_jobs.journal.disks import check, live, pinned, truth
from tests.spark_jobs.journals import dump
from tests.store.workload import DAY, EPOCH, Script, Station
from tests.support.sim_files import SimFiles, power_cuts

SETTINGS: Final = [
    RetentionSettings(),
    RetentionSettings(enabled=True),
    RetentionSettings(enabled=True, age_days=0),
    RetentionSettings(enabled=True, bytes_max=4 * 4096),
]


def live_through(disk: SimFiles, seed: int, retention: RetentionSettings) -> None:
    """Some days of a broker whose retention is switched."""
    for day, switched in enumerate((retention, RetentionSettings(), retention)):
        station = Station(disk, now=EPOCH + day * DAY, retention=switched)
        Script(seed + day).run(station, 14)
        station.journal.close()


@pytest.mark.parametrize("retention", SETTINGS)
def test_no_crash_makes_an_audit_miss_anything(tmp_path: Path, retention: RetentionSettings) -> None:
    whole = SimFiles(4)
    with power_cuts(whole, lambda: None) as cuts:
        live_through(whole, 4, retention)
    check_sound(whole, tmp_path / "whole")
    tried = cuts[1:-1:3]
    assert len(tried) > 50
    for at, (before, _) in enumerate(tried):
        disk = before.fork(at)
        disk.crash()
        if any(segment_number(path[-18:]) for path in disk.paths()):
            check_sound(disk, tmp_path / f"{at}")


class _Found:
    """The live segments as recovery takes them."""

    def __init__(self, data: Path) -> None:
        self.data = data

    def segments(self) -> list[int]:
        return live(self.data)

    def path(self, segment: int) -> str:
        return str(self.data / "journal" / segment_name(segment))

    def read(self, segment: int) -> bytes:
        return Path(self.path(segment)).read_bytes()


def check_sound(disk: SimFiles, data: Path) -> Snapshot:
    """Nothing is missing, and the snapshot ends where the broker would go on."""
    snapshot = pinned(dump(disk, data))
    assert snapshot.missing == ()
    recovery = Recovery(_Found(data))
    assert snapshot.next_position == recovery.verdict.position
    assert snapshot.torn_bytes == recovery.verdict.torn_bytes
    assert [*snapshot.leftovers] == recovery.leftovers
    assert {*recovery.segments} <= {ref.number for ref in snapshot.segments}
    check(snapshot, truth(data))
    shutil.rmtree(data)
    return snapshot
