"""The progress line on the terminal while Spark works; it disappears at the end.

Spark's own progress bar starts only with the first stage (half of a short audit is the start of Spark and planning),
leaves remains on the screen, and is also written to files and pipes.  Therefore, rich draws the line, and queries
Spark's status tracker each time.  Nothing is written unless the console is a terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from pyspark import StatusTracker

#: How often per second the line is drawn: it looks alive, and querying Spark (a few ms) has no noticeable cost.
DRAWN_PER_SECOND: Final = 5

#: Width of the bar in characters: together with the text, the line fits into 80 characters.
BAR_WIDTH: Final = 30


class Progress(Live):
    """The progress line.  `say` changes its text; `watch` adds the tasks of the running stages."""

    def __init__(self, console: Console | None = None) -> None:
        console = console or Console(stderr=True)
        self._tracker: StatusTracker | None = None
        self._spinner = Spinner("dots")
        self._words = ""
        super().__init__(
            get_renderable=self.render,
            console=console,
            auto_refresh=console.is_terminal,
            refresh_per_second=DRAWN_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def say(self, words: str) -> None:
        """Show what is being done, worded as a sentence without a full stop."""
        self._words = words

    def watch(self, tracker: StatusTracker | None) -> None:
        """Show the tasks of this tracker; None: show none."""
        self._tracker = tracker

    def render(self) -> RenderableType:
        """The current line."""
        done, tasks = self._tasks()
        line = Table.grid(padding=(0, 1))
        cells: list[RenderableType] = [self._spinner, Text(self._words)]
        if tasks:
            cells += [ProgressBar(tasks, done, width=BAR_WIDTH), Text(f"{done} of {tasks} tasks")]
        line.add_row(*cells)
        return Group(line)

    def _tasks(self) -> tuple[int, int]:
        """The numbers of completed tasks and of all tasks of the running stages."""
        tracker = self._tracker
        if tracker is None:
            return 0, 0
        try:
            found = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        except (Py4JError, OSError):  # Spark is ending
            return 0, 0
        stages = [stage for stage in found if stage is not None]
        return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
