"""A session that fails when it hears who its peer is costs that connection; others that wait for the same go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from protocols.amqp.encode import encode
from protocols.amqp.performatives import SaslInit
from protocols.mqtt.codes import Role
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.limits import Limits
from protocols.mqtt.runs import Shared
from tests.simulation.world import small
from tests.support.mqtt_client import greeting
from tests.support.sim_broker import SimBroker, SimPeer
from tests.support.sim_gate import outcome
from tests.support.stomp_client import frame

Result = TypeVar("Result")


class Threads:
    """A runner whose work waits until it is told."""

    threads = 2

    def __init__(self, broker: SimBroker) -> None:
        self._broker = broker
        self.waiting: list[Callable[[], None]] = []

    def run(self, work: Callable[[], Result], then: Callable[[Result | BaseException], None]) -> None:
        self.waiting.append(lambda: then(outcome(work)))

    def later(self, ms: int, call: Callable[[], None]) -> None:
        self.waiting.append(call)

    def work(self) -> None:
        """All of it, each as the daemon's runner does it."""
        tick = self._broker.parts.tick
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            tick.enter()
            try:
                call()
            except BaseException as error:
                tick.failed(None, error)
            self._broker.run()


class Visitor(SimPeer):
    """A client that logs in as bob, and does not listen; a `faulty` one's connection fails when it is read again."""

    def __init__(self, broker: SimBroker, protocol: str, *, faulty: bool = False) -> None:
        super().__init__(broker, protocol, broker.number())
        broker.attached(self)
        self.faulty = faulty
        self.raw(hello(protocol))

    def heard(self, data: bytes) -> None:
        """Nobody is interested."""

    def resume_reading(self) -> None:
        if self.faulty:
            raise RuntimeError("planted")
        super().resume_reading()


def hello(protocol: str) -> bytes:
    """The first bytes of a client with a password."""
    if protocol == "stomp":
        return frame("CONNECT", {"accept-version": "1.2", "host": "h", "login": "bob", "passcode": "secret"})
    if protocol == "mqtt":
        mqtt = MqttConnection(Shared(Role.CLIENT, Limits()))
        mqtt.send(greeting("c", user_name="bob", password=b"secret"))
        return mqtt.data_to_send()
    init = encode(SaslInit("PLAIN", b"\0bob\0secret"))
    return b"AMQP\3\1\0\0" + (len(init) + 8).to_bytes(4) + b"\2\1\0\0" + init


@pytest.mark.parametrize("protocol", ["stomp", "mqtt", "amqp"])
def test_the_connection_that_fails_is_closed_and_the_others_are_told(protocol: str) -> None:
    broker = SimBroker(small(), users={"bob": "secret"}, tolerant=True)
    threads = Threads(broker)
    broker.gate._passwords._runner = threads
    first = Visitor(broker, "stomp")
    victim = Visitor(broker, protocol, faulty=True)
    last = Visitor(broker, "amqp")
    assert [first.reading, victim.reading, last.reading] == [False] * 3
    threads.work()
    assert victim.closed
    assert [fault["remote"] for fault in broker.reported("connection.failed")] == [victim.remote]
    assert [first.reading, last.reading] == [True] * 2
    assert not first.closed
    assert not last.closed
    assert broker.reported("broker.error") == []
    assert Visitor(broker, "mqtt").reading, "and the password is remembered"
