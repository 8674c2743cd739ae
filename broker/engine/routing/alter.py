"""Changes existing queues and addresses: their attributes, by a reload or by an operator, and whether they are paused.

A change of a queue with many messages is effective at once for what arrives from then on, and in steps for them: those
that are on disk only are read back, and values replaced by newer ones leave.  A start does that, too.

Changes are stored in the definition, and so survive a restart.  A queue of the configuration gets the configuration's
attributes again at a reload or a restart, but stays paused or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from broker.engine.filter import Filter
from broker.engine.model.access import Access
from broker.engine.model.attributes import QueueAttributes, RequestedAttributes, with_requested
from broker.engine.model.errors import AlreadyInUse, NotReadable
from broker.engine.model.message import Message, RoutingType
from broker.engine.queues import arrival, consumer_lifecycle, displacing
from broker.engine.queues.address import Address
from broker.engine.queues.definitions import address_record, queue_record
from broker.engine.queues.paging import depage
from broker.engine.queues.queue import Queue
from broker.engine.queues.room import may_page
from broker.engine.queues.rules.queue_rules import NO_RULES, rules_for
from broker.engine.queues.state import State
from broker.engine.queues.steps import LongWork

#: How many messages are brought under new rules in one step, and what each costs, in microseconds (`steps`).
LEARNED_TOGETHER: Final = 128
LEARN_COST: Final = 8

#: Queues of an address that are resumed together, and what it costs to resume one, in microseconds.
RESUMED_TOGETHER: Final = 256
RESUME_COST: Final = 1

#: Attributes that change how a queue's messages relate to each other and to consumers.
_ESSENTIAL: Final = ("key", "non_destructive")


def change(state: State, queue: Queue, asked: RequestedAttributes) -> bool:
    """Change some attributes of a queue; returns whether anything changed.

    A smaller ring does not shrink the queue at once: each new message replaces one older message, and consumers take
    the rest.  Raises AlreadyInUse for a change of last-value or non-destructive attributes while the queue has
    consumers.
    """
    return become(state, queue, with_requested(queue.attributes, asked))


def become(state: State, queue: Queue, attributes: QueueAttributes) -> bool:
    """Replace all attributes of a queue; returns whether anything changed.  Raises AlreadyInUse."""
    before = queue.attributes
    if attributes == before:
        return False
    essential = _check(queue, attributes)
    tail = queue.tail
    if not may_page(attributes) and tail is not None and (chunk := tail.first()) is not None:
        depage.load(state, queue, chunk)  # so that an unreadable disk is known before anything changes
    rules = queue.rules
    queue.attributes = attributes
    queue.non_destructive = attributes.non_destructive
    queue.rules = rules_for(attributes)
    queue.rules.succeed(None if essential else rules, attended=bool(queue.consumers))
    regrouped = (attributes.groups, attributes.group_buckets, bool(attributes.group_first_key)) != (
        before.groups,
        before.group_buckets,
        bool(before.group_first_key),
    )
    if attributes.non_destructive != before.non_destructive or (queue.grouped and regrouped):
        queue.rebuild()
    queue.refresh()
    state.dirty[queue] = None
    _define(state, queue)
    if attributes.purge_on_no_consumers:
        consumer_lifecycle.on_detach(state, queue)
    if (essential and queue.has_waiting) or (tail is not None and not may_page(attributes)):
        queue.returning += 1
        state.steps.begin(("adapting", queue), _adapt(state, queue))
    state.room.attributes_changed()
    return True


def _adapt(state: State, queue: Queue) -> LongWork:
    """Bring the messages of a queue under its new rules; until that is done, nothing is delivered."""
    try:
        yield from depage.unpage(state, queue)
    except NotReadable as error:
        again = partial(_adapt_again, state, queue)
        state.report("paging.failed", queue=queue.name, error=str(error))
        state.alarms.at(object(), state.now + depage.RETRY_MS, again)
        return
    yield from _learn(state, queue)
    queue.returning -= 1
    state.dirty[queue] = None


def _learn(state: State, queue: Queue, in_flight: Sequence[Message] = ()) -> LongWork:
    """Let a queue's rules learn the keys of all its messages, and remove those replaced by others.

    Newer ones may arrive meanwhile, but nothing may be delivered.
    """
    rules, values = queue.rules, queue.rules.values
    if values is None:
        return
    rules.learned(sorted(in_flight, key=lambda message: message.id), away=True)
    after, below = -1, state.journal.allocate_ids(1)  # larger than that of any message so far
    together = state.steps.at_most(LEARNED_TOGETHER)
    while not queue.deleted and queue.rules.values is values:
        run = queue.between(after, below, together)
        if not run:
            return
        after = run[-1].id
        if queue.scheduled:  # those that wait for their first time arrive then
            run = [message for message in run if queue.due_of(message.id) != (message.header.scheduled or -1)]
        unknown = [message for message in run if not values.knows(message)]
        arrival.apply(state, queue, [], queue.rules.learned(unknown))
        yield LEARN_COST * together


def _adapt_again(state: State, queue: Queue) -> None:
    if not queue.deleted:
        state.steps.begin(("adapting", queue), _adapt(state, queue))


def check(queue: Queue, asked: RequestedAttributes) -> None:
    """Raises AlreadyInUse if `change` would."""
    _check(queue, with_requested(queue.attributes, asked))


def _check(queue: Queue, attributes: QueueAttributes) -> bool:
    """Whether the change affects an essential attribute.  Raises AlreadyInUse if the queue is in use then."""
    essential = any(getattr(attributes, name) != getattr(queue.attributes, name) for name in _ESSENTIAL)
    if essential and (queue.consumers or queue.delivering):
        raise AlreadyInUse(
            f"queue {queue.name} is in use: last-value, last-value-key and non-destructive change only while"
            " it has no consumers"
        )
    return essential


def limit(state: State, queue: Queue, messages_max: int, *, drop_oldest: bool) -> None:
    """Limit the messages on a queue from the next one on (-1: no limit); `drop_oldest`: old ones make room for new."""
    if (queue.messages_max, queue.drop_oldest) == (messages_max, drop_oldest):
        return
    queue.messages_max, queue.drop_oldest = messages_max, drop_oldest
    _define(state, queue)


def redefine(state: State, queue: Queue, routing_type: RoutingType, filter: Filter | None) -> bool:
    """Give a queue another routing type and filter, for messages to come; returns whether anything changed."""
    text = filter.text if filter else ""
    if queue.routing_type is routing_type and (queue.filter.text if queue.filter else "") == text:
        return False
    assert queue.routing_type is routing_type or not queue.consumers, "they have subscribed to one of the other type"
    changes = queue.routing_type is not routing_type
    with state.bindings.redefining(queue):
        queue.routing_type, queue.filter = routing_type, filter
        queue.refresh()
    if changes and routing_type not in queue.address.routing_types:
        state.registry.add_routing_type(queue.address, routing_type)
    _define(state, queue)
    return True


def change_no_local(state: State, queue: Queue, origin: str) -> None:
    """Set the origin whose messages the queue rejects from now on; "": it accepts all."""
    if queue.no_local != origin:
        queue.no_local = origin
        queue.refresh()
        _define(state, queue)


def filter_for(state: State, queue: Queue, access: Access) -> bool:
    """Let a queue accept only messages that its reader may read, if this is its reader; returns whether it is.

    Its reader is the user who made it, with the rights that this user has now: it may hold messages that others may
    not read.  This is the only place that says whose rights count; `unfilter` ends that.
    """
    if queue.creator != access.user:
        return False
    filtered, queue.reader = queue.reader is not None, access
    queue.refresh()
    if not filtered:
        _define(state, queue)
    return True


def unfilter(state: State, queue: Queue) -> None:
    """Let a queue accept messages whoever may read them, as its subscriber may read all of its address."""
    if queue.reader is not None:
        queue.reader = None
        queue.refresh()
        _define(state, queue)


def hand_over(state: State, queue: Queue, user: str) -> None:
    """Make a queue that a user's subscription has created another user's."""
    if queue.creator != user:
        state.registry.quotas.remove(queue.creator)
        state.registry.quotas.add(user)
        queue.creator = user
        _define(state, queue)


def pause(state: State, queue: Queue, *, paused: bool) -> bool:
    """Pause or resume a queue's deliveries; returns whether anything changed.  Messages still enter and expire."""
    if queue.paused == paused:
        return False
    queue.paused = paused
    queue.refresh()
    state.dirty[queue] = None
    _define(state, queue)
    return True


