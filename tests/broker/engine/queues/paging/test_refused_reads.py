"""Reads of paged messages that the system refuses for a while: nothing is damaged, all is tried again, in its order."""

from __future__ import annotations

import errno
import os
from itertools import chain

import pytest

from broker.engine.model.errors import NotReadable
from broker.engine.moves.transfer import MessageRange
from broker.engine.queues.paging.depage import RETRY_MS
from broker.engine.routing import alter
from tests.broker.engine.engine_harness import Bench
from tests.broker.engine.queues.paging.backlogs import bodies, consumed, filled, settled
from tests.simulation.world import check_accounts
from tests.support.sim_files import refusing


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.ENOMEM])
@pytest.mark.parametrize("selector", ["", "TRUE = TRUE"])
def test_deliveries_wait_and_go_on_in_their_order(bench: Bench, number: int, selector: str) -> None:
    filled(bench, 12)
    with refusing(bench.broker.files, number):
        taker = bench.take("q", selector=selector)
        first = taker.take()
        assert first == bodies(0, 1)
        [failed] = bench.broker.reported("paging.failed")
        assert os.strerror(number) in str(failed["error"])
        other = bench.take("other")
        bench.sent("other", b"x")
        assert other.take() == [b"x"], "nobody else waits"
        bench.broker.advance(3 * RETRY_MS)
        assert len(bench.broker.reported("paging.failed")) == 4
        assert bench.queue("q").paged == 10
    bench.broker.advance(RETRY_MS)
    assert consumed(bench, taker) == bodies(*range(2, 12))
    assert bench.broker.reported("paging.unreadable") == []
    assert bench.queue("q").paged == 0
    check_accounts(bench.broker)


@pytest.mark.parametrize("consumers", [1, 2])
def test_nobody_is_busy_while_what_goes_first_cannot_be_read(bench: Bench, consumers: int) -> None:
    """Those in memory have a lower priority."""
    filled(bench, 2)
    bench.sent("q", b"high", priority=9)
    with refusing(bench.broker.files, errno.EIO):
        takers = [bench.take("q") for _ in range(consumers)]
        assert not any(taker.take() for taker in takers)
    bench.broker.advance(RETRY_MS)
    first = takers[0].take()
    assert first[0] == b"high"
    assert sorted(chain(first, *[taker.take() for taker in takers])) == [*bodies(0, 1), b"high"]


def test_due_messages_expire_later(bench: Bench) -> None:
    filled(bench, 8, expiration=bench.broker.now + 100)
    with refusing(bench.broker.files, errno.EMFILE):
        bench.broker.advance(100)
        assert bench.queue("q").paged == 6
    bench.broker.advance(RETRY_MS)
    assert bench.queue("q").message_count == 0
    assert sorted(bench.bodies("ExpiryQueue")) == bodies(*range(8))


def test_verbs_of_operators_are_refused_and_change_nothing(bench: Bench) -> None:
    filled(bench, 8)
    queue = bench.queue("q")
    with refusing(bench.broker.files, errno.EMFILE):
        with pytest.raises(NotReadable, match="Too many open files"):
            list(bench.enter().messages.browse(queue))
        with pytest.raises(NotReadable):
            bench.enter().messages.move(queue, "elsewhere", MessageRange())
        with pytest.raises(NotReadable):
            alter.change(bench.engine._state, queue, {"ring_size": 100})
        bench.run()
    assert queue.paged == 6
    bench.enter().messages.move(queue, "elsewhere", MessageRange())
    bench.run()
    assert bench.bodies("elsewhere") == bodies(*range(8))
    check_accounts(bench.broker)


def test_cleaning_comes_again(bench: Bench) -> None:
    filled(bench, 3)
    with refusing(bench.broker.files, errno.EMFILE):
        for _ in range(600):
            bench.sent("load", b"x" * 300)
            bench.purge("load")
        bench.broker.advance(5_000)
        assert bench.queue("q").paged == 1
    bench.broker.advance(60_000)
    assert bench.bodies("q") == bodies(0, 1, 2)
    assert not bench.broker.reported("paging.unreadable")
    bench.purge("q")
    settled(bench)
