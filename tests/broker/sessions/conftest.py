"""Brokers for the sessions' tests of MQTT: ours, simulated; and Mosquitto where it is installed, to test the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.simulation.world import small
from tests.support.mqtt_world import SimWorld, SocketWorld
from tests.support.peers import Mosquitto
from tests.support.process import NotAvailable
from tests.support.sim_broker import SimBroker

#: Where Mosquitto 2.0.11 is not what the specification says, by test.
MOSQUITTO_DIFFERS: Final = {
    "test_a_client_identifier_in_use_takes_over": "it closes without DISCONNECT 0x8E",
    "test_disconnect_takes_a_will_back_or_not[mosquitto-128-published2]": "only 0x04 keeps a will",
    "test_shared_subscriptions_get_no_retained_messages": "they do",
    "test_all_else_goes_on_when_the_quota_is_used_up": "it counts the client's own messages, too",
}


@pytest.fixture
def broker() -> SimBroker:
    """A broker with small segments."""
    return SimBroker(small())


@pytest.fixture
def sim() -> SimWorld:
    """Our broker, as shipped."""
    return SimWorld()


@pytest.fixture(params=["bartleby", "mosquitto"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SimWorld | SocketWorld]:
    """Our broker, and Mosquitto: where it passes, a failure is ours."""
    if request.param == "bartleby":
        yield SimWorld()
        return
    differs = MOSQUITTO_DIFFERS.get(request.node.name) or MOSQUITTO_DIFFERS.get(request.node.originalname)
    if differs is not None:
        pytest.skip(f"not as specified: {differs}")
    broker = Mosquitto(tmp_path)
    try:
        broker.start()
    except NotAvailable as missing:
        pytest.skip(str(missing))
    clients = SocketWorld(broker.ports["mqtt"])
    try:
        yield clients
    finally:
        clients.close()
        broker.close()
