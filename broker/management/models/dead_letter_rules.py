"""Rules for dead letters as the API shows them: what they did, and what they would do."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from broker.engine import (
    AT_MOST_MAX,
    EVERY_MIN,
    OUTCOMES,
    REASONS,
    RULES_MAX,
    Action,
    DeadLetterRule,
    DeadLetterRules,
    Trial,
    parse_selector,
)
from broker.management.models.base import CURSOR_CHARS_MAX, ID_MAX, Body, Next, Shown, model_of

ActionName = Literal["retry", "move", "reply", "discard", "leave"]
ReasonName = Literal[
    "max-deliveries",
    "rejected",
    "expired",
    "queue-full",
    "too-large",
    "no-route",
    "not-authorised",
    "put-disabled",
    "link-hops",
    "decode-error",
]

assert set(ActionName.__args__) == set(Action)  # type: ignore[attr-defined]
assert set(ReasonName.__args__) == set(REASONS)  # type: ignore[attr-defined]

Milliseconds = Annotated[int, Field(ge=0, le=ID_MAX)]


class RuleShown(Shown):
    """A rule in force, and how many messages it handled since the start or since it was added."""

    name: str
    action: ActionName
    retried: int
    moved: int
    discarded: int
    refused: int = Field(description="Messages that could not be moved and stayed.")


class RuleList(Shown):
    """The rules in force, in order."""

    rules: list[RuleShown]
    queues: list[str] = Field(description="The queues of dead or expired messages that the caller manages.")


class Rule(Body):
    """A rule as in `[[dead-letter-rules]]` of the configuration; durations in milliseconds."""

    name: str = Field(min_length=1, description="Its name in the answer.")
    action: ActionName
    queue: str = Field("", description="The queues it applies to: a name or a pattern, as in address settings.")
    reasons: list[ReasonName] = Field([], description="Why the message died; empty: any reason.")
    origin_address: str = Field("", description="The address where it died: a name or a pattern.")
    origin_queue: str = Field("", description="The queue where it died: a name or a pattern.")
    user: str = Field("", description="The user who sent it.")
    min_age: Milliseconds = Field(0, description="The least time since it died.")
    min_attempts: int = Field(0, ge=0, le=ID_MAX, description="The least number of failed deliveries.")
    selector: str = Field("", description="Only messages that match this selector.")
    every: int = Field(60_000, ge=EVERY_MIN, le=ID_MAX, description="The time between attempts of a retry.")
    at_most: int = Field(3, ge=1, le=AT_MOST_MAX, description="The most attempts of a retry.")
    to: str = Field("", description="The target of a move: an address, a queue or ADDRESS::QUEUE.")

    def rule(self, rules: DeadLetterRules) -> DeadLetterRule:
        """The engine's rule.  Raises InvalidMatch, InvalidSelector, InvalidName."""
        if self.action == Action.MOVE.value:
            rules.check_target(self.to)
        other = {
            "action": Action(self.action),
            "queue": rules.name_pattern(self.queue),
            "reasons": frozenset(self.reasons),
            "origin_address": rules.name_pattern(self.origin_address),
            "origin_queue": rules.name_pattern(self.origin_queue),
            "selector": parse_selector(self.selector),
        }
        return DeadLetterRule(**dict(self) | other)


class Try(Body):
    """The rules to try, and where to continue."""

    rules: list[Rule] | None = Field(None, max_length=RULES_MAX, description="The rules to try; null: those in force.")
    after: str = Field("", max_length=CURSOR_CHARS_MAX, description="The `next` of the previous answer; empty: begin.")


class VerdictShown(Shown):
    """What one rule would do, and with how many messages."""

    rule: str | None = Field(description="The rule's name; null: no rule matches them.")
    action: ActionName
    later: bool = Field(description="true: not now, but once they are old enough or the next attempt is due.")
    messages: int
    examples: list[int] = Field(description="The ids of some of them.")


class Tried(Shown):
    """What rules would do with the messages of a queue; nothing was changed."""

    queue: str
    verdicts: list[VerdictShown]
    other: int = Field(description="Messages that have not died: rules do not apply to them.")
    next: Next


def rule_list(rules: DeadLetterRules, queues: list[str]) -> RuleList:
    """The rules in force."""
    shown = []
    for rule in rules.rules:
        counts = {outcome: rules.done[rule.name][outcome] for outcome in OUTCOMES}
        shown.append(model_of(RuleShown, rule, action=rule.action.value, **counts))
    return RuleList(rules=shown, queues=queues)


def tried(queue: str, trial: Trial, next: str | None) -> Tried:
    """What rules would do."""
    verdicts = [
        model_of(
            VerdictShown,
            verdict,
            rule=verdict.rule or None,
            action=verdict.action.value,
            messages=count,
            examples=trial.examples[verdict],
        )
        for verdict, count in trial.counts.items()
    ]
    return Tried(queue=queue, verdicts=verdicts, other=trial.other, next=next)
