"""The fuzzers, for a second or two each; and that they notice what they look for."""

from __future__ import annotations

import time
from random import Random

import pytest

from tests.fuzz.fuzzing import Failed, fuzz
from tests.fuzz.mutation import Mutator
from tests.fuzz.sent import Sent, seeds
from tests.fuzz.targets import Target, targets

#: For each target; `make fuzz` tries a million.
INPUTS = 1_000


@pytest.mark.parametrize("name", targets())
def test_any_input_costs_its_sender_only(name: str) -> None:
    assert fuzz(targets()[name], inputs=INPUTS, seed=1).inputs == INPUTS


def _crash(data: bytes) -> None:
    if b"BAD" in data:
        raise KeyError(data)


def _hang(data: bytes) -> None:
    until = time.thread_time() + (0.11 if b"BAD" in data else 0)
    while time.thread_time() < until:
        pass


@pytest.mark.parametrize(("run", "told"), [(_crash, "KeyError"), (_hang, "ms: b'")])
def test_faults_are_noticed(run: object, told: str) -> None:
    target = Target(run, [b"some"], [b"BAD"])  # type: ignore[arg-type]
    with pytest.raises(Failed, match=told):
        fuzz(target, inputs=1_000, seed=1)


def test_growth_is_noticed() -> None:
    kept: list[bytes] = []
    growing = Target(lambda data: kept.append(b"x" * (256 << 10)), [b"x"], [])
    with pytest.raises(Failed, match="grew"):
        fuzz(growing, inputs=500, seed=1, growth_bytes_max=4 << 20)


def test_the_same_seed_makes_the_same_inputs() -> None:
    target = targets()["mqtt"]

    def inputs(seed: int) -> list[bytes]:
        mutator = Mutator(Random(seed), target.seeds, target.tokens, target.bytes_max)
        return [mutator.next() for _ in range(500)]

    assert inputs(1) == inputs(1)
    assert inputs(1) != inputs(2)
    assert max(map(len, inputs(1))) <= target.bytes_max


def test_messages_that_are_fed_to_a_broker_reach_consumers() -> None:
    target = Sent()
    for data in seeds():
        target.run(data)
    assert target.accepted >= 3 * 6, "over STOMP, AMQP and MQTT"
