"""Settings of all tests: hypothesis profiles, and which tests run in the same process."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from tests.support.postgresql import Pair, PostgreSQL

# A busy machine is not a fault of the code: no test fails because it is slow.  The examples are
# the same ones each time, so that what fails is what changed, and few; `make explore` looks for new ones.
settings.register_profile(
    "bartleby",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize=True,
    max_examples=50,
)
settings.register_profile("explore", settings.get_profile("bartleby"), derandomize=False, max_examples=2000)
settings.load_profile("bartleby")

#: Tests that share something expensive (a Spark session, a cluster, a broker, a database, a build) run in one process,
#: one after the other; the first that fits counts.  The storms share nothing, and take longer than others.  Several
#: processes share the interop tests: together they wait longer for brokers and clients than all other tests run.
TOGETHER: Final = (
    "tests/spark_jobs/test_submit.py",
    "tests/spark_jobs/journal/",
    "tests/spark_jobs/report/",
    "tests/spark_jobs/",
    "tests/interop/test_storm.py",
    "tests/interop/test_failover_storm.py",
    "tests/interop/test_links",
    "tests/interop/test_mqtt",
    "tests/interop/",
    "tests/broker/management/test_conformance.py",
    "tests/packaging/test_wheel.py",
    "tests/compare/",
    "tests/browser/",
    "tests/support/",
    "tests/test_tidy.py",
)


@cache
def scope(nodeid: str) -> str:
    """Return the entry of `TOGETHER` that a test belongs to; if none, the test itself."""
    return next((folder for folder in TOGETHER if nodeid.startswith(folder)), nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Freeze imported and collected objects, as they stay to the end: garbage collections in a test skip them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the slow ones first of the tests that share nothing: at the end no process waits for another's."""
    items.sort(key=lambda item: scope(item.nodeid) != item.nodeid or item.get_closest_marker("slow") is None)


class Indexed(list[str]):
    """A list that knows where each of its items is: xdist asks it for the index of each test."""

    def __init__(self, items: Sequence[str]) -> None:
        super().__init__(items)
        self._places = {item: at for at, item in enumerate(items)}

    def index(self, item: str, *_: object) -> int:
        """See list.  Raises KeyError."""
        return self._places[item]


class Folders(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Assigns tests to free processes, the largest scopes first."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """See xdist."""
        super().add_node_collection(node, collection)
        if node in self.registered_collections:
            self.registered_collections[node] = Indexed(collection)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """See xdist.  Forgets finished scopes, as xdist walks all scopes of a process after each of its tests."""
        super().mark_test_complete(node, item_index, duration)
        name = scope(self.registered_collections[node][item_index])
        if all(self.assigned_work[node][name].values()):
            del self.assigned_work[node][name]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Folders:
    """See xdist."""
    return Folders(config, log)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A place for PostgreSQL servers of the tests' own."""
    from tests.support.postgresql import PostgreSQL
    from tests.support.process import NotAvailable

    try:
        place = PostgreSQL()
    except NotAvailable as missing:
        pytest.skip(str(missing))
    with place:
        yield place


@pytest.fixture
def pair(postgresql: PostgreSQL) -> Iterator[Pair]:
    """A primary and its synchronous standby, for a test that may break them."""
    with postgresql.pair() as pair:
        yield pair


@pytest.fixture(scope="session")
def shared_pair(postgresql: PostgreSQL) -> Iterator[Pair]:
    """A pair shared by all tests that do not break it."""
    with postgresql.pair() as pair:
        yield pair
