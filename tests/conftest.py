"""What all tests share: how hypothesis runs, and which tests stay together when they run side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

# A machine that is busy with other things is not a fault of the code: no test fails for being slow.  The examples are
# the same ones each time, so that what fails is what changed; `make explore` looks for new ones.
settings.register_profile(
    "bartleby", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True, derandomize=True
)
settings.register_profile("explore", settings.get_profile("bartleby"), derandomize=False, max_examples=2000)
settings.load_profile("bartleby")

#: Tests that share something expensive (a Spark session, a broker, a build) run in one process, one after the other.
TOGETHER: Final = {"spark_jobs": "spark", "interop": "interop"}


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what stays together, by its folder below tests/."""
    here = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(here).parts[0]
        if folder in TOGETHER:
            item.add_marker(pytest.mark.xdist_group(TOGETHER[folder]))
