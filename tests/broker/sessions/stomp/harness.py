"""A simulated broker and a client of STOMP."""

from __future__ import annotations

from tests.simulation.world import small
from tests.support.sim_broker import SimBroker, SimClient


def started(*settings: dict[str, object], version: str = "1.2", **headers: str) -> tuple[SimBroker, SimClient]:
    broker = SimBroker(small(*settings))
    return broker, broker.connect(version, **headers)


def filled(broker: SimBroker, count: int = 3, queue: str = "a") -> None:
    client = broker.connect()
    for n in range(count):
        client.confirmed(f"/queue/{queue}", b"%d" % n)
    client.drop()


def error(client: SimClient) -> str:
    """The message of the ERROR that ended the connection."""
    (found,) = client.take("ERROR")
    assert client.closed
    return found.headers["message"]
