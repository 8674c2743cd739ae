"""Publishes interleaved messages for several destinations, keeping their order of arrival on each queue.

Messages in a run with the same header cost little each (`arrival`), but if a client alternates between destinations,
each message would be a run of its own.  Here they are routed a send at a time, and put back in order where that
matters, by their ids: those rise in order of arrival, in the journal and on each queue.

This is only for simple cases (`_room_needed`): the addresses do nothing but route, to few queues, nothing is full,
nothing is paged.
All other messages are published one after the other (`publish.in_turn`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import Final

from broker.engine.model.message import NEW, Message, size_of
from broker.engine.publish.send import Send
from broker.engine.queues import arrival, duplicates
from broker.engine.queues.address import Address
from broker.engine.queues.queue import Queue
from broker.engine.queues.room import Admission
from broker.engine.queues.state import State
from store.body import LargeBody
from store.record import MessageLead

#: Queues, and the messages that all of them accept.
Groups = list[tuple[list[Queue], list[Message]]]

_ID: Final[Callable[[Message], int]] = attrgetter("id")


def publish(state: State, messages: Sequence[Message], sends: Sequence[Send]) -> bool:
    """Accept `messages`, those of all `sends` in order of arrival.

    False, and nothing is done, if they cannot be published together.  Raises DiskFull, before anything changed.
    """
    need = _room_needed(state, messages, sends)
    if need is None:
        return False
    routes = [_route(state, send) for send in sends]
    if any([arrival.are_many(state, queues) for groups in routes for queues, _ in groups]):
        return False
    if any([_refuses(state, send, groups) for send, groups in zip(sends, routes, strict=True)]):
        return False
    if need:
        arrival.reserve_bytes(state, need, essential=False)
    first = state.journal.allocate_ids(len(messages))
    for id, message in enumerate(messages, first):
        message.id = id
    arrived: dict[Queue, list[list[Message]]] = {}
    leads: list[MessageLead | None] = [None] * len(messages)
    for send, groups in zip(sends, routes, strict=True):
        send.routed += _hold(state, send, groups, arrived, leads, first)
    _store(state, messages, leads)
    for queue, parts in arrived.items():
        _put(state, queue, messages, parts)
    for send in sends:
        send.accepted(send.messages)
    return True


def _room_needed(state: State, messages: Sequence[Message], sends: Sequence[Send]) -> int | None:
    """Bytes that the journal needs for these messages; None if they may not be published together.

    They may not if they could fill an address or the broker's memory limit.
    """
    if state.paged or any([send.link_ids is not None for send in sends]) or duplicates.may_have_ids(messages):
        return None
    total = need = 0
    charges: dict[Address, tuple[int, int]] = {}
    for send in sends:
        address, run = send.address, send.messages
        if (
            isinstance(run[0].body, LargeBody)
            or run[0].header.attempts != NEW
            or state.diverts.extras(address) is not None
        ):
            return None
        nbytes = size_of(run)
        total += nbytes
        if run[0].header.durable:
            need += nbytes
        before, before_bytes = charges.get(address, (0, 0))
        charges[address] = before + len(run), before_bytes + nbytes
    room = state.room
    if not state.usage.fits(total):
        return None
    return need if all(room.admit(address, *charge) is Admission.OK for address, charge in charges.items()) else None


def _route(state: State, send: Send) -> Groups:
    """Find the queues of one send's messages."""
    targets = state.candidates(send.address, send.queue, send.routing_type)
    candidates = arrival.takers(send.messages[0].header, targets)
    return arrival.route(state.steps, send.messages, *candidates, send.address)


def _refuses(state: State, send: Send, groups: Groups) -> bool:
    """Whether a send has messages that must be refused: they are meant for a queue, and none accepts them."""
    if not send.needs_queue or sum([len(messages) for _, messages in groups]) == len(send.messages):
        return False
    return not arrival.may_lose(send.address, state.candidates(send.address, send.queue, send.routing_type))


def _hold(
    state: State,
    send: Send,
    groups: Groups,
    arrived: dict[Queue, list[list[Message]]],
    leads: list[MessageLead | None],
    first: int,
) -> int:
    """Assign one send's messages to their queues, and note the leads of their records; returns how many were routed."""
    address, run = send.address, send.messages
    header = run[0].header
    for queues, messages in groups:
        arrival.hold(state, queues, messages)
        durable = [queue.id for queue in queues if queue.durable] if header.durable else []
        if durable:
            lead = state.ledger.lead(header, durable)
            for message in messages:
                leads[message.id - first] = lead
        for queue in queues:
            arrived.setdefault(queue, []).append(messages)
    routed = sum([len(messages) for _, messages in groups])
    if routed < len(run):
        taken = {message.id for _, messages in groups for message in messages}
        arrival.unroutable(state, address, [message for message in run if message.id not in taken])
    address.routed += routed
    state.totals.routed += routed
    return routed


def _store(state: State, messages: Sequence[Message], leads: list[MessageLead | None]) -> None:
    """Write messages that have a lead to the journal, in the order of their ids, as everywhere."""
    known = [lead for lead in leads if lead is not None]
    if not known:
        return
    stored = messages
    if len(known) < len(leads):
        stored = [message for at, message in enumerate(messages) if leads[at] is not None]
    state.ledger.stored_mixed(known, stored)


def _put(state: State, queue: Queue, everything: Sequence[Message], parts: list[list[Message]]) -> None:
    """Put messages of one or several sends on a queue, in groups that can enter together."""
    if len(parts) == 1:
        messages = parts[0]
    elif sum([len(part) for part in parts]) == len(everything):
        messages = list(everything)
    else:
        messages = sorted(chain.from_iterable(parts), key=_ID)
    state.count_added(queue, len(messages))
    if queue.durable:
        queue.stored += sum([len(part) for part in parts if part[0].header.durable])
    admitted = messages if queue.messages_max < 0 else arrival.within_limit(state, queue, messages)
    if not admitted:
        return
    alike = len({_lands_with(part[0]) for part in parts}) == 1
    for together in [admitted] if alike else [list(group) for _, group in groupby(admitted, _lands_with)]:
        if queue.durable and together[0].header.durable:
            arrival.stored(state, queue, together)
        else:
            arrival.follow(state, queue, together)


def _lands_with(message: Message) -> tuple[bool, int, int, int, bool]:
    header = message.header
    return header.durable, header.priority, header.expiration, header.scheduled, bool(header.group)
