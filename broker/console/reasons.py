"""Explanations of the broker's words, for the pages that show them, and a page to look them up."""

from __future__ import annotations

from functools import cache

from starlette.responses import Response

from broker.console.desk import Pages, Routes
from broker.console.visit import Refused, Visit
from broker.management.models.base import WORD_CHARS_MAX
from broker.reasons.find import find, suggest
from broker.reasons.reason import Kind, Reason
from broker.reasons.table import reasons


@cache
def _by_word() -> dict[tuple[Kind, str], Reason]:
    return {(each.kind, each.word): each for each in reasons()}


def reason(kind: Kind, word: str) -> Reason | None:
    """The explanation of a word of this kind; None for a word that the broker does not use."""
    return _by_word().get((kind, word))


class ReasonPages(Pages):
    """The page that explains words."""

    def routes(self) -> Routes:
        """The pages."""
        return [("GET", "/explain", self.show, None)]

    async def show(self, visit: Visit) -> Response:
        """Explain a word, a number or a line of the log; without one, all dead-letter reasons."""
        text = visit.text("q").strip()
        if len(text) > WORD_CHARS_MAX:
            raise Refused(f"give a word or a line of at most {WORD_CHARS_MAX} characters")
        found = find(reasons(), text) if text else [each for each in reasons() if each.kind is Kind.DEAD_LETTER]
        context = {"q": text, "found": found, "near": [] if found else suggest(reasons(), text)}
        return self._desk.page(visit, "explain.html", context)
