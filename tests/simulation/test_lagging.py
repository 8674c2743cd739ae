"""The random workload of `test_random` with a disk that lags behind, and the modes of delivery counting in turn.

Nothing is asked to be durable at once: messages, settlements, departures and purges meet what the journal has not
written yet.  The model does not know of the disk: what it is told late must still be possible, and once the disk has
caught up everything is where it must be.

    P1   no durable message reaches a consumer before its sender could be told that it is stored
    P4   when the power goes, what reached a consumer in strict mode counts, and nothing else that never left

One seed decides everything.  Longer: BARTLEBY_SIMULATION_SCALE=100.
"""

from __future__ import annotations

from typing import Final

import pytest

from broker.daemon.wiring import settings_table
from tests.simulation.model import Place
from tests.simulation.random_work import Sim, configuration
from tests.simulation.world import SCALE, check_accounts, everything
from tests.support.bodies import body_of
from tests.support.stomp_client import ServerFrame

#: Those in which the random workload is strict from the start.
SEEDS: Final = range(0, 3 * 40 * SCALE, 3)
STEPS: Final = 120


class Lagging(Sim):
    """The same, with receipts that come when they can."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.broker.hold_disk()
        self.asked: dict[str, int] = {}  # receipts that have not come yet: which client waits
        self.stored: dict[bytes, str] = {}  # the receipt of each durable message that was sent by itself
        self.changed = False

    # -- the disk --------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """The disk has caught up, and everybody has what is his."""
        self.broker.catch_up()
        self.collect()
        assert not [number for number in self.asked.values() if number in self.clients], "everything is confirmed"
        self.model.check_nobody_waits()
        for queue in self.broker.engine.queues.values():
            assert not queue.landing
            assert not any(consumer.held for consumer in queue.consumers)

    def collect(self) -> None:
        """Hand on what has come, the receipts first: they left in the same tick or before."""
        self.broker.advance(0)
        self.model.elapse()
        for client in self.clients.values():
            for frame in client.take("RECEIPT"):
                self.asked.pop(frame.headers["receipt-id"], None)
        for number, client in self.clients.items():
            assert not client.closed, client.frames
            for frame in client.messages():
                self.deliver(number, frame)

    def deliver(self, number: int, frame: ServerFrame) -> None:
        queue = self.model.queues[self.model.subs[number, frame.headers["subscription"]].queue]
        waits = self.asked.get(self.stored.get(frame.body, "")) in self.clients
        assert not (waits and queue.durable), f"{frame.body!r} came before its sender could be told that it is stored"
        super().deliver(number, frame)

    def step(self) -> None:
        for _ in range(self.random.choice((0, 0, 0, 1, 1, 2))):
            self.broker.step()
            self.collect()
        if self.random.random() < 0.1:
            self.settle()
        super().step()

    def observe(self) -> None:
        self.collect()

    def done(self, number: int, command: str, headers: dict[str, str], body: bytes = b"") -> None:
        self.numbers += 1
        receipt = str(self.numbers)
        self.asked[receipt] = number
        if command == "SEND" and headers["persistent"] == "true" and "transaction" not in headers:
            self.stored[body] = receipt
        self.clients[number].do(command, {**headers, "receipt": receipt}, body)
        if command in ("SUBSCRIBE", "DISCONNECT"):
            self.broker.catch_up()

    # -- what is done ----------------------------------------------------------------------------------------------

    def do_change(self) -> None:
        """The other mode, by a reload."""
        self.changed = True
        self.strict = not self.strict
        self.broker.enter().configuration.change_settings(settings_table(configuration(strict=self.strict)))
        self.broker.run()

    # What these are compared with knows nothing of a disk: it catches up first.

    def do_subscribe(self) -> None:
        self.settle()
        super().do_subscribe()

    def do_subscribe_topic(self) -> None:
        self.settle()
        super().do_subscribe_topic()

    def do_purge(self) -> None:
        self.settle()
        super().do_purge()

    def do_retry(self) -> None:
        self.settle()
        super().do_retry()

    def do_move(self) -> None:
        self.settle()
        super().do_move()

    def do_advance(self) -> None:
        self.settle()
        super().do_advance()

    def restart(self, *, crash: bool) -> None:
        super().restart(crash=crash and not self.changed)
        self.broker.hold_disk()
        self.asked.clear()

    def compare(self) -> None:
        self.settle()
        super().compare()

    def cut_power(self) -> None:
        """In the middle of everything: what was confirmed is there, and what reached somebody counts."""
        again = self.broker.restart(keep=self.random.choice((0.0, 0.5, 1.0)))
        there = everything(again)
        for queue in [queue for queue in self.model.queues.values() if queue.durable]:
            real = again.engine.queue(queue.name)
            for (body, _), copy in queue.copies.items():
                if not copy.durable:
                    continue
                if body in self.stored and self.stored[body] not in self.asked:
                    assert there[body], f"{body!r} was confirmed and is gone"
                reached = copy.place in (Place.HELD, Place.IN_TRANSACTION) and not 0 < copy.expires <= again.now
                if reached and self.strict and not self.changed:
                    found = {
                        real.delivery_count(m.id) for m, _ in again.engine.messages.browse(real) if body_of(m) == body
                    }
                    assert copy.failures + 1 in found, f"{body!r} reached {copy.by}"
        check_accounts(again)


@pytest.mark.parametrize("changing", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_workload_with_a_disk_that_lags(seed: int, changing: bool) -> None:
    sim = Lagging(seed)
    for done in range(1, STEPS + 1):
        if changing and sim.random.random() < 0.03:
            sim.do_change()
        sim.step()
        if done % 20 == 0:
            sim.compare()
    sim.cut_power()
