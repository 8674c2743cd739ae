"""How the stories are told: on one console."""

from __future__ import annotations

from typing import Final

from rich.console import Console

console: Final = Console(highlight=False, record=True)


def say(text: str) -> None:
    """One line of a story."""
    console.print(f"[bold cyan]>[/] {text}")
