"""Memory goes back to the system: how often that is done, and that it works."""

from __future__ import annotations

import gc
from pathlib import Path

from broker.daemon.memory import (
    BURST_BYTES,
    CALM_MS,
    COLLECTED_AFTER,
    FULL_AFTER,
    LOOKED_AT_MAX,
    QUEUE_AS_MESSAGES,
    TRIM_BYTES,
    FreeMemory,
    system_trim,
)


def test_it_is_given_back_each_time_so_much_has_been_freed() -> None:
    trims: list[None] = []
    memory = FreeMemory(lambda: trims.append(None))
    for used in (0, 10 * TRIM_BYTES, 9 * TRIM_BYTES + 1):
        memory.look(used)
    assert not trims
    memory.look(9 * TRIM_BYTES)
    assert len(trims) == 1
    memory.look(8 * TRIM_BYTES + 1)
    assert len(trims) == 1
    for used in (8 * TRIM_BYTES, 8 * TRIM_BYTES, 9 * TRIM_BYTES, 8 * TRIM_BYTES + 1):
        memory.look(used)
    assert len(trims) == 2
    memory.look(0)
    assert len(trims) == 3


def test_the_rest_of_a_burst_is_given_back_once_it_is_calm() -> None:
    done: list[str] = []
    memory = FreeMemory(lambda: done.append("trim"), lambda: done.append("collect"))
    memory.look(BURST_BYTES)
    memory.trim_after_burst(BURST_BYTES, 9, 0)
    memory.trim_after_burst(1, 9, 2 * CALM_MS)
    memory.look(0)
    for now in (0, CALM_MS - 1):
        memory.trim_after_burst(0, 9, now)
    assert done == []
    memory.trim_after_burst(1, 9, CALM_MS)  # the burst is not over
    for now in (CALM_MS, 2 * CALM_MS - 1):
        memory.trim_after_burst(0, 9, now)
    assert done == []
    memory.trim_after_burst(0, 9, 2 * CALM_MS)
    assert done == ["collect", "trim"]
    memory.trim_after_burst(0, 9, 4 * CALM_MS)
    memory.trim_after_burst(0, 9, 6 * CALM_MS)
    assert done == ["collect", "trim"], "once for each burst"


def test_with_many_messages_in_memory_no_spare_objects_are_looked_for() -> None:
    done: list[str] = []
    memory = FreeMemory(lambda: done.append("trim"), lambda: done.append("collect"))
    memory.look(2 * BURST_BYTES)
    for now in (0, CALM_MS):
        memory.trim_after_burst(BURST_BYTES, LOOKED_AT_MAX + 1, now)
    assert done == ["trim"]


def test_many_queues_are_not_visited_either() -> None:
    done: list[str] = []
    memory = FreeMemory(lambda: done.append("trim"), lambda: done.append("collect"), lambda: (0, 0, FULL_AFTER))
    memory.look(2 * BURST_BYTES)
    most = LOOKED_AT_MAX // QUEUE_AS_MESSAGES
    for now in (0, CALM_MS):
        memory.trim_after_burst(0, 0, now, queues=most + 1)
    assert done == ["trim"]
    memory.trim_after_burst(0, 0, CALM_MS, queues=most)
    assert done == ["trim", "collect"]


def test_no_collection_visits_more_than_some_thousand_objects_while_a_backlog_grows() -> None:
    visited: list[int] = []

    def collecting(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            visited.append(sum(len(gc.get_objects(generation)) for generation in range(info["generation"] + 1)))

    before, enabled = gc.get_threshold(), gc.isenabled()
    gc.collect()
    gc.callbacks.append(collecting)
    try:
        gc.enable()
        gc.set_threshold(*COLLECTED_AFTER)
        backlog = [[number] for number in range(400_000)]
    finally:
        gc.callbacks.remove(collecting)
        gc.set_threshold(*before)
        if not enabled:
            gc.disable()
    assert len(backlog) == 400_000
    assert len(visited) > 20, "the collector runs"
    assert max(visited) <= 16_000, "each leads to some ten others, at 0.03 us: some ms"


def test_everything_is_visited_now_and_then_while_few_messages_are_in_memory() -> None:
    collected: list[int] = []
    seconds = 0
    memory = FreeMemory(lambda: None, lambda: collected.append(seconds), lambda: (0, 0, seconds))
    for seconds in range(FULL_AFTER + 1):
        memory.trim_after_burst(0, LOOKED_AT_MAX, seconds)
    assert collected == [FULL_AFTER]
    memory.trim_after_burst(0, LOOKED_AT_MAX + 1, seconds)
    assert collected == [FULL_AFTER]


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_the_system_has_it_back() -> None:
    trim = system_trim()
    trim()
    before = resident()
    bodies = [bytes(50_000) for _ in range(2_000)]
    last = bytes(50_000)  # keeps the end of the heap
    assert resident() - before > 90_000_000
    del bodies
    trim()
    assert resident() - before < 20_000_000
    assert last
