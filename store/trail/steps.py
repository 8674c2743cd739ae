"""A message's trail: every record of the journal about one message, under all the ids that it had.

A message gets a new id when it dies, expires, is moved or replayed.  Its old id and the new one are in one entry, or
the new message's annotations name the old one; so from any id of the chain the others are found, in both directions.

This module defines trails and turns records into their steps; `trail_search` finds the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from store import decode
from store.record import FORMATS, DeadLetterReason, RecordType, RemovalReason
from store.trail.id_index import ids_of, origin_in


class StepKind(StrEnum):
    """The event that a record describes."""

    STORED = "stored"
    COPIED = "copied"  # forward, to free an old segment
    DELIVERING = "delivering"  # it is about to be sent to a consumer
    IN_FLIGHT = "in-flight"  # the same for a session's client, under a packet id
    RETURNED = "returned"  # its delivery was returned
    SCHEDULED = "scheduled"  # it waits
    DIED = "died"
    EXPIRED = "expired"
    LEFT = "left"  # the queue, for a reason


@dataclass(frozen=True, slots=True, kw_only=True)
class TrailStep:
    """One record about a message.  Times in ms since the epoch; fields that a record does not have are 0, "" or empty.

    time, position, segment, offset     of the record
    queues              the names of the queues that accepted it, or of the one that the record is about
    protocol            by which it was sent: stomp, amqp, mqtt
    address             where it was stored; of a death, the address it was sent to
    sent                when the broker first accepted it; expiration, scheduled: when it expires, until when it waits
    attempts            failed deliveries so far
    old_id, new_id      the message that it was before, and the one that it became
    user                its sender's
    actor, task         who moved, retried or removed it, and the task by which it was done
    client, remote      of a stored message its sender's; of others the last consumer's, or the session's
    """

    kind: StepKind
    message: int
    time: int
    position: int
    segment: int
    offset: int
    queues: tuple[str, ...] = ()
    protocol: str = ""
    address: str = ""
    size: int = 0
    user: str = ""
    client: str = ""
    remote: str = ""
    reason: str = ""
    text: str = ""
    attempts: int = 0
    redelivered: bool = False
    first_failure: int = 0
    consumers: int = 0
    consumer_id: int = 0
    packet_id: int = 0
    sent: int = 0
    expiration: int = 0
    scheduled: int = 0
    new_id: int = 0
    old_id: int = 0
    actor: str = ""
    task: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """A message that is still on a queue."""

    message: int
    queue: str


@dataclass(slots=True)
class Trail:
    """Everything that the journal has about a message.

    `ids` are all that it had, oldest first, and `steps` the records, in the order of the journal.  `places` is where it
    is now; if it is on no queue, `ended` is why it last left one, "" if the journal does not say.  `problems` are
    sentences.  Of the journal's `segments`, `opened` were searched.
    """

    ids: list[int]
    steps: list[TrailStep]
    places: list[Place]
    ended: str
    problems: list[str]
    segments: int
    opened: int


@dataclass(frozen=True, slots=True)
class FoundStep:
    """A step whose queues and session are known by id only."""

    step: TrailStep
    queue_ids: tuple[int, ...]
    session_id: int = 0

    def named(self, names: Mapping[int, str]) -> TrailStep:
        """The step with names for these ids; an id without a name is shown as such."""
        client = names.get(self.session_id, f"session {self.session_id}") if self.session_id else self.step.client
        return replace(self.step, client=client, queues=tuple(names.get(id, f"queue {id}") for id in self.queue_ids))


@dataclass(frozen=True, slots=True)
class Deed:
    """A task's progress: its step, which moved or removed messages of one queue, is before `position` in the entry."""

    position: int
    queue_id: int
    task: int
    actor: str

    def explains(self, found: FoundStep) -> bool:
        """Whether a message left its queue by this step."""
        left = found.step.kind is StepKind.LEFT and found.step.reason in _BY_OPERATORS
        return left and found.step.position < self.position and self.queue_id in found.queue_ids

    def done(self, found: FoundStep) -> FoundStep:
        """A step with who did it."""
        return replace(found, step=replace(found.step, actor=self.actor, task=self.task))


#: Why messages leave their queues in a task.
_BY_OPERATORS: Final = (RemovalReason.MOVED.word, RemovalReason.PURGED.word)


