"""Publishing: the only way in for messages from clients, wills, operators and the broker itself.

The messages of one read are grouped into sends, one for each destination, which is found first (`find`).  Each queue
gets its messages in order of arrival, whatever their destinations (`order`).  What becomes of a run of messages is
planned, which asks everything, and then committed (`plan`).

The result lists the refused messages; the others are accepted.  With `stop`, for a protocol whose client counts up to
the first refusal, nothing that arrived after that one is accepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from broker.engine.model.errors import DiskFull, EngineError
from broker.engine.model.message import Message, recharge_headers, size_of
from broker.engine.publish.order import Part, in_order
from broker.engine.publish.plan import Plan, commit, is_straight, plan, plan_drop
from broker.engine.publish.send import PublishResult, Refusal, Send
from broker.engine.queues.address import Address, Producer
from broker.engine.queues.room import Admission
from broker.engine.queues.state import State
from broker.engine.queues.tracer import Tracer
from broker.engine.queues.uncommitted import Uncommitted
from broker.engine.routing import destinations

#: By these a full address accepts no more messages.
_NO_MORE: Final = frozenset((Admission.FAIL, Admission.DROP))
_OK: Final = Admission.OK


def find(state: State, send: Send) -> bool:
    """Find the destination of a send, creating what is missing if allowed; returns whether there is one."""
    if send.found or send.refusal is not None:
        return send.found
    address, queue = send.known, None
    if address is None or not destinations.is_current(state, address):
        wanted = send.made if send.made is not None and send.name not in state.addresses else send.routing_type
        outer, state.registry.made = state.registry.made, []
        try:
            address, queue = destinations.destination(state, send.name, wanted, access=send.access, asked=send.asked)
        except EngineError as error:
            send.refusal = error
            return False
        finally:
            send.created, state.registry.made = state.registry.made or None, outer
    send.address, send.queue, send.found = address, queue, True
    expire = send.header.expiration > 0
    for header in send.headers():
        address.receive(header, header.expiration, state.now)
    if (send.header.expiration > 0) is not expire:
        recharge_headers(send.messages)
    return True


def undo(state: State, sends: Iterable[Send]) -> None:
    """Delete what was created for sends that came to nothing, unless it is in use."""
    for send in sends:
        if send.created is not None and not send.routed:
            state.registry.undo(send.address, send.created)
        send.created = None


def publish(
    state: State,
    sends: Sequence[Send],
    arrived: Sequence[Message],
    *,
    producer: Producer | None = None,
    stop: bool = False,
    refused: Sequence[Send] = (),
) -> PublishResult:
    """Accept the messages of these sends, except those of the `refused` ones, which have no destination.

    `sends` are in the order of their first messages; `arrived` are the messages of all of them in order of arrival.
    With a `producer` the result says whether it must stop.
    """
    result = PublishResult()
    everything = arrived
    if refused:
        result.refusals = [Refusal(send, send.messages, send.refusal) for send in refused if send.refusal is not None]
        sends, arrived = _others(sends, arrived, result.refusals, stop=stop)
    parts: list[Part]
    if len(sends) == 1:
        parts = [(sends[0], sends[0].messages, None)]
    else:
        try:
            parts = in_order(state, sends, arrived, stop=stop)
        except DiskFull as error:
            without_room = [Refusal(send, send.messages, error) for send in sends]
            result.refusals = without_room if stop else result.refusals + without_room
            parts = []
    wrong: Message | None = None  # the first that is refused; with `stop` only what is `earlier` is accepted
    earlier: set[Message] = set()
    for send, messages, made in parts:
        if stop and result.refusals:
            if wrong is not result.refusals[0].messages[0]:
                wrong = result.refusals[0].messages[0]
                earlier = set(everything[: everything.index(wrong)])
            messages, made = [message for message in messages if message in earlier], None
        if messages:
            _publish_part(state, send, messages, made, result, producer, stop=stop)
    if state.tracer is not None:
        trace(state, state.tracer, everything, result.refusals)
    return result


def _others(
    sends: Sequence[Send], arrived: Sequence[Message], refusals: list[Refusal], *, stop: bool
) -> tuple[Sequence[Send], Sequence[Message]]:
    """The sends that were not refused, and their messages.

    With `stop` the messages behind the first refused one are taken out of their sends.
    """
    out = {message for refusal in refusals for message in refusal.messages}
    if stop:
        del refusals[1:]  # sends are in the order of their first messages
        out.update(arrived[arrived.index(refusals[0].messages[0]) :])
    for send in sends:
        if send.found:
            send.messages = [message for message in send.messages if message not in out]
    return [send for send in sends if send.found and send.messages], [each for each in arrived if each not in out]


def trace(state: State, tracer: Tracer, arrived: Sequence[Message], refusals: Sequence[Refusal] = ()) -> None:
    """Trace the accepted messages, which have ids by now, and the refused ones."""
    refused = {message for refusal in refusals for message in refusal.messages}
    taken = [message for message in arrived if message.id and message not in refused]
    if tracer.published(taken, state.pending.work.number):
        state.pending.work.waiters[tracer] = None
    for refusal in refusals:
        tracer.refused(refusal.messages, refusal.error)


def _publish_part(
    state: State,
    send: Send,
    messages: list[Message],
    made: Plan | None,
    result: PublishResult,
    producer: Producer | None,
    *,
    stop: bool,
) -> None:
    """Publish messages of one send in order, as many at once as possible; the producer may have to wait after it.

    If their plan is `made` already, nothing is full even with them.
    """
    address = send.address
    left, at, full = messages, 0, False
    while at < len(left):
        run, admission = left[at:] if at else left, _OK
        try:
            if made is None:
                nbytes = size_of(run)
                if not state.room.takes(address, len(run), nbytes):
                    full = True
                    run, admission = _admit(state, send, run, nbytes)
                    nbytes = -1
                dropped = admission is Admission.DROP and is_straight(state, send, run)
                made = plan_drop(send, run) if dropped else plan(state, send, run, nbytes)
            if not made.lost:
                send.routed += commit(state, send, made, admission, producer)
                send.accepted(run)
            elif stop:  # nothing changed: continue with those before the first that no queue accepts
                lost = set(made.lost)
                first = next(place for place in range(at, len(left)) if left[place] in lost)
                _refuse(result, Refusal(send, left[first:], made.no_queue), stop=True)
                made.discard()
                left, made = left[:first], None
                continue
            else:
                _refuse(result, Refusal(send, made.lost, made.no_queue), stop=False)
                send.routed += commit(state, send, made, admission, producer)
                lost = set(made.lost)
                if len(lost) < len(run):
                    send.accepted([message for message in run if message not in lost])
        except EngineError as error:
            _refuse(result, Refusal(send, left[at:], error), stop=stop)
            break
        at += len(run)
        full = full or made.extras is not None  # or an address is to which diverts lead
        made = None
    if full and at and producer is not None:
        result.blocked |= wait_for_room(state, address, producer)


def _admit(state: State, send: Send, run: list[Message], nbytes: int) -> tuple[list[Message], Admission]:
    """How many of a send's messages to publish at once while something is full, and what becomes of them.

    Raises AddressFull if not even the first may enter; duplicates, which were accepted before, always may.
    """
    room, address = state.room, send.address
    admission = room.admit(address, len(run) - 1, nbytes - run[-1].size)
    if admission not in _NO_MORE:
        return run, admission
    fitting = room.fitting(address, run)
    if fitting:
        return run[:fitting], _OK
    if admission is Admission.FAIL and (is_straight(state, send, run) or not _all_duplicates(state, send, run)):
        raise room.refusal(address)
    return run, admission


def _all_duplicates(state: State, send: Send, messages: list[Message]) -> bool:
    made = plan(state, send, messages, checks=True)
    made.discard()
    return made.duplicates == len(messages)


def wait_for_room(state: State, address: Address, producer: Producer, held: Uncommitted | None = None) -> bool:
    """Whether a producer must stop sending to an address, which is full or from which diverts lead to a full one.

    `held`: what the transaction holds in which it sends.
    """
    blocked = state.room.wait(address, producer, held)
    extras = state.diverts.extras(address)
    if extras is not None:
        for name in extras.reach:
            forward = state.addresses.get(name)
            if forward is not None and state.room.wait(forward, producer, held):
                blocked = True
    return blocked


def _refuse(result: PublishResult, refusal: Refusal, *, stop: bool) -> None:
    """Add a refusal.  With `stop` it replaces an earlier one: its messages arrived before those."""
    if stop:
        result.refusals.clear()
    result.refusals.append(refusal)
