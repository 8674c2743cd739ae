"""ACKs in a row come out together, and say the same as one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.stomp.frames import Acks, Frame
from protocols.stomp.heads import ACK_HEAD_BYTES_MAX
from protocols.stomp.limits import Limits
from tests.protocols.stomp.peer import Shown, connected, show
from tests.support.wire import feed

LONGEST = b"9" * 20


def ack(id: bytes, *more: bytes) -> bytes:
    return b"\n".join((b"ACK", b"id:" + id, *more, b"", b"\0"))


def singly(events: list[Frame]) -> list[Shown]:
    """The frames, those of a run one by one."""
    found: list[Shown] = []
    for event in events:
        if isinstance(event, Acks):
            assert len(event.subscriptions) == len(event.ids) > 1
            for number, id in zip(event.subscriptions, event.ids, strict=True):
                found.append(("ACK", {b"id": b"%b,%d" % (number, id)}, b""))
        else:
            found.append(show(event))
    return found


@pytest.mark.parametrize("between", [b"", b"\n"])
def test_two_or_more_are_a_run_at_every_cut(between: bytes) -> None:
    data = b"".join(ack(b"7,%d" % n) + between for n in range(1, 4)) + ack(b"8," + LONGEST)
    (run,) = feed(connected(), [data])
    assert isinstance(run, Acks)
    assert (run.command, run.headers) == ("ACKS", {})
    assert (run.subscriptions, run.ids) == ([b"7", b"7", b"7", b"8"], [1, 2, 3, int(LONGEST)])
    for cut in range(len(data)):
        assert singly(feed(connected(), [data[:cut], data[cut:]])) == singly([run])


@pytest.mark.parametrize(
    "other",
    [
        ack(b"7"),
        ack(b"7,"),
        ack(b",7"),
        ack(b"7,x"),
        ack(b"7,1,2"),
        ack(b"7,1", b"receipt:r"),
        ack(b"7,1", b"transaction:t"),
        ack(b"7,1" + LONGEST),
        ack(b"7,1").replace(b"\n", b"\r\n"),
        b"SEND\ndestination:a\n\nACK\nid:1,2\n\n\0",
    ],
)
def test_an_ack_that_is_not_plain_is_a_frame_of_its_own_among_them(other: bytes) -> None:
    plain = ack(b"7,1") + ack(b"7,2")
    (alone,) = feed(connected(), [other])
    assert not isinstance(alone, Acks)
    first, middle, last = feed(connected(), [plain + other + plain])
    assert isinstance(first, Acks)
    assert not isinstance(middle, Acks)
    assert isinstance(last, Acks)
    assert show(middle) == show(alone)


def test_one_alone_is_an_ordinary_frame() -> None:
    (event,) = feed(connected(), [ack(b"7,1")])
    assert not isinstance(event, Acks)


def test_older_versions_have_no_runs() -> None:
    data = ack(b"7,1", b"message-id:7,1", b"subscription:0")
    assert not any(isinstance(event, Acks) for event in feed(connected("1.1"), [data * 3]))
    connection = connected("1.1")
    assert feed(connection, [ack(b"7,1") * 2]) == []
    assert connection.error is not None, "message-id and subscription are missing"


@pytest.mark.parametrize(("room", "runs"), [(0, True), (-1, False)])
def test_limits_that_an_ack_may_exceed_are_looked_at_for_each(room: int, runs: bool) -> None:
    limits = Limits(header_bytes_max=ACK_HEAD_BYTES_MAX + room)
    connection = connected(limits=limits)
    events = feed(connection, [ack(LONGEST + b"," + LONGEST) * 2])
    assert [isinstance(event, Acks) for event in events] == ([True] if runs else [])
    assert (connection.error is None) == runs


@given(
    st.lists(
        st.sampled_from(
            [
                ack(b"1,1"),
                ack(b"1,2"),
                ack(b"2,33"),
                ack(b"1,4", b"receipt:r"),
                ack(b"x"),
                b"\n",
                b"SEND\ndestination:a\n\n1\0",
            ]
        )
    ),
    st.integers(1, 50),
)
def test_they_say_what_they_say_one_by_one(parts: list[bytes], step: int) -> None:
    data = b"".join(parts)
    expected = [show(event) for part in parts for event in feed(connected(), [part])]
    assert singly(feed(connected(), [data])) == expected
    assert singly(feed(connected(), [data[at : at + step] for at in range(0, len(data), step)])) == expected