def deed_of(raw: decode.RawRecord) -> Deed | None:
    """What a record says of a task that works on a queue; None if it does not.  Raises RecordError."""
    _, position, _, type, data, offset = raw
    if type != RecordType.TASK:
        return None
    found = decode.decode(data, offset)
    assert isinstance(found, decode.Definition)
    by, queue_id = found.definition.get("by"), found.definition.get("queue-id")
    if not isinstance(by, dict) or not isinstance(queue_id, int) or not queue_id:
        return None
    names = [str(by[name]) for name in ("user", "token", "operator", "remote") if by.get(name)]
    return Deed(position, queue_id, found.id, ", ".join(names) or "anonymous")


def steps_of(raw: decode.RawRecord, wanted: set[int]) -> Iterator[FoundStep]:
    """A step for each wanted message that a record is about.  Raises RecordError."""
    segment, position, time, _, data, offset = raw
    at: dict[str, Any] = {"segment": segment, "position": position, "time": time, "offset": offset}
    found = decode.decode(data, offset)
    if isinstance(found, decode.Message | decode.Copied):
        if found.id in wanted:
            yield FoundStep(_stored(found, at), found.header.queue_ids)
        return
    assert isinstance(found, decode.Speaking), "the other types are about no message"
    fields = _members_of(found)
    queue_ids = (found.queue_id,) if found.queue_id else ()
    session_id = found.session_id if isinstance(found, decode.Inflight) else 0
    for index, id in enumerate(_messages_of(found)):
        if id in wanted:
            if isinstance(found, decode.Inflight):
                fields["packet_id"] = found.packet_ids[index]
            yield FoundStep(TrailStep(message=id, **at, **fields), queue_ids, session_id)


def _messages_of(found: decode.Speaking) -> Sequence[int]:
    """The messages that a record is about; for a death or an expiry, not the message that it became."""
    return (found.old_id,) if isinstance(found, decode.DeadLettered | decode.Expired) else ids_of(found)


def links_of(type: int, data: bytes, offset: int) -> tuple[int, ...]:
    """The two ids of one message, if a record links two.  Raises RecordError."""
    if type in decode.LARGE_TYPES:
        id, _, start, end = decode.find_annotations(data, offset)
        origin = origin_in(data, offset + start, offset + end) if end > start else 0
        return (id, origin) if origin else ()
    if type in (RecordType.DEAD_LETTERED, RecordType.EXPIRED):
        return tuple(ids_of(decode.decode(data, offset)))
    return ()


def _stored(found: decode.Message | decode.Copied, at: dict[str, Any]) -> TrailStep:
    header, body = found.header, found.body
    return TrailStep(
        kind=StepKind.STORED if isinstance(found, decode.Message) else StepKind.COPIED,
        message=found.id,
        **at,
        protocol=FORMATS.get(header.format, ""),
        address=header.address,
        size=len(found.head) + (len(body) if isinstance(body, bytes) else body.nbytes),
        user=header.user,
        client=header.origin,
        sent=header.timestamp,
        expiration=header.expiration,
        scheduled=header.scheduled,
        old_id=origin_in(header.annotations, 0, len(header.annotations)),
    )


def _members_of(found: decode.Speaking) -> dict[str, Any]:
    """The fields of the steps that a record makes, beside its place and the names of its queue and session."""
    if isinstance(found, decode.Removed):
        return {"kind": StepKind.LEFT, "reason": RemovalReason(found.reason).word}
    if isinstance(found, decode.Counts):
        redelivered = found.redelivered or found.count > 0
        return {"kind": StepKind.RETURNED, "attempts": found.count, "redelivered": redelivered}
    if isinstance(found, decode.Delivering):
        return {"kind": StepKind.DELIVERING, "consumer_id": found.consumer_id}
    if isinstance(found, decode.Scheduled):
        return {"kind": StepKind.SCHEDULED, "scheduled": found.due}
    if isinstance(found, decode.Inflight):
        return {"kind": StepKind.IN_FLIGHT}
    members = {"new_id": found.new_id, "address": found.address, "attempts": found.attempts, "sent": found.enqueued}
    if isinstance(found, decode.Expired):
        members |= {"expiration": found.expiration, "consumers": found.consumers}
        return {"kind": StepKind.EXPIRED, "reason": DeadLetterReason.EXPIRED.word, **members}
    members |= {"text": found.text, "first_failure": found.first_failure}
    members |= {"client": found.client, "remote": found.remote, "user": found.user}
    return {"kind": StepKind.DIED, "reason": DeadLetterReason(found.reason).word, **members}
