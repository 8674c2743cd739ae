"""Transactions over AMQP: sends and outcomes that happen together, or not at all."""

from __future__ import annotations

import pytest

from protocols.amqp.frames import frame
from protocols.amqp.message import AMQP_VALUE, encode_section
from protocols.amqp.performatives import (
    Accepted,
    Discharge,
    Modified,
    Properties,
    Rejected,
    Released,
    SenderSettleMode,
    Source,
    TransactionalState,
    Transfer,
)
from tests.broker.sessions.amqp.harness import started
from tests.simulation.world import held, small
from tests.support.amqp_client import AmqpSim, message, rejection
from tests.support.bodies import body_of
from tests.support.sim_broker import SimBroker


def test_sent_and_accepted_messages_count_at_the_commit(broker: SimBroker, client: AmqpSim) -> None:
    to = client.sender("b", "queue")
    client.send(client.sender("a", "queue"), message("1"))
    client.receiver("a")
    [delivery] = client.take()
    coordinator = client.coordinator()
    tx = client.declare(coordinator)
    [outcome] = client.send(to, message("2"), tx=tx)
    assert outcome.state == TransactionalState(tx, Accepted())
    client.settle(delivery, tx=tx)
    assert (broker.engine.queue("a").message_count, len(held(broker, "b"))) == (1, 0)
    assert client.discharge(coordinator, tx) == Accepted()
    assert (len(held(broker, "a")), len(held(broker, "b"))) == (0, 1)
    restarted = broker.restart()
    assert (len(held(restarted, "a")), len(held(restarted, "b"))) == (0, 1)


def test_a_discharge_is_confirmed_once_it_is_on_disk(broker: SimBroker, client: AmqpSim) -> None:
    coordinator, to = client.coordinator(), client.sender("b", "queue")
    tx = client.declare(coordinator)
    client.send(to, message("1"), tx=tx)
    broker._lazy = True
    assert client.discharge(coordinator, tx) is None
    broker.step()
    assert client.outcomes[-1].state == Accepted()


def test_a_client_that_waits_for_nothing_gets_what_it_asked_for_in_order(broker: SimBroker, client: AmqpSim) -> None:
    """Discharges and the messages before them are one read, and go over two links."""
    coordinator, to = client.coordinator(), client.sender("b", "queue")
    transactions = [client.declare(coordinator) for _ in range(6)]
    for tx in transactions:
        to.send([message(tx.hex())], [tx], state=TransactionalState(tx))
        coordinator.send([encode_section(AMQP_VALUE, Discharge(tx, False))], [tx])
    client.say()
    states = [outcome.state for outcome in client.outcomes if not isinstance(outcome.state, TransactionalState)]
    assert states == [Accepted()] * 6
    assert len(held(broker, "b")) == 6


@pytest.mark.parametrize("how", ["discharge", "detach", "drop"])
def test_rollback_forgets_sends_and_gives_back_what_was_settled(broker: SimBroker, client: AmqpSim, how: str) -> None:
    client.send(client.sender("a", "queue"), message("1"))
    client.receiver("a", credit=1)
    [delivery] = client.take()
    coordinator, to = client.coordinator(), client.sender("b", "queue")
    tx = client.declare(coordinator)
    client.send(to, message("2"), tx=tx)
    client.settle(delivery, tx=tx)
    if how == "discharge":
        assert client.discharge(coordinator, tx, fail=True) == Accepted()
    elif how == "detach":
        client.detach(coordinator)
    else:
        client.drop()
    assert (len(held(broker, "a")), len(held(broker, "b"))) == (1, 0)
    other = AmqpSim(broker, container="other")
    other.receiver("a")
    [again] = other.take()
    assert again.message.header.delivery_count == 1


@pytest.mark.parametrize("state", [None, Released(), Rejected(), Modified(delivery_failed=True)])
def test_a_delivery_that_is_not_settled_stays_with_its_receiver_after_a_rollback(
    broker: SimBroker, client: AmqpSim, state: Released | Rejected | Modified | None
) -> None:
    """Sent again, it would be with the receiver twice."""
    client.send(client.sender("a", "queue"), message("1"))
    client.receiver("a", credit=5)
    [delivery] = client.take()
    coordinator = client.coordinator()
    tx = client.declare(coordinator)
    client.settle(delivery, state=state, tx=tx, settled=False)
    client.discharge(coordinator, tx, fail=True)
    assert (client.take(), len(held(broker, "a"))) == ([], 1)
    again = client.declare(coordinator)
    client.outcomes.clear()
    client.settle(delivery, tx=again, settled=False)
    assert client.discharge(coordinator, again) == Accepted()
    assert held(broker, "a") == []
    assert [(o.state, o.settled) for o in client.outcomes] == [(Accepted(), True)], "and then the broker settles it"


