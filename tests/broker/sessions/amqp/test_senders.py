"""A sender is told when what it sends to is deleted; and settles last if it asked for that."""

from __future__ import annotations

import pytest

from broker.sessions.amqp.session import AmqpSession
from protocols.amqp.frames import frame
from protocols.amqp.performatives import SENDER, Accepted, ReceiverSettleMode, TransactionalState, Transfer
from protocols.amqp.sender import Sender
from tests.broker.sessions.amqp.harness import started
from tests.simulation.world import held
from tests.support.amqp_client import AmqpSim, Outcome, message
from tests.support.sim_broker import SimBroker


def delete(broker: SimBroker, queue: str) -> None:
    """An operator deletes a queue."""
    with broker.turn():
        broker.engine.operators.delete_queue(broker.engine.queue(queue), with_messages=True)


@pytest.mark.parametrize(
    ("address", "capabilities"), [("a", ("queue",)), ("queue://a", ()), ("a", ()), ("a::a", ("queue",))]
)
def test_a_sender_is_told_when_its_queue_is_deleted(address: str, capabilities: tuple[str, ...]) -> None:
    broker, client = started({"match": "a", "default-address-routing-type": "ANYCAST"})
    AmqpSim(broker).receiver("a", "queue")
    link = client.sender(address, *capabilities)
    client.send(link, message("1"))
    delete(broker, "a")
    error = client.refused(link)
    assert error.condition == "amqp:resource-deleted"
    assert "was deleted" in (error.description or "")
    assert broker.engine._state.registry.senders == {}
    [outcome] = client.send(client.sender("a", "queue", name="again"), message("2"))
    assert isinstance(outcome.state, Accepted), "the queue is made anew where that is allowed"


def test_a_sender_is_told_when_its_address_is_deleted(broker: SimBroker, client: AmqpSim) -> None:
    link = client.sender("news", "topic")
    broker.parts.tick.enter()
    state = broker.engine._state
    broker.engine.operators.delete_address(state.addresses["news"], with_queues=True)
    broker.run()
    assert client.refused(link).description == "address news was deleted"


def test_other_deletions_end_no_sender(broker: SimBroker, client: AmqpSim) -> None:
    topic, relay = client.sender("news", "topic"), client.sender(None)
    queue = client.sender("a", "queue")
    subscription = client.receiver("news", "topic")
    client.receiver("a::b", "queue")
    client.detach(subscription)
    delete(broker, "b")
    for link in (topic, relay, queue):
        assert link.room, "it is attached"
    client.detach(queue)
    client.detach(topic)
    assert broker.engine._state.registry.senders == {}


def test_auto_delete_leaves_an_address_with_a_sender() -> None:
    broker, client = started({"match": "a", "auto-delete-queues": True, "auto-delete-addresses": True})
    link = client.sender("a", "queue")
    client.send(link, message("1"))
    receiver = client.receiver("a", "queue")
    client.settle(*client.take())
    client.detach(receiver)
    for _ in range(5):
        broker.advance(30_000)
    assert "a" not in broker.engine.queues, "it was used, and nobody consumes it"
    assert "a" in broker.engine.addresses
    [outcome] = client.send(link, message("2"))
    assert isinstance(outcome.state, Accepted)
    assert len(held(broker, "a")) == 1
    client.detach(link)
    assert broker.engine._state.registry.senders == {}


def second(client: AmqpSim, address: str = "a") -> Sender:
    link = client.sender(address, "queue", rcv_settle_mode=ReceiverSettleMode.SECOND)
    assert client.answer(link).rcv_settle_mode == ReceiverSettleMode.SECOND
    return link


def states(outcomes: list[Outcome]) -> list[tuple[str, bool]]:
    return [(type(outcome.state).__name__, outcome.settled) for outcome in outcomes]


def test_the_sender_settles_last(broker: SimBroker, client: AmqpSim) -> None:
    outcomes = client.send(second(client), message("1"), message("2"))
    assert states(outcomes) == [("Accepted", False)] * 2
    assert isinstance(client.session, AmqpSession)
    [session] = client.session.codec.sessions
    assert session.incoming.count == 2
    client.ses.send_disposition(SENDER, 0, 1, settled=True, state=Accepted())
    client.say()
    assert session.incoming.count == 0
    assert len(held(broker, "a")) == 2
    assert not client.closed


def test_a_transfer_may_ask_that_the_broker_settles_it(broker: SimBroker, client: AmqpSim) -> None:
    """2.7.5: `rcv-settle-mode` of one delivery, first where second was agreed; those beside it do not."""
    link = second(client)
    modes = (None, ReceiverSettleMode.FIRST, ReceiverSettleMode.SECOND)
    transfers = [Transfer(link.handle, id, bytes([id]), 0, rcv_settle_mode=mode) for id, mode in enumerate(modes)]
    client.raw(b"".join(frame(0, each.encode() + message("1")) for each in transfers))
    assert isinstance(client.session, AmqpSession)
    [session] = client.session.codec.sessions
    assert session.incoming.count == 2
    assert session.incoming.look(1, 1) == []
    assert len(held(broker, "a")) == 3


def test_a_refusal_is_settled_last_too() -> None:
    _, client = started({"match": "full", "max-size-messages": 1, "address-full-policy": "FAIL"})
    link = second(client, "full")
    assert states(client.send(link, message("1"))) == [("Accepted", False)]
    assert states(client.send(link, message("2"))) == [("Rejected", False)]


def test_a_transaction_has_its_outcomes_settled_last(broker: SimBroker, client: AmqpSim) -> None:
    coordinator = client.coordinator()
    tx = client.declare(coordinator)
    outcomes = client.send(second(client), message("1"), tx=tx)
    assert states(outcomes) == [("TransactionalState", False)]
    assert isinstance(outcomes[0].state, TransactionalState)
    assert isinstance(client.discharge(coordinator, tx), Accepted)
    assert len(held(broker, "a")) == 1


def test_deliveries_that_are_resumed_and_not_known_use_up_no_credit(broker: SimBroker, client: AmqpSim) -> None:
    link = client.sender("a", "queue")
    count = 2 * link.credit
    for number in range(count):
        old = Transfer(link.handle, number, number.to_bytes(2), 0, resume=True)
        client.raw(frame(0, old.encode() + message("old")))
    client.ses.next_delivery_id = count
    [outcome] = client.send(link, message("new"))
    assert outcome.state == Accepted()
    assert len(held(broker, "a")) == 1
