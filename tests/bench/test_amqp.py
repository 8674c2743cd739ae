"""The AMQP half of the benchmark: what it sends, what it lets pass, what it finds wrong; and Bartleby under it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.__main__ import UNUSABLE, main
from bench.amqp_consumer import AmqpConsumer
from bench.amqp_generator import run
from bench.amqp_link import AmqpLink
from bench.amqp_messages import AmqpPool
from bench.amqp_producer import AmqpProducer
from bench.brokers import Artemis, Bartleby, RabbitMQ
from bench.cases import AMQP_DURABLE, AMQP_NONDURABLE, Case, Plan, Row
from bench.generator import Load, Outcome
from bench.link import BrokerFailed
from bench.messages import LAP, FrameTemplate
from bench.report import verdicts
from protocols.amqp.composite import Composite, decode_body
from protocols.amqp.decode import DEFAULT_LIMITS
from protocols.amqp.frames import frame
from protocols.amqp.performatives import (
    RECEIVER,
    Accepted,
    Attach,
    Close,
    Detach,
    Disposition,
    Error,
    Flow,
    Open,
    Released,
    Source,
    Target,
    Transfer,
)
from tests.support import peers
from tests.support.process import NotAvailable

SHAPE = FrameTemplate(destinations=4, seed=7)
COUNT = 400


@pytest.fixture(scope="module")
def settled() -> AmqpPool:
    return AmqpPool(SHAPE)


@pytest.fixture(scope="module")
def durable() -> AmqpPool:
    return AmqpPool(replace(SHAPE, durable=True))


@pytest.fixture
def ends() -> Iterator[tuple[AmqpLink, socket.socket]]:
    """Our end of a connection that is set up, and the broker's."""
    near, far = socket.socketpair()
    with near, far:
        for end in (near, far):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        link = AmqpLink(near)
        link.window = 1000
        yield link, far


def cut(lap: bytes) -> list[bytes]:
    """The frames of these bytes."""
    found, at = [], 0
    while at < len(lap):
        size = int.from_bytes(lap[at : at + 4])
        found.append(lap[at : at + size])
        at += size
    return found


def read(raw: bytes) -> list[Composite]:
    """The performatives of these bytes."""
    return [decode_body(one, 0, 8, len(one), DEFAULT_LIMITS)[0] for one in cut(raw)]


def frames(*performatives: Composite) -> bytes:
    return b"".join([frame(0, performative.encode()) for performative in performatives])


# -- the messages ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lap", [0, 1, 429_495])
def test_a_lap_is_10000_transfers_whose_numbers_count_on(durable: AmqpPool, lap: int) -> None:
    raw = durable.lap(lap)
    found = cut(raw)
    assert [len(one) for one in found] == [stop - start for start, stop in pairwise(durable.offsets)]
    assert len(found) == LAP
    for index in (0, 1, 255, 256, LAP - 1):
        transfer, stop = decode_body(found[index], 0, 8, len(found[index]), DEFAULT_LIMITS)
        number = lap * LAP + index
        assert transfer == Transfer(index % 4, number, number.to_bytes(4), 0, False)
        assert durable.difference(number, found[index][stop:]) is None
        assert found[index].endswith(b"#%010d" % number)


def test_whatever_a_broker_changes_is_found(durable: AmqpPool, settled: AmqpPool) -> None:
    one = cut(durable.lap(3))[5]
    payload = one[decode_body(one, 0, 8, len(one), DEFAULT_LIMITS)[1] :]
    number = 3 * LAP + 5
    assert durable.difference(number, payload) is None
    assert "body" in str(durable.difference(number, payload[:-1] + b"x"))
    assert "application properties" in str(durable.difference(number, payload.replace(b"\xa1\x03seq", b"\xa1\x03sEq")))
    assert "message-id" in str(
        durable.difference(number, payload.replace(b"\xa1\x0a0000030005", b"\xa1\x0ax000030005", 1))
    )
    assert "durable" in str(settled.difference(number, payload))


