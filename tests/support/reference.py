"""Writes etc/broker.toml, docs/configuration.md, docs/reasons.md and etc/man from the code: `make reference`.

Every setting, its default, and why: the reason is that of its row, or the docstring of its field, so that it is written
once.  The text of `broker_toml` has the same meaning as `load(None)`; unset settings and examples are commented out.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple, get_args, get_origin

from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from broker.config import units
from broker.config.acceptors import AmqpAcceptor, HttpAcceptor, MqttAcceptor, StompAcceptor, TlsSection
from broker.config.addresses import DEFAULTS, AddressSection, AddressSetting, Queue
from broker.config.dead_letter_rules import RuleSection
from broker.config.diverts import DivertSection
from broker.config.links import (
    LinkSection,
    MqttRouteSection,
    ReceiveSection,
    RemoteQueueSection,
    SendSection,
    TopicsSection,
)
from broker.config.model import SHIPPED, Config
from broker.config.schema import arms
from broker.config.section import Section
from broker.config.security import CertificateUser, ResourceLimit, SecuritySetting
from broker.engine.model.attributes import PLAIN
from broker.engine.model.message import RoutingType
from broker.engine.model.row import kebab
from broker.reasons.reason import Kind, Reason
from broker.reasons.table import reasons
from tests.support import manual

ROOT: Final = Path(__file__).parents[2]
FILE: Final = ROOT / "etc" / "broker.toml"
DOCUMENT: Final = ROOT / "docs" / "configuration.md"
REASONS: Final = ROOT / "docs" / "reasons.md"
MARK: Final = "<!-- The rest of this file is written by `make reference`. -->\n\n"

_HEAD: Final = """\
# The configuration of Bartleby: every setting with its default and why.  Lines commented out are unset or examples.
#
# Durations are milliseconds, or texts with a unit: "500ms", "30s", "5min", "2h", "7d".
# Sizes are bytes, or texts with a unit: "64KiB", "10MiB", "1GiB".  -1 means off, or no limit.
# An environment variable overrides its setting: BARTLEBY_BROKER__NAME overrides broker.name.  With _FILE at its end
# (BARTLEBY_BROKER__NAME_FILE) it names a file that holds the value.
# `bartleby config check --config FILE` prints all problems of a file.
"""


class _Table(NamedTuple):
    """A table of the file.  section: what it holds; active: false for an example."""

    header: str
    section: Section
    active: bool = True


def broker_toml() -> str:
    """Return the text of etc/broker.toml."""
    parts = [_HEAD]
    explained: set[type[Section]] = set()
    for table in _tables(Config.model_validate(SHIPPED)):
        model = type(table.section)
        parts.append(_again(table) if model in explained else _table(table))
        explained.add(model)
    return "\n".join(parts)


def configuration_tables() -> str:
    """Return the tables of docs/configuration.md."""
    parts = []
    models: list[tuple[str, type[Section]]] = [
        *_plain_sections(Config, ""),
        ('[acceptors.NAME] with protocol = "stomp"', StompAcceptor),
        ('[acceptors.NAME] with protocol = "amqp"', AmqpAcceptor),
        ('[acceptors.NAME] with protocol = "mqtt"', MqttAcceptor),
        ('[acceptors.NAME] with protocol = "http"', HttpAcceptor),
        ("[acceptors.NAME.tls]", TlsSection),
        ("[addresses.NAME]", AddressSection),
        ("[addresses.NAME.queues.NAME]", Queue),
        ("[diverts.NAME]", DivertSection),
        ("[links.NAME]", LinkSection),
        ("[links.NAME.send.ROUTE]", SendSection),
        ("[links.NAME.receive.ROUTE]", ReceiveSection),
        ("[links.NAME.remote-queues.ADDRESS]", RemoteQueueSection),
        ("[links.NAME.topics.ROUTE]", TopicsSection),
        ("[links.NAME.mqtt.ROUTE]", MqttRouteSection),
        ("[[address-settings]]", AddressSetting),
        ("[[dead-letter-rules]]", RuleSection),
        ("[[security-settings]]", SecuritySetting),
        ("[[certificate-users]]", CertificateUser),
        ("[[resource-limit-settings]]", ResourceLimit),
    ]
    for title, model in models:
        rows = [_row(model, name, field) for name, field in _settings(model)]
        head = ("| setting | value | default | why |", "|---|---|---|---|")
        parts.append("\n".join([f"### `{title}`", "", _first_line(model), "", *head, *rows]) + "\n")
    return "\n".join(parts)


def _first_line(model: type[Section]) -> str:
    return (model.__doc__ or "").strip().split("\n")[0]


def why(model: type[Section], name: str) -> str:
    """Return the reason of a field: that of its row, or its docstring, which stands below it in the source."""
    described = model.model_fields[name].description
    if described is not None:
        return described
    owner = next(each for each in model.__mro__ if name in each.__annotations__)
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    assert isinstance(definition, ast.ClassDef)
    for field, below in pairwise(definition.body):
        if isinstance(field, ast.AnnAssign) and ast.unparse(field.target) == name:
            return inspect.cleandoc(ast.literal_eval(ast.unparse(below)))
    raise AssertionError(f"{owner.__name__} has no field {name}")


def _settings(model: type[Section]) -> Iterator[tuple[str, FieldInfo]]:
    """Return the fields that are values, the protocol of an acceptor first."""
    fields = [(n, f) for n, f in model.model_fields.items() if not _is_table(f.annotation)]
    yield from sorted(fields, key=lambda pair: pair[0] not in ("protocol", "match"))


def _is_table(annotation: object) -> bool:
    return any(
        get_origin(arm) is dict
        or (isinstance(arm, type) and issubclass(arm, Section))
        or (get_origin(arm) is tuple and _is_table(get_args(arm)[0]))
        for arm in arms(annotation)
    )


def _plain_sections(model: type[Section], prefix: str) -> Iterator[tuple[str, type[Section]]]:
    """Yield the sections that always exist, each with its header, nested ones after their parents."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            yield f"[{prefix}{kebab(name)}]", kind
            yield from _plain_sections(kind, f"{prefix}{kebab(name)}.")


