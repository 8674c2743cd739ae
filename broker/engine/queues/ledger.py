"""The ledger: what the engine says to the journal about messages, each sentence in one place.

    sentence        record           said when
    stored          MESSAGE          a run with one header enters queues (`stored_mixed`: a run with several)
    copied          COPIED           the cleaner copies it forward, with the queues on which it still is
    counts          COUNTS           deliveries have failed, or have been made; again with a copy
    delivering      DELIVERING       strict mode: before a delivery's first byte is sent
    scheduled       SCHEDULED        messages wait for a redelivery; again with a copy
    dead_lettered   DEAD_LETTERED    a message died
    expired         EXPIRED          a message expired
    removed         REMOVED          messages have left a queue
    dropped         DROPPED          messages have entered none

1. A sentence is part of the open entry.  What belongs together is said without asking the journal for room in between.
2. Who says something about a queue has its definition in the same segment, so that the segment can be read alone.
3. Only messages with a `segment`, on durable queues, are spoken of: a restart finds no others.
4. A sentence about messages of older segments must stay as long as they do: whoever says it calls `Journal.refer`.

Sentences about sessions are those of `client_sessions`, definitions those of `routing`, duplicate ids those of
`duplicates`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from broker.engine.model.message import Message, MessageHeader
from broker.engine.queues.death import Death
from broker.engine.queues.queue import DELIVERED, Consumer, Queue
from broker.engine.queues.stored import encode_header, record_flags
from store import record
from store.body import LargeBody
from store.journal import Journal
from store.record import MessageLead, RemovalReason

#: The most ids in a record of due times.
SCHEDULED_IDS_MAX: Final = 10_000


class Ledger:
    """The sentences of one engine."""

    __slots__ = ("_journal", "touched")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.touched: set[int] = set()  # the queues with messages that stay, of which the held entry tells

    # -- messages --------------------------------------------------------------------------------------------------

    def stored(self, header: MessageHeader, queue_ids: Sequence[int], messages: list[Message]) -> int:
        """A run with this header has entered these queues; returns the bytes of the encoded header in each record."""
        journal = self._journal
        encoded, flags = self._lead(header, queue_ids)
        body = messages[0].body
        if isinstance(body, LargeBody):
            assert len(messages) == 1, "a message with a large body is a run of its own"
            journal.add_large(encoded, flags, messages[0].id, messages[0].head, body)
        else:
            journal.add_messages(encoded, flags, messages)
        segment = journal.segment
        for message in messages:
            message.segment = segment
        return len(encoded)

    def lead(self, header: MessageHeader, queue_ids: list[int]) -> MessageLead:
        """What the records of a run with this header begin with, for `stored_mixed`."""
        return MessageLead(*self._lead(header, queue_ids))

    def stored_mixed(self, leads: list[MessageLead], messages: Sequence[Message]) -> None:
        """Messages, each with its lead, have entered queues."""
        self._journal.add_mixed(leads, messages)
        segment = self._journal.segment
        for message in messages:
            message.segment = segment

    def copied(self, header: MessageHeader, queue_ids: list[int], messages: list[Message], previous: int) -> int:
        """A run with this header was in segment `previous`; returns the bytes of the encoded header in each record."""
        journal = self._journal
        encoded, flags = self._lead(header, queue_ids)
        body = messages[0].body
        if isinstance(body, LargeBody):
            assert len(messages) == 1, "a message with a large body has a header of its own"
            journal.add_large(encoded, flags, messages[0].id, messages[0].head, body, previous)
        else:
            journal.add_copies(encoded, flags, messages, previous)
        for message in messages:
            message.copied_to(journal.segment)
        return len(encoded)

    def _lead(self, header: MessageHeader, queue_ids: Sequence[int]) -> tuple[bytes, int]:
        self._journal.ensure_all_defined(queue_ids)
        return encode_header(header, queue_ids), record_flags(header)

    # -- deliveries ------------------------------------------------------------------------------------------------

    def delivering(self, queue: Queue, consumer: Consumer, ids: list[int]) -> None:
        """Messages are about to be sent to a consumer."""
        assert consumer.queue is queue, "the record names the queue"
        self._touch(queue)
        self._journal.add(record.delivering(queue.id, consumer.id, ids))

    def counts(self, queue: Queue, messages: list[Message]) -> None:
        """The failed deliveries of these messages are those in `Queue.states`.

        A delivery that the journal counted before it was made (`Queue.journalled`) has failed unless it ends well.
        """
        assert queue.durable, "a restart finds no others (rule 3)"
        states, journalled = queue.states, queue.journalled
        by_count: defaultdict[tuple[int, bool], list[int]] = defaultdict(list)
        # Most have only been delivered, perhaps some hundred thousands: they are found without a step for each.
        delivered = [m.id for m in messages if states.get(m.id) is DELIVERED and m.id not in journalled]
        if delivered:
            by_count[0, True] = delivered
        if len(delivered) < len(messages):
            for message in messages:
                tried, again = states.get(message.id), message.id in journalled
                if tried is not DELIVERED or again:
                    count = (0 if tried is None else tried.count) + again
                    by_count[count, tried is not None and not count].append(message.id)
        for (count, redelivered), ids in by_count.items():
            self._touch(queue)
            self._journal.add(record.counts(queue.id, count, ids, redelivered=redelivered))

    def scheduled(self, queue: Queue, by_due: Mapping[int, Sequence[int]]) -> None:
        """Messages wait until they are due for another delivery: their ids, by that time."""
        for due, ids in by_due.items():
            for at in range(0, len(ids), SCHEDULED_IDS_MAX):
                self._touch(queue)
                self._journal.add(record.scheduled(queue.id, due, ids[at : at + SCHEDULED_IDS_MAX]))

    def _touch(self, queue: Queue) -> None:
        """Prepare to speak of messages that stay on the queue."""
        self._journal.ensure_defined(queue.id)
        if self._journal.held:
            self.touched.add(queue.id)

    # -- ways out --------------------------------------------------------------------------------------------------

    def dead_lettered(self, queue: Queue | None, message: Message, copy: Message | None, death: Death) -> None:
        """A message of a queue (None: of none) died; `copy` is the dead letter, None if it was killed."""
        queue_id = self._queue_of(queue, message, copy)
        if queue_id is None:
            return
        tried = queue.states.get(message.id) if queue is not None else None
        consumer = death.consumer
        self._journal.add(
            record.dead_lettered(
                queue_id=queue_id,
                old_id=message.id,
                new_id=copy.id if copy is not None else 0,
                enqueued=message.header.timestamp,
                first_failure=tried.first_failure if tried else 0,
                attempts=tried.count if tried else 0,
                reason=death.reason,
                address=message.header.address,
                text=death.text,
                client=consumer.client_id if consumer else "",
                remote=consumer.remote if consumer else "",
                user=message.header.user,
            )
        )

    def expired(self, queue: Queue, message: Message, copy: Message | None) -> None:
        """A message of a queue expired; `copy` is on its expiry address, None if none keeps it."""
        queue_id = self._queue_of(queue, message, copy)
        if queue_id is None:
            return
        self._journal.add(
            record.expired(
                queue_id=queue_id,
                old_id=message.id,
                new_id=copy.id if copy is not None else 0,
                enqueued=message.header.timestamp,
                expiration=message.header.expiration,
                attempts=queue.delivery_count(message.id),
                source=message.header.expiry_source,
                consumers=queue.attached,
                address=message.header.address,
            )
        )

    def _queue_of(self, queue: Queue | None, message: Message, copy: Message | None) -> int | None:
        """The queue that a death or an expiry names; 0: none that the journal knows; None: nothing is said.

        A message that no queue took, or that was on a non-durable queue, left none that the journal knows.  It is
        spoken of if its copy is stored, so that every durable dead letter is counted.
        """
        if queue is not None and queue.durable and message.segment:
            self._journal.ensure_defined(queue.id)
            return queue.id
        return 0 if copy is not None and copy.segment else None

    def removed(self, queue: Queue, ids: Sequence[int], reason: RemovalReason) -> None:
        """Messages have left a queue."""
        assert queue.durable, "a restart finds no others (rule 3)"
        assert ids, "a record of nothing"
        if not queue.deleted:  # a transaction that outlived the queue may settle it
            self._journal.ensure_defined(queue.id)
        self._journal.add(record.removed(queue.id, reason, ids))

    def dropped(self, address: str, messages: Sequence[Message], reason: RemovalReason) -> None:
        """Messages that were sent to an address entered no queue."""
        size = sum([len(message.head) + len(message.body) for message in messages])
        self._journal.add(record.dropped(reason, len(messages), size, address))
