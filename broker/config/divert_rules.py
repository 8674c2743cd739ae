"""Checks of diverts and of the special characters of names; problems are (keys, value, fix)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from broker.config.diverts import DivertSection
from broker.config.explain import shown
from broker.config.model import Config
from broker.engine import InvalidFilter, compile_filter
from broker.engine.model.errors import InvalidName
from broker.engine.model.names import DEFAULT_SYNTAX, WildcardSyntax, check_name, check_sendable

Found = tuple[tuple[str, ...], str, str]


def syntax_of(config: Config) -> WildcardSyntax:
    """The special characters of names; the defaults if those of the configuration contradict each other."""
    try:
        return config.wildcard_addresses.syntax()
    except ValueError:
        return DEFAULT_SYNTAX


def wildcard_problems(config: Config) -> Iterator[Found]:
    """The problems in [wildcard-addresses]."""
    section = config.wildcard_addresses
    keys = tuple(f"wildcard-addresses.{key}" for key in ("delimiter", "any-words", "single-word"))
    try:
        section.syntax()
    except ValueError as error:
        yield keys, shown(section.delimiter), f"{error}: give three other characters"
    if section.enabled is not None and section.enabled is not section.routing_enabled:
        both = ("wildcard-addresses.enabled", "wildcard-addresses.routing-enabled")
        if "routing_enabled" in section.model_fields_set:
            yield both, shown(section.enabled), "routing-enabled says the opposite: keep one of them"
    markers = section.literal_match_markers
    if len(markers) == 1 or len(set(markers)) != len(markers):
        key = ("wildcard-addresses.literal-match-markers",)
        yield key, shown(markers), "give two different characters, such as (), or none"


def divert_problems(config: Config) -> Iterator[Found]:
    """The problems in [diverts.NAME]."""
    syntax = syntax_of(config)
    for name, section in config.diverts.items():
        key = f"diverts.{name}"
        yield from _checked(check_name, f"{key}.address", section.address, "rename it")
        for forward in section.forwarding_addresses:
            yield from _checked(
                lambda text: check_sendable(text, syntax), f"{key}.forwarding-address", forward, "name one address"
            )
        yield from _checked(compile_filter, f"{key}.filter", section.filter, "correct the selector")
        try:
            section.model_copy(update={"filter": ""}).divert(name).check_added()
        except (ValueError, InvalidName) as error:
            yield (f"{key}.add-headers",), shown(section.add_headers), str(error)
            continue
        yield from _bounds(key, name, section)


def _bounds(key: str, name: str, section: DivertSection) -> Iterator[Found]:
    try:
        bare = section.model_copy(update={"filter": ""}).divert(name)
        bare.check()
    except InvalidName as error:
        yield (f"{key}.forwarding-address",), shown(section.forwarding_address), str(error)


def _checked(rule: Callable[[str], object], key: str, value: str, fix: str) -> Iterator[Found]:
    try:
        rule(value)
    except (InvalidName, InvalidFilter) as error:
        yield (key,), shown(value), f"{error}: {fix}"
