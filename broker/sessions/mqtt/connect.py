"""CONNECT and its answer: login, session expiry, and the limits of both sides (3.1, 3.2, 4.12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from broker.engine import NEVER_EXPIRES
from broker.engine.model.access import Identity
from broker.sessions import sasl
from broker.sessions.login import Gate, Peer
from broker.sessions.mqtt.port import Port
from broker.sessions.mqtt.terms import MqttOptions
from broker.sessions.reading import LOGIN
from protocols.mqtt.codes import V5, ReasonCode
from protocols.mqtt.errors import MqttError
from protocols.mqtt.inflight import RECEIVE_MAXIMUM_DEFAULT
from protocols.mqtt.packets import Auth, Connack, Connect
from protocols.mqtt.properties import (
    ASSIGNED_CLIENT_IDENTIFIER,
    AUTHENTICATION_DATA,
    AUTHENTICATION_METHOD,
    MAXIMUM_QOS,
    RECEIVE_MAXIMUM,
    RETAIN_AVAILABLE,
    SERVER_KEEP_ALIVE,
    SESSION_EXPIRY_INTERVAL,
    Properties,
    Property,
)

#: A peer counts as gone after one and a half times its keep alive [MQTT-3.1.2-22]: ms per second of keep alive.
KEEP_ALIVE_MS: Final = 1_500


#: Called with the client's identity (None: refused), and the data to send with the answer.
Known = Callable[[Identity | None, bytes | None], None]


class Login:
    """The login of a connection, and later re-authentication; until the answer nothing more is read (`login`).

    Enhanced authentication is SCRAM, in AUTH packets (4.12).
    """

    def __init__(self, port: Port, gate: Gate, peer: Peer, known: Known, fail: Callable[[MqttError], None]) -> None:
        self._port = port
        self._gate = gate
        self._peer = peer
        self._known = known
        self._fail = fail
        self._exchange: sasl.Exchange | None = None

    def begin(self, connect: Connect) -> None:
        """Start the login of a CONNECT.  Raises MqttError."""
        method = connect.properties.get(AUTHENTICATION_METHOD)
        if method is not None:
            self._start(method, connect.properties.get(AUTHENTICATION_DATA))
            return
        name, password = connect.user_name or "", connect.password or b""
        self._gate.login(self._peer, name, password, self._port.reading.until(LOGIN, self._identified))

    def step(self, auth: Auth) -> None:
        """Process an AUTH.  Raises MqttError."""
        data = auth.properties.get(AUTHENTICATION_DATA)
        if auth.reason_code == ReasonCode.RE_AUTHENTICATE:
            method = auth.properties.get(AUTHENTICATION_METHOD)
            assert method is not None, "the codec has checked it"
            self._start(method, data)
        else:
            self._go_on(data)

    def _start(self, method: str, data: bytes | None) -> None:
        offered = [each for each in self._gate.mechanisms(self._peer) if each in sasl.SCRAMS]
        if method not in offered:
            names = ", ".join(offered) or "none"
            sentence = f"the client's authentication method is not offered; offered: {names}"
            raise MqttError(ReasonCode.BAD_AUTHENTICATION_METHOD, sentence)
        self._exchange = sasl.begin(method, self._gate, self._peer)
        self._go_on(data)

    def _go_on(self, data: bytes | None) -> None:
        assert self._exchange is not None, "the codec knows whose turn it is"
        self._exchange.step(data or b"", self._port.reading.until(LOGIN, self._answered))

    def _answered(self, answer: sasl.Answer) -> None:
        if isinstance(answer, sasl.Challenge):
            if not self._port.lost:
                self.send(ReasonCode.CONTINUE_AUTHENTICATION, answer.data)
        elif isinstance(answer, sasl.Granted):
            self._identified(answer.identity, answer.data)
        else:
            self._identified(None)

    def _identified(self, identity: Identity | None, data: bytes | None = None) -> None:
        if not self._port.lost:
            self._known(identity, data)

    def send(self, reason: ReasonCode, data: bytes | None) -> None:
        """Send an AUTH."""
        if not self._port.codec.send(Auth(reason, Properties([] if data is None else [(AUTHENTICATION_DATA, data)]))):
            self._fail(no_room("AUTH"))


def no_room(packet: str) -> MqttError:
    """Return the error for a peer whose Maximum Packet Size is too small for a packet that it needs."""
    sentence = f"the peer's Maximum Packet Size has no room for {packet}"
    return MqttError(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, sentence)


def check(connect: Connect, options: MqttOptions) -> None:
    """Check that an acceptor permits what a client asks for.  Raises MqttError."""
    if not (connect.client_id or options.nameless):
        sentence = "the client identifier is empty, which is not allowed here"
        raise MqttError(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, sentence)
    most = options.early_keep_alive_max
    if connect.version != V5 and most and not 0 < connect.keep_alive <= most:
        # 3.1.1 has no return code for it; Mosquitto uses this one.
        sentence = f"the keep alive must be 1 to {most} seconds here, not {connect.keep_alive}"
        raise MqttError(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, sentence)
    will = connect.will
    if will is not None:
        check_publish(will.qos, will.retain, options)
        if 0 <= options.payload_bytes_max < len(will.payload):
            raise MqttError(ReasonCode.QUOTA_EXCEEDED, payload_too_large(len(will.payload), options))


def check_publish(qos: int, retain: bool, options: MqttOptions) -> None:
    """Check that an acceptor permits such messages.  Raises MqttError ([MQTT-3.2.2-12], [MQTT-3.2.2-13])."""
    if qos > options.qos_max:
        raise MqttError(ReasonCode.QOS_NOT_SUPPORTED, f"QoS {options.qos_max} is the highest here, not {qos}")
    if retain and not options.retain:
        raise MqttError(ReasonCode.RETAIN_NOT_SUPPORTED, "messages cannot be retained here")


def payload_too_large(nbytes: int, options: MqttOptions) -> str:
    """Return why a message is refused."""
    return f"a payload of {nbytes} bytes, at most {options.payload_bytes_max} are allowed"


def use_another_server(why: str, servers: str) -> MqttError:
    """Return the error for a take-over by another broker: 0x9C, as 0x9D would mean a permanent move (4.11)."""
    return MqttError(ReasonCode.USE_ANOTHER_SERVER, why, servers=servers)


def wrong_login(connect: Connect) -> MqttError:
    """Return the error for a refused login."""
    if AUTHENTICATION_METHOD in connect.properties or connect.user_name is None:
        return MqttError(ReasonCode.NOT_AUTHORIZED, "the login was refused")
    return MqttError(ReasonCode.BAD_USER_NAME_OR_PASSWORD, "the user name or the password is wrong")


def keep_alive(connect: Connect, options: MqttOptions) -> int:
    """Return the effective keep alive in seconds, 0: none.  It can be changed for clients of 5.0 only (3.2.2.3.14)."""
    most = options.keep_alive_max
    asked = connect.keep_alive
    if connect.version == V5 and most and not 0 < asked <= most:
        return most
    return asked


def session_expiry(connect: Connect, options: MqttOptions) -> int:
    """Return how long the session outlives its connection, in seconds."""
    if connect.version == V5:
        return min(connect.properties.get(SESSION_EXPIRY_INTERVAL) or 0, options.expiry_max)
    return 0 if connect.clean_start else min(options.expiry_default, NEVER_EXPIRES)


def own_receive_maximum(connect: Connect, options: MqttOptions) -> int:
    """Return how many QoS 1 and 2 messages a client may send without an answer; only 5.0 can announce a limit."""
    return options.receive_maximum if connect.version == V5 else RECEIVE_MAXIMUM_DEFAULT


def receive_maximum(connect: Connect, options: MqttOptions) -> int:
    """Return how many messages of QoS 1 and 2 may be in flight to the client."""
    return min(connect.properties.get(RECEIVE_MAXIMUM) or RECEIVE_MAXIMUM_DEFAULT, options.inflight_max)


def greeting(
    connect: Connect, options: MqttOptions, *, present: bool, assigned: str, expiry: int, data: bytes | None
) -> Connack:
    """Return the CONNACK of a successful login; before 5.0 it only says whether there was a session."""
    if connect.version != V5:
        return Connack(0, present)
    pairs: list[tuple[Property[Any], Any]] = []
    if expiry != (connect.properties.get(SESSION_EXPIRY_INTERVAL) or 0):
        pairs.append((SESSION_EXPIRY_INTERVAL, expiry))
    if options.qos_max < 2:
        pairs.append((MAXIMUM_QOS, options.qos_max))
    if not options.retain:
        pairs.append((RETAIN_AVAILABLE, 0))
    if options.receive_maximum < RECEIVE_MAXIMUM_DEFAULT:
        pairs.append((RECEIVE_MAXIMUM, options.receive_maximum))
    if assigned:
        pairs.append((ASSIGNED_CLIENT_IDENTIFIER, assigned))
    seconds = keep_alive(connect, options)
    if seconds != connect.keep_alive:
        pairs.append((SERVER_KEEP_ALIVE, seconds))
    if data is not None:
        pairs.append((AUTHENTICATION_DATA, data))
    return Connack(0, present, Properties(pairs))
