"""The end of a connection with many consumers, which are closed in steps; what happens meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from tests.broker.security.verbs import SMALL
from tests.support.amqp_client import AmqpSim
from tests.support.sim_broker import SimBroker, SimClient, SimPeer, configured

#: Queues, each with a consumer and a message in flight.
QUEUES: Final = 20

DURABLE: Final = {"durable_subscription_name": "d"}


class Crash(Exception):
    """The broker's power is lost."""


class Scene:
    """A client of STOMP or AMQP with many consumers, and what happens when half of them are closed."""

    def __init__(self, protocol: str) -> None:
        self.broker = SimBroker(configured(journal=SMALL))
        self.producer = self.broker.connect()
        for number in range(QUEUES):
            self.producer.confirmed(f"/queue/q{number}", b"1")
        self.client = self._stomp() if protocol == "stomp" else self._amqp()
        assert self.count() >= QUEUES

    def _stomp(self) -> SimPeer:
        client = self.broker.connect(**{"client-id": "c"})
        for number in range(QUEUES):
            client.subscribe(f"/queue/q{number}", str(number))
        client.subscribe("/topic/t", "d", **DURABLE)
        return client

    def _amqp(self) -> SimPeer:
        client = AmqpSim(self.broker)
        for number in range(QUEUES):
            client.receiver(f"q{number}", name=f"r{number}")
        return client

    def count(self) -> int:
        """How many consumers there are."""
        return sum(len(queue.consumers) for queue in self.broker.engine.queues.values())

    def during(self, begin: Callable[[], object], each: Callable[[int], None]) -> None:
        """End the connection with small steps; `each` is called after each tick, with how many consumers are left."""
        steps = self.broker.engine._state.steps
        usual = steps.budget, steps.budget_min
        steps.budget = steps.budget_min = 1
        self.broker.after_tick = lambda: each(self.count())
        begin()
        self.broker.run()
        self.broker.after_tick = lambda: None
        steps.budget, steps.budget_min = usual
        self.broker.run()

    def halfway(self, event: Callable[[], None]) -> None:
        """Break the connection, and do something when half of its consumers are closed."""
        done: list[int] = []

        def each(left: int) -> None:
            if left == QUEUES // 2 and not done:
                done.append(left)
                self.broker.tick.enter()
                event()

        self.during(self.client.drop, each)
        assert done

    def bodies(self) -> list[list[bytes]]:
        """What another client gets from each queue, which notes that the first message was sent before."""
        reader = self.broker.connect()
        found = []
        for number in range(QUEUES):
            reader.subscribe(f"/queue/q{number}", str(number))
            frames = reader.take("MESSAGE")
            found.append([frame.body for frame in frames])
            assert [frame.headers.get("redelivered") for frame in frames[:1]] == ["true"][: len(frames)]
        reader.drop()
        return found


@pytest.fixture(params=["stomp", "amqp"])
def scene(request: pytest.FixtureRequest) -> Scene:
    """A client of each protocol."""
    return Scene(request.param)


def test_all_are_closed_and_their_messages_return(scene: Scene) -> None:
    counts: list[int] = []
    scene.during(scene.client.drop, counts.append)
    assert len(set(counts)) >= QUEUES, "it was done in steps"
    assert scene.count() == 0
    assert not scene.broker.engine._state.closing
    assert scene.bodies() == [[b"1"]] * QUEUES


def test_messages_that_come_meanwhile_are_behind_those_that_return(scene: Scene) -> None:
    def send() -> None:
        for number in range(QUEUES):
            frame = f"SEND\ndestination:/queue/q{number}\n\n2\0".encode()
            scene.producer.session.receive_data(frame)

    scene.halfway(send)
    assert scene.bodies() == [[b"1", b"2"]] * QUEUES


def test_queues_that_are_deleted_meanwhile(scene: Scene) -> None:
    def delete() -> None:
        for name in ("q0", f"q{QUEUES - 1}"):
            scene.broker.engine.delete_queue(scene.broker.engine.queues[name])

    scene.halfway(delete)
    assert scene.count() == 0
    assert not scene.broker.engine._state.closing, "nothing is kept of a consumer whose queue is gone"
    assert scene.bodies() == [[], *[[b"1"]] * (QUEUES - 2), []]


def test_a_consumer_that_comes_meanwhile_gets_what_returns(scene: Scene) -> None:
    reader = scene.broker.connect()

    def subscribe() -> None:
        for number in range(QUEUES):
            frame = f"SUBSCRIBE\nid:{number}\ndestination:/queue/q{number}\n\n\0".encode()
            reader.session.receive_data(frame)

    scene.halfway(subscribe)
    assert len(reader.take("MESSAGE")) == QUEUES
    assert scene.count() == QUEUES


def test_a_restart_meanwhile_loses_nothing(scene: Scene) -> None:
    def crash() -> None:
        scene.broker.write()
        raise Crash

    with pytest.raises(Crash):
        scene.halfway(crash)
    scene.broker = scene.broker.restart()
    reader = scene.broker.connect()
    for number in range(QUEUES):
        reader.subscribe(f"/queue/q{number}", str(number))
    assert [frame.body for frame in reader.take("MESSAGE")] == [b"1"] * QUEUES


def test_a_durable_subscriber_comes_back_meanwhile() -> None:
    scene = Scene("stomp")
    again = scene.broker.connect(**{"client-id": "c"})
    frame = b"SUBSCRIBE\nid:d\ndestination:/topic/t\ndurable-subscription-name:d\n\n\0"
    scene.halfway(lambda: again.session.receive_data(frame))
    assert not again.take("ERROR")
    scene.producer.send("/topic/t", b"news")
    assert [message.body for message in again.take("MESSAGE")] == [b"news"]


def test_a_receipt_for_disconnect_means_that_all_are_closed() -> None:
    scene = Scene("stomp")
    client = scene.client
    assert isinstance(client, SimClient)
    seen: list[tuple[int, bool]] = []

    def each(left: int) -> None:
        seen.append((left, any(frame.command == "RECEIPT" for frame in client.frames)))

    scene.during(lambda: client.raw(b"DISCONNECT\nreceipt:bye\n\n\0"), each)
    assert {told for left, told in seen if left} == {False}
    assert [frame.headers["receipt-id"] for frame in client.take("RECEIPT")] == ["bye"]
    assert client.closed


@pytest.mark.parametrize("how", ["lost", "silent", "shut down"])
def test_a_connection_that_ends_while_it_disconnects(how: str) -> None:
    scene = Scene("stomp")
    client = scene.client
    done: list[int] = []

    def each(left: int) -> None:
        if left == QUEUES // 2 and not done:
            done.append(left)
            scene.broker.tick.enter()
            if how == "lost":
                client.abort()
            elif how == "silent":
                client.session.timed_out()
            else:
                client.session.shut_down()

    scene.during(lambda: client.raw(b"DISCONNECT\nreceipt:bye\n\n\0"), each)
    assert scene.count() == 0
    assert len(scene.broker.engine.connections.by_id) == 1, "the producer's"
    assert scene.bodies() == [[b"1"]] * QUEUES
