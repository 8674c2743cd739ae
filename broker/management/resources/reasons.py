"""Reasons and codes: what every word means that the broker says, as `bartleby explain` tells it."""

from __future__ import annotations

from broker.engine.model.errors import NotFound
from broker.management.calls import Calls, anybody
from broker.management.models.base import Word
from broker.management.models.reasons import ReasonList, reasons_shown
from broker.reasons.find import find, suggest
from broker.reasons.table import reasons


def add_to(calls: Calls) -> None:
    """Declare the calls, which everybody who has logged in may make: they say nothing of this broker."""
    calls.add("GET", "/reasons", list_all, about=anybody)
    calls.add("GET", "/reasons/{word}", explain, about=anybody)


async def list_all() -> ReasonList:
    """All reasons and codes, by kind."""
    return reasons_shown(list(reasons()))


async def explain(word: Word) -> ReasonList:
    """What a word, a number, or a line that holds one means."""
    found = find(reasons(), word)
    if not found:
        near = suggest(reasons(), word)
        hint = f": did you mean {' or '.join(near)}?" if near else ""
        raise NotFound(f"nothing is known of {word[:100]!a}{hint}")
    return reasons_shown(found)
