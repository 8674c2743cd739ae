"""What the MQTT generator sends, and that its checker notices what a broker does wrong."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random

import numpy as np
import pytest

from bench.generator import Load
from bench.link import BrokerFailed
from bench.messages import LAP, FrameTemplate
from bench.mqtt_load import run
from bench.mqtt_messages import PACKET_IDS, Checker, MqttPool
from protocols.mqtt.codes import V311
from protocols.mqtt.packets import Publish
from tests.bench.mqtt_toy import toy
from tests.protocols.mqtt.peer import connected

SHAPE = FrameTemplate(destinations=16, seed=7)


@cache
def pool(qos: int) -> MqttPool:
    """The packets of a lap."""
    return MqttPool(SHAPE, qos)


def packets(qos: int, first: int, count: int) -> list[bytes]:
    """Packets as the producer sends them."""
    offsets = pool(qos).offsets.tolist()
    places = [divmod(number, LAP) for number in range(first, first + count)]
    return [lap(qos, number)[offsets[index] : offsets[index + 1]] for number, index in places]


@cache
def lap(qos: int, number: int) -> bytes:
    """A lap."""
    return pool(qos).outgoing(number)


@pytest.mark.parametrize("qos", [0, 1])
def test_what_is_sent(qos: int) -> None:
    """As the codec reads it: topics in turn, packet ids that go round, numbers at the end, sizes within the shape."""
    numbers = [0, 1, LAP - 1, LAP, PACKET_IDS - 1, PACKET_IDS, 123_456]
    for number in numbers:
        codec = connected(V311)
        codec.receive_data(packets(qos, number, 1)[0])
        (publish,) = codec.events()
        assert isinstance(publish, Publish)
        assert publish.topics == [f"topic/{number % 16:02d}"]
        assert publish.packet_ids == ([1 + number % PACKET_IDS] if qos else [])
        assert publish.payloads[0].endswith(b"#%010d" % number)
        assert SHAPE.size_min <= len(publish.payloads[0]) <= SHAPE.size_max


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("order", ["as sent", "by topic"])
def test_all_is_taken_however_it_arrives(qos: int, order: str) -> None:
    random = Random(f"{qos} {order}")
    sent = packets(qos, LAP - 200, 400)
    checker = Checker(pool(qos))
    checker.take(b"".join(packets(qos, 0, LAP - 200)))
    if order == "by topic":
        sent = [one for topic in range(16) for one in sent[topic::16]]
    raw, at, answers = b"".join(sent), 0, b""
    while at < len(raw):
        size = random.randint(1, 700)
        answers += checker.take(raw[at : at + size])
        at += size
    assert checker.received == LAP + 200
    assert len(answers) == (4 * 400 if qos else 0)


def changed(sent: list[bytes]) -> None:
    sent[5] = sent[5].replace(b"topic/", b"TOPIC/")


def lost(sent: list[bytes]) -> None:
    del sent[5]


def repeated(sent: list[bytes]) -> None:
    sent.insert(5, sent[5])


def swapped(sent: list[bytes]) -> None:
    sent[5], sent[21] = sent[21], sent[5]


def duplicate(sent: list[bytes]) -> None:
    sent[5] = bytes([sent[5][0] | 8]) + sent[5][1:]


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("harm", [changed, lost, repeated, swapped, duplicate])
def test_what_is_wrong_is_noticed(qos: int, harm: Callable[[list[bytes]], None]) -> None:
    sent = packets(qos, 0, 100)
    harm(sent)
    checker = Checker(pool(qos))
    with pytest.raises(BrokerFailed):
        checker.take(b"".join(sent))


def test_the_pubacks_are_those_of_the_packets() -> None:
    answers = Checker(pool(1)).take(b"".join(packets(1, 0, 500)))
    ids = np.frombuffer(answers, np.uint8).reshape(-1, 4)
    assert [int(high) << 8 | int(low) for _, _, high, low in ids] == list(range(1, 501))
    assert {(int(first), int(second)) for first, second, _, _ in ids} == {(0x40, 2)}


# -- a whole run -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("qos", "subscribers"), [(0, 1), (0, 5), (1, 1)])
def test_a_run(qos: int, subscribers: int) -> None:
    with toy() as target:
        outcome = run(target, pool(qos), Load(messages=LAP + 500), subscribers)
    assert outcome.messages == subscribers * (LAP + 500)
    assert outcome.receipts == outcome.acks == (LAP + 500 if qos else 0)


def test_a_run_that_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.mqtt_load.STALL_S", 0.2)
    with toy(lose=300) as target, pytest.raises(BrokerFailed, match="nothing moved"):
        run(target, pool(0), Load(messages=LAP))
