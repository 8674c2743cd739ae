"""What one read brings may take several ticks: frames in their order, nothing lost, nothing confirmed early."""

from __future__ import annotations

import pytest

from broker.engine.delivery import consumers
from broker.sessions import read_steps
from tests.broker.sessions.stomp.harness import error, started
from tests.simulation.world import held
from tests.support.sim_broker import SimBroker, SimClient
from tests.support.stomp_client import frame

#: Frames of a read: more than one tick handles.
FRAMES = 600


@pytest.fixture(autouse=True)
def costly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a tick handle some hundred frames."""
    monkeypatch.setattr(read_steps, "FRAME_COST", 50)


def numbered(destination: str = "/queue/{}") -> bytes:
    return b"".join([frame("SEND", {"destination": destination.format(n)}, b"%d" % n) for n in range(FRAMES)])


def first_tick(broker: SimBroker, client: SimClient, data: bytes) -> None:
    """The tick in which the data came, and no more."""
    client._tell(lambda: client.session.receive_data(data))
    broker.parts.tick.touch(client)
    broker._woken = False
    broker.parts.tick.end()


def test_the_frames_of_a_read_are_handled_over_several_ticks_in_order() -> None:
    broker, client = started()
    watcher = broker.subscriber("/topic/t")
    marks = [frame("SEND", {"destination": "/topic/t", "receipt": f"{n}"}, b"%d" % n) for n in range(FRAMES)]
    first_tick(broker, client, b"".join(marks))
    some = len(watcher.messages())
    assert 0 < some < FRAMES
    assert not client.reading
    broker.run()
    assert [int(each.body) for each in watcher.messages()] == list(range(some, FRAMES))
    assert [each.headers["receipt-id"] for each in client.take("RECEIPT")] == [f"{n}" for n in range(FRAMES)]
    assert client.reading


def test_many_destinations_are_sent_to_in_several_ticks() -> None:
    broker, client = started()
    first_tick(broker, client, numbered())
    assert 0 < len(broker.engine.queues) < FRAMES
    broker.run()
    assert held(broker, str(FRAMES - 1)) == [b"%d" % (FRAMES - 1)]


def test_the_budget_is_asked_for_after_each_subscription() -> None:
    """The parser takes eight milliseconds for a selector of 900 characters."""
    broker, client = started()
    subscribe = [frame("SUBSCRIBE", {"id": f"{n}", "destination": "/topic/t"}) for n in range(FRAMES)]
    first_tick(broker, client, b"".join(subscribe))
    assert 0 < len(broker.engine.queues_of(broker.engine.addresses["t"])) <= 2 * read_steps.ASKED_AFTER
    broker.run()
    assert len(broker.engine.queues_of(broker.engine.addresses["t"])) == FRAMES


@pytest.mark.parametrize("ends", ["lost", "eof", "DISCONNECT"])
def test_a_client_that_leaves_at_once_has_everything_sent_that_it_sent_before(ends: str) -> None:
    broker, client = started()
    with broker.turn():
        client.session.receive_data(numbered("/queue/a") + frame("DISCONNECT", {}) * (ends == "DISCONNECT"))
        if ends == "lost":
            client.abort()
        elif ends == "eof":
            client.session.receive_eof()
    broker.run()
    assert held(broker, "a") == [b"%d" % n for n in range(FRAMES)]
    assert client.closed
    assert not broker.engine.connections.by_id


def test_nothing_behind_a_wrong_frame_happens() -> None:
    broker, client = started()
    client.raw(numbered("/queue/a") + frame("ACK", {"id": "1,1"}) + numbered("/queue/b"))
    assert error(client) == "unknown message"
    assert held(broker, "a") == [b"%d" % n for n in range(FRAMES)]
    assert "b" not in broker.engine.queues


def test_a_connection_that_an_operator_ends_stops_in_the_middle() -> None:
    broker, client = started()
    first_tick(broker, client, numbered("/queue/a"))
    client._tell(lambda: client.session.fail("it is enough"))
    broker.run()
    assert 0 < len(held(broker, "a")) < FRAMES


# -- acknowledgements of many ------------------------------------------------------------------------------------------

PORTION = 100
MESSAGES = 3 * PORTION + 7


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a tick settle two portions."""
    monkeypatch.setattr(consumers, "PORTION_MAX", PORTION)
    monkeypatch.setattr(consumers, "REMOVE_COST", 40)


