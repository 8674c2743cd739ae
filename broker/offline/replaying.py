"""The reading half of replay: find the messages that left their queues in some period.

A journal with its kept segments is read twice, whether or not a broker runs on it: first for the wanted removals, and
for messages that replays of this name have already brought back; then for the messages themselves, oldest first. A
message that left several queues comes back once, to the first of them.

Messages that an earlier replay of the same name brought back are skipped, both the originals and their copies, so that
an interrupted replay can simply be repeated.  A replay of another name brings the same messages back once more.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from broker.daemon.wiring import formats
from broker.engine import Filter, MessageReader, UnknownFormat, parse_selector
from broker.engine.model.errors import InvalidSelector
from broker.engine.model.message import ORIG_MESSAGE_ID, REPLAY, Message, PropertyView
from broker.offline.lines import Line, message_line
from broker.offline.parts import Unusable
from store import decode
from store.bodies import BodyFiles, to_read
from store.errors import BodyUnreadable
from store.files import Files
from store.reading import Segments
from store.record import HEAD, MESSAGE_FIXED, RecordType, RemovalReason
from store.retention import find_body

#: Reasons for leaving a queue after which a message can be brought back; of dropped and unroutable messages the journal
#: has only a count.
REASONS: Final = {
    reason.word: reason for reason in RemovalReason if reason not in (RemovalReason.DROPPED, RemovalReason.UNROUTABLE)
}

#: Bytes of the largest body in a file that is brought back: it has to fit an HTTP request.
BODY_BYTES_MAX: Final = 10 << 20

_MARK: Final = REPLAY.encode()
_STORED: Final = frozenset({RecordType.MESSAGE, RecordType.COPIED})


@dataclass(frozen=True, slots=True)
class Wanted:
    """The messages to bring back.

    Those that left between `start` and `end` (ms since the epoch, the end excluded) for one of these reasons; empty
    strings and 0: any.  `name`: the replay's.
    """

    name: str
    start: int = 0
    end: int = 1 << 62
    queue: str = ""
    address: str = ""
    reasons: frozenset[RemovalReason] = frozenset({RemovalReason.CONSUMED})
    filter: Filter | None = None
    id: int = 0


def wanted(*, reasons: Sequence[str], selector: str, id: int | None, **given: Any) -> Wanted:
    """The messages selected by the command line's options.  Raises ValueError with what is wrong."""
    unknown = sorted(set(reasons) - REASONS.keys())
    if unknown:
        raise ValueError(f"reason {unknown[0]}: give one of {', '.join(REASONS)}")
    try:
        filter = parse_selector(selector)
    except InvalidSelector as error:
        raise ValueError(f"filter: {error}") from None
    chosen = frozenset(REASONS[word] for word in reasons or ("consumed",))
    return Wanted(reasons=chosen, filter=filter, id=id or 0, **given)


@dataclass(frozen=True, slots=True)
class Exit:
    """The queue that a message left, and why."""

    queue: str
    reason: RemovalReason


@dataclass(slots=True)
class Found:
    """The wanted messages that a journal has.

    `repeated`: already brought back by a replay of this name; `bodiless`: with a body that was in a file and is gone,
    or is too large for a replay.
    """

    exits: dict[int, Exit] = field(default_factory=dict)
    repeated: int = 0
    unfit: int = 0
    bodiless: int = 0
    chosen: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """How many messages were found."""
        return self.chosen.total()

    @property
    def missing(self) -> int:
        """Messages whose removal was found, but not the message: its segment is gone."""
        return len(self.exits)


