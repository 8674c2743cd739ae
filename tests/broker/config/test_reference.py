"""etc/broker.toml, docs/configuration.md and the models say the same."""

from __future__ import annotations

import re
import tomllib
from itertools import pairwise
from typing import Final

import pytest

from broker.config import load
from broker.config.acceptors import HttpAcceptor, StompAcceptor, TlsSection
from broker.config.addresses import DEFAULTS, AddressSection, AddressSetting, Queue
from broker.config.section import Section
from broker.config.sections import (
    BrokerSection,
    JournalSection,
    LimitsSection,
    LogSection,
    PostgresqlSection,
    RetentionSection,
    TelemetrySection,
)
from broker.config.security import CertificateUser, JwtSection, ResourceLimit, SecuritySection, SecuritySetting
from broker.engine.model.row import kebab
from tests.support.reference import DOCUMENT, FILE, expected, why

# The tables of the file, each with its model; a queue and an address as DLQ is.
TABLES: Final[dict[str, type[Section]]] = {
    "[broker]": BrokerSection,
    "[log]": LogSection,
    "[telemetry]": TelemetrySection,
    "[journal]": JournalSection,
    "[journal.retention]": RetentionSection,
    "[journal.postgresql]": PostgresqlSection,
    "[limits]": LimitsSection,
    "[security]": SecuritySection,
    "[security.jwt]": JwtSection,
    "[acceptors.stomp]": StompAcceptor,
    "[acceptors.http]": HttpAcceptor,
    "[addresses.DLQ]": AddressSection,
    "[addresses.DLQ.queues.DLQ]": Queue,
    "[[address-settings]]": AddressSetting,
    "[[security-settings]]": SecuritySetting,
    "[[certificate-users]]": CertificateUser,
    "[acceptors.stomp.tls]": TlsSection,
    "[[resource-limit-settings]]": ResourceLimit,
}
EXAMPLES: Final = ("[acceptors.stomp.tls]", "[[certificate-users]]", "[[resource-limit-settings]]")
_INNER: Final = {"retention", "postgresql", "queues", "tls", "jwt"}  # tables of their own


def tables() -> dict[str, dict[str, tuple[str, bool]]]:
    """Of each table the settings as text, and whether they are active."""
    found: dict[str, dict[str, tuple[str, bool]]] = {}
    settings: dict[str, tuple[str, bool]] = {}
    for line in FILE.read_text().splitlines():
        if re.fullmatch(r"#?\[.*\]", line):
            settings = found.setdefault(line.removeprefix("#"), {})
        elif match := re.fullmatch(r"(#?)([a-zA-Z-]+) = (.*)", line):
            settings[match[2]] = (match[3], not match[1])
    return found


def test_the_files_are_written_from_the_models() -> None:
    for path, content in expected().items():
        assert path.read_text() == content, f"{path.name} is out of date: run `make reference`"


def test_the_file_says_what_holds_without_it() -> None:
    assert load(FILE) == load(None)


@pytest.mark.parametrize(("header", "model"), TABLES.items())
def test_every_setting_stands_in_the_file_with_its_default(header: str, model: type[Section]) -> None:
    settings = tables()[header]
    assert set(settings) == {kebab(name) for name in model.model_fields if name not in _INNER}
    for name, field in model.model_fields.items():
        if name in _INNER or field.is_required():
            continue
        text, active = settings[kebab(name)]
        value = tomllib.loads(f"x = {text}")["x"]
        read = model.model_validate(_needed(model) | {kebab(name): value})
        if field.default is not None:
            assert active is (header not in EXAMPLES)
            assert getattr(read, name) == (("amq",) if model is SecuritySetting else field.default)
        elif not active and name in DEFAULTS and DEFAULTS[name] is not None:
            assert getattr(read, name) == DEFAULTS[name]


def _needed(model: type[Section]) -> dict[str, object]:
    examples: dict[str, object] = {"match": "#", "routing-type": "ANYCAST", "subject": "CN=x"}
    examples |= {"user": "x", "certificate": "x", "key": "x"}
    examples["protocol"] = "http" if model is HttpAcceptor else "stomp"
    return {kebab(n): examples[kebab(n)] for n, field in model.model_fields.items() if field.is_required()}


def test_every_setting_has_one_line_why_above_it() -> None:
    lines = FILE.read_text().splitlines()
    explained = {line.split(" = ")[0].lstrip("#") for above, line in pairwise(lines) if above.startswith("# ")}
    for model in TABLES.values():
        for name in model.model_fields:
            if name in _INNER:
                continue
            assert kebab(name) in explained
            said = why(model, name)
            assert "\n" not in said
            assert said.endswith(".")


def test_the_file_has_no_line_too_long() -> None:
    assert max(map(len, FILE.read_text().splitlines())) <= 120


def test_every_setting_stands_in_the_document() -> None:
    text = DOCUMENT.read_text()
    for model in TABLES.values():
        for name in model.model_fields:
            if name not in _INNER:
                assert f"| `{kebab(name)}` | " in text
