"""How much of a journal an audit covers."""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.journal.snapshot import Snapshot
from spark_jobs.journal.walk import UNKNOWN
from spark_jobs.results import Coverage, Damage


def coverage(snapshot: Snapshot, damage: Sequence[Damage] = ()) -> Coverage:
    """The coverage of a snapshot within its bounds, including holes."""
    refs, bounds = snapshot.segments, snapshot.bounds
    holes = [Damage(gap.uri, 0, gap.first_position, gap.records, gap.what) for gap in snapshot.missing]
    first = min((ref.first_position for ref in refs if ref.first_position != UNKNOWN), default=0)
    # The last one in order: the clock may have been ahead once.
    last_time = next((ref.last_time or ref.created for ref in reversed(refs) if ref.last_time or ref.created), 0)
    first_time = min((ref.first_time or ref.created for ref in refs if ref.created), default=0)
    end = snapshot.next_position
    return Coverage(
        broker_id=snapshot.broker_id,
        paths=snapshot.journals,
        segments=len(refs),
        bytes=snapshot.bytes,
        first_position=max(first, bounds.from_position or first),
        next_position=end if bounds.to_position is None else min(end, bounds.to_position),
        first_time=max(first_time, bounds.from_time or first_time),
        last_time=last_time if bounds.to_time is None else min(last_time, bounds.to_time),
        trimmed_records=sum(gap.records for gap in snapshot.trimmed if gap.records != UNKNOWN),
        torn_bytes=snapshot.torn_bytes,
        damage=(*holes, *damage),
    )
