"""Checks of relations between settings, and of settings against the engine's rules.

Each rule yields the clashes that it finds.  A clash names all keys involved, first the one to change; if one of them is
invalid on its own, the clash is not reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from broker.build import how_to_install, missing_of
from broker.config.acceptors import AmqpAcceptor, MessagingAcceptor, MqttAcceptor, PrefixedAcceptor, StompAcceptor
from broker.config.addresses import AddressSetting
from broker.config.clash import Clash, checked, syntax_of
from broker.config.dead_letter_checks import dead_letter_rule_problems
from broker.config.divert_rules import divert_problems, wildcard_problems
from broker.config.explain import format_value
from broker.config.link_rules import link_problems
from broker.config.model import Config
from broker.config.units import DURATION_UNITS, SIZE_UNITS, written
from broker.engine import compile_filter
from broker.engine.model.names import (
    ESCAPE,
    WildcardSyntax,
    check_name,
    check_not_shared,
    check_queue_name,
    check_sendable,
)
from broker.engine.model.permissions import PermissionTable
from broker.engine.model.row import kebab
from broker.engine.model.settings import DeliveryCountPersistence
from broker.engine.model.settings_match import InvalidMatch, SettingsTable
from broker.security.certificates import Rule


def clashes(config: Config) -> Iterator[Clash]:
    """All clashes, in the order of the rules."""
    for rule in _RULES:
        yield from rule(config)


def _duration(ms: int) -> str:
    return written(ms, DURATION_UNITS)


def _size(size: int) -> str:
    return written(size, SIZE_UNITS)


def _entry_fits_segment(config: Config) -> Iterator[Clash]:
    """An operation becomes one journal entry, which may need at most half a segment."""
    limits, half = config.limits, config.journal.segment_size // 2
    segment = "journal.segment-size"
    fix = f"at most half of {segment} ({_size(half)}): lower it, or raise {segment}"
    if limits.body_bytes_max + limits.header_bytes_max > half:
        keys = ("limits.body-bytes-max", "limits.header-bytes-max", segment)
        yield Clash(keys, _size(limits.body_bytes_max), f"together with limits.header-bytes-max {fix}")
    if limits.transaction_bytes_max > half:
        yield Clash(("limits.transaction-bytes-max", segment), _size(limits.transaction_bytes_max), f"give {fix}")
    for name, acceptor in _messaging(config):
        if not isinstance(acceptor, MqttAcceptor) or "maximum_packet_size" not in acceptor.model_fields_set:
            continue  # the default is lowered to what fits
        if acceptor.mqtt_min_large_message_size >= 0:
            continue  # larger payloads go to a file
        if acceptor.maximum_packet_size > half:
            key = f"acceptors.{name}.maximum-packet-size"
            yield Clash((key, segment), _size(acceptor.maximum_packet_size), f"give {fix}")


def _reserve_fits_segment(config: Config) -> Iterator[Clash]:
    quarter = config.journal.segment_size // 4
    if config.journal.reserve > quarter:
        fix = f"give at most a quarter of journal.segment-size ({_size(quarter)}), or raise that"
        yield Clash(("journal.reserve", "journal.segment-size"), _size(config.journal.reserve), fix)


def _line_fits_headers(config: Config) -> Iterator[Clash]:
    line, headers = config.limits.header_line_bytes_max, config.limits.header_bytes_max
    if line > headers:
        keys = ("limits.header-line-bytes-max", "limits.header-bytes-max")
        yield Clash(keys, _size(line), f"give at most limits.header-bytes-max ({_size(headers)})")


def _time_to_live(config: Config) -> Iterator[Clash]:
    for name, acceptor in config.acceptors.items():
        if not isinstance(acceptor, StompAcceptor):
            continue
        section = f"acceptors.{name}"
        low, high = acceptor.connection_ttl_min, acceptor.connection_ttl_max
        if 0 <= high < low:
            keys = (f"{section}.connection-ttl-min", f"{section}.connection-ttl-max")
            yield Clash(keys, _duration(low), f"give at most {keys[1]} ({_duration(high)})")
        ttl = config.connection_ttl(acceptor)
        if 0 <= ttl < low:
            key = "broker.connection-ttl" if acceptor.connection_ttl is None else f"{section}.connection-ttl"
            least = f"{section}.connection-ttl-min"
            fix = f"give at least {least} ({_duration(low)}), or -1 for never"
            yield Clash((key, least), _duration(ttl), fix)


def _connections(config: Config) -> Iterator[Clash]:
    most = config.limits.connections_max
    for name, acceptor in _messaging(config):
        if acceptor.connections_allowed > most:
            keys = (f"acceptors.{name}.connections-allowed", "limits.connections-max")
            yield Clash(keys, str(acceptor.connections_allowed), f"give at most {keys[1]} ({most})")


def _prefixes(config: Config) -> Iterator[Clash]:
    for name, acceptor in _messaging(config):
        if not isinstance(acceptor, PrefixedAcceptor):
            continue
        both = set(acceptor.anycast_prefixes) & set(acceptor.multicast_prefixes)
        if both:
            keys = (f"acceptors.{name}.multicast-prefix", f"acceptors.{name}.anycast-prefix")
            fix = f"{format_value(min(both))} is also in {keys[1]}: a prefix stands for one routing type"
            yield Clash(keys, format_value(acceptor.multicast_prefix), fix)


def _others(config: Config) -> Iterator[Clash]:
    for name, acceptor in _messaging(config):
        spoken = {acceptor.protocol: name}
        for other in acceptor.others:
            key = f"acceptors.{name}.also"
            found = config.acceptors.get(other)
            if not isinstance(found, MessagingAcceptor) or other == name:
                known = ", ".join(each for each, _ in _messaging(config) if each != name) or "none"
                yield Clash((key,), format_value(other), f"name other messaging acceptors: {known}")
                continue
            if _over_websocket(acceptor) or _over_websocket(found):
                yield Clash((key,), format_value(other), "a WebSocket needs its own port")
            first = spoken.setdefault(found.protocol, other)
            if first != other:
                fix = f"acceptors.{first} speaks {found.protocol} too: first bytes cannot tell them apart"
                yield Clash((key,), format_value(other), fix)


def _origins(config: Config) -> Iterator[Clash]:
    for name, acceptor in _messaging(config):
        if acceptor.websocket_origins and not _over_websocket(acceptor):
            keys = (f"acceptors.{name}.websocket-origins", f"acceptors.{name}.websocket")
            yield Clash(
                keys, format_value(acceptor.websocket_origins[0]), f"only browsers send origins: set {keys[1]} too"
            )


def _over_websocket(acceptor: MessagingAcceptor) -> bool:
    return isinstance(acceptor, StompAcceptor | AmqpAcceptor | MqttAcceptor) and acceptor.websocket


def _credits(config: Config) -> Iterator[Clash]:
    for name, acceptor in config.acceptors.items():
        if isinstance(acceptor, AmqpAcceptor) and acceptor.amqp_low_credits >= acceptor.amqp_credits:
            keys = (f"acceptors.{name}.amqp-low-credits", f"acceptors.{name}.amqp-credits")
            yield Clash(keys, str(acceptor.amqp_low_credits), f"give less than {keys[1]} ({acceptor.amqp_credits})")


def _one_listener_a_port(config: Config) -> Iterator[Clash]:
    taken: dict[tuple[str, int], str] = {}
    for name, acceptor in config.acceptors.items():
        if not acceptor.enabled or acceptor.port == 0:
            continue
        first = taken.setdefault((acceptor.host, acceptor.port), name)
        if first != name:
            keys = (f"acceptors.{name}.port", f"acceptors.{first}.port", f"acceptors.{name}.host")
            yield Clash(keys, str(acceptor.port), f"acceptors.{first} listens there already: give another port")


def _tls(config: Config) -> Iterator[Clash]:
    for name, acceptor in config.acceptors.items():
        tls = acceptor.tls
        if tls is None:
            continue
        key = f"acceptors.{name}.tls"
        requested = tls.need_client_auth or tls.want_client_auth
        if requested and tls.client_ca is None:
            which = "need-client-auth" if tls.need_client_auth else "want-client-auth"
            yield Clash((f"{key}.{which}", f"{key}.client-ca"), "true", "give client-ca: the clients' authorities")
        elif tls.client_ca is not None and not requested:
            fix = "clients are not asked for a certificate: set need-client-auth or want-client-auth, or remove this"
            yield Clash((f"{key}.client-ca", f"{key}.want-client-auth"), format_value(str(tls.client_ca)), fix)
        elif tls.crl is not None and tls.client_ca is None:
            fix = "clients are not asked for a certificate: give client-ca, or remove this"
            yield Clash((f"{key}.crl", f"{key}.client-ca"), format_value(str(tls.crl)), fix)


def _security(config: Config) -> Iterator[Clash]:
    seen: set[str] = set()
    for setting in config.security_settings:
        key = f'security-settings["{setting.match}"].match'
        if setting.match in seen:
            yield Clash((key,), "", "this match appears twice: merge its permissions into one entry")
        seen.add(setting.match)
        try:
            PermissionTable([(setting.match, {})], syntax=syntax_of(config))
        except InvalidMatch as error:
            yield Clash((key,), "", f"{error}: correct it")
    limited: set[str] = set()
    for limit in config.resource_limit_settings:
        if limit.match in limited:
            key = f'resource-limit-settings["{limit.match}"].match'
            yield Clash((key,), "", "this user appears twice: merge its limits into one entry")
        limited.add(limit.match)
    for at, each in enumerate(config.certificate_users):
        try:
            Rule(each.subject, each.user)
        except ValueError as error:
            yield Clash((f"certificate-users[{at}].subject",), format_value(each.subject), f"{error}: correct it")


def _tokens(config: Config) -> Iterator[Clash]:
    section, key = config.security.jwt, "security.jwt"
    if not section.issuer:
        given = [name for name, value in section if value != type(section).model_fields[name].default]
        if given:
            fix = "tokens are accepted only with an issuer: give it, or remove the other settings"
            yield Clash((f"{key}.issuer", *(f"{key}.{kebab(name)}" for name in given)), "", fix)
        return
    if missing_of("jwt"):
        yield Clash((f"{key}.issuer",), "", f"tokens need PyJWT, which is not installed: {how_to_install('jwt')}")
    if not section.audience:
        yield Clash((f"{key}.audience",), "", "give the audience, or tokens for other services would be valid here")
    if (section.keys_file is None) == (not section.keys_url):
        yield Clash((f"{key}.keys-url", f"{key}.keys-file"), "", "give one of them, to say where the issuer's keys are")
    parts = urlsplit(section.keys_url)
    local = parts.hostname in ("127.0.0.1", "::1", "localhost")
    if section.keys_url and not (parts.hostname and (parts.scheme == "https" or (parts.scheme == "http" and local))):
        yield Clash(
            (f"{key}.keys-url",), format_value(section.keys_url), "give an https:// URL: forged keys permit anything"
        )


def _replication(config: Config) -> Iterator[Clash]:
    section, key = config.journal.postgresql, "journal.postgresql"
    if config.journal.log == "files":
        if section.dsn or section.dsn_file is not None:
            fix = 'a database keeps the journal only with journal.log = "postgresql": set that, or remove it'
            yield Clash((f"{key}.dsn" if section.dsn else f"{key}.dsn-file", "journal.log"), "", fix)
        return
    if missing_of("postgresql"):
        fix = f"a journal in PostgreSQL needs psycopg, which is not installed: {how_to_install('postgresql')}"
        yield Clash(("journal.log",), "postgresql", fix)
    if bool(section.dsn) == (section.dsn_file is not None):
        yield Clash((f"{key}.dsn", f"{key}.dsn-file"), "", "give one of them, to say where the database is")
    if section.redirect and not config.broker.failover_hosts:
        yield Clash((f"{key}.redirect", "broker.failover-hosts"), "true", "say in broker.failover-hosts where to")
    if section.renewal * 3 > section.lease:
        keys = (f"{key}.renewal", f"{key}.lease")
        fix = f"give at most a third of {keys[1]} ({_duration(section.lease)}): a renewal may fail"
        yield Clash(keys, _duration(section.renewal), fix)


def _telemetry(config: Config) -> Iterator[Clash]:
    endpoint, key = config.telemetry.endpoint, "telemetry.endpoint"
    if not endpoint:
        if config.telemetry.sample_ratio:
            fix = "traces need a receiver: give telemetry.endpoint, or 0"
            yield Clash(("telemetry.sample-ratio", key), str(config.telemetry.sample_ratio), fix)
        return
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        yield Clash((key,), format_value(endpoint), "give a URL such as http://localhost:4318/v1/traces")
    elif parts.username is not None or parts.password is not None:
        fix = "credentials do not belong in a URL: give them in the environment, OTEL_EXPORTER_OTLP_TRACES_HEADERS"
        yield Clash((key,), "", fix)
    if missing_of("otel"):
        fix = f"traces need packages of OpenTelemetry, which are not installed: {how_to_install('otel')}"
        yield Clash((key,), "", fix)


def _addresses(config: Config) -> Iterator[Clash]:
    homes: dict[str, str] = {}
    for name, section in config.addresses.items():
        key = f"addresses.{name}"
        yield from checked(check_name, key, name, "rename it")
        if not section.all_routing_types:
            fix = 'give the address routing-types = ["ANYCAST"] or ["MULTICAST"] or both, or a queue'
            yield Clash((f"{key}.routing-types", f"{key}.queues"), "", fix)
        for queue_name, queue in section.queues.items():
            queue_key = f"{key}.queues.{queue_name}"
            yield from checked(check_queue_name, queue_key, queue_name, "rename it")
            yield from checked(check_not_shared, queue_key, queue_name, "rename it")
            yield from checked(compile_filter, f"{queue_key}.filter", queue.filter, "correct the selector")
            home = homes.setdefault(queue_name, name)
            if home != name:
                yield Clash((queue_key,), "", f"addresses.{home} has a queue of this name: rename one of them")


def _everything(config: Config) -> Iterator[Clash]:
    """Matches `#` while another character stands for any words: they would cover only the address of this name."""
    usual, any_words = WildcardSyntax().any_words, syntax_of(config).any_words
    if any_words == usual:
        return
    named = [_key(setting) for setting in config.address_settings if setting.match == usual]
    named += [f'security-settings["{usual}"]' for setting in config.security_settings if setting.match == usual]
    for key in named:
        fix = f"wildcard-addresses.any-words is {any_words}: write {any_words} for everything, or {ESCAPE}{usual}"
        yield Clash((f"{key}.match",), format_value(usual), f"{fix} for the address of this name")


def _matches(config: Config) -> Iterator[Clash]:
    seen: set[str] = set()
    for setting in config.address_settings:
        key = f"{_key(setting)}.match"
        if setting.match in seen:
            yield Clash((key,), "", "this match appears twice: merge its settings into one entry")
        seen.add(setting.match)
        try:
            markers = config.wildcard_addresses.literal_match_markers
            SettingsTable([(setting.match, {})], {}, syntax=syntax_of(config), literal_markers=markers)
        except InvalidMatch as error:
            yield Clash((key,), "", f"{error}: correct it")


def _setting_ranges(config: Config) -> Iterator[Clash]:
    for setting in config.address_settings:
        for low, high in (("min-expiry-delay", "max-expiry-delay"), ("redelivery-delay", "max-redelivery-delay")):
            least, most = setting.given(low), setting.given(high)
            if isinstance(least, int) and isinstance(most, int) and 0 <= most < least:
                keys = (f"{_key(setting)}.{low}", f"{_key(setting)}.{high}")
                yield Clash(keys, _duration(least), f"give at most {high} ({_duration(most)})")


def _setting_names(config: Config) -> Iterator[Clash]:
    for setting in config.address_settings:
        key = _key(setting)
        for name in ("dead-letter-address", "expiry-address"):
            address = setting.given(name)
            if isinstance(address, str) and address:
                rule = partial(check_sendable, syntax=syntax_of(config))
                yield from checked(rule, f"{key}.{name}", address, "give the name of one address")


def _one_persistence(config: Config) -> Iterator[Clash]:
    for setting in config.address_settings:
        keys = ("persist-delivery-count-before-delivery", "delivery-count-persistence")
        alias, persistence = map(setting.given, keys)
        strict = persistence is DeliveryCountPersistence.STRICT
        if alias is not None and persistence is not None and alias is not strict:
            fix = f'{keys[1]} = "{persistence}" says the opposite: keep one of them'
            yield Clash(tuple(f"{_key(setting)}.{key}" for key in keys), format_value(alias), fix)


def _key(setting: AddressSetting) -> str:
    return f'address-settings["{setting.match}"]'


def _messaging(config: Config) -> Iterable[tuple[str, MessagingAcceptor]]:
    return ((name, acceptor) for name, acceptor in config.acceptors.items() if isinstance(acceptor, MessagingAcceptor))


_RULES: Final = (
    _entry_fits_segment,
    _reserve_fits_segment,
    _line_fits_headers,
    _time_to_live,
    _connections,
    _prefixes,
    _others,
    _origins,
    _credits,
    _one_listener_a_port,
    _tls,
    _security,
    _tokens,
    _replication,
    _telemetry,
    _addresses,
    _everything,
    _matches,
    wildcard_problems,
    divert_problems,
    dead_letter_rule_problems,
    link_problems,
    _setting_ranges,
    _setting_names,
    _one_persistence,
)
