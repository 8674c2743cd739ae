"""Messages in line for consumers that want only some of them."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from broker.engine.delivery.subscribe import parse_selector, predicate
from broker.engine.model.message import Message
from broker.engine.queues.backlog import Backlog, KeptBacklog
from broker.engine.queues.consumer import Excluded
from broker.engine.queues.cursors import LOG_MAX, MATCH_COST, Predicate
from broker.engine.queues.level import BLOCK_MAX
from broker.engine.queues.steps import Steps
from tests.broker.engine.queues.parts import ids, message


def modulo(n: int, rest: int) -> Predicate:
    return lambda m: m.id % n == rest


class Counted:
    """A predicate that notes what it looked at."""

    def __init__(self, wanted: Predicate) -> None:
        self.looked: list[int] = []
        self._wanted = wanted

    def __call__(self, message: Message) -> bool:
        """Look at a message."""
        self.looked.append(message.id)
        return self._wanted(message)


class Line:
    """A backlog, and a budget for each question."""

    def __init__(self, *messages: Message, kind: type[Backlog] = Backlog) -> None:
        self.backlog = kind()
        self.backlog.put_back(list(messages))

    def pop(self, key: str, *, matches: int = 100_000) -> int | None:
        """The id of the next message for a consumer, with budget for so many matches."""
        steps = Steps()
        steps.left = matches * MATCH_COST
        found = self.backlog.pop_for(key, steps)
        return None if found is None else found.id


def test_each_consumer_gets_what_it_wants_and_nobody_gets_it_twice() -> None:
    line = Line(*[message(n) for n in range(1, 7)])
    line.backlog.attach("even", modulo(2, 0))
    line.backlog.attach("all", None)
    assert line.pop("even") == 2
    assert [line.pop("all") for _ in range(3)] == [1, 3, 4]
    assert ids(list(line.backlog)) == [5, 6]
    assert [line.pop("even"), line.pop("even"), len(line.backlog)] == [6, None, 1]


def test_nothing_is_matched_before_a_consumer_asks_and_then_within_the_budget() -> None:
    """A subscription, or an arrival, costs nothing, however long the backlog is."""
    line, match = Line(), Counted(lambda m: m.id > 5000)
    line.backlog.append([message(n) for n in range(1, 5001)], 4)
    line.backlog.attach("c", match)
    line.backlog.append([message(5001)], 4)
    assert match.looked == []
    assert line.pop("c", matches=1000) is None
    assert match.looked == [*range(1, 1001)]
    while line.pop("c", matches=1000) is None:
        assert len(match.looked) < 5001
    assert match.looked == [*range(1, 5002)], "each once, in order"
    assert line.pop("c") is None
    assert len(match.looked) == 5001


def test_messages_that_arrive_return_or_leave_during_a_match() -> None:
    line, match = Line(), Counted(modulo(10, 0))
    many = [message(n) for n in range(1, 101)]
    line.backlog.append(many, 4)
    line.backlog.attach("c", match)
    assert line.pop("c") == 10
    assert line.pop("c", matches=5) is None
    line.backlog.put_back([many[9]])  # it failed
    line.backlog.discard(many[19])  # it expired
    line.backlog.append([message(110)], 4)
    assert [line.pop("c", matches=3) for _ in range(2)] == [10, None]
    assert line.pop("c") == 30
    line.backlog.attach("late", modulo(10, 0))
    assert [line.pop("late"), line.pop("c")] == [40, 50]
    line.backlog.detach("c")
    assert [line.pop("late") for _ in range(7)] == [60, 70, 80, 90, 100, 110, None]
    assert line.backlog.is_choosy("late")
    line.backlog.detach("late")
    assert not line.backlog.is_choosy("late")


def test_consumers_that_accept_the_same_share_a_cursor() -> None:
    """A hundred consumers match no more than one, and none of them gets what another one got."""
    line = Line(*[message(n) for n in range(1, 1001)])
    odd = parse_selector("AMQPriority >= 0")
    for number in range(100):
        line.backlog.attach(f"a{number}", None)
        line.backlog.attach(f"s{number}", predicate(odd, "x"))
    line.backlog.append([message(1001)], 4)
    line.backlog.put_back([message(0)])
    line.backlog.set_floor("s1", 5)
    assert line.pop("s1") is None
    assert [line.pop(key) for key in ("a2", "s3", "a0", "s4")] == [0, 1, 2, 3]
    for number in range(99):
        line.backlog.detach(f"s{number}")
    assert line.pop("s99") == 4


def test_a_consumer_that_accepts_less_from_now_on_goes_on_where_it_is() -> None:
    line = Line(*[message(n) for n in range(1, 7)])
    line.backlog.attach("a", modulo(2, 1))
    line.backlog.attach("b", modulo(2, 1))
    line.backlog.attach("c", None)
    assert [line.pop("a"), line.pop("b")] == [1, 3]
    less = Counted(modulo(1, 0))
    line.backlog.restrict("a", less)
    assert line.pop("a") == 2, "its own predicate counts"
    line.backlog.put_back([message(1)])
    line.backlog.restrict("c", modulo(2, 0))
    assert [line.pop("c"), line.pop("a"), line.pop("c")] == [4, 1, 6]


def test_priority_goes_first() -> None:
    line = Line()
    line.backlog.attach("c", modulo(1, 0))
    line.backlog.append([message(1, 0)], 0)
    line.backlog.append([message(2, 9)], 9)
    line.backlog.append([message(3, 4)], 4)
    assert [line.pop("c") for _ in range(3)] == [2, 3, 1]


def test_another_predicate_does_not_let_it_pass_what_goes_first() -> None:
    """There are messages of a higher priority elsewhere."""
    line = Line(message(1), message(3, 9))
    line.backlog.attach("c", modulo(1, 0))
    line.backlog.set_floor("c", 5)
    line.backlog.restrict("c", modulo(2, 1))
    assert [line.pop("c"), line.pop("c")] == [3, None]
    line.backlog.floor = 5
    line.backlog.attach("d", None)
    line.backlog.restrict("d", modulo(2, 1))
    assert line.pop("d") is None


def test_a_consumer_that_stands_still_starts_again_when_too_much_came_back() -> None:
    line = Line(message(1), message(2))
    line.backlog.attach("still", modulo(2, 0))
    line.backlog.attach("failing", modulo(2, 1))
    assert line.pop("still") == 2
    line.backlog.put_back([message(2)])
    for _ in range(3 * LOG_MAX):
        assert line.pop("failing") == 1
        line.backlog.put_back([message(1)])
        cursors = line.backlog._cursors
        assert cursors is not None
        assert len(cursors._log) <= LOG_MAX + 2
    assert [line.pop("still"), line.pop("still"), line.pop("failing")] == [2, None, 1]


def test_a_question_does_not_take_the_message_and_is_answered_within_the_budget() -> None:
    line, steps = Line(*[message(n) for n in range(1, 2001)]), Steps()
    line.backlog.attach("c", modulo(2000, 0))
    steps.left = MATCH_COST * 10
    assert line.backlog.has_for("c", 0, steps), "there may be one"
    steps.refill()
    assert line.backlog.has_for("c", 0, steps)
    assert not line.backlog.has_for("c", 5, steps)
    assert [line.pop("c"), line.pop("c")] == [2000, None]
    steps.refill()
    assert not line.backlog.has_for("c", 0, steps)


def test_clear_empties_it_for_everybody() -> None:
    line = Line(message(2, 9), message(1))
    line.backlog.attach("c", modulo(1, 0))
    assert ids(line.backlog.clear()) == [2, 1]
    assert line.pop("c") is None
    line.backlog.append([message(3)], 4)
    assert line.pop("c") == 3


def test_each_consumer_is_sent_each_message_that_stays_once() -> None:
    """Also what comes in behind it: it was durable later than a younger one."""
    line = Line(message(1), message(3), kind=KeptBacklog)
    line.backlog.attach("a", None)
    line.backlog.attach("odd", modulo(2, 1))
    assert [line.pop("a"), line.pop("a"), line.pop("odd"), line.pop("odd")] == [1, 3, 1, 3]
    line.backlog.append([message(2)], 4)
    assert [line.pop("a"), line.pop("a"), line.pop("odd")] == [2, None, None]
    line.backlog.attach("late", None)
    assert [line.pop("late") for _ in range(4)] == [1, 2, 3, None]
    assert len(line.backlog) == 3


def test_messages_behind_cursors_on_a_queue_that_keeps_messages_are_matched_within_the_budget() -> None:
    line = Line(message(1_000), kind=KeptBacklog)
    wanted = Counted(modulo(2, 0))
    line.backlog.attach("even", wanted)
    assert line.pop("even") == 1_000
    wanted.looked.clear()
    line.backlog.append([message(n) for n in range(1, 501)], 4)
    assert not wanted.looked, "it has not asked"
    assert line.pop("even", matches=100) is None
    assert len(wanted.looked) <= 100
    assert [line.pop("even") for _ in range(251)] == [*range(2, 501, 2), None]


def test_the_log_of_a_queue_that_keeps_messages_is_bounded() -> None:
    line = Line(message(1 << 20), kind=KeptBacklog)
    for key in ("fast", "slow"):
        line.backlog.attach(key, None)
        assert line.pop(key) == 1 << 20
    line.backlog.append([message(1)], 4)
    for n in range(2, 4 * LOG_MAX):
        passing = message(n)
        line.backlog.append([passing], 4)
        line.backlog.discard(passing)
        if n % 7 == 0:
            assert line.pop("fast") == (1 if n == 7 else None)
    cursors = line.backlog._cursors
    assert cursors is not None
    assert len(cursors._log) <= 2 * len(line.backlog) + LOG_MAX + 2
    assert [line.pop("slow"), line.pop("slow")] == [1, None]


def test_a_match_costs_what_its_selector_and_the_headers_do() -> None:
    wide = predicate(parse_selector(" OR ".join(["a < b"] * 300)), "")
    narrow = predicate(parse_selector("a = 1"), "")
    costs = []
    for wanted, head in ((narrow, b""), (wide, b""), (narrow, b"x" * 16_000)):
        backlog = Backlog()
        found = message(1)
        found.head = head
        backlog.append([found], 4)
        backlog.attach("c", wanted)
        backlog.attach("excluding", Excluded(wanted))
        for key in ("c", "excluding"):
            steps = Steps()
            assert backlog.pop_for(key, steps) is None
            costs.append(steps.budget - steps.left)
    assert costs == [5, 5, 185, 185, 1005, 1005]


Step = tuple[str, int]

_steps = st.lists(
    st.tuples(
        st.sampled_from(["append", "many", "late", "pop", "back", "discard", "detach", "attach", "has"]),
        st.integers(0, 9),
    ),
    max_size=60,
)


@given(_steps)
def test_it_does_what_a_walk_over_a_sorted_list_does(steps: list[Step]) -> None:
    wants: dict[str, Predicate | None] = {"0": None, "1": modulo(2, 0), "2": modulo(3, 1)}
    line, attached = Line(), set[str]()
    ready: list[Message] = []
    out: list[Message] = []
    next_id = 1

    def expected(key: str) -> Message | None:
        wanted: Callable[[Message], bool] | None = wants[key]
        return next((m for m in ready if wanted is None or wanted(m)), None)

    for step, n in steps:
        key = str(n % 3)
        if step in ("append", "many"):
            count = 1 if step == "append" else BLOCK_MAX // 3
            run = [message(2 * (next_id + at), n) for at in range(count)]
            next_id += count
            line.backlog.append(run, n)
            ready += run
        elif step == "late" and next_id > n:
            late = message(2 * (next_id - n) + 1, n)  # it was durable later than younger ones
            if late.id not in {m.id for m in ready + out}:
                line.backlog.append([late], n)
                ready.append(late)
        elif step == "attach" and key not in attached:
            line.backlog.attach(key, wants[key])
            attached.add(key)
        elif step == "detach" and key in attached:
            line.backlog.detach(key)
            attached.discard(key)
        elif step == "pop" and key in attached:
            found = expected(key)
            assert line.pop(key) == (found and found.id)
            if found is not None:
                ready.remove(found)
                out.append(found)
        elif step == "has" and key in attached:
            assert line.backlog.has_for(key, 0, Steps()) == (expected(key) is not None)
        elif step == "back" and out:
            returned = out.pop(n % len(out))
            line.backlog.put_back([returned])
            ready.append(returned)
        elif step == "discard" and ready:
            taken = ready.pop(n % len(ready))
            line.backlog.discard(taken)
            out.append(taken)
        ready.sort(key=lambda m: (-m.header.priority, m.id))
        assert list(line.backlog) == ready
        assert len(line.backlog) == len(ready)
