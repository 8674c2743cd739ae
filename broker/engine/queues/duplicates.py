"""Duplicate detection: a message whose id was accepted on an address before is not accepted again.

A sender that has lost its connection does not know whether its last messages arrived.  If each bears an id of its own
(the property `_AMQ_DUPL_ID`), it sends them again, and the broker takes in those that are missing:

1. Each address remembers the last `id-cache-size` ids.  An id that is remembered is refused: the message is not routed,
   the sender gets the same answer as the first time, and the log says so.
2. In a transaction a duplicate is an error: the commit fails before anything is done, since what it holds happens
   together or not at all.
3. An id lasts as long as its message could: that of a durable message is in the journal, in the entry that stores the
   message, and is remembered after a restart; that of another one is forgotten with it.
4. What the broker itself moves (dead letters, expired messages, diverted copies, retries) is not asked for its id.

An id is remembered by the message that brought it, so that the order survives when its record is copied forward (see
`cleaning`): after a restart the youngest `id-cache-size` of them count.  As long as an id is remembered, the segment
with its record stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Final

from store import record

if TYPE_CHECKING:
    from broker.engine.model.message import Message
    from broker.engine.queues.address import Address
    from store.decode import DuplicateId
    from store.journal import Journal

#: The name of the property.
DUPLICATE_ID: Final = "_AMQ_DUPL_ID"

#: What stands in the encoded headers of every message with an id, whatever its protocol calls the property.
_MARK: Final = b"DUPL"

#: Bytes of an id that are remembered as they are; of a longer one its SHA-256.  UUIDs as text have 36; a client chooses
#: the length, and an address remembers thousands.
ID_BYTES_MAX: Final = 64

#: Ids copied forward in one step: less than 2 MiB of records.
COPIED_MAX: Final = 16_384


def may_have_ids(messages: Sequence[Message]) -> bool:
    """Whether any message of a run may have a duplicate id: one search over all headers of the run."""
    if len(messages) == 1:
        return _MARK in messages[0].head
    return _MARK in b"".join([message.head for message in messages])


@dataclass(slots=True, eq=False)
class Seen:
    """The ids of one address, oldest first: each with the message that brought it, and its segment (0: none)."""

    ids: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    refused: int = 0


class Duplicates:
    """The ids of all addresses."""

    def __init__(self, journal: Journal) -> None:
        self.refused = 0  # messages, since the start
        self._journal = journal
        self._seen: dict[int, Seen] = {}  # by the address's id
        # Who has ids in a segment: (address id, id); some may have been forgotten since.
        self._places: dict[int, list[tuple[int, bytes]]] = {}

    # -- asking ----------------------------------------------------------------------------------------------------

    def known(self, address: Address, id: bytes) -> bool:
        """Whether an id is remembered."""
        seen = self._seen.get(address.id)
        return seen is not None and id in seen.ids

    def count(self, address: Address) -> int:
        """How many ids an address remembers."""
        seen = self._seen.get(address.id)
        return 0 if seen is None else len(seen.ids)

    def split(
        self, address: Address, messages: list[Message]
    ) -> tuple[list[Message], list[tuple[Message, bytes]], list[Message]]:
        """What of a run is new, the ids to remember once it is stored, and what is a duplicate."""
        fresh: list[Message] = []
        ids: list[tuple[Message, bytes]] = []
        duplicates: list[Message] = []
        here: set[bytes] = set()
        for message in messages:
            id = id_of(message)
            if id is None:
                fresh.append(message)
            elif id in here or self.known(address, id):
                duplicates.append(message)
            else:
                here.add(id)
                ids.append((message, id))
                fresh.append(message)
        return fresh, ids, duplicates

    # -- remembering -----------------------------------------------------------------------------------------------

    def remember(self, address: Address, ids: Iterable[tuple[Message, bytes]]) -> None:
        """These ids were accepted, with messages that have just been stored in the open entry."""
        seen = self._seen.get(address.id)
        if seen is None:
            seen = self._seen[address.id] = Seen()
        for message, id in ids:
            segment = 0
            if message.header.durable:
                self._journal.ensure_defined(address.id)
                self._journal.add(record.duplicate_id(address.id, message.id, id))
                segment = self._place(address.id, id)
            seen.ids[id] = (message.id, segment)
        self._limit(seen, address.settings.id_cache_size)

    def _place(self, address_id: int, id: bytes) -> int:
        """An id's record is in the open entry: its segment stays as long as the id is remembered."""
        segment = self._journal.segment
        self._journal.space.pin(segment, _record_bytes(id))
        self._places.setdefault(segment, []).append((address_id, id))
        return segment

    def _limit(self, seen: Seen, size: int) -> None:
        for id in list(islice(seen.ids, max(len(seen.ids) - max(size, 0), 0))):
            self._release(seen.ids.pop(id)[1], id)

    def _release(self, segment: int, id: bytes) -> None:
        if segment:
            self._journal.space.unpin(segment, _record_bytes(id))
            if not self._journal.space.pinned(segment):
                self._places.pop(segment, None)

    def limit(self, address: Address) -> None:
        """The settings of an address have changed."""
        seen = self._seen.get(address.id)
        if seen is not None:
            self._limit(seen, address.settings.id_cache_size)

    def forget(self, address: Address) -> int:
        """The address is deleted: forget its ids; returns how many there were."""
        seen = self._seen.pop(address.id, None)
        if seen is None:
            return 0
        for id, (_, segment) in seen.ids.items():
            self._release(segment, id)
        return len(seen.ids)

    # -- the journal -----------------------------------------------------------------------------------------------

    def restore(self, address: Address, found: dict[bytes, tuple[int, int]]) -> None:
        """The ids of an address as the journal has them, in any order: the message and the segment of each."""
        size = max(address.settings.id_cache_size, 0)
        kept = sorted(found.items(), key=lambda item: item[1][0])[-size:] if size else []
        if not kept:
            return
        self._seen[address.id] = seen = Seen()
        for id, (message_id, segment) in kept:
            self._journal.space.pin(segment, _record_bytes(id))
            self._places.setdefault(segment, []).append((address.id, id))
            seen.ids[id] = (message_id, segment)

    def copy_forward(self, segment: int) -> bool:
        """Write ids of a segment anew, some of them; True while there are more."""
        places = self._places.pop(segment, None)
        if not places:
            return False
        for address_id, id in places[:COPIED_MAX]:
            seen = self._seen.get(address_id)
            message_id, there = (0, 0) if seen is None else seen.ids.get(id, (0, 0))
            if seen is None or there != segment:
                continue
            self._journal.ensure_defined(address_id)
            self._journal.add(record.duplicate_id(address_id, message_id, id, again=True))
            seen.ids[id] = (message_id, self._place(address_id, id))
            self._release(segment, id)
        if len(places) > COPIED_MAX:
            self._places[segment] = places[COPIED_MAX:]
            return True
        return False


def id_of(message: Message) -> bytes | None:
    """A message's duplicate id as it is remembered; None without one."""
    if _MARK not in message.head:
        return None
    id = message.header.format.duplicate_id(message.head)
    if not id:
        return None
    return id if len(id) <= ID_BYTES_MAX else sha256(id).digest()


def note(found: dict[int, dict[bytes, tuple[int, int]]], stored: DuplicateId, segment: int) -> None:
    """Gather a DUPLICATE_ID record for `restore`; the last of several about one message counts."""
    found.setdefault(stored.address_id, {})[stored.id] = (stored.message_id, segment)


def _record_bytes(id: bytes) -> int:
    return record.DUPLICATE_ID_FIXED.size + len(id)