# -- sending -----------------------------------------------------------------------------------------------------------


def producer(link: AmqpLink, pool: AmqpPool, total: int | None = None) -> AmqpProducer:
    for handle in range(4):
        link._numbers[10 + handle] = handle
    return AmqpProducer(link, pool, total)


def credit(handle: int, count: int, of: int, *, window: int = 100_000) -> bytes:
    return frames(Flow(0, window, 0, 0, 10 + handle, count, of))


def test_nothing_goes_without_credit_or_window(ends: tuple[AmqpLink, socket.socket], settled: AmqpPool) -> None:
    link, far = ends
    sends = producer(link, settled)
    assert sends.pump(COUNT) == 0
    far.sendall(b"".join([credit(handle, 0, 50 - handle) for handle in range(4)]))
    sends.listen()
    while sends.pump(COUNT):
        pass
    assert sends.sent == 47 * 4 + 3, "the link 3 may send 47 messages, and would be the next"
    far.sendall(credit(2, 48, 10) + credit(3, 47, 10, window=195))
    sends.listen()
    while sends.pump(COUNT):
        pass
    assert sends.sent == 195, "the session's window ends here"
    assert [one.handle for one in read(far.recv(1 << 20)) if isinstance(one, Transfer)] == [n % 4 for n in range(195)]


def plenty(sends: AmqpProducer, far: socket.socket) -> None:
    """Credit for everything."""
    far.sendall(b"".join([credit(handle, 0, 100_000) for handle in range(4)]))
    sends.listen()


def test_outcomes_are_counted_in_any_encoding(ends: tuple[AmqpLink, socket.socket], durable: AmqpPool) -> None:
    link, far = ends
    sends = producer(link, durable, 300)
    plenty(sends, far)
    while sends.pump(COUNT):
        pass
    assert (sends.sent, sends.settled, sends.confirmed) == (300, 0, False)
    accepted = Accepted()
    far.sendall(
        frames(
            Disposition(RECEIVER, 0, 9, True, accepted),
            Disposition(RECEIVER, 10, None, True, accepted),
            Disposition(RECEIVER, 5, 255, True, accepted, True),  # a range may run over what is settled
            Disposition(RECEIVER, 256, 298, False, accepted),
        )
        + b"\0\0\0\x08\2\0\0\0"
    )
    sends.listen()
    assert (sends.settled, sends.outcomes, sends.confirmed) == (299, 4, False)
    far.sendall(frames(Disposition(RECEIVER, 299, None, True, accepted)))
    sends.listen()
    assert sends.confirmed


@pytest.mark.parametrize(
    ("said", "says"),
    [
        (Disposition(RECEIVER, 0, None, True, Released()), "outcome of message 0 is Released"),
        (Detach(10, True, Error("amqp:resource-deleted", "gone")), "broker says detach: amqp:resource-deleted: gone"),
        (Close(), "broker says close"),
        (Open("what"), "was told Open"),
        (Flow(0, 1, 0, 1, 77, 0, 1), "no link with the handle 77"),
    ],
)
def test_what_no_producer_should_hear(
    ends: tuple[AmqpLink, socket.socket], durable: AmqpPool, said: Composite, says: str
) -> None:
    link, far = ends
    sends = producer(link, durable)
    far.sendall(frames(said))
    with pytest.raises(BrokerFailed, match=says):
        sends.listen()


def test_a_run_can_end_at_any_byte(ends: tuple[AmqpLink, socket.socket], settled: AmqpPool) -> None:
    link, far = ends
    sends = producer(link, settled)
    plenty(sends, far)
    sends.pump(10)
    sends._offset -= 1  # as if the kernel had not taken the last byte
    sends.finish()
    assert (sends.sent, sends.total) == (9, 10)
    sends.pump(COUNT)
    assert sends.sent == 10
    assert sends.confirmed