@pytest.mark.parametrize("how", ["drop", "close"])
def test_a_delivery_whose_transaction_ends_with_the_connection_fails_once(
    broker: SimBroker, client: AmqpSim, how: str
) -> None:
    client.send(client.sender("a", "queue"), message("1"))
    client.receiver("a", credit=1)
    [delivery] = client.take()
    client.settle(delivery, tx=client.declare(client.coordinator()), settled=False)
    if how == "drop":
        client.drop()
    else:
        client.codec.send_close()
        client.say()
    other = AmqpSim(broker, container="other")
    other.receiver("a")
    [again] = other.take()
    assert again.message.header.delivery_count == 1


@pytest.mark.parametrize("state", [None, Released(), Rejected()])
def test_a_message_released_after_each_rollback_is_dead_in_the_end(state: Released | Rejected | None) -> None:
    """Proton's `Transaction.abort()` does that: without a count, the message would come for ever."""
    broker = SimBroker(small({"match": "a", "max-delivery-attempts": 3}))
    client = AmqpSim(broker)
    client.send(client.sender("a", "queue"), message("1"))
    client.receiver("a", credit=9)
    coordinator = client.coordinator()
    counts = []
    while found := client.take():
        counts.append(found[0].message.header.delivery_count)
        tx = client.declare(coordinator)
        client.settle(found[0], state=state, tx=tx, settled=False)
        client.discharge(coordinator, tx, fail=True)
        client.settle(found[0], state=Released())
    assert counts == [0, 1, 2]
    assert (len(held(broker, "a")), len(held(broker, "DLQ"))) == (0, 1)


def test_a_modification_that_is_rolled_back_leaves_nothing(client: AmqpSim) -> None:
    client.send(client.sender("a", "queue"), message("1"))
    client.receiver("a", credit=5)
    [delivery] = client.take()
    coordinator = client.coordinator()
    tx = client.declare(coordinator)
    client.settle(delivery, state=Modified(undeliverable_here=True, message_annotations={"x-opt-note": "n"}), tx=tx)
    client.discharge(coordinator, tx, fail=True)
    assert [again.message.message_annotations for again in client.take()] == [{}]


@pytest.mark.parametrize(
    ("state", "left", "count"), [(Released(), 1, 0), (Modified(delivery_failed=True), 1, 1), (Rejected(), 0, 0)]
)
def test_other_outcomes_wait_for_the_commit_too(
    broker: SimBroker, client: AmqpSim, state: object, left: int, count: int
) -> None:
    client.send(client.sender("a", "queue"), message("1"))
    link = client.receiver("a", credit=1)
    [delivery] = client.take()
    coordinator = client.coordinator()
    tx = client.declare(coordinator)
    client.settle(delivery, state=state, tx=tx)  # type: ignore[arg-type]
    assert len(held(broker, "DLQ")) == 0
    client.discharge(coordinator, tx)
    assert (len(held(broker, "a")), len(held(broker, "DLQ"))) == (left, 1 - left)
    client.detach(link)
    client.receiver("a")
    assert [d.message.header.delivery_count for d in client.take()] == [count] * left


def test_several_at_once(broker: SimBroker, client: AmqpSim) -> None:
    coordinator, to = client.coordinator(), client.sender("b", "queue")
    one, two = client.declare(coordinator), client.declare(coordinator)
    client.send(to, message("1"), tx=one)
    client.send(to, message("2"), tx=two)
    client.discharge(coordinator, one, fail=True)
    client.discharge(coordinator, two)
    assert len(held(broker, "b")) == 1


def test_a_refused_send_makes_it_roll_back() -> None:
    broker, client = started({"match": "f", "max-size-messages": 1, "address-full-policy": "FAIL"})
    full = client.sender("f", "queue")
    client.send(full, message("1"))
    coordinator, to = client.coordinator(), client.sender("b", "queue")
    tx = client.declare(coordinator)
    client.send(to, message("2"), tx=tx)
    client.send(full, message("3"), tx=tx)
    state = client.discharge(coordinator, tx)
    assert rejection(state).condition == "amqp:transaction:rollback"
    assert (len(held(broker, "f")), len(held(broker, "b"))) == (1, 0)


