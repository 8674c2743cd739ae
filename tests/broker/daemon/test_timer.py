"""When the engine is woken, by clocks that only the test moves."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from broker.daemon.timer import SECONDS_MAX, Timer


class Scene:
    """A timer, an event loop that stands still between the calls of `after`, and what is due."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.due: int | None = None
        self.woken: list[int] = []
        self._calls: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []
        loop: Any = SimpleNamespace(time=lambda: self.now_ms / 1000, call_at=self._call_at)
        self.timer = Timer(
            loop, lambda: self.due, lambda: self.woken.append(self.now_ms), lambda call: call(), lambda: self.now_ms
        )

    def _call_at(self, at: float, call: Callable[..., None], *given: Any) -> Any:
        entry = (at, call, given)
        self._calls.append(entry)
        return SimpleNamespace(cancel=lambda: self._calls.remove(entry))

    def set(self, due: int | None) -> None:
        """What is due first, in ms from now."""
        self.due = None if due is None else self.now_ms + due
        self.timer.set()

    def after(self, ms: int) -> None:
        """Let time pass."""
        until = self.now_ms + ms
        while self._calls and min(self._calls)[0] * 1000 <= until:
            entry = min(self._calls)
            self._calls.remove(entry)
            self.now_ms = round(entry[0] * 1000)
            entry[1](*entry[2])
        self.now_ms = until

    @property
    def waiting(self) -> int:
        """Calls that the event loop is to make."""
        return len(self._calls)


def test_it_sleeps_while_nothing_is_due() -> None:
    scene = Scene()
    scene.set(None)
    assert scene.waiting == 0


def test_it_wakes_for_what_is_due_and_never_at_once() -> None:
    scene = Scene()
    scene.set(-5)
    scene.after(0)
    assert not scene.woken
    scene.after(1)
    assert scene.woken == [1_000_001]
    assert scene.waiting == 0


def test_it_wakes_earlier_when_something_is_due_earlier() -> None:
    scene = Scene()
    scene.set(500)
    scene.set(100)
    assert scene.waiting == 1
    scene.after(500)
    assert scene.woken == [1_000_100]


def test_what_is_due_later_leaves_it_as_it_is() -> None:
    scene = Scene()
    scene.set(100)
    scene.due = 1_000_200
    scene.timer.set()
    scene.after(1_000)
    assert scene.woken == [1_000_200], "it looked at 100 ms and slept on"


def test_it_wakes_nobody_once_it_is_stopped() -> None:
    scene = Scene()
    scene.set(100)
    scene.timer.stop()
    assert scene.waiting == 0
    scene.timer.stop()
    scene.set(100)
    scene.after(100)
    assert scene.woken == [1_000_100]


def test_it_looks_at_the_wall_clock_now_and_then() -> None:
    scene = Scene()
    scene.set(3_600_000)
    scene.due = 1_000_000  # the clock was set
    scene.after(int(SECONDS_MAX * 1000))
    assert scene.woken == [1_001_000]
