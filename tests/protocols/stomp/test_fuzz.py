"""Any bytes at all give frames or a StompError, never anything else, and never keep more than the limits."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocols.stomp.conversation import LIMITS, TOKENS, begin, converse
from tests.protocols.stomp.peer import VERSIONS, connected
from tests.support.stomp_client import frame
from tests.support.wire import READ_BYTES_MAX, feed, pieces_of


@pytest.mark.parametrize("version", [None, *VERSIONS])
@pytest.mark.parametrize("seed", range(5))
def test_tokens_in_any_order(version: str | None, seed: int) -> None:
    random = Random(f"{version} {seed}")
    good = wrong = 0
    for _ in range(300):
        raw = b"".join(random.choices(TOKENS, k=random.randint(1, 30)))
        whole, error = converse(begin(version), [raw])
        split, other = converse(begin(version), pieces_of(random, raw))
        assert split == whole
        assert (other is None) == (error is None)
        good += len(whole)
        wrong += error is not None
    assert good > 10
    assert wrong > 10


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(5))
def test_good_frames_with_a_few_wrong_bytes(version: str, seed: int) -> None:
    random = Random(f"{version} {seed}")
    good = b"".join(
        [
            frame("SEND", {"destination": "/queue/a", "kind": "x"}, b"text", version),
            frame("SEND", {"destination": "/queue/a"}, b"b\0dy", version),
            frame("SUBSCRIBE", {"destination": "/queue/a", "id": "1"}, b"", version),
            frame("ACK", {"id": "1", "message-id": "1", "subscription": "1"}, b"", version),
        ]
    )
    assert len(feed(connected(version, LIMITS), [good])) == 4
    for _ in range(300):
        raw = bytearray(good)
        for _ in range(random.randint(1, 3)):
            at = random.randrange(len(raw))
            raw[at : at + random.randint(0, 2)] = random.choice(TOKENS)[:3]
        whole = converse(begin(version), [bytes(raw)])
        split = converse(begin(version), pieces_of(random, bytes(raw)))
        assert split[0] == whole[0]
        assert (split[1] is None) == (whole[1] is None)


@given(raw=st.binary(max_size=300), version=st.sampled_from(VERSIONS))
def test_any_bytes(raw: bytes, version: str) -> None:
    for connection in begin(None), begin(version):
        converse(connection, [raw[at : at + READ_BYTES_MAX] for at in range(0, len(raw), READ_BYTES_MAX)])
