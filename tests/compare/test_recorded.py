"""The scenarios that need neither Artemis nor time, against Bartleby, and the record of both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compare.configuration import Ports, bartleby
from tests.compare.recorded import DIFFERENCES, differences, load, observe
from tests.compare.scenarios import SCENARIOS
from tests.support.process import started

#: Those that wait for delays or scans, or that only tell about a client's own settings.
SLOW = {"automatic-deletion", "expiry", "expiry-by-setting", "redelivery-with-a-delay", "scheduled-delivery"}
#: Over STOMP silence takes time, so that only what differs from AMQP runs here.
STOMP = {"sending-to-a-pattern", "max-consumers", "refused-for-good"}


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    with started(bartleby(tmp_path_factory.mktemp("compared"))) as broker:
        yield broker.ports


@pytest.mark.parametrize("name", sorted(SCENARIOS.keys() - SLOW))
def test_bartleby_answers_as_recorded_over_amqp(name: str, ports: Ports) -> None:
    recorded = {key: value for key, value in load()["bartleby"].items() if key.startswith(f"{name} amqp:")}
    assert observe(ports, 0, [name], ["amqp"]) == recorded


@pytest.mark.parametrize("name", sorted(STOMP))
def test_bartleby_answers_as_recorded_over_stomp(name: str, ports: Ports) -> None:
    recorded = {key: value for key, value in load()["bartleby"].items() if key.startswith(f"{name} stomp:")}
    assert observe(ports, 0.1, [name], ["stomp"]) == recorded


def test_every_recorded_difference_has_its_reason() -> None:
    found = load()
    text = DIFFERENCES.read_text()
    assert [key for key, *_ in differences(found["artemis"], found["bartleby"]) if f"`{key}`" not in text] == []


def test_no_reason_is_given_for_what_is_no_difference() -> None:
    found = load()
    different = {key for key, *_ in differences(found["artemis"], found["bartleby"])}
    told = {part for part in DIFFERENCES.read_text().split("`") if part in found["artemis"] | found["bartleby"]}
    assert told - different == set()


def test_the_record_has_every_scenario() -> None:
    found = load()
    wanted = {f"{name} {protocol}" for name in SCENARIOS for protocol in ("amqp", "stomp")}
    for broker in ("artemis", "bartleby"):
        assert {key.partition(":")[0] for key in found[broker]} == wanted


def test_a_difference_is_found() -> None:
    one = {"a amqp: x": 1, "a amqp: y": 2, "b amqp: x": 1}
    other = {"a amqp: x": 1, "a amqp: y": 3, "a amqp: z": 4}
    assert list(differences(one, other)) == [("a amqp: y", 2, 3), ("a amqp: z", None, 4)]
