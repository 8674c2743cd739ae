"""Inputs out of valid ones, by chance: cut, joined, doubled, with wrong bytes and pieces worth putting in."""

from __future__ import annotations

from random import Random
from typing import Final

#: Numbers at which readers go wrong, in the sizes that protocols have.
_NUMBERS: Final = [
    number.to_bytes(size)
    for size in (1, 2, 4, 8)
    for number in (0, 1, (1 << 8 * size - 1) - 1, 1 << 8 * size - 1, (1 << 8 * size) - 1)
]


class Mutator:
    """Makes inputs of at most so many bytes; the same ones for the same seed."""

    def __init__(self, random: Random, seeds: list[bytes], tokens: list[bytes], bytes_max: int) -> None:
        self._random = random
        self._seeds = seeds
        self._tokens = [*tokens, *_NUMBERS]
        self._bytes_max = bytes_max

    def next(self) -> bytes:
        """Another input."""
        random = self._random
        data = bytearray(random.choice(self._seeds))
        for _ in range(random.choice((1, 1, 2, 3, 5, 9))):
            self._change(data)
        return bytes(data[: self._bytes_max])

    def _change(self, data: bytearray) -> None:
        random = self._random
        at = random.randrange(len(data) + 1)
        end = min(at + random.choice((0, 1, 1, 2, 4, 16, 64)), len(data))
        kind = random.randrange(8)
        if kind == 0 and at < len(data):
            data[at] = random.randrange(256)
        elif kind == 1:
            del data[at:end]
        elif kind == 2:
            data[at:at] = data[at:end]
        elif kind == 3:
            data[at:end] = random.choice(self._tokens)
        elif kind == 4:
            data[at:at] = random.choice(self._tokens)
        elif kind == 5:  # a great many of something
            token = random.choice(self._tokens)
            room = max((self._bytes_max - len(data)) // max(len(token), 1), 1)
            data[at:at] = token * min(1 << random.randrange(13), room)
        elif kind == 6:
            other = random.choice(self._seeds)
            data[at:] = other[random.randrange(len(other) + 1) :]
        else:
            del data[at:]
