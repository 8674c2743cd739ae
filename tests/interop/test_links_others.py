"""Links to brokers of others, in both directions: every message counted, with kill -9 of either end in the middle.

The proton broker is always there.  The others are tried if they are installed; `make link-tests` demands them, kills
both ends, and sends more.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from secrets import randbits
from typing import Final

import pytest

from tests.support.daemon import running
from tests.support.link_books import LinkBooks, await_complete, send_until_killed, take_all
from tests.support.link_peers import PEERS, LinkPeer, demanded, missing
from tests.support.process import NotAvailable

#: Messages of a round, and rounds, each of which ends with a SIGKILL.
MESSAGES, ROUNDS = (400, 10) if demanded() else (250, 2)

#: The longest that a broker lives in a round, in seconds.
LIFE_S: Final = 0.2

SHARED: Final = """
[broker]
name = "here"

[[address-settings]]
match = "#"
dead-letter-address = "DLQ"
expiry-address = "DLQ"
max-delivery-attempts = 3

[addresses."orders.out".queues."orders.out"]
routing-type = "ANYCAST"
"""


@pytest.fixture(params=PEERS, scope="module")
def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkPeer]:
    """A broker of others that runs."""
    name = request.param
    try:
        made = PEERS[name](tmp_path_factory.mktemp(name))
        made.process.start()
    except NotAvailable as why:
        missing(name, why)
    yield made
    made.process.close()


def routes(peer: LinkPeer) -> str:
    """One in each direction."""
    return (
        f'[links.far.send.orders]\nqueue = "orders.out"\naddress = "{peer.address("orders")}"\n'
        f'[links.far.receive.invoices]\nqueue = "{peer.address("invoices")}"\naddress = "invoices.in"\n'
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("direction", ["send", "receive"])
def test_nothing_is_lost(peer: LinkPeer, direction: str, tmp_path: Path) -> None:
    seed = randbits(32)
    print(f"seed {seed}")
    chance = Random(seed)
    books = LinkBooks(chance)
    settings = SHARED + peer.settings(tmp_path) + routes(peer)
    with running(tmp_path, settings) as broker:
        here = LinkPeer(broker, "queue://{}", None)
        (source, filled), (target, taken) = (here, "orders.out"), (peer, "orders")
        if direction == "receive":
            (source, filled), (target, taken) = (peer, "invoices"), (here, "invoices.in")
        for number in range(ROUNDS):
            victim = peer if demanded() and number % 2 else here
            killer = threading.Timer(chance.uniform(0, LIFE_S), victim.process.signal, (signal.SIGKILL,))
            killer.start()
            send_until_killed(source, filled, books, MESSAGES)
            killer.join()
            victim.process.wait()
            victim.process.start()
        assert send_until_killed(source, filled, books, MESSAGES)
        await_complete(target, taken, books)
        broker.stop()
        take_all(peer, "orders" if direction == "send" else "invoices", books)
    print(f"{len(books.entries)} sent, {len(books.wanted)} wanted, {len(books.doubled)} doubled")
    assert not books.missing
