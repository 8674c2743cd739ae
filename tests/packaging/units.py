"""The unit files of systemd."""

from __future__ import annotations

from pathlib import Path
from typing import Final

UNIT: Final = Path(__file__).parents[2] / "etc" / "bartleby.service"


def sections_of(unit: Path) -> dict[str, dict[str, list[str]]]:
    """Of each section the values of each key; unlike in other such files a key may stand several times."""
    sections: dict[str, dict[str, list[str]]] = {}
    keys: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        if line.startswith("["):
            keys = sections.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            key, equals, value = line.partition("=")
            assert equals, line
            keys.setdefault(key, []).append(value)
    return sections


SECTIONS: Final = sections_of(UNIT)


SERVICE: Final = SECTIONS["Service"]
