"""Brokers for the MQTT clients of tests: Bartleby simulated, under virtual time; or another broker behind a socket.

A test of the specification can run with both: if the other broker passes, a failure is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from broker.config import Config
from protocols.mqtt.codes import V5
from protocols.mqtt.packets import Connect, Subscription
from protocols.mqtt.properties import SESSION_EXPIRY_INTERVAL
from tests.support.links import Lost, SocketLink
from tests.support.mqtt_client import MqttClient, Pairs, greeting
from tests.support.sim_broker import SimBroker, SimPeer, configured

#: A session that never ends.
FOR_EVER: Final = 0xFFFF_FFFF


class World(Protocol):
    """A broker and its clients."""

    def attempt(self, connect: Connect, *, auto: bool = True) -> MqttClient:
        """Return a client that has sent CONNECT, whatever the answer."""

    def stranger(self) -> MqttClient:
        """Return a client that has sent nothing."""


class Connecting:
    """The common base of both worlds."""

    def stranger(self) -> MqttClient:
        """Return a client that has sent nothing."""
        raise NotImplementedError

    def attempt(self, connect: Connect, *, auto: bool = True) -> MqttClient:
        """Return a client that has sent CONNECT, whatever the answer."""
        client = self.stranger()
        client.auto = auto
        return client.connect(connect)

    def connect(
        self,
        client_id: str = "",
        *,
        version: int = V5,
        clean: bool = True,
        expiry: int | None = None,
        auto: bool = True,
        properties: Pairs = (),
        **more: Any,
    ) -> MqttClient:
        """Return a connected client; `expiry` is the session expiry interval in seconds."""
        if expiry is not None:
            properties = [*properties, (SESSION_EXPIRY_INTERVAL, expiry)]
        connect = greeting(client_id, version=version, clean=clean, properties=properties, **more)
        client = self.attempt(connect, auto=auto)
        assert client.code == 0, client.connack
        return client

    def subscriber(
        self, client_id: str, *wanted: str | Subscription, qos: int = 0, identifier: int = 0, **options: Any
    ) -> MqttClient:
        """Return a client that is connected with these options, and has subscribed."""
        client = self.connect(client_id, **options)
        client.subscribe(*wanted, qos=qos, identifier=identifier)
        return client


class SimCarrier(SimPeer):
    """A perfect wire to the simulated broker."""

    def __init__(self, broker: SimBroker, acceptor: str = "mqtt") -> None:
        self._sent_at = broker.now
        super().__init__(broker, acceptor, broker.number())
        broker.attached(self)

    def raw(self, data: bytes) -> None:
        """Send bytes to the broker, which works until nothing is left to do."""
        if not self.closed:
            self._sent_at = self.broker.now
            super().raw(data)

    @property
    def deadline(self) -> int | None:
        """The time at which the broker drops this client for its silence."""
        limit = self.session.receive_timeout
        return None if self.closed or not limit else self._sent_at + limit + 1

    def silent(self) -> None:
        """Time the client out, as the broker's network does."""
        self.broker.parts.tick.enter()
        self.session.timed_out()
        self.flush()
        self.broker.run()
        self.drop()

    def read(self) -> None:
        """Fail: everything has already arrived."""
        raise AssertionError("nothing will come")

    def poll(self) -> None:
        """Raise Lost if the connection has ended."""
        if self.closed:
            raise Lost

    @property
    def resting(self) -> bool:
        """Always true."""
        return True

    def drop(self) -> None:
        """Break the connection, once."""
        if not self.closed:
            super().drop()


def small(config: Config) -> Config:
    """Make the journal's files small: filling large ones with zeros takes longer than most tests."""
    return config.model_copy(
        update={"journal": config.journal.model_copy(update={"segment_size": 4 << 20, "reserve": 1 << 20})}
    )


class SimWorld(Connecting):
    """A simulated broker under virtual time, which can be restarted."""

    def __init__(self, config: Config | None = None, *, users: Mapping[str, str] | None = None) -> None:
        self.broker = SimBroker(small(config or configured()), users=users)
        self._carriers: list[SimCarrier] = []

    def stranger(self) -> MqttClient:
        """Return a client that has sent nothing."""
        carrier = SimCarrier(self.broker)
        self._carriers.append(carrier)
        return MqttClient().over(carrier)

    def advance(self, seconds: float) -> None:
        """Let time pass; clients that stay silent for too long are dropped."""
        end = self.broker.now + int(seconds * 1000)
        while True:
            waiting = [(one.deadline, at) for at, one in enumerate(self._carriers) if one.deadline is not None]
            due, at = min(waiting, default=(end + 1, 0))
            if due > end:
                break
            self.broker.advance(due - self.broker.now)
            self._carriers[at].silent()
        self.broker.advance(end - self.broker.now)

    def hold_disk(self) -> None:
        """Make the disk work only on `write`."""
        self.broker.hold_disk()

    def write(self) -> None:
        """Let a held disk do its work, until nothing follows."""
        for _ in range(5):
            self.broker.step()

    def restart(self, *, crash: bool = True) -> None:
        """Restart the broker after a power loss, or a shutdown; all connections end."""
        self.broker = self.broker.restart(crash=crash)
        self._carriers.clear()


class SocketWorld(Connecting):
    """A broker behind a port."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._clients: list[MqttClient] = []

    def stranger(self) -> MqttClient:
        """Return a client that has sent nothing."""
        client = MqttClient().over(SocketLink(self.port))
        self._clients.append(client)
        return client

    def close(self) -> None:
        """End all connections."""
        for client in self._clients:
            client.drop()
