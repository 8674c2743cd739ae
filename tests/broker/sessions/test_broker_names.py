"""No header of the broker's own names comes from a client, whatever protocol it sends by and is received by."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.config import Config
from broker.engine.model.message import RESERVED_PREFIXES
from broker.sessions.amqp.format import RESERVED_ANNOTATIONS, annotation_name, without_reserved
from broker.sessions.amqp.message import take_apart
from protocols.amqp.errors import DecodeError
from protocols.amqp.message import MESSAGE_ANNOTATIONS, encode_annotations
from protocols.amqp.performatives import Modified, Properties, Rejected
from protocols.amqp.types import UInt
from protocols.mqtt.properties import USER_PROPERTY
from tests.simulation.world import small
from tests.support.amqp_client import AmqpSim, message
from tests.support.mqtt_world import SimWorld
from tests.support.sim_broker import SimBroker, configured

FORGED = {
    "_AMQ_VALIDATED_USER": "admin",
    "_AMQ_ORIG_ADDRESS": "payroll",
    "_AMQ_ORIG_QUEUE": "payroll",
    "_AMQ_ORIG_MESSAGE_ID": "1",
    "_AMQ_ORIG_ROUTING_TYPE": "1",
    "_AMQ_DL_REASON": "rejected",
    "_AMQ_DL_CLIENT": "somebody else",
    "_AMQ_ACTUAL_EXPIRY": "1",
    "_AMQ_INGRESS_TIMESTAMP": "1",
    "_AMQ_REPLAY": "audit",
    "_AMQ_REPLAY_TIME": "1",
}

#: Headers of clients that look nearly so.
HARMLESS = {"_AMQ_DUPL_ID": "d-1", "x_AMQ_ORIG_QUEUE": "x", "kind": "_AMQ_DL_REASON"}


def send_stomp(sim: SimWorld) -> None:
    sim.broker.connect().confirmed("/topic/a", b"x", **FORGED, **HARMLESS)


def send_amqp(sim: SimWorld) -> None:
    client = AmqpSim(sim.broker)
    noted: dict[object, object] = {"x-opt-mine": "kept"}
    for name, value in FORGED.items():
        noted[name] = noted[annotation_name(name)] = value
    annotations = encode_annotations(MESSAGE_ANNOTATIONS, noted)
    client.send(client.sender("a", "topic"), message("x", application={**FORGED, **HARMLESS}, annotations=annotations))


def send_mqtt(sim: SimWorld) -> None:
    pairs = [(USER_PROPERTY, pair) for pair in (FORGED | HARMLESS).items()]
    sim.connect("sender").publish("a", b"x", 1, properties=pairs)


Names = Callable[[], list[set[str]]]


def stomp_names(sim: SimWorld) -> Names:
    client = sim.broker.subscriber("/topic/a")
    return lambda: [set(frame.headers) for frame in client.messages()]


def amqp_names(sim: SimWorld) -> Names:
    client = AmqpSim(sim.broker)
    client.receiver("a", "topic")

    def found() -> list[set[str]]:
        messages = [delivery.message for delivery in client.take()]
        return [{*map(str, m.application_properties), *map(str, m.message_annotations)} for m in messages]

    return found


def mqtt_names(sim: SimWorld) -> Names:
    client = sim.subscriber("taker", "a", qos=1)
    return lambda: [{name for name, _ in m.properties.get_all(USER_PROPERTY)} for m in client.take()]


@pytest.mark.parametrize("send", [send_stomp, send_amqp, send_mqtt])
@pytest.mark.parametrize("names", [stomp_names, amqp_names, mqtt_names])
def test_they_do_not_pass(sim: SimWorld, send: Callable[[SimWorld], None], names: Callable[[SimWorld], Names]) -> None:
    found = names(sim)
    send(sim)
    (came,) = found()
    assert not {name for name in came if name.startswith(RESERVED_ANNOTATIONS)}
    assert set(HARMLESS) <= came
    assert (send is send_amqp and names is amqp_names) == ("x-opt-mine" in came)


def test_the_names_of_the_broker_itself_work() -> None:
    """The true time of arrival, and not the one that the sender made up."""
    sim = SimWorld(with_ingress())
    found = [names(sim) for names in (stomp_names, amqp_names, mqtt_names)]
    send_mqtt(sim)
    stomp, amqp, mqtt = ({name for came in names() for name in came} for names in found)
    assert "ingress-timestamp" in stomp
    assert "x-opt-ingress-time" in amqp
    assert "_AMQ_INGRESS_TIMESTAMP" in mqtt


def with_ingress() -> Config:
    return configured({"match": "a", "enable-ingress-timestamp": True})


def test_a_dead_letter_that_a_tool_sends_back_is_taken_and_tells_the_truth_when_it_dies_again(
    broker: SimBroker,
) -> None:
    client = broker.connect()
    client.confirmed("/queue/a", b"x", kind="order")
    client.subscribe("/queue/a")
    client.nack(client.messages()[0], requeue="false")
    client.subscribe("/queue/DLQ", id="dead")
    (dead,) = client.messages()
    client.confirmed("/queue/b", dead.body, **{n: v for n, v in dead.headers.items() if n.startswith("_AMQ_")})
    client.ack(dead)
    client.subscribe("/queue/b", id="b")
    (again,) = client.messages()
    assert not [name for name in again.headers if name.startswith("_AMQ_")]
    client.nack(again, requeue="false")
    (dead,) = client.messages()
    assert (dead.headers["_AMQ_ORIG_QUEUE"], dead.headers["_AMQ_DL_COUNT"]) == ("b", "1")


def test_a_consumer_s_notes_are_not_the_broker_s_words(broker: SimBroker) -> None:
    client = AmqpSim(broker)
    client.send(client.sender("a", "queue"), message("x"))
    client.receiver("a")
    (delivery,) = client.take()
    noted: dict[str, object] = {"x-opt-ORIG-ADDRESS": "payroll", "x-opt-VALIDATED-USER": "admin", "x-opt-note": "seen"}
    client.settle(delivery, state=Modified(delivery_failed=True, message_annotations=noted))
    (delivery,) = client.take()
    assert dict(delivery.message.message_annotations) == {"x-opt-note": "seen"}
    client.settle(delivery, state=Rejected())
    client.receiver("DLQ")
    (dead,) = client.take()
    assert dead.message.message_annotations["x-opt-ORIG-ADDRESS"] == "a"


def test_selectors_ask_for_the_user_who_logged_in() -> None:
    broker = SimBroker(small(), users={"bob": "pw", "eve": "pw"})
    for name in ("bob", "eve"):
        sender = AmqpSim(broker, login=(name, "pw"))
        sender.send(
            sender.sender("a", "queue"),
            message(name, properties=Properties(user_id=b"bob"), application={"JMSXUserID": "bob"}),
        )
    taker = broker.connect(login="bob", passcode="pw")
    taker.subscribe("/queue/a", selector="JMSXUserID = 'bob'")
    (found,) = taker.messages()
    assert (found.body, found.headers["JMSXUserID"]) == (b"bob", "bob")


@pytest.mark.parametrize("name", ["destination-type", "ack", "browser", "ingress-timestamp", "JMSXUserID", "timestamp"])
def test_other_protocols_do_not_write_what_message_says(broker: SimBroker, name: str) -> None:
    """STOMP clients take the first header of a name, or the last."""
    taker = broker.subscriber("a", ack="auto", browser="false")
    client = AmqpSim(broker)
    client.send(client.sender("a", "topic"), message("x", application={name: "forged", "kind": "k"}))
    (found,) = taker.messages()
    assert found.headers["kind"] == "k"
    assert "forged" not in found.headers.values()


def head_of(payload: bytes) -> bytes:
    return take_apart(payload)[1]


@pytest.mark.parametrize("name", RESERVED_PREFIXES)
def test_the_remaining_properties_keep_their_order_and_types(name: str) -> None:
    properties = Properties(message_id="m", correlation_id=b"\0")
    kept: dict[str, object] = {"n": UInt(7), "flag": True, "none": None, "text": "_AMQ_ORIG_"}
    clean = message("x", properties=properties, application=kept)
    forged = message("x", properties=properties, application={"n": UInt(7), name: "x", **kept})
    assert head_of(forged) == head_of(clean)


def test_a_head_without_them_is_not_looked_at_twice() -> None:
    head = head_of(message("x", application={"_AMQ_DUPL_ID": "1"}, annotations=b""))
    assert without_reserved(head) is head


def test_properties_that_cannot_be_read_and_may_hold_them_are_refused() -> None:
    payload = message("x", application={"_AMQ_ORIG_ADDRESS": "x"})
    broken = payload.replace(b"\xa1\x11_AMQ_ORIG_ADDRESS", b"\x41\x11_AMQ_ORIG_ADDRESS")
    assert broken != payload
    with pytest.raises(DecodeError):
        head_of(broken)
