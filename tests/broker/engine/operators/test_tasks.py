"""Tasks: many messages retried, moved, purged in steps that leave others their turn and survive a crash."""

from __future__ import annotations

from typing import Any

from broker.engine.model.message import Message
from broker.engine.model.task import Task, TaskKind, TaskRequest
from tests.broker.engine.engine_harness import Bench

RETRY, MOVE, PURGE, DELETE = TaskKind.RETRY, TaskKind.MOVE, TaskKind.PURGE, TaskKind.DELETE_QUEUE


def request(kind: TaskKind, queue: str = "DLQ", **more: Any) -> TaskRequest:
    """A task on the dead letters, started by an operator."""
    return TaskRequest(kind=kind, queue=queue, by={"user": "ada"}, **more)


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
    messages = bench.sent(name, *(b"%d" % number for number in range(n)), **more)
    taker = bench.take(name)
    bench.nack(taker, *messages, requeue=False)
    bench.close(taker, "closed")
    return [message for message, _ in bench.engine.messages.browse(bench.queue("DLQ"))]