def given() -> tuple[SimBroker, SimClient, list[str]]:
    """A cumulative consumer that holds many durable messages, and the ids for ACK."""
    broker, client = started()
    sends = [frame("SEND", {"destination": "/queue/a", "persistent": "true"}, b"x")] * MESSAGES
    client.raw(b"".join(sends))
    client.subscribe("/queue/a", ack="client", **{"consumer-window-size": "-1"})
    return broker, client, [each.headers["ack"] for each in client.messages()]


def test_one_ack_for_many_messages_takes_several_ticks_and_is_confirmed_at_their_end() -> None:
    broker, client, ids = given()
    first_tick(broker, client, frame("ACK", {"id": ids[-2], "receipt": "r"}) + frame("ACK", {"id": ids[-1]}))
    left = len(held(broker, "a"))
    assert 0 < left < MESSAGES
    assert client.take("RECEIPT") == []
    broker.run()
    assert [each.headers["receipt-id"] for each in client.take("RECEIPT")] == ["r"]
    assert held(broker, "a") == []
    assert held(broker.restart(), "a") == []


def test_acks_of_many_in_one_run() -> None:
    broker, client, ids = given()
    client.raw(b"".join([frame("ACK", {"id": ids[at]}) for at in (2 * PORTION, 2 * PORTION + 1, -1)]))
    assert held(broker, "a") == []
    assert not client.closed


@pytest.mark.parametrize("requeue", ["true", "false"])
def test_one_nack_for_many(requeue: str) -> None:
    broker, client, ids = given()
    client.raw(frame("NACK", {"id": ids[-1], "requeue": requeue, "receipt": "r"}))
    assert len(client.take("RECEIPT")) == 1
    assert len(held(broker, "DLQ")) == (MESSAGES if requeue == "false" else 0)
    assert {each.headers["redelivered"] for each in client.messages()} == ({"true"} if requeue == "true" else set())


def test_nothing_younger_passes_between_the_portions_of_a_nack() -> None:
    broker, client, ids = given()
    other, numbers = broker.connect(), list[int]()

    def after_tick() -> None:
        got = [each.headers["message-id"] for each in (*client.messages(), *other.messages())]
        numbers.extend(sorted([int(each.partition(",")[2]) for each in got]))

    broker.after_tick = after_tick
    steps = broker.engine._state.steps
    steps.budget = steps.budget_min = 500
    broker.run()  # the tick that is open has more
    first_tick(broker, client, frame("NACK", {"id": ids[-2]}))
    assert client.session._steps.pending, "more is to be returned"  # type: ignore[attr-defined]  # of STOMP
    after_tick()
    young = [frame("SUBSCRIBE", {"id": "s", "destination": "/queue/a", "consumer-window-size": "-1"})]
    young += [frame("SEND", {"destination": "/queue/a"}, b"young")]
    first_tick(broker, other, b"".join(young))
    after_tick()
    broker.run()
    assert len(numbers) == MESSAGES, "all but one come again, and the young one"
    assert numbers == sorted(numbers)


def test_an_unknown_ack_behind_many_is_refused() -> None:
    _, client, ids = given()
    client.raw(frame("ACK", {"id": ids[-2]}) + frame("ACK", {"id": ids[0]}) + frame("ACK", {"id": ids[-1]}))
    assert error(client) == "unknown message"


def test_a_connection_that_is_lost_in_the_middle_of_an_ack_has_the_rest_returned() -> None:
    broker, client, ids = given()
    first_tick(broker, client, frame("ACK", {"id": ids[-1]}))
    client._tell(lambda: client.session.fail("it is enough"))
    broker.run()
    queue = broker.engine.queues["a"]
    assert 0 < len(held(broker, "a")) < MESSAGES
    assert queue.delivering == 0


def test_frames_in_one_read_with_connect_are_handled_over_several_ticks_in_order() -> None:
    """Whoever needs no password is let in at once, while CONNECT is being handled."""
    broker = SimBroker()
    client = SimClient(broker, "1.2", broker.number())
    greeting = frame("CONNECT", {"accept-version": "1.2", "host": "/"})
    subscribe = [frame("SUBSCRIBE", {"id": f"{n}", "destination": "/queue/a"}) for n in range(FRAMES)]
    sends = [frame("SEND", {"destination": "/queue/b", "receipt": f"{n}"}, b"%d" % n) for n in range(2)]
    first_tick(broker, client, b"".join([greeting, *subscribe, *sends]))
    assert "b" not in broker.engine.queues
    broker.run()
    assert len(broker.engine.queue("a").consumers) == FRAMES
    assert held(broker, "b") == [b"0", b"1"]
    assert [each.headers["receipt-id"] for each in client.take("RECEIPT")] == ["0", "1"]