# -- etc/broker.toml ---------------------------------------------------------------------------------------------------


def _tables(config: Config) -> Iterator[_Table]:
    for header, model in _plain_sections(Config, ""):
        section: object = config
        for key in header.strip("[]").split("."):
            section = getattr(section, key.replace("-", "_"))
        assert isinstance(section, model)
        yield _Table(header, section)
    for name, acceptor in config.acceptors.items():
        yield _Table(f"[acceptors.{name}]", acceptor)
    example = TlsSection.model_validate({"certificate": "/etc/bartleby/tls.pem", "key": "/etc/bartleby/tls.key"})
    yield _Table("[acceptors.stomp.tls]", example, active=False)
    for name, address in config.addresses.items():
        yield _Table(f"[addresses.{name}]", address)
        for queue_name, queue in address.queues.items():
            yield _Table(f"[addresses.{name}.queues.{queue_name}]", queue)
    divert = DivertSection.model_validate({"address": "orders", "forwarding-address": "audit"})
    yield _Table("[diverts.audit]", divert, active=False)
    yield from _link_tables()
    for setting in config.address_settings:
        yield _Table("[[address-settings]]", setting)
    rule = RuleSection.model_validate({"name": "try-again", "action": "retry", "reasons": ["max-deliveries"]})
    yield _Table("[[dead-letter-rules]]", rule, active=False)
    for permissions in config.security_settings:
        yield _Table("[[security-settings]]", permissions)
    certified = CertificateUser.model_validate({"subject": "CN=*,OU=services,O=Example", "user": "%cn"})
    yield _Table("[[certificate-users]]", certified, active=False)
    limited = ResourceLimit.model_validate({"match": "alice", "max-connections": 10, "max-queues": 5})
    yield _Table("[[resource-limit-settings]]", limited, active=False)


def _link_tables() -> Iterator[_Table]:
    link = LinkSection.model_validate({"url": "amqp://paris.example.org:5672"})
    yield _Table("[links.paris]", link, active=False)
    routes: list[tuple[str, type[Section], dict[str, object]]] = [
        ("paris.send.orders", SendSection, {"queue": "orders.out", "address": "orders"}),
        ("paris.receive.invoices", ReceiveSection, {"queue": "invoices", "address": "invoices.in"}),
        ("paris.remote-queues.returns", RemoteQueueSection, {"queue": "returns"}),
        ("paris.topics.news", TopicsSection, {"address": "news.#"}),
        ("garden.mqtt.sensors", MqttRouteSection, {"topic": "sensors/#"}),
    ]
    for name, model, given in routes:
        yield _Table(f"[links.{name}]", model.model_validate(given), active=False)


def _table(table: _Table) -> str:
    lines = [f"# {_first_line(type(table.section))}", f"{'' if table.active else '#'}{table.header}"]
    for name, field in _settings(type(table.section)):
        value = getattr(table.section, name)
        active = table.active and value is not None
        if value is None:
            value = _UNSET[name]
        lines.append(f"# {why(type(table.section), name)}")
        lines.append(f"{'' if active else '#'}{kebab(name)} = {_written(value, field)}")
    return "\n".join(lines) + "\n"


def _again(table: _Table) -> str:
    """Format a table whose settings were explained before: only the settings that it has."""
    lines = [table.header]
    for name, field in _settings(type(table.section)):
        if name in table.section.model_fields_set:
            lines.append(f"{kebab(name)} = {_written(getattr(table.section, name), field)}")
    return "\n".join(lines) + "\n"


