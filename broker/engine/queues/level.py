"""Messages in the order of their ids, which is that of their arrival.

Most come at the end and leave at the head, but some are put in or taken out anywhere: messages that return, are due,
expire, or match a selector.  The order is kept in blocks, so that none of this depends on how many messages there are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Final

from broker.engine.model.message import Message

_ID: Final[Callable[[Message], int]] = attrgetter("id")

#: Messages of a new block.
BLOCK: Final = 512

#: The most messages of a block, before it is split.
BLOCK_MAX: Final = 2 * BLOCK


class Level:
    """Messages by id.  `blocks` has none that is empty; `lasts` are the ids of their last messages.

    `top` is the highest id that ever was here.
    """

    __slots__ = ("blocks", "lasts", "top")

    def __init__(self) -> None:
        self.blocks: list[list[Message]] = []
        self.lasts: list[int] = []
        self.top = -1

    def __iter__(self) -> Iterator[Message]:
        for block in self.blocks:
            yield from block

    def extend(self, run: list[Message]) -> None:
        """Add messages whose ids rise, all of them higher than those that are here."""
        blocks, lasts = self.blocks, self.lasts
        last = run[-1].id
        if last > self.top:
            self.top = last
        if blocks and len(blocks[-1]) + len(run) <= BLOCK_MAX:
            blocks[-1].extend(run)
            lasts[-1] = last
            return
        for at in range(0, len(run), BLOCK):
            block = run[at : at + BLOCK]
            blocks.append(block)
            lasts.append(block[-1].id)

    def insert(self, run: list[Message]) -> None:
        """Put in messages whose ids rise, wherever they belong."""
        blocks, lasts = self.blocks, self.lasts
        at = 0
        while at < len(run):
            where = bisect_left(lasts, run[at].id)
            if where == len(lasts):
                self.extend(run[at:])
                return
            end = bisect_right(run, lasts[where], at, key=_ID)
            block = blocks[where]
            if end - at == 1:
                block.insert(bisect_left(block, run[at].id, key=_ID), run[at])
            else:
                block += run[at:end]
                block.sort(key=_ID)
            if len(block) > BLOCK_MAX:
                pieces = [block[n : n + BLOCK] for n in range(0, len(block), BLOCK)]
                blocks[where : where + 1] = pieces
                lasts[where : where + 1] = [piece[-1].id for piece in pieces]
            at = end

    def find(self, id: int) -> Message | None:
        """The message with this id, if it is here."""
        where = bisect_left(self.lasts, id)
        if where == len(self.lasts):
            return None
        block = self.blocks[where]
        message = block[bisect_left(block, id, key=_ID)]
        return message if message.id == id else None

    def remove(self, id: int) -> bool:
        """Take out the message with this id; returns whether it was here."""
        where = bisect_left(self.lasts, id)
        if where == len(self.lasts):
            return False
        block = self.blocks[where]
        at = bisect_left(block, id, key=_ID)
        if block[at].id != id:
            return False
        del block[at]
        if not block:
            del self.blocks[where], self.lasts[where]
        elif at == len(block):
            self.lasts[where] = block[-1].id
        return True

    def remove_first(self, count: int) -> None:
        """Take out the first messages of the first block, which has so many."""
        block = self.blocks[0]
        if count == len(block):
            del self.blocks[0], self.lasts[0]
        else:
            del block[:count]

    def after(self, id: int) -> Iterator[Message]:
        """The messages with higher ids than this one; nothing may enter or leave meanwhile."""
        where = bisect_right(self.lasts, id)
        if where == len(self.lasts):
            return
        block = self.blocks[where]
        for at in range(bisect_right(block, id, key=_ID), len(block)):
            yield block[at]
        for number in range(where + 1, len(self.blocks)):
            yield from self.blocks[number]

    def between(self, after: int, below: int, most: int) -> list[Message]:
        """At most `most` messages with ids between these two, oldest first."""
        found: list[Message] = []
        for where in range(bisect_right(self.lasts, after), len(self.blocks)):
            block = self.blocks[where]
            first = 0 if block[0].id > after else bisect_right(block, after, key=_ID)
            end = len(block) if self.lasts[where] < below else bisect_left(block, below, key=_ID)
            found += block[first : min(end, first + most - len(found))]
            if end < len(block) or len(found) >= most:
                break
        return found
