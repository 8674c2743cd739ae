"""Bulk removals on a full disk: they go as far as there is room, the rest waits, and nothing ends the broker."""

from __future__ import annotations

from typing import Any

import pytest

from broker.engine.delivery.redelivery import CLOSED
from broker.engine.model.errors import DiskFull
from broker.engine.model.message import RoutingType
from broker.engine.model.task import Task, TaskKind, TaskRequest, TaskState, TaskVerb
from store.record import RemovalReason
from tests.broker.engine.engine_harness import Bench, EngineBroker, Taker, fill
from tests.simulation.world import check_counters, small
from tests.support.sim_files import SimFiles

#: Messages on the queue that is emptied: their removals need more than the reserve.
MANY = 3_000

#: Sizes of a segment: a removal of all messages is longer than the smallest ones.
SIZES = [16 << 10, 32 << 10, 128 << 10, 512 << 10]

#: Time enough for each step that waits for room.
A_WHILE = 60_000


def begun(segment_bytes: int, *settings: dict[str, object]) -> Bench:
    """A broker on a disk with room, for now."""
    config = small(*settings, segment_bytes=segment_bytes, retained=False)
    journal = config.journal.model_copy(update={"reserve": segment_bytes // 4})
    return Bench(running=EngineBroker(config.model_copy(update={"journal": journal}), files=SimFiles()))


def fill_disk(bench: Bench, segment_bytes: int) -> None:
    """Take the room, and send until the disk is full."""
    files = bench.broker.files
    files.capacity = files.used() + segment_bytes // 3
    fill(bench, "full")


def scene(segment_bytes: int, *settings: dict[str, object], free: bool, expiration: int = 0) -> Bench:
    """A full disk with a queue q of many messages.

    `free`: nothing else keeps their segments, and the reserve suffices for the removals of one.
    """
    bench = begun(segment_bytes, *settings)
    if not free:
        bench.sent("first", b"keeps every segment")
    due = bench.broker.now + expiration if expiration else 0
    for _ in range(0, MANY, 10):
        bench.sent("q", *[b"x" * (600 if free else 3)] * 10, expiration=due)
    fill_disk(bench, segment_bytes)
    return bench


def killed(bench: Bench) -> Bench:
    """The next run after kill -9: the disk is as it was."""
    old = bench.broker
    return Bench(running=EngineBroker(old.config, files=old.files.fork(1), now=old.now))


def lives(bench: Bench) -> None:
    """Check that the broker and its books are in order."""
    assert bench.broker.failure is None
    check_counters(bench.broker)


def heal(bench: Bench) -> None:
    """Make room on the disk, and let the broker notice."""
    bench.broker.files.capacity = None
    for _ in range(10):
        bench.broker.advance(A_WHILE)
    lives(bench)


everywhere = pytest.mark.parametrize("segment_bytes", SIZES)
free_or_not = pytest.mark.parametrize("free", [True, False])

NO_EXPIRY: dict[str, object] = {"match": "q", "expiry-address": "", "dead-letter-address": ""}
PAGED: dict[str, object] = {**NO_EXPIRY, "max-size-bytes": 20_000, "address-full-policy": "PAGE"}


@pytest.mark.parametrize("settings", [NO_EXPIRY, PAGED])
@free_or_not
@everywhere
def test_messages_expire(segment_bytes: int, free: bool, settings: dict[str, object]) -> None:
    bench = scene(segment_bytes, settings, free=free, expiration=600_000)
    assert (bench.queue("q").paged > MANY // 2) == (settings is PAGED)
    for _ in range(13):  # they expire after ten
        bench.broker.advance(A_WHILE)
        lives(bench)
    queue = bench.queue("q")
    if free:
        assert queue.message_count == 0, "each step made room for the next one"
    elif queue.message_count:
        assert len(bench.broker.reported("move.disk_full")) == 1, "once"
    if settings is PAGED:
        assert len(queue.scheduled) <= MANY // 10, "what is on disk stays there"
    assert bench.take("q").take() == [], "what has expired is not delivered"
    again = killed(bench)
    lives(again)
    heal(again)
    assert again.queue("q").message_count == 0
    assert again.bodies("full") == bench.bodies("full")


@pytest.mark.parametrize("kept", [{}, {"max-size-bytes": 20_000, "address-full-policy": "PAGE"}])
@everywhere
def test_expired_messages_find_no_room_at_their_expiry_address(segment_bytes: int, kept: dict[str, object]) -> None:
    bench = scene(segment_bytes, {"match": "q", "expiry-address": "expired", **kept}, free=False, expiration=60_000)
    bench.broker.advance(60_000)
    for _ in range(4):
        bench.broker.advance(10_000)
        lives(bench)
    assert bench.queue("q").message_count
    assert len(bench.broker.reported("move.disk_full")) == 1, "once"
    assert bench.take("q").take() == [], "what has expired is not delivered"
    again = killed(bench)
    lives(again)
    heal(again)
    assert again.queue("q").message_count == 0
    assert again.queue("expired").message_count == MANY


def nack_all(bench: Bench, taker: Taker) -> None:
    """Nack what was taken."""
    taken = taker.taken.copy()
    taker.taken.clear()
    for at in range(0, len(taken), 100):
        bench.nack(taker, *taken[at : at + 100])
        lives(bench)


@everywhere
def test_dead_letters_find_no_room(segment_bytes: int) -> None:
    bench = scene(segment_bytes, {"match": "q", "dead-letter-address": "dead", "max-delivery-attempts": 1}, free=False)
    taker = bench.take("q")
    nack_all(bench, taker)
    assert bench.queue("q").message_count
    assert len(bench.broker.reported("move.disk_full")) == 1, "once"
    bench.broker.files.capacity = None
    for _ in range(4):
        bench.broker.advance(A_WHILE)
        nack_all(bench, taker)
    lives(bench)
    assert bench.queue("q").message_count == 0
    assert killed(bench).queue("dead").message_count == MANY


@pytest.mark.parametrize("settings", [NO_EXPIRY, PAGED])
@free_or_not
@everywhere
def test_an_operator_purges(segment_bytes: int, free: bool, settings: dict[str, object]) -> None:
    bench = scene(segment_bytes, settings, free=free)
    task = ended(bench, TaskRequest(kind=TaskKind.PURGE, queue="q"))
    if free:
        assert task.state is TaskState.COMPLETED
    if task.state is TaskState.PAUSED:
        assert "no room" in task.why
        assert task.progress.moved + bench.queue("q").message_count == MANY
    again = killed(bench)
    lives(again)
    assert again.queue("q").message_count == MANY - task.progress.moved
    if task.state is TaskState.COMPLETED:
        return
    heal(again)
    again.enter().tasks.steer(again.engine.tasks.task(task.id), TaskVerb.RESUME)
    again.broker.advance(A_WHILE)
    assert again.engine.tasks.task(task.id).state is TaskState.COMPLETED
    assert again.queue("q").message_count == 0


def ended(bench: Bench, request: TaskRequest) -> Task:
    """A task that has gone as far as it can."""
    task = bench.enter().tasks.start(request)
    bench.run()
    for _ in range(30):
        bench.broker.advance(A_WHILE)
        lives(bench)
    assert task.state is not TaskState.RUNNING
    return task


@pytest.mark.parametrize("chosen", [{"filter": "TRUE"}, {"rate": 1_000_000}])
@free_or_not
@everywhere
def test_an_operator_removes_chosen_messages(segment_bytes: int, free: bool, chosen: dict[str, Any]) -> None:
    bench = scene(segment_bytes, free=free)
    task = ended(bench, TaskRequest(kind=TaskKind.PURGE, queue="q", **chosen))
    assert (task.state is TaskState.COMPLETED) == (task.progress.moved == MANY)
    assert task.state is TaskState.COMPLETED or "no room" in task.why
    assert killed(bench).queue("q").message_count == MANY - task.progress.moved


@pytest.mark.parametrize("settings", [NO_EXPIRY, PAGED])
@pytest.mark.parametrize("how", ["task", "verb"])
@free_or_not
@everywhere
def test_a_queue_is_deleted(segment_bytes: int, free: bool, settings: dict[str, object], how: str) -> None:
    """Its deletion is the record for those messages whose own records find no room."""
    bench = scene(segment_bytes, settings, free=free)
    ballast = len(bench.bodies("full"))
    if how == "task":
        assert ended(bench, TaskRequest(kind=TaskKind.DELETE_QUEUE, queue="q")).state is TaskState.COMPLETED
    else:
        bench.delete("q")
    lives(bench)
    again = killed(bench)
    lives(again)
    assert "q" not in again.engine.queues
    heal(again)
    assert len(again.bodies("full")) == ballast
    assert again.engine.usage.messages == sum(queue.ready for queue in again.engine.queues.values())


@free_or_not
@everywhere
def test_a_queue_that_keeps_nothing_loses_its_last_consumer(segment_bytes: int, free: bool) -> None:
    bench = scene(segment_bytes, free=free)
    bench.change("q", **{"purge_on_no_consumers": True})
    bench.close(bench.take("q", window=1), CLOSED)
    lives(bench)
    again = killed(bench)
    lives(again)
    heal(bench)
    assert bench.queue("q").message_count == 0


@free_or_not
@everywhere
def test_a_consumer_kills_all(segment_bytes: int, free: bool) -> None:
    bench = scene(segment_bytes, NO_EXPIRY, free=free)
    taker = bench.take("q")
    for _ in range(3):
        taken = taker.taken.copy()
        taker.taken.clear()
        for at in range(0, len(taken), 100):
            bench.nack(taker, *taken[at : at + 100], requeue=False)
            lives(bench)
        bench.broker.advance(A_WHILE)
    dead, left = bench.queue("q").left[RemovalReason.KILLED], bench.queue("q").message_count
    assert dead + left == MANY
    if left:
        assert bench.broker.reported("move.disk_full")
    if bench.engine.journal.pending_bytes:  # the counts of failed deliveries, which are not refused, wait for room
        heal(bench)
    left = bench.queue("q").message_count
    again = killed(bench)
    lives(again)
    assert again.queue("q").message_count == left


@everywhere
def test_one_message_that_nobody_consumes_does_not_keep_the_disk_full(segment_bytes: int) -> None:
    """Its segment, and all behind it, are dropped once it is copied, which the reserve has room for."""
    bench = scene(segment_bytes, free=False)
    for taker in (bench.take("full"), bench.take("q")):
        for at in range(0, len(taker.taken), 50):
            bench.ack(taker, *taker.taken[at : at + 50])
        for _ in range(10):
            bench.broker.advance(A_WHILE)
            lives(bench)
    assert bench.engine.journal.accepting
    bench.sent("q", b"x" * 1000)
    assert bench.bodies("first") == [b"keeps every segment"]
    again = killed(bench)
    assert again.bodies("first") == [b"keeps every segment"]
    assert len(again.bodies("q")) == 1


@everywhere
def test_an_idle_broker_notices_that_there_is_room(segment_bytes: int) -> None:
    """Nobody sends anything: clients stay away from a broker that is not ready."""
    bench = begun(segment_bytes)
    fill_disk(bench, segment_bytes)
    assert not bench.engine.journal.accepting
    bench.broker.files.capacity = None
    bench.broker.advance(A_WHILE)
    assert bench.engine.journal.accepting


@everywhere
def test_a_ring_has_become_smaller(segment_bytes: int) -> None:
    """At the next start all leave that are too many."""
    bench = scene(segment_bytes, free=False)
    bench.change("q", **{"ring_size": 10})
    lives(bench)
    again = killed(bench)
    lives(again)
    heal(again)
    last = killed(again)
    lives(last)
    assert last.queue("q").message_count == 10


@pytest.mark.parametrize("mode", ["on-return", "strict"])
@pytest.mark.parametrize("segment_bytes", SIZES[:2])
def test_deliveries_fail_again_and_again(segment_bytes: int, mode: str) -> None:
    """Their counts wait for room, and are known after a restart if they found it."""
    settings = {"match": "q", "max-delivery-attempts": -1, "delivery-count-persistence": mode}
    bench = scene(segment_bytes, settings, free=False)
    taker = bench.take("q", window=100)
    for _ in range(30):
        taken = taker.taken.copy()
        taker.taken.clear()
        bench.nack(taker, *taken)
        lives(bench)
    assert bench.queue("q").message_count == MANY
    heal(bench)
    again = killed(bench)
    lives(again)
    assert again.queue("q").message_count == MANY
    assert max(again.queue("q").delivery_count(message.id) for message in again.take("q").taken) > 10


@everywhere
def test_retained_messages_are_cleared(segment_bytes: int) -> None:
    """A client that clears them does not use up the room that is for consumers."""
    bench = begun(segment_bytes)
    bench.sent("first", b"keeps every segment")
    names = [f"t.{number}" for number in range(MANY)]
    for name in names:
        send = bench.prepare(name, b"x", routing_type=RoutingType.MULTICAST)
        bench.engine.retained.set(send.address, *send.messages)
        bench.run()
    fill_disk(bench, segment_bytes)
    refused = [name for name in names if not cleared(bench, name)]
    lives(bench)
    assert refused, "their removals need more than the reserve"
    assert bench.bodies("first") == [b"keeps every segment"]
    again = killed(bench)
    lives(again)
    assert again.engine.retained.messages == len(refused), "what is confirmed was written"
    heal(again)
    cleared(again, refused[0])  # the first one that asks may be refused; then the broker looks for room
    for name in refused:
        cleared(again, name)
    assert killed(again).engine.retained.messages == 0


def cleared(bench: Bench, name: str) -> bool:
    """Whether a retained message was cleared."""
    try:
        return bench.enter().retained.clear(name)
    except DiskFull:
        return False
    finally:
        bench.run()
