"""What has left for a link is kept for it: by whom it may be taken, and when, across crashes of this broker."""

from __future__ import annotations

from random import Random
from secrets import randbits

import pytest

from broker.engine.delivery import redelivery, reservations
from broker.engine.delivery.reservations import Reserve
from store import decode
from tests.broker.engine.engine_harness import Bench, Taker
from tests.simulation.world import check_accounts, journal_records
from tests.support.bodies import body_of
from tests.support.interpreted import interpreted

LINK = Reserve("$link//there/a.b.orders", 60_000)


def attach(bench: Bench, credit: int = 100, reserve: Reserve = LINK, queue: str = "a") -> Taker:
    """A link's consumer, with credit."""
    taker = bench.take(queue, counted=True, forwards=True, reserve=reserve)
    bench.grant(taker, credit)
    return taker


def kept(bench: Bench, queue: str = "a") -> list[bytes]:
    """What is kept for links that are away, or have not asked for it."""
    return [body_of(m) for each in bench.queue(queue).holders() if each.away for m in each.unacked.values()]


def test_a_link_that_is_back_gets_what_was_kept_before_anything_else(bench: Bench) -> None:
    bench.sent("a", b"1", b"2", b"3", priority=4)
    bench.close(attach(bench, credit=2), redelivery.LOST)
    bench.sent("a", b"urgent", priority=9)
    assert kept(bench) == [b"1", b"2"]
    link = attach(bench, credit=1)
    assert (link.take(), kept(bench)) == ([b"1"], [b"2"])
    bench.grant(link, 10)
    assert link.take() == [b"2", b"urgent", b"3"]
    check_accounts(bench.broker)


def test_reserved_messages_are_written_once(bench: Bench) -> None:
    """A link that comes and goes costs no record for what it has."""
    bench.sent("a", b"1", b"2")
    for _ in range(3):
        bench.close(attach(bench), redelivery.LOST)
    written = [each for each in journal_records(bench.broker) if isinstance(each, decode.Inflight)]
    assert [len(each.ids) for each in written] == [2]


def test_nothing_leaves_before_the_journal_says_for_whom() -> None:
    bench = Bench(lazy_disk=True)
    bench.sent("a", b"1")
    bench.broker.catch_up()
    link = attach(bench)
    assert link.take() == []
    bench.broker.catch_up()
    assert link.take() == [b"1"]


def test_non_durable_messages_are_reserved_as_long_as_the_broker_runs(bench: Bench) -> None:
    bench.sent("a", b"1", durable=False)
    bench.close(attach(bench), redelivery.LOST)
    assert (bench.take("a").take(), kept(bench)) == ([], [b"1"])
    assert attach(bench).take() == [b"1"]
    assert [each for each in journal_records(bench.broker) if isinstance(each, decode.Inflight)] == []


def test_a_message_that_is_given_back_is_for_everybody_also_after_a_crash(bench: Bench) -> None:
    first, second = bench.sent("a", b"1", b"2")
    link = attach(bench)
    bench.enter().consumers.give_back(link.consumer, first.id, redelivery.RELEASED)
    bench.grant(link, 0)
    bench = bench.restart()
    assert (bench.take("a").take(), kept(bench)) == ([b"1"], [b"2"])
    assert second.id in bench.queue("a").reserved


def test_a_session_that_keeps_nothing_is_gone(bench: Bench) -> None:
    (message,) = bench.sent("a", b"1")
    link = attach(bench)
    assert len(bench.engine.sessions.all()) == 1
    bench.ack(link, message)
    bench.close(link, redelivery.CLOSED)
    assert (bench.engine.sessions.all(), bench.queue("a").reservations) == ([], ())
    attach(bench)
    bench = bench.restart()
    assert bench.engine.sessions.all() == [], "it had nothing when the broker died"


