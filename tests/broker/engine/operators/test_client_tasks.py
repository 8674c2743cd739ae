"""Tasks whose steps a client makes: when it may, what is counted, and how they end."""

from __future__ import annotations

from typing import Any

import pytest

from broker.engine.model.access import Identity
from broker.engine.model.errors import InvalidTask, NotFound, TaskEnded, TooManyTasks
from broker.engine.model.task import Task, TaskKind, TaskRequest, TaskState, TaskVerb
from broker.engine.operators.tasks import ACTIVE_MAX, CLIENT_SILENCE_MS_MAX
from tests.broker.engine.engine_harness import Bench
from tests.simulation.world import check_accounts

EXPORT, IMPORT, REPLAY = TaskKind.EXPORT, TaskKind.IMPORT, TaskKind.REPLAY


def begun(bench: Bench, kind: TaskKind = EXPORT, **more: Any) -> Task:
    """A task that waits for its client's first call."""
    ada = Identity("ada", frozenset())
    about: dict[str, Any] = {"name": "again"} if kind.named else {"queue": "a"}
    task = bench.enter().tasks.start(TaskRequest(kind=kind, by={"user": "ada"}, identity=ada, **about, **more))
    bench.run()
    return task


def step(bench: Bench, task: Task, moved: int, **refused: int) -> None:
    """A call of its client has moved so many messages."""
    tasks = bench.enter().tasks
    assert tasks.may_step(task, task.request.kind)
    tasks.stepped(task, looked_at=moved + sum(refused.values()), moved=moved, refused=refused)
    bench.run()


def test_its_steps_are_counted_and_it_ends_when_its_client_says_so(bench: Bench) -> None:
    task = begun(bench, IMPORT, total=7, target="a")
    assert (task.state, task.progress.total) == (TaskState.RUNNING, 7)
    step(bench, task, 3)
    step(bench, task, 2, gone=1)
    bench.enter().tasks.end(task, "")
    bench.run()
    progress = task.progress
    assert (task.state, progress.moved, progress.looked_at, progress.refused) == (
        TaskState.COMPLETED,
        5,
        6,
        {"gone": 1},
    )
    about = {"task": task.id, "kind": "import", "name": "again"}
    assert bench.broker.reported("task.started") == [about | {"target": "a", "user": "ada"}]
    assert bench.broker.reported("task.completed") == [about | {"messages": 5, "refused": 1}]
    [restored] = bench.restart().engine.tasks.all()
    assert (restored.request, restored.state, restored.progress) == (task.request, task.state, progress)


def test_a_client_that_cannot_go_on_says_why(bench: Bench) -> None:
    task = begun(bench, REPLAY)
    bench.enter().tasks.end(task, "its disk is full")
    assert (task.state, task.why) == (TaskState.FAILED, "its disk is full")
    about = {"task": task.id, "kind": "replay", "name": "again", "messages": 0, "refused": 0}
    assert bench.broker.reported("task.failed") == [about | {"error": "its disk is full"}]


@pytest.mark.parametrize("kind", [EXPORT, IMPORT, REPLAY])
@pytest.mark.parametrize("crash", [True, False])
def test_it_ends_with_the_broker_and_says_how_far_it_was(bench: Bench, kind: TaskKind, *, crash: bool) -> None:
    bench.sent("a", b"1", b"2")
    task = begun(bench, kind)
    step(bench, task, 1)
    paused = begun(bench, kind)
    bench.enter().tasks.steer(paused, TaskVerb.PAUSE)
    bench.run()
    again = bench.restart(crash=crash)
    for restored in again.engine.tasks.all():
        assert (restored.state, restored.ended) == (TaskState.FAILED, again.broker.now)
        assert restored.why.startswith("the broker was restarted")
    assert again.engine.tasks.task(task.id).progress.moved == 1
    assert [found.state for found in again.restart().engine.tasks.all()] == [TaskState.FAILED] * 2


