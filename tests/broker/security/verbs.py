"""Everything that clients can ask for, in each protocol, with the permissions that it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from broker.config import Config, JournalSection, LimitsSection, SecuritySetting
from broker.engine.model.permissions import Permission
from broker.security.policy import permission_table
from protocols.amqp.errors import UNAUTHORIZED_ACCESS
from protocols.amqp.events import Detached
from protocols.amqp.link import Link
from protocols.amqp.performatives import Error, Properties, Rejected, Source, Target, TerminusDurability
from protocols.mqtt.codes import V5, V311, PacketType
from protocols.mqtt.packets import Will
from tests.support.amqp_client import AmqpSim, message
from tests.support.mqtt_client import MqttClient, greeting
from tests.support.mqtt_world import SimCarrier
from tests.support.sim_broker import SimBroker, SimClient, configured

P = Permission
NAME, PASSWORD = "alice", "s3cret"
NOT_AUTHORIZED = 0x87

#: An anycast address with its queue and a message; a multicast one with a durable subscription; nothing yet.
QUEUE, TOPIC, NEW = "there", "topic.there", "elsewhere"
PATH = TOPIC.replace(".", "/")


SMALL = JournalSection.model_validate({"segment-size": "4MiB", "reserve": "1MiB"})
_LIMITS = LimitsSection.model_validate({"body-bytes-max": "1MiB", "transaction-bytes-max": "1MiB"})


class Denied(Exception):
    """The broker refused in the protocol's words; the text is what it said."""


def permissions(*missing: Permission) -> Config:
    """Everything is permitted but this."""
    granted = {permission.value: [] if permission in missing else ["amq"] for permission in Permission}
    return configured(
        journal=SMALL, limits=_LIMITS, security_settings=(SecuritySetting.model_validate({"match": "#", **granted}),)
    )


def restrict(broker: SimBroker, config: Config) -> None:
    """Other permissions while it runs."""
    broker.parts.tick.enter()
    broker.engine.secure(permission_table(config))
    broker.run()
    broker.reports.clear()


def prepared() -> SimBroker:
    """A broker with something on it, where everything is permitted to its user."""
    broker = SimBroker(permissions(), users={NAME: PASSWORD})
    client = stomp(broker)
    client.confirmed(f"/queue/{QUEUE}", b"old")
    client.subscribe(f"/topic/{TOPIC}", durable_subscription_name="kept")
    client.drop()
    mqtt(broker, clean=False).subscribe(f"{PATH}/mqtt", qos=1)
    return broker


# -- clients -----------------------------------------------------------------------------------------------------------


def stomp(broker: SimBroker) -> SimClient:
    """A STOMP client that is in."""
    return broker.connect(login=NAME, passcode=PASSWORD, **{"client-id": "c"})


def heard(client: SimClient) -> None:
    """Raises Denied."""
    for error in client.take("ERROR"):
        assert client.closed, "an ERROR ends a STOMP connection"
        assert error.headers["message"] == "permission denied", error
        raise Denied(error.body.decode())


def stomp_do(command: str, **headers: str) -> Callable[[SimBroker], None]:
    """One frame."""

    def does(broker: SimBroker) -> None:
        client = stomp(broker)
        client.do(command, {name.replace("_", "-"): value for name, value in headers.items()})
        heard(client)

    return does


def stomp_transaction(broker: SimBroker) -> None:
    """A SEND that counts with its COMMIT."""
    client = stomp(broker)
    client.do("BEGIN", {"transaction": "t"})
    client.do("SEND", {"destination": f"/queue/{QUEUE}", "transaction": "t"}, b"x")
    heard(client)
    client.do("COMMIT", {"transaction": "t"})
    heard(client)


def amqp(broker: SimBroker) -> AmqpSim:
    """An AMQP client that is in."""
    return AmqpSim(broker, container="c", login=(NAME, PASSWORD))


def judge(error: Error | None) -> None:
    """Raises Denied."""
    assert error is not None
    assert error.condition == UNAUTHORIZED_ACCESS, error
    raise Denied(error.description or "")


def linked(client: AmqpSim, link: Link) -> None:
    """Whether the broker granted a link.  Raises Denied."""
    assert not client.closed, "a refused link costs the link alone"
    if any(isinstance(event, Detached) and event.link is link for event in client.events):
        judge(client.refused(link))


def amqp_sender(address: str | None, **target: Any) -> Callable[[SimBroker], None]:
    """A sender's link."""

    def does(broker: SimBroker) -> None:
        client = amqp(broker)
        linked(client, client.sender(address, target=Target(address, **target)))

    return does


def amqp_message(broker: SimBroker) -> None:
    """A message through the anonymous relay."""
    client = amqp(broker)
    payload = message("x", properties=Properties(to=f"queue://{QUEUE}"))
    [outcome] = client.send(client.sender(None), payload)
    assert not client.closed, "a refused message costs the message alone"
    if isinstance(outcome.state, Rejected):
        judge(outcome.state.error)