def test_laps_follow_each_other(ends: tuple[AmqpLink, socket.socket], settled: AmqpPool) -> None:
    link, far = ends
    sends = producer(link, settled, LAP + 5)
    plenty(sends, far)
    raw = b""
    while not sends.confirmed:
        sends.pump(2 * LAP)
        raw += far.recv(1 << 20)
    assert [one.delivery_id for one in read(raw) if isinstance(one, Transfer)] == list(range(LAP + 5))


# -- receiving ---------------------------------------------------------------------------------------------------------


def deliver(ends: tuple[AmqpLink, socket.socket], pool: AmqpPool, reads: list[bytes], every: int = 1) -> AmqpConsumer:
    """A consumer that reads these bytes, one piece of them after the other."""
    link, far = ends
    consumer = AmqpConsumer(link, pool, every)
    for piece in reads:
        far.sendall(piece)
        consumer.pump()
    return consumer


def pieces(pool: AmqpPool, count: int) -> list[bytes]:
    """So many messages, in reads that end anywhere."""
    raw = pool.lap(0)[: pool.offsets[count]]
    return [raw[at : at + 5000] for at in range(0, len(raw), 5000)]


@pytest.mark.parametrize(("every", "count"), [(1, COUNT), (100, 4), (150, 3), (COUNT, 1), (1000, 1)])
def test_deliveries_are_settled_once_each(
    ends: tuple[AmqpLink, socket.socket], durable: AmqpPool, every: int, count: int
) -> None:
    consumer = deliver(ends, durable, pieces(durable, COUNT), every)
    assert consumer.received == COUNT
    consumer.settle_early()
    told = [one for one in read(ends[1].recv(1 << 20)) if isinstance(one, Disposition)]
    assert len(told) == consumer.acked == count
    assert all(one.settled and one.state == Accepted() and one.role is RECEIVER for one in told)
    assert [id for one in told for id in range(one.first, (one.last or 0) + 1)] == list(range(COUNT))


def test_settled_messages_are_counted_only(ends: tuple[AmqpLink, socket.socket], settled: AmqpPool) -> None:
    consumer = deliver(ends, settled, pieces(settled, COUNT))
    assert (consumer.received, consumer.acked) == (COUNT, 0)


def test_credit_is_given_again_when_half_is_used(ends: tuple[AmqpLink, socket.socket], settled: AmqpPool) -> None:
    deliver(ends, settled, pieces(settled, 2004))
    told = [(one.handle, one.delivery_count, one.link_credit) for one in read(ends[1].recv(1 << 20))]  # type: ignore[attr-defined]
    assert sorted(handle for handle, _, _ in told) == [0, 1, 2, 3]
    assert all(count >= 500 and given == 1000 for _, count, given in told)


def test_links_are_closed_when_the_broker_says_so(ends: tuple[AmqpLink, socket.socket], settled: AmqpPool) -> None:
    link, far = ends
    consumer = AmqpConsumer(link, settled)
    consumer.detach()
    assert read(far.recv(1 << 16)) == [Detach(handle, True) for handle in range(4)]
    far.sendall(frames(*(Detach(handle, True) for handle in range(3))))
    consumer.pump()
    assert not consumer.closed
    far.sendall(frames(Detach(3, True)))
    consumer.pump()
    assert consumer.closed


def swap(given: list[bytes]) -> list[bytes]:
    return [*given[:8], given[12], *given[8:12], *given[13:]]


