"""Writes etc/broker.toml and the tables of docs/configuration.md from the models: `make reference`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from broker.config.reference import broker_toml, configuration_tables

ROOT: Final = Path(__file__).parents[2]
FILE: Final = ROOT / "etc" / "broker.toml"
DOCUMENT: Final = ROOT / "docs" / "configuration.md"
MARK: Final = "<!-- The rest of this file is written by `make reference`. -->\n\n"


def expected() -> dict[Path, str]:
    """What each file should hold."""
    text, mark, _ = DOCUMENT.read_text().partition(MARK)
    assert mark, f"{DOCUMENT} has lost its mark"
    return {FILE: broker_toml(), DOCUMENT: text + mark + configuration_tables()}


if __name__ == "__main__":
    for path, content in expected().items():
        path.write_text(content)
