"""What the broker's words mean, for the pages on which they stand, and a page of all of them."""

from __future__ import annotations

from functools import cache

from starlette.responses import Response

from broker.console.asking import Refused
from broker.console.desk import Desk, Routes
from broker.console.visit import Visit
from broker.management.models.base import WORD_CHARS_MAX
from broker.reasons.find import find, suggest
from broker.reasons.reason import Kind, Reason
from broker.reasons.table import reasons


@cache
def _by_word() -> dict[tuple[Kind, str], Reason]:
    return {(each.kind, each.word): each for each in reasons()}


def reason(kind: Kind, word: str) -> Reason | None:
    """What a word of this kind means; None for one that the broker does not say."""
    return _by_word().get((kind, word))


class ReasonPages:
    """The page of one broker's."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def routes(self) -> Routes:
        """The pages."""
        return [("GET", "/explain", self.show, None)]

    async def show(self, visit: Visit) -> Response:
        """What a word, a number or a line of the log means; all dead-letter reasons if nothing is asked."""
        text = visit.text("q").strip()
        if len(text) > WORD_CHARS_MAX:
            raise Refused(400, "invalid-parameter", f"give a word or a line of at most {WORD_CHARS_MAX} characters")
        found = find(reasons(), text) if text else [each for each in reasons() if each.kind is Kind.DEAD_LETTER]
        context = {"q": text, "found": found, "near": [] if found else suggest(reasons(), text)}
        return self._desk.page(visit, "explain.html", context)
