"""The order in which messages of several sends are published, so that each queue has them in order of arrival.

There are three ways to ensure that, the cheapest first:

    a send at a time     no queue gets messages of two sends that overlap (with `stop`: and none may be refused)
    together             all go straight to few queues, and nothing is full: each send's messages enter its queues, and
                         are put back in order where that matters, by their ids, which rise in order of arrival, in
                         the journal and on each queue
    in turn              else: a send is split where a message of another one comes between
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import Final

from broker.engine.model.errors import AddressFull
from broker.engine.model.message import NEW, Message, size_of
from broker.engine.publish.plan import Plan, is_straight, plan, plan_straight
from broker.engine.publish.send import Send
from broker.engine.queues import arrival
from broker.engine.queues.address import Address
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State
from store.body import LargeBody
from store.record import MessageLead

#: Some messages of a send, to be published in their turn, with their plan if it is made: then nothing is full.
Part = tuple[Send, list[Message], Plan | None]

_ID: Final[Callable[[Message], int]] = attrgetter("id")


def in_order(state: State, sends: Sequence[Send], arrived: Sequence[Message], *, stop: bool = False) -> list[Part]:
    """Publish several sends together if necessary and possible; otherwise return the parts in which to publish them.

    With `stop`, if any message may be refused, the parts are in the order in which all messages arrived.

    Raises DiskFull, before anything changed.
    """
    follow = _follow(state, arrived, sends)
    if follow and not stop:
        return [(send, send.messages, None) for send in sends]
    plans = _certain(state, sends, stop=stop)
    if plans is not None:
        need = sum([each.bytes_needed() for each in plans])
        if need:
            arrival.reserve_bytes(state, need, essential=False)
        if follow:
            return _parts(sends, plans)
        if _may_join(state, plans):
            _publish_together(state, arrived, sends, plans)
            return []
        _discard(plans)
    of = {message: send for send in sends for message in send.messages}
    return [(send, list(group), None) for send, group in groupby(arrived, of.__getitem__)]


def _parts(sends: Sequence[Send], plans: Sequence[Plan]) -> list[Part]:
    """A part for each send, with its plan if that holds until then."""
    parts: list[Part] = []
    for send, made in zip(sends, plans, strict=True):
        if not made.straight:
            made.discard()
        parts.append((send, send.messages, made if made.straight else None))
    return parts


def _certain(state: State, sends: Sequence[Send], *, stop: bool) -> list[Plan] | None:
    """The plans of all sends if none of their messages will be refused, and nothing is full even with all of them.

    None: that is not so, or an address does more than route and no `stop` asks what becomes of that.
    """
    plans: list[Plan] = []
    charges: dict[Address, tuple[int, int]] = {}
    total = 0
    for send in sends:
        messages, address = send.messages, send.address
        nbytes = size_of(messages)
        total += nbytes
        count, before = charges.get(address, (0, 0))
        charges[address] = count + len(messages), before + nbytes
        made = _plan(state, send, nbytes, stop=stop)
        if made is not None:
            plans.append(made)
        if made is None or made.lost:
            _discard(plans)
            return None
    room = state.room
    if not state.usage.fits(total) or not all([room.takes(address, *charge) for address, charge in charges.items()]):
        _discard(plans)
        return None
    return plans


def _plan(state: State, send: Send, nbytes: int, *, stop: bool) -> Plan | None:
    if is_straight(state, send, send.messages):
        return plan_straight(state, send, send.messages, nbytes)
    if not stop:
        return None
    try:
        return plan(state, send, send.messages, checks=True)
    except AddressFull:
        return None


def _discard(plans: list[Plan]) -> None:
    for made in reversed(plans):
        made.discard()


def _follow(state: State, arrived: Sequence[Message], sends: Sequence[Send]) -> bool:
    """Whether sends that reach the same queue do not overlap: one's first message comes after the other's last."""
    reached: dict[Queue, Send] = {}
    places: dict[Message, int] = {}
    for send in sends:
        extras = state.diverts.extras(send.address)
        if extras is not None and extras.reach:
            return False  # diverts lead to others
        targets = state.bindings.candidates(send.address, send.queue, send.routing_type)
        if arrival.are_many(state, targets[1]):
            return False  # they are not looked at one by one
        for queue in chain(*targets):
            before = reached.get(queue)
            if before is not None:
                if not places:
                    if _comes_later(arrived, before.messages[-1], send.messages[0]):
                        return False  # the usual case where sends alternate
                    places = {message: at for at, message in enumerate(arrived)}
                if places[before.messages[-1]] > places[send.messages[0]]:
                    return False
            reached[queue] = send
    return True


def _comes_later(arrived: Sequence[Message], one: Message, other: Message) -> bool:
    """Whether `one` arrived after `other`; searches from the end."""
    for at in range(len(arrived) - 1, -1, -1):
        message = arrived[at]
        if message is one or message is other:
            return message is one
    raise AssertionError("both have arrived")


# -- together ----------------------------------------------------------------------------------------------------------


def _may_join(state: State, plans: Sequence[Plan]) -> bool:
    """Whether runs can be published together: all go straight to few queues, and nothing is paged."""
    if state.paged:
        return False
    for made in plans:
        if not made.straight:
            return False
        first = made.messages[0]
        if isinstance(first.body, LargeBody) or first.header.attempts != NEW:
            return False
        if any([arrival.are_many(state, queues) for queues, _ in made.groups]):
            return False
    return True


def _publish_together(state: State, messages: Sequence[Message], sends: Sequence[Send], plans: Sequence[Plan]) -> None:
    """Accept the messages of all sends, which are in order of arrival."""
    arrival.assign_ids(state, messages)
    first = messages[0].id
    arrived: dict[Queue, list[list[Message]]] = {}
    leads: list[MessageLead | None] = [None] * len(messages)
    for send, made in zip(sends, plans, strict=True):
        send.routed += _hold(state, made, arrived, leads, first)
    _store(state, messages, leads)
    for queue, parts in arrived.items():
        _put(state, queue, messages, parts)
    for send in sends:
        send.accepted(send.messages)


def _hold(
    state: State, made: Plan, arrived: dict[Queue, list[list[Message]]], leads: list[MessageLead | None], first: int
) -> int:
    """Assign one send's messages to their queues, and note the leads of their records; returns how many were routed."""
    address, header = made.address, made.messages[0].header
    routed = 0
    for queues, messages in made.groups:
        arrival.hold(state, queues, messages)
        durable = [queue.id for queue in queues if queue.durable] if header.durable else []
        if durable:
            lead = state.ledger.lead(header, durable)
            for message in messages:
                leads[message.id - first] = lead
        for queue in queues:
            arrived.setdefault(queue, []).append(messages)
        routed += len(messages)
    arrival.unroutable(state, address, made.left)
    arrival.count_routed(state, address, routed)
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
    state.totals.count_added(queue, len(messages))
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
