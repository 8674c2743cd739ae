"""Segments made by hand, one of every record, and records at random."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from hypothesis import strategies as st

from store import record
from store.body import BodyReference
from store.record import RecordType, StoredMessage
from store.segment import Entry, decode_header, encode_header, pack_entries
from tests.store.workload import Script, Station
from tests.support.sim_files import SimFiles

BROKER: Final = bytes(range(16))
CREATED: Final = 1_700_000_000_000


def message(id: int, queues: Sequence[int] = (1,), *, head: bytes = b"", body: bytes = b"", **header: object) -> bytes:
    """A MESSAGE record; `header` as for message_header."""
    parts: list[bytes] = []
    record.encode_messages(parts, _header(queues, header), 0, [StoredMessage(id, head, body)])
    return b"".join(parts)


def link_id(message_id: int, enqueued: int, broker: bytes = BROKER, queue: int = 8) -> bytes:
    """A duplicate id that a broker gives a message on a link."""
    numbers = b"".join(each.to_bytes(8) for each in (message_id, enqueued, queue))
    return b"link:%b%b%b" % (broker, numbers, b"12345678")


def copy(
    id: int, queues: Sequence[int] = (1,), previous: int = 1, *, head: bytes = b"", body: bytes = b"", **header: object
) -> bytes:
    """A COPIED record."""
    parts: list[bytes] = []
    record.encode_copies(parts, _header(queues, header), 0, [StoredMessage(id, head, body)], previous)
    return b"".join(parts)


def inflight(session_id: int, queue_id: int, sent: Sequence[tuple[int, int]]) -> bytes:
    """An INFLIGHT record of these message ids with their packet ids."""
    return record.inflight(session_id, queue_id, [id for id, _ in sent], [packet_id for _, packet_id in sent])


def _header(queues: Sequence[int], header: dict[str, object]) -> bytes:
    given: dict[str, object] = {"timestamp": CREATED, "address": "a", "format": 1, "queue_ids": queues, **header}
    return record.message_header(**given)  # type: ignore[arg-type]  # what message_header takes


def segment(
    entries: Iterable[Sequence[bytes]],
    *,
    number: int = 1,
    first: int = 1,
    broker: bytes = BROKER,
    durable: int | None = None,
    times: Sequence[int] = (),
) -> bytes:
    """A segment of these entries of records.  Each knows the one before it durable, or what `durable` says."""
    header = encode_header(number=number, broker_id=broker, created=CREATED, first_position=first)
    seed = decode_header(header).crc
    data = bytearray(header)
    position = first
    for index, records in enumerate(entries):
        data += entry(records, seed, position, durable, number=number, time=times[index] if times else CREATED + index)
        position += len(records)
    return bytes(data)


def entry(
    records: Sequence[bytes],
    seed: int,
    position: int,
    durable: int | None = None,
    *,
    number: int = 1,
    time: int = CREATED,
    count: int | None = None,
) -> bytes:
    """One entry; `count` and its records may differ."""
    made = Entry(
        segment=number,
        ticket=0,
        first=position,
        count=len(records) if count is None else count,
        timestamp=time,
        nbytes=sum(map(len, records)),
        parts=list(records),
    )
    return bytes(pack_entries([made], seed, position if durable is None else min(durable, position)))


def every_record() -> list[bytes]:
    """One of each type at least, with something in each of its fields."""
    return [
        record.opened(4096, {1: 5, 2: 9}, {"version": "1.0"}),
        record.address(7, {"name": "shop.orders", "routing-types": ["ANYCAST"]}),
        record.queue(8, {"name": "orders", "address": "shop.orders", "routing-type": "ANYCAST"}),
        record.repeated(record.queue(9, {"name": "mail", "address": "shop.mail"})),
        message(10, [8], head=b"shelf:7\nnote:a\\cb\\n\\\\\n", body=b"{}", user="shop", origin="c-1", priority=9),
        message(
            11,
            [8, 9],
            address="shop.orders",
            expiration=CREATED + 5,
            expiry_source=3,
            scheduled=CREATED + 9,
            annotations=b'{"_AMQ_ORIG_MESSAGE_ID":4,"_AMQ_ORIG_QUEUE":"x"}',
            format=2,
        ),
        copy(10, [8, 9], 3, head=b"shelf:7\n", body=b"copied", user="shop", origin="c-1", expiration=CREATED + 5),
        *large_records(),
        record.removed(8, 1, [10, 11]),
        record.removed(9, 11, [11]),
        record.counts(8, 3, [10]),
        record.delivering(8, 77, [10, 12, 13]),
        record.scheduled(8, CREATED + 60_000, [10, 11]),
        record.scheduled(9, 0, [11]),
        record.dead_lettered(
            queue_id=8,
            old_id=10,
            new_id=20,
            enqueued=CREATED,
            first_failure=CREATED + 1,
            attempts=10,
            reason=1,
            address="shop.orders",
            text="max-deliveries: dix essais, très long",
            client="worker-1",
            remote="192.0.2.1:4000",
            user="shop",
        ),
        record.dead_lettered(
            queue_id=9, old_id=11, new_id=0, enqueued=CREATED, first_failure=0, attempts=0, reason=11, address="a",
            text="", client="", remote="", user="",
        ),
        record.expired(
            queue_id=8, old_id=12, new_id=21, enqueued=CREATED, expiration=CREATED + 3, attempts=2, source=1,
            consumers=70_000, address="shop.orders",
        ),
        record.expired(
            queue_id=5, old_id=13, new_id=0, enqueued=CREATED, expiration=1, attempts=0, source=0, consumers=0,
            address="gone",
        ),
        record.dropped(10, 12, 3456, "nowhere"),
        record.session(30, {"name": "meter-7", "session": {"expiry": 60}}),
        record.inflight(30, 8, [10, 11], [1, 65_535]),
        record.inflight(31, 9, [11], [2]),
        record.released(30, [1, 2]),
        record.received(30, [65_535]),
        record.completed(30, [1], sent=True),
        record.completed(31, [65_535, 3], sent=False),
        record.session_deleted(31, {"name": "older"}),
        record.session_part(32, {"name": "a/#", "session": 30}), record.session_part_deleted(33, {"name": "b"}),
        record.divert(40, {"name": "copies", "address": "shop.orders"}),
        record.divert_deleted(40, {"name": "copies"}), record.task(41, {"name": "41", "kind": "retry"}),
        record.task_deleted(41, {"name": "41"}), record.duplicate_id(7, 10, b"order-4711"),
        record.duplicate_id(7, 11, link_id(4711, 1_780_000_000_000), again=True),
        record.queue_deleted(9, {"name": "mail"}), record.queue_deleted(5, {"name": "older"}),
        record.address_deleted(7, {"name": "shop.orders"}),
        record.ids(9999), record.trimmed([1, 2, 3]), record.closed(),
    ]  # fmt: skip


def random_journal(seed: int, commits: int = 60, *, close: bool = True) -> dict[int, bytes]:
    """A journal that the real store wrote during random operations: its segments by number."""
    files = SimFiles(seed)
    station = Station(files)
    Script(seed).run(station, commits)
    station.commit()
    station.step()
    if close:
        station.journal.close()
    return {int(path[-18:-8]): files.read(path) for path in files.paths() if path.endswith(".journal")}


# -- at random ---------------------------------------------------------------------------------------------------------

_IDS: Final = st.one_of(st.integers(1, 40), st.integers(1, (1 << 63) - 1))
_TIMES: Final = st.one_of(st.just(0), st.integers(0, 1 << 42), st.integers(-(1 << 63), (1 << 63) - 1))
_U32: Final = st.integers(0, (1 << 32) - 1)
_BYTE: Final = st.one_of(st.integers(0, 12), st.integers(0, 255))
_TEXTS: Final = st.text(max_size=12)
_MANY: Final = st.lists(_IDS, max_size=6)
_PACKET_IDS: Final = st.integers(1, 65_535)
_ANNOTATIONS: Final = st.one_of(
    st.just(b""),
    st.sampled_from([b"{}", b"[1]", b"no json", b'{"_AMQ_ORIG_MESSAGE_ID":true}', b'{"_AMQ_ORIG_MESSAGE_ID":"4"}']),
    st.sampled_from([b'["_AMQ_ORIG_MESSAGE_ID"]', b'"_AMQ_ORIG_MESSAGE_ID":4', b'{"_AMQ_ORIG_MESSAGE_ID":-1}']),
    st.builds(lambda id: record.encode_json({"_AMQ_ORIG_MESSAGE_ID": id, "x": "ü"}), _IDS),
    st.binary(max_size=8),
)
_LINES: Final = (b"a:1\n", b"a:2\n", b"b\\c:\\n\\\\\\r\n", b"c\n", b"\xff:\xfe\n", b"d:x:y\n", b"e:\\t\n")
_HEADS: Final = st.one_of(
    st.just(b""),
    st.lists(st.sampled_from(_LINES)).map(b"".join),
    st.binary(max_size=10),
)  # fmt: skip

_MESSAGES: Final = st.builds(
    message,
    _IDS,
    st.lists(_IDS, max_size=4),
    head=_HEADS,
    body=st.binary(max_size=40),
    timestamp=_TIMES,
    expiration=_TIMES,
    expiry_source=_BYTE,
    scheduled=_TIMES,
    priority=st.integers(0, 255),
    format=st.one_of(st.just(1), _BYTE),
    address=_TEXTS,
    user=_TEXTS,
    origin=_TEXTS,
    annotations=_ANNOTATIONS,
)
_DEATHS: Final = st.builds(
    record.dead_lettered,
    queue_id=_IDS,
    old_id=_IDS,
    new_id=st.one_of(st.just(0), _IDS),
    enqueued=_TIMES,
    first_failure=_TIMES,
    attempts=_U32,
    reason=_BYTE,
    address=_TEXTS,
    text=_TEXTS,
    client=_TEXTS,
    remote=_TEXTS,
    user=_TEXTS,
)
_EXPIRIES: Final = st.builds(
    record.expired,
    queue_id=_IDS,
    old_id=_IDS,
    new_id=st.one_of(st.just(0), _IDS),
    enqueued=_TIMES,
    expiration=_TIMES,
    attempts=_U32,
    source=_BYTE,
    consumers=st.integers(0, 70_000),
    address=_TEXTS,
)
_DEFINITIONS: Final = st.dictionaries(
    st.sampled_from(["name", "address", "filter"]), st.one_of(_TEXTS, st.integers(), st.none())
)

RECORDS: Final = st.one_of(
    _MESSAGES,
    st.builds(copy, _IDS, st.lists(_IDS, max_size=4), st.integers(1, 9), head=_HEADS, body=st.binary(max_size=40)),
    st.builds(record.removed, _IDS, _BYTE, _MANY),
    st.builds(record.counts, _IDS, _U32, _MANY),
    st.builds(record.delivering, _IDS, _IDS, _MANY),
    st.builds(record.scheduled, _IDS, _TIMES, _MANY),
    _DEATHS,
    _EXPIRIES,
    st.builds(record.dropped, _BYTE, _U32, st.integers(0, (1 << 63) - 1), _TEXTS),
    *(
        st.builds(getattr(record, name + deleted), _IDS, _DEFINITIONS)
        for name in ("address", "queue", "session", "session_part", "divert")
        for deleted in ("", "_deleted")
    ),
    st.builds(inflight, _IDS, _IDS, st.lists(st.tuples(_IDS, _PACKET_IDS), max_size=6)),
    st.builds(record.released, _IDS, st.lists(_PACKET_IDS, max_size=6)),
    st.builds(record.received, _IDS, st.lists(_PACKET_IDS, max_size=6)),
    st.builds(record.completed, _IDS, st.lists(_PACKET_IDS, max_size=6), sent=st.booleans()),
    st.builds(record.opened, _IDS, st.dictionaries(_IDS, _IDS, max_size=6), _DEFINITIONS),
    st.builds(record.ids, _IDS),
    st.builds(record.trimmed, _MANY),
    st.builds(record.duplicate_id, _IDS, _IDS, st.binary(max_size=40) | st.builds(link_id, _IDS, _IDS)),
    st.just(record.closed()),
)
ENTRIES: Final = st.lists(st.lists(RECORDS, min_size=1, max_size=8), max_size=5)

#: All that can be read: LOST stands for what cannot.
ALL_TYPES: Final = frozenset(int(type) for type in RecordType if type is not RecordType.LOST)


def large_records() -> list[bytes]:
    """Messages whose bodies are in files."""
    return [
        large(12, [8], head=b"shelf:8\n", nbytes=5 << 30),
        large(12, [8], head=b"", nbytes=4, previous=2),
    ]


def large(id: int, queue_ids: Sequence[int], *, head: bytes, nbytes: int, previous: int = 0) -> bytes:
    """A message whose body is in a file, or a copy of one."""
    out: list[bytes] = []
    header = record.message_header(timestamp=CREATED, queue_ids=queue_ids, address="shop.orders", format=1)
    record.encode_large(out, header, 0, id, head, BodyReference(500 + id, nbytes, 0xCAFE), previous)
    return b"".join(out)