@pytest.mark.parametrize("ended_by", ["client", "operator"])
def test_an_outcome_for_a_delivery_that_went_back_with_its_link(
    broker: SimBroker, client: AmqpSim, ended_by: str
) -> None:
    """Whoever gets the message next would work on it a second time, although the transaction was committed."""
    client.send(client.sender("a", "queue"), message("1"), message("2"))
    link = client.receiver("a")
    first, second = client.take()
    coordinator, to = client.coordinator(), client.sender("b", "queue")
    tx = client.declare(coordinator)
    client.send(to, message("done"), tx=tx)
    client.settle(first, tx=tx)
    if ended_by == "client":
        client.detach(link)
    else:
        [consumer] = broker.engine.queue("a").consumers
        broker.engine.consumers.dismiss(consumer, "closed by an operator")
    client.settle(second, tx=tx)
    error = rejection(client.discharge(coordinator, tx))
    assert error.condition == "amqp:transaction:rollback"
    assert "its link had ended" in str(error.description)
    assert (len(held(broker, "a")), len(held(broker, "b"))) == (2, 0)


def test_deliveries_that_go_back_unused_leave_a_transaction_alone(broker: SimBroker, client: AmqpSim) -> None:
    """A client has messages in store; it may also settle again what its transaction has settled."""
    client.send(client.sender("a", "queue"), message("1"), message("2"))
    link = client.receiver("a")
    first, _ = client.take()
    coordinator = client.coordinator()
    tx = client.declare(coordinator)
    client.settle(first, tx=tx)
    client.detach(link)
    client.settle(first, tx=tx)
    assert client.discharge(coordinator, tx) == Accepted()
    assert len(held(broker, "a")) == 1


def test_an_unknown_transaction(client: AmqpSim) -> None:
    coordinator = client.coordinator()
    state = client.discharge(coordinator, b"none")
    assert rejection(state).condition == "amqp:transaction:unknown-id"
    link = client.sender("b", "queue")
    client.send(link, message("1"), tx=b"none")
    assert client.refused(link).condition == "amqp:transaction:unknown-id"


@pytest.mark.parametrize(("outcomes", "ends"), [((), False), (("amqp:accepted:list",), True)])
def test_a_controller_that_cannot_hear_of_a_rejection_loses_its_link(
    client: AmqpSim, outcomes: tuple[str, ...], ends: bool
) -> None:
    """Part 4, 4.3: the error then comes with the detach."""
    coordinator = client.coordinator(source=Source("me", outcomes=outcomes))
    assert isinstance(client.discharge(coordinator, b"none"), Rejected) is not ends
    if ends:
        assert client.refused(coordinator).condition == "amqp:transaction:unknown-id"


def test_refusals_of_the_relay_in_a_transaction(broker: SimBroker, client: AmqpSim) -> None:
    coordinator, relay = client.coordinator(), client.sender(None)
    tx = client.declare(coordinator)
    [outcome] = client.send(relay, message("1", properties=Properties(to="a.#")), tx=tx)
    assert isinstance(outcome.state, TransactionalState)
    assert isinstance(outcome.state.outcome, Rejected)
    client.send(relay, message("2", properties=Properties(to="queue://b")), tx=tx, settled=True)
    client.send(relay, message("3", properties=Properties(to="a.#")), tx=tx, settled=True)
    state = client.discharge(coordinator, tx)
    assert isinstance(state, Rejected)
    assert held(broker, "b") == []


def test_a_client_that_knows_of_a_refusal_cannot_commit_either(broker: SimBroker, client: AmqpSim) -> None:
    coordinator, relay = client.coordinator(), client.sender(None)
    tx = client.declare(coordinator)
    client.send(relay, message("1", properties=Properties(to="queue://b")), tx=tx)
    [told] = client.send(relay, message("2", properties=Properties(to="a.#")), tx=tx)
    assert isinstance(told.state, TransactionalState)
    error = rejection(client.discharge(coordinator, tx))
    assert error.condition == "amqp:transaction:rollback"
    assert str(rejection(told.state.outcome).description) in str(error.description)
    assert held(broker, "b") == []


def test_a_message_that_asks_for_nothing(client: AmqpSim) -> None:
    coordinator = client.coordinator()
    [outcome] = client.send(coordinator, message("1"))
    assert isinstance(outcome.state, Rejected)


def test_one_that_takes_too_long(broker: SimBroker, client: AmqpSim) -> None:
    coordinator, to = client.coordinator(), client.sender("b", "queue")
    tx = client.declare(coordinator)
    client.send(to, message("1"), tx=tx)
    broker.advance(400_000)
    state = client.discharge(coordinator, tx)
    assert isinstance(state, Rejected)
    assert held(broker, "b") == []


