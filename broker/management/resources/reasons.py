"""The calls that explain reasons and codes: what every word that the broker uses means, as in `bartleby explain`."""

from __future__ import annotations

from broker.engine.model.errors import NotFound
from broker.management.calls import Calls, anybody
from broker.management.models.base import Word
from broker.management.models.reasons import ReasonList, reasons_shown
from broker.reasons.find import find, suggest
from broker.reasons.table import reasons


def add_to(calls: Calls) -> None:
    """Declare the calls, open to any logged-in user: they reveal nothing about this broker."""
    calls.add("GET", "/reasons", list_all, authorize=anybody)
    calls.add("GET", "/reasons/{word}", explain, authorize=anybody)


async def list_all() -> ReasonList:
    """All reasons and codes, by kind."""
    return reasons_shown(list(reasons()))


async def explain(word: Word) -> ReasonList:
    """Explain a word, a number, or a log line that contains one."""
    found = find(reasons(), word)
    if not found:
        near = suggest(reasons(), word)
        hint = f": did you mean {' or '.join(near)}?" if near else ""
        raise NotFound(f"there is no code or word {word[:100]!a}{hint}")
    return reasons_shown(found)
