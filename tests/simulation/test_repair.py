"""A broker starts on every repaired journal, works, and its next start finds what it left."""

from __future__ import annotations

from random import Random

import pytest

from store import inspect
from store.repair import plan as repair
from tests.simulation.crash_work import Oracle, Workload, config
from tests.simulation.world import SCALE, everything, journal_directory
from tests.support.sim_broker import SimBroker
from tests.support.sim_files import SimFiles


@pytest.fixture(scope="module")
def whole() -> tuple[dict[str, bytes], Oracle]:
    """The segments that a mixed workload leaves, and what it sent."""
    files, oracle = SimFiles(), Oracle()
    broker = SimBroker(config(), files=files)
    Workload(broker, oracle).run()
    broker.shut_down()
    directory = journal_directory(config())
    paths = [path for path in files.paths() if path.startswith(directory) and path.endswith(".journal")]
    return {path: files.read(path) for path in paths if "/retention/" not in path}, oracle


def test_every_wound_heals(whole: tuple[dict[str, bytes], Oracle]) -> None:
    segments, oracle = whole
    directory = journal_directory(config())
    healed = 0
    for seed in range(120 * SCALE):
        chance = Random(seed)
        files = SimFiles(seed)
        for path, data in segments.items():
            files.put(path, data)
        for _ in range(chance.randrange(1, 4)):
            path = chance.choice(list(segments))
            files.flip(path, chance.randrange(len(segments[path])), 1 << chance.randrange(8))
        if inspect.verify(files, directory).ok:
            continue
        print(f"seed {seed}")
        repair.apply(files, directory, repair.plan(files, directory, 1), "/data/before")
        broker = SimBroker(config(), files=files, seed=1)
        healed += 1
        assert set(everything(broker)) <= oracle.places.keys()
        client = broker.connect()
        client.confirmed("/queue/orders", b"after")
        before = everything(broker)
        assert before[b"after"] == 1
        assert everything(broker.restart()) == before
    assert healed > 50
