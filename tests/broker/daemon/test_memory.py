"""Memory goes back to the system: how often that is done, and that it works."""

from __future__ import annotations

from pathlib import Path

from broker.daemon.memory import TRIM_BYTES, FreeMemory, system_trim


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
