"""What the tests of AMQP sessions start from."""

from __future__ import annotations

import pytest

from tests.support.amqp_client import AmqpSim
from tests.support.sim_broker import SimBroker


@pytest.fixture
def client(broker: SimBroker) -> AmqpSim:
    """A client that is connected."""
    return AmqpSim(broker)
