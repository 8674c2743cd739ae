"""What one read brings may take several ticks: frames in their order, nothing lost, nothing confirmed early."""

from __future__ import annotations

from time import thread_time

import pytest

from broker.sessions import read_steps
from broker.sessions.amqp import endpoint, session
from broker.sessions.amqp.outgoing import OutgoingLink
from broker.sessions.amqp.source import read_filters
from protocols.amqp.events import Dispositions
from protocols.amqp.performatives import (
    RECEIVER,
    Accepted,
    DeliveryState,
    Flow,
    Modified,
    Received,
    Released,
    Source,
    Target,
)
from protocols.amqp.types import Described, Symbol
from tests.simulation.world import held, small
from tests.support.amqp_client import AmqpSim, message
from tests.support.interpreted import interpreted
from tests.support.sim_broker import SimBroker

LINKS = 200
MESSAGES = 300


@pytest.fixture(autouse=True)
def costly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a tick handle some hundred frames, and a frame settle some messages."""
    monkeypatch.setattr(read_steps, "FRAME_COST", 100)
    monkeypatch.setattr(endpoint, "_SETTLED_MAX", 20)


@pytest.fixture
def broker() -> SimBroker:
    return SimBroker(small())


def first_tick(broker: SimBroker, client: AmqpSim) -> None:
    """The tick in which what the client has to send comes, and no more."""
    data = client.codec.data_to_send()
    client._tell(lambda: client.session.receive_data(data))
    broker.parts.tick.touch(client)
    broker._woken = False
    broker.parts.tick.end()


def attach_many(client: AmqpSim) -> None:
    for n in range(LINKS):
        client.ses.new_receiver(f"{n}").send_attach(
            source=Source(f"q{n}", capabilities=("queue",)), target=Target("me")
        )


def test_many_links_are_attached_in_several_ticks(broker: SimBroker) -> None:
    client = AmqpSim(broker)
    attach_many(client)
    first_tick(broker, client)
    assert 0 < len(broker.engine.queues) <= 2 * read_steps.ASKED_AFTER  # asked after each
    paused = not client.reading
    broker.run()
    assert {f"q{n}" for n in range(LINKS)} <= set(broker.engine.queues)
    assert paused
    assert client.reading
    assert not client.ends


def test_many_filters_of_one_link_cost_no_more_than_their_number() -> None:
    """As those before each were copied for it, 2,000 took 38 ms."""
    value = Described(Symbol("apache.org:no-local-filter:list"), [])
    filters: dict[str, object] = {f"f{n}": value for n in range(20_000)}
    begun = thread_time()
    assert read_filters(filters).granted == filters
    assert thread_time() - begun < 0.2


@pytest.mark.parametrize("fails", [False, True])
def test_a_session_with_many_links_ends_in_several_ticks(
    broker: SimBroker, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "LINK_COST", 1_000)
    client = AmqpSim(broker)
    attach_many(client)
    client.say()
    broker.run()
    if fails:
        client.ses.send(Flow(0, 9, 0, 9, handle=LINKS + 1))  # of no link
    else:
        client.ses.send_end()
    first_tick(broker, client)
    queues = [broker.engine.queues[f"q{n}"] for n in range(LINKS)]
    left = sum(len(queue.consumers) for queue in queues)
    assert 0 < left < LINKS
    assert not client.reading
    assert client.ses not in client.ends, "its links end before it"
    broker.run()
    client.say()
    assert not any(queue.consumers for queue in queues)
    assert client.ses in client.ends
    assert client.reading


@pytest.mark.parametrize("ends", ["lost", "eof", "close"])
def test_a_client_that_leaves_at_once_has_everything_done_that_it_sent_before(broker: SimBroker, ends: str) -> None:
    client = AmqpSim(broker)
    attach_many(client)
    if ends == "close":
        client.codec.send_close()
    data = client.codec.data_to_send()
    with broker.turn():
        client.session.receive_data(data)
        if ends == "lost":
            client.abort()
        elif ends == "eof":
            client.session.receive_eof()
    broker.run()
    assert client.closed
    assert not broker.engine.connections.by_id
    assert broker.reported("connection.failed") == []


@interpreted
@pytest.mark.parametrize(("state", "left"), [(Accepted(), 0), (Released(), MESSAGES)])
def test_a_disposition_of_many_messages_is_applied_in_parts(broker: SimBroker, state: DeliveryState, left: int) -> None:
    client = AmqpSim(broker)
    for _ in range(MESSAGES // 100):
        client.put(client.sender("a", "queue"), *[message("x")] * 100)
    client.receiver("a", "queue", credit=MESSAGES)
    ids = [delivery.id for delivery in client.take(MESSAGES)]
    client.ses.send_disposition(RECEIVER, ids[0], ids[-1], settled=False, state=state)
    first_tick(broker, client)
    assert 0 < broker.engine.queues["a"].delivering < MESSAGES
    broker.run()
    client.say()
    assert client.confirmed == set(ids)
    assert len(held(broker, "a")) == left


@pytest.mark.parametrize("state", [Accepted(), Released(), Modified(delivery_failed=True), Received(0, 0)])
def test_a_range_with_holes_that_is_stated_again_and_again_is_applied_once(
    broker: SimBroker, state: DeliveryState, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = AmqpSim(broker)
    for _ in range(MESSAGES // 100):
        client.put(client.sender("a", "queue"), *[message("x")] * 100)
    client.receiver("a", "queue", credit=MESSAGES)
    ids = [delivery.id for delivery in client.take(MESSAGES)]
    for id in ids[1::2]:
        client.ses.send_disposition(RECEIVER, id, id, state=Accepted())
    client.say()
    applied: list[int] = []
    settle = OutgoingLink.settle

    def noted(link: OutgoingLink, event: Dispositions) -> None:
        applied.append(event.first)
        settle(link, event)

    monkeypatch.setattr(OutgoingLink, "settle", noted)
    for first in ids[:20]:
        client.ses.send_disposition(RECEIVER, first, ids[-1], settled=False, state=state)
    first_tick(broker, client)
    final = not isinstance(state, Received)
    assert len(applied) < MESSAGES // 2
    broker.run()
    client.say()
    assert sorted(applied) == (ids[::2] if final else [])
    assert client.confirmed >= (set(ids[::2]) if final else set())
    assert len(held(broker, "a")) == (0 if isinstance(state, Accepted) else MESSAGES // 2)
