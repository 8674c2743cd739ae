"""What pyproject.toml says."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]


PYPROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())


PROJECT: Final = PYPROJECT["project"]


def bartleby_command(directory: Path) -> Path:
    """Where the command `bartleby` is, of which scripts make use."""
    script = directory / "bin" / "bartleby"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m broker "$@"\n')
    script.chmod(0o755)
    return script.parent