def test_a_coordinator_link_settles_as_its_controller_asked(client: AmqpSim) -> None:
    """fe2o3-amqp ends a link whose settle modes come back as others."""
    link = client.coordinator(snd_settle_mode=SenderSettleMode.UNSETTLED)
    assert client.answer(link).snd_settle_mode == SenderSettleMode.UNSETTLED


@pytest.mark.parametrize("state", [None, Released(), Rejected(), Modified(undeliverable_here=True)])
@pytest.mark.parametrize("settled", [True, False])
def test_an_outcome_in_one_that_took_too_long(
    broker: SimBroker, client: AmqpSim, state: Released | Rejected | Modified | None, settled: bool
) -> None:
    """As if it had come before the time was up: rolled back."""
    client.send(client.sender("a", "queue"), message("1"))
    client.receiver("a", credit=1)
    [delivery] = client.take()
    coordinator = client.coordinator()
    tx = client.declare(coordinator)
    broker.advance(400_000)
    client.settle(delivery, state=state, tx=tx, settled=settled)
    discharged = client.discharge(coordinator, tx)
    assert isinstance(discharged, Rejected)
    assert "amqp:transaction:timeout" in str(discharged.error)
    assert not client.closed
    other = AmqpSim(broker, container="other")
    other.receiver("a")
    assert [each.message.header.delivery_count for each in other.take()] == ([1] if settled else [])
    if not settled:
        client.settle(delivery)
        assert held(broker, "a") == [], "its receiver still had it"


@pytest.mark.parametrize("settled", [True, False])
def test_one_that_acknowledges_too_much_is_rolled_back_and_says_why(settled: bool) -> None:
    limits = small().limits.model_copy(update={"open_transactions_bytes_max": 1024})
    broker = SimBroker(small(limits=limits))
    client = AmqpSim(broker)
    to = client.sender("a", "queue")
    for _ in range(5):
        client.send(to, message("x" * 300))
    client.receiver("a", credit=5)
    deliveries = client.take()
    coordinator = client.coordinator()
    tx = client.declare(coordinator)
    for delivery in deliveries:
        client.settle(delivery, tx=tx, settled=settled)
    error = rejection(client.discharge(coordinator, tx))
    assert error.condition == "amqp:transaction:rollback"
    assert "the open transactions of this connection would hold more than 1024 bytes" in str(error.description)
    assert len(held(broker, "a")) == 5


def test_sends_count_towards_the_limit_of_their_connection() -> None:
    limits = small().limits.model_copy(update={"open_transactions_bytes_max": 10_000})
    broker = SimBroker(small(limits=limits))
    client = AmqpSim(broker)
    to, coordinator = client.sender("a", "queue"), client.coordinator()
    transactions = [client.declare(coordinator) for _ in range(5)]
    for tx in transactions[:4]:
        [outcome] = client.send(to, message("x" * 2000), tx=tx)
        assert outcome.state == TransactionalState(tx, Accepted())
    assert broker.engine.addresses["a"].size_messages == broker.engine.usage.messages == 4
    [outcome] = client.send(to, message("x" * 2000), tx=transactions[4])
    assert isinstance(outcome.state, TransactionalState)
    assert rejection(outcome.state.outcome).condition == "amqp:resource-limit-exceeded"
    error = rejection(client.discharge(coordinator, transactions[4]))
    assert error.condition == "amqp:transaction:rollback"
    assert "this connection would hold more than 10000 bytes" in str(error.description)
    for tx in transactions[:4]:
        assert client.discharge(coordinator, tx) == Accepted()
    assert len(held(broker, "a")) == 4
    assert broker.engine.transactions.bytes == 0


def test_a_sender_to_a_full_address_gets_no_credit_until_an_older_transaction_has_ended() -> None:
    broker = SimBroker(small({"match": "a", "address-full-policy": "BLOCK", "max-size-messages": 600}))
    old, young = AmqpSim(broker, container="old"), AmqpSim(broker, container="young")
    first, second = old.sender("a", "queue"), young.sender("a", "queue")
    coordinator = old.coordinator()
    one, other = old.declare(coordinator), young.declare(young.coordinator())
    old.send(first, *[message("x")] * 700, tx=one)
    young.send(second, *[message("x")] * 990, tx=other)
    assert (first.credit > 300, second.credit) == (True, 10), "neither for itself nor for the younger one"
    old.discharge(coordinator, one, fail=True)
    young.say()
    assert second.credit > 100


