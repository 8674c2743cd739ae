"""Over each protocol: what is meant for a queue and finds none is refused, and takes nothing else with it."""

from __future__ import annotations

import pytest

from broker.engine.model.message import RoutingType
from broker.engine.moves.transfer import MessageRange
from broker.engine.routing.alter import change
from protocols.amqp.performatives import Accepted, Properties, Rejected
from protocols.mqtt.codes import V311, PacketType
from protocols.mqtt.packets import Will
from protocols.mqtt.properties import REASON_STRING
from store import decode
from store.body import LargeBody
from store.record import DeadLetterReason
from tests.broker.sessions.amqp.harness import started
from tests.broker.sessions.large import body, config
from tests.broker.sessions.no_queue import DEAD, WHY, shut
from tests.simulation.world import check_accounts, held, journal_records, small
from tests.support.amqp_client import AmqpSim, message
from tests.support.mqtt_client import publishes
from tests.support.mqtt_world import SimWorld
from tests.support.sim_broker import SimBroker, configured
from tests.support.stomp_client import frame


def bodies(broker: SimBroker, queue: str) -> list[bytes]:
    """What is on a queue after a crash."""
    return held(broker.restart(), queue)


@pytest.mark.parametrize("destination", ["/queue/off", "off", "off::off"])
def test_stomp_is_told(destination: str) -> None:
    broker = shut(SimBroker(small()))
    client = broker.connect()
    client.raw(
        frame("SEND", {"destination": "/queue/on", "persistent": "true", "receipt": "1"}, b"1")
        + frame("SEND", {"destination": destination, "persistent": "true", "receipt": "2"}, b"2")
        + frame("SEND", {"destination": "/queue/on", "persistent": "true", "receipt": "3"}, b"3")
    )
    (error,) = client.take("ERROR")
    assert error.headers["receipt-id"] == "2"
    assert WHY.encode() in error.body
    assert [receipt.headers["receipt-id"] for receipt in client.take("RECEIPT")] == ["1"]
    assert bodies(broker, "on")[:2] == [b"first", b"1"]


def test_stomp_is_told_at_the_commit() -> None:
    broker = shut(SimBroker(small()))
    client = broker.connect()
    client.do("BEGIN", {"transaction": "t"})
    client.send("/queue/on", b"1", persistent="true", transaction="t")
    client.send("/queue/off", b"2", persistent="true", transaction="t")
    client.do("COMMIT", {"transaction": "t", "receipt": "c"})
    (error,) = client.take("ERROR")
    assert (error.headers["receipt-id"], client.take("RECEIPT")) == ("c", [])
    assert WHY.encode() in error.body
    assert bodies(broker, "on") == [b"first"]


@pytest.mark.parametrize("relay", [False, True])
def test_amqp_has_them_rejected(relay: bool) -> None:
    broker = shut(SimBroker(small()))
    client = AmqpSim(broker)
    if relay:
        names = ["on", "off", "off", "on"]
        sent = [message(str(n), properties=Properties(to=f"queue://{to}")) for n, to in enumerate(names)]
        outcomes = client.send(client.sender(None), *sent)
    else:
        outcomes = client.send(client.sender("on", "queue"), message("0"), message("3"))
        outcomes += client.send(client.sender("off", "queue"), message("1"), message("2"))
    rejected = [outcome.state for outcome in outcomes if isinstance(outcome.state, Rejected)]
    assert [type(outcome.state) for outcome in outcomes].count(Accepted) == 2
    assert len(rejected) == 2
    for each in rejected:
        assert each.error is not None
        assert each.error.condition == "amqp:precondition-failed"
        assert (each.error.info or {})["dead-letter-reason"] == "put-disabled"
        assert WHY in (each.error.description or "")
    assert len(bodies(broker, "on")) == 3


def test_amqp_has_only_those_of_a_run_rejected_that_no_filter_lets_in() -> None:
    broker, client = started()
    with broker.turn():
        home = broker.engine.configuration.declare("f", set())
        broker.engine.configuration.declare_queue(home, "f", RoutingType.ANYCAST, durable=True, selector="k = 'v'")
    sent = [message(n, application={"k": "v" if n % 3 else "w"}) for n in range(9)]
    states = {outcome.context: outcome.state for outcome in client.send(client.sender("f", "queue"), *sent)}
    assert [n for n in range(9) if isinstance(states[n], Rejected)] == [0, 3, 6]
    assert [n for n in range(9) if isinstance(states[n], Accepted)] == [1, 2, 4, 5, 7, 8]
    assert len(bodies(broker, "f")) == 6


