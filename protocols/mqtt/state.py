"""The state machine of a connection between client and server, as one table that both sides use.

    OPENED --CONNECT--> ANSWERING --CONNACK--> CONNECTED --DISCONNECT--> DISCONNECTED
       |
       '--CONNECT with a method--> AUTHENTICATING --AUTH continue--> CHALLENGED --AUTH continue--> AUTHENTICATING ...
                                         '--CONNACK--> AUTHENTICATED --AUTH again--> REAUTHENTICATING --AUTH success-->
                                                                                       '--AUTH continue--> RECHALLENGED

1. Anything not in the table is not allowed: a Protocol Error of its sender.
2. CONNECT is the client's first packet, sent once ([MQTT-3.1.0-1], [MQTT-3.1.0-2]); CONNACK is the server's first
   except for AUTH, sent once ([MQTT-3.2.0-1], [MQTT-3.2.0-2]).  A refusing CONNACK and DISCONNECT end the connection
   ([MQTT-3.2.2-7], [MQTT-3.14.4-1]).
3. A client may send other packets before CONNACK (3.1.4), unless it has named an authentication method
   [MQTT-3.1.2-30].
4. AUTH is only for clients that have named a method ([MQTT-4.12.0-6], [MQTT-4.12.0-7]), and the sides take turns
   ([MQTT-4.12.0-2], [MQTT-4.12.0-3]); other packets are still sent during a re-authentication (4.12.1).
5. A server sends DISCONNECT only after CONNACK [MQTT-3.14.0-1].

The packets that a version has are not in this table but in `layout`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from protocols.mqtt.codes import V5, VERSIONS, PacketType, ReasonCode, Role
from protocols.mqtt.errors import MqttError, malformed, violation
from protocols.mqtt.packets import Auth, Connack, Connect, Packet
from protocols.mqtt.properties import AUTHENTICATION_METHOD


class State(Enum):
    """The state of a connection."""

    OPENED = "opened"  # nothing but CONNECT, once
    ANSWERING = "answering"  # CONNECT was sent: the server owes CONNACK
    AUTHENTICATING = "authenticating"  # CONNECT named a method: the server owes AUTH or CONNACK
    CHALLENGED = "challenged"  # the server has sent AUTH: the client owes AUTH
    CONNECTED = "connected"
    AUTHENTICATED = "authenticated"  # connected, and the client may authenticate again
    REAUTHENTICATING = "re-authenticating"  # the client authenticates again: the server owes AUTH
    RECHALLENGED = "re-challenged"  # the client authenticates again: the client owes AUTH
    DISCONNECTED = "disconnected"  # nothing more is sent


#: Names for packets that the table distinguishes by their contents.
CONNECT_WITH_METHOD: Final = "CONNECT with method"
REFUSAL: Final = "CONNACK refusal"
AUTH_CONTINUE: Final = "AUTH continue"
AUTH_AGAIN: Final = "AUTH again"
AUTH_SUCCESS: Final = "AUTH success"

_ACKS: Final = ("PUBACK", "PUBREC", "PUBREL", "PUBCOMP")

#: The packets that do not change the state.
_WORK: Final = {
    Role.CLIENT: ("PUBLISH", *_ACKS, "SUBSCRIBE", "UNSUBSCRIBE", "PINGREQ"),
    Role.SERVER: ("PUBLISH", *_ACKS, "SUBACK", "UNSUBACK", "PINGRESP"),
}

Transitions = dict[tuple[Role, str], State]


def _client(*triggers: str, to: State) -> Transitions:
    return {(Role.CLIENT, trigger): to for trigger in triggers}


def _server(*triggers: str, to: State) -> Transitions:
    return {(Role.SERVER, trigger): to for trigger in triggers}


def _connected(state: State) -> Transitions:
    """The transitions of a connected state: ordinary packets and DISCONNECT."""
    work = _client(*_WORK[Role.CLIENT], to=state) | _server(*_WORK[Role.SERVER], to=state)
    return work | _client("DISCONNECT", to=State.DISCONNECTED) | _server("DISCONNECT", to=State.DISCONNECTED)


_LEAVE: Final = _client("DISCONNECT", to=State.DISCONNECTED) | _server(REFUSAL, to=State.DISCONNECTED)

TRANSITIONS: Final[dict[State, Transitions]] = {
    State.OPENED: _client("CONNECT", to=State.ANSWERING) | _client(CONNECT_WITH_METHOD, to=State.AUTHENTICATING),
    State.ANSWERING: _LEAVE | _client(*_WORK[Role.CLIENT], to=State.ANSWERING) | _server("CONNACK", to=State.CONNECTED),
    State.AUTHENTICATING: _LEAVE
    | _server("CONNACK", to=State.AUTHENTICATED)
    | _server(AUTH_CONTINUE, to=State.CHALLENGED),
    State.CHALLENGED: _LEAVE | _client(AUTH_CONTINUE, to=State.AUTHENTICATING),
    State.CONNECTED: _connected(State.CONNECTED),
    State.AUTHENTICATED: _connected(State.AUTHENTICATED) | _client(AUTH_AGAIN, to=State.REAUTHENTICATING),
    State.REAUTHENTICATING: _connected(State.REAUTHENTICATING)
    | _server(AUTH_SUCCESS, to=State.AUTHENTICATED)
    | _server(AUTH_CONTINUE, to=State.RECHALLENGED),
    State.RECHALLENGED: _connected(State.RECHALLENGED) | _client(AUTH_CONTINUE, to=State.REAUTHENTICATING),
    State.DISCONNECTED: {},
}

#: The states before CONNACK, in which the client is unknown.
STRANGERS: Final = frozenset({State.OPENED, State.ANSWERING, State.AUTHENTICATING, State.CHALLENGED})

_AUTH_TRIGGERS: Final = {
    ReasonCode.SUCCESS: AUTH_SUCCESS,
    ReasonCode.CONTINUE_AUTHENTICATION: AUTH_CONTINUE,
    ReasonCode.RE_AUTHENTICATE: AUTH_AGAIN,
}

_NAMES: Final = {packet: packet.name for packet in PacketType}


def trigger(packet: Packet) -> str:
    """The name of a packet in the table."""
    if isinstance(packet, Auth):
        return _AUTH_TRIGGERS[ReasonCode(packet.reason_code)]
    if isinstance(packet, Connack) and packet.reason_code:
        return REFUSAL
    if isinstance(packet, Connect) and AUTHENTICATION_METHOD in packet.properties:
        return CONNECT_WITH_METHOD
    return _NAMES[packet.type]


@dataclass(frozen=True, slots=True)
class View:
    """A state as one side sees it: the packets that may be received and sent, and the state each leads to.

    `kinds`: the types of the packets that may be received.  `working`: whether PUBLISH and its acknowledgements may be
    sent.  `reads`: whether anything is read; a server reads nothing between CONNECT and CONNACK, as the client has not
    logged in yet, though it may send already (3.1.4).  `before_login`: whether the peer is such a client.
    """

    state: State
    incoming: dict[str, State]
    outgoing: dict[str, State]
    kinds: frozenset[int]
    working: bool
    reads: bool
    before_login: bool


def kinds(triggers: Iterable[str]) -> frozenset[int]:
    """The types of the packets with these names."""
    return frozenset(PacketType[name.partition(" ")[0]] for name in triggers)


def _view(role: Role, state: State) -> View:
    table = TRANSITIONS[state]
    incoming = {name: to for (sender, name), to in table.items() if sender is not role}
    outgoing = {name: to for (sender, name), to in table.items() if sender is role}
    serving = role is Role.SERVER
    return View(
        state,
        incoming,
        outgoing,
        kinds(incoming),
        "PUBLISH" in outgoing,
        bool(incoming) and not (serving and state is State.ANSWERING),
        serving and state in STRANGERS,
    )


VIEWS: Final = {role: {state: _view(role, state) for state in State} for role in Role}


def unexpected(kind: int, state: State, sender: Role, version: int) -> MqttError:
    """The error for a packet that may not be received now, or not with these contents."""
    if state is State.OPENED:
        error = violation("the first packet must be CONNECT", "MQTT-3.1.0-1")
        error.silent = True
        return error
    if not kind or (kind == PacketType.AUTH and version != V5):
        return malformed(f"there is no packet of type {kind} in MQTT {VERSIONS[version]}")
    name = PacketType(kind).name
    if kind == PacketType.CONNECT and sender is Role.CLIENT:
        return violation("CONNECT comes once, as the first packet", "MQTT-3.1.0-2")
    if kind == PacketType.CONNACK and sender is Role.SERVER:
        return violation("CONNACK comes once", "MQTT-3.2.0-2")
    if kind == PacketType.AUTH:
        rule = "MQTT-4.12.0-7" if sender is Role.CLIENT else "MQTT-4.12.0-6"
        return violation(f"AUTH, or with this reason code, cannot come when {state.value}", rule)
    if state in (State.AUTHENTICATING, State.CHALLENGED):
        return violation(f"{name} before the authentication is done", "MQTT-3.1.2-30")
    if state is State.ANSWERING:
        return violation(f"{name} before CONNACK", "MQTT-3.2.0-1")
    return violation(f"a {sender.value} does not send {name}")
