"""Duplicate detection: a message whose id was accepted on an address before is not accepted again.

A sender that has lost its connection does not know whether its last messages arrived.  If each has an id of its own
(the property `_AMQ_DUPL_ID`), it can send them again, and the broker accepts those that are missing:

1. Each address remembers the last `id-cache-size` ids, and all together as many as fit into their part of the memory
   for messages, of which they count as used.  A message with a remembered id is a duplicate: it is not
   routed, the sender gets the same answer as the first time, and the log reports it.
2. In a transaction a duplicate is an error: the commit fails before anything is done, since a transaction happens as a
   whole or not at all.
3. An id lasts as long as its message could.  The id of a durable message is in the journal, in the entry that stores
   the message, and is remembered after a restart; that of any other is forgotten at a restart.
4. Messages that the broker itself moves (dead letters, expired messages, diverted copies, retries) are not checked.
5. Messages that another broker sends over a link have link ids instead, which that broker assigned.  Link ids are
   remembered apart, whatever `id-cache-size` says: for each address, sending broker and priority the last LINK_IDS_MAX
   (and LINK_IDS_ADDRESS_MAX in all).
   So neither clients nor other brokers push them out while their broker is away, which will send again whatever was not
   confirmed; nor do messages of a higher priority, which that broker sends first.  One user cannot use up the ids of
   another user's messages: they contain the user's name, and if those of all addresses take more than their part of the
   memory, the user and priority with the most of them lose some.  In a transaction, too, a message with a known link id
   is left out, and the others are accepted.

Each id is stored with the id of its message, so that their order survives when the record is copied forward (see
`cleaning`): after a restart the youngest count.  As long as an id is remembered, the segment with its record stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Final

from store import record

if TYPE_CHECKING:
    from broker.engine.model.message import Message
    from broker.engine.queues.address import Address
    from broker.engine.queues.room import Usage
    from store.decode import DuplicateId
    from store.journal import Journal

#: The name of the property.
DUPLICATE_ID: Final = "_AMQ_DUPL_ID"

#: Bytes found in the encoded headers of every message with an id, whatever its protocol calls the property.
_MARK: Final = b"DUPL"

#: The most bytes of an id stored as it is; a longer one is replaced by its SHA-256.  UUIDs as text have 36; clients
#: choose the length, and an address remembers thousands.
ID_BYTES_MAX: Final = 64

#: The prefix of a stored link id; the id itself follows, and then so many bytes of a SHA-256 of the sender's name and
#: the message's priority.
LINK: Final = b"link:"
_SUFFIX_BYTES: Final = 8

#: Link ids that an address remembers for one broker, user and priority.  A broker sends again what was in flight when a
#: connection was lost: by default 1,000 messages of a route (`window`), at most 10,000.
LINK_IDS_MAX: Final = 20_000

#: Combinations of broker, user and priority whose link ids an address remembers: enough for 32 brokers that use all ten
#: priorities, more than will have links to one address, and a bound for a sender that invents brokers.  Beyond it, the
#: one that has sent nothing for the longest time is forgotten.
LINK_SENDERS_MAX: Final = 320

#: Link ids that an address remembers in all, some 50 MB: as many as ten combinations use up.  Beyond it, the oldest are
#: forgotten of the one that has sent nothing for the longest time.
LINK_IDS_ADDRESS_MAX: Final = 200_000
_BROKER_BYTES: Final = 16

#: Bytes that an id takes in memory beside its own.
ID_OVERHEAD_BYTES: Final = 192

#: The part of the broker's memory for messages that the ids of clients may take on all addresses together, those of
#: links as much, and the bytes if that has no limit.  Beyond it, the oldest are forgotten of the address where none
#: came for the longest time.
IDS_MEMORY_PART: Final = 8
IDS_BYTES_MAX: Final = 256 << 20

#: Bytes of a record without its id.
_RECORD_BYTES: Final = record.DUPLICATE_ID_FIXED.size

#: Ids copied forward in one step: less than 2 MiB of records.
COPIED_MAX: Final = 16_384


def may_have_ids(messages: Sequence[Message]) -> bool:
    """Whether any message of a run may have a duplicate id: one search over all headers of the run."""
    if len(messages) == 1:
        return _MARK in messages[0].head
    return _MARK in b"".join([message.head for message in messages])


#: Ids, oldest first, each with the id of its message and the segment of its record (0: none).
Ids = dict[bytes, tuple[int, int]]
_NONE: Final[Ids] = {}


@dataclass(slots=True, eq=False)
class Seen:
    """The ids of one address.

    `ids` are those of clients, `links` those of links by sender, the most recent sender last.  That sender's ids,
    `recent`, begin with `prefix` and end with `suffix`: messages arrive in runs, and those of a run are all of one
    broker and mostly of one priority.
    """

    ids: Ids = field(default_factory=dict)
    links: dict[bytes, Ids] = field(default_factory=dict)
    recent: Ids = field(default_factory=dict)
    prefix: bytes = LINK
    suffix: bytes = bytes(ID_BYTES_MAX + 1)  # longer than any id: there is no sender yet

    def cache(self, id: bytes) -> Ids:
        """The set of ids that would contain this one."""
        if id.startswith(self.prefix) and id.endswith(self.suffix):
            return self.recent
        return self.links.get(_whose(id), _NONE) if id.startswith(LINK) else self.ids

    def put(self, id: bytes, message_id: int, segment: int) -> None:
        """Remember an id, as the youngest one unless it is known already."""
        if id.startswith(self.prefix) and id.endswith(self.suffix):
            self.recent[id] = message_id, segment
        elif id.startswith(LINK):
            whose = _whose(id)
            self.recent = self.links[whose] = self.links.pop(whose, {})
            self.prefix, self.suffix = id[: len(LINK) + _BROKER_BYTES], id[-_SUFFIX_BYTES:]
            self.recent[id] = message_id, segment
        else:
            self.ids[id] = message_id, segment

    def drop(self, whose: bytes) -> None:
        """Forget a sender, of which no ids are left."""
        if self.links.pop(whose, None) is self.recent:
            self.recent, self.prefix, self.suffix = {}, LINK, bytes(ID_BYTES_MAX + 1)

    def caches(self) -> list[Ids]:
        """All sets of ids."""
        return [self.ids, *self.links.values()]


class Duplicates:
    """The ids of all addresses."""

    def __init__(self, journal: Journal, usage: Usage) -> None:
        self.refused = 0  # messages, since the start
        self._journal = journal
        self._usage = usage
        self._recent: dict[int, None] = {}  # addresses with ids of clients, by address id, the last one to get one last
        self._seen: dict[int, Seen] = {}  # by the address's id
        # By user and priority, as they are in link ids: how many there are, and of which addresses and senders, those
        # last that got one last.
        self._link_counts: Counter[bytes] = Counter()
        self._link_places: dict[bytes, dict[tuple[int, bytes], None]] = {}
        # The ids whose records are in a segment, as (address id, id); some may have been forgotten since.
        self._places: dict[int, list[tuple[int, bytes]]] = {}

    # -- asking ----------------------------------------------------------------------------------------------------

    def known(self, address: Address, id: bytes) -> bool:
        """Whether an id is remembered."""
        seen = self._seen.get(address.id)
        return seen is not None and id in seen.cache(id)

    def count(self, address: Address) -> int:
        """How many ids an address remembers."""
        seen = self._seen.get(address.id)
        return 0 if seen is None else sum(map(len, seen.caches()))

    def split(
        self, address: Address, messages: list[Message], link_ids: Mapping[Message, bytes] | None
    ) -> tuple[list[Message], list[tuple[Message, bytes]], list[Message]]:
        """Split a run: the new messages, the ids to remember once they are stored, and the duplicates."""
        asked = address.settings.id_cache_size > 0
        fresh: list[Message] = []
        ids: list[tuple[Message, bytes]] = []
        duplicates: list[Message] = []
        here: set[bytes] = set()
        seen = self._seen.get(address.id) or Seen()
        for message in messages:
            link_id = None if link_ids is None else link_ids.get(message)
            if link_id is not None:
                id: bytes | None = of_link(link_id, message.header.user, message.header.priority)
            else:
                id = id_of(message) if asked else None
            if id is None:
                fresh.append(message)
            elif id in here or id in seen.cache(id):
                duplicates.append(message)
            else:
                here.add(id)
                ids.append((message, id))
                fresh.append(message)
        return fresh, ids, duplicates

    # -- remembering -----------------------------------------------------------------------------------------------

    def remember(self, address: Address, ids: Iterable[tuple[Message, bytes]]) -> None:
        """Remember ids of messages that have just been stored in the open entry."""
        seen = self._seen.get(address.id)
        if seen is None:
            seen = self._seen[address.id] = Seen()
        journal, address_id, encode = self._journal, address.id, record.duplicate_id
        here = journal.segment
        records: list[bytes] = []
        places: list[tuple[int, bytes]] = []
        for message, id in ids:
            self._charge(address.id, seen, id)
            if message.header.durable:
                records.append(encode(address_id, message.id, id))
                places.append((address_id, id))
                seen.put(id, message.id, here)
            else:
                seen.put(id, message.id, 0)
        if records:
            journal.ensure_defined(address_id)
            journal.add_all(records)
            self._pin(here, places)
        self._limit(seen, address)

    def _pin(self, segment: int, places: list[tuple[int, bytes]]) -> None:
        """Keep the segment with the records of these ids as long as they are remembered."""
        nbytes = len(places) * _RECORD_BYTES + sum([len(id) for _, id in places])
        self._journal.space.pin(segment, nbytes)
        self._places.setdefault(segment, []).extend(places)

    def _limit(self, seen: Seen, address: Address) -> None:
        self._limit_ids(seen.ids, max(address.settings.id_cache_size, 0))
        self._limit_all()
        for whose in list(islice(seen.links, max(len(seen.links) - LINK_SENDERS_MAX, 0))):
            self._limit_ids(seen.links[whose], 0)
            seen.drop(whose)
        for links in seen.links.values():
            self._limit_ids(links, LINK_IDS_MAX)
        excess = sum(map(len, seen.links.values())) - LINK_IDS_ADDRESS_MAX
        while excess > 0:
            whose, links = next(iter(seen.links.items()))
            kept = max(len(links) - excess, 0)
            excess -= len(links) - kept
            self._limit_ids(links, kept)
            if not links:
                seen.drop(whose)

    def _charge(self, address_id: int, seen: Seen, id: bytes) -> None:
        """Count an id that is about to be remembered."""
        if id.startswith(LINK):
            whose = _whose(id)
            by = whose[_BROKER_BYTES:]
            if id not in seen.links.get(whose, _NONE):
                self._usage.link_ids_bytes += ID_OVERHEAD_BYTES + len(id)
                self._link_counts[by] += 1
            places = self._link_places.setdefault(by, {})
            places.pop((address_id, whose), None)
            places[address_id, whose] = None
            return
        if id not in seen.ids:
            self._usage.ids_bytes += ID_OVERHEAD_BYTES + len(id)
        self._recent.pop(address_id, None)
        self._recent[address_id] = None

    def _limit_all(self) -> None:
        """Forget ids, if those of all addresses take too much memory."""
        usage = self._usage
        most = usage.bytes_max // IDS_MEMORY_PART if usage.bytes_max >= 0 else IDS_BYTES_MAX
        while usage.link_ids_bytes > most and self._link_counts:
            self._limit_links(max(self._link_counts, key=self._link_counts.__getitem__), usage.link_ids_bytes - most)
        while usage.ids_bytes > most and self._recent:
            address_id = next(iter(self._recent))
            seen = self._seen.get(address_id)
            if seen is None or not seen.ids:
                del self._recent[address_id]
                continue
            excess = -(-(usage.ids_bytes - most) // (ID_OVERHEAD_BYTES + ID_BYTES_MAX))
            self._limit_ids(seen.ids, max(len(seen.ids) - excess, 0))

    def _limit_links(self, by: bytes, excess: int) -> None:
        """Forget ids of so many bytes of a user and priority, if one sender's on one address are as many."""
        address_id, whose = next(iter(self._link_places[by]))
        seen = self._seen.get(address_id)
        links = None if seen is None else seen.links.get(whose)
        if links:
            forgotten = -(-excess // (ID_OVERHEAD_BYTES + len(next(iter(links)))))
            self._limit_ids(links, max(len(links) - forgotten, 0))
        if seen is not None and not links:
            seen.drop(whose)
        if not links:
            self._link_places[by].pop((address_id, whose), None)
        if not self._link_places[by]:
            del self._link_places[by]

    def _limit_ids(self, ids: Ids, size: int) -> None:
        self._forget([(ids.pop(id)[1], id) for id in list(islice(ids, max(len(ids) - size, 0)))])

    def _forget(self, forgotten: list[tuple[int, bytes]]) -> None:
        """Count ids that were forgotten no more, and release their records."""
        own = [len(id) for _, id in forgotten if not id.startswith(LINK)]
        self._usage.ids_bytes -= sum(own) + ID_OVERHEAD_BYTES * len(own)
        if len(own) < len(forgotten):
            linked = [id for _, id in forgotten if id.startswith(LINK)]
            self._usage.link_ids_bytes -= sum(map(len, linked)) + ID_OVERHEAD_BYTES * len(linked)
            self._link_counts.subtract([id[-_SUFFIX_BYTES:] for id in linked])
            for by in {id[-_SUFFIX_BYTES:] for id in linked}:
                if not self._link_counts[by]:
                    del self._link_counts[by]
        self._release(forgotten)

    def _release(self, forgotten: Iterable[tuple[int, bytes]]) -> None:
        """Release the records of forgotten ids, each in its segment (0: none)."""
        freed: dict[int, int] = {}
        for segment, id in forgotten:
            if segment:
                freed[segment] = freed.get(segment, 0) + _RECORD_BYTES + len(id)
        for segment, nbytes in freed.items():
            self._journal.space.unpin(segment, nbytes)
            if not self._journal.space.pinned(segment):
                self._places.pop(segment, None)

    def limit(self, address: Address) -> None:
        """Apply a changed `id-cache-size` of an address."""
        seen = self._seen.get(address.id)
        if seen is not None:
            self._limit(seen, address)

    def forget(self, address: Address) -> int:
        """Forget the ids of a deleted address; returns how many there were."""
        seen = self._seen.pop(address.id, None)
        if seen is None:
            return 0
        caches = seen.caches()
        for ids in caches:
            self._forget([(segment, id) for id, (_, segment) in ids.items()])
        return sum(map(len, caches))

    # -- the journal -----------------------------------------------------------------------------------------------

    def restore(self, address: Address, found: dict[bytes, tuple[int, int]]) -> None:
        """Restore the ids of an address from the journal, in any order, each with its message id and segment."""
        seen = Seen()
        for id, (message_id, segment) in sorted(found.items(), key=lambda item: item[1][0]):
            self._pin(segment, [(address.id, id)])
            self._charge(address.id, seen, id)
            seen.put(id, message_id, segment)
        self._seen[address.id] = seen
        self._limit(seen, address)
        if not any(seen.caches()):
            del self._seen[address.id]

    def copy_forward(self, segment: int) -> bool:
        """Copy some of the ids in a segment forward; True while there are more."""
        places = self._places.pop(segment, None)
        if not places:
            return False
        for address_id, id in places[:COPIED_MAX]:
            seen = self._seen.get(address_id)
            found = None if seen is None else seen.cache(id).get(id)
            if seen is None or found is None or found[1] != segment:
                continue
            self._journal.ensure_defined(address_id)
            self._journal.add(record.duplicate_id(address_id, found[0], id, again=True))
            here = self._journal.segment
            self._pin(here, [(address_id, id)])
            seen.cache(id)[id] = (found[0], here)
            self._release([(segment, id)])
        if len(places) > COPIED_MAX:
            self._places[segment] = places[COPIED_MAX:]
            return True
        return False


def _whose(id: bytes) -> bytes:
    """The part of a stored link id that identifies broker, user and priority."""
    return id[len(LINK) : len(LINK) + _BROKER_BYTES] + id[-_SUFFIX_BYTES:]


def id_of(message: Message) -> bytes | None:
    """The duplicate id that a client gave a message, in stored form; None without one."""
    if _MARK not in message.head:
        return None
    id = message.header.format.duplicate_id(message.head)
    if not id:
        return None
    return id if len(id) <= ID_BYTES_MAX and not id.startswith(LINK) else sha256(id).digest()


def of_link(id: bytes, user: str, priority: int) -> bytes:
    """A link id in stored form; `user` is the user as which the sender logged in."""
    return LINK + id + _suffix(user, priority)


@lru_cache(maxsize=640)
def _suffix(user: str, priority: int) -> bytes:
    return sha256(b"%b\0%d" % (user.encode(), priority)).digest()[:_SUFFIX_BYTES]


def note(found: dict[int, dict[bytes, tuple[int, int]]], stored: DuplicateId, segment: int) -> None:
    """Collect a DUPLICATE_ID record for `restore`; the last of several for one id counts."""
    found.setdefault(stored.address_id, {})[stored.id] = (stored.message_id, segment)
