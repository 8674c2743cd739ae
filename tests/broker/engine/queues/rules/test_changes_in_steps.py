"""A queue with many messages that gets other rules: they follow in steps, and nothing is delivered before."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from itertools import pairwise

import pytest

from broker.engine.model.errors import NotReadable
from broker.engine.queues.paging.depage import RETRY_MS
from broker.engine.routing.alter import LEARNED_TOGETHER
from tests.broker.engine.engine_harness import Bench, Taker
from tests.broker.engine.queues.paging.backlogs import filled, paging
from tests.simulation.world import check_accounts
from tests.support.sim_files import refusing

#: Messages of a test, and their keys.
COUNT, KEYS = 4 * LEARNED_TOGETHER, 20


def ticks(bench: Bench) -> Iterator[None]:
    """Each tick until nothing goes on in steps."""
    while bench.engine.ticks.is_working:
        yield
        bench.engine.ticks.end()
        bench.broker.write()
        bench.engine.ticks.begin()


@pytest.fixture
def keyed(bench: Bench) -> Bench:
    """A queue whose messages have keys, and a step in each tick."""
    for number in range(COUNT):
        bench.send("q", b"%d" % number, head=b"k:%d\n" % (number % KEYS))
    bench.run()
    bench.limit_ticks(12, least=12)
    return bench


def begin(bench: Bench, **attributes: object) -> None:
    """Begin to change the queue."""
    bench.enter().operators.change(bench.queue("q"), attributes)


NEWEST = [b"%d" % number for number in range(COUNT - KEYS, COUNT)]


def test_values_are_replaced_in_steps_while_consumers_wait(keyed: Bench) -> None:
    begin(keyed, last_value_key="k")
    taker = keyed.attach(Taker(), "q", window=-1)
    left = []
    for _ in ticks(keyed):
        assert not taker.taken
        left.append(keyed.queue("q").ready)
    assert len(left) >= 3
    assert max(before - after for before, after in pairwise(left)) <= LEARNED_TOGETHER
    keyed.run()
    assert taker.take() == NEWEST
    assert keyed.left("q") == {"replaced": COUNT - KEYS}
    keyed.check()
    assert keyed.restart().bodies("q") == NEWEST


def test_newer_values_that_come_meanwhile_replace_the_old_ones(keyed: Bench) -> None:
    begin(keyed, last_value_key="k")
    next(ticks(keyed))
    for number in range(KEYS):
        keyed.send("q", b"new%d" % number, head=b"k:%d\n" % number)
    keyed.run()
    assert sorted(keyed.bodies("q")) == sorted(b"new%d" % number for number in range(KEYS))
    keyed.check()


def test_a_crash_meanwhile_loses_no_value(keyed: Bench) -> None:
    begin(keyed, last_value_key="k")
    each = ticks(keyed)
    next(each)
    next(each)  # the change is durable
    assert keyed.queue("q").returning
    again = keyed.restart()
    assert again.bodies("q") == NEWEST
    again.check()


@pytest.mark.parametrize("after", [{"last_value_key": "other"}, {"last_value_key": "", "last_value": False}])
def test_another_change_meanwhile_is_the_one_that_counts(keyed: Bench, after: dict[str, object]) -> None:
    begin(keyed, last_value_key="k")
    next(ticks(keyed))
    begin(keyed, **after)
    keyed.run()
    queue = keyed.queue("q")
    assert not queue.returning
    before = queue.ready
    keyed.sent("q", b"a", head=b"k:1\nother:1\n")
    keyed.sent("q", b"b", head=b"k:2\nother:1\n")
    assert queue.ready == before + (1 if after["last_value_key"] else 2)
    keyed.check()


def test_a_queue_may_be_deleted_meanwhile(keyed: Bench) -> None:
    begin(keyed, last_value_key="k")
    next(ticks(keyed))
    keyed.delete("q")
    assert (keyed.engine.usage.messages, keyed.engine.usage.bytes) == (0, 0)
    keyed.check()


@pytest.mark.parametrize("attributes", [{"ring_size": 1_000}, {"non_destructive": True}, {"last_value_key": "k"}])
def test_messages_on_disk_are_read_back_in_steps_and_in_order(attributes: dict[str, object]) -> None:
    bench = paging()
    count = 40
    filled(bench, count)
    queue = bench.queue("q")
    assert queue.paged
    bench.limit_ticks(12, least=12)
    begin(bench, **attributes)
    taker = bench.attach(Taker(), "q", window=-1)
    seen = []
    for number, _ in enumerate(ticks(bench)):
        assert not taker.taken
        if number == 1:
            bench.send("q", b"%d" % count)
        seen.append(queue.paged)
    assert len(seen) >= 3, "several chunks"
    assert seen == sorted(seen, reverse=True), "nothing more goes to disk"
    bench.run()
    assert queue.tail is None
    assert taker.take() == [b"%d" % number for number in range(count + 1)]
    check_accounts(bench.broker)


def test_messages_that_cannot_be_read_for_a_while_are_tried_again() -> None:
    bench = paging()
    filled(bench, 40)
    bench.limit_ticks(12, least=12)
    begin(bench, ring_size=100)
    next(ticks(bench))
    with refusing(bench.broker.files, errno.EIO):
        bench.run()
        assert bench.queue("q").paged
        assert bench.broker.reported("paging.failed")
    bench.broker.advance(RETRY_MS)
    assert bench.queue("q").tail is None
    assert bench.take("q", window=-1).take() == [b"%d" % number for number in range(40)]


def test_a_change_that_cannot_read_the_disk_at_all_is_refused() -> None:
    bench = paging()
    filled(bench, 40)
    with refusing(bench.broker.files, errno.EIO), pytest.raises(NotReadable):
        begin(bench, ring_size=100)
    bench.run()
    assert bench.queue("q").attributes.ring_size < 0
