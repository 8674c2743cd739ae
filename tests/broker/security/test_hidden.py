"""A user learns nothing of what it has no right to: the answer is the same to the word, whether that exists or not.

Bob has no rights below `secret`, and elsewhere all or nearly all.  Each of his requests is tried on a broker that has
queues, subscriptions and full addresses there, and on one that has not.  One thing he may learn: that a name is taken
which he could have taken himself, as names of queues are one namespace; not by whom, and not where.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.config import AddressSetting, Config, SecuritySetting
from broker.daemon.wiring import settings_table
from broker.engine.model.message import RoutingType
from broker.engine.model.permissions import Permission
from broker.engine.queues.diverts import Divert
from protocols.amqp.events import Detached
from protocols.amqp.link import Link
from protocols.amqp.performatives import Properties, Rejected, Source, Target
from protocols.mqtt.packets import Ack, Suback, Subscribe, Will
from protocols.mqtt.properties import REASON_STRING
from protocols.mqtt.properties import Properties as MqttProperties
from tests.broker.security.verbs import NAME, PASSWORD, amqp, mqtt, permissions, restrict, stomp
from tests.support.amqp_client import message
from tests.support.mqtt_client import wish
from tests.support.sim_broker import SimBroker, configured

OWNER = {"login": "owner", "passcode": "o", "client-id": "c"}
FULL = {"address-full-policy": "FAIL", "max-size-messages": 1}
ANYCAST = RoutingType.ANYCAST
TAKEN = "cannot be created: its name is taken"
NAMES = ("open.#", "secret.#", "hidden", "new")
KEPT: dict[str, Any] = {"durable": 2, "expiry_policy": "never"}

Request = Callable[[SimBroker], str]


def config(*missing: Permission, creates: bool = True) -> Config:
    """Bob's rights, without the `missing` ones, and whether anything is created for clients."""
    base = permissions(*missing)
    secret = SecuritySetting.model_validate({"match": "secret.#", **{each.value: [] for each in Permission}})
    rows: list[dict[str, object]] = []
    if not creates:
        rows += [{"match": match, "auto-create-addresses": False, "auto-create-queues": False} for match in NAMES]
    return base.model_copy(
        update={
            "security_settings": (*base.security_settings, secret),
            "address_settings": (*base.address_settings, *map(AddressSetting.model_validate, rows)),
        }
    )


RIGHTS = {
    "all": config(),
    "creates no queues": config(Permission.CREATE_DURABLE_QUEUE, Permission.CREATE_NON_DURABLE_QUEUE),
    "nothing is created": config(creates=False),
}


def prepared(rights: str, *, hidden: bool) -> SimBroker:
    """A broker with an address that Bob may use, and with what he may not know of."""
    broker = SimBroker(permissions(), users={NAME: PASSWORD, "owner": "o"})
    owner = broker.connect(**OWNER)
    owner.subscribe("/topic/open")
    if hidden:
        owner.confirmed("secret.queue::hidden", b"x", **{"destination-type": "ANYCAST"})
        owner.subscribe("/topic/secret.topic", id="2", **{"durable-subscription-name": "kept"})
        session = broker.connect(**OWNER | {"client-id": "m"})
        session.subscribe("/topic/secret.topic", **{"durable-subscription-name": "open"})
    if rights == "nothing is created":
        broker.parts.tick.enter()
        broker.engine.configuration.change_settings(settings_table(RIGHTS[rights]))
    restrict(broker, RIGHTS[rights])
    return broker


# -- what Bob tries ----------------------------------------------------------------------------------------------------


def by_stomp(command: str, **headers: str) -> Request:
    """One frame, and what the broker says to it."""

    def ask(broker: SimBroker) -> str:
        client = stomp(broker)
        client.do(command, {name.replace("_", "-"): value for name, value in headers.items()})
        return "; ".join(f"{error.headers['message']}: {error.body.decode()}" for error in client.take("ERROR"))

    return ask


def by_amqp(address: str | None, name: str = "l", *, sends: bool = False, **source: Any) -> Request:
    """A link, and the error with which it is refused."""

    def ask(broker: SimBroker) -> str:
        client = amqp(broker)
        if sends:
            link: Link = client.sender(address, target=Target(address))
        else:
            link = client.receiver(address, name=name, credit=0, source=Source(address, **source) if address else None)
        if not any(isinstance(event, Detached) for event in client.events):
            return ""
        return str(client.refused(link))

    return ask


def by_relay(to: str) -> Request:
    """A message to the anonymous relay."""

    def ask(broker: SimBroker) -> str:
        client = amqp(broker)
        [outcome] = client.send(client.sender(None), message("x", properties=Properties(to=to)))
        return str(outcome.state) if isinstance(outcome.state, Rejected) else ""

    return ask


def reason_string(properties: MqttProperties) -> str:
    """The Reason String of an answer."""
    return properties.get(REASON_STRING) or ""


def by_subscribe(filter: str) -> Request:
    """An MQTT SUBSCRIBE, and its reason code and string."""

    def ask(broker: SimBroker) -> str:
        client = mqtt(broker, clean=False)
        client.send(Subscribe(client.number(), [wish(filter, 1)]))
        [answer] = [packet for packet in client.others if isinstance(packet, Suback)]
        return "" if answer.reason_codes == [1] else f"{answer.reason_codes} {reason_string(answer.properties)}"

    return ask


