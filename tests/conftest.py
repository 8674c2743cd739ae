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


class Folders(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Tests go to whichever process is free, but those of some folders all to one."""

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in TOGETHER if nodeid.startswith(folder)), nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Folders:
    """See xdist."""
    return Folders(config, log)
