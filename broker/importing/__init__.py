"""Other brokers' configurations become a broker.toml, with a report of what became of each thing in them.

runmqdlq_table.py and runmqdlq.py are about IBM MQ's rules for dead letters, all else is about ActiveMQ: xml.py reads
safely; artemis.py and classic.py walk through what they know, most of it tables; draft.py keeps what came
out and asks the models of broker/config what they take; report.py says it.
"""

from __future__ import annotations

from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from dataclasses import dataclass
from typing import Final

from broker.importing import artemis, classic, runmqdlq
from broker.importing.draft import Draft
from broker.importing.report import Outcome, Report
from broker.importing.xml import XML_BYTES_MAX, Element, InvalidFile, read

__all__ = ["XML_BYTES_MAX", "Imported", "InvalidFile", "Outcome", "Report", "translate"]

_HEAD: Final = """\
# Made by `bartleby import` from a configuration of {origin}: {summary}.
# What is not here has its default: docs/configuration.md.  Check changes with `bartleby config check --config FILE`.

"""


@dataclass(frozen=True, slots=True)
class Imported:
    """The text of a broker.toml that the models accept, and what to know about it."""

    text: str
    report: Report


_RULES_HEAD: Final = """\
# Made by `bartleby import` from a rules table of runmqdlq: {summary}.
# Copy these rules into your broker.toml.  docs/dead-letters.md explains them.

"""


def translate(data: bytes) -> Imported:
    """Translate a file: XML is ActiveMQ's, all else a rules table of IBM MQ's.  Raises InvalidFile."""
    report = Report()
    if not data.removeprefix(BOM_UTF8).lstrip().startswith(b"<") and data[:2] not in (BOM_UTF16_LE, BOM_UTF16_BE):
        text = runmqdlq.translate(data, report)
        return Imported(_RULES_HEAD.format(summary=report.summary()) + text, report)
    root = read(data)
    draft = Draft(report)
    if _is_artemis(root):
        origin = "ActiveMQ Artemis"
        artemis.translate(root, draft)
    elif classic.broker_of(root) is not None:
        origin = "ActiveMQ Classic"
        classic.translate(root, draft)
    else:
        raise InvalidFile(
            f"<{root.name}> is neither Artemis's broker.xml (<configuration> with a <core>) nor ActiveMQ Classic's"
            " activemq.xml (<beans> with a <broker>): name one of these"
        )
    draft.settle()
    return Imported(_HEAD.format(origin=origin, summary=report.summary()) + draft.text(), report)


def _is_artemis(root: Element) -> bool:
    core = root if root.name == "core" else root.find("core") if root.name == "configuration" else None
    return core is not None and core.namespace in ("urn:activemq:core", "urn:activemq", "")
