"""Rules for dead letters as the API has them: what they did, and what they would do."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from broker.engine import (
    AT_MOST_MAX,
    EVERY_MIN,
    REASONS,
    RULES_MAX,
    Action,
    DeadLetterRule,
    DeadLetterRules,
    Trial,
    parse_selector,
)
from broker.management.models.base import CURSOR_CHARS_MAX, ID_MAX, Body, Next, Shown

ActionName = Literal["retry", "move", "discard", "leave"]
ReasonName = Literal[
    "max-deliveries", "rejected", "expired", "too-large", "no-route", "put-disabled", "link-hops", "decode-error"
]

assert set(ActionName.__args__) == set(Action)  # type: ignore[attr-defined]
assert set(ReasonName.__args__) == set(REASONS)  # type: ignore[attr-defined]

Milliseconds = Annotated[int, Field(ge=0, le=ID_MAX)]


class RuleShown(Shown):
    """A rule in force, and to how many messages it did what, since the start or since it is there."""

    name: str
    action: ActionName
    retried: int
    moved: int
    discarded: int
    refused: int = Field(description="They could not be moved, and stayed.")


class RuleList(Shown):
    """The rules in force, in their order."""

    rules: list[RuleShown]
    queues: list[str] = Field(description="The queues that keep dead or expired messages, and that the caller manages.")


class Rule(Body):
    """A rule as `[[dead-letter-rules]]` of the configuration has it; durations in milliseconds."""

    name: str = Field(min_length=1, description="What the answer calls it.")
    action: ActionName
    queue: str = Field("", description="The queues that it is for: a name or a pattern, as in address settings.")
    reasons: list[ReasonName] = Field([], description="Why the message died; empty: for any reason.")
    origin_address: str = Field("", description="Where it died: a name or a pattern.")
    origin_queue: str = Field("", description="Where it died: a name or a pattern.")
    user: str = Field("", description="Who sent it.")
    min_age: Milliseconds = Field(0, description="How long ago it must have died.")
    min_attempts: int = Field(0, ge=0, le=ID_MAX, description="How many of its deliveries must have failed.")
    selector: str = Field("", description="Only messages that match this selector.")
    every: int = Field(60_000, ge=EVERY_MIN, le=ID_MAX, description="The time between attempts of a retry.")
    at_most: int = Field(3, ge=1, le=AT_MOST_MAX, description="Attempts of a retry.")
    to: str = Field("", description="Where a move goes: an address, a queue or address::queue.")

    def rule(self, rules: DeadLetterRules) -> DeadLetterRule:
        """The engine's rule.  Raises InvalidMatch, InvalidSelector, InvalidName."""
        if self.action == Action.MOVE.value:
            rules.check_target(self.to)
        return DeadLetterRule(
            name=self.name,
            action=Action(self.action),
            queue=rules.name_pattern(self.queue),
            reasons=frozenset(self.reasons),
            origin_address=rules.name_pattern(self.origin_address),
            origin_queue=rules.name_pattern(self.origin_queue),
            user=self.user,
            min_age=self.min_age,
            min_attempts=self.min_attempts,
            selector=parse_selector(self.selector),
            every=self.every,
            at_most=self.at_most,
            to=self.to,
        )


class Try(Body):
    """Which rules are to be tried, and where."""

    rules: list[Rule] | None = Field(None, max_length=RULES_MAX, description="null: those in force.")
    after: str = Field("", max_length=CURSOR_CHARS_MAX, description="Go on after what an answer gave as `next`.")


class VerdictShown(Shown):
    """What one rule would do with so many messages."""

    rule: str | None = Field(description="null: no rule fits them.")
    action: ActionName
    later: bool = Field(description="true: when the messages are old enough, or the next attempt is due.")
    messages: int
    examples: list[int] = Field(description="The ids of a few.")


class Tried(Shown):
    """What rules would do with messages of a queue; nothing was done."""

    queue: str
    verdicts: list[VerdictShown]
    other: int = Field(description="Messages that have not died: no rule fits them.")
    next: Next


def rule_list(rules: DeadLetterRules, queues: list[str]) -> RuleList:
    """The rules in force."""
    shown = [RuleShown(name=rule.name, action=_name(rule.action), **_counts(rules, rule.name)) for rule in rules.rules]
    return RuleList(rules=shown, queues=queues)


def _counts(rules: DeadLetterRules, name: str) -> dict[str, int]:
    counts = rules.done[name]
    return {outcome: counts[outcome] for outcome in ("retried", "moved", "discarded", "refused")}


def _name(action: Action) -> ActionName:
    found: ActionName = action.value
    return found


def tried(queue: str, trial: Trial, next: str | None) -> Tried:
    """What rules would do."""
    verdicts = [
        VerdictShown(
            rule=verdict.rule or None,
            action=_name(verdict.action),
            later=verdict.later,
            messages=count,
            examples=trial.examples[verdict],
        )
        for verdict, count in trial.counts.items()
    ]
    return Tried(queue=queue, verdicts=verdicts, other=trial.other, next=next)
