"""What session shares of the processor the kernel gives, as sched(7) tells it: "/autogroup-1273 nice 0"."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

#: Missing where the kernel knows no shares.  Empty for who is in none: the first process's session has none.
AUTOGROUP: Final = Path("/proc/self/autogroup")


def shares(text: str) -> dict[str, int]:
    """The groups that `text` tells of, each with its nice value."""
    return {name: int(nice) for name, nice in re.findall(r"^(/autogroup-\d+) nice (-?\d+)$", text, re.M)}


def ours() -> dict[str, int]:
    """This process's group, if it is in one."""
    return shares(AUTOGROUP.read_text()) if AUTOGROUP.exists() else {}
