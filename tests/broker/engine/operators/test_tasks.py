"""Tasks: many messages retried, moved, purged in steps that leave others their turn and survive a crash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from broker.engine.delivery import redelivery
from broker.engine.filter import compile_filter
from broker.engine.model.access import Identity
from broker.engine.model.edit import Edit
from broker.engine.model.errors import (
    AlreadyInUse,
    EngineError,
    InvalidEdit,
    InvalidName,
    InvalidSelector,
    InvalidTask,
    NotFound,
    OntoItself,
    TooManyTasks,
)
from broker.engine.model.message import Message, PropertyView, RoutingType
from broker.engine.model.task import (
    OTHER_TARGETS,
    STEERING,
    TARGETS_MAX,
    Task,
    TaskKind,
    TaskRequest,
    TaskState,
    TaskVerb,
    read_task,
)
from broker.engine.operators.administration import NewQueue
from broker.engine.operators.tasks import (
    ACTIVE_MAX,
    ENDED_KEPT,
    FULL_RETRY_MS,
    FULL_TRIES_MAX,
    IDS_MAX,
    RATE_MAX,
)
from store.record import RemovalReason
from tests.broker.engine.engine_harness import Bench, EngineBroker, fill
from tests.simulation.world import accounts, check_accounts, check_counters, journal_directory, reasons, small
from tests.support.sim_files import Crash, Fault, SimFiles

ADA = Identity("ada", frozenset())

RETRY, MOVE, PURGE, DELETE = TaskKind.RETRY, TaskKind.MOVE, TaskKind.PURGE, TaskKind.DELETE_QUEUE


def request(kind: TaskKind, queue: str = "DLQ", **more: Any) -> TaskRequest:
    """A task on the dead letters, started by an operator."""
    return TaskRequest(kind=kind, queue=queue, by={"user": "ada"}, identity=ADA, **more)


def start(bench: Bench, kind: TaskKind, queue: str = "DLQ", **more: Any) -> Task:
    """A task that has made its first step, in a tick that is still open."""
    return bench.enter().tasks.start(request(kind, queue, **more))


def done(bench: Bench, kind: TaskKind, queue: str = "DLQ", **more: Any) -> Task:
    """A task that has done what it can."""
    task = start(bench, kind, queue, **more)
    bench.run()
    return task


def dead(bench: Bench, name: str, n: int, **more: Any) -> list[Message]:
    """So many dead letters of a queue."""
    bench.die(name, *(b"%d" % number for number in range(n)), **more)
    return bench.messages("DLQ")


# -- what they do ------------------------------------------------------------------------------------------------------


def test_a_task_of_few_messages_has_ended_when_it_was_started(bench: Bench) -> None:
    dead(bench, "a", 3)
    task = start(bench, RETRY)
    assert task.state is TaskState.COMPLETED
    bench.run()
    progress = task.progress
    assert (progress.total, progress.looked_at, progress.moved, progress.refused) == (3, 3, 3, {})
    assert progress.targets == {"a": 3}
    assert (task.created, task.ended) == (bench.broker.now, bench.broker.now)
    assert sorted(bench.bodies("a")) == [b"0", b"1", b"2"]
    assert bench.broker.reported("task.completed") == [
        {"task": task.id, "kind": "retry", "queue": "DLQ", "messages": 3, "refused": 0}
    ]
    started = {"task": task.id, "kind": "retry", "queue": "DLQ", "user": "ada"}
    assert bench.broker.reported("task.started") == [started]
    bench.check()


@pytest.mark.parametrize("limit", [1, 7, 64])
def test_many_messages_take_many_ticks(limit: int) -> None:
    bench = Bench(engine_limits={"move_step_max": limit})
    dead(bench, "a", 100)
    task = start(bench, RETRY)
    assert (task.state, task.progress.moved) == (TaskState.RUNNING, limit)
    bench.run()
    assert (task.state, task.progress.moved) == (TaskState.COMPLETED, 100)
    assert len(bench.bodies("a")) == 100


def test_between_two_steps_others_have_their_turn() -> None:
    bench = Bench(engine_limits={"move_step_max": 10, "task_pending_max": 0})
    dead(bench, "a", 100)
    bench.broker.hold_disk()
    task = start(bench, RETRY)
    bench.send("b", b"in between")
    bench.run()
    bench.broker.step()
    assert bench.bodies("b") == [b"in between"]
    assert 10 < task.progress.moved < 40


def test_messages_that_arrive_meanwhile_stay() -> None:
    bench = Bench(engine_limits={"move_step_max": 2})
    dead(bench, "a", 4)
    task = start(bench, RETRY)
    bench.send("DLQ", b"later")
    bench.run()
    assert (task.progress.moved, bench.bodies("DLQ")) == (4, [b"later"])


def test_some_are_moved_by_a_filter_and_some_stay_by_name(bench: Bench) -> None:
    dead(bench, "a", 2, priority=7)
    bench.sent("DLQ", b"sent there", priority=7)
    dead(bench, "a", 2, priority=1)
    task = done(bench, RETRY, filter="AMQPriority = 7")
    progress = task.progress
    assert (progress.looked_at, progress.moved, progress.refused) == (5, 2, {"no-origin": 1})
    assert len(bench.bodies("DLQ")) == 3


def test_messages_are_named_one_by_one() -> None:
    bench = Bench(engine_limits={"move_step_max": 2})
    first, second, third = dead(bench, "a", 3)
    task = done(bench, RETRY, ids=(third.id, 1, first.id))
    assert (task.progress.moved, task.progress.refused, task.progress.total) == (2, {"gone": 1}, 3)
    assert bench.only("DLQ").id == second.id


def test_a_group_of_dead_letters_is_chosen(bench: Bench) -> None:
    dead(bench, "a", 2)
    dead(bench, "b", 3)
    task = done(bench, RETRY, group={"origin": "b", "reason": "rejected"})
    assert (task.progress.moved, task.progress.targets) == (3, {"b": 3})
    assert len(bench.bodies("DLQ")) == 2


def test_the_first_origin_is_where_a_message_died_first() -> None:
    bench = Bench({"match": "a", "dead-letter-address": "b"}, {"match": "b", "dead-letter-address": "DLQ"})
    bench.sent("a", b"1")
    for name in ("a", "b"):
        taker = bench.take(name)
        bench.nack(taker, *taker.taken, requeue=False)
        bench.close(taker, redelivery.CLOSED)
    dry = done(bench, RETRY, first_origin=True, dry_run=True)
    assert dry.progress.targets == {"a": 1}
    done(bench, RETRY, first_origin=True)
    assert bench.bodies("a") == [b"1"]


def test_messages_are_edited_on_their_way(bench: Bench) -> None:
    dead(bench, "a", 2, head=b"color:red\nsize:1\n")
    edit = Edit(remove=("size",), add={"color": "blue", "JMSXGroupID": "g"}, body=b"mended")
    done(bench, RETRY, edit=edit)
    for message in bench.messages("a"):
        view = PropertyView(message)
        assert (view["color"], view.get("size"), message.body, message.header.group) == ("blue", None, b"mended", "g")
    check_counters(bench.broker)


@pytest.mark.parametrize("limit", [3, 4096])
def test_a_purge_removes_all_that_were_there(limit: int) -> None:
    bench = Bench(engine_limits={"purge_step_max": limit})
    dead(bench, "a", 10)
    task = done(bench, PURGE)
    assert (task.state, task.progress.moved, bench.bodies("DLQ")) == (TaskState.COMPLETED, 10, [])
    check_accounts(bench.broker)


def test_a_purge_leaves_what_comes_later() -> None:
    bench = Bench(engine_limits={"purge_step_max": 3})
    dead(bench, "a", 10)
    task = start(bench, PURGE)
    bench.sent("DLQ", b"later", b"later still", priority=9)
    bench.run()
    assert (task.state, task.progress.moved, bench.bodies("DLQ")) == (
        TaskState.COMPLETED,
        10,
        [b"later", b"later still"],
    )
    check_accounts(bench.broker)


@pytest.mark.parametrize("named", [True, False])
def test_a_step_writes_few_of_long_new_bodies(bench: Bench, named: bool) -> None:
    ids = tuple(message.id for message in dead(bench, "a", 10))
    task = start(bench, MOVE, target="attic", ids=ids if named else (), edit=Edit(body=bytes(400 << 10)))
    assert task.progress.moved == 2, "what a step may move, 1 MiB, counts them"
    bench.run()
    assert (task.state, task.progress.moved, task.progress.looked_at) == (TaskState.COMPLETED, 10, 10)
    assert (bench.bodies("attic"), task.progress.targets) == ([bytes(400 << 10)] * 10, {"attic": 10})


@pytest.mark.parametrize("limit", [3, 4096])
def test_a_queue_is_deleted_with_its_messages(limit: int) -> None:
    bench = Bench(engine_limits={"purge_step_max": limit})
    bench.sent("a", *(b"%d" % n for n in range(10)))
    task = done(bench, DELETE, "a")
    assert (task.state, task.progress.moved, "a" in bench.engine.queues) == (TaskState.COMPLETED, 10, False)
    assert deleted(bench, "a") == {RemovalReason.DELETED: 10}, "however many steps it takes"
    assert bench.engine.statistics.totals["purged"] == 0, "as the journal says"
    assert bench.broker.reported("queue.deleted") == [{"queue": "a", "messages": 10, "user": "ada"}]


def deleted(bench: Bench, name: str) -> Counter[RemovalReason]:
    """By which ways messages left a queue that was deleted."""
    found = accounts(bench.broker.files, journal_directory(bench.broker.config)).values()
    (account,) = [account for account in found if account.name == name]
    assert account.deleted
    assert not account.present
    return reasons(account)


def test_a_deletion_that_is_cancelled_leaves_the_queue_with_what_is_left() -> None:
    bench = Bench(engine_limits={"purge_step_max": 3})
    bench.sent("a", *(b"%d" % n for n in range(10)))
    task = start(bench, DELETE, "a")
    bench.engine.tasks.steer(task, TaskVerb.CANCEL)
    bench.run()
    assert (task.progress.moved, len(bench.bodies("a"))) == (3, 7)
    assert reasons(check_accounts(bench.broker)["a"]) == {RemovalReason.DELETED: 3}
    assert (bench.queue("a").left[RemovalReason.DELETED], bench.queue("a").counts["purged"]) == (3, 0)
    check_counters(bench.broker)


@pytest.mark.parametrize("kind", [RETRY, MOVE, PURGE, DELETE])
def test_a_dry_run_counts_and_changes_nothing(kind: TaskKind) -> None:
    bench = Bench(engine_limits={"move_step_max": 2})
    dead(bench, "a", 5)
    bench.enter().delete_queue(bench.queue("a"))
    before, queues = bench.bodies("DLQ"), set(bench.engine.queues)
    task = done(bench, kind, dry_run=True, target="attic" if kind is MOVE else "")
    assert (task.state, task.progress.moved, task.progress.refused) == (TaskState.COMPLETED, 5, {})
    assert (bench.bodies("DLQ"), set(bench.engine.queues)) == (before, queues)


def test_a_dry_run_refuses_what_the_move_would_refuse(bench: Bench) -> None:
    dead(bench, "a", 5)
    blue = NewQueue(
        name="picky",
        address="picky",
        routing_type=RoutingType.ANYCAST,
        filter=compile_filter("color = 'blue'"),
        make_address=True,
    )
    bench.enter().operators.make_queue(blue)
    foreseen = done(bench, MOVE, target="picky", dry_run=True).progress
    assert (foreseen.moved, foreseen.refused, bench.bodies("picky")) == (0, {"no-queue": 5}, [])
    assert done(bench, MOVE, target="picky", dry_run=True, edit=Edit(add={"color": "blue"})).progress.moved == 5
    with pytest.raises(OntoItself):
        start(bench, MOVE, target="DLQ", dry_run=True)
    with pytest.raises(InvalidName):
        start(bench, MOVE, target="many.#", dry_run=True)


@pytest.mark.parametrize(("target", "error"), [("elsewhere::there", NotFound), ("many.#::all", InvalidName)])
def test_a_dry_run_refuses_a_queue_that_the_move_would_refuse(
    bench: Bench, target: str, error: type[EngineError]
) -> None:
    dead(bench, "a", 1)
    bench.declare("there")
    bench.enter().configuration.declare("many.#", {RoutingType.MULTICAST})
    everything = NewQueue(name="all", address="many.#", routing_type=RoutingType.MULTICAST)
    bench.enter().operators.make_queue(everything)
    for dry_run in (True, False):
        with pytest.raises(error):
            start(bench, MOVE, target=target, dry_run=dry_run)


# -- how they are steered ----------------------------------------------------------------------------------------------


def test_a_rate_is_kept(bench: Bench) -> None:
    dead(bench, "a", 100)
    task = done(bench, RETRY, rate=20)
    assert task.progress.moved == 2, "a tenth of a second's worth at once"
    bench.broker.advance(1_000)
    assert 20 <= task.progress.moved <= 24
    bench.broker.advance(4_000)
    assert task.state is TaskState.COMPLETED


def test_a_rate_bounds_what_is_done_not_what_is_looked_at() -> None:
    bench = Bench(engine_limits={"move_step_max": 7})
    dead(bench, "a", 100)
    nothing = done(bench, RETRY, rate=1, filter="FALSE")
    assert (nothing.state, nothing.progress.looked_at) == (TaskState.COMPLETED, 100), "at once"
    bench.sent("DLQ", *(b"%d" % n for n in range(10)), priority=7)
    some = done(bench, PURGE, rate=20, filter="AMQPriority = 7")
    assert some.progress.moved == 2, "a tenth of a second's worth, behind all the others"
    bench.broker.advance(200)
    assert some.progress.moved in (4, 6)
    bench.broker.advance(300)
    assert (some.state, some.progress.moved, some.progress.looked_at) == (TaskState.COMPLETED, 10, 110)


def test_a_step_goes_on_where_its_rate_has_stopped_it(bench: Bench) -> None:
    ids = [message.id for message in dead(bench, "a", 10)]
    task = start(bench, RETRY, rate=30, filter="TRUE")
    assert (task.progress.moved, task.progress.looked_at, task.progress.last) == (3, 3, ids[2])


def test_a_rate_holds_over_a_pause(bench: Bench) -> None:
    dead(bench, "a", 100)
    task = done(bench, RETRY, rate=1)
    for _ in range(5):
        bench.enter().tasks.steer(task, TaskVerb.PAUSE)
        bench.enter().tasks.steer(task, TaskVerb.RESUME)
        bench.run()
    assert task.progress.moved == 1
    bench.broker.advance(1_000)
    assert task.progress.moved == 2


def test_a_rate_holds_up_no_dry_run(bench: Bench) -> None:
    dead(bench, "a", 100)
    for asked in ({}, {"filter": "TRUE"}):
        task = done(bench, PURGE, rate=1, dry_run=True, **asked)
        assert (task.state, task.progress.moved, len(bench.bodies("DLQ"))) == (TaskState.COMPLETED, 100, 100)


def test_a_task_is_paused_resumed_and_cancelled(bench: Bench) -> None:
    dead(bench, "a", 100)
    task = done(bench, RETRY, rate=20)
    bench.enter().tasks.steer(task, TaskVerb.PAUSE)
    bench.broker.advance(10_000)
    assert (task.state, task.progress.moved) == (TaskState.PAUSED, 2)
    bench.enter().tasks.steer(task, TaskVerb.RESUME)
    bench.broker.advance(1_000)
    moved = task.progress.moved
    assert moved > 2
    bench.enter().tasks.steer(task, TaskVerb.CANCEL)
    bench.broker.advance(10_000)
    assert (task.state, task.progress.moved, task.ended > task.created) == (TaskState.CANCELLED, moved, True)


@pytest.mark.parametrize("state", list(TaskState))
@pytest.mark.parametrize("verb", list(TaskVerb))
def test_only_some_verbs_fit_a_state(bench: Bench, state: TaskState, verb: TaskVerb) -> None:
    dead(bench, "a", 1)
    task = done(bench, RETRY)
    task.state = state
    if (state, verb) in STEERING:
        bench.enter().tasks.steer(task, verb)
        assert task.state is STEERING[state, verb]
    else:
        with pytest.raises(AlreadyInUse, match=f"is {state.value}: it cannot {verb.value}"):
            bench.enter().tasks.steer(task, verb)


def test_a_queue_that_goes_ends_its_task(bench: Bench) -> None:
    dead(bench, "a", 100)
    task = done(bench, RETRY, rate=20)
    bench.enter().delete_queue(bench.queue("DLQ"))
    bench.broker.advance(1_000)
    assert (task.state, task.why) == (TaskState.FAILED, "queue DLQ does not exist")
    (told,) = bench.broker.reported("task.failed")
    assert told["error"] == task.why


def test_another_queue_that_takes_the_name_is_left_alone(bench: Bench) -> None:
    dead(bench, "a", 100)
    task = done(bench, PURGE, rate=20)
    bench.enter().delete_queue(bench.queue("DLQ"))
    bench.sent("DLQ", b"new")
    bench.broker.advance(1_000)
    assert (task.state, task.why) == (TaskState.FAILED, "queue DLQ was deleted, and another one has its name")
    assert bench.bodies("DLQ") == [b"new"]


def test_a_full_journal_pauses_a_task_which_can_be_resumed() -> None:
    bench = Bench(running=EngineBroker(small(retained=False), files=SimFiles(capacity=100 << 10)))
    dead(bench, "a", 30, head=b"padding:%s\n" % (b"x" * 500))
    fill(bench, "b")
    bench.broker.files.capacity = 0  # other programs take the room that its steps free
    task = done(bench, RETRY)
    assert not bench.broker.reported("task.stuck"), "the steps before may yet make room"
    bench.broker.advance((FULL_TRIES_MAX + 1) * FULL_RETRY_MS)
    assert task.state is TaskState.PAUSED
    assert "no room" in task.why
    assert task.progress.refused == {}
    (stuck,) = bench.broker.reported("task.stuck")
    assert stuck == {"task": task.id, "kind": "retry", "queue": "DLQ", "error": task.why}
    bench.broker.files.capacity = None
    bench.broker.advance(60_000)
    bench.enter().tasks.steer(task, TaskVerb.RESUME)
    bench.broker.advance(60_000)
    assert (task.state, task.progress.moved, task.progress.refused) == (TaskState.COMPLETED, 30, {})


def test_on_a_full_journal_each_step_of_a_task_may_make_room_for_the_next() -> None:
    bench = Bench(running=EngineBroker(small(retained=False), files=SimFiles(capacity=100 << 10)))
    dead(bench, "a", 30, head=b"padding:%s\n" % (b"x" * 500))
    fill(bench, "b")
    task = done(bench, RETRY)
    assert not task.state.ended
    bench.broker.advance(5 * FULL_RETRY_MS)
    assert (task.state, task.progress.moved, task.progress.refused) == (TaskState.COMPLETED, 30, {})


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "more", "error"),
    [
        (RETRY, {"queue": "none"}, NotFound),
        (RETRY, {"filter": "a b"}, InvalidSelector),
        (RETRY, {"target": "attic"}, InvalidTask),
        (MOVE, {}, InvalidTask),
        (MOVE, {"target": "DLQ"}, OntoItself),
        (MOVE, {"target": "attic", "first_origin": True}, InvalidTask),
        (PURGE, {"edit": Edit(body=b"")}, InvalidTask),
        (RETRY, {"edit": Edit(add={"_AMQ_ORIG_QUEUE": "x"})}, InvalidEdit),
        (DELETE, {"ids": (1,)}, InvalidTask),
        (DELETE, {"filter": "TRUE"}, InvalidTask),
        (DELETE, {"rate": 1}, InvalidTask),
        (RETRY, {"ids": (1,), "filter": "TRUE"}, InvalidTask),
        (RETRY, {"ids": (1,), "group": {"reason": "rejected"}}, InvalidTask),
        (RETRY, {"group": {"color": "red"}}, InvalidTask),
        (RETRY, {"ids": tuple(range(1, IDS_MAX + 2))}, InvalidTask),
        (RETRY, {"rate": -1}, InvalidTask),
        (RETRY, {"rate": RATE_MAX + 1}, InvalidTask),
    ],
)
def test_impossible_tasks_are_refused(
    bench: Bench, kind: TaskKind, more: dict[str, Any], error: type[EngineError]
) -> None:
    dead(bench, "a", 1)
    asked = replace(request(kind), **more)
    with pytest.raises(error):
        bench.enter().tasks.start(asked)
    bench.run()
    assert bench.engine.tasks.all() == []
    assert len(bench.bodies("DLQ")) == 1


def test_the_limits_themselves_are_allowed(bench: Bench) -> None:
    dead(bench, "a", 1)
    assert done(bench, RETRY, ids=tuple(range(1, IDS_MAX + 1)), rate=RATE_MAX).state is TaskState.RUNNING


def test_so_many_tasks_may_run_and_so_many_ended_ones_are_kept(bench: Bench) -> None:
    dead(bench, "a", 100)
    running = [done(bench, RETRY, rate=1) for _ in range(ACTIVE_MAX)]
    with pytest.raises(TooManyTasks):
        start(bench, RETRY)
    for task in running:
        bench.enter().tasks.steer(task, TaskVerb.CANCEL)
    bench.run()
    last = [done(bench, PURGE, ids=(1,)) for _ in range(ENDED_KEPT)]
    assert bench.engine.tasks.all() == last[::-1]
    assert [task.id for task in bench.restart().engine.tasks.all()] == [task.id for task in last[::-1]]
    with pytest.raises(NotFound):
        bench.engine.tasks.task(running[0].id)


def test_of_many_places_the_first_are_told_apart(bench: Bench) -> None:
    for number in range(TARGETS_MAX + 2):
        dead(bench, f"q{number}", 1)
    task = done(bench, RETRY)
    assert task.progress.targets[OTHER_TARGETS] == 2
    assert sum(task.progress.targets.values()) == TARGETS_MAX + 2


# -- a restart ---------------------------------------------------------------------------------------------------------


def test_the_journal_has_all_of_a_task() -> None:
    asked = request(
        RETRY,
        filter="x = 1",
        group={"reason": "rejected", "hour": 3},
        first_origin=True,
        edit=Edit(("a",), {"b": 1, "c": "d"}, b"\0\xff"),
        dry_run=True,
        rate=7,
    )
    task = Task(5, asked, 1, TaskState.FAILED, 2, "why")
    task.progress.refused["no-queue"] = 1
    again = read_task(5, task.definition())
    assert (again.request, again.progress) == (asked, task.progress)
    assert (again.created, again.state, again.ended, again.why) == (1, TaskState.FAILED, 2, "why")
    named = Task(6, request(MOVE, ids=(1, 2), target="t"), 1)
    assert read_task(6, named.definition()).request == named.request


def test_the_journal_has_the_roles_of_a_token_but_not_those_of_a_user() -> None:
    of_token = Identity("ada", frozenset({"a", "b"}), lasting=True)
    for identity in (of_token, ADA, None):
        by = {"token": "management.token"} if identity is None else {"user": "ada"}
        task = Task(7, TaskRequest(kind=PURGE, queue="a", by=by, identity=identity), 1)
        again = read_task(7, task.definition()).request.identity
        assert again == identity
        assert getattr(again, "lasting", None) == getattr(identity, "lasting", None)


@pytest.mark.parametrize("crash", [True, False])
def test_a_task_goes_on_after_a_restart(bench: Bench, crash: bool) -> None:
    dead(bench, "a", 100)
    task = done(bench, RETRY, rate=20)
    paused = start(bench, PURGE, rate=1, ids=(1, 2))
    bench.enter().tasks.steer(paused, TaskVerb.PAUSE)
    bench.run()
    again = bench.restart(crash=crash)
    found = {each.id: each for each in again.engine.tasks.all()}
    assert found[paused.id].state is TaskState.PAUSED
    resumed = found[task.id]
    assert resumed.request == task.request
    again.broker.advance(10_000)
    assert (resumed.state, resumed.progress.moved) == (TaskState.COMPLETED, 100)
    assert len(again.bodies("a")) == 100
    check_accounts(again.broker)


def crashes(prepare: Callable[[Bench], object], kind: TaskKind, queue: str) -> Iterator[Bench]:
    """A task in steps of three messages: the power goes at each of its disk operations, and the next broker goes on.

    Some of these find that the task had made steps.
    """
    limits = {"move_step_max": 3, "purge_step_max": 3, "task_pending_max": 0}
    at = partly = 0
    while True:
        at += 1
        files = SimFiles(at)
        bench = Bench(running=EngineBroker(small(), files=files, engine_limits=limits))
        prepare(bench)
        files.plan(at, Fault.CRASH)
        with suppress(Crash):
            done(bench, kind, queue)
        if not files.faults:
            break
        files.crash()
        again = Bench(running=EngineBroker(small(), files=files, seed=1, engine_limits=limits))
        check_accounts(again.broker)
        yield again
        partly += bool(again.broker.reported("task.completed"))
    assert partly, "the power went while some were done"


@pytest.mark.parametrize("kind", [RETRY, PURGE])
def test_its_counts_are_exact_wherever_the_power_goes(kind: TaskKind) -> None:
    """The task says as many as have left the queue, and goes on to the end."""
    for again in crashes(lambda bench: dead(bench, "a", 20), kind, "DLQ"):
        tasks = again.engine.tasks.all()
        assert len(tasks) <= 1
        assert 20 - len(again.bodies("DLQ")) == sum(task.progress.moved for task in tasks) == 20 * len(tasks)
        assert all(task.state is TaskState.COMPLETED for task in tasks)


def test_a_deletion_leaves_the_queue_with_what_is_left_or_none_wherever_the_power_goes() -> None:
    for again in crashes(lambda bench: bench.sent("a", *(b"%d" % n for n in range(20))), DELETE, "a"):
        tasks = again.engine.tasks.all()
        if tasks:
            assert [(task.state, task.progress.moved) for task in tasks] == [(TaskState.COMPLETED, 20)]
            assert deleted(again, "a") == {RemovalReason.DELETED: 20}
        else:
            assert len(again.bodies("a")) == 20