def test_amqp_cannot_commit() -> None:
    broker = shut(SimBroker(small()))
    client = AmqpSim(broker)
    control = client.coordinator()
    tx = client.declare(control)
    client.send(client.sender("on", "queue"), message("1"), tx=tx)
    client.send(client.sender("off", "queue"), message("2"), tx=tx)
    state = client.discharge(control, tx)
    assert isinstance(state, Rejected)
    assert bodies(broker, "on") == [b"first"]


@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt_5_is_told(qos: int) -> None:
    sim = SimWorld(configured())
    shut(sim.broker)
    client = sim.connect("c", auto=False)
    client.raw(publishes([("on", b"0"), ("off", b"1"), ("on", b"2"), ("off", b"3")], qos, first=20))
    kind = PacketType.PUBACK if qos == 1 else PacketType.PUBREC
    answers = [answer for answer in client.answers if answer.type is kind and answer.reason_code]
    assert WHY in (answers[0].properties.get(REASON_STRING) or "")
    assert client.replies(kind) == [(20, 0), (21, 0x83), (22, 0), (23, 0x83)]
    assert bodies(sim.broker, "on") == [b"first", b"0", b"2"]


@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt_3_is_cut_off(qos: int) -> None:
    sim = SimWorld(configured())
    shut(sim.broker)
    client = sim.connect("c", version=V311, auto=False)
    client.publish("off", b"1", qos)
    assert client.closed
    assert not client.replies(PacketType.PUBACK if qos == 1 else PacketType.PUBREC)


def test_mqtt_retains_nothing_that_is_refused() -> None:
    sim = SimWorld(configured())
    shut(sim.broker)
    client = sim.connect("c", auto=False)
    number = client.publish("off", b"1", 1, retain=True)
    assert client.replies(PacketType.PUBACK) == [(number, 0x83)]
    assert sim.broker.engine.retained.get("off") is None


def test_a_will_that_is_refused_is_told() -> None:
    sim = SimWorld(configured())
    shut(sim.broker)
    sim.connect("c", will=Will("off", b"1", 1)).drop()
    (told,) = sim.broker.reported("mqtt.will_refused")
    assert (told["client"], told["topic"]) == ("c", "off")
    assert WHY in str(told["error"])


def test_all_are_dead_letters_where_the_address_says_so() -> None:
    """And the journal tells of each death, in the very entry of the dead letter."""
    world = SimWorld(config(DEAD))
    shut(world.broker)
    stomp = world.broker.connect(login="shop", passcode="x", **{"client-id": "till"})
    stomp.confirmed("/queue/off", b"stomp")
    stomp.do("BEGIN", {"transaction": "t"})
    stomp.send("/queue/off", b"in a transaction", persistent="true", transaction="t")
    stomp.do("COMMIT", {"transaction": "t"})
    stomp.confirmed("/queue/off", body())
    amqp = AmqpSim(world.broker)
    (outcome,) = amqp.send(amqp.sender("off", "queue"), message("amqp"))
    assert isinstance(outcome.state, Accepted)
    mqtt = world.connect("c", auto=False, will=Will("off", b"will", 1))
    for qos, kind in ((1, PacketType.PUBACK), (2, PacketType.PUBREC)):
        number = mqtt.publish("off", b"mqtt", qos, retain=qos == 1)
        assert mqtt.replies(kind)[0][0] == number
    large = mqtt.publish("off", body(4000), 1)
    assert mqtt.replies(PacketType.PUBACK)[0][0] == large
    mqtt.drop()
    broker = world.broker.restart()
    dead = [letter for letter, _ in broker.engine.messages.browse(broker.engine.queue("DLQ"))]
    assert len(dead) == 8
    assert [letter.body.whole() for letter in dead if isinstance(letter.body, LargeBody)] == [body(), body(4000)]
    deaths = [record for record in journal_records(broker) if isinstance(record, decode.DeadLettered)]
    told = [(death.new_id, death.old_id, death.queue_id, death.address, death.reason) for death in deaths]
    old_ids = [(letter.header.annotations or {})["_AMQ_ORIG_MESSAGE_ID"] for letter in dead]
    assert told == [
        (letter.id, old, 0, "off", DeadLetterReason.PUT_DISABLED) for letter, old in zip(dead, old_ids, strict=True)
    ]
    assert len(set(old_ids)) == 8
    check_accounts(broker)
    with broker.turn():
        change(broker.engine._state, broker.engine.queue("off"), {"enabled": True})
        assert broker.engine.messages.retry(broker.engine.queue("DLQ"), MessageRange()).moved == 8
    assert (len(held(broker, "off")), held(broker, "DLQ")) == (9, [])
    check_accounts(broker)
