"""Drain of an AMQP receiver: what it is answered for, and what it does not wait for."""

from __future__ import annotations

from protocols.amqp.limits import Limits
from protocols.amqp.performatives import Rejected
from protocols.amqp.types import Described, Symbol
from tests.broker.sessions.amqp.harness import SELECTOR
from tests.support.amqp_client import AmqpSim, message
from tests.support.sim_broker import SimBroker


def test_drain_uses_up_the_credit(client: AmqpSim) -> None:
    client.send(client.sender("a", "queue"), message("1"))
    link = client.receiver("a", credit=0)
    link.send_credit(10, drain=True)
    client.say()
    assert (client.bodies(), link.credit) == (["1"], 0)
    link.send_credit(10, drain=True)
    client.say()
    assert (client.bodies(), link.credit) == ([], 0)
    link.send_credit(10)
    client.say()
    client.send(client.sender("a", "queue"), message("2"))
    assert client.bodies() == ["2"]


def test_drain_is_answered_for_what_was_on_its_way_to_the_disk(broker: SimBroker, client: AmqpSim) -> None:
    """A drain that comes behind a message means: with that message."""
    link = client.receiver("a", "queue", credit=0)
    broker.hold_disk()
    client.send(client.sender("a", "queue"), message("1"), settled=True)
    link.send_credit(10, drain=True)
    client.say()
    assert (client.bodies(), link.credit) == ([], 10), "not yet: it is not on the disk"
    broker.step()
    assert (client.bodies(), link.credit) == (["1"], 0)


def test_drain_behind_a_refusal_sees_the_dead_letter(broker: SimBroker, client: AmqpSim) -> None:
    client.send(client.sender("a", "queue"), message("1"))
    client.receiver("a", "queue")
    dead = client.receiver("DLQ", "queue", credit=0)
    broker.hold_disk()
    client.settle(*client.take(), state=Rejected())
    dead.send_credit(10, drain=True)
    client.say()
    assert (client.bodies(), dead.credit) == ([], 10)
    broker.step()
    assert (client.bodies(), dead.credit) == (["1"], 0)


def test_drain_does_not_wait_for_what_comes_after_it(broker: SimBroker, client: AmqpSim) -> None:
    """A queue that others keep filling would never be drained else, for a receiver that wants none of it."""
    link = client.receiver("a", "queue", credit=0, filter={Symbol("s"): Described(SELECTOR, "color = 'red'")})
    sender = client.sender("a", "queue")
    broker.hold_disk()
    client.send(sender, message("1"), settled=True)
    link.send_credit(10, drain=True)
    client.say()
    client.send(sender, message("2"), settled=True)
    assert link.credit == 10
    broker.write()
    broker.end_ticks()
    client.send(sender, message("3"), settled=True)
    assert (client.bodies(), link.credit) == ([], 0)


def test_drain_sends_what_is_there_through_a_small_window(broker: SimBroker) -> None:
    client = AmqpSim(broker, limits=Limits(incoming_window=10))
    client.send(client.sender("a", "queue"), *[message("1")] * 9)
    client.send(client.sender("a", "queue"), *[message("2")] * 9)
    link = client.receiver("a", "queue", credit=0)
    link.send_credit(100, drain=True)
    while client.codec._transport.out:
        client.say()
    assert (client.bodies(), link.credit) == (["1"] * 9 + ["2"] * 9, 0)


def test_drain_waits_while_the_client_does_not_read(broker: SimBroker, client: AmqpSim) -> None:
    client.send(client.sender("a", "queue"), message("1"))
    link = client.receiver("a", "queue", credit=0)
    other, sender = client.receiver("b", "queue"), client.sender("b", "queue")
    client.stalled = True
    client.send(sender, message("2"))
    link.send_credit(10, drain=True)
    client.say()
    client.unstall()
    assert [(each.link, each.body) for each in client.take()] == [(other, "2"), (link, "1")]
    assert link.credit == 0
