"""How descriptors are shared out, for limits from a small shell's to a service's."""

from __future__ import annotations

import pytest

from broker.config import Config, load
from broker.daemon.descriptors import report_few, share_out

#: What a broker with four acceptors has open before it listens.
OPEN = 20


@pytest.mark.parametrize(
    ("limit", "at_least", "http", "warned"),
    [(128, 20, (1, 16), True), (1_024, 750, (64, 16), True), (65_536, 10_000, (64, 16), False)],
)
def test_connections_are_what_is_left(limit: int, at_least: int, http: tuple[int, int], warned: bool) -> None:
    reported: list[str] = []
    config = load(None)
    found = share_out(config, limit, OPEN)
    report_few(lambda code, /, **_: reported.append(code), config, found)
    assert at_least <= found.connections <= config.limits.connections_max
    own, reserved = found.http["http"]
    assert http[0] <= own <= 64
    assert 1 <= reserved <= http[1]
    assert OPEN + found.reserve + own + reserved + found.connections <= limit
    assert (reported == ["descriptors.few"]) is warned


def test_however_few_there_are_somebody_can_connect() -> None:
    found = share_out(load(None), 16, OPEN)
    assert (found.connections, found.http["http"]) == (1, (1, 1))


def test_what_acceptors_allow_together_is_all_that_is_wanted() -> None:
    acceptors = {"stomp": {"protocol": "stomp", "connections-allowed": 10}, "http": {"protocol": "http"}}
    config = Config.model_validate({"acceptors": acceptors})
    reported: list[str] = []
    report_few(lambda code, /, **_: reported.append(code), config, share_out(config, 256, OPEN))
    assert reported == []