def test_it_fails_when_its_client_makes_no_call_for_long(bench: Bench) -> None:
    task = begun(bench, IMPORT)
    bench.broker.advance(CLIENT_SILENCE_MS_MAX - 1)
    step(bench, task, 1)
    bench.enter().tasks.steer(task, TaskVerb.PAUSE)
    bench.broker.advance(CLIENT_SILENCE_MS_MAX - 1)
    assert not bench.enter().tasks.may_step(task, IMPORT), "a client that waits is there"
    bench.broker.advance(CLIENT_SILENCE_MS_MAX - 1)
    assert task.state is TaskState.PAUSED
    bench.broker.advance(1)
    assert (task.state, task.why) == (TaskState.FAILED, "its client has made no call for 15 min")
    with pytest.raises(TaskEnded, match="is failed: its client has made no call"):
        bench.enter().tasks.may_step(task, IMPORT)


def test_no_step_is_made_while_it_is_paused_and_its_client_is_told_of_the_end(bench: Bench) -> None:
    task = begun(bench, IMPORT)
    told: list[TaskState] = []
    with bench.engine.tasks.watched(task, lambda: told.append(task.state)):
        for verb in (TaskVerb.PAUSE, TaskVerb.RESUME, TaskVerb.CANCEL):
            bench.enter().tasks.steer(task, verb)
            if verb is not TaskVerb.CANCEL:
                assert bench.enter().tasks.may_step(task, IMPORT) is (verb is TaskVerb.RESUME)
    assert told == [TaskState.PAUSED, TaskState.RUNNING, TaskState.CANCELLED]
    with pytest.raises(TaskEnded, match=f"task {task.id} is cancelled$"):
        bench.enter().tasks.may_step(task, IMPORT)
    bench.enter().tasks.stepped(task, looked_at=2, moved=1, refused={"no-queue": 1})
    assert (task.progress.looked_at, task.progress.moved) == (2, 1), "a step that its end has interrupted is counted"
    with pytest.raises(TaskEnded):
        bench.enter().tasks.end(task, "")


def test_a_rate_lets_its_client_wait(bench: Bench) -> None:
    task = begun(bench, IMPORT, rate=20)
    assert bench.engine.tasks.most(task) == 2
    told: list[int] = []
    with bench.engine.tasks.watched(task, lambda: told.append(bench.broker.now)):
        begin = bench.broker.now
        step(bench, task, 100)
        assert not bench.enter().tasks.may_step(task, IMPORT)
        bench.broker.advance(4_999)
        assert not bench.enter().tasks.may_step(task, IMPORT)
        bench.broker.advance(1)
        assert bench.enter().tasks.may_step(task, IMPORT)
        assert told == [begin + 5_000]


def test_an_export_removes_what_its_client_has() -> None:
    bench = Bench(engine_limits={"move_step_max": 2})
    ids = tuple(message.id for message in bench.sent("a", *(b"%d" % n for n in range(5))))
    task = begun(bench, remove=True)
    step(bench, task, 5)
    assert (task.progress.looked_at, task.progress.moved) == (5, 0)
    left = (*ids[:3], 9_999)
    while left:
        left = left[bench.enter().tasks.remove(task, left) :]
    bench.run()
    progress = task.progress
    assert (progress.looked_at, progress.moved, progress.refused) == (5, 3, {"gone": 1})
    assert bench.bodies("a") == [b"3", b"4"]
    check_accounts(bench.broker)


def test_a_call_that_is_no_step_of_it_is_refused(bench: Bench) -> None:
    bench.sent("a", b"1")
    task = begun(bench)
    with pytest.raises(InvalidTask, match=f"task {task.id} is not of kind import, but export"):
        bench.enter().tasks.may_step(task, IMPORT)
    with pytest.raises(InvalidTask, match="removes no messages"):
        bench.enter().tasks.remove(task, (1,))
    purge = bench.enter().tasks.start(TaskRequest(kind=TaskKind.PURGE, queue="a", rate=1, filter="FALSE"))
    with pytest.raises(InvalidTask, match="is run by the broker"):
        bench.enter().tasks.end(purge, "")
    bench.enter().operators.delete_queue(bench.queue("a"), with_messages=True)
    with pytest.raises(NotFound):
        bench.engine.tasks.queue_of(task)


def test_so_many_may_be_under_way_beside_those_of_the_broker(bench: Bench) -> None:
    bench.sent("a", b"1")
    for _ in range(ACTIVE_MAX):
        begun(bench, IMPORT)
    with pytest.raises(TooManyTasks, match="16 exports, imports and replays have not ended"):
        begun(bench)
    purge = bench.enter().tasks.start(TaskRequest(kind=TaskKind.PURGE, queue="a"))
    assert purge.state is TaskState.COMPLETED
