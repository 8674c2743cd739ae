"""An ended connection of a link leaves nothing to the collector of cycles (see the same test of clients' sessions)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.broker.sessions.links import bridges, pairs
from tests.support.cycles import nothing_left
from tests.support.sim_broker import SimBroker, SimPeer
from tests.support.sim_links import SimLinks


def amqp() -> tuple[SimBroker, SimBroker, SimLinks]:
    a, b, links = pairs.pair({
        "send": {"orders": {"queue": "orders.out", "address": "orders"}},
        "receive": {"back": {"queue": "back.out", "address": "back"}},
    })  # fmt: skip
    pairs.send(a, "orders.out", "1", "2")
    return a, b, links


def mqtt() -> tuple[SimBroker, SimBroker, SimLinks]:
    a, b, links = bridges.pair(
        out={"topic": "t/#", "direction": "out", "qos": 1}, back={"topic": "u/#", "direction": "in", "qos": 1}
    )
    return a, b, links


def again(links: SimLinks, b: SimBroker) -> None:
    """Lose a connection, and make the next one."""
    wire = links.wires["b"]
    links.cut()
    links.run()
    b.run()
    del wire.session
    peer = wire.peer
    assert isinstance(peer, SimPeer)
    del wire.peer, peer.session
    b.forget()
    links.advance(60_000)
    assert links.link().state.value == "running"


@pytest.mark.parametrize("pair", [amqp, mqtt])
def test_a_connection_of_a_link_that_has_ended_is_in_no_cycle(
    pair: Callable[[], tuple[SimBroker, SimBroker, SimLinks]],
) -> None:
    _, b, links = pair()
    again(links, b)
    with nothing_left():
        again(links, b)  # makes the connection that ends next
        again(links, b)
