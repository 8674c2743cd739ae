"""Any bytes at all give packets or an MqttError, never anything else, and never keep more than the limits."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.mqtt.codes import Role
from protocols.mqtt.encode import PublishHead, encode, encode_ack
from protocols.mqtt.packets import Ack, Auth
from tests.protocols.mqtt.conversation import LIMITS, TOKENS, C, S, begin, converse
from tests.protocols.mqtt.peer import VERSIONS, authenticating, opened
from tests.protocols.mqtt.strategies import packets
from tests.support.wire import READ_BYTES_MAX, pieces_of


@pytest.mark.parametrize("role", [C, S])
@pytest.mark.parametrize("version", [None, *VERSIONS])
def test_tokens_in_any_order(version: int | None, role: Role) -> None:
    """The same packets however they arrive."""
    random = Random(f"{version} {role}")
    good = wrong = 0
    for _ in range(400):
        raw = b"".join(random.choices(TOKENS, k=random.randint(1, 30)))
        if version is None and role is S:
            raw = random.choice(TOKENS[16:18]) + raw
        whole, error = converse(begin(version, role), [raw])
        split, other = converse(begin(version, role), pieces_of(random, raw))
        assert split == whole
        assert (other is None) == (error is None)
        good += len(whole)
        wrong += error is not None
    assert good > (0 if version is None and role is C else 10)
    assert wrong > 10


@pytest.mark.parametrize("role", [C, S])
@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_good_packets_with_a_few_wrong_bytes(version: int, role: Role, data: st.DataObject) -> None:
    raws = [
        encode_ack(packet, version) if isinstance(packet, Ack) else encode(packet, version)
        for packet in data.draw(st.lists(packets(version, role.peer), min_size=1, max_size=4))
    ]
    out: list[bytes] = []
    PublishHead(version, "a/b", qos=1).encode(out, [b"x", b"y"], [1, 2])
    raw = bytearray(b"".join([*raws, *out]))
    for at, byte in data.draw(st.lists(st.tuples(st.integers(0, len(raw) - 1), st.integers(0, 255)), max_size=4)):
        raw[at] = byte
    random = data.draw(st.randoms(use_true_random=False))
    whole = converse(begin(version, role), [bytes(raw)])
    split = converse(begin(version, role), pieces_of(random, bytes(raw)))
    assert split[0] == whole[0]
    assert (split[1] is None) == (whole[1] is None)


@given(raw=st.binary(max_size=300), version=st.sampled_from([None, *VERSIONS]), role=st.sampled_from([C, S]))
def test_any_bytes(raw: bytes, version: int | None, role: Role) -> None:
    converse(begin(version, role), [raw[at : at + READ_BYTES_MAX] for at in range(0, len(raw), READ_BYTES_MAX)])


@given(raw=st.binary(max_size=100), first=st.integers(0, 255))
def test_any_bytes_as_one_packet(raw: bytes, first: int) -> None:
    """With a length that is right."""
    for version in VERSIONS:
        for role in (C, S):
            converse(begin(version, role), [bytes([first, len(raw)]) + raw])
    connection = authenticating()
    connection.send(Auth(0x18))
    connection.data_to_send()
    converse(connection, [bytes([first, len(raw)]) + raw])


@given(raw=st.binary(max_size=100), version=st.sampled_from([3, 4, 5]))
def test_any_bytes_as_connect(raw: bytes, version: int) -> None:
    """After a name and a level that are right."""
    name = b"\0\6MQIsdp" if version == 3 else b"\0\4MQTT"
    body = name + bytes([version]) + raw
    converse(opened(S, LIMITS), [bytes([0x10, len(body)]) + body])


@given(raw=st.binary(max_size=100))
def test_any_bytes_as_connack(raw: bytes) -> None:
    converse(begin(None, C), [bytes([0x20, len(raw)]) + raw])
