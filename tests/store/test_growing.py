"""A segment that has to take more than it was made for."""

from __future__ import annotations

from store import record
from tests.store.test_journal import Desk
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
