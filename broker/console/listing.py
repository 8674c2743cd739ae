"""Tables of very many rows: searched, sorted and paged on the server, in pieces between which others are served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest, nsmallest
from operator import itemgetter
from typing import Final, TypeVar

from broker.console.visit import ROWS, Visit

#: Names processed in one piece: some 2 ms.
PIECE: Final = 2_000

Thing = TypeVar("Thing")


@dataclass(frozen=True, slots=True)
class Table:
    """A page of a table: the names on it, how many match the search, and what was requested."""

    names: list[str]
    total: int
    page: int
    search: str
    sort: str
    down: bool

    @property
    def pages(self) -> int:
        """How many pages there are."""
        return max(-(-self.total // ROWS), 1)


async def table(
    visit: Visit,
    names: list[str],
    things: Mapping[str, Thing],
    columns: Mapping[str, Callable[[Thing], int]],
    text: Callable[[str], str] = str,
) -> Table:
    """A page of `names`, which are sorted; some of their `things` may be gone meanwhile.

    The request chooses the names that contain a text (`q`, searched in the `text` of a name), the column to sort by
    (`sort`; the largest first with `down`), and the page.
    """
    search, sort, down = visit.text("q").strip(), visit.text("sort"), visit.flag("down")
    if search:
        names = await _beside(names, lambda: _having(names, search, text))
    page = min(visit.page, max(-(-len(names) // ROWS), 1))
    start, end = (page - 1) * ROWS, page * ROWS
    total = len(names)
    if sort in columns:
        names = (await _sorted(names, things, columns[sort], end, down=down))[start:end]
    elif down:
        names = names[max(total - end, 0) : total - start][::-1]
    else:
        names = names[start:end]
    return Table(names, total, page, search, sort if sort in columns else "name", down)


def _having(names: list[str], search: str, text: Callable[[str], str]) -> list[str]:
    wanted = search.casefold()
    return [name for name in names if wanted in text(name).casefold()]


async def _beside(names: Sequence[str], work: Callable[[], list[str]]) -> list[str]:
    """Run `work` at once for few names, else off the event loop."""
    return work() if len(names) <= PIECE else await asyncio.to_thread(work)


async def _sorted(
    names: list[str], things: Mapping[str, Thing], column: Callable[[Thing], int], most: int, *, down: bool
) -> list[str]:
    """The first names by a column; equal ones stay in order."""
    rows: list[tuple[int, str]] = []
    for at in range(0, len(names), PIECE):
        if at:
            await asyncio.sleep(0)
        rows += [(column(things[name]), name) for name in names[at : at + PIECE] if name in things]
    choose = nlargest if down else nsmallest
    return await _beside(names, lambda: [name for _, name in choose(most, rows, key=itemgetter(0))])
