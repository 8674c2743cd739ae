"""What the broker asks a configuration for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from broker.config import ConfigError, MqttAcceptor, StompAcceptor, load
from broker.config.acceptors import HttpAcceptor

Write = Callable[[str], Path]


def test_memory_for_messages(write: Write) -> None:
    assert load(None).broker.global_size_max(1_000) == 500
    assert load(write('[broker]\nglobal-max-size = "1K"\n')).broker.global_size_max(1_000) == 1_024
    assert load(write("[broker]\nglobal-max-size = 0\n")).broker.global_size_max(1_000) == 0


def test_time_to_live_of_an_acceptor(write: Write) -> None:
    config = load(
        write('[acceptors.a]\nprotocol = "stomp"\n[acceptors.b]\nprotocol="stomp"\nport=0\nconnection-ttl=-1\n')
    )
    acceptors = [acceptor for acceptor in config.acceptors.values() if isinstance(acceptor, StompAcceptor)]
    assert [config.connection_ttl(acceptor) for acceptor in acceptors] == [60_000, -1]


def test_a_disabled_acceptor_is_not_among_those_to_open(write: Write) -> None:
    config = load(
        write('[acceptors.a]\nprotocol = "stomp"\nenabled = false\n[acceptors.b]\nprotocol = "http"\nenabled = false\n')
    )
    assert not config.messaging_acceptors
    assert not config.http_acceptors
    assert set(config.acceptors) == {"a", "b"}


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("localhost.example", False),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert HttpAcceptor(protocol="http", host=host).is_loopback is loopback


def test_prefixes_may_be_several() -> None:
    acceptor = StompAcceptor.model_validate(
        {"protocol": "stomp", "anycast-prefix": "jms.queue., /queue/", "multicast-prefix": ""}
    )
    assert acceptor.anycast_prefixes == ("jms.queue.", "/queue/")
    assert acceptor.multicast_prefixes == ()


def test_reload_takes_address_settings_and_level(write: Write) -> None:
    old = load(None)
    new = load(
        write('[broker]\nname = "n"\n[log]\nlevel = "debug"\nformat = "json"\n[[address-settings]]\nmatch = "a"\n')
    )
    assert old.changed_sections(new) == {"broker", "log", "address-settings"}
    assert old.changed_sections(load(None)) == set()
    taken = old.with_reloaded(new)
    assert taken.address_settings == new.address_settings
    assert (taken.log.level, taken.log.format) == ("debug", "console")
    assert taken.broker == old.broker


def test_the_largest_packet_of_mqtt(write: Write) -> None:
    def largest(size: str) -> int:
        acceptor = load(write(f'[acceptors.m]\nprotocol = "mqtt"\nmaximum-packet-size = {size}\n')).acceptors["m"]
        assert isinstance(acceptor, MqttAcceptor)
        return acceptor.maximum_packet_size

    assert largest('"256MiB"') == 256 << 20
    with pytest.raises(ConfigError, match="268435456 or less"):
        largest("268435457")
