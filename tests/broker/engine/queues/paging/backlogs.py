"""What the tests of paging share: a broker that pages early, a backlog, and the state after it."""

from __future__ import annotations

from store.pages import Pages
from tests.broker.engine.engine_harness import Bench, Taker

#: Addresses `q...` page beyond two messages, and read back one at a time.
PAGING: dict[str, object] = {
    "match": "q.#",
    "address-full-policy": "PAGE",
    "max-size-messages": 2,
    "max-read-page-messages": 8,
    "dead-letter-address": "DLQ",
    "expiry-address": "ExpiryQueue",
}


def paging(*more: dict[str, object], **settings: object) -> Bench:
    """A broker with `PAGING`, these settings changed."""
    return Bench(PAGING | settings, *more)


def bodies(*numbers: int) -> list[bytes]:
    return [b"%d" % n for n in numbers]


def filled(bench: Bench, count: int = 10, **more: object) -> None:
    """Messages 0, 1, 2 ... in `q`, each in a tick of its own."""
    for n in range(count):
        bench.sent("q", b"%d" % n, **more)


def consumed(bench: Bench, taker: Taker) -> list[bytes]:
    """The bodies of all that a consumer gets if it acknowledges: it holds only as many as may be read ahead."""
    got: list[bytes] = []
    while taker.taken:
        taken = taker.taken.copy()
        got += taker.take()
        bench.ack(taker, *taken)
    return got


def settled(bench: Bench) -> None:
    """Nothing is left of what was paged."""
    state = bench.engine._state
    queue = bench.queue("q")
    assert queue.message_count == queue.paged == 0
    assert (state.usage.bytes, state.usage.messages) == (0, 0)
    assert (queue.address.paged_messages, queue.address.paged_bytes) == (0, 0)
    assert (queue.address.landing_messages, queue.address.landing_bytes) == (0, 0)
    assert (queue.address.size_messages, queue.address.size_bytes) == (0, 0)
    assert len(state.schedule.paged_expiries) == len(state.schedule.expiries) == 0
    space = state.journal.space
    assert all(space.live(segment) == 0 for segment in space.segments)
    assert isinstance(state.pages, Pages)
    assert not any(state.pages._needed.values())
    assert sum(path.endswith(".scratch") for path in bench.broker.files.paths()) <= 1
    bench.check()
