"""Counts dead letters in groups: by reason, origin, words, link, hour of death, or several of these.

A count goes through the queues in steps (`DeadLetterGroups.step`), oldest messages first, so that other clients wait
for one step at most.  It reads the broker's annotations of each message but no body, also of messages on disk.

    queue           the queue that the message is on now
    reason          of its last death: rejected, max-deliveries ...; empty: it did not die, it was sent or moved there
    origin          the queue that it died on; if it was on none, the address that it was sent to
    first-origin    the same for its first death
    words           what the consumer or the broker said when it died, normalised (see `words`); empty for an expired
                    message, whose text is a time
    link            the link on which it died, with the address there (remote-address) and the name of the broker behind
                    it (remote-broker); empty: it did not die on a link
    hour            the start of the hour (UTC) in which it died, in ms since the epoch; 0: it did not die

These values identify a group, `DeadLetterGroup`, which also selects its messages for a retry or a move
(`MessageRange.group`).  There, `words` may also be the whole text of a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

from broker.engine.model.errors import InvalidAttribute
from broker.engine.model.message import (
    DL_CLIENT,
    DL_CLIENT_ADDRESS,
    DL_FIRST_ADDRESS,
    DL_FIRST_QUEUE,
    DL_LINK,
    DL_REASON,
    DL_REMOTE_ADDRESS,
    DL_REMOTE_BROKER,
    DL_TEXT,
    DL_TIME,
    ORIG_ADDRESS,
    ORIG_QUEUE,
    Message,
)
from broker.engine.moves.words import common_words
from broker.engine.queues.paging import upkeep
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State
from store.record import DeadLetterReason

#: The default maximum of distinct groups: more than an operator reads, in some 200 KB.  There can be as many words as
#: messages; groups beyond the maximum are counted together.
GROUPS_MAX: Final = 1_000

_HOUR_MS: Final = 3_600_000
_EXPIRED: Final = DeadLetterReason.EXPIRED.word

Notes = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """Dead letters with these values; None: any value.  The module says what each means."""

    queue: str | None = None
    reason: str | None = None
    origin: str | None = None
    first_origin: str | None = None
    words: str | None = None
    link: str | None = None
    remote_address: str | None = None
    remote_broker: str | None = None
    hour: int | None = None

    def has(self, queue: Queue, message: Message) -> bool:
        """Whether a message of a queue belongs to the group."""
        notes = message.header.annotations or _NO_NOTES
        for name, field_name in _FIELDS.items():
            wanted = getattr(self, field_name)
            if wanted is None or wanted == (queue.name if name == "queue" else _VALUES[name](notes)):
                continue
            if name != "words" or wanted != notes.get(DL_TEXT):
                return False
        return True


#: The values by which dead letters may be grouped.
NAMES: Final = tuple(each.name.replace("_", "-") for each in fields(DeadLetterGroup))

_FIELDS: Final = {name: name.replace("-", "_") for name in NAMES}
_NO_NOTES: Final[Notes] = {}


def _words(notes: Notes) -> object:
    if notes.get(DL_REASON) == _EXPIRED:
        return ""
    return common_words(*[str(notes.get(name, "")) for name in (DL_TEXT, DL_CLIENT, DL_CLIENT_ADDRESS)])


def _hour(notes: Notes) -> object:
    died = notes.get(DL_TIME, 0)
    return died - died % _HOUR_MS if isinstance(died, int) else 0


_VALUES: Final[Mapping[str, Callable[[Notes], object]]] = {
    "reason": lambda notes: notes.get(DL_REASON, ""),
    "origin": lambda notes: notes.get(ORIG_QUEUE) or notes.get(ORIG_ADDRESS, ""),
    "first-origin": lambda notes: notes.get(DL_FIRST_QUEUE) or notes.get(DL_FIRST_ADDRESS, ""),
    "words": _words,
    "link": lambda notes: notes.get(DL_LINK, ""),
    "remote-address": lambda notes: notes.get(DL_REMOTE_ADDRESS, ""),
    "remote-broker": lambda notes: notes.get(DL_REMOTE_BROKER, ""),
    "hour": _hour,
}


@dataclass(slots=True)
class DeadLetterCount:
    """The number of messages, and when the first and the last of them died, in ms since the epoch (0: none).

    For a message that did not die, the time is when it was sent.
    """

    count: int = 0
    oldest: int = 0
    newest: int = 0

    def add(self, time: int) -> None:
        """Count a message that died at `time`."""
        self.count += 1
        if time < self.oldest or not self.oldest:
            self.oldest = time
        if time > self.newest:
            self.newest = time


@dataclass(slots=True)
class DeadLetterGroups:
    """A count of the dead letters of queues, grouped by some of `NAMES`, made step by step.

    It is complete once all `queues` (names) were counted; deleted ones are skipped.  `others` counts the groups beyond
    `groups_max`, `unreadable` the messages on disk that could not be read.  Messages that consumers hold are not
    counted, nor those that arrive after the count of their queue has begun; those that leave meanwhile may be.

    Raises InvalidAttribute if `by` is not one or more `NAMES`.
    """

    queues: Sequence[str]
    by: Sequence[str]
    groups_max: int = GROUPS_MAX
    total: DeadLetterCount = field(init=False, default_factory=DeadLetterCount)
    others: DeadLetterCount = field(init=False, default_factory=DeadLetterCount)
    unreadable: int = field(init=False, default=0)
    _counts: dict[tuple[object, ...], DeadLetterCount] = field(init=False, default_factory=dict)
    _at: int = field(init=False, default=0)  # index of the queue being counted
    _reader: upkeep.NotesReader | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        unknown = [name for name in self.by if name not in NAMES]
        if unknown or not self.by or len(set(self.by)) < len(self.by):
            wrong = f", not by {unknown[0][:100]!r}" if unknown else ", once by each"
            raise InvalidAttribute(f"dead letters are grouped by one or more of {', '.join(NAMES)}{wrong}")

    @property
    def complete(self) -> bool:
        """Whether all queues were counted."""
        return self._at == len(self.queues)

    def groups(self) -> list[tuple[DeadLetterGroup, DeadLetterCount]]:
        """The groups so far, the largest first, without the `others`."""
        names = [_FIELDS[name] for name in self.by]
        found = sorted(self._counts.items(), key=lambda each: each[1].count, reverse=True)
        return [(DeadLetterGroup(**dict(zip(names, key, strict=True))), count) for key, count in found]  # type: ignore[arg-type]

    def step(self, state: State) -> None:
        """Count the next messages.  Raises NotReadable; the next step tries the same ones again."""
        queue = state.queues.get(self.queues[self._at])
        if queue is None:
            return self._next_queue()
        if self._reader is None:
            self._reader = upkeep.NotesReader(state.journal.next_id)
        self._count(queue.name, self._reader.step(state, queue, state.limits.group_step_max))
        if self._reader.complete:
            self.unreadable += self._reader.unreadable
            self._next_queue()

    def _next_queue(self) -> None:
        self._at += 1
        self._reader = None

    def _count(self, queue: str, found: Iterable[tuple[Notes, int]]) -> None:
        values = [_VALUES.get(name) for name in self.by]
        counts, most = self._counts, self.groups_max
        for notes, sent in found:
            key = tuple([queue if value is None else value(notes) for value in values])
            count = counts.get(key)
            if count is None:
                count = self.others
                if len(counts) < most:
                    count = counts[key] = DeadLetterCount()
            died = notes.get(DL_TIME)
            time = died if isinstance(died, int) else sent
            count.add(time)
            self.total.add(time)