def amqp_receiver(address: str | None, name: str = "", **source: Any) -> Callable[[SimBroker], None]:
    """A receiver's link."""

    def does(broker: SimBroker) -> None:
        client = amqp(broker)
        linked(client, client.receiver(address, name=name, credit=0, source=Source(address, **source)))

    return does


def amqp_unsubscribe(broker: SimBroker) -> None:
    """Closing the link of a durable subscription, which deletes it."""
    client = amqp(broker)
    link = client.ses.new_receiver("kept")
    link.send_attach(source=None, target=Target("me"), desired_capabilities=("topic",))
    client.say()
    linked(client, link)
    client.events.clear()
    client.detach(link)
    assert not client.closed
    [event] = [event for event in client.events if isinstance(event, Detached)]
    if event.error is not None:
        judge(event.error)


def mqtt(broker: SimBroker, version: int = V5, *, id: str = "m", **more: Any) -> MqttClient:
    """An MQTT client that has tried to come in."""
    client = MqttClient()
    client.over(SimCarrier(broker))
    return client.connect(greeting(id, version=version, user_name=NAME, password=PASSWORD.encode(), **more))


def mqtt_publish(qos: int, version: int = V5, *, retain: bool = False) -> Callable[[SimBroker], None]:
    """PUBLISH.  Before 5.0, and with QoS 0, nobody can be told: it is dropped (MQTT 3.1.1, 3.3.5)."""

    def does(broker: SimBroker) -> None:
        client = mqtt(broker, version)
        client.publish(PATH, b"x", qos, retain=retain)
        client.settle()
        answers = client.replies(PacketType.PUBACK if qos == 1 else PacketType.PUBREC) if qos else []
        for _, reason in answers:
            if reason == NOT_AUTHORIZED:
                raise Denied("")
            assert reason < 0x80

    return does


def mqtt_subscribe(filter: str, version: int = V5, *, clean: bool = True, qos: int = 1) -> Callable[[SimBroker], None]:
    """SUBSCRIBE."""

    def does(broker: SimBroker) -> None:
        client = mqtt(broker, version, clean=clean)
        [reason] = client.subscribe(filter, qos=qos)
        assert not client.closed, "a refused subscription costs nothing else"
        if reason == (NOT_AUTHORIZED if version == V5 else 0x80):
            raise Denied("")
        assert reason < 0x80, hex(reason)

    return does


def mqtt_will(broker: SimBroker) -> None:
    """A will, published when its client is gone: it cannot be told."""
    client = mqtt(broker, will=Will(PATH, b"gone", 1))
    assert client.connack is not None
    client.drop()


# -- the table ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verb:
    """Something that a client does, and what it needs."""

    does: Callable[[SimBroker], None]
    needs: tuple[Permission, ...]
    silent: bool = False  # the protocol has no way to tell


_SEND_NEW = (P.SEND, P.CREATE_ADDRESS, P.CREATE_DURABLE_QUEUE)
_READ_NEW = (P.CONSUME, P.CREATE_ADDRESS, P.CREATE_DURABLE_QUEUE)
_VOLATILE = (P.CONSUME, P.CREATE_NON_DURABLE_QUEUE)
_DURABLE = (P.CONSUME, P.CREATE_DURABLE_QUEUE)
_STAYS = TerminusDurability.UNSETTLED_STATE
_TEMPORARY_QUEUE, _TEMPORARY_TOPIC = ("temporary-queue",), ("temporary-topic",)

