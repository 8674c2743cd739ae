"""The table of the conversation, walked exhaustively from either side."""

from __future__ import annotations

from itertools import product

import pytest

from protocols.mqtt.codes import V5, V311, PacketType, ReasonCode, Role
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.encode import PublishHead, encode, encode_ack
from protocols.mqtt.errors import MqttError
from protocols.mqtt.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from protocols.mqtt.properties import AUTHENTICATION_METHOD, Properties
from protocols.mqtt.state import STRANGERS, TRANSITIONS, State, kinds, trigger, unexpected
from protocols.mqtt.topics import TopicFilter
from tests.protocols.mqtt.peer import auth, connected, hello, opened
from tests.support.wire import feed

C, S = Role.CLIENT, Role.SERVER
P = PacketType
METHOD = Properties([(AUTHENTICATION_METHOD, "M")])
A = TopicFilter("a", "a")

#: Everything that can be said, by what it is to the table.
PACKETS: dict[str, Packet] = {
    "CONNECT": hello(V5),
    "CONNECT with method": hello(V5, (AUTHENTICATION_METHOD, "M")),
    "CONNACK": Connack(),
    "CONNACK refusal": Connack(0x87),
    "AUTH continue": auth(0x18),
    "AUTH again": auth(0x19),
    "AUTH success": auth(0),
    "PUBACK": Ack(P.PUBACK, [1]),
    "PUBREC": Ack(P.PUBREC, [1]),
    "PUBREL": Ack(P.PUBREL, [1]),
    "PUBCOMP": Ack(P.PUBCOMP, [1]),
    "SUBSCRIBE": Subscribe(1, [Subscription(A)]),
    "SUBACK": Suback(1, [0]),
    "UNSUBSCRIBE": Unsubscribe(1, [A]),
    "UNSUBACK": Unsuback(1, [0]),
    "PINGREQ": Pingreq(),
    "PINGRESP": Pingresp(),
    "DISCONNECT": Disconnect(),
}
#: Also PUBLISH, which is sent otherwise.
TRIGGERS = [*PACKETS, "PUBLISH"]

#: How a connection comes to a state: who says what.
PATHS: dict[State, list[tuple[Role, str]]] = {
    State.OPENED: [],
    State.ANSWERING: [(C, "CONNECT")],
    State.AUTHENTICATING: [(C, "CONNECT with method")],
    State.CHALLENGED: [(C, "CONNECT with method"), (S, "AUTH continue")],
    State.CONNECTED: [(C, "CONNECT"), (S, "CONNACK")],
    State.AUTHENTICATED: [(C, "CONNECT with method"), (S, "CONNACK")],
    State.REAUTHENTICATING: [(C, "CONNECT with method"), (S, "CONNACK"), (C, "AUTH again")],
    State.RECHALLENGED: [(C, "CONNECT with method"), (S, "CONNACK"), (C, "AUTH again"), (S, "AUTH continue")],
    State.DISCONNECTED: [(C, "CONNECT"), (S, "CONNACK"), (C, "DISCONNECT")],
}


def raw_of(name: str, method: bool) -> bytes:
    """The bytes of one of them; `method`: the conversation has one, so CONNACK names it."""
    if name == "PUBLISH":
        out: list[bytes] = []
        PublishHead(V5, "a").encode(out, [b""], [])
        return b"".join(out)
    packet = PACKETS[name]
    if name == "CONNACK" and method:
        packet = Connack(properties=METHOD)
    return encode_ack(packet, V5) if isinstance(packet, Ack) else encode(packet, V5)


def say(connection: MqttConnection, name: str) -> None:
    """Our side says it.  Raises ValueError if it may not."""
    if name == "PUBLISH":
        connection.send_publish(PublishHead(connection.version or V5, "a"), [b""])
    else:
        assert connection.send(PACKETS[name])
    connection.data_to_send()


def in_state(state: State, role: Role) -> MqttConnection:
    """A connection that has come to a state."""
    connection = opened(role)
    method = any("method" in name for _, name in PATHS[state])
    for speaker, name in PATHS[state]:
        if speaker is role:
            say(connection, name)
        else:
            assert len(feed(connection, [raw_of(name, method)])) == 1
    assert connection.state is state
    return connection


@pytest.mark.parametrize(("state", "role"), list(product(State, [C, S])))
def test_everything_that_can_be_heard_in_every_state(state: State, role: Role) -> None:
    for name in TRIGGERS:
        check_heard(state, name, role)


