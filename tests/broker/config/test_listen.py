"""`--listen ACCEPTOR=HOST:PORT`."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.config import ConfigError, Problem, load
from broker.config.listen import parse_listen


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("stomp=127.0.0.1:0", ("stomp", "127.0.0.1", 0)),
        ("stomp=localhost:65535", ("stomp", "localhost", 65_535)),
        ("my-stomp=[::1]:61613", ("my-stomp", "::1", 61_613)),
    ],
)
def test_forms(text: str, parsed: tuple[str, str, int]) -> None:
    assert parse_listen(text) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "stomp",
        "stomp=",
        "stomp=61613",
        "stomp=:61613",
        "=127.0.0.1:1",
        "stomp=127.0.0.1",
        "stomp=127.0.0.1:",
        "stomp=127.0.0.1:-1",
        "stomp=127.0.0.1:x",
        "stomp=127.0.0.1:٣",
        "stomp=127.0.0.1:65536",
        "stomp=::1:0",
        "stomp=[::1:0",
        "stomp=[]:0",
    ],
)
def test_no_listen_address(text: str) -> None:
    with pytest.raises(ValueError, match="give ACCEPTOR=HOST:PORT"):
        parse_listen(text)


def problems(*listen: str) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        load(None, listen=listen)
    return caught.value.problems


def test_it_overrides_and_enables(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text('[acceptors.s]\nprotocol = "stomp"\nenabled = false\n[acceptors.h]\nprotocol = "http"\n')
    config = load(path, listen=["s=[::1]:0", "h=127.0.0.1:1"])
    assert {n: (a.host, a.port, a.enabled) for n, a in config.acceptors.items()} == {
        "s": ("::1", 0, True),
        "h": ("127.0.0.1", 1, True),
    }


def test_the_last_one_counts() -> None:
    assert load(None, listen=["stomp=127.0.0.1:1", "stomp=127.0.0.1:2"]).acceptors["stomp"].port == 2


def test_an_unknown_acceptor_is_told_with_those_that_are() -> None:
    [problem] = problems("openwire=127.0.0.1:0")
    assert problem.file == "--listen"
    assert problem.fix == 'there is no acceptor "openwire": the configuration has amqp, http, mqtt, stomp'


def test_all_at_once() -> None:
    assert len(problems("openwire=127.0.0.1:0", "stomp", "stomp=0.0.0.0:99999")) == 3


def test_in_load_the_option_is_the_source() -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {"BARTLEBY_ACCEPTORS__AMQP__PORT": "1"}, listen=["amqp=127.0.0.1:61613"])
    [problem] = caught.value.problems
    assert (problem.file, problem.value) == ("--listen", "61613")
