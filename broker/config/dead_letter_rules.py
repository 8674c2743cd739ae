"""The section [[dead-letter-rules]]: what becomes of dead letters by itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field

from broker.config.section import Section
from broker.config.units import LARGEST, Milliseconds, duration
from broker.engine import AT_MOST_MAX, EVERY_MIN, REASONS, Action, DeadLetterRule, compile_filter
from broker.engine.model.names import WildcardSyntax
from broker.engine.model.settings_match import matcher

#: Characters of a rule's name: it is a label of metrics, and in the headers of every message that the rule moves.
NAME_CHARS_MAX: Final = 100


def _action(value: object) -> object:
    if isinstance(value, str) and value in list(Action):
        return Action(value)
    raise ValueError(f"give one of {', '.join(json.dumps(word) for word in Action)}")


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("give a name of printable characters: it is a header of messages")
    return name


def _reason(word: str) -> str:
    if word not in REASONS:
        raise ValueError(f"no such reason: give one of {', '.join(REASONS)}")
    return word


class RuleSection(Section):
    """What the broker does with dead letters by itself: the first rule that fits one, and is not spent, decides."""

    name: Annotated[str, Field(min_length=1, max_length=NAME_CHARS_MAX), AfterValidator(_printable)]
    """The rule's name, in metrics, the log, and the header _AMQ_DL_RULE."""
    action: Annotated[Action, BeforeValidator(_action)]
    """retry: back to where it died; move: to another address or queue; discard: remove it; leave: it stays."""
    queue: str = ""
    """The queues that the rule is for, as in the match of address-settings; empty: all that keep dead letters."""
    reasons: Annotated[tuple[Annotated[str, AfterValidator(_reason)], ...], Field(strict=False)] = ()
    """Why it died, as in _AMQ_DL_REASON: "max-deliveries", "rejected", "expired" and so on; empty: for any reason."""
    origin_address: str = ""
    """The addresses that it died on, as in the match of address-settings; empty: any."""
    origin_queue: str = ""
    """The queues that it died on, as in the match of address-settings; empty: any."""
    user: str = ""
    """The user that sent it; empty: any."""
    min_age: Milliseconds = 0
    """How long ago it must have died."""
    min_attempts: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    """How many of its deliveries must have failed."""
    selector: str = ""
    """Only dead letters that match this selector; empty: all."""
    every: Annotated[int, BeforeValidator(duration), Field(ge=EVERY_MIN, le=LARGEST)] = 60_000
    """retry: the time to the first attempt, unless min-age says it, and between attempts."""
    at_most: Annotated[int, Field(ge=1, le=AT_MOST_MAX)] = 3
    """retry: attempts for each message, counted over all rules; after them the next rule that fits decides."""
    to: str = ""
    """move: an address, a queue, or address::queue."""

    def rule(self, syntax: WildcardSyntax, literal_markers: str = "") -> DeadLetterRule:
        """The engine's rule.  Raises InvalidMatch, InvalidFilter."""

        def fits(match: str) -> Callable[[str], bool] | None:
            return matcher(match, syntax=syntax, literal_markers=literal_markers) if match else None

        return DeadLetterRule(
            name=self.name,
            action=self.action,
            queue=fits(self.queue),
            reasons=frozenset(self.reasons),
            origin_address=fits(self.origin_address),
            origin_queue=fits(self.origin_queue),
            user=self.user,
            min_age=self.min_age,
            min_attempts=self.min_attempts,
            selector=compile_filter(self.selector),
            every=self.every,
            at_most=self.at_most,
            to=self.to,
        )

    def without_effect(self) -> Iterator[str]:
        """The keys that are set though the action takes none of them."""
        takes = {Action.RETRY: ("every", "at_most"), Action.MOVE: ("to",)}.get(self.action, ())
        fields = type(self).model_fields
        others = [name for name in ("every", "at_most", "to") if name not in takes]
        yield from [name for name in others if getattr(self, name) != fields[name].default]
