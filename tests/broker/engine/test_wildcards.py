"""Wildcard addresses in the whole broker: the table of the seeds, other characters, routing switched off, markers."""

from __future__ import annotations

import pytest

from broker.config import ConfigError, load
from broker.config.diverts import WildcardsSection
from broker.engine.errors import InvalidName
from broker.engine.message import RoutingType
from tests.broker.engine.bench import Bench

MULTICAST = RoutingType.MULTICAST

#: Table 4.3 of the seeds (section 4.17): pattern, what it matches, what it does not.
TABLE_4_3 = [
    ("#", ["news", "news.europe.sport", "a"], []),
    ("news.europe.#", ["news.europe", "news.europe.sport", "news.europe.politics.fr"], ["news.usa", "europe"]),
    ("news.*", ["news.europe", "news.usa"], ["news.europe.sport", "news"]),
    ("news.*.sport", ["news.europe.sport", "news.usa.sport"], ["news.europe.fr.sport"]),
]


def wildcards(**values: object) -> WildcardsSection:
    """A section of the configuration."""
    return WildcardsSection.model_validate({name.replace("_", "-"): value for name, value in values.items()})


@pytest.mark.parametrize(("pattern", "matching", "others"), TABLE_4_3)
def test_table_4_3_for_subscriptions(pattern: str, matching: list[str], others: list[str]) -> None:
    bench = Bench()
    taker = bench.take(pattern, MULTICAST)
    for name in matching + others:
        bench.sent(name, name.encode(), routing_type=MULTICAST)
    assert taker.take() == [name.encode() for name in matching]


@pytest.mark.parametrize(("pattern", "matching", "others"), TABLE_4_3[1:])
def test_table_4_3_for_settings(pattern: str, matching: list[str], others: list[str]) -> None:
    """A setting's `*` is a whole word or a part of one; of whole words it says what the table says."""
    bench = Bench({"match": pattern, "max-delivery-attempts": 77})
    settings = bench.engine.router.settings
    assert [settings(name).max_delivery_attempts for name in matching] == [77] * len(matching)
    assert 77 not in [settings(name).max_delivery_attempts for name in others]


@pytest.mark.parametrize("order", [1, -1])
def test_the_overlay_example_of_the_seeds(order: int) -> None:
    """4.17: my.queue has the attempts of my.* and its own setting besides, in whatever order they stand."""
    settings: list[dict[str, object]] = [
        {"match": "my.*", "max-delivery-attempts": 3, "redelivery-delay": 1_000},
        {"match": "my.queue", "redelivery-delay": 0},
    ]
    merged = Bench(*settings[::order]).engine.router.settings("my.queue")
    assert (merged.max_delivery_attempts, merged.redelivery_delay) == (3, 0)


def test_a_wildcard_address_with_queues_of_its_own() -> None:
    bench = Bench()
    engine = bench.enter()
    address = engine.declare("news.*", {MULTICAST, RoutingType.ANYCAST})
    for name, kind in (("multi", MULTICAST), ("any", RoutingType.ANYCAST)):
        engine.router.create_queue(address, name, kind, durable=True)
    bench.run()
    bench.sent("news.eu", b"1", routing_type=None)
    assert (bench.bodies("multi"), bench.bodies("any")) == ([b"1"], [b"1"])
    ((message, _),) = bench.engine.browse(bench.queue("any"))
    assert message.facts.address == "news.eu"
    assert bench.restart().bodies("multi") == [b"1"]
    with pytest.raises(InvalidName, match="has a wildcard"):
        bench.send("news.*", b"2")


def test_the_custom_syntax_of_the_seeds() -> None:
    """4.17: delimiter `,`, any-words `@`, single-word `$`."""
    bench = Bench(
        {"match": "news,@", "max-delivery-attempts": 77},
        wildcard_addresses=wildcards(delimiter=",", any_words="@", single_word="$"),
    )
    every, one = bench.take("news,@", MULTICAST), bench.take("news,$", MULTICAST)
    for name in ("news", "news,eu", "news,eu,sport", "news.eu"):
        bench.sent(name, name.encode(), routing_type=MULTICAST)
    assert every.take() == [b"news", b"news,eu", b"news,eu,sport"]
    assert one.take() == [b"news,eu"]
    assert bench.engine.router.settings("news,eu").max_delivery_attempts == 77
    bench.sent("a.#", b"plain")  # these characters mean nothing now
    assert bench.bodies("a.#") == [b"plain"]
    with pytest.raises(InvalidName, match="has a wildcard"):
        bench.send("a,@", b"1")


@pytest.mark.parametrize("key", ["routing_enabled", "enabled"])
def test_routing_switched_off(key: str) -> None:
    bench = Bench({"match": "news.#", "max-delivery-attempts": 77}, wildcard_addresses=wildcards(**{key: False}))
    taker = bench.take("news.#", MULTICAST)
    bench.sent("news.eu", b"1", routing_type=MULTICAST)
    bench.sent("news.#", b"2", routing_type=MULTICAST)
    assert taker.take() == [b"2"]
    assert bench.engine.router.settings("news.eu").max_delivery_attempts == 77


def test_literal_match_markers() -> None:
    bench = Bench(
        {"match": "(orders.#)", "max-delivery-attempts": 77},
        wildcard_addresses=wildcards(literal_match_markers="()"),
    )
    settings = bench.engine.router.settings
    assert settings("orders.#").max_delivery_attempts == 77
    assert settings("orders.eu").max_delivery_attempts == 10


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('delimiter = "#"', "must differ"),
        ('delimiter = ""', "give a text that is not empty"),
        ('delimiter = ".."', "give at most 1 characters"),
        ('literal-match-markers = "("', "give two different characters"),
        ('literal-match-markers = "(("', "give two different characters"),
        ("enabled = true\nrouting-enabled = false", "routing-enabled says the opposite"),
    ],
)
def test_the_section_is_checked(tmp_path, text: str, problem: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "broker.toml"
    path.write_text(f"[wildcard-addresses]\n{text}\n")
    with pytest.raises(ConfigError) as refused:
        load(path)
    assert problem in str(refused.value)


def test_matches_are_checked_in_the_same_syntax(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "broker.toml"
    path.write_text('[wildcard-addresses]\nany-words = "@"\n[[address-settings]]\nmatch = "a.#.b"\n')
    assert load(path).wildcard_addresses.any_words == "@"
    path.write_text('[wildcard-addresses]\nany-words = "@"\n[[address-settings]]\nmatch = "a.@.b"\n')
    with pytest.raises(ConfigError, match="@ can only be the last character"):
        load(path)
