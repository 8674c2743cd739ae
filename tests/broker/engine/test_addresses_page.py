"""docs/addresses.md names tests that exist, and refuses what the configuration refuses."""

from __future__ import annotations

import re
from pathlib import Path

from broker.config.addresses import REFUSED_SETTINGS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "addresses.md").read_text("utf-8")


def test_every_test_of_the_table_exists() -> None:
    rows = re.findall(r"`([a-z_/0-9]+\.py)::(test_\w+)`", PAGE)
    assert len(rows) > 50
    sources = {file: (ROOT / "tests" / "broker" / file).read_text("utf-8") for file, _ in rows}
    assert [(file, name) for file, name in rows if f"def {name}(" not in sources[file]] == []


def test_refused_settings_are_those_of_the_configuration() -> None:
    table = PAGE.partition("## Settings that are refused")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `([a-z-]+)` ", table, re.MULTILINE)
    assert named
    assert set(named) <= set(REFUSED_SETTINGS)
