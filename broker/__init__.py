"""Bartleby: a message broker that can account for every message it ever accepted."""

from __future__ import annotations

from typing import Final

__version__: Final = "0.1.0"
