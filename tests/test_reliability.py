"""docs/dev/reliability-evidence.md names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]


def test_every_test_that_is_named_exists() -> None:
    page = (ROOT / "docs" / "dev" / "reliability-evidence.md").read_text("utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)
    assert len(named) > 40
    for path, test in named:
        assert not test or f"def {test}(" in (ROOT / path).read_text("utf-8"), f"{path}::{test}"
        assert (ROOT / path).is_file(), path
