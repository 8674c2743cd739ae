"""The line of confirmations: nothing is said before it is durable, and nothing overtakes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from broker.sessions.confirmations import TOGETHER, Confirmations
from tests.broker.engine.engine_harness import Bench


class Peer:
    """Waits for ticks, and hears what is said."""

    transport = None

    def __init__(self, bench: Bench) -> None:
        self.heard: list[str] = []
        self.line: Confirmations[str] = Confirmations(bench.engine)

    def durable(self, number: int) -> None:
        self.line.durable(self, number)

    def send_confirmations(self, items: list[str]) -> None:
        self.heard.extend(items)


class Ending(Peer):
    """Ends at a word, before the rest is sent."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.unsent: list[str] = []

    def send_confirmations(self, items: list[str]) -> None:
        while items:
            if items.pop(0) == "end":
                self.unsent.extend(self.line.drop())


def test_a_frame_without_effect_is_confirmed_at_once() -> None:
    peer = Peer(Bench())
    peer.line.pending.append("a")
    assert peer.line.confirm(peer)
    assert (peer.heard, peer.line.waiting) == (["a"], False)
    assert not peer.line.confirm(peer), "nothing is pending any more"


def test_confirmations_behind_one_that_waits_wait_too() -> None:
    peer = Peer(Bench())
    peer.line.after(7, "a")
    peer.line.pending.append("b")
    assert not peer.line.confirm(peer)
    peer.line.after(8, "c")
    peer.durable(6)
    assert peer.heard == []
    peer.durable(7)
    assert peer.heard == ["a", "b"]
    peer.durable(8)
    assert (peer.heard, peer.line.waiting) == (["a", "b", "c"], False)


def test_unwanted_confirmations_are_not_sent() -> None:
    peer = Peer(Bench())
    for tick, item in ((1, "a"), (1, "b"), (2, "a")):
        peer.line.after(tick, item)
    peer.line.pending += ["a", "b"]
    peer.line.retain(lambda item: item != "a")
    assert peer.line.pending == ["b"]
    assert peer.line.drop() == ["b"], "what waited, not what is only pending"
    peer.durable(2)
    assert (peer.heard, peer.line.pending) == ([], [])


def test_a_confirmation_that_ends_the_connection_leaves_the_rest_unsent() -> None:
    peer = Ending(Bench())
    for tick, item in ((1, "a"), (1, "end"), (1, "b"), (2, "c")):
        peer.line.after(tick, item)
    peer.durable(2)
    assert peer.unsent == ["b", "c"]
    assert not peer.line.waiting


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=30))
def test_all_is_said_once_and_in_order(steps: list[tuple[int, bool]]) -> None:
    peer = Peer(Bench())
    tick = said = 0
    expected: list[str] = []
    for ahead, announce in steps:
        tick += ahead
        expected.append(str(len(expected)))
        peer.line.after(tick + 1, expected[-1])
        if announce:
            peer.durable(tick)
        assert peer.heard == expected[: len(peer.heard)]
        assert len(peer.heard) >= said
        said = len(peer.heard)
    peer.durable(tick + 1)
    assert peer.heard == expected


def test_many_are_said_over_several_ticks_in_order() -> None:
    bench = Bench()
    bench.limit_ticks(100, least=50)
    peer = Peer(bench)
    many = [str(n) for n in range(5 * TOGETHER)]
    bench.send("a", b"1")
    peer.line.pending += many
    assert not peer.line.confirm(peer)
    said: list[int] = []
    bench.broker.after_tick = lambda: said.append(len(peer.heard))
    bench.run()
    assert max(after - before for before, after in pairwise([0, *said])) == TOGETHER
    peer.line.pending.append("last")
    peer.line.confirm(peer)
    bench.run()
    assert peer.heard == [*many, "last"]


def test_confirmations_that_wait_for_nothing_go_over_several_ticks_too() -> None:
    bench = Bench()
    bench.limit_ticks(100, least=50)
    bench.enter()
    peer = Peer(bench)
    peer.line.pending += [str(n) for n in range(3 * TOGETHER)]
    assert peer.line.confirm(peer)
    assert len(peer.heard) == TOGETHER
    peer.line.pending.append("behind")
    assert not peer.line.confirm(peer)
    bench.run()
    assert peer.heard == [*[str(n) for n in range(3 * TOGETHER)], "behind"]


def test_one_may_count_as_many() -> None:
    bench = Bench()
    bench.limit_ticks(100, least=50)
    bench.enter()
    peer = Peer(bench)
    line: Confirmations[str] = Confirmations(bench.engine, lambda item: TOGETHER)
    peer.line = line
    line.pending += ["a", "b"]
    line.confirm(peer)
    assert peer.heard == ["a"]
    bench.run()
    assert peer.heard == ["a", "b"]
    line.pending += ["c", "d"]
    bench.enter()
    line.confirm(peer)
    assert line.drop() == ["d"]