@pytest.mark.parametrize("repeated", [True, False])
def test_a_delivery_that_is_settled_before_the_rollback_goes_back_to_its_queue(
    broker: SimBroker, client: AmqpSim, repeated: bool
) -> None:
    """The receiver has forgotten it, so it cannot keep it (part 4, 4.4.2): it would stay there until its link ends."""
    client.send(client.sender("a", "queue"), message("1"), message("2"))
    client.receiver("a", credit=2)
    first, second = client.take()
    coordinator = client.coordinator()
    tx = client.declare(coordinator)
    for delivery in (first, second):
        client.settle(delivery, tx=tx, settled=False)
    client.settle(first, tx=tx if repeated else None)
    client.discharge(coordinator, tx, fail=True)
    [consumer] = broker.engine.queue("a").consumers
    assert [body_of(message)[-1:] for message in consumer.unacked.values()] == [b"2"]
    other = AmqpSim(broker)
    other.receiver("a")
    assert other.bodies() == ["1"]


@pytest.mark.parametrize("settled", [True, False])
def test_an_outcome_is_part_of_one_transaction(broker: SimBroker, client: AmqpSim, settled: bool) -> None:
    """A controller that names two loses its control link, and both are rolled back (part 4, 4.4.2)."""
    client.send(client.sender("a", "queue"), message("1"))
    client.receiver("a")
    [delivery] = client.take()
    coordinator = client.coordinator()
    tx, another = client.declare(coordinator), client.declare(coordinator)
    client.settle(delivery, tx=tx, settled=False)
    client.settle(delivery, state=Rejected(), tx=another, settled=settled)
    assert client.refused(coordinator).condition == "amqp:transaction:rollback"
    assert broker.engine.queue("a").message_count == 1


def test_an_outcome_may_follow_in_a_new_transaction_after_a_rollback(broker: SimBroker, client: AmqpSim) -> None:
    client.send(client.sender("a", "queue"), message("1"))
    client.receiver("a")
    [delivery] = client.take()
    coordinator = client.coordinator()
    for fail in (True, False):
        tx = client.declare(coordinator)
        client.settle(delivery, tx=tx, settled=False)
        assert client.discharge(coordinator, tx, fail=fail) == Accepted()
    assert broker.engine.queue("a").message_count == 0


@pytest.mark.parametrize("first", [True, False])
def test_the_frames_of_a_message_name_one_transaction(broker: SimBroker, client: AmqpSim, first: bool) -> None:
    """Part 4, 4.4.1: it would be unclear with which of them it counts."""
    coordinator, to = client.coordinator(), client.sender("b", "queue")
    tx, another = client.declare(coordinator), client.declare(coordinator)
    begun = Transfer(
        to.handle, to.session.next_delivery_id, b"tag", 0, more=True, state=TransactionalState(tx) if first else None
    )
    ended = Transfer(to.handle, state=TransactionalState(another))
    body = message("1")
    for transfer, payload in ((begun, body[:9]), (ended, body[9:])):
        raw = frame(to.session.channel, transfer.encode() + payload)
        to.session.send_transfer(to, raw, begins=transfer is begun)
    client.say()
    to.session.next_delivery_id += 1
    assert client.refused(to).condition == "amqp:invalid-field"
    client.discharge(coordinator, another)
    assert len(held(broker, "b")) == 0


@pytest.mark.parametrize("end", ["goes on", "refused", "drops"])
def test_frames_after_a_long_discharge_wait_for_it(broker: SimBroker, client: AmqpSim, end: str) -> None:
    coordinator, to = client.coordinator(), client.sender("b", "queue")
    tx, other = client.declare(coordinator), client.declare(coordinator)
    for n in range(80):
        client.send(to, message(str(n)), tx=tx)
    client.send(to, message("other"), tx=other)
    steps = broker.engine._state.steps
    steps.budget, steps.budget_min, steps.together_max = 100, 50, 4
    client.outcomes.clear()
    broker.hold_disk()
    for each in (tx, other):
        coordinator.send([encode_section(AMQP_VALUE, Discharge(each, False))], [each])
    to.send([message("last")], [b"last"])
    client._tell(lambda: client.session.receive_data(client.codec.data_to_send()))
    assert not client.reading
    if end == "refused":
        first = next(iter(broker.engine.transactions._open))
        broker.engine.transactions.rollback(first)
    if end == "drops":
        client.drop()
    broker.release_disk()
    broker.run()
    committed = [str(n) for n in range(80)] if end != "refused" else []
    wanted = [each.encode() for each in [*committed, "other", "last"]]
    assert [body.endswith(each) for body, each in zip(held(broker, "b"), wanted, strict=True)] == [True] * len(wanted)
    if end != "drops":
        states = [outcome.state for outcome in client.outcomes]
        assert states[1:] == [Accepted()] * 2
        assert isinstance(states[0], Rejected if end == "refused" else Accepted)
    assert not broker.reported("connection.failed")
