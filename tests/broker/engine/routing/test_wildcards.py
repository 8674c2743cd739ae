"""Wildcard addresses in the whole broker: the table of the seeds, other characters, routing switched off, markers."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.config import ConfigError, JournalSection, LimitsSection, load
from broker.config.diverts import WildcardsSection
from broker.engine.model.errors import InvalidName
from broker.engine.model.message import RoutingType
from tests.broker.engine.engine_harness import Bench
from tests.support.mqtt_client import MqttClient, greeting
from tests.support.mqtt_world import SimCarrier
from tests.support.sim_broker import SimBroker, SimClient

SMALL = JournalSection.model_validate({"segment-size": "4MiB", "reserve": "1MiB"})
LIMITS = LimitsSection.model_validate({"body-bytes-max": "1MiB", "transaction-bytes-max": "1MiB"})
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
def test_table_4_3_for_subscriptions(bench: Bench, pattern: str, matching: list[str], others: list[str]) -> None:
    taker = bench.take(pattern, MULTICAST)
    for name in matching + others:
        bench.sent(name, name.encode(), routing_type=MULTICAST)
    assert taker.take() == [name.encode() for name in matching]


@pytest.mark.parametrize(("pattern", "matching", "others"), TABLE_4_3[1:])
def test_table_4_3_for_settings(pattern: str, matching: list[str], others: list[str]) -> None:
    """A setting's `*` is a whole word or a part of one; of whole words it says what the table says."""
    bench = Bench({"match": pattern, "max-delivery-attempts": 77})
    settings = bench.engine._state.registry.settings
    assert [settings(name).max_delivery_attempts for name in matching] == [77] * len(matching)
    assert 77 not in [settings(name).max_delivery_attempts for name in others]


@pytest.mark.parametrize("order", [1, -1])
def test_the_overlay_example_of_the_seeds(order: int) -> None:
    """4.17: my.queue has the attempts of my.* and its own setting besides, in whatever order they stand."""
    settings: list[dict[str, object]] = [
        {"match": "my.*", "max-delivery-attempts": 3, "redelivery-delay": 1_000},
        {"match": "my.queue", "redelivery-delay": 0},
    ]
    merged = Bench(*settings[::order]).engine._state.registry.settings("my.queue")
    assert (merged.max_delivery_attempts, merged.redelivery_delay) == (3, 0)


def test_a_wildcard_address_with_queues_of_its_own(bench: Bench) -> None:
    engine = bench.enter()
    address = engine.configuration.declare("news.*", {MULTICAST, RoutingType.ANYCAST})
    for name, kind in (("multi", MULTICAST), ("any", RoutingType.ANYCAST)):
        engine._state.registry.create_queue(address, name, kind, durable=True)
    bench.run()
    bench.sent("news.eu", b"1", routing_type=None)
    assert (bench.bodies("multi"), bench.bodies("any")) == ([b"1"], [b"1"])
    (message,) = bench.messages("any")
    assert message.header.address == "news.eu"
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
    assert bench.engine._state.registry.settings("news,eu").max_delivery_attempts == 77
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
    assert bench.engine._state.registry.settings("news.eu").max_delivery_attempts == 77


def test_literal_match_markers() -> None:
    bench = Bench(
        {"match": "(orders.#)", "max-delivery-attempts": 77}, wildcard_addresses=wildcards(literal_match_markers="()")
    )
    settings = bench.engine._state.registry.settings
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


# -- the example of the AMQ Broker manual, in every protocol -----------------------------------------------------------

MANUAL = '[wildcard-addresses]\ndelimiter = ","\nany-words = "@"\nsingle-word = "$"\n'


def sim(directory: Path, text: str, environment: dict[str, str] | None = None) -> SimBroker:
    """A broker with this file's settings and one user, whom only the permissions as shipped let do anything."""
    path = directory / "broker.toml"
    path.write_text(text)
    config = load(path, environment or {})
    return SimBroker(config.model_copy(update={"journal": SMALL, "limits": LIMITS}), users={"alice": "s3cret"})


def stomp(broker: SimBroker) -> SimClient:
    return broker.connect(login="alice", passcode="s3cret")


def mqtt(broker: SimBroker, name: str) -> MqttClient:
    client = MqttClient()
    client.over(SimCarrier(broker))
    return client.connect(greeting(name, user_name="alice", password=b"s3cret"))


