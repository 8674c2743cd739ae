"""What all tests share: how hypothesis runs, and which tests stay together when they run side by side."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# A machine that is busy with other things is not a fault of the code: no test fails for being slow.  The examples are
# the same ones each time, so that what fails is what changed; `make explore` looks for new ones.
settings.register_profile(
    "bartleby", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True, derandomize=True
)
settings.register_profile("explore", settings.get_profile("bartleby"), derandomize=False, max_examples=2000)
settings.load_profile("bartleby")

#: Tests that share something expensive (a Spark session, a cluster, a broker, a build) run in one process, one after
#: the other; the first that fits counts.  The storm shares nothing, and takes longer than any other.
TOGETHER: Final = (
    "tests/spark_jobs/test_submit.py",
    "tests/spark_jobs/journal/",
    "tests/spark_jobs/report/",
    "tests/spark_jobs/",
    "tests/interop/test_storm.py",
    "tests/interop/",
    "tests/browser/",
)


def scope(nodeid: str) -> str:
    """What of `TOGETHER` a test belongs to; without that, the test itself."""
    return next((folder for folder in TOGETHER if nodeid.startswith(folder)), nodeid)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the tests that share nothing, the slow ones come first: at the end no process waits for another's."""
    items.sort(key=lambda item: scope(item.nodeid) != item.nodeid or item.get_closest_marker("slow") is None)


class Folders(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Tests go to whichever process is free, the largest scopes first."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Folders:
    """See xdist."""
    return Folders(config, log)
