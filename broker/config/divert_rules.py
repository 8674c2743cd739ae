"""Checks of diverts and of the special characters of names."""

from __future__ import annotations

from collections.abc import Iterator

from broker.config.clash import Clash, checked, syntax_of
from broker.config.explain import format_value
from broker.config.model import Config
from broker.engine import compile_filter
from broker.engine.model.errors import InvalidName
from broker.engine.model.names import check_name, check_sendable


def wildcard_problems(config: Config) -> Iterator[Clash]:
    """The problems in [wildcard-addresses]."""
    section = config.wildcard_addresses
    keys = tuple(f"wildcard-addresses.{key}" for key in ("delimiter", "any-words", "single-word"))
    try:
        section.syntax()
    except ValueError as error:
        yield Clash(keys, format_value(section.delimiter), f"{error}: give three other characters")
    if section.enabled is not None and section.enabled is not section.routing_enabled:
        both = ("wildcard-addresses.enabled", "wildcard-addresses.routing-enabled")
        if "routing_enabled" in section.model_fields_set:
            yield Clash(both, format_value(section.enabled), "routing-enabled says the opposite: keep one of them")
    markers = section.literal_match_markers
    if len(markers) == 1 or len(set(markers)) != len(markers):
        key = ("wildcard-addresses.literal-match-markers",)
        yield Clash(key, format_value(markers), "give two different characters, such as (), or none")


def divert_problems(config: Config) -> Iterator[Clash]:
    """The problems in [diverts.NAME]."""
    syntax = syntax_of(config)
    for name, section in config.diverts.items():
        key = f"diverts.{name}"
        yield from checked(check_name, f"{key}.address", section.address, "rename it")
        for forward in section.forwarding_addresses:
            yield from checked(
                lambda text: check_sendable(text, syntax), f"{key}.forwarding-address", forward, "name one address"
            )
        yield from checked(compile_filter, f"{key}.filter", section.filter, "correct the selector")
        try:
            bare = section.model_copy(update={"filter": ""}).divert(name)
            bare.check_added()
        except (ValueError, InvalidName) as error:
            yield Clash((f"{key}.add-headers",), format_value(section.add_headers), str(error))
            continue
        try:
            bare.check()
        except InvalidName as error:
            yield Clash((f"{key}.forwarding-address",), format_value(section.forwarding_address), str(error))
