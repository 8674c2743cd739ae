"""Messages in line: by priority, then by arrival, whatever comes back or is taken out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.engine.model.message import Message, size_of
from broker.engine.queues.backlog import Backlog
from broker.engine.queues.level import BLOCK_MAX
from tests.broker.engine.queues.parts import ids, message


def test_empty() -> None:
    backlog = Backlog()
    assert len(backlog) == 0
    assert backlog.pop() is None
    assert backlog.pop_run(10, 1000) == ([], 0)
    assert backlog.clear() == []


def test_priorities_then_arrival() -> None:
    backlog = Backlog()
    for id, priority in [(1, 0), (2, 9), (3, 4), (4, 9), (5, 0)]:
        backlog.append([message(id, priority)], priority)
    assert ids(list(backlog)) == [2, 4, 3, 1, 5]
    assert ids(backlog.pop_run(10, 1 << 30)[0]) == [2, 4, 3, 1, 5]


def test_a_run_ends_at_its_count_or_its_bytes_and_always_has_one() -> None:
    backlog = Backlog()
    backlog.append([message(n, body=bytes(1000)) for n in range(1, 8)], 4)
    assert ids(backlog.pop_run(2, 1 << 30)[0]) == [1, 2]
    assert ids(backlog.pop_run(10, 1)[0]) == [3]
    assert ids(backlog.pop_run(10, 1300)[0]) == [4, 5]
    assert len(backlog) == 2


def test_returned_messages_go_before_everything_younger() -> None:
    backlog = Backlog()
    messages = [message(n) for n in range(1, 7)]
    backlog.append(messages, 4)
    taken, _ = backlog.pop_run(4, 1 << 30)
    backlog.put_back([taken[3], taken[0]])
    assert ids(list(backlog)) == [1, 4, 5, 6]
    backlog.put_back([taken[2], taken[1]])
    assert ids(list(backlog)) == [1, 2, 3, 4, 5, 6]


def test_a_discarded_message_that_comes_back_is_there() -> None:
    """It expired, could not be moved, and returns while its old place has not been passed yet."""
    backlog = Backlog()
    messages = [message(n) for n in range(1, 4)]
    backlog.append(messages, 4)
    backlog.discard(messages[1])
    backlog.put_back([messages[1]])
    assert len(backlog) == 3
    assert ids(list(backlog)) == [1, 2, 3]
    backlog.discard(messages[1])
    backlog.put_back([messages[1]])
    assert ids(backlog.clear()) == [1, 2, 3]


def test_returns_and_removals_touch_hardly_any_of_a_long_backlog() -> None:
    """The messages that are moved: those of one block, whatever the length and the place."""
    backlog = Backlog()
    many = [message(n) for n in range(1, 100_001)]
    for at in range(0, len(many), 100):
        backlog.append(many[at : at + 100], 4)
    level = backlog.levels[4]
    assert max(map(len, level.blocks)) <= BLOCK_MAX
    for at in (0, 50_000, 99_999):
        blocks = [id(block) for block in level.blocks]
        backlog.discard(many[at])
        backlog.put_back([many[at]])
        assert len(set(blocks) ^ {id(block) for block in level.blocks}) <= 3
    assert list(backlog) == many
    backlog.discard(many[5])
    assert many[5] not in level.blocks[0], "nothing that left stays in memory"


class Model:
    """The same, as a sorted list."""

    def __init__(self) -> None:
        self.ready: list[Message] = []

    def sort(self) -> None:
        self.ready.sort(key=lambda m: (-m.header.priority, m.id))


_steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 9), st.integers(1, 4)),
        st.tuples(st.just("pop"), st.integers(1, 5), st.integers(1, 1200)),
        st.tuples(st.just("back"), st.integers(1, 5), st.just(0)),
        st.tuples(st.just("discard"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("one"), st.just(0), st.just(0)),
        st.tuples(st.just("clear"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@given(_steps)
def test_it_does_what_a_sorted_list_does(steps: list[tuple[str, int, int]]) -> None:
    backlog, model = Backlog(), Model()
    out: list[Message] = []
    next_id = 1
    for step, a, b in steps:
        if step == "append":
            run = [message(next_id + n, a) for n in range(b)]
            next_id += b
            backlog.append(run, a)
            model.ready += run
        elif step == "pop":
            run, nbytes = backlog.pop_run(a, b)
            assert run == model.ready[: len(run)]
            assert nbytes == size_of(run)
            assert bool(run) == bool(model.ready)
            del model.ready[: len(run)]
            out += run
        elif step == "one":
            expected = model.ready.pop(0) if model.ready else None
            assert backlog.pop() is expected
            out += [expected] if expected else []
        elif step == "back":
            run, out = out[-a:][::-1], out[:-a]
            backlog.put_back(run)
            model.ready += run
        elif step == "discard" and model.ready:
            taken = model.ready.pop(a % len(model.ready))
            backlog.discard(taken)
            out.append(taken)
        elif step == "clear" and a == 0 and len(model.ready) > 3:
            assert backlog.clear() == model.ready
            out += model.ready
            model.ready = []
        model.sort()
        assert len(backlog) == len(model.ready)
        assert list(backlog) == model.ready
        low, high = sorted((a * 7 % max(next_id, 1), b * 11 % (next_id + 2)))
        wanted = sorted([m for m in model.ready if low < m.id < high], key=lambda m: m.id)
        assert backlog.between(low, high, 3) == wanted[:3]
        assert backlog.between(low, high, 1000) == wanted
        assert {m.id for m in backlog.older(high)} == {m.id for m in model.ready if m.id < high}


def test_messages_between_two_are_found_whatever_came_behind_them() -> None:
    """A scheduled message that is due is ready before paged ones that are older, which are read back later."""
    backlog = Backlog()
    backlog.append([message(1), message(2)], 4)
    backlog.put_back([message(9)])
    backlog.append([message(5), message(6)], 4)
    assert [m.id for m in backlog.between(1, 9, 10)] == [2, 5, 6]
    assert [m.id for m in backlog.between(1, 9, 2)] == [2, 5]
    assert sorted(m.id for m in backlog.older(6)) == [1, 2, 5]
    while backlog.pop() is not None:
        continue
    backlog.append([message(10), message(11), message(12)], 4)
    assert [m.id for m in backlog.between(10, 12, 5)] == [11]
