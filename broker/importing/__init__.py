"""Translates other brokers' configurations to a broker.toml, with a report on each part of them.

xml.py and mosquitto_file.py read files; artemis.py, classic.py and mosquitto.py translate what they know, mostly by
tables; draft.py collects the result and checks it with the models of broker/config; report.py reports it.
runmqdlq_table.py, runmqdlq_match.py and runmqdlq.py translate IBM MQ's rules for dead letters.

The beginning of a file shows its kind: XML with `<` is ActiveMQ's; `*`, or a keyword with a value in parentheses, is a
rules table; anything else is Mosquitto's, if one of its lines is a setting of Mosquitto.
"""

from __future__ import annotations

from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from broker.importing import artemis, classic, mosquitto, runmqdlq
from broker.importing.draft import Draft
from broker.importing.files import InvalidFile
from broker.importing.links import drop_idle
from broker.importing.report import Outcome, Report
from broker.importing.runmqdlq_match import LinkTo
from broker.importing.runmqdlq_table import is_table
from broker.importing.xml import XML_BYTES_MAX, Element, read

__all__ = ["XML_BYTES_MAX", "Imported", "InvalidFile", "LinkTo", "Outcome", "Report", "translate"]

_HEAD: Final = """\
# Made by `bartleby import` from a configuration of {origin}: {summary}.
# Other settings have their defaults: docs/configuration.md.  Check changes with `bartleby config check --config FILE`.

"""


@dataclass(frozen=True, slots=True)
class Imported:
    """The text of a broker.toml that the models accept, and the report about it."""

    text: str
    report: Report


NO_LINKS: Final[Mapping[str, LinkTo]] = MappingProxyType({})

_RULES_HEAD: Final = """\
# Made by `bartleby import` from a rules table of runmqdlq: {summary}.
# Append this to your broker.toml.  docs/dead-letters.md explains them.

"""


def translate(data: bytes, *, queue_manager: str = "", links: Mapping[str, LinkTo] = NO_LINKS) -> Imported:
    """Translate a file of any kind; `queue_manager` and `links` are for a rules table.  Raises InvalidFile."""
    report = Report()
    draft = Draft(report)
    if (queue_manager or links) and not is_table(data):
        raise InvalidFile("--queue-manager and --link are for a rules table of runmqdlq, which this is not")
    if data.removeprefix(BOM_UTF8).lstrip().startswith(b"<") or data[:2] in (BOM_UTF16_LE, BOM_UTF16_BE):
        origin = _activemq(read(data), draft)
    elif is_table(data):
        text = runmqdlq.translate(data, report, queue_manager, links)
        return Imported(_RULES_HEAD.format(summary=report.summary()) + text, report)
    else:
        origin = "Mosquitto"
        mosquitto.translate(data, draft)
    draft.refine(drop_idle)
    return Imported(_HEAD.format(origin=origin, summary=report.summary()) + draft.text(), report)


def _activemq(root: Element, draft: Draft) -> str:
    """Translate a file of either ActiveMQ, and return which of them it is."""
    if _is_artemis(root):
        artemis.translate(root, draft)
        return "ActiveMQ Artemis"
    if classic.broker_of(root) is not None:
        classic.translate(root, draft)
        return "ActiveMQ Classic"
    raise InvalidFile(
        f"<{root.name}> is neither Artemis's broker.xml (<configuration> with a <core>) nor ActiveMQ Classic's"
        " activemq.xml (<beans> with a <broker>): name one of these"
    )


def _is_artemis(root: Element) -> bool:
    core = root if root.name == "core" else root.find("core") if root.name == "configuration" else None
    return core is not None and core.namespace in ("urn:activemq:core", "urn:activemq", "")
