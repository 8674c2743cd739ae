"""Rules for dead letters: decides what a table of rules does with a dead letter at a given time.  `rule_runs` does it.

The rules are tried in order; the first that fits a dead letter and has something left to do decides:

    retry     back to where it died, once every `every`, `at_most` so many times; then the rules after it are tried
    move      to an address or a queue
    reply     to the address that it names for answers, if it names one
    discard   removed, by name
    leave     it stays, whatever the rules after it say

A decision depends on the dead letter and the time, and on nothing else.  A dead letter is on a queue for dead or
expired messages, and its annotations say why and when it died: a message that a client sent there has not died, and no
rule fits it.  Its age is the time since it died, by the wall clock, because that is the time it carries.  If its
address has an anycast queue, the messages on subscriptions are copies, which must not be brought back too: only a rule
that names their queue fits them.

**Attempts.**  A dead letter that rules have brought back r times (`DL_RETRIES`) has at_most - r attempts left.
The first is due at the rule's `min_age`, or without one after `every`; the others follow in steps of `every`:

    died                first           first + every
    |---- min_age ------|---- every -----|---- ...       at most at_most - r of them

An attempt brings it back, or is refused because its old queue would not accept it.  Attempts come to an end in both
cases: the message carries the number of successful ones, and a refused one uses up its place in the series.
The time of the last look at a dead letter says which attempts are over.  After a restart that time is not known, and
the latest attempt that was due is made (again): even after a long stop no message is given up untried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from broker.engine.filter import Filter
from broker.engine.model.message import (
    DL_ATTEMPTS,
    DL_ORIG_USER,
    DL_REASON,
    DL_RETRIES,
    DL_TIME,
    ORIG_ADDRESS,
    ORIG_QUEUE,
    Annotations,
    Message,
    PropertyView,
)
from store.record import DeadLetterReason

#: The most rules of a table: each may be tried for each dead letter, which takes about a us.
RULES_MAX: Final = 256

#: The most attempts that a rule may ask for: a day's worth at one a minute.
AT_MOST_MAX: Final = 1_440

#: The least milliseconds between attempts: less would be a loop without a pause.
EVERY_MIN: Final = 100

#: The reasons for which messages die, without the one that the broker never gives: a rule for it would do nothing.
REASONS: Final = tuple([reason.word for reason in DeadLetterReason if reason.name != "ADMIN"])

#: The time of the last look at a dead letter that was never looked at.
NEVER: Final = -1


class Action(StrEnum):
    """The action of a rule on a dead letter."""

    RETRY = "retry"
    MOVE = "move"
    REPLY = "reply"
    DISCARD = "discard"
    LEAVE = "leave"


#: A test of a name.
Fits = Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeadLetterRule:
    """One rule.  A condition that is None, empty or 0 always holds.  Times in ms.

    queue, origin_address, origin_queue: where the dead letter is and where it died; user: who sent the message;
    min_attempts: its failed deliveries; every, at_most: for a retry; to: for a move, an address, a queue or an FQQN.
    """

    name: str
    action: Action
    queue: Fits | None = None
    reasons: frozenset[str] = frozenset()
    origin_address: Fits | None = None
    origin_queue: Fits | None = None
    user: str = ""
    min_age: int = 0
    min_attempts: int = 0
    selector: Filter | None = None
    every: int = 60_000
    at_most: int = 3
    to: str = ""

    def covers(self, queue: str, *, is_copy: bool) -> bool:
        """Whether the rule applies to dead letters on a queue."""
        return not is_copy if self.queue is None else self.queue(queue)

    def fits(self, letter: DeadLetter) -> bool:
        """Whether the rule applies to a dead letter, whatever the time."""
        return (
            (not self.reasons or letter.reason in self.reasons)
            and (not self.user or letter.user == self.user)
            and letter.attempts >= self.min_attempts
            and self.covers(letter.queue, is_copy=letter.is_copy)
            and (self.origin_address is None or self.origin_address(letter.address))
            and (self.origin_queue is None or self.origin_queue(letter.origin_queue))
            and (self.selector is None or self.selector.matches(PropertyView(letter.message)))
            and (self.action is not Action.REPLY or bool(letter.message.reply_to[0]))
        )


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter as the rules see it.

    queue: where it is; died: when, in ms; retries: how often rules brought it back; is_copy: another queue has it too.
    """

    queue: str
    message: Message
    reason: str
    died: int
    address: str = ""
    origin_queue: str = ""
    user: str = ""
    attempts: int = 0
    retries: int = 0
    is_copy: bool = False


