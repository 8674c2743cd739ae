"""The section [[dead-letter-rules]]: how the broker handles dead letters automatically."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field

from broker.config.section import Section
from broker.config.units import LARGEST, Milliseconds, duration, word_of
from broker.engine import AT_MOST_MAX, EVERY_MIN, REASONS, Action, DeadLetterRule, compile_filter
from broker.engine.model.names import WildcardSyntax
from broker.engine.model.settings_match import matcher

#: Characters of a rule's name, which is a label of metrics and a header of every message that the rule moves.
NAME_CHARS_MAX: Final = 100


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("give a name of printable characters: it becomes a header of messages")
    return name


def _reason(word: str) -> str:
    if word not in REASONS:
        raise ValueError(f"no such reason: give one of {', '.join(REASONS)}")
    return word


class RuleSection(Section):
    """How the broker handles dead letters: the first rule that matches one, and has attempts left, applies."""

    name: Annotated[str, Field(min_length=1, max_length=NAME_CHARS_MAX), AfterValidator(_printable)]
    """The rule's name, in metrics, the log, and the header _AMQ_DL_RULE."""
    action: Annotated[Action, BeforeValidator(word_of(Action))]
    """retry: back to where it died; move: to another address; reply: to its reply-to; discard: remove it; leave it."""
    queue: str = ""
    """The queues that the rule is for, as in the match of address-settings; empty: all queues of dead letters."""
    reasons: Annotated[tuple[Annotated[str, AfterValidator(_reason)], ...], Field(strict=False)] = ()
    """Why it died, as in _AMQ_DL_REASON: "max-deliveries", "rejected", "expired" and so on; empty: any reason."""
    origin_address: str = ""
    """The addresses that it died on, as in the match of address-settings; empty: any."""
    origin_queue: str = ""
    """The queues that it died on, as in the match of address-settings; empty: any."""
    user: str = ""
    """The user who sent it; empty: any."""
    min_age: Milliseconds = 0
    """The least time since it died."""
    min_attempts: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    """The least number of its failed deliveries."""
    selector: str = ""
    """Only dead letters that match this selector; empty: all."""
    every: Annotated[int, BeforeValidator(duration), Field(ge=EVERY_MIN, le=LARGEST)] = 60_000
    """retry: the time before the first attempt, unless min-age is given, and between attempts."""
    at_most: Annotated[int, Field(ge=1, le=AT_MOST_MAX)] = 3
    """retry: attempts for each message, counted over all rules; after them the next rule that matches applies."""
    to: str = ""
    """move: an address, a queue, or address::queue."""

    def rule(self, syntax: WildcardSyntax, literal_markers: str = "") -> DeadLetterRule:
        """The engine's rule.  Raises InvalidMatch, InvalidFilter."""

        def fits(match: str) -> Callable[[str], bool] | None:
            return matcher(match, syntax=syntax, literal_markers=literal_markers) if match else None

        other = {
            "queue": fits(self.queue),
            "reasons": frozenset(self.reasons),
            "origin_address": fits(self.origin_address),
            "origin_queue": fits(self.origin_queue),
            "selector": compile_filter(self.selector),
        }
        return DeadLetterRule(**dict(self) | other)

    def without_effect(self) -> Iterator[str]:
        """The keys that are set but not used by the action."""
        takes = {Action.RETRY: ("every", "at_most"), Action.MOVE: ("to",)}.get(self.action, ())
        fields = type(self).model_fields
        others = [name for name in ("every", "at_most", "to") if name not in takes]
        yield from [name for name in others if getattr(self, name) != fields[name].default]
