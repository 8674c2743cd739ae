"""Producers that do anything allowed, in any order: their connection stays usable, and the broker stays consistent."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from protocols.amqp.frames import frame
from protocols.amqp.performatives import Accepted, Properties, TransactionalState, Transfer
from protocols.amqp.sender import Sender
from protocols.amqp.state import LinkState
from tests.broker.sessions import large
from tests.simulation.world import check_accounts
from tests.support.amqp_client import AmqpSim, message
from tests.support.sim_broker import SimBroker

NAMES = ("a", "b", "full", "relay")


@dataclass(slots=True)
class Begun:
    """A message of which frames are still to be sent, perhaps in a transaction."""

    id: int
    rest: bytes
    tx: bytes | None


class Producer:
    """A client whose frames are made by hand, on links that take turns."""

    def __init__(self, broker: SimBroker, random: Random) -> None:
        self.client = AmqpSim(broker)
        self._random = random
        self._coordinator = self.client.coordinator()
        self._transactions: list[bytes] = []
        self._links = {name: self._link(name) for name in NAMES}
        self._begun: dict[str, Begun] = {}
        self._raw = b""

    def _link(self, name: str) -> Sender:
        ends = (None,) if name == "relay" else (name, "queue")
        return self.client.sender(*ends, name=f"{name} {self._random.random()}")

    def flush(self) -> None:
        """Send the frames that were made."""
        raw, self._raw = self._raw, b""
        self.client.raw(raw)
        self.client.say()

    def step(self) -> None:
        """Do something."""
        name, chance = self._random.choice(NAMES), self._random.random()
        if self._links[name].state is not LinkState.ATTACHED:
            self.flush()
            self._begun.pop(name, None)
            self._links[name] = self._link(name)
        if chance < 0.6:
            self._transfer(name, aborted=chance < 0.1 and name in self._begun)
        elif chance < 0.8:
            self.flush()
        elif chance < 0.85:
            self.flush()
            self._begun.pop(name, None)
            self.client.detach(self._links[name], closed=chance < 0.82)
        elif chance < 0.92:
            self.flush()
            self._transactions.append(self.client.declare(self._coordinator))
        elif chance < 0.98:
            self.flush()
            for tx in self._transactions[:1]:
                partial = any(begun.tx == tx for begun in self._begun.values())  # must not commit (part 4, 4.4.1)
                self.client.discharge(self._coordinator, tx, fail=chance < 0.94 or partial)
            self._transactions = self._transactions[1:]
        else:
            self.flush()
            self.client.detach(self._coordinator)
            self._transactions, self._coordinator = [], self.client.coordinator()

    def _transfer(self, name: str, *, aborted: bool) -> None:
        link, random = self._links[name], self._random
        begun = self._begun.get(name)
        if begun is None:
            to = random.choice(("queue://a", "queue://full", "queue://#")) if name == "relay" else name
            body = "x" * random.choice((0, 900, 3_000, 30_000))
            tx = random.choice((*self._transactions, None, None, b"none" if random.random() < 0.1 else None))
            begun = Begun(link.session.next_delivery_id, message(body, properties=Properties(to=to)), tx)
            link.session.next_delivery_id += 1
            state = None if tx is None else TransactionalState(tx)
            transfer = Transfer(link.handle, begun.id, begun.id.to_bytes(4), 0, random.random() < 0.2, state=state)
        else:
            transfer = Transfer(link.handle, random.choice((begun.id, None)))
        size = random.choice((100, 800, 1 << 20))
        part, begun.rest = begun.rest[:size], begun.rest[size:]
        transfer.aborted, transfer.more = aborted, bool(begun.rest) and not aborted
        self._raw += frame(link.session.channel, transfer.encode() + part)
        self._begun[name] = begun
        if not transfer.more:
            del self._begun[name]


@pytest.mark.parametrize("seed", range(30))
def test_a_connection_outlives_whatever_its_links_do(seed: int) -> None:
    random = Random(seed)
    full = {"match": "full", "max-size-messages": 2, "address-full-policy": "FAIL"}
    broker = SimBroker(large.config(full, header_bytes_max=large.LARGE, large_body_bytes_max=20_000))
    producer = Producer(broker, random)
    for _ in range(random.randrange(10, 60)):
        producer.step()
    producer.flush()
    client = producer.client
    assert not client.closed
    assert client.ses not in client.ends
    [outcome] = client.send(client.sender("probe", "queue"), message("1"))
    assert outcome.state == Accepted()
    check_accounts(broker)