@interpreted
def test_more_than_there_are_packet_ids_is_not_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservations, "RESERVED_MAX", 3)
    bench.sent("a", *[b"%d" % n for n in range(5)])
    link = attach(bench)
    assert len(link.take()) == 5
    bench.close(link, redelivery.LOST)
    assert (kept(bench), bench.take("a").take()) == ([b"0", b"1", b"2"], [b"3", b"4"])


def test_messages_that_wait_to_be_sent_again_stay_reserved_when_the_link_goes_once_more(bench: Bench) -> None:
    """The session has it, and the peer's window no room: it has left before, and may be there."""
    messages = bench.sent("a", b"1", b"2", b"3")
    bench.close(attach(bench, credit=2), redelivery.LOST)
    link = attach(bench)
    assert link.take() == [b"1", b"2", b"3"]
    bench.enter().consumers.withdraw(link.consumer, messages)
    bench.close(link, redelivery.LOST)
    assert (kept(bench), bench.take("a").take()) == ([b"1", b"2"], [b"3"])


@pytest.mark.parametrize("again", [False, True])
def test_a_queue_that_is_deleted_takes_along_what_its_link_had(again: bool) -> None:
    """Also what has left for it before, and what still awaits the journal."""
    bench = Bench(lazy_disk=True)
    bench.sent("a", b"1", b"2")
    bench.broker.catch_up()
    first = attach(bench, credit=1)
    bench.broker.catch_up()
    assert first.take() == [b"1"]
    if again:
        bench.close(first, redelivery.LOST)
        bench.broker.catch_up()
        assert attach(bench).take() == [b"1"], "the journal does not have the second as the link's"
    queue = bench.queue("a")
    bench.delete("a")
    bench.broker.catch_up()
    assert (queue.delivering, queue.reserved, bench.engine.usage.messages) == (0, {}, 0)
    assert bench.engine.sessions.all() == []
    bench.check()


def test_released_messages_say_that_they_have_been_delivered_before(bench: Bench) -> None:
    (message,) = bench.sent("a", b"1")
    bench.close(attach(bench), redelivery.LOST)
    bench.broker.advance(LINK.ms)
    queue = bench.queue("a")
    assert (bench.take("a").take(), queue.delivery_count(message.id)) == ([b"1"], 0)
    assert message.id in queue.states


def test_messages_that_leave_after_a_restart_are_reserved_beside_earlier_ones(bench: Bench) -> None:
    """No two messages have one number in the link's session."""
    messages = bench.sent("a", b"1", b"2", b"3")
    link = attach(bench, credit=3)
    bench.ack(link, messages[1])
    bench = bench.restart()
    bench.sent("a", b"4", b"5")
    assert attach(bench).take() == [b"1", b"3", b"4", b"5"]
    assert kept(bench.restart()) == [b"1", b"3", b"4", b"5"]


def test_a_transaction_that_outlives_its_link_goes_its_way(bench: Bench) -> None:
    (message,) = bench.sent("a", b"1")
    link = attach(bench)
    transaction = bench.begin()
    bench.ack(link, message, tx=transaction)
    bench.close(link, redelivery.LOST)
    assert bench.engine.sessions.all() == []
    bench.roll_back(transaction)
    assert bench.take("a").take() == [b"1"]
    assert bench.queue("a").reserved == {}


@pytest.mark.parametrize("again", [False, True])
def test_a_rejection_that_cannot_become_a_dead_letter_ends_the_reservation(again: bool) -> None:
    """It stays on its queue, for any other consumer, and the link that refused it does not get it as its own."""
    bench = Bench({"match": "a", "dead-letter-address": "nowhere"})
    bench.declare("nowhere", selector="1 = 2")
    refused, _ = bench.sent("a", b"1", b"2")
    link = attach(bench)
    bench.nack(link, refused, requeue=False)
    assert list(bench.queue("a").reserved) == [message.id for message in link.taken[1:]]
    bench.close(link, redelivery.LOST)
    assert kept(bench) == [b"2"]
    bench = bench.restart() if again else bench
    assert bench.take("a").take() == [b"1"]
    assert kept(bench) == [b"2"]


