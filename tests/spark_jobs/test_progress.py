"""The line on the terminal: what it says, and that it is nowhere else."""

from __future__ import annotations

from io import StringIO

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkStageInfo, StatusTracker
from rich.console import Console

from spark_jobs.progress import Progress


def _stage(number: int, tasks: int, done: int) -> SparkStageInfo:
    return SparkStageInfo(number, 0, "stage", tasks, 1, done, 0)


class Stages(StatusTracker):
    """A tracker that knows these stages; None: one that is forgotten already."""

    def __init__(self, *stages: SparkStageInfo | None) -> None:
        self.stages = stages

    def getActiveStageIds(self) -> list[int]:
        return list(range(len(self.stages)))

    def getStageInfo(self, stageId: int) -> SparkStageInfo | None:
        return self.stages[stageId]


class Ending(Stages):
    """A tracker whose Spark has gone."""

    def getActiveStageIds(self) -> list[int]:
        raise Py4JNetworkError("Answer from Java side is empty")


def _said(progress: Progress) -> str:
    console = Console(file=StringIO(), width=80)
    with console.capture() as captured:
        console.print(progress.render())
    return captured.get()


def test_the_words_and_the_tasks_of_all_stages() -> None:
    progress = Progress()
    progress.say("Reading 12 segments")
    assert "Reading 12 segments" in _said(progress)
    assert "tasks" not in _said(progress)
    progress.watch(Stages(_stage(0, 10, 4), None, _stage(2, 2, 1)))
    assert _said(progress).strip().endswith("5 of 12 tasks")
    progress.watch(None)
    assert "tasks" not in _said(progress)


def test_between_stages_and_at_the_end_there_are_no_tasks() -> None:
    progress = Progress()
    for tracker in (Stages(), Stages(None), Ending()):
        progress.watch(tracker)
        assert "tasks" not in _said(progress)


def test_it_fits_a_terminal() -> None:
    progress = Progress()
    progress.say("Looking for poison messages")
    progress.watch(Stages(_stage(0, 12_345, 6_789)))
    assert len(_said(progress).splitlines()) == 1


@pytest.mark.parametrize("terminal", [True, False])
def test_only_a_terminal_sees_it(terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    written = StringIO()
    progress = Progress(Console(file=written, force_terminal=terminal, width=80))
    with progress:
        progress.say("Working")
        print("a result")
    assert ("Working" in written.getvalue()) == terminal
    assert bool(written.getvalue()) == terminal
    assert capsys.readouterr() == ("a result\n", "")
    if terminal:
        assert written.getvalue().endswith("\x1b[2K"), "the line is gone"
