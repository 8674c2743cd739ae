"""Messages read back from their records, many at once: each is what it was, and what is not there is told."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from broker.engine.model.message import Message, MessageHeader, PagedMessage, RoutingType
from broker.engine.queues.stored import encode_header, record_flags
from store import record
from store.pages import SCRATCH_FIRST
from tests.broker.engine.engine_harness import FORMAT, Bench
from tests.support.attributes import attributes_of

SEGMENT = 3


class Records:
    """Records one behind the other, as in a segment."""

    def __init__(self, bench: Bench) -> None:
        self.reader = bench.engine._state.stored
        self.format = bench.engine.formats[FORMAT]
        self.messages: list[Message] = []
        self.data = bytearray()
        self.offsets: list[int] = []
        self.sizes: list[int] = []

    def add(self, header: MessageHeader, heads: list[bytes], bodies: list[bytes], queues: list[int]) -> None:
        """A run."""
        encoded = encode_header(header, queues)
        for head, body in zip(heads, bodies, strict=True):
            message = Message(header, head, body)
            message.id = len(self.messages) + 100
            parts: list[bytes] = []
            record.encode_messages(parts, encoded, record_flags(header), [message])
            self.messages.append(message)
            self.offsets.append(len(self.data))
            self.data += b"".join(parts)
            self.sizes.append(len(self.data) - self.offsets[-1])

    def header(self, address: str = "a", **more: Any) -> MessageHeader:
        return MessageHeader(address, self.format, durable=True, **more)

    def read(self, segment: int = SEGMENT) -> list[Message | None]:
        """All of them, from one buffer."""
        ids = [message.id for message in self.messages]
        found: list[tuple[bytes | None, int, int]] = [(bytes(self.data), 0, len(ids))]
        places = [segment] * len(ids)
        return self.reader.read(found, ids=ids, segments=places, offsets=self.offsets, sizes=self.sizes)


def same(one: Message | None, other: Message) -> bool:
    """In everything but the object of the header."""
    assert one is not None
    differing = {name for name, held in attributes_of(other).items() if held != getattr(one, name)}
    return differing <= {"header", "segment"} and attributes_of(one.header) == attributes_of(other.header)


@pytest.mark.parametrize("seed", range(20))
def test_messages_are_what_they_were(seed: int) -> None:
    """Runs of any length, with headers of any length, and messages of any sizes, empty ones too."""
    random, records = Random(seed), Records(Bench())
    for _ in range(random.randrange(1, 12)):
        header = records.header(
            random.choice("ab") * random.randrange(1, 30),
            priority=random.randrange(10),
            timestamp=random.randrange(1 << 40),
            expiration=random.choice((0, 1 << 41)),
            routing_type=random.choice((None, *RoutingType)),
            user=random.choice(("", "somebody")),
            annotations=random.choice((None, {"a": 1})),
        )
        count = random.randrange(1, 9)
        heads = [random.choice((b"", b"n:%d\n" % n, b"colour:red\n")) for n in range(count)]
        records.add(header, heads, [b"x" * random.randrange(40) for _ in range(count)], random.choice(([7], [7, 8])))
    found = records.read()
    assert all(same(one, other) for one, other in zip(found, records.messages, strict=True))
    assert {message.segment for message in found if message is not None} == {SEGMENT}
    places = [(each.offset, each.nbytes) for each in found if isinstance(each, PagedMessage)]
    assert places == list(zip(records.offsets, records.sizes, strict=True))


def test_a_run_shares_its_facts_and_a_group_has_its_own() -> None:
    records = Records(Bench())
    records.add(records.header(), [b"", b"", b""], [b"1", b"2", b"3"], [7])
    heads = [b"_AMQ_GROUP_ID:red\n", b"_AMQ_GROUP_ID:blue\n"]
    records.add(records.header(group="any"), heads, [b"4", b"5"], [7])
    found = [message for message in records.read() if message is not None]
    assert len({id(message.header) for message in found[:3]}) == 1
    assert [message.header.group for message in found] == ["", "", "", "red", "blue"]


def test_a_message_in_a_scratch_file_has_no_segment() -> None:
    records = Records(Bench())
    records.add(records.header(), [b"", b""], [b"1", b"2"], [])
    assert [message and message.segment for message in records.read(SCRATCH_FIRST)] == [0, 0]


#: Where the fixed part of a record has what: its length, type, version, flags, id, and the bytes of head and body.
@pytest.mark.parametrize("at", [0, 4, 5, 8, 16, 20])
def test_a_record_that_is_another_is_told_and_its_neighbours_are_read(at: int) -> None:
    records = Records(Bench())
    records.add(records.header(), [b""] * 4, [b"1", b"2", b"3", b"4"], [7])
    records.data[records.offsets[2] + at] ^= 0x40
    found = records.read()
    assert found[2] is None
    assert all(same(found[n], records.messages[n]) for n in (0, 1, 3))


def test_the_last_record_of_a_buffer_may_be_shorter_than_the_facts_before_it() -> None:
    records = Records(Bench())
    records.add(records.header("a" * 200), [b""], [b""], [7])
    records.add(records.header("b"), [b""], [b""], [7])
    assert all(same(one, other) for one, other in zip(records.read(), records.messages, strict=True))
