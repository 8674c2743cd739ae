"""Bartleby: a message broker that can account for every message it ever accepted."""

from __future__ import annotations

__version__ = "0.1.0"