@pytest.mark.parametrize("text", [MANUAL, '[wildcard-addresses]\nany-words = "@"\n', MANUAL.replace("$", "+")])
def test_built_in_matches_are_written_in_these_characters(tmp_path: Path, text: str) -> None:
    broker = sim(tmp_path, text)
    client = stomp(broker)
    client.subscribe("/queue/orders")
    client.confirmed("/queue/orders", b"1")
    assert client.bodies() == [b"1"]
    settings = broker.engine._state.registry.settings("orders")
    assert (settings.dead_letter_address, settings.expiry_address) == ("DLQ", "ExpiryQueue")
    assert not broker.reported("access.denied")


def test_so_it_is_when_the_environment_says_it(tmp_path: Path) -> None:
    client = stomp(sim(tmp_path, "", {"BARTLEBY_WILDCARD_ADDRESSES__ANY_WORDS": "@"}))
    client.confirmed("/queue/orders", b"1")


def test_a_match_for_everything_in_the_usual_character_is_asked_about(tmp_path: Path) -> None:
    """It would be the address `#` alone, and everything else be denied to everybody."""
    for section in ("address-settings", "security-settings"):
        with pytest.raises(ConfigError) as refused:
            sim(tmp_path, f'{MANUAL}[[{section}]]\nmatch = "#"\n')
        assert "any-words" in str(refused.value)
        assert "@" in str(refused.value)


def test_stomp_in_the_characters_of_the_manual(tmp_path: Path) -> None:
    broker = sim(tmp_path, MANUAL)
    client = stomp(broker)
    client.subscribe("/topic/news,@", "every")
    client.subscribe("/topic/news,$", "one")
    client.subscribe("/topic/activemq.notifications", "told")
    client.confirmed("/topic/news,eu", b"1")
    client.confirmed("/topic/news,eu,sport", b"2")
    assert sorted(body for body in client.bodies() if body) == [b"1", b"1", b"2"]
    client.do("SEND", {"destination": "/temp-queue/back"}, b"t")
    assert not client.take("ERROR")


def test_mqtt_in_the_characters_of_the_manual(tmp_path: Path) -> None:
    broker = sim(tmp_path, MANUAL)
    client = mqtt(broker, "c")
    assert client.subscribe("a/+", qos=1) == [1]
    assert client.subscribe("#", qos=1) == [1]
    client.publish("a/b", b"1", qos=1)
    client.publish("a/$@,.", b"2", qos=1, retain=True)
    assert sorted(client.payloads()) == [b"1", b"1", b"2", b"2"]
    for filter, payloads in (("a/$@,.", [b"2"]), ("a/+", [b"2"]), ("$share/g/x", [])):
        client.subscribe(filter, qos=1)
        assert client.payloads() == payloads
    broker = broker.restart()
    client = mqtt(broker, "d")
    client.subscribe("a/#", qos=1)
    assert client.payloads() == [b"2"], "retained messages survive"
    client.publish("a/$@,.", b"", qos=1, retain=True)
    client.subscribe("a/#", qos=1)
    assert b"2" not in client.payloads()


def test_names_that_begin_with_a_dollar_stay_hidden_when_that_is_a_wildcard(tmp_path: Path) -> None:
    broker = sim(tmp_path, MANUAL)
    client = mqtt(broker, "c")
    client.subscribe("#")
    client.subscribe("+/broker/#")
    client.publish("$mine/broker/x", b"1", qos=1)
    broker.advance(60_000)
    assert client.payloads() == []
    client.subscribe("$mine/#")
    client.publish("$mine/broker/x", b"2", qos=1)
    assert client.payloads() == [b"2"]
    client.subscribe("$SYS/#")
    assert client.payloads()


def test_a_retroactive_address_in_the_characters_of_the_manual(tmp_path: Path) -> None:
    setting = '[[address-settings]]\nmatch = "old,@"\nretroactive-message-count = 5\n'
    broker = sim(tmp_path, MANUAL + setting)
    client = stomp(broker)
    client.confirmed("/topic/old,one", b"1")
    client.subscribe("/topic/old,one")
    assert client.bodies() == [b"1"]


@pytest.mark.parametrize("character", ["a", "7", "-", ".", ":"])
@pytest.mark.parametrize("key", ["any-words", "single-word"])
def test_characters_of_the_brokers_own_names_are_no_wildcards(tmp_path: Path, key: str, character: str) -> None:
    """`temporary-UUID`, `activemq.notifications`: with these nobody could send there."""
    with pytest.raises(ConfigError, match="of the broker's own names"):
        sim(tmp_path, f'[wildcard-addresses]\ndelimiter = "/"\n{key} = "{character}"\n')
