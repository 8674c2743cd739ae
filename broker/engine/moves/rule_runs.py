"""Applies the rules for dead letters to the messages on dead-letter and expiry queues.

A queue is watched if its address is a dead-letter or expiry address of some address settings, and at least one rule may
cover it.  Temporary, internal and non-destructive queues are not watched.  Each tick makes one step, which examines as
many messages as one step of an operator's move, so other clients wait for one step at most:

    new letters   those with ids above the last one seen, once the queue is dirty: before they are dispatched, so
                  consumers get only what the rules leave
    due letters   those that a rule may act on later: their ids and times, some 25 bytes each, in batches of one step,
                  each scheduled for its earliest time

Steps of both kinds alternate, and each waits until the previous one is durable: rules that were faster than the disk
would occupy it completely and block clients.

Messages in delivery to consumers are left alone, and examined again once they have been returned.  A dead letter that
no rule will ever act on is not examined again.  When the rules change, when the clock jumps and when the broker starts,
all dead letters are examined again.

Each action is a move or a removal like an operator's, in one journal entry (promises P2, P3).  A retried message
carries its number of retries (`DL_RETRIES`), and a moved one its number of hops plus one, as for any death: rules that
form a loop end at `move.HOPS_MAX`.  Both have the rule's name (`DL_RULE`).
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from broker.engine.model import names
from broker.engine.model.access import Access, Identity, Security
from broker.engine.model.errors import EngineError, NotReadable
from broker.engine.model.message import (
    DL_HOPS,
    DL_ORIG_CLIENT,
    DL_ORIG_USER,
    DL_RETRIES,
    DL_RULE,
    Annotations,
    Message,
    RoutingType,
)
from broker.engine.model.timetable import Timetable
from broker.engine.moves import move, transfer
from broker.engine.moves.dead_letter_rules import (
    NEVER,
    Action,
    DeadLetter,
    DeadLetterRule,
    Fits,
    dead_letter,
    decide,
    retries,
)
from broker.engine.moves.move import Destination
from broker.engine.moves.transfer import MoveOptions, MoveResult
from broker.engine.queues import reading
from broker.engine.queues.paging.depage import RETRY_MS
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State
from broker.engine.queues.watcher import Watcher
from store.record import DeadLetterReason, RemovalReason

#: How long until a dead letter that was in delivery is examined again.
HELD_AGAIN_MS: Final = 10_000

#: How long until a move that was refused is tried again.
REFUSED_AGAIN_MS: Final = 60_000

#: How many dead letters a trial names per rule and outcome.
EXAMPLES_MAX: Final = 5

#: An id above all others.
_NO_ID: Final = 1 << 63

#: What a rule did with dead letters, by its action.
_DONE: Final = {Action.RETRY: "retried", Action.MOVE: "moved", Action.REPLY: "moved", Action.DISCARD: "discarded"}
REFUSED: Final = "refused"
OUTCOMES: Final = (*dict.fromkeys(_DONE.values()), REFUSED)


@dataclass(slots=True, eq=False)
class _Batch:
    """Letters of one queue and when each is due.  `fresh`: none of them has been examined yet."""

    queue: Queue
    ids: array[int]
    dues: array[int]
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The action that a rule (empty: none) would take on a dead letter, now or `later`."""

    rule: str
    action: Action
    later: bool


@dataclass(slots=True)
class Trial:
    """A dry run of rules on a queue: counts by verdict, the ids of a few, and the last id examined.

    `other`: the number of messages that are not dead letters; `complete`: whether all were examined.
    """

    counts: Counter[Verdict] = field(default_factory=Counter)
    examples: dict[Verdict, list[int]] = field(default_factory=dict)
    other: int = 0
    last: int = 0
    complete: bool = False


