"""The configuration as one frozen value.  Without a file it equals etc/broker.toml as shipped."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Final, cast

from pydantic import Field

from broker.config.acceptors import Acceptor, HttpAcceptor, MessagingAcceptor, StompAcceptor
from broker.config.addresses import DEFAULTS, AddressSection, AddressSetting
from broker.config.dead_letter_rules import RuleSection
from broker.config.diverts import DivertSection, WildcardsSection
from broker.config.links import LinkSection
from broker.config.section import Section
from broker.config.sections import (
    BrokerSection,
    JournalSection,
    LimitsSection,
    LogSection,
    TelemetrySection,
)
from broker.config.security import CertificateUser, ResourceLimit, SecuritySection, SecuritySetting
from broker.engine.model.permissions import Permission
from broker.engine.model.row import kebab

_AMQ: Final = ["amq"]

_SETTINGS: Final = "address-settings"
_PERMISSIONS: Final = "security-settings"

#: The shipped contents of sections with entries of the user's choice.  A file that has the section replaces it, except
#: address settings: see `with_shipped_entries`.
SHIPPED: Final[dict[str, object]] = {
    "acceptors": {
        "stomp": {"protocol": "stomp"},
        "amqp": {"protocol": "amqp"},
        "mqtt": {"protocol": "mqtt"},
        "http": {"protocol": "http"},
    },
    "addresses": {
        "DLQ": {"queues": {"DLQ": {"routing-type": "ANYCAST"}}},
        "ExpiryQueue": {"queues": {"ExpiryQueue": {"routing-type": "ANYCAST"}}},
    },
    _SETTINGS: [
        {
            "match": "#",
            "dead-letter-address": "DLQ",
            "expiry-address": "ExpiryQueue",
            "auto-delete-queues": False,
        }
    ],
    _PERMISSIONS: [{"match": "#", **{permission.value: _AMQ for permission in Permission}}],
}


def with_shipped_entries(raw: Mapping[str, object], given: Collection[str]) -> dict[str, object]:
    """These tables with the shipped entries for everything, in the characters of `[wildcard-addresses]`.

    A file that gives permissions replaces the shipped ones.  Its address settings are added to the shipped ones, field
    by field: else a file with settings for `orders.#` alone would have no dead-letter address for any other address.
    """
    found = dict(raw)
    wildcards = raw.get("wildcard-addresses")
    any_words = wildcards.get("any-words") if isinstance(wildcards, dict) else None
    if not isinstance(any_words, str):
        any_words = "#"
    shipped = {name: {**entry, "match": any_words} for name, entry in _FOR_EVERYTHING.items()}
    if _PERMISSIONS not in given:
        found[_PERMISSIONS] = [shipped[_PERMISSIONS]]
    if _SETTINGS not in given:
        found[_SETTINGS] = [shipped[_SETTINGS]]
    elif isinstance(own := raw[_SETTINGS], list):
        entries = list(own)
        at = next(
            (n for n, each in enumerate(entries) if isinstance(each, dict) and each.get("match") == any_words), -1
        )
        if at >= 0:
            entries[at] = shipped[_SETTINGS] | entries[at]
        else:
            entries.append(shipped[_SETTINGS])
        found[_SETTINGS] = entries
    return found


#: The shipped entry of each section whose entries have a match.
_FOR_EVERYTHING: Final = {name: cast(list[dict[str, object]], SHIPPED[name])[0] for name in (_SETTINGS, _PERMISSIONS)}


#: The sections that a reload applies as a whole, besides [security] and the log's level.
_RELOADED: Final = (
    "addresses",
    "diverts",
    "address_settings",
    "dead_letter_rules",
    "security_settings",
    "certificate_users",
    "resource_limit_settings",
)

#: The sections that a reload applies in part.
_RELOADED_IN_PART: Final = ("log", "security")


class Config(Section):
    """All sections.  `load` makes it, and checks the relations between settings."""

    broker: BrokerSection = BrokerSection()
    log: LogSection = LogSection()
    telemetry: TelemetrySection = TelemetrySection()
    journal: JournalSection = JournalSection()
    limits: LimitsSection = LimitsSection()
    security: SecuritySection = SecuritySection()
    acceptors: dict[str, Acceptor] = Field(default_factory=dict)
    addresses: dict[str, AddressSection] = Field(default_factory=dict)
    diverts: dict[str, DivertSection] = Field(default_factory=dict)
    links: dict[str, LinkSection] = Field(default_factory=dict)
    wildcard_addresses: WildcardsSection = WildcardsSection()
    address_settings: Annotated[tuple[AddressSetting, ...], Field(strict=False)] = ()
    dead_letter_rules: Annotated[tuple[RuleSection, ...], Field(strict=False)] = ()
    security_settings: Annotated[tuple[SecuritySetting, ...], Field(strict=False)] = ()
    certificate_users: Annotated[tuple[CertificateUser, ...], Field(strict=False)] = ()
    resource_limit_settings: Annotated[tuple[ResourceLimit, ...], Field(strict=False)] = ()

    @property
    def messaging_acceptors(self) -> dict[str, MessagingAcceptor]:
        """The enabled acceptors of messaging protocols, by name."""
        return {n: a for n, a in self.acceptors.items() if isinstance(a, MessagingAcceptor) and a.enabled}

    @property
    def enabled_acceptors(self) -> dict[str, Acceptor]:
        """All enabled acceptors, by name."""
        return {n: a for n, a in self.acceptors.items() if a.enabled}

    @property
    def http_acceptors(self) -> dict[str, HttpAcceptor]:
        """The enabled HTTP acceptors, by name."""
        return {n: a for n, a in self.acceptors.items() if isinstance(a, HttpAcceptor) and a.enabled}

    def connection_ttl(self, acceptor: StompAcceptor) -> int:
        """Milliseconds after which a silent client without heart-beats is dropped; -1: never."""
        return self.broker.connection_ttl if acceptor.connection_ttl is None else acceptor.connection_ttl

    def setting_matches(self) -> list[tuple[str, dict[str, object]]]:
        """The address settings for the engine: each match with the fields that it sets."""
        return [(setting.match, setting.fields()) for setting in self.address_settings]

    def changed_sections(self, other: Config) -> set[str]:
        """The names of the sections that differ in another configuration."""
        return {kebab(name) for name in Config.model_fields if getattr(self, name) != getattr(other, name)}

    def with_reloaded(self, other: Config) -> Config:
        """This configuration with the parts that a reload takes from another one.

        Raises ValueError if the other one has different wildcards: its matches use them, and would have no meaning
        here.
        """
        if other.wildcard_addresses != self.wildcard_addresses:
            raise ValueError("wildcard-addresses: these have changed, and with them all matches: restart the broker")
        log = self.log.model_copy(update={"level": other.log.level})
        taken = {name: getattr(other, name) for name in _RELOADED}
        users_file = self.security.users_file  # its path needs a restart to change
        security = other.security.model_copy(update={"users_file": users_file, "audit_file": self.security.audit_file})
        return self.model_copy(update={**taken, "log": log, "security": security})

    def needs_restart(self, other: Config) -> list[str]:
        """The changes in another configuration that need a restart: sections, or keys of sections that a reload applies
        in part.
        """
        left = self.with_reloaded(other)
        keys = left.changed_sections(other) - {*_RELOADED_IN_PART}
        for name in _RELOADED_IN_PART:
            mine, others = getattr(left, name), getattr(other, name)
            fields = type(mine).model_fields
            keys |= {f"{name}.{kebab(key)}" for key in fields if getattr(mine, key) != getattr(others, key)}
        return sorted(keys)

    def setting_defaults(self) -> dict[str, object]:
        """The default of every field of an address setting, by the engine's field names."""
        return dict(DEFAULTS)


#: Reads the configuration again for a reload.  Raises ConfigError.
Reload = Callable[[], Config]