class Replaying:
    """Reads one journal for one replay: `look`, then `messages`, which removes what it finds from `found.exits`.

    `progress` gets the number of segments read, and their total.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        wanted: Wanted,
        progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> None:
        self.found = Found()
        self._wanted = wanted
        self._source = Segments(files, directory)
        find = partial(find_body, files, directory)
        bodies = to_read(BodyFiles(files, directory, keep_free=0, find=find))
        self._stored = MessageReader({format.number: format for format in formats()}, bodies)
        self._decoder = decode.MessageDecoder()
        self._progress = progress
        self._queues: dict[int, tuple[str, str]] = {}
        self._done: set[int] = set()

    def look(self) -> Found:
        """Find the exits.  Raises Corrupt, Unusable, OSError."""
        numbers = self._source.numbers()
        for at, number in enumerate(numbers):
            self._progress(at, 2 * len(numbers))
            marked = _MARK in self._source.data(number)
            for _, _, timestamp, type, buffer, offset in self._source.records(number):
                if type == RecordType.REMOVED:
                    self._removed(decode.decode_removed(buffer, offset), timestamp)
                elif type == RecordType.QUEUE:
                    definition = decode.decode_definition(buffer, offset)
                    name, address = definition.definition["name"], definition.definition["address"]
                    self._queues[definition.id] = str(name), str(address)
                elif marked and type in _STORED:
                    self._replayed(buffer, offset)
        for id in self._done & self.found.exits.keys():
            del self.found.exits[id]
            self.found.repeated += 1
        return self.found

    def _removed(self, removed: decode.Removed, timestamp: int) -> None:
        wanted = self._wanted
        if removed.reason not in wanted.reasons or not wanted.start <= timestamp < wanted.end:
            return
        queue, address = self._queues.get(removed.queue_id, ("", ""))
        if (wanted.queue and queue != wanted.queue) or (wanted.address and address != wanted.address):
            return
        left = Exit(queue, RemovalReason(removed.reason))
        for id in removed.ids:
            if not wanted.id or id == wanted.id:
                self.found.exits.setdefault(id, left)

    def _replayed(self, buffer: bytes, offset: int) -> None:
        """Note a replayed message: if by this name, neither it nor its original is to come back again."""
        message = self._message(buffer, offset)
        notes = message.header.annotations or {}
        if notes.get(REPLAY) == self._wanted.name:
            self._done.add(message.id)
            original = notes.get(ORIG_MESSAGE_ID)
            if isinstance(original, int):
                self._done.add(original)

    def messages(self) -> Iterator[Line]:
        """The messages, as lines of an export with `queue`, the one that it left.

        Raises Corrupt, Unusable, OSError.
        """
        numbers = self._source.numbers()
        for at, number in enumerate(numbers):
            self._progress(len(numbers) + at, 2 * len(numbers))
            for _, _, _, type, buffer, offset in self._source.records(number):
                if type not in _STORED or _id(buffer, offset) not in self.found.exits:
                    continue
                message = self._message(buffer, offset)
                left = self.found.exits.pop(message.id)
                filter = self._wanted.filter
                if filter is not None and not filter.matches(PropertyView(message)):
                    self.found.unfit += 1
                    continue
                body = _body(message)
                if body is None:
                    self.found.bodiless += 1
                    continue
                self.found.chosen[left.queue, left.reason.word] += 1
                yield message_line(message, []) | {"body": b64encode(body).decode(), "queue": left.queue}
        self._progress(1, 1)

    def _message(self, buffer: bytes, offset: int) -> Message:
        """Decode a stored message.  Raises Unusable."""
        copied = HEAD.unpack_from(buffer, offset)[1] == RecordType.COPIED
        read = self._decoder.decode_copied if copied else self._decoder.decode
        try:
            return self._stored.message(read(buffer, offset), 0)
        except UnknownFormat as unknown:
            raise Unusable(str(unknown)) from unknown


def _body(message: Message) -> bytes | None:
    """The body; None if it is gone or too large."""
    body = message.body
    if isinstance(body, bytes):
        return body
    try:
        return body.whole() if len(body) <= BODY_BYTES_MAX else None
    except BodyUnreadable:
        return None


def _id(buffer: bytes, offset: int) -> int:
    """The id in a MESSAGE or COPIED record, at the same offset in both."""
    return int(MESSAGE_FIXED.unpack_from(buffer, offset)[4])
