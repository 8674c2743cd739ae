"""Arrival of messages: which queues accept them, their records in the journal, their places on the queues.

A run of messages with the same header is routed together.  Only filters, and several anycast queues on one address,
split a run; then the messages are grouped by the queues that accept them.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby, islice
from operator import itemgetter
from typing import Final

from broker.engine.model.errors import DiskFull, NoQueue, QueueDisabled
from broker.engine.model.message import NEW, Message, MessageHeader, size_of
from broker.engine.model.names import is_temporary
from broker.engine.queues.address import Address
from broker.engine.queues.bindings import ASKED_FOR_A_MICROSECOND, ENTERED_FOR_A_MICROSECOND, Targets
from broker.engine.queues.grouped import bucket
from broker.engine.queues.matches import Matches
from broker.engine.queues.paging import admit
from broker.engine.queues.paging.tail import Landing
from broker.engine.queues.pending import FanOut
from broker.engine.queues.queue import DeliveryState, Queue
from broker.engine.queues.removal import remove
from broker.engine.queues.room import Admission, pageable, places_left, queue_has_recovered
from broker.engine.queues.rules.queue_rules import NO_RULES, Verdict
from broker.engine.queues.state import State
from broker.engine.queues.steps import Steps
from store.body import LargeBody
from store.errors import JournalFull
from store.record import RemovalReason

#: A run that enters more queues lands on some of them in each tick.
MANY_QUEUES: Final = 256

#: With how many of those that came before it a run looks for one that enters the same queues.
SHARED_WITH: Final = 4

#: Queues, and the messages that all of them accept, in order of arrival.
Group = tuple[list[Queue], list[Message]]

#: How long a message that could not be moved (full disk) waits before the next attempt.
MOVE_RETRY_MS: Final = 5_000


def route(
    steps: Steps, messages: list[Message], anycast: list[Queue], multicast: list[Queue], address: Address
) -> list[Group]:
    """Which queues get which messages (as in ActiveMQ Artemis).  Messages that no queue accepts are in no group.

    Spends what the filters cost.
    """
    if not anycast:
        if all([queue.accepts_all for queue in multicast]):
            return [(multicast, messages)] if multicast else []
    elif not multicast and len(anycast) == 1 and anycast[0].accepts_all:
        return [(anycast, messages)]
    groups: dict[tuple[int, ...], tuple[list[Queue], list[Message]]] = {}
    for message in messages:
        found = Matches(message)
        queues = [queue for queue in multicast if queue.accepts(message, found)]
        if anycast:
            queue = _choose(message, found, anycast, address)
            if queue is not None:
                queues.append(queue)
        if queues:
            key = tuple([queue.id for queue in queues])
            groups.setdefault(key, (queues, []))[1].append(message)
        steps.spend(found.cost + len(multicast) // ASKED_FOR_A_MICROSECOND)
    return list(groups.values())


def _choose(message: Message, found: Matches, anycast: list[Queue], address: Address) -> Queue | None:
    """One of several anycast queues: round-robin, those with a consumer before those without.

    The messages of a group all go to the same queue, with or without consumers, as long as the queues are the same.
    """
    if message.header.group and len(anycast) > 1:
        takers = [queue for queue in anycast if queue.accepts(message, found)]
        return takers[bucket(message.header.group, len(takers))] if takers else None
    fallback: Queue | None = None
    for step in range(len(anycast)):
        queue = anycast[(address.turn + step) % len(anycast)]
        if not queue.accepts(message, found):
            continue
        if queue.consumers and not queue.stopped:
            address.turn += step + 1
            return queue
        if fallback is None:
            fallback = queue
    if fallback is not None:
        address.turn = anycast.index(fallback) + 1
    return fallback


def takers(header: MessageHeader, targets: Targets) -> Targets:
    """The queues that messages with this header may enter: the queues of absent clients accept only durable ones."""
    if header.durable:
        return targets
    anycast, multicast = targets
    return [queue for queue in anycast if not queue.durable_only], [q for q in multicast if not q.durable_only]


def enter(
    state: State,
    address: Address,
    messages: list[Message],
    groups: list[Group],
    *,
    nbytes: int = -1,
    page: bool = False,
) -> int:
    """Let a run of messages with the same header enter queues, as `route` says; returns how many do.

    Nothing is asked any more: there must be room for them in the journal's entry.  `nbytes` is their size, if it is
    known; `page`: they wait on disk only.
    """
    assign_ids(state, messages)
    routed = 0
    for queues, run in groups if len(groups) < 2 else _in_order(state, groups):
        _place(state, address, queues, run, nbytes if run is messages else -1, full=page)
        routed += len(run)
    count_routed(state, address, routed)
    return routed


def enter_moved(state: State, address: Address, message: Message, targets: Targets, admission: Admission) -> None:
    """Let a message that the broker has accepted before enter queues: it is never refused."""
    groups = route(state.steps, [message], *takers(message.header, targets), address)
    enter(state, address, [message], groups, page=admission is not Admission.OK)
    if not groups:
        unroutable(state, address, [message])


def assign_ids(state: State, messages: Sequence[Message]) -> None:
    """Give messages their ids, in their order."""
    id = state.journal.allocate_ids(len(messages))
    for message in messages:
        message.id = id
        id += 1


def count_routed(state: State, address: Address, count: int) -> None:
    """Count messages sent to an address that entered a queue."""
    address.routed += count
    state.totals.routed += count


def _in_order(state: State, groups: list[Group]) -> list[Group]:
    """The same groups; divided into runs in order of arrival if any lands on many queues: runs may land ticks apart."""
    if not any([are_many(state, queues) for queues, _ in groups]):
        return groups
    arrived = sorted([(message.id, at, message) for at, (_, run) in enumerate(groups) for message in run])
    runs = groupby(arrived, itemgetter(1))
    return [(groups[at][0], [message for *_, message in together]) for at, together in runs]


def left(messages: list[Message], groups: list[Group]) -> list[Message]:
    """The messages that no queue accepts: those in no group."""
    taken = {message for _, run in groups for message in run}
    return [message for message in messages if message not in taken]


def may_lose(address: Address, targets: Targets) -> bool:
    """Whether messages meant for a queue may be dropped if no queue accepts them.

    A queue may be set to keep nothing without consumers (`purge-on-no-consumers`), and a reply to a temporary
    destination may come too late, when its client has left.
    """
    return is_temporary(address.name) or any([queue.forgets for queue in targets[0] + targets[1]])


def no_queue(address: Address, targets: Targets, messages: list[Message]) -> NoQueue:
    """The error for messages meant for a queue that none of these accepts."""
    queues = targets[0] + targets[1]
    shut = [queue.name for queue in queues if not queue.open]
    if not queues:
        why = f"address {address.name} has no queue for it"
    elif len(shut) == len(queues):
        why = f"queue {shut[0]} of address {address.name} is disabled"
        return QueueDisabled(f"no queue takes the message: {why}", messages)
    else:
        why = f"no queue of address {address.name} has a filter that matches it"
    return NoQueue(f"no queue takes the message: {why}", messages)


def unroutable(state: State, address: Address, messages: Sequence[Message]) -> None:
    """Count messages with the same header that no queue accepted, and drop them by name, unless they are retained."""
    if not messages or messages[0].header.retained:
        return
    address.unrouted += len(messages)
    state.totals.unrouted += len(messages)
    if messages[0].header.durable:
        state.ledger.dropped(address.name, messages, RemovalReason.UNROUTABLE)


def reserve(state: State, messages: list[Message], *, essential: bool) -> None:
    """Make sure that the journal has room for these messages.  Raises DiskFull."""
    if not state.atomic:
        reserve_bytes(state, size_of(messages), essential=essential)


def reserve_bytes(state: State, need: int, *, essential: bool) -> None:
    """Make sure that the journal has room for `need` bytes.  Raises DiskFull.

    Here the journal may end one entry and begin another, so this does nothing within a transaction's commit, which has
    reserved all its room beforehand.
    """
    if state.atomic:
        return
    try:
        state.journal.reserve(need, essential=essential)
    except JournalFull as full:
        raise DiskFull(f"the journal has no room for {need} bytes: {full}") from full


def drop(state: State, address: Address, messages: list[Message]) -> None:
    """Drop messages that a full address does not take, by name."""
    address.dropped += len(messages)
    state.totals.dropped += len(messages)
    if messages[0].header.durable:
        state.ledger.dropped(address.name, messages, RemovalReason.DROPPED)
    state.room.report_dropping(address)


def _place(
    state: State, address: Address, queues: list[Queue], messages: list[Message], nbytes: int, *, full: bool
) -> None:
    """Put a run on its queues, through the journal where both messages and queue are durable; on disk only if `full`.

    Messages on a non-durable queue do not wait for the journal, unless they are paged, even if other queues store them.
    """
    header = messages[0].header
    paged: Collection[Queue] = ()
    if full or state.paged or state.pending.paging:
        paged = admit.choose(state, header, queues, full=full)
    hold(state, queues, messages, nbytes)
    durable = _durable_ids(state, address, queues) if header.durable else ()
    if durable:
        header_bytes = state.ledger.stored(header, durable, messages)
    end = state.journal.end
    if header.attempts != NEW:
        for queue in queues:
            note_attempts(state, queue, messages, header.attempts)
    if are_many(state, queues):
        page: Landing | None = None
        if paged:
            paged = set(paged)
            page = admit.place(state, messages, messages, header_bytes, end) if durable else Landing(messages, 0, 0, ())
        queues = _fan_out(state, queues, messages, paged, page, full=full, storing=len(durable))
    for queue in queues:
        state.totals.count_added(queue, len(messages))
        if durable and queue.durable:
            queue.stored += len(messages)
        admitted = messages if queue.messages_max < 0 else within_limit(state, queue, messages, full=full)
        if not admitted:
            continue
        if durable and (queue.durable or queue in paged):
            if queue in paged:
                admit.expect(state, queue, admitted, messages, header_bytes, end)
            stored(state, queue, admitted, paged=queue in paged)
        else:
            follow(state, queue, admitted, paged=queue in paged)


def are_many(state: State, queues: list[Queue]) -> bool:
    """Whether a run that enters these queues lands on some of them in each tick."""
    return len(queues) > 1 and len(queues) > state.steps.at_most(MANY_QUEUES)


def _durable_ids(state: State, address: Address, queues: list[Queue]) -> Sequence[int]:
    """The ids of the queues that store durable messages; noted if they are all that the address sends messages to."""
    if len(queues) <= MANY_QUEUES:
        return [queue.id for queue in queues if queue.durable]
    reach = state.bindings.reached(address)
    if queues is not reach.targets[1]:
        return [queue.id for queue in queues if queue.durable]
    if reach.durable_ids is None:
        reach.durable_ids = array("Q", [queue.id for queue in queues if queue.durable])
    return reach.durable_ids


def _fan_out(
    state: State,
    queues: list[Queue],
    messages: list[Message],
    paged: Collection[Queue],
    page: Landing | None,
    *,
    full: bool,
    storing: int,
) -> list[Queue]:
    """Let a run enter many queues, on which it lands some at a time; returns the others, which it enters at once.

    `paged`: those on which it waits on disk only, at this `page`; `storing`: how many of the queues store it.  Hardly
    anything is done for each queue here: there may be 100,000.
    """
    alone, many = list[Queue](), queues
    if full and not storing:
        alone = [queue for queue in queues if queue.messages_max >= 0]
        if alone:
            many = [queue for queue in queues if queue.messages_max < 0]
    later, at_once = many, list[Queue]()
    if storing < len(queues):
        later = [queue for queue in many if _awaits_others(queue) or (storing and (queue.durable or queue in paged))]
        awaiting = set(later)
        at_once = [queue for queue in many if queue not in awaiting]
    for some, waits in ((later, True), (at_once, False)):
        parts: list[tuple[list[Queue], Landing | None]] = [(some, None)]
        if page is not None:
            parts = [
                ([each for each in some if each in paged], page),
                ([each for each in some if each not in paged], None),
            ]
        for part, where in parts:
            if len(part) > 1:
                _begin_fan_out(state, part, messages, where, waits=waits)
            else:
                alone += part
    return alone


def _begin_fan_out(
    state: State, queues: list[Queue], messages: list[Message], page: Landing | None, *, waits: bool
) -> None:
    """Let a run land on these queues, some at a time; `waits`: once it is durable."""
    count = len(messages)
    for queue in queues:
        queue.fanned += count
    if page is not None:
        state.pending.paging += 1
        for queue in queues:
            queue.paging += count
            queue.address.landing_messages += count
            queue.address.landing_bytes += page.nbytes
    state.steps.spend(len(queues) // ENTERED_FOR_A_MICROSECOND)
    if waits:
        landing = state.pending.landing_work(queues).landing
        queues = _shared(queues, [each for each, _, _ in islice(reversed(landing), SHARED_WITH)])
        landing.append((queues, messages, page))
    else:
        queues = _shared(queues, [fan.queues for fan in islice(reversed(state.pending.fans), SHARED_WITH)])
        state.pending.fans.append(FanOut(state.pending.work.number, queues, messages, page))


def _shared(queues: list[Queue], others: Iterable[list[Queue]]) -> list[Queue]:
    """One of the others if it has the same queues.

    Thousands of messages may be on their way to thousands of queues each: with a list for each message the collector of
    cycles would visit millions of places, and these would take 100 MiB.
    """
    return next((each for each in others if each == queues), queues)


def _awaits_others(queue: Queue) -> bool:
    """Whether messages that come to a queue land behind others."""
    return bool(queue.landing or queue.fanned)


def land_from(state: State, fan: FanOut, queue: Queue) -> None:
    """Let a run land on the next of its queues, as far as the limit of that allows."""
    messages = fan.messages
    if len(fan.queues) == 1:
        queue.behind -= 1
        queue.landing -= len(messages)
        assert queue.behind >= 0, "it waited behind others"
        assert queue.landing >= 0, "it was counted as landing"
    else:
        enter_from_many(state, queue, messages, fan.page)
        if queue.messages_max >= 0:
            messages = within_limit(state, queue, messages, behind=queue.landing + queue.fanned)
    if messages:
        land(state, queue, messages, page=fan.page)


def enter_from_many(state: State, queue: Queue, messages: list[Message], page: Landing | None) -> None:
    """Count messages as having come that were on their way to this and many other queues.

    `page`: where they are to be paged.
    """
    queue.fanned -= len(messages)
    assert queue.fanned >= 0, "they were on their way to this queue"
    if page is not None:
        queue.paging -= len(messages)
        assert queue.paging >= 0, "they were to be paged here"
        queue.address.landing_messages -= len(messages)
        queue.address.landing_bytes -= page.nbytes
    state.totals.count_added(queue, len(messages))
    if queue.durable and messages[0].segment:
        queue.stored += len(messages)


def within_limit(
    state: State, queue: Queue, messages: list[Message], *, full: bool = False, behind: int = 0
) -> list[Message]:
    """The messages of a run that may stay on a queue with a limit; the rest is recorded as entered and dropped.

    `full`: the messages would have to be paged; `behind`: messages that come to the queue after these.
    """
    paging = not messages[0].header.durable and (full or queue.tail is not None)
    if queue.drop_oldest and not paging:
        return messages
    free = max(places_left(queue, 0 if paging else queue.messages_max) + behind, 0)
    if len(messages) <= free:
        if queue.overflowing and not (full or queue.tail) and queue_has_recovered(queue, free - len(messages)):
            queue.overflowing = False
        return messages
    left = messages[free:]
    if not queue.overflowing:
        queue.overflowing = True
        if paging:
            state.report("queue.full.memory", queue=queue.name, bytes=state.usage.bytes)
        else:
            state.report("queue.full.dropping", queue=queue.name, messages=queue.messages_max)
    remove(state, queue, left, RemovalReason.DROPPED)
    return messages[:free]


def note_attempts(state: State, queue: Queue, messages: list[Message], count: int) -> None:
    """Set the failed deliveries, made elsewhere, of messages that have just entered a queue."""
    if queue.non_destructive:
        return
    queue.states.update(dict.fromkeys([message.id for message in messages], DeliveryState(count, state.now)))
    if queue.durable and messages[0].header.durable:
        state.ledger.counts(queue, messages)


def hold(state: State, queues: list[Queue], messages: list[Message], nbytes: int = -1) -> None:
    """Count messages of one address as in memory, held by all of these queues; `nbytes`: their size, if known."""
    if len(queues) > 1:
        for message in messages:
            message.refs = len(queues)
    state.room.charge(messages[0].header.address, messages, nbytes)


def keep(state: State, queue: Queue, message: Message) -> None:
    """Store a message on one durable queue that has no consumers, so it may be ready before it is durable.

    Nothing is checked, and the queue's address is charged.
    """
    header = message.header
    message.id = state.journal.allocate_ids(1)
    state.room.charge(queue.address.name, [message])
    state.ledger.stored(header, [queue.id], [message])
    state.totals.count_added(queue, 1)
    queue.stored += 1
    queue.backlog.append([message], header.priority)
    state.schedule.watch(queue, [message])


def stored(state: State, queue: Queue, messages: list[Message], *, paged: bool = False) -> None:
    """Let messages in the journal's open entry, which can land together, land once it is durable.

    On a strict queue they land at once, as they do for a consumer whose sink records what it sends.  No delivery is
    sent before its own record is durable, which comes after the message's record or is in the same entry: so consumers
    wait for the disk once, not twice.
    """
    early = (queue.strict or _is_recorded(queue)) and queue.rules is NO_RULES
    if early and not (paged or queue.non_destructive or _awaits_others(queue)):
        queue.ahead = max(queue.ahead, state.pending.landing_work([queue]).number)
        land(state, queue, messages)
        return
    _await_disk(state, queue, messages)


def follow(state: State, queue: Queue, messages: list[Message], *, paged: bool = False) -> None:
    """Let messages that need not be durable land: at once, or behind earlier ones of the queue that wait for the disk.

    So a producer's messages keep their order, durable or not.
    """
    if not _awaits_others(queue):
        land(state, queue, messages, paged=paged)
        return
    if paged:
        admit.expect_scratch(state, queue, messages)
    _await_disk(state, queue, messages)


def _await_disk(state: State, queue: Queue, messages: list[Message]) -> None:
    queue.landing += len(messages)
    queues = [queue]
    state.pending.landing_work(queues).landing.append((queues, messages, None))


def _is_recorded(queue: Queue) -> bool:
    """Whether all deliveries from this queue are in the journal before they are sent."""
    consumers = queue.consumers
    return len(consumers) == 1 and consumers[0].sink.journals_deliveries(consumers[0])


def land(
    state: State, queue: Queue, messages: list[Message], *, paged: bool = False, page: Landing | None = None
) -> None:
    """Make messages ready, or scheduled if their time has not come.

    `paged`: they belong in the queue's tail, though the journal does not have them; `page`: they belong there, at this
    place of them and perhaps more, if the queue can still page.
    """
    header = messages[0].header
    landing: Landing | None = None
    if page is not None:
        if pageable(queue):
            landing, paged = page.first(messages), True
    elif queue.tail is not None and queue.tail.landing and queue.tail.landing[0].messages is messages:
        landing = queue.tail.arrived()
        paged = True
    if paged and not (header.scheduled > state.now and isinstance(messages[0].body, LargeBody)):
        if queue.rules is not NO_RULES and header.scheduled <= state.now:
            messages = arrived(state, queue, messages)
        if messages:
            admit.enter(state, queue, messages, landing)
        return
    if header.group and not queue.grouped and queue.attributes.groups:
        queue.begin_groups()
    if header.scheduled > state.now:
        for message in messages:
            schedule(state, queue, message, header.scheduled)
    else:
        if queue.rules is not NO_RULES:
            messages = arrived(state, queue, messages)
        queue.backlog.append(messages, header.priority)
        if header.expiration:
            state.schedule.watch(queue, messages)
    state.dirty[queue] = None


# -- what the rules of a queue say -------------------------------------------------------------------------------------


def arrived(state: State, queue: Queue, messages: list[Message]) -> list[Message]:
    """The messages of a run that become ready."""
    state.dirty[queue] = None
    return apply(state, queue, messages, queue.rules.arrived(messages, attended=bool(queue.consumers)))


def returned(state: State, queue: Queue, messages: list[Message]) -> list[Message]:
    """The returned deliveries that stay, for redelivery."""
    return apply(state, queue, messages, queue.rules.returned(messages, attended=bool(queue.consumers)))


def fitting(state: State, queue: Queue, messages: list[Message]) -> list[Message]:
    """Those messages to be put back for which the queue has room."""
    return apply(state, queue, messages, queue.rules.fitting(messages, queue.ready))


def due(state: State, queue: Queue, messages: list[Message]) -> list[Message]:
    """The scheduled messages whose time has come that become ready."""
    staying = apply(state, queue, messages, queue.rules.due(messages, attended=bool(queue.consumers)))
    return fitting(state, queue, staying)


def apply(state: State, queue: Queue, messages: list[Message], verdict: Verdict) -> list[Message]:
    """Carry out a verdict on messages that come to a queue; returns those that stay.

    Others that leave because of them are taken out of the container where they wait.
    """
    staying, leaving = verdict
    if not leaving:
        return staying
    coming = {message.id for message in messages}
    assert len({message.id for message, _ in leaving}) == len(leaving), "a message leaves once"
    by_reason: dict[RemovalReason, list[Message]] = {}
    for message, reason in leaving:
        if message.id not in coming:
            take_out(state, queue, message)
        by_reason.setdefault(reason, []).append(message)
    for reason, some in by_reason.items():
        remove(state, queue, some, reason)
    return staying


# -- where messages wait -----------------------------------------------------------------------------------------------


def schedule(state: State, queue: Queue, message: Message, due: int) -> None:
    """Hold a message back until `due` (ms since the epoch); on disk if memory is full."""
    if not admit.hold_back(state, queue, message, due):
        state.schedule.hold(queue, message, due)


def take_out(state: State, queue: Queue, message: Message) -> None:
    """Take a ready or scheduled message out of its container."""
    waiting = queue.scheduled.pop(message.id, None)
    if waiting is not None:
        state.schedule.scheduled.remove(waiting[0], (queue.id, message.id))
    else:
        state.schedule.unwatch(queue, [message])
        queue.backlog.discard(message)


def hold_for_retry(state: State, queue: Queue, messages: list[Message], ms: int = MOVE_RETRY_MS) -> None:
    """Schedule messages that could not be moved for another attempt; they stay on their queue."""
    for message in messages:
        schedule(state, queue, message, state.now + ms)
