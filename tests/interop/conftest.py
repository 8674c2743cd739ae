"""One broker for the tests that need no broker of their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.support.daemon import DaemonProcess, running

#: As shipped, and some names with settings of their own; what is endless ends soon.
SETTINGS = """
[broker]
message-expiry-scan-period = "100ms"

[limits]
large-body-bytes-max = "10MiB"

[[address-settings]]
match = "#"
dead-letter-address = "DLQ"
expiry-address = "ExpiryQueue"

[[address-settings]]
match = "poison.#"
max-delivery-attempts = 3
dead-letter-address = "dead.poison"

[[address-settings]]
match = "delayed.#"
max-delivery-attempts = 2
redelivery-delay = 300

[[address-settings]]
match = "brief.#"
expiry-address = "late"

[[address-settings]]
match = "small.#"
max-size-messages = 10
address-full-policy = "FAIL"

[[address-settings]]
match = "narrow.#"
max-size-messages = 10
address-full-policy = "BLOCK"

[addresses.disabled]
routing-types = ["ANYCAST"]

[addresses.disabled.queues.disabled]
routing-type = "ANYCAST"
enabled = false
"""


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A broker for all of them."""
    with running(tmp_path_factory.mktemp("broker"), SETTINGS) as broker:
        yield broker


@pytest.fixture
def broker(shared_broker: DaemonProcess) -> Iterator[DaemonProcess]:
    """The same, with its log of this test in the report of a failure; it must survive the test."""
    seen = len(shared_broker.log)
    yield shared_broker
    sys.stderr.write(shared_broker.log[seen:])
    assert shared_broker.get("status")["ready"] is True