VERBS: dict[str, Verb] = {
    "stomp SEND": Verb(stomp_do("SEND", destination=f"/queue/{QUEUE}"), (P.SEND,)),
    "stomp SEND to a queue": Verb(stomp_do("SEND", destination=f"{QUEUE}::{QUEUE}"), (P.SEND,)),
    "stomp SEND to a new queue": Verb(stomp_do("SEND", destination=f"/queue/{NEW}"), _SEND_NEW),
    "stomp SEND to a new queue by its full name": Verb(stomp_do("SEND", destination=f"{NEW}::q"), _SEND_NEW),
    "stomp SEND to a new topic": Verb(stomp_do("SEND", destination=f"/topic/{NEW}"), (P.SEND, P.CREATE_ADDRESS)),
    "stomp SEND to a queue as a topic": Verb(
        stomp_do("SEND", destination=f"/topic/{QUEUE}"), (P.SEND, P.CREATE_ADDRESS)
    ),
    "stomp SEND in a transaction": Verb(stomp_transaction, (P.SEND,)),
    "stomp SUBSCRIBE": Verb(stomp_do("SUBSCRIBE", destination=f"/queue/{QUEUE}", id="1"), (P.CONSUME,)),
    "stomp SUBSCRIBE by full name": Verb(stomp_do("SUBSCRIBE", destination=f"{QUEUE}::{QUEUE}", id="1"), (P.CONSUME,)),
    "stomp SUBSCRIBE to a new queue": Verb(stomp_do("SUBSCRIBE", destination=f"/queue/{NEW}", id="1"), _READ_NEW),
    "stomp SUBSCRIBE to a topic": Verb(stomp_do("SUBSCRIBE", destination=f"/topic/{TOPIC}", id="1"), _VOLATILE),
    "stomp SUBSCRIBE to a pattern": Verb(
        stomp_do("SUBSCRIBE", destination="/topic/topic.#", id="1"), (*_VOLATILE, P.CREATE_ADDRESS)
    ),
    "stomp SUBSCRIBE durably": Verb(
        stomp_do("SUBSCRIBE", destination=f"/topic/{TOPIC}", id="1", durable_subscription_name="n"), _DURABLE
    ),
    "stomp SUBSCRIBE durably again": Verb(
        stomp_do("SUBSCRIBE", destination=f"/topic/{TOPIC}", id="1", durable_subscription_name="kept"), (P.CONSUME,)
    ),
    "stomp UNSUBSCRIBE": Verb(
        stomp_do("UNSUBSCRIBE", id="x", durable_subscription_name="kept"), (P.DELETE_DURABLE_QUEUE,)
    ),
    "amqp sender": Verb(amqp_sender(f"queue://{QUEUE}"), (P.SEND,)),
    "amqp sender to a new queue": Verb(amqp_sender(f"queue://{NEW}"), _SEND_NEW),
    "amqp sender to a new topic": Verb(amqp_sender(f"topic://{NEW}"), (P.SEND, P.CREATE_ADDRESS)),
    "amqp message through the relay": Verb(amqp_message, (P.SEND,)),
    "amqp sender to a temporary queue": Verb(
        amqp_sender(None, dynamic=True, capabilities=_TEMPORARY_QUEUE),
        (P.SEND, P.CREATE_ADDRESS, P.CREATE_NON_DURABLE_QUEUE),
    ),
    "amqp sender to a temporary topic": Verb(
        amqp_sender(None, dynamic=True, capabilities=_TEMPORARY_TOPIC), (P.SEND, P.CREATE_ADDRESS)
    ),
    "amqp receiver": Verb(amqp_receiver(f"queue://{QUEUE}"), (P.CONSUME,)),
    "amqp receiver by full name": Verb(amqp_receiver(f"{QUEUE}::{QUEUE}"), (P.CONSUME,)),
    "amqp receiver of a new queue": Verb(amqp_receiver(f"queue://{NEW}"), _READ_NEW),
    "amqp receiver of a temporary queue": Verb(
        amqp_receiver(None, dynamic=True, capabilities=_TEMPORARY_QUEUE),
        (P.CONSUME, P.CREATE_ADDRESS, P.CREATE_NON_DURABLE_QUEUE),
    ),
    "amqp browser": Verb(amqp_receiver(f"queue://{QUEUE}", distribution_mode="copy"), (P.BROWSE,)),
    "amqp subscription": Verb(amqp_receiver(f"topic://{TOPIC}"), _VOLATILE),
    "amqp durable subscription": Verb(amqp_receiver(f"topic://{TOPIC}", "n", durable=_STAYS), _DURABLE),
    "amqp shared subscription": Verb(amqp_receiver(f"topic://{TOPIC}", "n", capabilities=("shared",)), _VOLATILE),
    "amqp durable subscription again": Verb(amqp_receiver(f"topic://{TOPIC}", "kept", durable=_STAYS), (P.CONSUME,)),
    "amqp unsubscribe": Verb(amqp_unsubscribe, (P.DELETE_DURABLE_QUEUE,)),
    "mqtt PUBLISH QoS 0": Verb(mqtt_publish(0), (P.SEND,), silent=True),
    "mqtt PUBLISH QoS 1": Verb(mqtt_publish(1), (P.SEND,)),
    "mqtt PUBLISH QoS 2": Verb(mqtt_publish(2), (P.SEND,)),
    "mqtt PUBLISH retained": Verb(mqtt_publish(1, retain=True), (P.SEND,)),
    "mqtt 3.1.1 PUBLISH QoS 0": Verb(mqtt_publish(0, V311), (P.SEND,), silent=True),
    "mqtt 3.1.1 PUBLISH QoS 1": Verb(mqtt_publish(1, V311), (P.SEND,), silent=True),
    "mqtt SUBSCRIBE": Verb(mqtt_subscribe(PATH), _VOLATILE),
    "mqtt SUBSCRIBE to a pattern": Verb(mqtt_subscribe("topic/#"), (*_VOLATILE, P.CREATE_ADDRESS)),
    "mqtt SUBSCRIBE shared": Verb(mqtt_subscribe(f"$share/g/{PATH}"), _DURABLE),
    "mqtt 3.1.1 SUBSCRIBE": Verb(mqtt_subscribe(PATH, V311), _VOLATILE),
    "mqtt 3.1.1 SUBSCRIBE of a session that stays": Verb(mqtt_subscribe(PATH, V311, clean=False), _DURABLE),
    "mqtt will": Verb(mqtt_will, (P.SEND,), silent=True),
}


def state(broker: SimBroker) -> tuple[dict[str, int], set[str]]:
    """Queues with their messages, and addresses; without those that a subscription takes with it."""
    state = broker.engine._state
    queues = {name: queue.message_count for name, queue in state.queues.items() if not queue.temporary}
    return queues, {address.name for address in state.addresses.values()}
