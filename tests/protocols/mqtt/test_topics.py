"""Topic names, topic filters and the addresses that they stand for."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.engine.model.names import WildcardSyntax, check_name, check_sendable
from broker.engine.model.topics import Topics
from protocols.mqtt.codes import ReasonCode
from protocols.mqtt.errors import MqttError
from protocols.mqtt.limits import Limits
from protocols.mqtt.topics import AddressSyntax, TopicFilter, check_topic_name, parse_topic_filter, prefixed

LIMITS = Limits()
PLAIN = AddressSyntax()

#: Topics of characters that mean something somewhere.
levels = st.text(st.sampled_from("ab$.*\\: ä>/&"), max_size=8)
topics = levels.filter(bool)
filters = st.lists(
    st.one_of(st.sampled_from(["+", "a", "b", "", "a.b", "*"]), levels.map(lambda s: s.replace("/", ""))), min_size=1
).map("/".join)


def matches(pattern: str, topic: str) -> bool:
    """MQTT 4.7.1, 4.7.2: whether a topic filter without share matches a topic name."""
    if topic.startswith("$") and pattern[:1] in ("+", "#"):
        return False
    wanted, found = pattern.split("/"), topic.split("/")
    if wanted[-1] == "#":
        return len(found) >= len(wanted) - 1 and all(w in ("+", f) for w, f in zip(wanted[:-1], found, strict=False))
    return len(wanted) == len(found) and all(w in ("+", f) for w, f in zip(wanted, found, strict=True))


@pytest.mark.parametrize(
    "topic", ["a", "/", "//", "/a", "a/", "a b", "ACCOUNTS", "$SYS/x", " ", "a/$b", "größe", "\ufeff"]
)
def test_topic_names(topic: str) -> None:
    """4.7.3; MQTT-4.7.1-1 and MQTT-4.7.1-2 forbid nothing else."""
    check_topic_name(topic, LIMITS)
    assert parse_topic_filter(topic, LIMITS) == TopicFilter(topic, topic)


@pytest.mark.parametrize("text", ["#", "+", "/#", "+/+", "/+", "+/a/#", "a/#", "a/+/b/+", "$SYS/#", "/", "+//#"])
def test_topic_filters(text: str) -> None:
    """MQTT-4.7.1-1, MQTT-4.7.1-2: the examples of the specification, and more."""
    found = parse_topic_filter(text, LIMITS)
    assert found == TopicFilter(text, text)
    assert found.wildcard == ("#" in text or "+" in text)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "MQTT-4.7.3-1"),
        ("sport/tennis#", "MQTT-4.7.1-1"),
        ("sport/tennis/#/ranking", "MQTT-4.7.1-1"),
        ("##", "MQTT-4.7.1-1"),
        ("#/", "MQTT-4.7.1-1"),
        ("sport+", "MQTT-4.7.1-2"),
        ("+#", "MQTT-4.7.1-2"),
        ("a/b+/c", "MQTT-4.7.1-2"),
    ],
)
def test_wrong_topic_filters(text: str, rule: str) -> None:
    for whole in (text, f"$share/g/{text}"):
        with pytest.raises(MqttError) as caught:
            parse_topic_filter(whole, LIMITS)
        assert caught.value.rule == ("MQTT-4.8.2-2" if whole == "$share/g/" else rule)
        assert caught.value.reason == ReasonCode.MALFORMED_PACKET


def test_shared_subscriptions() -> None:
    """MQTT-4.8.2-1, MQTT-4.8.2-2."""
    for text, share, pattern in (
        ("$share/consumer1/sport/tennis/+", "consumer1", "sport/tennis/+"),
        ("$share/consumer1//finance", "consumer1", "/finance"),
        ("$share/a b/#", "a b", "#"),
        ("$share/$share/$share/x", "$share", "$share/x"),
    ):
        assert parse_topic_filter(text, LIMITS) == TopicFilter(text, pattern, share)
    for text in ("$share", "$SHARE/g/a", "$shared/g/a", "/$share/g/a"):
        assert parse_topic_filter(text, LIMITS).share is None


@pytest.mark.parametrize(("check", "reason"), [(check_topic_name, 0x90), (parse_topic_filter, 0x8F)])
def test_limits(check: object, reason: int) -> None:
    """As many bytes and levels as are allowed, and one more."""
    assert callable(check)
    limits = Limits(topic_bytes_max=10, topic_levels_max=4)
    for text in ("x" * 10, "ä" * 5, "a/b/c/d", "///"):
        check(text, limits)
    for text in ("x" * 11, "ä" * 5 + "x", "a/b/c/d/e", "////"):
        with pytest.raises(MqttError) as caught:
            check(text, limits)
        assert caught.value.reason == reason
        assert caught.value.sentence.isprintable()


def test_a_share_counts() -> None:
    limits = Limits(topic_bytes_max=10, topic_levels_max=4)
    for text in ("$share/a/b", "$share/a/b"):
        parse_topic_filter(text, limits)
    with pytest.raises(MqttError, match="longer than 10 bytes"):
        parse_topic_filter("$share/a/bc", limits)


@pytest.mark.parametrize(
    ("topic", "address"),
    [
        ("a/b", "a.b"),
        ("x.y/z", "x\\.y.z"),
        ("/a", ".a"),
        ("a//b/", "a..b."),
        ("/", "."),
        ("a*", "a\\*"),
        ("a\\b", "a\\\\b"),
        ("a:b", "a:b"),
        ("a::b", "a:\\:b"),
        ("a:::b/::", "a:\\:\\:b.:\\:"),
        ("$SYS/x", "$SYS.x"),
    ],
)
def test_addresses(topic: str, address: str) -> None:
    """Artemis semantics 5.3 and 11."""
    assert PLAIN.to_address(topic) == address
    assert PLAIN.to_topic(address) == topic
    check_name(address)


@pytest.mark.parametrize(
    ("pattern", "address"), [("a/+/c", "a.*.c"), ("#", "#"), ("+", "*"), ("a.b/+/*/#", "a\\.b.*.\\*.#"), ("/+", ".*")]
)
def test_patterns(pattern: str, address: str) -> None:
    assert PLAIN.to_pattern(pattern) == address


@given(topics)
@example("::::")
@example("\\")
@example("\\./.\\")
def test_there_and_back(topic: str) -> None:
    """Also for other characters, and the address is one that may be sent to."""
    for characters in ((".", "#", "*"), ("/", "#", "+"), ("&", "@", "!"), ("$", ">", "&")):
        syntax = AddressSyntax(*characters)
        address = syntax.to_address(topic)
        assert syntax.to_topic(address) == topic
        check_sendable(address, WildcardSyntax(*characters))


@given(topics, topics)
def test_different_topics_have_different_addresses(one: str, other: str) -> None:
    assert (PLAIN.to_address(one) == PLAIN.to_address(other)) == (one == other)


@given(filters, st.booleans(), st.lists(topics, max_size=6))
def test_a_pattern_matches_what_its_filter_matches(pattern: str, deep: bool, names: list[str]) -> None:
    """MQTT-4.7.3-4: the engine's patterns do as the specification says, but for `$`, which they do not know."""
    if deep:
        pattern += "/#"
    engine: Topics[int] = Topics()
    engine.add(PLAIN.to_pattern(pattern), 1)
    for topic in [
        *names,
        pattern.replace("/#", "").replace("+", "a") or "/",
        pattern.replace("#", "x/y").replace("+", ""),
    ]:
        if topic:
            assert TopicFilter(pattern, pattern).matches(topic) == matches(pattern, topic), topic
        if topic and not topic.startswith("$"):
            assert (engine.match(PLAIN.to_address(topic)) == [1]) == matches(pattern, topic), topic


