from __future__ import annotations

import pytest

from bench.messages import LAP, MARK, FrameTemplate, Pool


@pytest.fixture(scope="module")
def pool() -> Pool:
    return Pool(FrameTemplate(receipt_every=2_000, durable=True, seed=3))


def test_frames_of_two_laps_all_differ_and_have_their_offsets(pool: Pool) -> None:
    laps = [pool.lap(0), pool.lap(1)]
    frames = [lap[a:b] for lap in laps for a, b in zip(pool.offsets, pool.offsets[1:], strict=False)]
    assert len(set(frames)) == len(frames) == 2 * LAP
    assert all(frame.startswith(b"SEND\n") and frame.count(b"\0") == 1 and frame[-1:] == b"\0" for frame in frames)
    assert not any(MARK in lap for lap in laps)


def test_the_number_is_in_header_tag_and_destination(pool: Pool) -> None:
    frame = pool.lap(12)[pool.offsets[37] : pool.offsets[38]]
    assert b"\nseq:0000120037\n" in frame
    assert frame.endswith(b"#0000120037\0")
    assert b"\ndestination:/queue/bench.05\n" in frame


def test_sizes_and_content_lengths(pool: Pool) -> None:
    sizes = [len(message.body) for message in pool.messages]
    assert (min(sizes), max(sizes)) == (50, 150)
    assert 98 < sum(sizes) / LAP < 102
    assert 0.45 < sum(message.measured for message in pool.messages) / LAP < 0.55
    measured = [message for message in pool.messages if message.measured]
    assert all(b"\ncontent-length:%d\n\n" % len(message.body) in message.frame([]) for message in measured)


def test_receipts_are_asked_for_at_the_given_distance(pool: Pool) -> None:
    assert pool.lap(1).count(b"\nreceipt:") == LAP // 2_000
    assert b"\nreceipt:0000011999\n" in pool.lap(1)


def test_one_seed_makes_the_same_messages_and_another_makes_others() -> None:
    assert Pool(FrameTemplate(seed=5)).lap(0) == Pool(FrameTemplate(seed=5)).lap(0)
    assert Pool(FrameTemplate(seed=5)).lap(0) != Pool(FrameTemplate(seed=6)).lap(0)


@pytest.mark.parametrize("index", [0, LAP - 1, 3 * LAP + 17])
def test_the_last_message_is_an_ordinary_one_with_a_receipt(pool: Pool, index: int) -> None:
    frame = pool.last(index, b"end")
    assert b"\nreceipt:end\n" in frame
    assert pool.difference(index, frame[:-1].replace(b"SEND", b"MESSAGE")) is None


def test_a_changed_body_or_header_is_a_difference(pool: Pool) -> None:
    frame = pool.last(4, b"end")[:-1]
    assert "body" in (pool.difference(4, frame + b"x") or "")
    assert "seq" in (pool.difference(4, frame.replace(b"seq", b"sea")) or "")


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ({"size_min": 10}, "sizes"),
        ({"size_min": 200}, "sizes"),
        ({"destinations": 3}, "destinations"),
        ({"destinations": 0}, "destinations"),
        ({"receipt_every": 7}, "receipt-every"),
    ],
)
def test_impossible_shapes_are_refused(shape: dict[str, int], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        FrameTemplate(**shape)  # type: ignore[arg-type]


def test_the_smallest_body_is_the_tag_alone() -> None:
    assert Pool(FrameTemplate(size_min=11, size_max=11)).messages[9].body == b"#" + MARK + b"0009"
