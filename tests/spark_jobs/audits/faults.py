"""Faults to plant into a generated journal, each with what a ledger must call it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from spark_jobs.audits import rules
from store import decode, record
from store.record import RecordType
from tests.support.tamper import Draft, Place


def removed(draft: Draft, *reasons: str) -> list[Place]:
    """The REMOVED records with one of these reasons."""
    codes = {rules.WAYS.index(reason) + 1 for reason in reasons}
    return draft.find(RecordType.REMOVED, lambda r: isinstance(r, decode.Removed) and r.reason in codes)


def message(draft: Draft, id: int) -> Place:
    """The record of a message."""
    return draft.find(RecordType.MESSAGE, lambda r: isinstance(r, decode.Message) and r.id == id)[0]


def removal(draft: Draft, id: int) -> Place:
    """The first record by which a message left."""
    return draft.find(RecordType.REMOVED, lambda r: isinstance(r, decode.Removed) and id in r.ids)[0]


def ids(draft: Draft, place: Place) -> tuple[int, ...]:
    """The messages of a REMOVED record."""
    found = draft.at(place)
    assert isinstance(found, decode.Removed)
    return found.ids


def queue_of(draft: Draft, place: Place) -> int:
    """The queue of a REMOVED record."""
    found = draft.at(place)
    assert isinstance(found, decode.Removed)
    return found.queue_id


def forgotten_message(draft: Draft) -> None:
    """One that was consumed.  (One that nothing else tells of leaves no trace: only the broker could miss it.)"""
    draft.remove(message(draft, ids(draft, removed(draft, "consumed")[7])[0]))


def forgotten_removal(draft: Draft) -> None:
    """A dead letter without its removal: it is dead and alive."""
    draft.remove(removed(draft, "dead-lettered")[2])


def doubled_removal(draft: Draft) -> None:
    draft.double(removed(draft, "consumed")[5])


def removal_again_much_later(draft: Draft) -> None:
    draft.double(removed(draft, "consumed")[0], into=max(draft.segments))


def doubled_message(draft: Draft) -> None:
    draft.double(draft.find(RecordType.MESSAGE)[7])


def message_again_much_later(draft: Draft) -> None:
    draft.double(draft.find(RecordType.MESSAGE)[0], into=max(draft.segments))


def swapped(draft: Draft) -> None:
    """A removal before what it removes."""
    place = removed(draft, "consumed")[10]
    data = record.removed(queue_of(draft, place), 1, ids(draft, place))
    early = message(draft, ids(draft, place)[0])
    draft.remove(place)
    draft.segments[early.segment].entries[early.entry].records.insert(early.index, data)


def missing_successor(draft: Draft) -> None:
    dead = [r for r in map(draft.at, draft.find(RecordType.DEAD_LETTERED)) if isinstance(r, decode.DeadLettered)]
    draft.remove(message(draft, dead[3].new_id))


def forgotten_death(draft: Draft) -> None:
    draft.remove(draft.find(RecordType.DEAD_LETTERED)[1])


def forgotten_expiry(draft: Draft) -> None:
    draft.remove(draft.find(RecordType.EXPIRED)[1])


def wrong_reason(draft: Draft) -> None:
    """It was consumed, says the removal; it was killed, says the record beside it."""
    place = removed(draft, "killed")[0]
    draft.replace(place, record.removed(queue_of(draft, place), 1, ids(draft, place)))


FAULTS: Final[list[tuple[Callable[[Draft], None], set[str]]]] = [
    (forgotten_message, {rules.ORPHAN}),
    (forgotten_removal, {rules.NO_DEATH}),
    (doubled_removal, {rules.LEFT_TWICE}),
    (removal_again_much_later, {rules.LEFT_TWICE}),
    (doubled_message, {rules.ENTERED_TWICE}),
    (message_again_much_later, {rules.ENTERED_TWICE}),
    (swapped, {rules.LEFT_EARLY}),
    (missing_successor, {rules.NO_SUCCESSOR, rules.ORPHAN}),
    (forgotten_death, {rules.NO_RECORD}),
    (forgotten_expiry, {rules.NO_RECORD}),
    (wrong_reason, {rules.NO_DEATH}),
]
