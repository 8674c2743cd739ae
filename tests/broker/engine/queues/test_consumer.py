"""A consumer's credit and what it has not yet acknowledged."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.engine.model.message import RoutingType
from broker.engine.model.settings import AddressSettings
from broker.engine.queues.address import Address
from broker.engine.queues.consumer import UNLIMITED, AckMode, LinkTarget
from broker.engine.queues.queue import PREFIX_MIN, Consumer, Queue
from tests.broker.engine.engine_harness import Taker
from tests.broker.engine.queues.parts import ids, message


def consumer(mode: AckMode = AckMode.INDIVIDUAL, *, window: int = -1, **more: Any) -> Consumer:
    address = Address(1, "a", {RoutingType.ANYCAST}, AddressSettings())
    queue = Queue(2, "a", address, RoutingType.ANYCAST)
    return Consumer(1, queue, Taker(), ack_mode=mode, window=window, **more)


@pytest.mark.parametrize(("window", "credit"), [(-1, UNLIMITED), (0, 1), (1, 1), (5000, 5000)])
def test_the_window_is_the_credit_at_first_and_one_message_always_fits(window: int, credit: int) -> None:
    assert consumer(window=window).credit == credit


def test_credit_is_used_by_deliveries_and_comes_back_with_their_settlement() -> None:
    taker = consumer(window=1000)
    messages = [message(1, body=bytes(100)), message(2, body=bytes(200))]
    taker.take(messages)
    assert taker.credit == 1000 - messages[0].size - messages[1].size
    assert ids(taker.settle([2])) == [2]
    assert taker.credit == 1000 - messages[0].size
    assert ids(taker.settle_all()) == [1]
    assert taker.credit == 1000


def test_cumulative_covers_what_was_delivered_before() -> None:
    taker = consumer(AckMode.CUMULATIVE)
    taker.take([message(n) for n in (5, 3, 9, 4)])
    assert taker.up_to(9) == [5, 3, 9]
    taker.settle([5, 3, 9])
    taker.take([message(3)])
    assert taker.up_to(3) == [4, 3], "delivered again, it comes after what it came before"


@pytest.mark.parametrize(("portion", "copies"), [(PREFIX_MIN + 24, 1), (5 * PREFIX_MIN, 2)])
def test_an_acknowledgement_in_portions_copies_what_is_left_at_most_once_for_each_half(
    portion: int, copies: int
) -> None:
    """Each portion of 1,024 copied the 100,000 that were left, which took 5 ms."""
    taker = consumer(AckMode.CUMULATIVE)
    taker.take([message(n) for n in range(8 * PREFIX_MIN)])
    copied, settled = 0, list[int]()
    while taker.unacked:
        before = taker.unacked
        settled += ids(taker.settle(taker.up_to(min(len(settled) + portion, 8 * PREFIX_MIN) - 1)))
        copied += taker.unacked is not before
    assert settled == list(range(8 * PREFIX_MIN))
    assert copied <= copies


def test_individual_covers_itself() -> None:
    taker = consumer()
    taker.take([message(n) for n in (1, 2)])
    assert taker.up_to(2) == [2]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ({"client_id": "c", "user": "u", "remote": "h:1"}, "c at h:1"),
        ({"user": "u"}, "u"),
        ({}, "a consumer"),
        ({"remote": "h:1"}, "a consumer at h:1"),
        (
            {"link": LinkTarget("paris", "a"), "client_id": "x", "remote": "amqp://paris:5672"},
            "link paris at amqp://paris:5672",
        ),
    ],
)
def test_figures_for_an_operator(names: dict[str, str], text: str) -> None:
    assert consumer(AckMode.AUTO, window=-1, **names).describe == text


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20))))
def test_cumulative_is_a_prefix_of_the_deliveries(steps: list[tuple[bool, int]]) -> None:
    taker = consumer(AckMode.CUMULATIVE, window=100)
    model: list[int] = []
    next_id = 1
    for deliver, n in steps:
        if deliver:
            taker.take([message(next_id)])
            model.append(next_id)
            next_id += 1
        elif model:
            at = n % len(model)
            covered, model = model[: at + 1], model[at + 1 :]
            assert taker.up_to(covered[-1]) == covered
            taker.settle(covered)
        assert list(taker.unacked) == model
        assert taker.credit == 100 - sum(m.size for m in taker.unacked.values())


@given(
    st.sampled_from([AckMode.CUMULATIVE, AckMode.INDIVIDUAL]),
    st.lists(st.integers(1, 8), unique=True),
    st.lists(st.integers(1, 8), min_size=1),
)
def test_several_at_once_are_one_step_or_nothing(mode: AckMode, delivered: list[int], wanted: list[int]) -> None:
    taker = consumer(mode, window=5000)
    taker.take([message(n) for n in delivered])
    credit = taker.credit
    if mode is AckMode.CUMULATIVE:
        possible = delivered[: len(wanted)] == wanted
    else:
        possible = len(set(wanted)) == len(wanted) and set(wanted) <= set(delivered)
    settled = taker.settle_next(wanted)
    assert (settled is not None) == possible
    left = [n for n in delivered if settled is None or n not in wanted]
    assert list(taker.unacked) == left
    assert taker.credit - credit == sum(m.size for m in settled or [])
    if settled is not None:
        assert ids(settled) == wanted
        if left:
            assert taker.up_to(left[-1]) == (left if mode is AckMode.CUMULATIVE else left[-1:])


@pytest.mark.parametrize(("window", "counted", "granted"), [(1000, False, 0), (2, True, 0), (-1, True, 2)])
def test_withdrawn_messages_have_used_no_credit(window: int, counted: bool, granted: int) -> None:
    taker = consumer(AckMode.CUMULATIVE, window=window, counted=counted)
    if granted:
        taker.credit = granted
    before = taker.credit
    taker.take([message(1), message(2)])
    assert ids(taker.take_back([1])) == [1]
    taker.take_back([2])
    assert (taker.credit, taker.unacked, [*(taker.order or ())]) == (before, {}, [])