def dead_letter(queue: str, message: Message, *, is_copy: bool = False) -> DeadLetter | None:
    """A message on a queue as the rules see it; None if it has not died."""
    notes = message.header.annotations
    if not notes or not isinstance(notes.get(DL_REASON), str) or not isinstance(notes.get(DL_TIME), int):
        return None
    return DeadLetter(
        queue,
        message,
        str(notes[DL_REASON]),
        int(notes[DL_TIME]),
        str(notes.get(ORIG_ADDRESS, "")),
        str(notes.get(ORIG_QUEUE, "")),
        str(notes.get(DL_ORIG_USER, "")),
        _number(notes, DL_ATTEMPTS),
        _number(notes, DL_RETRIES),
        is_copy,
    )


def _number(notes: Annotations, name: str) -> int:
    found = notes.get(name, 0)
    return found if isinstance(found, int) else 0


def retries(message: Message) -> int:
    """How often rules brought a message back."""
    return _number(message.header.annotations or {}, DL_RETRIES)


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about a dead letter.  rule: the one that decides, None: none does; act: do it now.

    due: when to look again (ms since the epoch); None: never, the decision will not change.
    """

    rule: DeadLetterRule | None
    act: bool
    due: int | None


def decide(rules: Sequence[DeadLetterRule], letter: DeadLetter, now: int, looked: int = NEVER) -> Decision:
    """The action that the rules take on a dead letter now; `looked`: when it was last looked at."""
    due: int | None = None
    for rule in rules:
        if not rule.fits(letter):
            continue
        ripe = letter.died + rule.min_age
        if ripe > now:
            due = _earlier(due, ripe)
            continue
        if rule.action is not Action.RETRY:
            return Decision(rule, rule.action is not Action.LEAVE, due)
        attempt = _next_attempt(rule, letter, now, looked)
        if attempt is None:
            continue
        if attempt <= now:
            return Decision(rule, True, due)
        return Decision(rule, False, _earlier(due, attempt))
    return Decision(None, False, due)


def _next_attempt(rule: DeadLetterRule, letter: DeadLetter, now: int, looked: int) -> int | None:
    """When the next attempt is due, perhaps in the past; None: there is none left."""
    left = rule.at_most - letter.retries
    if left <= 0:
        return None
    first = letter.died + (rule.min_age or rule.every)
    if now < first:
        return first
    over = min((now - first) // rule.every, left - 1)
    last = first + over * rule.every
    if looked < last:
        return last
    return last + rule.every if over + 1 < left else None


def _earlier(due: int | None, other: int) -> int:
    return other if due is None else min(due, other)


def unreached(rules: Iterable[DeadLetterRule]) -> tuple[DeadLetterRule, DeadLetterRule] | None:
    """The first rule that can never decide, and the one before it that fits everything; None if there is none."""
    everything: DeadLetterRule | None = None
    for rule in rules:
        if everything is not None and rule.queue is None:  # with a queue, it may be for copies
            return rule, everything
        asks = (rule.reasons, rule.user, rule.min_age, rule.min_attempts, rule.selector)
        passes_on = rule.action in (Action.RETRY, Action.REPLY)  # some letters reach the rules after it
        if not any((*asks, rule.queue, rule.origin_address, rule.origin_queue)) and not passes_on:
            everything = everything or rule
    return None
