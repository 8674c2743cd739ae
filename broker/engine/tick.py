"""The tick: does what is due, seals the journal entry, and releases what waited for earlier entries to be durable.

In a tick the engine's driver calls `begin`, any number of verbs, and `end`.  When the journal announces that entries
are durable, it calls `durable`.  After either it tells those who wait for that (`confirmed`).  Nothing here waits or
sleeps; the time is read once a tick.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Final

from broker.engine.delivery import dispatch, redelivery
from broker.engine.delivery.transaction import Transactions
from broker.engine.model.message import Message
from broker.engine.model.timetable import NEVER
from broker.engine.moves import expiry
from broker.engine.queues import arrival
from broker.engine.queues.paging import tail_compaction
from broker.engine.queues.pending import FanOut, Waiter
from broker.engine.queues.queue import Queue
from broker.engine.queues.removal import settle_acknowledged
from broker.engine.queues.state import NO_WAY_BACK, State
from broker.engine.queues.steps import LongWork
from broker.engine.recovery import clock_changes
from broker.engine.recovery.cleaning import Cleaner
from broker.engine.routing import reaper
from broker.engine.watchers import Watchers

#: How many runs of messages land together on a queue, and on how many queues a run does; what each costs, in
#: microseconds, and how many messages one does.
_LANDING_TOGETHER: Final = 64
_LANDING_COST: Final = 5
_LANDED_FOR_A_MICROSECOND: Final = 16


def _interlaced(run: list[Message], following: list[Message]) -> bool:
    """Whether some of the following run came before the last of this one: a filter has divided what came together."""
    return following[0].id < run[-1].id


class Ticks:
    """Begins and ends the ticks of one engine."""

    def __init__(
        self,
        state: State,
        clock: Callable[[], int],
        cleaner: Cleaner,
        transactions: Transactions,
        watchers: Watchers,
    ) -> None:
        self._state = state
        self._clock = clock
        self._pending = state.pending
        self._cleaner = cleaner
        self._transactions = transactions
        self._watchers = watchers
        self._next_reap = state.now + state.limits.reaper_period
        self._reaping: Iterator[None] | None = None  # a scan in progress
        self._more = False
        #: The waiters to be told what is durable, each with the number of a tick.
        self.confirmed: dict[Waiter, int] = {}
        self._confirmed_later: dict[Waiter, int] = {}
        self._jumped = 0  # ms by which the wall clock was set since the start

    @property
    def number(self) -> int:
        """The number of the tick (`Work`)."""
        return self._pending.work.number

    def begin(self) -> None:
        """Begin a tick: read the clock, and grant the tick's budget."""
        self._state.now = self._clock()
        self._state.steps.refill()
        self.confirmed |= self._confirmed_later
        self._confirmed_later = {}

    def begin_verb(self) -> None:
        """Begin a verb: until it adds a record, it may fail harmlessly (`State.begin`)."""
        self._state.begin()
        if self._pending.held is not None:
            self._pending.held.begin_call(self._state.journal)

    def end_calls(self, transport: object) -> None:
        """Note that the calls since the last `begin_verb` were for this connection: it waits for what they recorded."""
        if self._pending.held is not None:
            self._pending.held.end_call(self._state.journal, transport)

    def begin_connection(self, transport: object) -> None:
        """Note that a client has logged in.  It may send again what it has sent before, which is not durable yet."""
        if self._pending.held is not None:
            self._pending.held.awaits(transport)

    @property
    def verb_has_changed(self) -> bool:
        """Whether the current verb may have made changes that an exception would not undo."""
        return self._state.mark == NO_WAY_BACK or self._state.mark != self._state.journal.position

    def on_fault(self, blame: Callable[[object, BaseException], None]) -> None:
        """Set the function called with an exception and the connection (transport) it belongs to, None: to none."""
        self._state.blame = blame

    def blame(self, transport: object, error: BaseException) -> None:
        """Report an exception that belongs to another connection than the one being served."""
        self._state.blame(transport, error)

    def begin_work(self, owner: Hashable, work: LongWork, transport: object) -> None:
        """Begin some work of a connection (`Steps.begin`); what the first steps raise is the caller's."""
        self._state.steps.begin(owner, work, transport)

    def add_work(self, owner: Hashable, work: LongWork, transport: object) -> None:
        """Begin some work of a connection at the end of the tick (`Steps.add`)."""
        self._state.steps.add(owner, work, transport)

    def spend(self, cost: int) -> bool:
        """Spend some of the tick's budget for a verb that is part of a long list; whether any is left (`Steps`)."""
        return self._state.steps.spend(cost)

    @property
    def left(self) -> int:
        """What is left of the tick's budget, in microseconds; it may be less than nothing."""
        return self._state.steps.measure()

    @property
    def exhausted(self) -> bool:
        """Whether the tick's budget is used up: what can wait goes on in the next tick."""
        return self._state.steps.measure() <= 0

    @property
    def is_working(self) -> bool:
        """Whether any work goes on in steps in the next ticks."""
        return bool(self._state.steps)

    def end(self) -> None:
        """Do what is due, serve the queues, seal the journal entry."""
        state, pending = self._state, self._pending
        if pending.held is not None:
            pending.held.begin_call(state.journal)
        goes_on = pending.disk_has_announced or not pending.disk_is_busy
        more = self._run_due(goes_on) | self._continue_work()
        if pending.held is not None:
            pending.held.absorb(state.journal)
        settle_acknowledged(state)
        self._more = more | self._apply_rules()
        self._watchers.notifications.flush()
        dispatch.dispatch(state)
        pending.disk_has_announced = False
        if pending.held is None:
            pending.seal()
        else:
            pending.seal_overtaking()
            pending.held.absorb(state.journal)
        if state.full_reported and state.journal.accepting:
            state.full_reported = False
        # The disk may have been quicker than the tick: durability announced meanwhile is not announced again.
        if pending.is_landing or (pending.waiting and pending.waiting[0].ticket <= state.journal.durable):
            state.steps.ensure(state.steps.budget_min)
            self.durable(state.journal.durable)

    @property
    def has_more(self) -> bool:
        """Whether another tick must follow the one that has ended at once."""
        state, pending = self._state, self._pending
        if self._more or state.dirty or state.unreached or state.dirty_later or pending.is_landing:
            return True
        if self._confirmed_later:
            return True
        return bool(state.steps) and not self._disk_is_busy  # begun at the end of the tick

    def _run_due(self, goes_on: bool) -> bool:
        """Do what is due; True if there is more to do at once.

        Not goes_on: what adds to the journal waits.  Else it adds a little even to a busy disk: no disk, and no
        database, stops it for ever by being busy with others.
        """
        state, schedule = self._state, self._state.schedule
        more, any_due = False, schedule.soonest.at <= state.now
        if any_due:
            state.steps.ensure(state.steps.budget_min)
            if schedule.scheduled.is_due(state.now):
                more = redelivery.release_due(state)
            if schedule.paged_scheduled.is_due(state.now):
                more |= redelivery.release_paged(state)
            more |= state.alarms.run(state.now, state.steps, self._ring)
        self._transactions.time_out()
        return more | (goes_on and self._write_due(any_due))

    def _write_due(self, any_due: bool) -> bool:
        """Do what is due and adds to the journal; True if there is more, and the disk is not busy with it.

        `any_due`: whether any timetable may have something that is due.
        """
        state, schedule = self._state, self._state.schedule
        more = False
        if any_due:
            if schedule.expires and schedule.expiries.is_due(state.now):
                more |= expiry.expire_due(state)
            if schedule.expires and schedule.paged_expiries.is_due(state.now):
                more |= expiry.expire_paged(state)
            more |= schedule.session_alarms.run(state.now, state.steps, self._ring, lambda: self._pending.disk_is_busy)
        if state.limits.reaper_period > 0 and state.now >= self._next_reap:
            self._next_reap = state.now + state.limits.reaper_period
            if self._reaping is None:
                self._reaping = reaper.scan(state)
        if self._reaping is not None:
            if next(self._reaping, self) is self:
                self._reaping = None
            else:
                more = True
        self._cleaner.step()
        return more and not self._pending.disk_is_busy

    def _continue_work(self) -> bool:
        """Continue what was begun in earlier ticks; True if there is more to do at once.

        While much waits for the disk, which others need too, it continues once for each announcement of the disk.
        """
        state = self._state
        if not state.steps:
            return False
        if self._pending.disk_has_announced or not self._disk_is_busy:
            state.steps.run(self._step)
        return bool(state.steps) and not self._disk_is_busy

    @property
    def _disk_is_busy(self) -> bool:
        journal = self._state.journal
        return journal.pending_bytes > self._state.limits.task_pending_max and not journal.held

    def _begin_own_call(self) -> None:
        """Begin a call that no client has made: none waits for what the tick itself has recorded before it."""
        self._state.begin()
        if self._pending.held is not None:
            self._pending.held.absorb(self._state.journal)

    def _step(self, work: LongWork, transport: object) -> int | None:
        """Make a step of some work; a step that fails is its last."""
        self._begin_own_call()
        try:
            return next(work, None)
        except BaseException as error:
            self._state.blame(transport, error)
            return None
        finally:
            self.end_calls(transport)

    def _apply_rules(self) -> bool:
        """Make a step of the rules for dead letters; a bug there disables the rules but does not end the tick."""
        rules, state = self._watchers.dead_letter_rules, self._state
        if not rules.rules:
            return False
        before = state.mark
        state.begin()
        try:
            return rules.step()
        except BaseException as error:
            rules.use(())
            state.report("rule.failed")
            state.blame(None, error)
            return False
        finally:
            state.mark = before  # belongs to the last verb of this tick

    def _ring(self, call: Callable[[], None]) -> None:
        """Make the call of an alarm; a call that fails is not repeated."""
        self._begin_own_call()
        try:
            call()
        except BaseException as error:
            self._state.blame(None, error)

    def next_due(self) -> int | None:
        """When `end` must run next if nothing else happens (ms since the epoch), or None.

        What a busy disk holds back goes on once that has announced something, which begins a tick.
        """
        state, busy = self._state, self._pending.disk_is_busy
        soonest = state.schedule.soonest
        if soonest.at <= state.now or busy:
            soonest.at = state.schedule.next_due(writing=not busy)
        due = soonest.at
        others = [self._transactions.next_due(), self._watchers.dead_letter_rules.next_due()]
        if busy:
            soonest.at = 0  # ask them again
        else:
            others.append(self._cleaner.next_due())
            if state.limits.reaper_period > 0:
                others.append(self._next_reap)
        for time in others:
            if time is not None and time < due:
                due = time
        return None if due == NEVER else due

    def durable(self, ticket: int) -> None:
        """Release everything that waited for the journal to be durable up to `ticket`.  Call within a tick."""
        state, pending = self._state, self._pending
        pending.disk_has_announced = True
        if pending.held is not None:
            pending.held.begin_call(state.journal)
        landed = pending.landed
        while pending.waiting and pending.waiting[0].ticket <= ticket:
            work = pending.waiting.popleft()
            for queues, messages, page in work.landing:
                queue = queues[0]
                if len(queues) == 1 and not (queue.fanned or queue.behind):
                    runs = landed.get(queue)
                    if runs is None:  # as a rule there is one: so it is no deque, which takes ten times as much
                        landed[queue] = [messages]
                    else:
                        runs.append(messages)
                    continue
                queue.behind += len(queues) == 1
                pending.fans.append(FanOut(work.number, queues, messages, page))
            for chunk, rows in work.copied:
                tail_compaction.settled(chunk, rows)
            for held in work.held:
                dispatch.release(state, held)
            unfinished = pending.unfinished
            waiters = [each for each in work.waiters if not (unfinished and unfinished.postpone(each))]
            self.confirmed |= dict.fromkeys(waiters, work.number)
        self._land()
        if pending.held is not None:
            pending.held.absorb(state.journal)

    def _land(self) -> None:
        """Let what is durable land, as far as the budget goes; queues take turns, and with them what is for many."""
        state, pending = self._state, self._pending
        while pending.landed or pending.fans:
            if pending.landed:
                self._land_some(*pending.landed.popitem(last=False))
            if pending.fans:
                self._fan_out(pending.fans[0])
            if state.steps.left <= 0:
                return

    def _land_some(self, queue: Queue, runs: list[list[Message]]) -> None:
        """Let runs land on a queue."""
        state, pending, landed = self._state, self._pending, 0
        while landed < len(runs):
            messages = runs[landed]
            landed += 1
            if not queue.deleted:
                queue.landing -= len(messages)
                arrival.land(state, queue, messages)
            left = state.steps.spend(_LANDING_COST + len(messages) // _LANDED_FOR_A_MICROSECOND)
            if left and landed < _LANDING_TOGETHER:
                continue
            if landed == len(runs) or not _interlaced(messages, runs[landed]):
                break
        if landed < len(runs) and not queue.deleted:
            pending.landed[queue] = runs[landed:]  # behind the others

    def _fan_out(self, fan: FanOut) -> None:
        """Let a run land on some of many queues, behind what has still to land on them."""
        state, pending, messages = self._state, self._pending, fan.messages
        cost = _LANDING_COST + len(messages) // _LANDED_FOR_A_MICROSECOND
        for queue in fan.queues[fan.landed : fan.landed + _LANDING_TOGETHER]:
            earlier = pending.landed.pop(queue, None)
            if earlier is not None:
                self._land_some(queue, earlier)
                if queue in pending.landed:
                    break
            fan.landed += 1
            if not queue.deleted:
                arrival.land_from(state, fan, queue)
            if not state.steps.spend(cost):
                break
        if fan.landed == len(fan.queues):
            pending.fans.popleft()
            pending.paging -= fan.page is not None

    def take_confirmed(self) -> dict[Waiter, int]:
        """Return those to be told now, and forget them."""
        confirmed, self.confirmed = self.confirmed, {}
        return confirmed

    def confirm_later(self, waiter: Waiter, number: int) -> None:
        """Tell a waiter in the next tick again what is durable: it has much to confirm."""
        self._confirmed_later[waiter] = number

    def confirmation(self, waiter: Waiter) -> int:
        """The number of the tick that must be durable before everything done so far may be confirmed; 0 if none.

        The waiter is among `confirmed` then.
        """
        state, pending = self._state, self._pending
        held = pending.held
        if held is not None:
            held.end_call(state.journal, waiter.transport)
        settle_acknowledged(state)
        if pending.unfinished and pending.unfinished.postpone(waiter):
            return pending.work.number
        if held is not None:
            held.end_call(state.journal, waiter.transport)
        sealed = pending.waiting[-1].ticket if pending.waiting else state.journal.durable
        if held is not None and not held.is_awaited_by(waiter.transport):
            work = pending.overtaking
        elif not state.journal.empty or state.journal.ticket - 1 > sealed:  # open, or sealed within this tick
            work = pending.work
        else:
            work = None
        if work is None and pending.waiting:
            work = pending.waiting[-1]
        if work is None:
            return 0
        work.waiters[waiter] = None
        return work.number

    def clock_jumped(self, jump: int) -> None:
        """Shift all lengths of time after the wall clock has jumped by `jump` ms.  Call as a tick begins."""
        self._state.report("clock.jumped", milliseconds=jump)
        self._state.schedule.clock_jumped(jump)
        self._next_reap += jump
        self._jumped += jump
        self._cleaner.clock_jumped(jump)
        self._watchers.slow.clock_jumped()
        self._watchers.dead_letter_rules.start_over()
        self._transactions.clock_jumped(jump)
        clock_changes.follow(self._state, jump)

    def since(self, start: int) -> int:
        """The ms since the start of the broker, at `start` by the clock of then, however that was set meanwhile."""
        return self._state.now - start - self._jumped