def test_an_exclusive_queue_goes_on_when_all_is_settled() -> None:
    bench = Bench({"match": "a", "default-exclusive-queue": True})
    bench.sent("a", b"1", b"2")
    bench.close(attach(bench, credit=1), redelivery.LOST)
    other = bench.take("a")
    assert other.take() == [], "in their order"
    bench.broker.advance(LINK.ms)
    bench.run()
    assert other.take() == [b"1", b"2"]


def test_the_clock_is_set(bench: Bench) -> None:
    bench.sent("a", b"1")
    bench.close(attach(bench), redelivery.LOST)
    other = bench.take("a")
    bench.broker.jump(3_600_000)
    assert other.take() == []
    bench.broker.advance(LINK.ms)
    assert other.take() == [b"1"]


class World:
    """A queue that a link and a reader read, both of which come and go; so does the broker."""

    def __init__(self, seed: int, mode: str) -> None:
        self.bench = Bench({"match": "a", "delivery-count-persistence": mode})
        self.sent: set[bytes] = set()
        self.there: set[bytes] = set()  # what the link's broker has, which answers when it is told to
        self.taken: list[bytes] = []
        self._chance = Random(seed)
        self._link: Taker | None = None
        self._reader: Taker | None = None
        self._deeds = (
            self._send,
            self._send,
            self._credit,
            self._answer,
            self._lose,
            self._read,
            self._stop,
            self._die,
        )

    def step(self) -> None:
        """Something happens, and what the link has got is the link's."""
        self._chance.choice(self._deeds)()
        self._look()
        check_accounts(self.bench.broker)

    def finish(self) -> None:
        """The link takes what there is."""
        self._stop()
        link = self._attached()
        self.bench.grant(link, 10_000)
        self._look()
        self._settle(link)
        self._lose()

    def _look(self) -> None:
        if self._link is not None:
            self.there.update(map(body_of, self._link.taken))
        if self._reader is not None:
            assert self.there.isdisjoint(map(body_of, self._reader.taken)), "the link has it"

    def _send(self) -> None:
        bodies = [b"%d" % n for n in range(len(self.sent), len(self.sent) + 5)]
        self.bench.sent("a", *bodies, priority=self._chance.randrange(10))
        self.sent.update(bodies)

    def _attached(self) -> Taker:
        self._link = self._link or attach(self.bench, credit=0)
        return self._link

    def _credit(self) -> None:
        link = self._attached()
        self.bench.enter().consumers.grant(link.consumer, self._chance.randrange(8))
        self.bench.run()

    def _answer(self) -> None:
        if self._link is not None:
            self._chance.shuffle(self._link.taken)
            self._settle(self._link, len(self._link.taken) // 2)

    def _settle(self, taker: Taker, count: int | None = None) -> None:
        self.bench.ack(taker, *taker.taken[:count])
        del taker.taken[:count]

    def _lose(self) -> None:
        if self._link is not None:
            self.bench.close(self._link, redelivery.LOST)
            self._link = None

    def _read(self) -> None:
        self._reader = self._reader or self.bench.take("a")

    def _stop(self) -> None:
        if self._reader is not None:
            self.taken += map(body_of, self._reader.taken)
            self._settle(self._reader)
            self.bench.close(self._reader, redelivery.CLOSED)
            self._reader = None

    def _die(self) -> None:
        self.bench, self._link, self._reader = self.bench.restart(), None, None


@pytest.mark.parametrize("mode", ["on-return", "strict"])
def test_whatever_happens(mode: str) -> None:
    """What has reached a link is given to nobody else while it is kept, and everything is taken in the end."""
    seed = randbits(32)
    print(f"seed {seed}")
    world = World(seed, mode)
    for _ in range(80):
        world.step()
    world.finish()
    assert world.bench.bodies("a") == []
    assert len(world.taken) == len(set(world.taken))
    assert world.there.isdisjoint(world.taken)
    assert world.there | set(world.taken) == world.sent
    assert world.bench.engine.sessions.all() == []
