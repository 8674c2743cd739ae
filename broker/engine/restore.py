"""The engine's state from the journal: what was stored, less what was removed.

The records are folded in the order of their positions.  While that goes on only identities move about; messages are
put onto their queues at the end, in their old order, with their delivery counts, schedules and expirations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from broker.engine import arrival, definitions, duplicates
from broker.engine.address import Address
from broker.engine.core import Core
from broker.engine.diverts import Divert, read_divert
from broker.engine.filter import compile_filter
from broker.engine.message import Annotations, Facts, Format, Message, PropertyView, RoutingType, group_of
from broker.engine.queue import DeliveryState, Queue
from broker.engine.router import Router
from broker.engine.session_fold import SessionFold
from broker.engine.sessions import StoredSessions
from store import decode, record
from store.record import RecordType
from store.recovery import RawRecord
from store.space import Space


@dataclass(slots=True)
class Restored:
    """What a restart found."""

    addresses: int = 0
    queues: int = 0
    messages: int = 0
    redelivered: int = 0
    sessions: int = 0


class UnknownFormat(Exception):
    """The journal holds messages of a protocol that this version does not speak."""


class Fold:
    """The state while the records are read: definitions, and by queue the messages that are still there."""

    def __init__(self, formats: dict[int, Format], space: Space) -> None:
        self.formats = formats
        self.space = space
        self.addresses: dict[int, definitions.AddressDefinition] = {}
        self.queues: dict[int, definitions.QueueDefinition] = {}
        self.held: dict[int, dict[int, Message]] = {}
        self.counts: dict[int, dict[int, int]] = {}
        self.due: dict[int, dict[int, int]] = {}
        self.sessions = SessionFold(space)
        self.diverts: dict[int, Divert] = {}
        self.duplicates: dict[int, dict[bytes, tuple[int, int]]] = {}  # by address id: see Duplicates.restore
        self.disordered: set[int] = set()  # queues whose messages are not in the order of their ids
        self._groups: dict[tuple[str, bool], Facts] = {}  # of the messages with the same facts
        self._stored_facts: decode.MessageFacts | None = None
        self._facts: Facts | None = None
        self._flags = 0
        self._decoder = decode.MessageDecoder()
        self._decode = self._decoder.decode

    def read(self, records: Iterable[RawRecord]) -> None:
        """Fold all records."""
        for segment, _, _, kind, buffer, offset in records:
            if kind == RecordType.MESSAGE:
                self._message(self._decode(buffer, offset), segment)
                continue
            read = _READERS.get(kind)
            if read is not None:
                read(self, segment, buffer, offset)

    def message(self, stored: decode.Message | decode.Copied) -> Message:
        """A message as its record has it.  Raises UnknownFormat."""
        facts = self._facts
        if stored.facts is not self._stored_facts or facts is None or stored.flags != self._flags:
            self._stored_facts = stored.facts
            self._flags = stored.flags
            facts = self._facts = self._read_facts(stored)
            self._groups.clear()
        message = Message(facts, stored.head, stored.body)
        if stored.flags & record.GROUPED:
            message.facts = self._in_group(message)
        message.id = stored.id
        return message

    def _message(self, stored: decode.Message | decode.Copied, segment: int) -> None:
        message = self.message(stored)
        message.refs = 0  # counted as its queues are filled
        message.segment = segment
        for queue_id in stored.facts.queue_ids:
            held = self.held.get(queue_id)
            if held is None:
                held = self.held[queue_id] = {}
            held[stored.id] = message

    def _copied(self, segment: int, buffer: bytes, offset: int) -> None:
        """A message was written anew, with what else is known of it: the earlier record may be gone, or still there."""
        copied = self._decoder.decode_copied(buffer, offset)
        self.space.refer(segment, copied.previous)
        for queue_id in copied.facts.queue_ids:
            for tables in (self.counts, self.due, self.sessions.inflight):
                tables.get(queue_id, {}).pop(copied.id, None)
        self._message(copied, segment)
        self.disordered.update(copied.facts.queue_ids)

    def _read_facts(self, stored: decode.Message | decode.Copied) -> Facts:
        facts = stored.facts
        format = self.formats.get(facts.format)
        if format is None:
            raise UnknownFormat(
                f"message {stored.id} is in format {facts.format}, which this version of the broker does not know"
            )
        routing_type = None
        if stored.flags & (record.ANYCAST | record.MULTICAST):
            routing_type = RoutingType.ANYCAST if stored.flags & record.ANYCAST else RoutingType.MULTICAST
        annotations: Annotations | None = json.loads(facts.annotations) if facts.annotations else None
        return Facts(
            facts.address,
            format,
            durable=True,
            priority=facts.priority,
            timestamp=facts.timestamp,
            expiration=facts.expiration,
            expiry_source=facts.expiry_source,
            scheduled=facts.scheduled,
            routing_type=routing_type,
            user=facts.user,
            origin=facts.origin,
            annotations=annotations,
        )

    def _in_group(self, message: Message) -> Facts:
        """The facts of a message with its group, which stands among its properties."""
        group = group_of(PropertyView(message))
        facts = self._groups.get(group)
        if facts is None:
            facts = self._groups[group] = message.facts.in_group(group[0], closes=group[1])
        return facts

    def _about(self, queue_id: int, ids: Iterable[int], segment: int) -> None:
        """A record in `segment` speaks about these messages: it is needed as long as theirs."""
        held = self.held.get(queue_id, {})
        for id in ids:
            message = held.get(id)
            if message is not None and message.segment != segment:
                self.space.refer(segment, message.segment)

    def _removed(self, segment: int, buffer: bytes, offset: int) -> None:
        removed = decode.decode_removed(buffer, offset)
        self._about(removed.queue_id, removed.ids, segment)
        for tables in (self.held, self.counts, self.due, self.sessions.inflight):
            table = tables.get(removed.queue_id)
            if table:
                for id in removed.ids:
                    table.pop(id, None)

    def _counted(self, segment: int, buffer: bytes, offset: int) -> None:
        counted = decode.decode_counts(buffer, offset)
        self._about(counted.queue_id, counted.ids, segment)
        self.counts.setdefault(counted.queue_id, {}).update(dict.fromkeys(counted.ids, counted.count))

    def _delivering(self, segment: int, buffer: bytes, offset: int) -> None:
        """What may have reached a consumer counts as delivered (promise P4)."""
        delivering = decode.decode_delivering(buffer, offset)
        self._about(delivering.queue_id, delivering.ids, segment)
        counts = self.counts.setdefault(delivering.queue_id, {})
        for id in delivering.ids:
            counts[id] = counts.get(id, 0) + 1

    def _scheduled(self, segment: int, buffer: bytes, offset: int) -> None:
        scheduled = decode.decode_scheduled(buffer, offset)
        self._about(scheduled.queue_id, scheduled.ids, segment)
        self.due.setdefault(scheduled.queue_id, {}).update(dict.fromkeys(scheduled.ids, scheduled.due))

    def _address(self, segment: int, buffer: bytes, offset: int) -> None:
        definition = decode.decode_definition(buffer, offset)
        self.addresses[definition.id] = definitions.read_address(definition.id, definition.definition)

    def _address_deleted(self, segment: int, buffer: bytes, offset: int) -> None:
        self.addresses.pop(decode.decode_definition(buffer, offset).id, None)

    def _queue(self, segment: int, buffer: bytes, offset: int) -> None:
        definition = decode.decode_definition(buffer, offset)
        self.queues[definition.id] = definitions.read_queue(definition.id, definition.definition)

    def _queue_deleted(self, segment: int, buffer: bytes, offset: int) -> None:
        id = decode.decode_definition(buffer, offset).id
        for table in (self.queues, self.held, self.counts, self.due, self.sessions.inflight):
            table.pop(id, None)

    def _divert(self, segment: int, buffer: bytes, offset: int) -> None:
        definition = decode.decode_definition(buffer, offset)
        self.diverts[definition.id] = read_divert(definition.id, definition.definition)

    def _divert_deleted(self, segment: int, buffer: bytes, offset: int) -> None:
        self.diverts.pop(decode.decode_definition(buffer, offset).id, None)

    def _duplicate_id(self, segment: int, buffer: bytes, offset: int) -> None:
        duplicates.note(self.duplicates, decode.decode_duplicate_id(buffer, offset), segment)

    def _session(self, segment: int, buffer: bytes, offset: int) -> None:
        self.sessions.define(buffer, offset)

    def _session_deleted(self, segment: int, buffer: bytes, offset: int) -> None:
        self.sessions.delete(buffer, offset)

    def _inflight(self, segment: int, buffer: bytes, offset: int) -> None:
        sent = decode.decode_inflight(buffer, offset)
        self._about(sent.queue_id, sent.ids, segment)
        self.sessions.send(sent)

    def _released(self, segment: int, buffer: bytes, offset: int) -> None:
        self.sessions.release(segment, decode.decode_packets(buffer, offset))

    def _received(self, segment: int, buffer: bytes, offset: int) -> None:
        self.sessions.receive(segment, decode.decode_packets(buffer, offset))

    def _completed(self, segment: int, buffer: bytes, offset: int) -> None:
        self.sessions.complete(segment, decode.decode_packets(buffer, offset))


_READERS: Final[dict[int, Callable[[Fold, int, bytes, int], None]]] = {
    RecordType.COPIED: Fold._copied,
    RecordType.REMOVED: Fold._removed,
    RecordType.COUNTS: Fold._counted,
    RecordType.DELIVERING: Fold._delivering,
    RecordType.SCHEDULED: Fold._scheduled,
    RecordType.ADDRESS: Fold._address,
    RecordType.ADDRESS_DELETED: Fold._address_deleted,
    RecordType.QUEUE: Fold._queue,
    RecordType.QUEUE_DELETED: Fold._queue_deleted,
    RecordType.DIVERT: Fold._divert,
    RecordType.DIVERT_DELETED: Fold._divert_deleted,
    RecordType.DUPLICATE_ID: Fold._duplicate_id,
    RecordType.SESSION: Fold._session,
    RecordType.SESSION_DELETED: Fold._session_deleted,
    RecordType.INFLIGHT: Fold._inflight,
    RecordType.RELEASED: Fold._released,
    RecordType.RECEIVED: Fold._received,
    RecordType.COMPLETED: Fold._completed,
}


def restore(core: Core, router: Router, sessions: StoredSessions, records: Iterable[RawRecord]) -> Restored:
    """Rebuild addresses, queues, messages, sessions.  Raises UnknownFormat, and whatever reading the journal raises."""
    fold = Fold(core.formats, core.journal.space)
    fold.read(records)
    restored = Restored()
    for address_definition in fold.addresses.values():
        router.restore_address(address_definition)
        restored.addresses += 1
    for divert in fold.diverts.values():
        router.diverts.add(divert)
    router.refresh()
    for address in router.addresses.values():
        core.duplicates.restore(address, fold.duplicates.get(address.id, {}))
    for queue_definition in fold.queues.values():
        queue = router.restore_queue(queue_definition, compile_filter(queue_definition.filter))
        restored.queues += 1
        held = fold.held.get(queue.id, {})
        if queue.id in fold.disordered:
            held = dict(sorted(held.items()))
        counts = fold.counts.get(queue.id, {})
        _fill(core, queue, held, counts, fold.due.get(queue.id, {}))
        restored.redelivered += sum(1 for id, count in counts.items() if count and id in held)
    fold.sessions.finish(sessions, router.queues_by_id, fold.held)
    restored.sessions = len(sessions)
    restored.messages = core.usage.messages
    return restored


def _fill(core: Core, queue: Queue, held: dict[int, Message], counts: dict[int, int], due: dict[int, int]) -> None:
    """Put the messages of one queue where they belong."""
    for id, count in counts.items():
        if count and id in held:
            queue.states[id] = DeliveryState(count, held[id].facts.timestamp)
    ready: dict[int, list[Message]] = {}
    now = core.now
    for id, message in held.items():
        _charge(core, message)
        if message.facts.group and not queue.grouped and queue.attributes.groups:
            queue.begin_groups()
        at = due.get(id, 0) or message.facts.scheduled
        if at > now:
            arrival.schedule(core, queue, message, at)
        else:
            ready.setdefault(message.facts.priority, []).append(message)
    for priority, messages in ready.items():
        queue.append(messages, priority)
        arrival.watch(core, queue, messages)
    queue.counters.added += len(held)
    queue.stored = len(held)


def _charge(core: Core, message: Message) -> None:
    """Count a message that is still on a queue; the first time also in memory and in its segment."""
    if not message.refs:
        core.usage.bytes += message.size
        core.usage.messages += 1
        address: Address | None = core.addresses.get(message.facts.address)
        if address is not None:
            address.charge([message])
        core.journal.space.hold(message.segment, 1)
    message.refs += 1
