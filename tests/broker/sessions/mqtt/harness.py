"""Configurations and clients for the tests of MQTT sessions."""

from __future__ import annotations

from typing import Any, Final

from scramp import ScramClient

from broker.config import Config, SecuritySetting
from broker.engine.model.permissions import Permission
from broker.engine.queues.queue import Queue
from protocols.mqtt.packets import Auth
from protocols.mqtt.properties import AUTHENTICATION_DATA, AUTHENTICATION_METHOD
from tests.broker.security.verbs import SMALL
from tests.support.mqtt_client import MqttClient, greeting
from tests.support.mqtt_world import SimCarrier, SimWorld
from tests.support.sim_broker import configured


def with_mqtt(*addresses: dict[str, object], **settings: object) -> Config:
    """The configuration with other settings of addresses, and of the acceptor."""
    shipped = configured()
    acceptor = shipped.acceptors["mqtt"].model_copy(update=settings)
    return configured(*addresses, acceptors={**shipped.acceptors, "mqtt": acceptor})


def queues(sim: SimWorld) -> dict[str, Queue]:
    """The queues of subscriptions, by name."""
    known = ("DLQ", "ExpiryQueue", "$sys.mqtt.retained")
    return {name: queue for name, queue in sim.broker.engine.queues.items() if name not in known}


def carrier(client: MqttClient) -> SimCarrier:
    """The wire of a client."""
    found = client.link
    assert isinstance(found, SimCarrier)
    return found


USERS = {"alice": "right"}


METHOD = "SCRAM-SHA-256"


def authenticate(client: MqttClient, reason: int, password: str) -> None:
    """The client's side of SCRAM: AUTH until the broker has said yes or no; `reason` 0x18 follows a CONNECT."""
    scram = ScramClient([METHOD], "alice", password)
    first = scram.get_client_first().encode()
    if reason == 0x18:
        client.connect(greeting("c", properties=[(AUTHENTICATION_METHOD, METHOD), (AUTHENTICATION_DATA, first)]))
    else:
        client.auth(reason, (AUTHENTICATION_METHOD, METHOD), (AUTHENTICATION_DATA, first))
    (challenge,) = (packet for packet in client.others if isinstance(packet, Auth))
    client.others.clear()
    assert challenge.reason_code == 0x18
    scram.set_server_first((challenge.properties.get(AUTHENTICATION_DATA) or b"").decode())
    final = scram.get_client_final().encode()
    client.auth(0x18, (AUTHENTICATION_METHOD, METHOD), (AUTHENTICATION_DATA, final))
    told = client.connack if reason == 0x18 else next(iter(client.others), None)
    if told is not None and not client.closed:
        assert isinstance(told, Auth) or told is client.connack
        scram.set_server_final((told.properties.get(AUTHENTICATION_DATA) or b"").decode())


LOGIN: Final[dict[str, Any]] = {"user_name": "alice", "password": b"right"}
READERS: Final = {"alice": "right", "bob": "right"}


def guarded(*secret: str, filtered: bool = True, rules: dict[str, object] | None = None) -> Config:
    """Everything is permitted to everybody, but nobody reads the addresses below `secret` but for these users' role."""
    granted = {permission.value: ["amq"] for permission in Permission}
    settings = [{"match": "#", **granted}]
    settings += [{"match": match, **granted, "consume": ["nobody"], "browse": ["nobody"]} for match in secret]
    config = configured(
        *([rules] if rules else []),
        journal=SMALL,
        security_settings=tuple(SecuritySetting.model_validate(each) for each in settings),
    )
    acceptors = dict(config.acceptors)
    acceptors["mqtt"] = acceptors["mqtt"].model_copy(update={"filter_subscriptions": filtered})
    return config.model_copy(update={"acceptors": acceptors})


def dead_letters(sim: SimWorld) -> Queue:
    """The queue of dead letters."""
    return sim.broker.engine.queues["DLQ"]


def dead_letters_or_none(sim: SimWorld) -> int:
    """How many dead letters there are, if there is a queue of them."""
    queue = sim.broker.engine.queues.get("DLQ")
    return 0 if queue is None else queue.message_count