class DeadLetterRules(Watcher):
    """The rules of one broker.  `in_transactions` returns the ids of a queue's messages in open transactions."""

    def __init__(self, state: State, security: Security, in_transactions: Callable[[Queue], Iterable[int]]) -> None:
        self.rules: tuple[DeadLetterRule, ...] = ()
        #: Messages by outcome, for each rule since it exists, or since the start.
        self.done: dict[str, Counter[str]] = {}
        self._state = state
        self._security = security
        self._in_transactions = in_transactions
        self._keeping: frozenset[str] = frozenset()
        self._watched: dict[Queue, int] = {}  # the id of the last dead letter seen
        self._new: dict[Queue, None] = {}  # may have dead letters that have not been seen
        self._due: Timetable[int, _Batch] = Timetable()
        self._batches = 0
        self._looked_again = False
        self._last_entry = 0  # of the journal, when the last step was made
        state.registry.watchers.append(self)

    # -- which rules, which queues ---------------------------------------------------------------------------------

    def use(self, rules: Iterable[DeadLetterRule]) -> None:
        """Replace the rules, and examine all dead letters anew."""
        self.rules = tuple(rules)
        self.done = {rule.name: self.done.get(rule.name, Counter()) for rule in self.rules}
        self.start_over()

    def apply_settings(self) -> None:
        """Determine which queues to watch.  Call after a start and whenever settings have changed."""
        named = self._state.registry.settings_table.values("dead_letter_address", "expiry_address")
        self._keeping = frozenset([name for name in named if isinstance(name, str)])
        seen = self._watched
        addresses = self._state.addresses
        keeping = [addresses[name] for name in sorted(self._keeping) if name in addresses] if self.rules else []
        watched = [
            queue for address in keeping for queue in self._state.bindings.queues(address) if self.watches(queue)
        ]
        self._watched = {queue: seen.get(queue, 0) for queue in watched}
        self._new = {queue: None for queue in watched if queue in self._new or queue not in seen}
        if not seen:
            self._due = Timetable()

    def start_over(self) -> None:
        """Examine all dead letters anew: the clock has jumped, and their ages with it."""
        self._watched.clear()
        self.apply_settings()

    def name_pattern(self, match: str) -> Fits | None:
        """Return a test for names by a match as in address settings; None if it is empty.  Raises InvalidMatch."""
        return self._state.registry.settings_table.matcher(match) if match else None

    def check_target(self, name: str) -> None:
        """Check that a name is a valid target for moves, whether it exists or not.  Raises InvalidName."""
        names.check_target(name, self._state.syntax)

    def watches(self, queue: Queue) -> bool:
        """Whether a queue is to be watched under the current rules."""
        keeps = queue.address.name in self._keeping and not (queue.temporary or queue.internal or queue.non_destructive)
        return keeps and any(rule.covers(queue.name, is_copy=self._has_copies(queue)) for rule in self.rules)

    def _has_copies(self, queue: Queue) -> bool:
        """Whether a queue has copies of messages that another queue of its address has too."""
        multicast = queue.routing_type is RoutingType.MULTICAST
        return multicast and bool(self._state.bindings.targets(queue.address)[0])

    def queue_made(self, queue: Queue) -> None:
        if self.rules and self.watches(queue):
            self._watched[queue] = 0
            self._new[queue] = None

    def queue_gone(self, queue: Queue) -> None:
        self._watched.pop(queue, None)
        self._new.pop(queue, None)

    # -- the steps -------------------------------------------------------------------------------------------------

    def next_due(self) -> int | None:
        """When the next dead letter is due (ms since the epoch); None: none is, or the last step is not durable yet."""
        return None if not self._due or self._waits_for_disk() else self._due.next_due()

    def _waits_for_disk(self) -> bool:
        """Whether the last step is not durable yet; a tick follows when it is."""
        return self._last_entry > self._state.journal.durable

    def step(self) -> bool:
        """Apply the rules to some dead letters that are due or new.  Returns whether there is more to do at once.

        If there are rules, call it before the dirty queues are served.
        """
        self._notice()
        if self._waits_for_disk():
            return False
        batches = [] if self._new and self._looked_again else self._due.pop_due(self._state.now, 1)
        self._looked_again = bool(batches)
        if batches:
            self._look_again(batches[0])
        elif self._new:
            self._look_at_new(next(iter(self._new)))
        journal = self._state.journal
        self._last_entry = journal.ticket - 1 if journal.empty else journal.ticket
        due = self.next_due()
        return not self._waits_for_disk() and (bool(self._new) or (due is not None and due <= self._state.now))

    def _notice(self) -> None:
        """Mark the dirty queues: they may have new dead letters."""
        dirty, watched = self._state.dirty, self._watched
        if len(dirty) <= len(watched):
            self._new.update(dict.fromkeys([queue for queue in dirty if queue in watched]))
        else:
            self._new.update(dict.fromkeys([queue for queue in watched if queue in dirty]))

    def _look_at_new(self, queue: Queue) -> None:
        state = self._state
        seen = self._watched[queue]
        below = min([message.id for message in state.pending.landing_on(queue)], default=_NO_ID)
        try:
            run, complete = transfer.next_between(state, queue, seen, below)
        except NotReadable as error:
            state.report("paging.failed", queue=queue.name, error=str(error))
            del self._new[queue]
            state.alarms.at(("dead-letter-rules", queue.id), state.now + RETRY_MS, partial(self._once_more, queue))
            return
        end = below if complete else run[-1].id
        held = [id for id in self._held(queue) if seen < id < end]
        if complete:
            del self._new[queue]
        self._watched[queue] = max([seen, *[message.id for message in run[-1:]], *held])
        self._enter(queue, self._treat(queue, [(message, NEVER) for message in run]))
        self._enter(queue, [(id, state.now + HELD_AGAIN_MS) for id in held], fresh=True)

    def _held(self, queue: Queue) -> list[int]:
        """Return the ids of dead letters in delivery, including those settled in open transactions."""
        held = [id for deliveries in reading.deliveries(queue) for id in deliveries]
        return held if len(held) == queue.delivering else [*held, *self._in_transactions(queue)]

    def _once_more(self, queue: Queue) -> None:
        if queue in self._watched:
            self._new[queue] = None

    def _look_again(self, batch: _Batch) -> None:
        """Examine the dead letters of a batch that are due, and schedule the others again."""
        state, queue = self._state, batch.queue
        if queue not in self._watched:
            return
        due = {id: at for id, at in zip(batch.ids, batch.dues, strict=True) if at <= state.now}
        rest = [(id, at) for id, at in zip(batch.ids, batch.dues, strict=True) if id not in due]
        try:
            run, complete = transfer.next_between(state, queue, min(due) - 1, max(due) + 1)
        except NotReadable as error:
            state.report("paging.failed", queue=queue.name, error=str(error))
            self._enter(queue, rest + [(id, state.now + RETRY_MS) for id in due], fresh=batch.fresh)
            return
        reached = _NO_ID if complete else run[-1].id
        found = [(message, NEVER if batch.fresh else due[message.id] - 1) for message in run if message.id in due]
        self._enter(queue, rest + [(id, at) for id, at in due.items() if id > reached], fresh=batch.fresh)
        self._enter(queue, self._treat(queue, found))
        if queue.delivering:  # else missing ones are gone
            there = {message.id for message, _ in found}
            held = [id for id in due if id <= reached and id not in there]
            self._enter(queue, [(id, state.now + HELD_AGAIN_MS) for id in held], fresh=True)

    def _enter(self, queue: Queue, dead_letters: Sequence[tuple[int, int]], *, fresh: bool = False) -> None:
        """Schedule dead letters to be examined again, each at its time."""
        most = self._state.limits.move_step_max
        for at in range(0, len(dead_letters), most):
            some = dead_letters[at : at + most]
            ids, dues = array("q", [id for id, _ in some]), array("q", [due for _, due in some])
            self._batches += 1
            self._due.add(min(dues), self._batches, _Batch(queue, ids, dues, fresh))

    # -- applying the rules ----------------------------------------------------------------------------------------

    def _treat(self, queue: Queue, run: list[tuple[Message, int]]) -> list[tuple[int, int]]:
        """Apply the rules to dead letters, given with the time of their last examination.

        Returns the ids of those to be examined again, and when.
        """
        now = self._state.now
        is_copy = self._has_copies(queue)
        again: list[tuple[int, int]] = []
        chosen: dict[DeadLetterRule, list[DeadLetter]] = {}
        for message, looked in run:
            letter = dead_letter(queue.name, message, is_copy=is_copy)
            if letter is None:
                continue
            decision = decide(self.rules, letter, now, looked)
            if decision.act:
                assert decision.rule is not None, "a rule acts"
                chosen.setdefault(decision.rule, []).append(letter)
            elif decision.due is not None:
                again.append((message.id, decision.due))
        for rule, dead_letters in chosen.items():
            staying = set(self._do(rule, queue, [letter.message for letter in dead_letters]))
            dues = [
                (letter.message.id, self._after_refusal(rule, letter))
                for letter in dead_letters
                if letter.message in staying
            ]
            again += [(id, due) for id, due in dues if due is not None]
        again.sort()
        return again

    def _after_refusal(self, rule: DeadLetterRule, letter: DeadLetter) -> int | None:
        """Return when to examine a dead letter again that its rule could not move; None: never."""
        now = self._state.now
        if rule.action is not Action.RETRY:
            return now + REFUSED_AGAIN_MS
        decision = decide(self.rules, letter, now, now)
        return now + 1 if decision.act else decision.due  # for a later rule

    def _do(self, rule: DeadLetterRule, queue: Queue, run: list[Message]) -> list[Message]:
        """Carry out a rule's action.  Returns the dead letters that stay because it was refused."""
        state = self._state
        step = MoveResult(0, 0, True)
        staying: list[Message] = []
        if rule.action is Action.RETRY:
            staying = transfer.send_back(state, queue, run, step, MoveOptions(annotate=partial(_brought_back, rule)))
        elif rule.action is Action.DISCARD:
            staying = transfer.take_away(state, queue, run, step, RemovalReason.DISCARDED)
        else:
            staying = self._move(rule, queue, run, step)
        done = self.done[rule.name]
        about = {"rule": rule.name, "action": rule.action.value, "queue": queue.name}
        if step.moved:
            done[_DONE[rule.action]] += step.moved
            state.report("rule.applied", **about, messages=step.moved, first=run[0].id, last=run[-1].id)
        if staying:
            done[REFUSED] += len(staying)
            state.report("rule.refused", **about, messages=len(staying), reason=", ".join(step.refused))
        return staying

    def _move(self, rule: DeadLetterRule, queue: Queue, run: list[Message], step: MoveResult) -> list[Message]:
        state = self._state
        circling = [message for message in run if move.hops(message) >= move.HOPS_MAX]
        if circling:
            step.refused[DeadLetterReason.LINK_HOPS.word] = len(circling)
            run = [message for message in run if message not in circling]
        if not run:
            return circling
        options = MoveOptions(annotate=partial(_moved_on, rule))
        if rule.action is Action.REPLY:
            return circling + transfer.send_to_reply(state, queue, run, step, options, self._sender)
        try:
            target = transfer.destination(state, rule.to, queue)
        except EngineError as error:
            step.refused[error.code] = len(run)
            return circling + run
        wanted: list[transfer.Wanted] = [(message, target, rule.to) for message in run]
        return circling + transfer.send(state, queue, step, wanted, options)

    def _sender(self, message: Message) -> Access:
        """The present permissions of a dead letter's sender, which chose where it goes."""
        notes = message.header.annotations or {}
        user, client = str(notes.get(DL_ORIG_USER, "")), str(notes.get(DL_ORIG_CLIENT, ""))
        return self._security.access(Identity(user, frozenset()), client)

    # -- trials ----------------------------------------------------------------------------------------------------

    def attempt(self, queue: Queue, trial: Trial, rules: Sequence[DeadLetterRule] | None = None) -> None:
        """Add what rules (default: those in force) would do with the next step of a queue's messages, seen again.

        Changes nothing else.  Raises NotReadable.
        """
        rules = self.rules if rules is None else rules
        run, trial.complete = transfer.next_between(self._state, queue, trial.last, _NO_ID)
        for message in run:
            trial.last = message.id
            letter = dead_letter(queue.name, message, is_copy=self._has_copies(queue))
            if letter is None:
                trial.other += 1
                continue
            decision = decide(rules, letter, self._state.now)
            rule = decision.rule
            action = Action.LEAVE if rule is None else rule.action
            verdict = Verdict(rule.name if rule else "", action, not decision.act and decision.due is not None)
            trial.counts[verdict] += 1
            examples = trial.examples.setdefault(verdict, [])
            if len(examples) < EXAMPLES_MAX:
                examples.append(message.id)


def _brought_back(rule: DeadLetterRule, message: Message, queue: str, destination: Destination) -> Annotations:
    # Hops start again at 0: the number of retries is limited instead.
    annotations = transfer.annotations_for(message, queue, destination)
    annotations[DL_RETRIES] = retries(message) + 1
    annotations[DL_RULE] = rule.name
    return annotations


def _moved_on(rule: DeadLetterRule, message: Message, queue: str, destination: Destination) -> Annotations:
    annotations = transfer.moved_from(message, queue, destination)
    annotations[DL_HOPS] = move.hops(message) + 1
    annotations[DL_RULE] = rule.name
    return annotations
