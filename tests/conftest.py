"""What all tests share: how hypothesis runs."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A machine that is busy with other things is not a fault of the code: no test fails for being slow.
settings.register_profile("bartleby", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("bartleby")
