"""Messages for several addresses that came mixed, and whose queues get them in the order in which they came.

A run of messages with the same facts costs little each (`arrival`); of a publisher who writes to his addresses in turn
each message would be a run of its own.  Here they are routed an address at a time, and put in order again where that
matters, by their identities: those rise with arrival, in the journal and on each queue.

Only messages in nobody's way go together (`_possible`): the address does nothing but route, nothing is full, nothing is
paged.  All others have to go one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import Final

from broker.engine import arrival, duplicates, waiting
from broker.engine.address import Address
from broker.engine.core import Core
from broker.engine.message import Message
from broker.engine.queue import Queue
from broker.engine.router import Router
from broker.engine.stored import encode_facts, record_flags

#: An address, and messages for it with the same facts, in the order in which they came.
Run = tuple[Address, list[Message]]

_ID: Final[Callable[[Message], int]] = attrgetter("id")


def publish(core: Core, router: Router, messages: Sequence[Message], runs: Sequence[Run]) -> list[int] | None:
    """Take in messages in the order of arrival, which `runs` has by address; how many of each run found a queue.

    All agree in head and durability.  None, and nothing is done, if they cannot go together.  Raises DiskFull, before
    anything changed.
    """
    if not _possible(core, messages[0].head, runs):
        return None
    if messages[0].facts.durable:
        arrival.reserve(core, list(messages), essential=False)
    first = core.journal.allocate_ids(len(messages))
    for id, message in enumerate(messages, first):
        message.id = id
    arrived: dict[Queue, list[list[Message]]] = {}
    records: list[tuple[int, Message, bytes, int]] = []
    routed = [_route(core, router, address, run, arrived, records) for address, run in runs]
    if records:
        _store(core, records)
    for queue, parts in arrived.items():
        _put(core, queue, parts)
    return routed


def _possible(core: Core, head: bytes, runs: Sequence[Run]) -> bool:
    """Whether these may go together; a place that they could fill is not for them."""
    if core.atomic or core.paged or duplicates.is_marked(head):
        return False
    total = 0
    for address, messages in runs:
        nbytes = sum([message.size for message in messages])
        total += nbytes
        if address.handling is not None or not address.has_room(len(messages), nbytes):
            return False
    return core.usage.has_room(total)


def _route(
    core: Core,
    router: Router,
    address: Address,
    run: list[Message],
    arrived: dict[Queue, list[list[Message]]],
    records: list[tuple[int, Message, bytes, int]],
) -> int:
    """Find the queues of one address's messages, and what their records need; how many found one."""
    facts = run[0].facts
    groups = arrival.route(run, *arrival.takers(facts, router.candidates(address, None, None)), address)
    for queues, messages in groups:
        arrival.hold(core, address, queues, messages)
        durable = [queue.id for queue in queues if queue.durable] if facts.durable else []
        if durable:
            for queue_id in durable:
                core.journal.mention(queue_id)
            encoded, flags = encode_facts(facts, durable), record_flags(facts)
            records += [(message.id, message, encoded, flags) for message in messages]
        for queue in queues:
            arrived.setdefault(queue, []).append(messages)
    routed = sum([len(messages) for _, messages in groups])
    if routed < len(run):
        taken = {message.id for _, messages in groups for message in messages}
        arrival.unroutable(core, address, [message for message in run if message.id not in taken])
    address.routed += routed
    return routed


def _store(core: Core, records: list[tuple[int, Message, bytes, int]]) -> None:
    """Messages go to the journal in the order of their identities, as everywhere."""
    records.sort()
    journal = core.journal
    journal.add_mixed([(encoded, flags, message) for _, message, encoded, flags in records])
    segment = journal.segment
    for _, message, _, _ in records:
        message.segment = segment
    journal.space.hold(segment, len(records))


def _put(core: Core, queue: Queue, parts: list[list[Message]]) -> None:
    """Messages of one or several runs enter a queue, those together that can land together."""
    messages = parts[0] if len(parts) == 1 else sorted(chain.from_iterable(parts), key=_ID)
    queue.counters.added += len(messages)
    stored = queue.durable and messages[0].facts.durable
    if stored:
        queue.stored += len(messages)
    admitted = messages if queue.messages_max < 0 else waiting.admit(core, queue, messages)
    if not admitted:
        return
    alike = len({_lands_with(part[0]) for part in parts}) == 1
    for together in [admitted] if alike else [list(group) for _, group in groupby(admitted, _lands_with)]:
        if stored:
            queue.landing += len(together)
            core.work.landing.append((queue, together))
        else:
            arrival.land(core, queue, together)


def _lands_with(message: Message) -> tuple[int, int, int, str]:
    facts = message.facts
    return facts.priority, facts.expiration, facts.scheduled, facts.group
