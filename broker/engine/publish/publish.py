"""Publishing: the only way in for messages from clients, wills, operators and the broker itself.

The messages of one read are grouped into sends, one for each destination.  Each queue gets its messages in order of
arrival, whatever their destinations.  There are three ways to ensure that, the cheapest first:

    a send at a time     no queue gets messages of two sends that overlap (with `stop`: and none may be refused)
    together             otherwise, if all can be routed at once (`publish_multi`)
    in turn              else: a send is split where a message of another one comes between

The result lists the refused messages; the others are accepted.  With `stop`, for a protocol whose client counts up to
the first refusal, nothing that arrived after that one is accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby

from broker.engine.model.errors import AddressFull, DiskFull, EngineError, NoQueue
from broker.engine.model.message import Message
from broker.engine.model.settings import AddressFullPolicy, PageFullPolicy
from broker.engine.publish import publish_multi, sending
from broker.engine.publish.send import PublishResult, Refusal, Send
from broker.engine.queues import arrival
from broker.engine.queues.address import Producer
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State
from broker.engine.queues.tracer import Tracer

#: Some messages of a send, to be published in their turn.
Part = tuple[Send, list[Message]]


def publish(
    state: State,
    sends: Sequence[Send],
    arrived: Sequence[Message],
    *,
    producer: Producer | None = None,
    stop: bool = False,
) -> PublishResult:
    """Accept the messages of these sends.

    `sends` are in the order of their first messages; `arrived` are the messages of all of them in order of arrival.
    With a `producer` the result says whether it must stop.
    """
    result = PublishResult()
    try:
        parts = in_turn(state, sends, arrived, stop=stop)
    except DiskFull as error:
        result.refusals = [Refusal(send, send.messages, error) for send in sends]
        parts = []
    for send, messages in parts:
        left = _before(result.refusals[0].messages[0], arrived, messages) if result.refusals and stop else messages
        if left and _publish_part(state, send, left, result, stop=stop) and producer is not None:
            result.blocked |= sending.block_if_full(state, send.address, producer)
    if state.tracer is not None:
        trace(state, state.tracer, arrived, result.refusals)
    return result


def trace(state: State, tracer: Tracer, arrived: Sequence[Message], refusals: Sequence[Refusal] = ()) -> None:
    """Trace the accepted messages, which have ids by now, and the refused ones."""
    refused = {message for refusal in refusals for message in refusal.messages}
    taken = [message for message in arrived if message.id and message not in refused]
    if tracer.published(taken, state.work.number):
        state.work.waiters[tracer] = None
    for refusal in refusals:
        tracer.refused(refusal.messages, refusal.error)


def in_turn(state: State, sends: Sequence[Send], arrived: Sequence[Message], *, stop: bool = False) -> list[Part]:
    """Publish these sends together if necessary and possible; otherwise return the parts in which to publish them.

    With `stop`, if any message may be refused, the parts are in the order in which all messages arrived.

    Raises DiskFull, before anything changed.
    """
    if len(sends) == 1 or (_follow(state, arrived, sends) and not (stop and _may_be_refused(state, sends))):
        return [(send, send.messages) for send in sends]
    if publish_multi.publish(state, arrived, sends):
        return []
    of = {message: send for send in sends for message in send.messages}
    return [(send, list(group)) for send, group in groupby(arrived, of.__getitem__)]


def _follow(state: State, arrived: Sequence[Message], sends: Sequence[Send]) -> bool:
    """Whether sends that reach the same queue do not overlap: one's first message comes after the other's last."""
    reached: dict[Queue, Send] = {}
    places: dict[Message, int] = {}
    for send in sends:
        if send.address.extras is not None and send.address.extras.reach:
            return False  # diverts lead to others
        for queue in chain(*state.candidates(send.address, send.queue, send.routing_type)):
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


def _may_be_refused(state: State, sends: Sequence[Send]) -> bool:
    """Whether messages of these sends may be refused."""
    need = 0
    try:
        for send in sends:
            sending.check(state, send.address)
            sending.check_routed(state, send, send.messages)
            if sending.fills_up(state, send.address, send.messages):
                return True
            if send.messages[0].header.durable:
                need += sending.needed(send.address, send.messages)
        if need:
            arrival.reserve_bytes(state, need, essential=False)
    except (AddressFull, DiskFull, NoQueue):
        return True
    return False


def may_refuse(state: State, sends: Sequence[Send]) -> bool:
    """Whether any message of these sends could be refused; looks at none of them, so it is cheap."""
    return not state.journal.has_spare or any([_address_may_refuse(state, send) for send in sends])


def _address_may_refuse(state: State, send: Send) -> bool:
    settings = send.address.settings
    if settings.address_full_policy is AddressFullPolicy.FAIL or settings.page_full_policy is PageFullPolicy.FAIL:
        return True
    if settings.max_size_bytes_reject_threshold >= 0 or send.address.extras is not None:
        return True
    anycast, multicast = state.candidates(send.address, send.queue, send.routing_type)
    return send.needs_queue and not any([queue.accepts_all for queue in anycast + multicast])


def _comes_later(arrived: Sequence[Message], one: Message, other: Message) -> bool:
    """Whether `one` arrived after `other`; searches from the end."""
    for at in range(len(arrived) - 1, -1, -1):
        message = arrived[at]
        if message is one or message is other:
            return message is one
    raise AssertionError("both have arrived")


def _before(wrong: Message, arrived: Sequence[Message], messages: list[Message]) -> list[Message]:
    """Those of these messages that arrived before a refused one."""
    earlier = set(arrived[: arrived.index(wrong)])
    return [message for message in messages if message in earlier]


def _publish_part(state: State, send: Send, messages: list[Message], result: PublishResult, *, stop: bool) -> bool:
    """Publish messages of one send in order, as many at once as possible; returns whether any were accepted."""
    singly = len(messages) > 1 and sending.fills_up(state, send.address, messages)
    left, at = messages, 0
    while at < len(left):
        run = left[at : at + 1] if singly else left[at:] if at else left
        try:
            send.routed += sending.publish(state, send, run)
        except NoQueue as unroutable:  # nothing changed: continue without those that no queue accepts
            lost = set(unroutable.messages)
            first = next(place for place in range(at, len(left)) if left[place] in lost)
            refused = left[first:] if stop else [message for message in run if message in lost]
            left = left[:first] if stop else left[:at] + [message for message in left[at:] if message not in lost]
            _refuse(result, Refusal(send, refused, unroutable), stop=stop)
        except EngineError as error:
            _refuse(result, Refusal(send, left[at:], error), stop=stop)
            break
        else:
            send.accepted(run)
            at += len(run)
    return at > 0


def _refuse(result: PublishResult, refusal: Refusal, *, stop: bool) -> None:
    """Add a refusal.  With `stop` it replaces an earlier one: its messages arrived before those."""
    if stop:
        result.refusals.clear()
    result.refusals.append(refusal)
