"""What MQTT 5.0 demands of a broker about connections, sessions and wills, and a codec cannot keep alone.

Each test names the statements that it proves; `tests/protocols/mqtt/normative.py` leads back here.  Those that take a
`world` pass with Mosquitto too; those that take `sim` need time to pass, the power to fail, or are of ours.
"""

from __future__ import annotations

import pytest

from protocols.mqtt.codes import V5, V31, V311
from protocols.mqtt.encode import PublishHead, encode
from protocols.mqtt.packets import Disconnect, Pingreq, Subscribe, Will
from protocols.mqtt.properties import (
    ASSIGNED_CLIENT_IDENTIFIER,
    AUTHENTICATION_METHOD,
    MAXIMUM_QOS,
    REQUEST_RESPONSE_INFORMATION,
    RESPONSE_INFORMATION,
    RETAIN_AVAILABLE,
    SERVER_KEEP_ALIVE,
    SESSION_EXPIRY_INTERVAL,
    WILL_DELAY_INTERVAL,
    Properties,
)
from tests.broker.sessions.mqtt.harness import USERS, authenticate
from tests.support.mqtt_client import MqttClient, greeting, wish
from tests.support.mqtt_world import FOR_EVER, Connecting, SimWorld

# -- sessions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [V31, V311, V5])
def test_clean_start_discards_the_session(world: Connecting, version: int) -> None:
    """[MQTT-3.1.2-4], [MQTT-3.1.4-4], [MQTT-3.2.2-2]."""
    client = connect(world, "c", version=version, clean=False)
    client.subscribe("a", qos=1)
    client.drop()
    world.connect("other").publish("a", b"1", 1)
    again = connect(world, "c", version=version, clean=True)
    assert version == V31 or not again.present
    world.connect("other").publish("a", b"2", 1)
    assert again.payloads() == []


@pytest.mark.parametrize("version", [V31, V311, V5])
def test_without_clean_start_the_session_goes_on(world: Connecting, version: int) -> None:
    """[MQTT-3.1.2-5], [MQTT-3.1.2-6], [MQTT-3.2.2-3], [MQTT-4.5.0-1]."""
    client = connect(world, "c", version=version, clean=False)
    assert version == V31 or not client.present
    client.subscribe("a", "b", qos=2)
    client.drop()
    other = world.connect("other")
    for qos in (1, 2):
        other.publish("a", b"%d" % qos, qos)
    again = connect(world, "c", version=version, clean=False)
    assert version == V31 or again.present
    assert [(message.payload, message.qos) for message in again.take()] == [(b"1", 1), (b"2", 2)]
    other.publish("b", b"0", 0)
    assert again.payloads() == [b"0"]


def connect(world: Connecting, client_id: str, *, version: int, clean: bool) -> MqttClient:
    """With a session that stays, in any version."""
    return world.connect(client_id, version=version, clean=clean, expiry=FOR_EVER if version == V5 else None)


def test_the_client_identifier_identifies_the_session(world: Connecting) -> None:
    """[MQTT-3.1.3-2]."""
    for name in ("c", "C", "c ", "ç", "c.#/+*"):
        client = world.connect(name, clean=False, expiry=FOR_EVER)
        assert not client.present, name
        client.drop()
    assert world.connect("c", clean=False, expiry=FOR_EVER).present


def test_an_empty_client_identifier_is_replaced(world: Connecting) -> None:
    """[MQTT-3.1.3-6], [MQTT-3.1.3-7], [MQTT-3.2.2-16]."""
    names = [world.connect("").told(ASSIGNED_CLIENT_IDENTIFIER) for _ in range(3)]
    assert len(set(names)) == 3
    assert all(names)
    kept = world.subscriber("", "a", qos=1, expiry=FOR_EVER)
    kept.drop()
    world.connect("other").publish("a", b"1", 1)
    again = world.connect(kept.told(ASSIGNED_CLIENT_IDENTIFIER), clean=False)
    assert again.present
    assert again.payloads() == [b"1"]
    assert world.connect("named").told(ASSIGNED_CLIENT_IDENTIFIER) is None


def test_a_session_is_kept_for_its_interval(sim: SimWorld) -> None:
    """[MQTT-3.1.2-23], [MQTT-4.1.0-1], [MQTT-4.1.0-2]."""
    client = sim.subscriber("c", "a", qos=1, clean=False, expiry=10)
    for _ in range(20):
        sim.advance(50)
        client.send(Pingreq())
    client.drop()
    sim.advance(9)
    client = sim.connect("c", clean=False, expiry=10)
    assert client.present
    client.drop()
    sim.advance(11)
    assert not sim.connect("c", clean=False).present


def test_disconnect_changes_the_session_expiry_interval(sim: SimWorld) -> None:
    """Section 3.14.2.2.2."""
    client = sim.connect("c", clean=False, expiry=10)
    client.disconnect(0, [(SESSION_EXPIRY_INTERVAL, 0)])
    assert not sim.connect("c", clean=False, expiry=10).present
    client = sim.connect("c", clean=False, expiry=10)
    client.disconnect(0, [(SESSION_EXPIRY_INTERVAL, 100)])
    sim.advance(99)
    assert sim.connect("c", clean=False).present


