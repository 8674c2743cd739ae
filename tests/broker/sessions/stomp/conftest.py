"""What the tests of STOMP sessions start from."""

from __future__ import annotations

import pytest

from tests.support.sim_broker import SimBroker, SimClient


@pytest.fixture
def client(broker: SimBroker) -> SimClient:
    """A client that is connected."""
    return broker.connect()