@pytest.mark.parametrize(
    ("pattern", "topic", "matching"),
    [
        ("#", "$SYS/x", False),
        ("+/x", "$SYS/x", False),
        ("$SYS/#", "$SYS/x", True),
        ("a/#", "a", True),
        ("a/+", "a", False),
        ("a/+", "a/", True),
        ("+", "a/b", False),
        ("a", "a/b", False),
    ],
)
def test_a_filter_matches(pattern: str, topic: str, matching: bool) -> None:
    """4.7.1, MQTT-4.7.2-1."""
    assert TopicFilter(pattern, pattern).matches(topic) is matching


@pytest.mark.parametrize(
    ("prefix", "pattern", "filter"),
    [("a/", "#", "a/+/#"), ("a/", "b/#", "a/b/#"), ("a/", "+", "a/+"), ("a", "/b", "a/b")],
)
def test_a_filter_behind_a_prefix_matches_only_what_begins_with_it(prefix: str, pattern: str, filter: str) -> None:
    assert prefixed(prefix, pattern) == filter
    assert not TopicFilter(filter, filter).matches("a")


@pytest.mark.parametrize("address", ["", "a+b", "a.#", "a#", "a\0"])
def test_addresses_without_a_topic(address: str) -> None:
    assert PLAIN.to_topic(address) is None


def test_addresses_that_others_made() -> None:
    assert PLAIN.to_topic("queue/a.b") == "queue/a/b"
    assert PLAIN.to_topic("a.*") == "a/*"
    assert PLAIN.to_topic("a\\") == "a\\"
