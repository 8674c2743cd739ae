"""A simulated broker and a client of AMQP."""

from __future__ import annotations

from tests.simulation.world import small
from tests.support.amqp_client import AmqpSim
from tests.support.sim_broker import SimBroker

SELECTOR = "apache.org:selector-filter:string"


def started(*settings: dict[str, object]) -> tuple[SimBroker, AmqpSim]:
    broker = SimBroker(small(*settings))
    return broker, AmqpSim(broker)
