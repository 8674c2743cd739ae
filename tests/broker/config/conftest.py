"""What several of the tests need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a configuration."""

    def to_file(text: str) -> Path:
        path = tmp_path / "broker.toml"
        path.write_text(text)
        return path

    return to_file