def check_heard(state: State, name: str, role: Role) -> None:
    """The table, and nothing else, says what comes of it."""
    connection = in_state(state, role)
    following = TRANSITIONS[state].get((role.peer, name))
    heard = feed(connection, [raw_of(name, any("method" in said for _, said in PATHS[state]))])
    if state is State.DISCONNECTED or (role is S and state is State.ANSWERING):
        assert (heard, connection.error, connection.state) == ([], None, state)  # not read, or not yet
    elif role is C and state is State.OPENED:
        assert heard == []  # a server that speaks first is not listened to before CONNECT
    elif following is None:
        assert heard == []
        assert isinstance(connection.error, MqttError)
    else:
        assert len(heard) == 1
        assert connection.error is None
        assert connection.state is following


@pytest.mark.parametrize(("state", "role"), list(product(State, [C, S])))
def test_everything_that_can_be_said_in_every_state(state: State, role: Role) -> None:
    for name in TRIGGERS:
        check_said(state, name, role)


def check_said(state: State, name: str, role: Role) -> None:
    """The table, and nothing else, says what comes of it."""
    connection = in_state(state, role)
    following = TRANSITIONS[state].get((role, name))
    if following is None:
        with pytest.raises(ValueError, match="cannot"):
            say(connection, name)
        assert connection.state is state
    else:
        say(connection, name)
        assert connection.state is following
        assert connection.close_expected == (following is State.DISCONNECTED)


def test_the_table_itself() -> None:
    assert set(TRANSITIONS) == set(State)
    named = {name for table in TRANSITIONS.values() for _, name in table}
    assert named == set(TRIGGERS)
    assert kinds(named) == frozenset(PacketType)
    assert all(trigger(packet) == name for name, packet in PACKETS.items())
    # MQTT-3.2.0-1, MQTT-3.14.0-1: before CONNACK a server has AUTH, and nothing else
    for state in STRANGERS:
        assert {name for sender, name in TRANSITIONS[state] if sender is S} <= {
            "CONNACK",
            "CONNACK refusal",
            "AUTH continue",
        }
    # MQTT-3.2.2-7, MQTT-3.14.4-1: after a refusal or DISCONNECT there is nothing
    for table in TRANSITIONS.values():
        for (_, name), to in table.items():
            assert (to is State.DISCONNECTED) == (name in ("DISCONNECT", "CONNACK refusal"))
    # MQTT-3.1.0-2, MQTT-3.2.0-2: no CONNECT after the first, no CONNACK after the first
    for state, table in TRANSITIONS.items():
        assert any(name.startswith("CONNECT") for _, name in table) == (state is State.OPENED)
        assert ((S, "CONNACK") in table) == (state in (State.ANSWERING, State.AUTHENTICATING))


def test_work_of_a_client_that_does_not_wait() -> None:
    """3.1.4: it waits for CONNACK in the buffer, and is then read; MQTT-3.1.4-6: or never, if it is a refusal."""
    raw = encode(hello(V5), V5) + raw_of("PUBLISH", False) + raw_of("PINGREQ", False)
    for accepted in (True, False):
        connection = opened()
        assert feed(connection, [raw]) == [hello(V5)]
        assert feed(connection, [raw_of("PINGREQ", False), b""]) == []
        connection.send(Connack() if accepted else Connack(0x87))
        assert len(feed(connection, [b""])) == (3 if accepted else 0)


def test_nothing_is_read_after_disconnect() -> None:
    """MQTT-3.14.4-1."""
    connection = connected(V311)
    assert feed(connection, [b"\xe0\0\xc0\0"]) == [Disconnect()]
    assert feed(connection, [b"\xc0\0\xff"]) == []
    connection.receive_eof()
    assert connection.error is None


def test_3_1_1_has_no_auth_and_servers_do_not_say_disconnect() -> None:
    connection = connected(V311)
    for packet in (Auth(0x18), Auth(0)):
        with pytest.raises(ValueError, match="cannot send"):
            connection.send(packet)
    with pytest.raises(ValueError, match="DISCONNECT"):
        connection.send(Disconnect())


def test_the_words_of_what_may_not_come() -> None:
    for kind in range(1, 16):
        for state in set(State) - {State.OPENED, State.DISCONNECTED}:
            for sender in (C, S):
                assert PacketType(kind).name in unexpected(kind, state, sender, V5).sentence


def test_an_error_before_anything_was_said() -> None:
    """A server that is full says nothing to a client that has said nothing."""
    connection = opened()
    connection.send_error(MqttError(ReasonCode.SERVER_BUSY, "busy"))
    assert connection.data_to_send() == b""
    assert connection.close_expected


def test_a_connect_of_the_client_is_remembered() -> None:
    client = opened(C)
    assert client.send(Connect(V311, "c"))
    assert client.version == V311
