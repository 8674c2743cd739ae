"""The sections [diverts.NAME] and [wildcard-addresses]."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from broker.config.section import Section
from broker.config.units import word_of
from broker.engine import Divert, DivertRouting, compile_filter
from broker.engine.model.names import WildcardSyntax

HEADER_SEPARATOR = ":"


class DivertSection(Section):
    """Copies an address's messages to other addresses, or sends them there instead."""

    address: Annotated[str, Field(min_length=1)]
    """The address whose messages are diverted, or a wildcard pattern."""
    forwarding_address: Annotated[str, Field(min_length=1)]
    """Where copies are sent; several: separated by commas."""
    exclusive: bool = False
    """true: messages that match the filter do not reach the address itself."""
    filter: str = ""
    """Only messages that match this selector are diverted; empty: all."""
    routing_type: Annotated[DivertRouting, BeforeValidator(word_of(DivertRouting))] = DivertRouting.STRIP
    """Which queues a copy may enter: STRIP all, PASS the type its sender asked for, ANYCAST or MULTICAST that type."""
    add_headers: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Properties added to each copy, as "name: value"; they replace those of the same name."""
    remove_headers: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Properties removed from each copy."""

    @property
    def forwarding_addresses(self) -> tuple[str, ...]:
        """The addresses one by one."""
        return tuple(name for part in self.forwarding_address.split(",") if (name := part.strip()))

    @property
    def added(self) -> dict[str, str]:
        """The added properties by name.  Raises ValueError for one that is not "name: value"."""
        found: dict[str, str] = {}
        for header in self.add_headers:
            name, separator, value = header.partition(HEADER_SEPARATOR)
            if not (separator and name.strip()):
                raise ValueError(f"{header!r} is not a header: give name, colon, value")
            found[name.strip()] = value.strip()
        return found

    def divert(self, name: str) -> Divert:
        """The engine's divert.  Raises InvalidFilter, ValueError."""
        return Divert(
            name,
            self.address,
            self.forwarding_addresses,
            exclusive=self.exclusive,
            filter=compile_filter(self.filter),
            routing=self.routing_type,
            add=self.added,
            remove=self.remove_headers,
            configured=True,
        )


Character = Annotated[str, Field(min_length=1, max_length=1)]


class WildcardsSection(Section):
    """The special characters of addresses, and the use of wildcards."""

    routing_enabled: bool = True
    """false: a queue on news.# gets only messages sent to exactly this name; settings still match with wildcards."""
    enabled: bool | None = None
    """Artemis's older name of routing-enabled."""
    delimiter: Character = "."
    """Separates the words of a name."""
    any_words: Character = "#"
    """Stands for any number of words, including none."""
    single_word: Character = "*"
    """Stands for one word."""
    literal_match_markers: Annotated[str, Field(max_length=2)] = ""
    """Two characters, such as (): the match (orders.#) means the name orders.#, not a pattern; empty: none."""

    def syntax(self) -> WildcardSyntax:
        """The engine's syntax.  Raises ValueError if the characters are not all different."""
        routing = self.routing_enabled if self.enabled is None else self.enabled
        return WildcardSyntax(self.delimiter, self.any_words, self.single_word, routing)