def pause_address(state: State, address: Address, *, paused: bool) -> bool:
    """Pause or resume all queues on an address, including those created later."""
    if address.paused == paused:
        return False
    address.paused = paused
    state.journal.define(address.id, address_record(address))
    if paused:  # at once: nothing more may be delivered
        for queue in state.bindings.queues(address):
            queue.refresh()
    else:
        state.steps.begin(("resumed", address), _resume(state, list(state.bindings.queues(address))))
    return True


def _resume(state: State, queues: Sequence[Queue]) -> LongWork:
    """Let queues deliver again whose address was paused, unless it is once more; there may be tens of thousands."""
    for at in range(0, len(queues), RESUMED_TOGETHER):
        some = queues[at : at + RESUMED_TOGETHER]
        for queue in some:
            if not queue.deleted:
                queue.refresh()
                state.dirty[queue] = None
        yield RESUME_COST * len(some)


def after_restart(state: State, in_flight: Mapping[Queue, list[Message]]) -> None:
    """Apply the rules of each queue to its restored messages, before there are consumers.

    `in_flight`: those that are in flight to clients, whose sessions take them over next.
    """
    for queue in list(state.queues.values()):
        if queue.rules is not NO_RULES:
            _restore_rules(state, queue, in_flight.get(queue, []))
        if queue.attributes.purge_on_no_consumers:
            consumer_lifecycle.on_detach(state, queue)


def _restore_rules(state: State, queue: Queue, in_flight: list[Message]) -> None:
    """Apply the rules of a queue to its restored messages; those `in_flight` will be deliveries again."""
    if queue.attributes.purge_on_no_consumers and not queue.consumers:
        return
    for message in in_flight:
        queue.backlog.discard(message)
    for _ in _learn(state, queue, in_flight):
        pass
    displacing.cut(state, queue, everything=True)
    if in_flight:
        queue.backlog.put_back(in_flight)


def _define(state: State, queue: Queue) -> None:
    if queue.durable:
        state.journal.define(queue.id, queue_record(queue))
