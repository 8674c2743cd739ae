"""What clients are told when another broker of the pair takes over, and before that: where it may be found."""

from __future__ import annotations

import pytest

from broker.config import Config
from broker.sessions.failover import FailoverServer, open_properties, reference
from broker.sessions.session import MOVED
from protocols.amqp.types import Symbol
from protocols.mqtt.properties import SERVER_REFERENCE
from tests.support.amqp_client import AmqpSim
from tests.support.mqtt_world import SimWorld
from tests.support.sim_broker import SimBroker, configured

HOSTS = ("one.example", "two.example:9", "[2001:db8::1]")
STOMP = "one.example:61613 two.example:9 [2001:db8::1]:61613"
MQTT = "one.example:1883 two.example:9 [2001:db8::1]:1883"


def of_a_pair(*hosts: str) -> Config:
    """A configuration that says where the brokers are."""
    return configured(broker=configured().broker.model_copy(update={"failover_hosts": hosts}))


def end(broker: SimBroker, *, fenced: bool) -> None:
    """The broker hands over, or must not write any more."""
    if fenced:
        broker.give_up(MOVED, moved=True)
    else:
        broker.shut_down(moved=True)


def test_addresses() -> None:
    servers = (FailoverServer("one.example", 1), FailoverServer("2001:db8::1", 2))
    assert reference(servers) == "one.example:1 [2001:db8::1]:2"
    assert open_properties((), "amqp") == {}


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize(("hosts", "told"), [((), None), (HOSTS, STOMP)])
def test_stomp(hosts: tuple[str, ...], told: str | None, *, fenced: bool) -> None:
    broker = SimBroker(of_a_pair(*hosts))
    client = broker.connect()
    end(broker, fenced=fenced)
    (error,) = client.take("ERROR")
    assert error.headers["message"] == "another broker has the journal"
    assert error.headers.get("redirect") == told
    assert client.closed


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize(("hosts", "told"), [((), None), (HOSTS, MQTT)])
def test_mqtt(hosts: tuple[str, ...], told: str | None, *, fenced: bool) -> None:
    sim = SimWorld(of_a_pair(*hosts))
    client, early = sim.connect("c"), sim.connect("early", version=4)
    end(sim.broker, fenced=fenced)
    client.settle()
    assert client.goodbye is not None
    assert client.goodbye.reason_code == 0x9C
    assert client.goodbye.properties.get(SERVER_REFERENCE) == told
    early.settle()
    assert early.goodbye is None
    assert early.closed


@pytest.mark.parametrize("fenced", [False, True])
def test_amqp(*, fenced: bool) -> None:
    broker = SimBroker(of_a_pair(*HOSTS))
    client = AmqpSim(broker)
    end(broker, fenced=fenced)
    error = client.closed_with
    assert error is not None
    assert (error.condition, error.description) == ("amqp:connection:forced", MOVED)


def test_the_server_list_of_amqp() -> None:
    """As Qpid JMS reads it: maps with symbols for keys."""
    client = AmqpSim(SimBroker(of_a_pair(*HOSTS)))
    assert client.open is not None
    assert client.open.properties is not None
    found = client.open.properties["failover-server-list"]
    assert isinstance(found, list)
    assert [(each["network-host"], each["port"], each["scheme"]) for each in found] == [
        ("one.example", 5672, "amqp"),
        ("two.example", 9, "amqp"),
        ("2001:db8::1", 5672, "amqp"),
    ]
    assert all(isinstance(key, Symbol) for each in found for key in each)
    alone = AmqpSim(SimBroker()).open
    assert alone is not None
    assert alone.properties is not None
    assert "failover-server-list" not in alone.properties
