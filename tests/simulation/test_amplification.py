"""Write amplification: what cleaning adds to the bytes that messages and their ends need in the journal.

A backlog of constant length from which messages leave in some order, as shipped but for the size of segments.  The
oldest first never copies; it gets harder the longer messages stay behind others that came after them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

import pytest

from store.segment import decode_header, scan
from tests.broker.engine.engine_harness import Bench, EngineBroker
from tests.simulation.world import journal_directory, segment_paths, small

SEGMENT: Final = 64 << 10

#: Messages on the queue: some segments of them.
BACKLOG: Final = 400

#: Messages that come and go: the backlog many times over.
MESSAGES: Final = 8_000

#: Which of a backlog's messages goes next, by its place: the oldest; any; the newest, but for one in twenty.
ORDERS: Final[dict[str, Callable[[Random, int], int]]] = {
    "oldest": lambda chance, n: 0,
    "any": lambda chance, n: chance.randrange(n),
    "newest": lambda chance, n: chance.randrange(n) if chance.random() < 0.05 else n - 1,
}


def written(order: str, *, cleans: bool) -> int:
    """Bytes in all segments that there ever were."""
    config = small(segment_bytes=SEGMENT)
    files_min = 10 if cleans else 1 << 30
    journal = config.journal.model_copy(update={"compact_min_files": files_min, "compact_percentage": 40})
    bench = Bench(running=EngineBroker(config.model_copy(update={"journal": journal})))
    chance = Random(order)
    taker = bench.take("a")
    for _ in range(0, MESSAGES, 8):
        bench.sent("a", *(b"x" * chance.randrange(100, 1000) for _ in range(8)))
        while len(taker.taken) > BACKLOG:
            message = taker.taken.pop(ORDERS[order](chance, len(taker.taken)))
            bench.engine.consumers.acknowledge(taker.consumer, message.id)
        bench.run()
        bench.broker.advance(20)
    assert bool(bench.engine.cleaner.rounds) == (cleans and order != "oldest")
    total = 0
    for path in segment_paths(bench.broker.files, journal_directory(config)).values():
        data = bench.broker.files.read(path)
        total += scan(data, decode_header(data)).end
    return total


@pytest.mark.parametrize("order", ORDERS)
def test_cleaning_does_not_double_what_is_written(order: str) -> None:
    amplification = written(order, cleans=True) / written(order, cleans=False)
    print(f"{order}: {amplification:.2f}")
    assert amplification <= 2
