"""What the pages show of a configuration is accepted as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker.config import load

ROOT = Path(__file__).parents[3]

EXAMPLES = [
    (page.name, number, text)
    for page in sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])
    for number, text in enumerate(re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), re.DOTALL))
]


@pytest.mark.parametrize(("page", "number", "text"), EXAMPLES, ids=[f"{page}-{number}" for page, number, _ in EXAMPLES])
def test_an_example_is_accepted(page: str, number: int, text: str, tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(text)
    load(file)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 8