def test_a_client_identifier_in_use_takes_over(world: Connecting) -> None:
    """[MQTT-3.1.4-3]."""
    first = world.subscriber("c", "a", qos=1, clean=False, expiry=FOR_EVER)
    second = world.connect("c", clean=False, expiry=FOR_EVER)
    first.settle()
    assert first.closed
    assert first.goodbye_code == 0x8E
    assert second.present
    world.connect("other").publish("a", b"1", 1)
    assert second.payloads() == [b"1"]


# -- CONNECT and CONNACK -----------------------------------------------------------------------------------------------


def test_connect_is_acknowledged(world: Connecting) -> None:
    """[MQTT-3.1.4-5]; [MQTT-3.1.2-28]; all is supported: [MQTT-3.2.2-9], [MQTT-3.2.2-13]."""
    client = world.attempt(greeting("c", properties=[(REQUEST_RESPONSE_INFORMATION, 0)]))
    assert client.code == 0
    assert client.told(RESPONSE_INFORMATION) is None
    assert client.told(MAXIMUM_QOS) is None
    assert client.told(RETAIN_AVAILABLE) in (None, 1)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_every_qos_is_granted(world: Connecting, qos: int) -> None:
    """[MQTT-3.2.2-10], [MQTT-3.2.2-12]."""
    client = world.connect("c", will=Will("w", b"", qos, retain=True))
    assert client.subscribe("a", qos=qos) == [qos]


def test_a_client_that_fails_to_authenticate_is_closed() -> None:
    """[MQTT-3.1.4-2]."""
    sim = SimWorld(users=USERS)
    for version, code in ((V31, 4), (V311, 4), (V5, 0x86)):
        for login in ({}, {"user_name": "alice"}, {"user_name": "alice", "password": b"wrong"}, {"password": b"right"}):
            if version != V5 and "user_name" not in login and login:
                continue  # a password without a user name is malformed before 5.0
            client = sim.attempt(greeting("c", version=version, **login))
            assert client.code in (code, 5, 0x87), (version, login)
            assert client.closed
    sim.connect("c", user_name="alice", password=b"right")


def test_an_authentication_method_that_we_do_not_know(world: Connecting) -> None:
    """[MQTT-4.12.0-1]."""
    client = world.attempt(greeting("c", properties=[(AUTHENTICATION_METHOD, "NONESUCH")]))
    assert client.code == 0x8C
    assert client.closed


def test_scram() -> None:
    """Enhanced authentication (4.12), and once more (4.12.1)."""
    client = SimWorld(users=USERS).stranger()
    authenticate(client, 0x18, "right")
    assert client.code == 0
    assert client.subscribe("a") == [0]
    authenticate(client, 0x19, "right")
    assert client.subscribe("b") == [0]


def test_scram_with_a_wrong_password() -> None:
    """[MQTT-3.1.4-2] for enhanced authentication."""
    client = SimWorld(users=USERS).stranger()
    authenticate(client, 0x18, "wrong")
    assert client.code == 0x87
    assert client.closed


def test_a_client_that_fails_to_authenticate_again_is_closed() -> None:
    """[MQTT-4.12.1-2]."""
    client = SimWorld(users=USERS).stranger()
    authenticate(client, 0x18, "right")
    authenticate(client, 0x19, "wrong")
    assert client.goodbye_code == 0x87
    assert client.closed


def test_keep_alive(sim: SimWorld) -> None:
    """[MQTT-3.1.2-22], [MQTT-3.2.2-22]; a packet prolongs it [MQTT-3.12.4-1]."""
    silent, busy = sim.connect("s", keep_alive=10), sim.connect("b", keep_alive=10)
    idle = sim.connect("i", version=V311)
    assert silent.told(SERVER_KEEP_ALIVE) is None
    for _ in range(3):
        sim.advance(7)
        busy.send(Pingreq())
        assert busy.pings > 0, "it is answered"
    silent.settle()
    assert silent.closed
    assert silent.goodbye_code == 0x8D
    assert not busy.closed
    sim.advance(100_000)
    idle.settle()
    assert not idle.closed


def test_keep_alive_is_one_and_a_half_times(sim: SimWorld) -> None:
    """[MQTT-3.1.2-22]: not earlier, and not much later."""
    client = sim.connect("c", keep_alive=10)
    sim.advance(14.9)
    client.settle()
    assert not client.closed
    client.send(Pingreq())
    sim.advance(16.1)
    client.settle()
    assert client.closed


def test_a_ping_is_answered(world: Connecting) -> None:
    """[MQTT-3.12.4-1]."""
    client = world.connect("c")
    before = client.pings
    client.send(Pingreq())
    assert client.pings > before


