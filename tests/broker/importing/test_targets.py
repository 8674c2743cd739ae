"""Lists of addresses, as Artemis and ActiveMQ Classic have them: all of one, or nothing."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.importing.targets import LIST_CHARS_MAX, NoTarget, each_of, hosts_of, one_of, url_of


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("tcp://a:1", "tcp://a:1"),
        ("tcp://a", "tcp://a"),
        (" tcp://[::1]:1/ ", "tcp://[::1]:1"),
        ("tcp://a:1#tcp://b:2,tcp://c", "tcp://a:1, tcp://b:2, tcp://c"),
        ("tcp://a:1?x=1,2;y=3#tcp://b:2", "tcp://a:1, tcp://b:2"),
        ("(tcp://a:1,tcp://b:2)?ha=true", "tcp://a:1, tcp://b:2"),
        ("(tcp://a:1?name=x,tcp://b:2?name=y", "tcp://a:1, tcp://b:2"),
        ("tcp://(a:1,b:2)", "tcp://a:1, tcp://b:2"),
        ("tcp://a:1,tcp://b:2", "tcp://a:1, tcp://b:2"),
        ("vm://0", "vm://0"),
    ],
)
def test_lists_of_artemis(text: str, hosts: str) -> None:
    assert hosts_of(one_of(text)) == hosts


@pytest.mark.parametrize(
    ("text", "sslEnabled"),
    [
        ("tcp://a:1?sslEnabled=true#tcp://b:2", ["true", "true"]),
        ("tcp://a:1?sslEnabled=true#tcp://b:2?sslEnabled=false", ["true", "false"]),
        ("(tcp://a:1,tcp://b:2)?sslEnabled=true", ["true", "true"]),
    ],
)
def test_options_of_the_first_host_are_those_of_all(text: str, sslEnabled: list[str]) -> None:
    assert [target.parameters["sslEnabled"] for target in one_of(text)] == sslEnabled


@pytest.mark.parametrize(
    ("text", "connections", "parameters"),
    [
        ("static:(tcp://a:1,tcp://b)", ["tcp://a:1", "tcp://b"], {}),
        ("static://(tcp://a:1)?useExponentialBackOff=false", ["tcp://a:1"], {"useExponentialBackOff": "false"}),
        ("static:tcp://a:1", ["tcp://a:1"], {}),
        ("masterslave:(tcp://a:1,ssl://b:2)", ["tcp://a:1, ssl://b:2"], {}),
        ("failover:(tcp://a:1,tcp://b:2)?randomize=false", ["tcp://a:1, tcp://b:2"], {"randomize": "false"}),
        ("static:(failover:(tcp://a,tcp://b)?x=1,tcp://c)", ["tcp://a, tcp://b", "tcp://c"], {}),
        ("static:failover:(tcp://a,tcp://b)", ["tcp://a, tcp://b"], {}),
    ],
)
def test_lists_of_classic(text: str, connections: list[str], parameters: dict[str, str]) -> None:
    groups, found = each_of(text)
    assert [hosts_of(group) for group in groups] == connections
    assert found == parameters


@pytest.mark.parametrize(
    "text",
    ["", "()", "a:1", "tcp://", "tcp://a:0", "tcp://a:65536", "tcp://u:hunter@a:1", "tcp://a:1/path", "tcp://a:1#b:2"],
)
def test_a_value_that_is_no_list_of_hosts_is_none(text: str) -> None:
    with pytest.raises(NoTarget, match="not a list of hosts"):
        one_of(text)


@pytest.mark.parametrize("text", ["multicast://default", "tcp://a:1", "static:(tcp://a:1", "ldap://dir:389/ou=x", ""])
def test_classics_discovery_names_nobody(text: str) -> None:
    with pytest.raises(NoTarget, match="does not name the brokers"):
        each_of(text)


@pytest.mark.parametrize("text", ["tcp://${host}:1", "static:(${a.uri})", "(tcp://${host},tcp://b)"])
def test_a_property_without_a_default_is_none(text: str) -> None:
    for read in (one_of, each_of):
        with pytest.raises(NoTarget, match="no default"):
            read(text)


def test_a_list_may_have_its_length_and_not_a_character_more() -> None:
    longest = "tcp://a" + "," * (LIST_CHARS_MAX - 7)
    with pytest.raises(NoTarget, match="longer"):
        one_of(longest + ",")
    with pytest.raises(NoTarget, match="not a list"):
        one_of(longest)


def test_the_url_of_a_link() -> None:
    (target,) = one_of("tcp://[::1]")
    assert url_of(target, secure=True, port=5671) == "amqps://[::1]:5671"
    (target,) = one_of("tcp://a:61616")
    assert url_of(target, port=1) == "amqp://a:61616"


@given(st.text("tcpstaic:/(),#?=;&${}.ab1[]@ ", max_size=60))
def test_any_text_is_a_list_or_none(text: str) -> None:
    for read in (one_of, each_of):
        with suppress(NoTarget):
            read(text)
