"""An ended connection leaves nothing to the collector of cycles, whatever it did and however it ended.

A broker's collector visits old objects seldom: each costs time, and a backlog is millions.  What an ended connection
leaves in reference cycles would stay until then (`broker.daemon.memory`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.config import Config
from protocols.mqtt.codes import V5, PacketType
from protocols.mqtt.encode import PublishHead
from protocols.mqtt.packets import Will
from protocols.mqtt.properties import SESSION_EXPIRY_INTERVAL
from tests.broker.sessions.large import body, config, message
from tests.broker.sessions.mqtt.harness import authenticate
from tests.support.amqp_client import AmqpSim
from tests.support.cycles import nothing_left
from tests.support.mqtt_client import MqttClient, greeting
from tests.support.mqtt_world import SimCarrier
from tests.support.sim_broker import SimBroker, SimClient, SimPeer
from tests.support.sim_browser import Browser, RawPeer

USERS = {"alice": "right"}


class SmallSteps(SimBroker):
    """A broker where everything is long work."""

    small_steps = True


def web(plain: Config) -> Config:
    """The same configuration with acceptors for WebSockets."""
    acceptors = {name: each.model_copy(update={"websocket": True}) for name, each in plain.acceptors.items()}
    return plain.model_copy(update={"acceptors": acceptors})


def forget(broker: SimBroker, peer: SimPeer) -> None:
    """Let a peer go whose connection has ended, as its socket would be."""
    peer.drop()
    broker.run()
    assert broker.engine.connections.by_id == {}
    if isinstance(peer, AmqpSim):
        peer.codec.forget_sessions()  # the client's
    del peer.session
    broker.forget()


# -- STOMP -------------------------------------------------------------------------------------------------------------


def stomp_idle(broker: SimBroker) -> SimPeer:
    return broker.connect(login="alice", passcode="right")


def stomp_messages(broker: SimBroker) -> SimPeer:
    client = broker.connect(login="alice", passcode="right")
    client.subscribe("q")
    client.subscribe("auto", id="auto", ack="auto")
    client.subscribe("topic", id="durable", durable="true")
    for name in ("q", "auto", "topic"):
        client.confirmed(name, b"1")
        client.send(name, b"2")
    client.do("SUBSCRIBE", {"destination": "q", "id": "browser", "browser": "true"})
    client.nack(client.messages()[0])
    client.do("UNSUBSCRIBE", {"id": "auto"})
    client.send("/queue/q", b"asked", reply_to="/temp-queue/answers")
    return client


def stomp_transactions(broker: SimBroker) -> SimPeer:
    client = broker.connect(login="alice", passcode="right")
    client.subscribe("q")
    client.confirmed("q", b"1")
    for tx in ("committed", "aborted", "open"):
        client.do("BEGIN", {"transaction": tx})
        client.send("q", tx.encode(), transaction=tx, persistent="true")
    client.ack(client.messages()[0], transaction="open")
    client.do("COMMIT", {"transaction": "committed"})
    client.do("ABORT", {"transaction": "aborted"})
    return client


def stomp_large(broker: SimBroker) -> SimPeer:
    client = broker.connect(login="alice", passcode="right")
    client.subscribe("q")
    client.confirmed("q", body())
    assert client.bodies() == [body()]
    client.raw(b"SEND\ndestination:q\ncontent-length:3000\n\n" + body()[:2000])
    return client


def stomp_cut(broker: SimBroker) -> SimPeer:
    """It does not read a large body to its end."""
    client = broker.connect(login="alice", passcode="right")
    client.stalled = True
    client.subscribe("q", ack="auto")
    client.send("q", body(100_000))
    return client


def stomp_wrong(broker: SimBroker) -> SimPeer:
    client = broker.connect(login="alice", passcode="right")
    client.do("SUBSCRIBE", {"destination": "q", "id": "s", "selector": "1 +"})
    assert client.take("ERROR")
    return client


def stomp_malformed(broker: SimBroker) -> SimPeer:
    peer = RawPeer(broker, "stomp")
    peer.raw(b"NOTHING\n\n\0")
    return peer


def stomp_refused(broker: SimBroker) -> SimPeer:
    client = SimClient(broker, "1.2", broker.number())
    broker.attached(client)
    client.do("CONNECT", {"accept-version": "1.2", "host": "h", "login": "alice", "passcode": "wrong"})
    return client


def stomp_half(broker: SimBroker) -> SimPeer:
    peer = RawPeer(broker, "stomp")
    peer.raw(b"CONNECT\naccept-ver")
    return peer


# -- AMQP --------------------------------------------------------------------------------------------------------------

LOGIN = ("alice", "right")


def amqp_idle(broker: SimBroker) -> SimPeer:
    return AmqpSim(broker, login=LOGIN)


def amqp_messages(broker: SimBroker) -> SimPeer:
    client = AmqpSim(broker, login=LOGIN)
    producer = client.sender("q", "queue")
    client.put(producer, *[message(b"%d" % number) for number in range(5)])
    client.put(client.sender(None), message(b"relayed"))
    client.receiver("q", "queue")
    client.receiver("topic", "topic")
    client.settle(client.take()[0])
    client.sender("other").send_detach(closed=True)
    client.say()
    client.begin()
    client.receiver("q", "queue", credit=1)
    return client


def amqp_transactions(broker: SimBroker) -> SimPeer:
    client = AmqpSim(broker, login=LOGIN)
    producer, coordinator = client.sender("q", "queue"), client.coordinator()
    client.receiver("q", "queue")
    client.put(producer, message(b"1"))
    for fail in (False, True, None):
        tx = client.declare(coordinator)
        client.put(producer, message(b"2"), message(b"3"), tx=tx)
        if fail is not None:
            client.discharge(coordinator, tx, fail=fail)
    client.settle(client.take()[0], tx=tx)
    return client


def amqp_large(broker: SimBroker) -> SimPeer:
    client = AmqpSim(broker, login=LOGIN)
    client.put(client.sender("q", "queue"), message(body()))
    client.receiver("q", "queue")
    assert client.take()
    client.sender("q", "queue", name="slow").send([message(body(200_000))], [None])
    client.raw(client.codec.data_to_send()[:150_000])
    return client


def amqp_wrong(broker: SimBroker) -> SimPeer:
    client = AmqpSim(broker, login=LOGIN)
    client.sender("a::b::c")
    client.raw(b"\0\0\0\x08\2\0\xff\xff" + b"\0\0\0\4")
    return client


def amqp_malformed(broker: SimBroker) -> SimPeer:
    peer = RawPeer(broker, "amqp")
    peer.raw(b"AMQP\0\1\0\0" + b"\0\0\0\4")
    return peer


def amqp_refused(broker: SimBroker) -> SimPeer:
    return AmqpSim(broker, login=("alice", "wrong"))


def amqp_half(broker: SimBroker) -> SimPeer:
    peer = RawPeer(broker, "amqp")
    peer.raw(b"AMQP\3\1\0\0\0\0")
    return peer


# -- MQTT --------------------------------------------------------------------------------------------------------------


def mqtt(broker: SimBroker, **more: Any) -> MqttClient:
    carrier = SimCarrier(broker)
    client = MqttClient(auto=False).over(carrier)
    login = {"user_name": "alice", "password": b"right"} | more
    return client.connect(greeting("c", **login))


def wire(client: MqttClient) -> SimPeer:
    """What a client leaves to the broker: it goes, and its end of the connection stays."""
    carrier = client.link
    assert isinstance(carrier, SimCarrier)
    carrier.heard = lambda data: None  # type: ignore[method-assign]
    return carrier


def mqtt_idle(broker: SimBroker) -> SimPeer:
    return wire(mqtt(broker))


def mqtt_messages(broker: SimBroker) -> SimPeer:
    client = mqtt(broker, will=Will("left", b"bye", 1))
    client.subscribe("a/#", "$share/g/b", qos=2)
    for qos in (0, 1, 2):
        client.publish("a/b", b"x", qos)
        client.publish("a/kept", b"x", qos, retain=True)
    client.ack(PacketType.PUBACK, *[each.packet_id for each in client.take() if each.qos == 1])
    client.unsubscribe("$share/g/b")
    return wire(client)


def mqtt_kept(broker: SimBroker) -> SimPeer:
    """Its session outlives the connection, with messages in flight."""
    client = mqtt(broker, properties=[(SESSION_EXPIRY_INTERVAL, 100)], clean=False)
    client.subscribe("a/#", qos=2)
    client.publish("a/b", b"x", 1)
    client.publish("a/b", b"x", 2)
    return wire(client)


def mqtt_large(broker: SimBroker) -> SimPeer:
    client = mqtt(broker)
    client.subscribe("a", qos=1)
    client.publish("a", body(), 1)
    out: list[bytes] = []
    PublishHead(V5, "a", qos=1).encode(out, [body()], [9])
    client.link.raw(b"".join(out)[:2000])
    return wire(client)


def mqtt_wrong(broker: SimBroker) -> SimPeer:
    client = mqtt(broker)
    client.raw(b"\xf0\0")
    return wire(client)


def mqtt_malformed(broker: SimBroker) -> SimPeer:
    peer = RawPeer(broker, "mqtt")
    peer.raw(b"\x10\x02\0\0")
    return peer


def mqtt_refused(broker: SimBroker) -> SimPeer:
    return wire(mqtt(broker, password=b"wrong"))


def mqtt_scram(broker: SimBroker) -> SimPeer:
    client = MqttClient().over(SimCarrier(broker))
    authenticate(client, 0x18, "right")
    return wire(client)


def mqtt_half(broker: SimBroker) -> SimPeer:
    peer = RawPeer(broker, "mqtt")
    peer.raw(b"\x10\x20\0")
    return peer


# -- how connections end -----------------------------------------------------------------------------------------------


def lost(broker: SimBroker, peer: SimPeer) -> None:
    peer.drop()


def closed_its_side(broker: SimBroker, peer: SimPeer) -> None:
    with broker.turn():
        peer.session.receive_eof()
        broker.tick.touch(peer)


def silent(broker: SimBroker, peer: SimPeer) -> None:
    with broker.turn():
        peer.session.timed_out()
        broker.tick.touch(peer)


def left(broker: SimBroker, peer: SimPeer) -> None:
    """As its protocol asks for."""
    if peer.closed:
        return
    if isinstance(peer, SimClient):
        peer.do("DISCONNECT", {"receipt": "bye"})
    elif isinstance(peer, AmqpSim):
        peer.codec.send_close()
        peer.say()
    else:
        peer.raw(b"\xe0\0")


def dismissed(broker: SimBroker, peer: SimPeer) -> None:
    with broker.turn():
        for each in list(broker.engine.connections.by_id.values()):
            each.dismiss("maintenance")


def failed(broker: SimBroker, peer: SimPeer) -> None:
    with broker.turn():
        broker.tick.give_up(peer, "a fault")


def stopped(broker: SimBroker, peer: SimPeer) -> None:
    with broker.turn():
        peer.session.shut_down()
        broker.tick.touch(peer)


Clients = Callable[[SimBroker], SimPeer]
End = Callable[[SimBroker, SimPeer], None]

CLIENTS: list[Clients] = [
    stomp_idle,
    stomp_messages,
    stomp_transactions,
    stomp_large,
    stomp_cut,
    amqp_idle,
    amqp_messages,
    amqp_transactions,
    amqp_large,
    mqtt_idle,
    mqtt_messages,
    mqtt_kept,
    mqtt_large,
    mqtt_scram,
]

STRANGERS: list[Clients] = [
    stomp_wrong,
    stomp_malformed,
    stomp_refused,
    stomp_half,
    amqp_wrong,
    amqp_malformed,
    amqp_refused,
    amqp_half,
    mqtt_wrong,
    mqtt_malformed,
    mqtt_refused,
    mqtt_half,
]

ENDS = [lost, closed_its_side, silent, left, dismissed, failed, stopped]


def ended(broker: SimBroker, client: Clients, end: End) -> None:
    """Let a client come, work, and end."""
    peer = client(broker)
    end(broker, peer)
    forget(broker, peer)


@pytest.mark.parametrize(("kind", "end"), [(SimBroker, end) for end in ENDS] + [(SmallSteps, lost), (SmallSteps, left)])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_connection_that_has_ended_is_in_no_cycle(client: Clients, end: End, kind: type[SimBroker]) -> None:
    broker = kind(config(), users=USERS)
    ended(broker, client, end)  # makes the queues, which stay
    with nothing_left():
        ended(broker, client, end)


@pytest.mark.parametrize("client", STRANGERS)
def test_nor_is_that_of_a_stranger_or_one_that_ends_for_an_error(client: Clients) -> None:
    broker = SimBroker(config(), users=USERS)
    ended(broker, client, lost)
    with nothing_left():
        ended(broker, client, lost)


@pytest.mark.parametrize("end", [lost, stopped])
@pytest.mark.parametrize("client", [stomp_messages, amqp_messages, mqtt_messages, mqtt_kept])
def test_nor_is_one_that_ends_while_the_disk_works(client: Clients, end: End) -> None:
    broker = SimBroker(config(), users=USERS)
    ended(broker, client, end)
    with nothing_left():
        peer = client(broker)
        broker.hold_disk()
        if isinstance(peer, SimClient):
            peer.send("q", b"late", persistent="true", receipt="r")
        elif isinstance(peer, AmqpSim):
            peer.send(peer.sender("q", "queue"), message(b"late"))
        end(broker, peer)
        broker.release_disk()
        forget(broker, peer)
        del peer


@pytest.mark.parametrize(("acceptor", "offer"), [("stomp", "v12.stomp"), ("mqtt", "mqtt"), ("amqp", "amqp")])
def test_nor_is_that_of_a_websocket(acceptor: str, offer: str) -> None:
    broker = SimBroker(web(config()))
    first = {
        "stomp": b"CONNECT\naccept-version:1.2\nhost:h\n\n\0",
        "amqp": b"AMQP\0\1\0\0",
        "mqtt": b"\x10\x0c\0\4MQTT\4\2\0\0\0\0",
    }
    for offers in ((offer,), ("nothing",)):
        with nothing_left():
            browser = Browser(broker, acceptor, *offers)
            broker.attached(browser)
            if browser.response is not None and browser.response.status_code == 101:
                browser.say(first[acceptor], text=False)
            forget(broker, browser)
            del browser