# The value to show for an unset setting: an address setting's default, a plain queue's, or the substitute.
_UNSET: Final[dict[str, object]] = (
    DEFAULTS
    | asdict(PLAIN)
    | {
        "last_value_queue": False,
        "anonymous_roles": ("amq",),
        "audit_file": Path("var/audit.jsonl"),
        "client_ca": Path("/etc/bartleby/clients.pem"),
        "dsn_file": Path("/etc/bartleby/dsn"),
        "crl": Path("/etc/bartleby/revoked.pem"),
        "connection_ttl": Config().broker.connection_ttl,
        "enabled": True,
        "open_metrics": True,
        "allowed_hosts": ("broker.example.org", "*.svc.cluster.local"),
        "ca_file": Path("/etc/bartleby/issuer-ca.pem"),
        "password_file": Path("/etc/bartleby/paris.password"),
        "ca": Path("/etc/bartleby/paris-ca.pem"),
        "certificate": Path("/etc/bartleby/link.pem"),
        "key": Path("/etc/bartleby/link.key"),
        "keys_file": Path("/etc/bartleby/jwks.json"),
        "users_file": Path("var/users.toml"),
        "persist_delivery_count_before_delivery": False,
    }
)


def _written(value: object, field: FieldInfo) -> str:
    """Format a value for the file."""
    if isinstance(value, RoutingType):
        return json.dumps(value.name)
    if isinstance(value, tuple):
        return f"[{', '.join(_written(entry, field) for entry in value)}]"
    if isinstance(value, Path):
        return json.dumps(str(value) if value.is_absolute() else f"./{value}")
    if isinstance(value, bool | str):
        return json.dumps(value)
    if isinstance(value, int) and value > 0 and (known := _UNITS.get(_kind(field))):
        return json.dumps(units.written(value, known))
    assert isinstance(value, int | float), f"{value!r} cannot be written"
    return str(value)


_UNITS: Final = {"duration": units.DURATION_UNITS, "size": units.SIZE_UNITS}


# -- docs/configuration.md ---------------------------------------------------------------------------------------------


def _row(model: type[Section], name: str, field: FieldInfo) -> str:
    cells = (f"`{kebab(name)}`", _kind(field), _default(model, name, field), why(model, name))
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _default(model: type[Section], name: str, field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    if model is AddressSetting and DEFAULTS.get(name) is not None:
        return f"`{_written(DEFAULTS[name], field)}`"
    return "unset" if field.default is None else f"`{_written(field.default, field)}`"


def _kind(field: FieldInfo) -> str:
    """Return the type of a setting's value, in a word or two."""
    parts = [*_annotations(field.annotation), *field.metadata]
    checks = [part.func for part in parts if isinstance(part, BeforeValidator)]
    if units.duration in checks:
        return "duration"
    if units.size in checks:
        return "size"
    kind = next(arm for arm in arms(field.annotation) if arm is not type(None))
    if get_origin(kind) is tuple:
        return "list of texts"
    if get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind))
    assert isinstance(kind, type)
    if issubclass(kind, Enum):
        names = kind.__members__ if issubclass(kind, RoutingType) else [str(member.value) for member in kind]
        return ", ".join(f"`{name}`" for name in names)
    return _WORDS[kind]


_WORDS: Final[dict[type, str]] = {
    bool: "true, false",
    float: "number",
    int: "integer",
    str: "text",
    Path: "text",
}


def _annotations(annotation: object) -> Iterator[object]:
    """Yield the metadata of Annotated, at any depth."""
    if get_origin(annotation) is Annotated:
        yield from get_args(annotation)[1:]
    for argument in get_args(annotation):
        yield from _annotations(argument)


# -- docs/reasons.md ---------------------------------------------------------------------------------------------------


def reason_tables() -> str:
    """Return the tables of docs/reasons.md."""
    found = [(kind, [reason for reason in reasons() if reason.kind is kind]) for kind in Kind]
    return "\n".join(_reason_table(kind, of_kind) for kind, of_kind in found)


def _reason_table(kind: Kind, of_kind: list[Reason]) -> str:
    columns = ["word", "number", "level", "meaning", "what to do", "see"]
    rows = [
        (
            f"`{reason.word}`",
            reason.number_text,
            reason.level,
            reason.meaning,
            reason.action,
            ", ".join(f"`{word}`" for word in reason.see),
        )
        for reason in of_kind
    ]
    shown = [at for at in range(len(columns)) if any(row[at] for row in rows)]
    table = [[columns[at] for at in shown], ["---"] * len(shown), *([row[at] for at in shown] for row in rows)]
    return "\n".join([f"## {kind.title}", "", kind.where, "", *(f"| {' | '.join(cells)} |" for cells in table), ""])


def _with_tables(document: Path, tables: str) -> str:
    text, mark, _ = document.read_text().partition(MARK)
    assert mark, f"{document} has lost its mark"
    return text + mark + tables


def expected() -> dict[Path, str]:
    """Return the expected text of each file."""
    return {
        FILE: broker_toml(),
        DOCUMENT: _with_tables(DOCUMENT, configuration_tables()),
        REASONS: _with_tables(REASONS, reason_tables()),
        **manual.pages(),
    }


if __name__ == "__main__":
    files = expected()
    for old in set(manual.DIRECTORY.glob("*")) - files.keys():
        old.unlink()
    for path, content in files.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
