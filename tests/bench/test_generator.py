from __future__ import annotations

from dataclasses import replace

import pytest

from bench import generator
from bench.consumer import AckMode
from bench.generator import Load, Target, drain, fill, run
from bench.link import BrokerFailed
from bench.messages import LAP, FrameTemplate, Pool
from tests.bench.fake_broker import FakeBroker, Fault

COUNT = 600
SHAPE = FrameTemplate(destinations=4, seed=7)


def target(broker: FakeBroker) -> Target:
    return Target("127.0.0.1", broker.port)


@pytest.fixture(scope="module")
def pool() -> Pool:
    return Pool(SHAPE)


@pytest.fixture(scope="module")
def durable() -> Pool:
    return Pool(replace(SHAPE, durable=True, receipt_every=100))


def test_all_messages_arrive(pool: Pool) -> None:
    with FakeBroker() as broker:
        outcome = run(target(broker), pool, Load(messages=COUNT))
        assert (outcome.messages, outcome.receipts, outcome.acks) == (COUNT, 1, 0)
        assert broker.acks == []


@pytest.mark.parametrize("count", [1, LAP - 1, LAP, LAP + 1, LAP + 2])
def test_ends_anywhere_in_a_lap(pool: Pool, count: int) -> None:
    with FakeBroker() as broker:
        assert run(target(broker), pool, Load(messages=count)).messages == count


def test_a_run_ends_by_the_clock(pool: Pool) -> None:
    with FakeBroker() as broker:
        outcome = run(target(broker), pool, Load(seconds=0.0))
        assert outcome.messages >= 1
        assert outcome.receipts == 1


@pytest.mark.parametrize(
    ("ack", "every", "acks"),
    [("client", 1, COUNT), ("client", 100, 8), ("client", 50, 12), ("client-individual", 1, COUNT)],
)
def test_acknowledges_each_nth_message_and_the_last(durable: Pool, ack: AckMode, every: int, acks: int) -> None:
    with FakeBroker() as broker:
        outcome = run(target(broker), durable, Load(messages=COUNT, ack=ack, ack_every=every))
        assert outcome.acks == len(broker.acks) == len(set(broker.acks)) == acks
        # every 100th message asks for a receipt, except the last one, which has its own
        assert outcome.receipts == COUNT // 100


def test_acknowledges_early_when_credit_runs_out(durable: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "QUIET_S", 0.0)
    with FakeBroker(credit=5) as broker:
        assert run(target(broker), durable, Load(messages=60, ack="client", ack_every=100)).messages == 60


def test_the_window_bounds_what_is_in_flight(pool: Pool) -> None:
    most = 0

    def watch(frames: list[bytes]) -> list[bytes]:
        nonlocal most
        most = max(most, len(frames))
        return frames

    with FakeBroker(watch) as broker:
        run(target(broker), pool, Load(messages=COUNT, in_flight=8))
    assert 1 <= most <= 8


def test_what_was_filled_is_drained(durable: Pool) -> None:
    with FakeBroker() as broker:
        fill(target(broker), durable, COUNT)
        drain(target(broker), durable, COUNT, Load(ack="client", ack_every=100))
        assert len(broker.acks) == 8


def test_leftovers_are_noticed(pool: Pool) -> None:
    with FakeBroker() as broker:
        fill(target(broker), pool, 10)
        with pytest.raises(BrokerFailed, match=r"earlier run|comes again"):
            run(target(broker), pool, Load(messages=COUNT))


def lose(frames: list[bytes]) -> list[bytes]:
    return frames[1:]


def repeat(frames: list[bytes]) -> list[bytes]:
    return [*frames[:1], *frames]


def swap(frames: list[bytes]) -> list[bytes]:
    return frames[::-1]


def garble(frames: list[bytes]) -> list[bytes]:
    return [frame.replace(b"\n\n", b"\n\nx") for frame in frames]


def strip_properties(frames: list[bytes]) -> list[bytes]:
    return [frame.replace(b"\nseq:", b"\nqes:") for frame in frames]


def refuse(frames: list[bytes]) -> list[bytes]:
    return [b"ERROR\nmessage:no more\n\nqueue is full\0"]


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (lose, "is missing"),
        (repeat, "comes again"),
        (swap, "is missing|out of order"),
        (garble, "was changed on its way: body"),
        (strip_properties, "was changed on its way: headers"),
        (refuse, "queue is full"),
    ],
)
@pytest.mark.parametrize("ack", ["auto", "client"])
def test_faults_of_the_broker_are_told(pool: Pool, fault: Fault, says: str, ack: AckMode) -> None:
    with FakeBroker(fault) as broker, pytest.raises(BrokerFailed, match=says):
        run(target(broker), pool, Load(messages=COUNT, ack=ack))


def test_a_message_too_many_after_the_last_is_told(pool: Pool) -> None:
    def add_after_last(frames: list[bytes]) -> list[bytes]:
        return [frame + frame if frame.rstrip(b"\0\n").endswith(b"%010d" % (COUNT - 1)) else frame for frame in frames]

    with FakeBroker(add_after_last) as broker, pytest.raises(BrokerFailed, match="comes again"):
        run(target(broker), pool, Load(messages=COUNT))


def test_a_silent_broker_is_told(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "STALL_S", 0.05)
    with FakeBroker(lambda _: []) as broker, pytest.raises(BrokerFailed, match="600 sent, 0 received"):
        run(target(broker), pool, Load(messages=COUNT))


def test_a_load_needs_an_end() -> None:
    with pytest.raises(ValueError, match="needs an end"):
        Load(messages=None, seconds=None)
