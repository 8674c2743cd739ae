"""A segment that has to take more than it was made for."""

from __future__ import annotations

from store import decode, record
from store.record import RemovalReason
from tests.store.desk import Desk
from tests.store.workload import Body
from tests.support.sim_files import SimFiles


def test_an_entry_goes_on_in_a_segment_that_is_nearly_full_while_there_is_no_other() -> None:
    """What is added without asking is never refused: the segment grows."""
    desk = Desk(SimFiles(capacity=4096 + 100), retry_ms=1000)
    desk.start()
    desk.send(3300)
    desk.commit()
    before = desk.journal.position
    desk.send(200)
    desk.commit()
    assert (desk.journal.segment, desk.journal.position) == (1, before + 1)
    assert desk.failures == []


def test_copies_count_as_what_they_take() -> None:
    desk = Desk(SimFiles())
    desk.start()
    desk.send(100)
    (id,) = [desk.journal.allocate_ids(1) - 1]
    desk.commit()
    before = desk.journal.pending_bytes
    desk.journal.add_copies(record.message_facts(timestamp=1), 0, [Body(id, b"", b"x" * 500)], 1)
    assert desk.journal.pending_bytes - before > 500
    desk.commit()
    assert desk.failures == []


def written(desk: Desk, commits: int) -> int:
    """Bytes of so many small commits, in a journal that allocates no further ahead than it has to."""
    before = sum(desk.files.size(path) for path in desk.files.paths())
    begun = desk.journal.segment
    for _ in range(commits):
        desk.journal.reserve(100)
        desk.journal.add(record.removed(1, RemovalReason.CONSUMED, [7]))
        desk.commit()
    after = sum(desk.files.size(path) for path in desk.files.paths())
    return max((desk.journal.segment - begun) * 4096, after - before)


def test_more_definitions_than_a_segment_holds_are_not_written_again_and_again(desk: Desk) -> None:
    for id in range(2, 202):
        desk.journal.reserve(200)
        desk.journal.define(id, record.queue(id, {"name": f"queue {id} {'x' * 80}"}))
        desk.commit()
    assert desk.journal.segment < 15, "26 KB of them"
    assert written(desk, 200) < 200 * 150
    desk.log.close()
    again = Desk(desk.files)
    found = again.start()
    assert len({each.id for _, _, _, each in found if isinstance(each, decode.Definition)}) == 200
    assert written(again, 200) < 200 * 150
    journal = again.journal
    for segment in journal.space.segments[:-1]:
        journal.rewrite_definitions(segment)
    assert journal.rewrite_definitions(journal.segment) == 0
    again.commit()
    oldest = journal.space.segments[0]
    assert oldest > 10, "they have all moved, and the segments that they were in are gone"
    for id in range(2, 202):
        journal.undefine(id, record.queue_deleted(id, {"name": "x"}))
    again.commit()
    written(again, 60)
    assert len(journal.space.segments) <= 2, "nothing stays for what is deleted"
