"""The checks of `bartleby config check` on the files that a configuration names: those of the start, all at once.

The files are read by the same code as at the start, one by one, without applying them.  What only gets worse with time
(a certificate that expires soon) is a warning, which the start does not check.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from broker.config import Config
from broker.config.acceptors import TlsSection
from broker.config.problems import Problem
from broker.security.link_login import LinkContext, link_password, readable_passwords
from broker.security.policy import load_policy
from broker.security.reload import acceptor_context, read_keys, tls_settings
from broker.security.users_file import UnusableFile
from broker.security.validity import Span, certificates, revocation_lists

_READABLE_MQTT = "the password crosses the network readable: use mqtts"
_READABLE_AMQP = (
    "the password crosses the network readable if the other broker offers only PLAIN: use amqps, or sasl-mechanisms"
    " without PLAIN"
)

#: A setting, its value if it is one file, and the function that reads it.
_Check = tuple[str, str, Callable[[], object]]


def problems(config: Config, source: str) -> list[Problem]:
    """Why a broker with this configuration, which comes from `source`, would not start."""
    found = []
    for key, value, read in _checks(config):
        why = _problem(read)
        if why:
            found.append(Problem(source, key, value, why.removeprefix(f"{value}: ") if value else why))
    return found


def warnings(config: Config, source: str, now: datetime) -> list[Problem]:
    """What a broker starts with nevertheless: readable passwords, and what will keep clients out, or already does."""
    readable = [
        Problem(source, f"links.{name}.url", str(url), _READABLE_MQTT if url.mqtt else _READABLE_AMQP)
        for name, url in readable_passwords(config)
    ]
    return readable + [
        Problem(source, key, str(path), doubt)
        for key, path, spans in _lasting(config)
        for span in spans
        if (doubt := span.doubt(now))
    ]


def _checks(config: Config) -> Iterator[_Check]:
    security = config.security
    yield "security.users-file", _named(security.users_file), partial(load_policy, config)
    if security.audit_file is not None:
        yield "security.audit-file", _named(security.audit_file), partial(_writable, security.audit_file)
    if config.telemetry.endpoint:
        yield "telemetry.endpoint", config.telemetry.endpoint, partial(_installed, "opentelemetry", "otel")
    if security.jwt.issuer:
        yield "security.jwt.keys-file", _named(security.jwt.keys_file), partial(read_keys, security.jwt.keys_file)
        if security.jwt.keys_url:
            read = partial(ssl.create_default_context, cafile=security.jwt.ca_file)
            yield "security.jwt.ca-file", _named(security.jwt.ca_file), read
    for name, tls in _sections(config):
        yield f"acceptors.{name}.tls", "", partial(acceptor_context, tls)
    for name, link in config.links.items():
        yield f"links.{name}.password-file", _named(link.password_file), partial(link_password, link)
        if link.secure:
            yield f"links.{name}", "", partial(LinkContext, link)


def _problem(read: Callable[[], object]) -> str:
    try:
        read()
    except UnusableFile as error:
        return str(error)
    except OSError as error:  # ssl.SSLError is one
        return f"it cannot be used: {error.strerror or error}: name a file that the broker's user can read"
    return ""


def _installed(package: str, extra: str) -> None:
    if find_spec(package) is None:
        raise UnusableFile(f"the package {package} is not installed: pip install 'bartleby[{extra}]'")


def _writable(path: Path) -> None:
    """Check that a log can open the file, without creating it.  Raises UnusableFile."""
    place = path if path.exists() else path.parent
    if not place.exists():
        raise UnusableFile(f"{path}: there is no directory {path.parent}: create it, writable by the broker's user")
    if not os.access(place, os.W_OK) or path.is_dir():
        raise UnusableFile(f"{path}: it cannot be written: name a file that the broker's user can write")


def _lasting(config: Config) -> Iterator[tuple[str, Path, list[Span]]]:
    """Settings and files, with the validity of their contents; unreadable files are `problems`, reported separately."""
    for name, tls in _sections(config):
        settings = tls_settings(tls)
        for key, path, spans in (
            ("certificate", settings.certificate, certificates),
            ("client-ca", settings.clients, certificates),
            ("crl", settings.revoked, revocation_lists),
        ):
            if path is not None:
                try:
                    yield f"acceptors.{name}.tls.{key}", path, spans(path)
                except (OSError, ValueError):
                    continue


def _sections(config: Config) -> list[tuple[str, TlsSection]]:
    return [(name, acceptor.tls) for name, acceptor in config.enabled_acceptors.items() if acceptor.tls is not None]


def _named(path: Path | None) -> str:
    return "" if path is None else str(path)