@pytest.mark.parametrize("version", [V31, V311, V5])
def test_a_client_that_disconnects_in_the_same_read(sim: SimWorld, version: int) -> None:
    """Section 3.14.4: what comes before DISCONNECT counts, also when its answers cannot be heard any more."""
    watcher, client = sim.connect("watcher"), connect(sim, "c", version=version, clean=False)
    watcher.subscribe("a", qos=2)
    out: list[bytes] = []
    for qos in range(3):
        PublishHead(version, "a", qos=qos).encode(out, [b"%d" % qos], [qos] if qos else [])
    subscribe = Subscribe(7, [wish("b", 1)])
    client.raw(b"".join([*out, *(encode(one, version) for one in (subscribe, Pingreq(), Disconnect()))]))
    assert client.closed
    assert watcher.payloads() == [b"0", b"1", b"2"]
    watcher.publish("b", b"kept", 1)
    assert connect(sim, "c", version=version, clean=False).payloads() == [b"kept"]


# -- wills -------------------------------------------------------------------------------------------------------------


def test_a_will_is_published_after_the_connection(world: Connecting) -> None:
    """[MQTT-3.1.2-7], [MQTT-3.1.2-8], [MQTT-3.1.2-10], [MQTT-3.1.2-14]."""
    watcher = world.subscriber("watcher", "w/#", qos=2)
    for qos in (0, 1, 2):
        world.connect("c", will=Will(f"w/{qos}", b"gone", qos)).drop()
        world.connect("barrier")
    assert [(m.topic, m.qos, m.retain, m.payload) for m in watcher.take()] == [
        ("w/0", 0, False, b"gone"),
        ("w/1", 1, False, b"gone"),
        ("w/2", 2, False, b"gone"),
    ]
    world.connect("c").drop()
    world.connect("barrier")
    assert watcher.take() == []
    late = world.subscriber("late", "w/#")
    assert late.take() == []


def test_a_will_that_is_retained(world: Connecting) -> None:
    """[MQTT-3.1.2-15]."""
    world.connect("c", will=Will("w", b"gone", 1, retain=True)).drop()
    world.connect("barrier").disconnect()
    late = world.subscriber("late", "w", qos=1)
    assert [(m.payload, m.retain) for m in late.take()] == [(b"gone", True)]


@pytest.mark.parametrize(("reason", "published"), [(0, []), (4, [b"gone"]), (0x80, [b"gone"])])
def test_disconnect_takes_a_will_back_or_not(world: Connecting, reason: int, published: list[bytes]) -> None:
    """[MQTT-3.14.4-3], [MQTT-3.1.2-8]."""
    watcher = world.subscriber("watcher", "w")
    world.connect("c", will=Will("w", b"gone")).disconnect(reason)
    world.connect("barrier")
    assert watcher.payloads() == published


def test_a_will_when_the_client_is_taken_over(world: Connecting) -> None:
    """Section 3.1.4: a will without delay is published then."""
    watcher = world.subscriber("watcher", "w")
    world.connect("c", will=Will("w", b"gone"))
    world.connect("c")
    assert watcher.payloads() == [b"gone"]


DELAYED = Will("w", b"gone", 1, properties=Properties([(WILL_DELAY_INTERVAL, 10)]))


def test_a_delayed_will(sim: SimWorld) -> None:
    """[MQTT-3.1.2-8], [MQTT-3.1.3-9]."""
    watcher = sim.subscriber("watcher", "w", qos=1)
    sim.connect("c", clean=False, expiry=100, will=DELAYED).drop()
    sim.advance(9)
    assert watcher.take() == []
    back = sim.connect("c", clean=False, expiry=100, will=DELAYED)
    sim.advance(50)
    assert watcher.take() == []
    back.drop()
    sim.advance(10.1)
    assert watcher.payloads() == [b"gone"]
    sim.advance(50)
    assert watcher.take() == []


def test_the_end_of_the_session_ends_a_will_delay(sim: SimWorld) -> None:
    """[MQTT-3.1.2-8]: whatever happens first; also by Clean Start."""
    watcher = sim.subscriber("watcher", "w", qos=1)
    sim.connect("c", clean=False, expiry=5, will=DELAYED).drop()
    sim.advance(4.9)
    assert watcher.take() == []
    sim.advance(0.2)
    assert watcher.payloads() == [b"gone"]
    sim.connect("c", clean=False, expiry=100, will=DELAYED).drop()
    sim.connect("c", clean=True)
    assert watcher.payloads() == [b"gone"]


@pytest.mark.parametrize("crash", [True, False])
def test_a_will_survives_the_broker(sim: SimWorld, crash: bool) -> None:
    """[MQTT-3.1.2-7], [MQTT-3.1.2-8]: the delay begins with the restart, when the connection had not ended before."""
    watcher = sim.subscriber("watcher", "w", qos=1, clean=False, expiry=FOR_EVER)
    sim.connect("c", clean=False, expiry=100, will=DELAYED)
    sim.restart(crash=crash)
    watcher = sim.connect("watcher", clean=False, expiry=FOR_EVER)
    assert watcher.take() == []
    sim.advance(9.9)
    assert watcher.take() == []
    sim.advance(0.2)
    assert watcher.payloads() == [b"gone"]
