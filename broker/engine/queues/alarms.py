"""Alarms: calls at a given time, for events other than a message's (a will is due, a session expires)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from broker.engine.model.timetable import Soonest, Timetable
from broker.engine.queues.steps import Steps

#: What an alarm costs at least.
CALL_COST: Final = 20

#: The most calls in one run.
CALLS_MAX: Final = 512

#: The call that an alarm makes.
Call = Callable[[], None]


@dataclass(slots=True, eq=False)
class _Alarm:
    key: Hashable
    due: int
    call: Callable[[], None]


class Alarms:
    """Calls by due time, one for each key.  Times in ms since the epoch.  `soonest`: see `Timetable`."""

    __slots__ = ("_due", "_set", "_soonest", "_times")

    def __init__(self, soonest: Soonest | None = None) -> None:
        self._soonest = soonest
        self._set: dict[Hashable, _Alarm] = {}
        self._times: Timetable[Hashable, _Alarm] = Timetable(soonest)
        self._due: deque[_Alarm] = deque()  # those of the present run, and what its budget did not allow

    def __len__(self) -> int:
        return len(self._set)

    def at(self, key: Hashable, due_ms: int, call: Callable[[], None]) -> None:
        """Call within the first tick that is not before `due_ms`; replaces any alarm under this key."""
        self.cancel(key)
        alarm = self._set[key] = _Alarm(key, due_ms, call)
        self._times.add(due_ms, key, alarm)

    def is_set(self, key: Hashable) -> bool:
        """Whether an alarm is set under this key."""
        return key in self._set

    def cancel(self, key: Hashable) -> bool:
        """Cancel an alarm; False if none was set under this key."""
        alarm = self._set.pop(key, None)
        if alarm is None:
            return False
        self._times.remove(alarm.due, key)
        return True

    def move(self, by_ms: int) -> None:
        """Shift all alarms after the clock has jumped."""
        alarms = list(self._set.values())
        self._times = Timetable(self._soonest)
        self._due.clear()
        for alarm in alarms:
            alarm.due += by_ms
            self._times.add(alarm.due, alarm.key, alarm)

    def next_due(self) -> int | None:
        """When the next call is due, or None."""
        return self._due[0].due if self._due else self._times.next_due()

    def run(
        self,
        now: int,
        steps: Steps,
        ring: Callable[[Call], None] = lambda call: call(),
        enough: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Have `ring` make the calls that are due, earliest first, one at least; True if any are left.

        It ends when the budget is used up, or it is `enough`.
        A call spends what it costs beyond `CALL_COST`.  It may cancel alarms, also those due in the same run;
        those that it sets are called in a later run.
        """
        if not self._due:
            self._due.extend(self._times.pop_due(now, CALLS_MAX))
        while self._due:
            alarm = self._due.popleft()
            if self._set.get(alarm.key) is not alarm:
                continue  # cancelled by an earlier call
            del self._set[alarm.key]
            ring(alarm.call)
            if not steps.spend(CALL_COST) or enough():
                break
        next_due = self.next_due()
        return next_due is not None and next_due <= now
