"""A standby's answer to clients: another broker owns the journal, and these are the hosts of both.

A standby reads no further than the first frame of a client, and ignores its credentials.

STOMP     CONNECT: ERROR with the header `redirect`
MQTT      CONNECT: CONNACK, Use another server (0x9C) with a Server Reference; before 5.0 Server unavailable (3)
AMQP      OPEN: OPEN with `failover-server-list`, and CLOSE; SASL offers ANONYMOUS alone, so that no password is sent
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from broker.sessions import sasl
from broker.sessions.amqp.terms import NOT_ESTABLISHED, PRODUCT
from broker.sessions.mqtt.connect import use_another_server
from broker.sessions.stomp.connect import moved
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.errors import CONNECTION_FORCED, connection_error
from protocols.amqp.limits import Limits as AmqpLimits
from protocols.amqp.performatives import Open, SaslCode, SaslInit, SaslOutcome
from protocols.mqtt.codes import Role
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.limits import Limits as MqttLimits
from protocols.mqtt.runs import Shared
from protocols.stomp.connection import StompConnection
from protocols.stomp.limits import Limits as StompLimits

STANDBY: Final = "this broker is a standby: connect to the one that owns the journal"


class _Codec(Protocol):
    @property
    def close_expected(self) -> bool: ...

    def receive_data(self, data: bytes) -> None: ...

    def data_to_send(self) -> bytes: ...


class RedirectingSession:
    """A session that ends with its answer.

    `read` processes the events of the codec; `answer` sends the answer if the protocol's state allows it.  The client
    never counts as logged in, so the handshake timeout applies.
    """

    established = False
    receive_timeout = 0
    send_interval = 0

    def __init__(self, codec: _Codec, read: Callable[[], None], answer: Callable[[], None]) -> None:
        self._codec = codec
        self._read = read
        self._answer = answer

    @property
    def close_expected(self) -> bool:
        return self._codec.close_expected

    def receive_data(self, data: bytes) -> None:
        if not self.close_expected:
            self._codec.receive_data(data)
            self._read()

    def receive_eof(self) -> None:
        self._answer()

    def data_to_send(self) -> bytes:
        return self._codec.data_to_send()

    def flushed(self) -> None:
        """Do nothing: the answer is the only output."""

    def write_blocked(self) -> None:
        """Do nothing: the answer is the only output."""

    def send_heartbeat(self) -> None:
        """Do nothing: no heart-beats were agreed on."""

    def timed_out(self) -> None:
        """Do nothing: no heart-beats were agreed on."""

    def connection_lost(self) -> None:
        """Do nothing: the client had nothing here."""

    def fail(self, why: str, *, moved: bool = False) -> None:
        self._answer()

    def shut_down(self, *, moved: bool = False) -> None:
        self._answer()


def redirecting_stomp(connect_bytes_max: int, servers: str) -> RedirectingSession:
    """Return a session that redirects a STOMP client."""
    codec = StompConnection(StompLimits(connect_bytes_max=connect_bytes_max))
    error = moved(STANDBY, servers)

    def read() -> None:
        if codec.events():
            codec.send_error(error)
        elif codec.error is not None:
            codec.send_error(codec.error)

    return RedirectingSession(codec, read, lambda: codec.send_error(error))


def redirecting_mqtt(connect_bytes_max: int, servers: str) -> RedirectingSession:
    """Return a session that redirects an MQTT client."""
    codec = MqttConnection(Shared(Role.SERVER, MqttLimits(connect_bytes_max=connect_bytes_max)))
    reason = use_another_server(STANDBY, servers)

    def read() -> None:
        if codec.events():
            codec.send_error(reason)
        elif codec.error is not None:
            codec.send_error(codec.error)

    return RedirectingSession(codec, read, lambda: codec.send_error(reason))


def redirecting_amqp(connect_bytes_max: int, container_id: str, properties: dict[str, object]) -> RedirectingSession:
    """Return a session that redirects an AMQP client; `properties` of OPEN name the servers."""
    limits = AmqpLimits(handshake_bytes_max=connect_bytes_max)
    codec = AmqpConnection(limits, container_id=container_id, mechanisms=(sasl.ANONYMOUS,), sasl_required=False)
    error = connection_error(CONNECTION_FORCED, STANDBY)

    def read() -> None:
        while events := codec.events():  # the next event needs an answer to this one
            for event in events:
                if isinstance(event, SaslInit):
                    wanted = event.mechanism == sasl.ANONYMOUS
                    codec.send_sasl(SaslOutcome(SaslCode.OK if wanted else SaslCode.AUTH))
                elif isinstance(event, Open):
                    codec.send_open(properties={"product": PRODUCT} | NOT_ESTABLISHED | properties)
                    codec.send_close(error)
        if codec.error is not None:
            codec.send_close(codec.error)

    return RedirectingSession(codec, read, lambda: codec.send_close(error))