def by_publish(topic: str) -> Request:
    """An MQTT PUBLISH, and its reason code and string."""

    def ask(broker: SimBroker) -> str:
        client = mqtt(broker)
        client.publish(topic, b"x", 1)
        client.settle()
        [answer] = client.answers
        assert isinstance(answer, Ack)
        return f"{answer.reason_code} {reason_string(answer.properties)}" if answer.reason_code else ""

    return ask


def by_own_message(topic: str, *, will: bool = False) -> Request:
    """What a subscription to a topic gets of what the same user publishes there, or leaves as a will."""

    def ask(broker: SimBroker) -> str:
        reader = mqtt(broker, id="reader")
        reader.subscribe(topic)
        client = mqtt(broker, will=Will(topic, b"mine", 0) if will else None)
        if not will:
            client.publish(topic, b"mine")
        client.drop()
        return str(reader.payloads())

    return ask


SENT_TO = ("open::hidden", "new::hidden", "/queue/hidden", "secret.queue::hidden", "/topic/secret.topic")
READ = (*SENT_TO, "open::c.kept", "/queue/secret.queue", "/topic/secret.#")
NODES = ("open::hidden", "new::hidden", "queue://hidden", "queue://secret.queue")
#: Full names that are also topics, of which Bob may use every one.
FULL_NAMES = (
    "secret.queue::hidden",
    "secret.queue::none",
    "secret.topic::c.kept",
    "secret.topic::kept",
    "secret.queue::hid/den",
)
FILTERS = (
    *("open", "$share/g/open", "secret/queue", "secret/queue::hidden", "secret/topic::c.kept", "secret/#"),
    *("$share/g/secret.queue::hidden", *FULL_NAMES),
)
TOPICS = ("secret/queue", "secret/queue::hidden", "open::hidden", *FULL_NAMES)

REQUESTS: dict[str, Request] = {
    **{f"stomp SEND {to}": by_stomp("SEND", destination=to) for to in SENT_TO},
    **{f"stomp SUBSCRIBE {to}": by_stomp("SUBSCRIBE", destination=to, id="1") for to in READ},
    "stomp browses": by_stomp("SUBSCRIBE", destination="/queue/hidden", id="1", browser="true"),
    "stomp SUBSCRIBE durably": by_stomp(
        "SUBSCRIBE", destination="/topic/open", id="1", durable_subscription_name="kept"
    ),
    "stomp UNSUBSCRIBE": by_stomp("UNSUBSCRIBE", id="x", durable_subscription_name="kept"),
    **{f"amqp sender to {to}": by_amqp(to, sends=True) for to in NODES},
    **{f"amqp receiver of {to}": by_amqp(to) for to in NODES},
    "amqp browser": by_amqp("open::hidden", distribution_mode="copy"),
    "amqp durable": by_amqp("topic://open", "kept", **KEPT),
    "amqp shared": by_amqp("topic://open", "kept", capabilities=("shared",), **KEPT),
    "amqp look-up": by_amqp(None, "kept"),
    "amqp relay": by_relay("open::hidden"),
    **{f"mqtt SUBSCRIBE {to}": by_subscribe(to) for to in FILTERS},
    **{f"mqtt PUBLISH {to}": by_publish(to) for to in TOPICS},
    **{f"mqtt PUBLISH to oneself {to}": by_own_message(to) for to in FULL_NAMES},
    **{f"mqtt will {to}": by_own_message(to, will=True) for to in FULL_NAMES},
}


@pytest.mark.parametrize("rights", RIGHTS)
@pytest.mark.parametrize("request_name", REQUESTS)
def test_the_answer_is_the_same_whether_it_exists_or_not(request_name: str, rights: str) -> None:
    told, otherwise = (REQUESTS[request_name](prepared(rights, hidden=hidden)) for hidden in (True, False))
    if told != otherwise:
        assert not otherwise, "only who could have taken the name learns that it is taken"
        assert TAKEN in told
        assert "secret" not in told


def test_a_full_address_behind_a_divert_is_not_named() -> None:
    broker = prepared("all", hidden=True)
    broker.parts.tick.enter()
    settings = settings_table(configured({"match": "secret.queue", **FULL}))
    broker.engine.configuration.change_settings(settings)
    broker.engine.operators.add_divert(Divert("d", "open", ("secret.queue",)))
    broker.run()
    for request in (by_stomp("SEND", destination="/topic/open", persistent="true"), by_publish("open")):
        told = request(broker)
        assert "address open takes no messages: an address that its diverts lead to is full" in told
        assert "secret" not in told


def test_of_several_queues_only_those_that_may_be_used_are_listed() -> None:
    broker = prepared("all", hidden=False)
    owner = broker.connect(**OWNER)
    for name in ("one", "two", "three"):
        owner.confirmed(f"several::{name}", b"x", **{"destination-type": "ANYCAST"})
    ask = by_stomp("SUBSCRIBE", destination="several", id="1")
    assert "several queues (one, three, two)" in ask(broker)
    hidden = [SecuritySetting.model_validate({"match": f"several::{name}", "send": ["amq"]}) for name in ("one", "two")]
    everything = permissions().security_settings
    restrict(broker, permissions().model_copy(update={"security_settings": (*everything, *hidden)}))
    assert "several queues (three)" in ask(broker)


def test_attributes_are_asked_of_queues_of_the_address_alone() -> None:
    """Not of one on another address that has the name of this one."""
    broker = prepared("all", hidden=False)
    owner = broker.connect(**OWNER)
    owner.confirmed("elsewhere::open", b"x", **{"destination-type": "ANYCAST"})
    owner.confirmed("open::other", b"x", **{"destination-type": "ANYCAST"})
    assert not by_amqp("queue://open?max-consumers=7", sends=True)(broker)
