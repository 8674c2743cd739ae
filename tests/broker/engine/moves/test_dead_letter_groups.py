"""Dead letters by group: counted in steps, in memory and on disk, without bodies; and a group chooses messages."""

from __future__ import annotations

import errno

import pytest

from broker.engine import DeadLetterCount, DeadLetterGroup, DeadLetterGroups, MessageRange
from broker.engine.delivery import redelivery
from broker.engine.model.errors import InvalidAttribute, NotReadable
from broker.engine.moves.dead_letter_groups import NAMES
from store.segment import segment_name
from tests.broker.engine.engine_harness import Bench
from tests.simulation.world import journal_directory
from tests.support.sim_broker import START
from tests.support.sim_files import refusing

HOUR = 3_600_000
SAID = "rejected by a consumer"

#: The dead-letter queue is on disk but for two messages.
PAGED = {"match": "DLQ", "address-full-policy": "PAGE", "max-size-messages": 2, "max-read-page-messages": 8}


def bench(*, paged: bool = False, step: int = 2) -> Bench:
    """A broker that goes through so many messages on disk in a step."""
    return Bench(*([PAGED] if paged else []), engine_limits={"group_step_max": step})


def die(bench: Bench, name: str, count: int, words: str = "") -> None:
    """So many messages are sent to a queue and rejected with these words."""
    bench.die(name, *[b"%s%d" % (name.encode(), n) for n in range(count)], text=words)


def counted(bench: Bench, *by: str, queues: tuple[str, ...] = ("DLQ",), groups_max: int = 1000) -> DeadLetterGroups:
    """All of it, step by step."""
    groups = DeadLetterGroups(queues, by, groups_max)
    while not groups.complete:
        bench.enter().messages.group_step(groups)
    bench.run()
    return groups


def counts(groups: DeadLetterGroups) -> dict[DeadLetterGroup, int]:
    """How many each group has."""
    return {group: count.count for group, count in groups.groups()}


@pytest.mark.parametrize("paged", [False, True])
def test_each_value_groups_and_each_group_chooses_what_it_counted(paged: bool) -> None:
    b = bench(paged=paged)
    die(b, "orders", 5, "total is negative")
    die(b, "orders", 4, "no such customer")
    b.broker.advance(2 * HOUR)
    die(b, "bills", 3)
    b.sent("mail", b"late", expiration=b.broker.now + 1)
    b.broker.advance(HOUR)
    b.sent("DLQ", b"sent there")
    assert b.queue("DLQ").paged == (11 if paged else 0)
    b.enter()
    queues = tuple(queue.name for queue in b.engine.messages.dead_letter_queues())
    assert queues == ("DLQ", "ExpiryQueue")
    hour = START - START % HOUR
    expected: dict[str, dict[object, int]] = {
        "queue": {"DLQ": 13, "ExpiryQueue": 1},
        "reason": {"rejected": 12, "expired": 1, "": 1},
        "origin": {"orders": 9, "bills": 3, "mail": 1, "": 1},
        "first_origin": {"orders": 9, "bills": 3, "mail": 1, "": 1},
        "words": {f"{SAID}: total is negative": 5, f"{SAID}: no such customer": 4, SAID: 3, "": 2},
        "hour": {hour: 9, hour + 2 * HOUR: 4, 0: 1},
    }
    for name, wanted in expected.items():
        groups = counted(b, name.replace("_", "-"), queues=queues)
        assert {getattr(group, name): count for group, count in counts(groups).items()} == wanted
        assert (groups.total.count, groups.others.count, groups.unreadable) == (14, 0, 0)
        for group, count in counts(groups).items():
            assert chosen(b, group) == count


def chosen(b: Bench, group: DeadLetterGroup) -> int:
    """How many messages of both queues a group has, one by one."""
    messages = b.engine.messages
    return sum(
        group.has(b.queue(name), message)
        for name in ("DLQ", "ExpiryQueue")
        for message, _ in messages.browse(b.queue(name))
    )


@pytest.mark.parametrize("paged", [False, True])
def test_a_group_is_retried_and_the_rest_stays(paged: bool) -> None:
    b = bench(paged=paged)
    die(b, "orders", 5, "total is negative")
    die(b, "orders", 4, "no such customer")
    die(b, "bills", 3, "no such customer")
    [group] = [
        g
        for g in counts(counted(b, "words", "origin"))
        if (g.words, g.origin) == (f"{SAID}: no such customer", "orders")
    ]
    step = b.enter().messages.retry(b.queue("DLQ"), MessageRange(group=group))
    b.run()
    assert (step.moved, step.complete) == (4, True)
    assert sorted(b.bodies("orders")) == [b"orders0", b"orders1", b"orders2", b"orders3"]
    assert counts(counted(b, "words", "origin")) == {
        DeadLetterGroup(words=f"{SAID}: total is negative", origin="orders"): 5,
        DeadLetterGroup(words=f"{SAID}: no such customer", origin="bills"): 3,
    }
    elsewhere = MessageRange(group=DeadLetterGroup(queue="ExpiryQueue"))
    assert b.enter().messages.discard(b.queue("DLQ"), elsewhere).moved == 0
    assert b.enter().messages.discard(b.queue("DLQ"), MessageRange(group=DeadLetterGroup(origin="bills"))).moved == 3
    b.run()


def test_the_oldest_and_the_newest_death_are_told() -> None:
    b = bench()
    began = b.broker.now
    die(b, "orders", 1)
    b.broker.advance(70)
    die(b, "orders", 2)
    [(_, count)] = counted(b, "reason").groups()
    assert count == DeadLetterCount(3, began, began + 70)
    assert counted(b, "reason").total == count


