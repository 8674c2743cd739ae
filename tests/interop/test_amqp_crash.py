"""What a crash leaves of AMQP: SIGKILL at random moments of unsettled transfers, drains and discharges (P1, P2).

Each round numbers its messages, notes what the broker confirmed before it died, and takes everything that is left
after its restart.  The seed of the moments is printed; what the kernel and the disk do meanwhile, it does not decide.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

import pytest

from protocols.amqp.message import AMQP_VALUE, encode_section
from protocols.amqp.performatives import Accepted, Discharge
from tests.support.amqp_client import AmqpClient, AmqpSocket, Delivery, message
from tests.support.daemon import DaemonProcess, running
from tests.support.links import Lost

#: Brokers that are killed for each kind of work.
ROUNDS: Final = 4
#: The longest that one works before that, in seconds: some hundred transactions.
LIFE_S: Final = 0.15
#: The longest of those that follow if nothing was confirmed, because the machine had other things to do.
LIFE_MAX_S: Final = 10

Work = Callable[[AmqpClient], None]


def work_until_killed(broker: DaemonProcess, moment: float, work: Work) -> None:
    """Kill the broker after a while, in the middle of the work, and start it again."""
    killer = threading.Timer(moment, broker.signal, (signal.SIGKILL,))
    with AmqpSocket(broker.ports["amqp"]) as client:
        killer.start()
        with pytest.raises(Lost):
            work(client)
        killer.join()
    broker.wait()
    broker.start()


def left_on(broker: DaemonProcess, name: str) -> list[int]:
    """Take everything from a queue: the numbers."""
    with AmqpSocket(broker.ports["amqp"]) as client:
        link = client.receiver(f"queue://{name}", credit=0)
        link.send_credit(100_000, drain=True)
        client.wait(lambda: link.credit == 0)
        deliveries = client.arrived
        for delivery in deliveries:
            client.settle(delivery, settled=False)
        client.wait(lambda: len(client.confirmed) == len(deliveries))
    assert broker.queue(name)["messages"] == 0
    return [number(delivery) for delivery in deliveries]


def number(delivery: Delivery) -> int:
    """Which message it is."""
    body = delivery.body
    assert isinstance(body, int)
    return body


class Transfers:
    """Messages sent and consumed, both unsettled: what was said to whom.

    `sent` has gone out, `accepted` was confirmed; `tried` was settled by us, `settled` was confirmed.
    """

    def __init__(self, *, drain: bool) -> None:
        self.sent: list[int] = []
        self.accepted: set[int] = set()
        self.tried: set[int] = set()
        self.settled: set[int] = set()
        self._numbers = count()
        self._drain = drain

    def __call__(self, client: AmqpClient) -> None:
        """Work on one connection until it is lost.  Raises Lost."""
        to, source = client.sender("queue://q"), client.receiver("queue://q", credit=0 if self._drain else 50)
        waiting: dict[object, int] = {}
        trying: dict[int, int] = {}
        try:
            while True:
                numbers = [next(self._numbers) for _ in range(10)]
                self.sent += numbers
                contexts = client.post(to, *[message(number) for number in numbers])
                waiting.update(zip(contexts, numbers, strict=True))
                if self._drain:
                    source.send_credit(7, drain=True)
                    client.wait(lambda: source.credit == 0)
                else:
                    client.wait(lambda: len(client.outcomes) - len(client.confirmed) > len(waiting) - 20)
                arrived, client.arrived = client.arrived, []
                for delivery in arrived:
                    trying[delivery.id] = number(delivery)
                    self.tried.add(number(delivery))
                    client.settle(delivery, settled=False)
                source.send_credit(50)
        finally:
            accepted = {outcome.context for outcome in client.outcomes if outcome.state == Accepted()}
            self.accepted |= {waiting[context] for context in accepted & waiting.keys()}
            self.settled |= {trying[id] for id in client.confirmed}

    def check(self, left: list[int]) -> None:
        """Nothing confirmed is lost or comes back, nothing is there twice, nothing changed places."""
        assert left == sorted(set(left))
        assert set(left) <= set(self.sent)
        assert not self.settled & set(left)
        assert self.accepted - self.tried <= set(left)
        self.sent, self.accepted, self.tried, self.settled = [], set(), set(), set()


@pytest.mark.parametrize("drain", [False, True], ids=["transfers", "drains"])
def test_nothing_confirmed_is_lost(tmp_path: Path, drain: bool) -> None:
    work = Transfers(drain=drain)
    confirmed: list[int] = []
    with running(tmp_path) as broker:
        for moment in moments_of_death(confirmed):
            work_until_killed(broker, moment, work)
            confirmed += [*work.accepted, *work.settled]
            work.check(left_on(broker, "q"))
    assert confirmed


class Discharges:
    """One message in, two messages out, in one transaction after the other."""

    def __init__(self) -> None:
        self.committed: set[int] = set()
        self.known: set[int] = set()
        self._numbers = count()

    def __call__(self, client: AmqpClient) -> None:
        """Work on one connection until it is lost.  Raises Lost."""
        filling, first, second = (client.sender(f"queue://{name}") for name in ("in", "first", "second"))
        coordinator = client.coordinator()
        client.receiver("queue://in")
        numbers = [next(self._numbers) for _ in range(20)]
        self.known |= set(numbers)
        client.put(filling, *[message(number) for number in numbers])
        while True:
            [delivery] = client.take(1)
            tx = client.declare(coordinator)
            client.settle(delivery, settled=False, tx=tx)
            client.post(first, message(number(delivery)), tx=tx)
            client.post(second, message(number(delivery)), tx=tx)
            [context] = client.post(coordinator, encode_section(AMQP_VALUE, Discharge(tx, False)))
            more = next(self._numbers)
            self.known.add(more)
            client.post(filling, message(more))
            client.wait(lambda context=context: any(o.context is context for o in client.outcomes))  # type: ignore[misc]
            [outcome] = [outcome for outcome in client.outcomes if outcome.context is context]
            assert outcome.state == Accepted()
            client.outcomes.clear()
            self.committed.add(number(delivery))

    def check(self, filled: list[int], first: list[int], second: list[int]) -> None:
        """A transaction is whole or absent, and there if it was confirmed."""
        assert first == second
        assert self.committed <= set(first)
        assert not set(first) & set(filled)
        assert set(first) | set(filled) <= self.known
        assert len(first) == len(set(first))
        assert len(filled) == len(set(filled))


def test_transactions_are_whole_or_absent(tmp_path: Path) -> None:
    committed: list[int] = []
    with running(tmp_path) as broker:
        for moment in moments_of_death(committed):
            work = Discharges()
            work_until_killed(broker, moment, work)
            committed += work.committed
            work.check(left_on(broker, "in"), left_on(broker, "first"), left_on(broker, "second"))
    assert committed


def test_a_rolled_back_transaction_stays_so(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        with AmqpSocket(broker.ports["amqp"]) as client:
            coordinator, to = client.coordinator(), client.sender("queue://out")
            client.put(client.sender("queue://in"), message(1))
            client.receiver("queue://in")
            [delivery] = client.take(1)
            tx = client.declare(coordinator)
            client.put(to, message(2), tx=tx)
            client.settle(delivery, settled=False, tx=tx)
            assert client.discharge(coordinator, tx, fail=True) == Accepted()
            open_one = client.declare(coordinator)
            client.put(to, message(3), tx=open_one)
            broker.kill()
        broker.start()
        assert left_on(broker, "in") == [1]
        assert left_on(broker, "out") == []


def moments_of_death(confirmed: list[int]) -> Iterator[float]:
    """When to kill each broker, in seconds; the seed is printed.  Lives get longer until something is `confirmed`."""
    seed = Random().randrange(1 << 32)
    print(f"seed {seed}")
    chance = Random(seed)
    for _ in range(ROUNDS):
        yield chance.uniform(0, LIFE_S)
    life = LIFE_S
    while not confirmed and life < LIFE_MAX_S:
        life *= 2
        yield life