FAULTS: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "lose": (lambda given: given[:9] + given[10:], "the delivery after 8 has the id 10"),
    "repeat": (lambda given: [*given[:10], given[5], *given[10:]], "message 5 comes again"),
    "swap": (swap, "message 8 is missing"),
    "garble": (lambda given: [given[0][:-12] + b"~" + given[0][-11:]], "message 0 was changed on its way: body"),
    "another id": (lambda given: [given[0], given[1][:17] + b"\0\0\0\7" + given[1][21:]], "has the id 7"),
    "no frame": (lambda given: [b"\0\0\0\5\2\0\0\0"], "a frame of 5 bytes"),
    "no AMQP": (lambda given: [b"\0\0\0\x0c\2\0\0\0what"], "cannot be read"),
    "refuse": (lambda given: [frames(Close(Error("amqp:internal-error", "full")))], "internal-error: full"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_the_broker_are_told(ends: tuple[AmqpLink, socket.socket], durable: AmqpPool, fault: str) -> None:
    spoil, says = FAULTS[fault]
    with pytest.raises(BrokerFailed, match=says):
        deliver(ends, durable, spoil(cut(durable.lap(0))[:20]))


def test_settled_where_unsettled_was_asked_for(
    ends: tuple[AmqpLink, socket.socket], durable: AmqpPool, settled: AmqpPool
) -> None:
    with pytest.raises(BrokerFailed, match="comes with settled = True"):
        deliver(ends, durable, cut(settled.lap(0))[:4])


# -- brokers -----------------------------------------------------------------------------------------------------------


def test_bartleby_passes_and_what_it_refuses_is_told(tmp_path: Path, settled: AmqpPool, durable: AmqpPool) -> None:
    broker = Bartleby(tmp_path, Path("etc/broker.toml"))
    try:
        broker.start()
        for pool, every, acks in ((settled, 1, 0), (durable, 1, 3000), (durable, 1000, 3)):
            outcome = run(broker.target("amqp"), pool, Load(messages=3000, ack="client", ack_every=every))
            assert (outcome.messages, outcome.acks) == (3000, acks)
            assert outcome.broker_us is not None
        target = broker.target("amqp")
        link = AmqpLink.connect(target.host, target.port, None, None, "test")
        with pytest.raises(BrokerFailed, match="broker says detach: amqp:"):
            link.attach(Attach("a", 0, RECEIVER, source=Source("a::b::c"), target=Target("x")))
        link.close()
    finally:
        broker.stop()


def test_what_is_not_installed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers.RabbitMQ, "PROGRAM", tmp_path / "nowhere")
    for broker, says in (
        (Artemis(tmp_path, None), "mvn dependency:copy"),
        (Artemis(tmp_path, tmp_path), "mvn dependency:copy"),
        (RabbitMQ(tmp_path), "Debian package rabbitmq-server"),
    ):
        with pytest.raises(NotAvailable, match=says):
            broker.start()
        broker.stop()
    assert list(tmp_path.iterdir()) == []


def test_peers_that_are_not_installed_are_left_out_unless_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers.RabbitMQ, "PROGRAM", tmp_path / "nowhere")
    quick = ("run", "--case", "amqp-durable", "--messages", "300", "--rounds", "1", "--warm-up", "0")
    where = ("--artemis", str(tmp_path / "none"), "--data", str(tmp_path))
    result = CliRunner().invoke(main, [*quick, *where])
    assert result.exit_code == 0, result.output
    assert "rabbitmq: left out" in result.output
    assert "artemis: left out" in result.output
    result = CliRunner().invoke(main, [*quick, *where, "--broker", "artemis"])
    assert result.exit_code == UNUSABLE
    assert list(tmp_path.iterdir()) == []


def row(case: str, broker: str, rate: float, us: float = 1.0) -> Row:
    return Row(case, broker, 1, Outcome(int(rate), 1.0, rate * us / 1e6, 0.1, 1, 0, 0))


@pytest.mark.parametrize(("case", "least", "cpu"), [(AMQP_NONDURABLE, 8, 6.0), (AMQP_DURABLE, 5, 9.0)])
def test_targets_at_their_limits(case: Case, least: int, cpu: float) -> None:
    name = case.name
    plan = Plan(cases=(name,))
    for ours, us, met in ((100 * least, cpu, True), (100 * least - 1, cpu + 0.1, False)):
        rows = [row(name, "bartleby", ours, us), row(name, "rabbitmq", 100), row(name, "artemis", 50 * least)]
        assert [verdict.met for verdict in verdicts(plan, rows, [], [])] == [met, met, met]
    assert [verdict.value for verdict in verdicts(plan, [], [], [])] == [None, None, None]
