"""Which messages are finished: against a naive judge, and from one segment to the next."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.journal import unfinished
from spark_jobs.journal.decode import Selection
from spark_jobs.journal.scan import Scanned
from spark_jobs.journal.unfinished import Moves
from spark_jobs.journal.walk import walk
from store import record
from store.record import RemovalReason
from tests.spark_jobs.journal.making import message, segment

Stored = tuple[int, int, bool, list[int]]  # id, position, moved, queues
Left = tuple[int, int, int, int]  # id, queue, position, reason

_IDS = st.one_of(st.integers(1, 6), st.just(1 << 40))
_QUEUES = st.lists(st.integers(1, 3), unique=True, max_size=3)
_STORED = st.tuples(_IDS, st.integers(0, 9), st.booleans(), _QUEUES)
_REASONS = st.sampled_from([RemovalReason.CONSUMED, RemovalReason.CONSUMED, RemovalReason.KILLED])
_LEFT = st.tuples(_IDS, st.integers(1, 3), st.integers(0, 9), _REASONS.map(int))


def _moves(stored: list[Stored], left: list[Left]) -> Moves:
    def numbers(values: list[int]) -> Any:
        return np.array(values, np.int64)

    return Moves(
        segments=numbers([1] * len(stored)),
        ids=numbers([id for id, *_ in stored]),
        positions=numbers([position for _, position, *_ in stored]),
        annotations=numbers([int(moved) for _, _, moved, _ in stored]),
        counts=numbers([len(queues) for *_, queues in stored]),
        queues=numbers([queue for *_, queues in stored for queue in queues]),
        left_ids=numbers([id for id, *_ in left]),
        left_queues=numbers([queue for _, queue, *_ in left]),
        left_positions=numbers([position for *_, position, _ in left]),
        reasons=numbers([reason for *_, reason in left]),
    )


def _is_finished(each: Stored, stored: list[Stored], left: list[Left]) -> bool:
    id, position, moved, queues = each
    own = [departure for departure in left if departure[0] == id]
    return (
        not moved
        and queues != []
        and sum(other[0] == id for other in stored) == 1
        and Counter(queue for _, queue, _, _ in own) == Counter(queues)
        and all(at > position and reason != RemovalReason.KILLED for _, _, at, reason in own)
    )


@given(st.lists(_STORED, max_size=6), st.lists(_LEFT, max_size=8))
def test_which_are_finished(stored: list[Stored], left: list[Left]) -> None:
    messages, departures, message_of = _moves(stored, left).unfinished()
    assert messages.tolist() == [not _is_finished(each, stored, left) for each in stored]
    finished = {each[0] for each in stored if _is_finished(each, stored, left)}
    assert departures.tolist() == [id not in finished for id, *_ in left]
    assert len(message_of) == len(left)
    assert all(stored[message_of[i]][0] == id for i, (id, *_) in enumerate(left) if id in finished)


@given(st.lists(_STORED, max_size=6), st.lists(_LEFT, max_size=8))
def test_the_rest_is_as_unfinished_as_before(stored: list[Stored], left: list[Left]) -> None:
    moves = _moves(stored, left)
    messages, departures, _ = moves.unfinished()
    again = moves.only(messages, departures).unfinished()
    assert all(mask.all() for mask in again[:2])


@pytest.mark.parametrize("together", [0, 1 << 20])
def test_messages_that_finish_in_a_later_segment(monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    """Kept until the task ends, they are finished; given out before, their rows come one by one."""
    monkeypatch.setattr(unfinished, "KEPT_ROWS_MAX", together)
    parts = [
        segment([[message(1), message(2), record.removed(1, RemovalReason.CONSUMED, [1])]]),
        segment([[record.removed(1, RemovalReason.CONSUMED, [2]), message(3)]], number=2, first=4),
    ]
    scanned = [Scanned(str(n), data, walk(data, number=n, newest=False)) for n, data in enumerate(parts, 1)]
    selection = Selection(("record_type", "segment", "message_id", "count", "reason"))
    found = [row for batch in unfinished.rows(scanned, selection) for row in batch.to_pylist()]
    finished = [(row["segment"], row["count"], row["reason"]) for row in found if row["record_type"] == "finished"]
    others = [(row["record_type"], row["message_id"]) for row in found if row["record_type"] != "finished"]
    if together:
        assert Counter(finished) == {(1, 1, None): 2, (1, 1, "consumed"): 2}
        assert others == [("message", 3)]
    else:
        assert Counter(finished) == {(1, 1, None): 1, (1, 1, "consumed"): 1}
        assert others == [("message", 2), ("message", 3), ("removed", 2)]


def test_departures_of_messages_that_were_stored_before() -> None:
    data = segment([[record.removed(1, RemovalReason.CONSUMED, [7])]])
    scanned = Scanned("1", data, walk(data, number=1, newest=False))
    (row,) = [
        row
        for batch in unfinished.rows([scanned], Selection(("record_type", "message_id")))
        for row in batch.to_pylist()
    ]
    assert row == {"record_type": "removed", "message_id": 7}