def test_groups_beyond_the_limit_are_counted_together() -> None:
    b = bench()
    for n in range(5):
        die(b, "orders", n + 1, f"order {n} is wrong")
    groups = counted(b, "words", groups_max=2)
    assert counts(groups) == {
        DeadLetterGroup(words=f"{SAID}: order 1 is wrong"): 2,
        DeadLetterGroup(words=f"{SAID}: order 0 is wrong"): 1,
    }
    assert (groups.others.count, groups.total.count) == (12, 15)


@pytest.mark.parametrize("paged", [False, True])
def test_messages_that_move_between_steps_count_once(paged: bool) -> None:
    b = bench(paged=paged, step=1)
    die(b, "orders", 12)
    groups = DeadLetterGroups(["DLQ"], ["origin"])
    b.enter().messages.group_step(groups)
    looked_at = groups.total.count
    assert looked_at == (3 if paged else 4)  # two of three are in memory
    die(b, "bills", 3)  # too late
    taker = b.take("DLQ", window=looked_at + 1, counted=True)  # for it, some come to memory
    assert len(taker.taken) == looked_at + 1
    assert b.queue("DLQ").paged == (11 if paged else 0)
    while not groups.complete:
        b.enter().messages.group_step(groups)
    b.run()
    held = 1 if paged else 0  # the last that the consumer holds was not found yet, or had been
    assert counts(groups) == {DeadLetterGroup(origin="orders"): 12 - held}


def test_a_queue_that_goes_is_passed_over() -> None:
    b = bench()
    die(b, "orders", 1)
    groups = DeadLetterGroups(["gone", "DLQ"], ["origin"])
    b.enter().messages.group_step(groups)
    assert not groups.complete
    b.enter().messages.group_step(groups)
    assert (groups.complete, groups.total.count) == (True, 1)


def test_bodies_are_not_read_and_long_notes_are() -> None:
    b = bench(paged=True, step=100)
    die(b, "orders", 2)
    name = "orders." + "x" * 1000
    words = "w" * 1000
    taker = b.take(name)
    for message in b.sent(name, *[b"b" * 50_000] * 8):
        b.enter().consumers.reject(taker.consumer, message.id, text=words)
    b.run()
    assert b.queue("DLQ").paged == 8
    read: list[int] = []
    read_range = b.broker.files.read_range

    def counting(path: str, offset: int, nbytes: int) -> bytes:
        read.append(nbytes)
        return read_range(path, offset, nbytes)

    b.broker.files.read_range = counting  # type: ignore[method-assign]
    groups = counted(b, "origin", "words")
    assert counts(groups)[DeadLetterGroup(origin=name, words=f"{SAID}: {words}")] == 8
    assert sum(read) < 8 * 10_000
    assert b.queue("DLQ").paged == 8


def test_a_disk_that_cannot_be_read_is_told_and_the_count_goes_on() -> None:
    b = bench(paged=True)
    die(b, "orders", 8)
    groups = DeadLetterGroups(["DLQ"], ["origin"])
    with refusing(b.broker.files, errno.EMFILE):
        for _ in range(2):
            with pytest.raises(NotReadable, match="Too many open files"):
                b.enter().messages.group_step(groups)
    while not groups.complete:
        b.enter().messages.group_step(groups)
    b.run()
    assert counts(groups) == {DeadLetterGroup(origin="orders"): 8}


def test_damaged_messages_are_counted_as_unreadable() -> None:
    b = bench(paged=True)
    die(b, "orders", 8)
    tail = b.queue("DLQ").tail
    assert tail is not None
    chunk = next(tail.chunks())
    path = f"{journal_directory(b.broker.config)}/{segment_name(chunk.segments[0])}"
    b.broker.files.flip(path, chunk.offsets[0] + 8, 1)  # its id
    groups = counted(b, "origin")
    assert (counts(groups), groups.unreadable) == ({DeadLetterGroup(origin="orders"): 7}, 1)
    assert len(list(b.engine.messages.browse(b.queue("DLQ")))) == 7  # which sets it aside
    again = counted(b, "origin")
    assert (again.total.count, again.unreadable) == (7, 1)


@pytest.mark.parametrize("by", [[], ["age"], ["reason", "reason"]])
def test_only_what_is_known_groups(by: list[str]) -> None:
    with pytest.raises(InvalidAttribute, match="reason"):
        DeadLetterGroups(["DLQ"], by)
    assert "reason" in NAMES


def test_one_cause_is_one_group_whichever_consumer_met_it() -> None:
    b = bench()
    said = "order 3f2504e0-4f89-41d3-9a0c-0305e82c330%d: db-1:5432%d refused, by w-%d"
    texts = []
    for n in range(3):
        taker = b.take("orders", client_id=f"w-{n}", remote=f"192.0.2.1:471{n}")
        [message] = b.sent("orders", b"x")
        b.enter().consumers.reject(taker.consumer, message.id, text=said % (n, n, n))
        b.run()
        b.close(taker, redelivery.CLOSED)
        texts.append(f"rejected by w-{n} at 192.0.2.1:471{n}: {said % (n, n, n)}")
    [(group, count)] = counted(b, "words").groups()
    assert (group.words, count.count) == ("rejected by a consumer: order *: db-1:* refused, by *", 3)
    b.enter()
    assert b.engine.messages.retry(b.queue("DLQ"), MessageRange(group=DeadLetterGroup(words=texts[1]))).moved == 1
    assert b.engine.messages.retry(b.queue("DLQ"), MessageRange(group=group)).moved == 2
