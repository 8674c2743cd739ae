"""Importing in tests: a file or a piece of one, and what came out."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from broker.config import Config, load
from broker.importing import Imported, translate
from broker.importing.report import Finding
from broker.importing.xml import Element
from broker.security.checks import problems

HERE = Path(__file__).parent
ARTEMIS = (HERE / "broker.xml").read_bytes()
CLASSIC = (HERE / "activemq.xml").read_bytes()
MOSQUITTO = (HERE / "mosquitto.conf").read_bytes()


def core(inner: str) -> bytes:
    """A broker.xml with this in its core."""
    return f'<configuration><core xmlns="urn:activemq:core">{inner}</core></configuration>'.encode()


def broker(inner: str) -> bytes:
    """An activemq.xml with this in its broker."""
    name = "http://activemq.apache.org/schema/core"
    return f'<beans><broker xmlns="{name}">{inner}</broker></beans>'.encode()


def imported(data: bytes, tmp_path: Path) -> tuple[dict[str, Any], Imported]:
    """The tables of what came out, which can be loaded and has no password (`hunter` in the tests), and all of it."""
    found = translate(data)
    assert "hunter" not in found.text + "\n".join(found.report.lines())
    file = tmp_path / "broker.toml"
    file.write_text(found.text, encoding="utf-8")
    checked(file)
    return tomllib.loads(found.text), found


def checked(file: Path) -> Config:
    """What `bartleby config check` finds nothing wrong with, but for links' files that are missing.

    Raises ConfigError.
    """
    config = load(file)
    assert [each for each in problems(config, str(file)) if not each.key.startswith("links.")] == []
    return config


def finding(found: Imported, what: str) -> Finding:
    """The one finding about a thing."""
    (one,) = [each for each in found.report.findings if each.place.what == what]
    return one


def setting(tables: dict[str, Any], match: str) -> dict[str, Any]:
    """The address setting of a match."""
    (one,) = [entry for entry in tables["address-settings"] if entry["match"] == match]
    assert isinstance(one, dict)
    return one


def leaves(element: Element) -> Iterator[tuple[Element, Element]]:
    """The elements without others in them, each with the one that it is in."""
    for child in element.children:
        if not child.children:
            yield child, element
        yield from leaves(child)
