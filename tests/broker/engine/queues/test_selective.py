"""Messages in line for consumers that want only some of them."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from broker.engine.delivery.subscribe import parse_selector, predicate
from broker.engine.model.message import Message
from broker.engine.queues.selective import STALE_MAX, SelectiveBacklog
from tests.broker.engine.queues.parts import ids, message


def modulo(n: int, rest: int) -> Callable[[Message], bool]:
    return lambda m: m.id % n == rest


def test_each_consumer_gets_what_it_wants_and_nobody_gets_it_twice() -> None:
    backlog = SelectiveBacklog([message(n) for n in range(1, 7)])
    backlog.attach("even", modulo(2, 0))
    backlog.attach("all", None)
    first = backlog.pop_for("even")
    assert first is not None
    assert first.id == 2
    taken = [backlog.pop_for("all") for _ in range(3)]
    assert [m.id for m in taken if m] == [1, 3, 4]
    assert ids(list(backlog)) == [5, 6]
    last = backlog.pop_for("even")
    assert last is not None
    assert last.id == 6
    assert backlog.pop_for("even") is None
    assert len(backlog) == 1


def test_consumers_that_accept_the_same_share_a_view() -> None:
    """A hundred consumers cost no more than one, and none of them gets what another one got."""
    backlog = SelectiveBacklog([message(n) for n in range(1, 1001)])
    odd = parse_selector("AMQPriority >= 0")
    for number in range(100):
        backlog.attach(number, None)
        backlog.attach(f"s{number}", predicate(odd, "x"))
    assert backlog.entries == 2000
    backlog.append([message(1001)], 4)
    backlog.put_back([message(0)])
    assert backlog.entries == 2004
    backlog.set_floor(1, 5)
    assert backlog.pop_for(1) is None
    taken = [backlog.pop_for(key) for key in (2, "s3", 0, "s1")]
    assert [m.id for m in taken if m] == [0, 1, 2, 3]
    for number in range(99):
        backlog.detach(number)
    first = backlog.pop_for(99)
    assert first is not None
    assert first.id == 4
    backlog.detach(99)
    assert backlog.entries == 998  # of the view with the selector, from which four were passed or taken


def test_a_consumer_that_accepts_other_messages_leaves_the_shared_view() -> None:
    backlog = SelectiveBacklog([message(n) for n in range(1, 4)])
    backlog.attach("a", None)
    backlog.attach("b", None)
    backlog.rematch("a", modulo(2, 0))
    assert [m and m.id for m in (backlog.pop_for("a"), backlog.pop_for("a"))] == [2, None]
    assert [m and m.id for m in (backlog.pop_for("b"), backlog.pop_for("b"))] == [1, 3]
    backlog.detach("b")
    backlog.detach("a")
    assert backlog.entries == 0


def test_priority_goes_first() -> None:
    backlog = SelectiveBacklog([])
    backlog.attach("c", None)
    backlog.append([message(1, 0)], 0)
    backlog.append([message(2, 9)], 9)
    backlog.append([message(3, 4)], 4)
    assert [m.id for m in (backlog.pop_for("c") for _ in range(3)) if m] == [2, 3, 1]


def test_another_predicate_does_not_let_it_pass_what_goes_first() -> None:
    """There are messages of a higher priority elsewhere."""
    backlog = SelectiveBacklog([message(1), message(2, 9)])
    backlog.attach("c", None)
    backlog.set_floor("c", 5)
    backlog.rematch("c", modulo(2, 1))
    assert backlog.pop_for("c") is None
    backlog.rematch("c", None)
    assert ids([m for m in (backlog.pop_for("c") for _ in range(2)) if m]) == [2]


def test_a_message_is_matched_once_for_each_consumer() -> None:
    asked: list[int] = []

    def match(m: Message) -> bool:
        asked.append(m.id)
        return m.id == 3

    backlog = SelectiveBacklog([message(1), message(2)])
    backlog.attach("c", match)
    backlog.append([message(3)], 4)
    assert backlog.pop_for("c") is not None
    assert backlog.pop_for("c") is None
    assert asked == [1, 2, 3]


def test_a_consumer_that_stands_still_does_not_collect_what_others_take() -> None:
    backlog = SelectiveBacklog([])
    backlog.attach("still", None)
    backlog.attach("busy", None)
    for id in range(1, 3 * STALE_MAX):
        backlog.append([message(id)], 4)
        assert backlog.pop_for("busy") is not None
    assert backlog._views["still"].count <= STALE_MAX + 2


def test_a_message_that_keeps_coming_back_does_not_fill_the_other_views() -> None:
    backlog = SelectiveBacklog([message(1)])
    backlog.attach("still", None)
    backlog.attach("failing", None)
    for _ in range(3 * STALE_MAX):
        taken = backlog.pop_for("failing")
        assert taken is not None
        backlog.put_back([taken])
    assert backlog._views["still"].count <= STALE_MAX + 4
    assert len(backlog) == 1


def test_the_order_of_identities_forgets_those_that_left() -> None:
    backlog = SelectiveBacklog([message(1)])
    backlog.attach("busy", None)
    assert ids(backlog.between(0, 9, 9)) == [1]
    for id in range(2, 4 * STALE_MAX):
        backlog.append([message(id)], 4)
        assert backlog.pop_for("busy") is not None
    order = backlog._in_order
    assert order is None or len(order) <= STALE_MAX + 4
    assert ids(backlog.between(0, 1 << 40, 9)) == [4 * STALE_MAX - 1]


def test_clear_empties_every_view() -> None:
    backlog = SelectiveBacklog([message(2, 9), message(1)])
    backlog.attach("c", None)
    assert ids(backlog.clear()) == [2, 1]
    assert backlog.pop_for("c") is None
    assert len(backlog) == 0


_steps = st.lists(
    st.tuples(st.sampled_from(["append", "pop", "back", "discard", "detach", "attach"]), st.integers(0, 9)), max_size=60
)


@given(_steps)
def test_it_does_what_a_walk_over_a_sorted_list_does(steps: list[tuple[str, int]]) -> None:
    wants = {0: None, 1: modulo(2, 0), 2: modulo(3, 1)}
    backlog = SelectiveBacklog([])
    attached: set[int] = set()
    ready: list[Message] = []
    out: list[Message] = []
    next_id = 1
    for step, n in steps:
        key = n % 3
        if step == "append":
            run = [message(next_id, n)]
            next_id += 1
            backlog.append(run, n)
            ready += run
        elif step == "attach" and key not in attached:
            backlog.attach(key, wants[key])
            attached.add(key)
        elif step == "detach" and key in attached:
            backlog.detach(key)
            attached.discard(key)
        elif step == "pop" and key in attached:
            predicate = wants[key]
            expected = next((m for m in ready if predicate is None or predicate(m)), None)
            assert backlog.pop_for(key) is expected
            if expected is not None:
                ready.remove(expected)
                out.append(expected)
        elif step == "back" and out:
            returned = out.pop(n % len(out))
            backlog.put_back([returned])
            ready.append(returned)
        elif step == "discard" and ready:
            taken = ready.pop(n % len(ready))
            backlog.discard(taken)
            out.append(taken)
        ready.sort(key=lambda m: (-m.header.priority, m.id))
        assert list(backlog) == ready
        if n % 2:
            wanted = sorted([m for m in ready if n < m.id < 3 * n], key=lambda m: m.id)
            assert backlog.between(n, 3 * n, 4) == wanted[:4]
