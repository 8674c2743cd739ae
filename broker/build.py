"""In which form the hot path runs: as the sources are, or compiled from them (docs/performance.md, Compiled build)."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import Final

from broker import __version__


def compiled(module: str = "store.record") -> bool:
    """Whether Python imports this module as an extension.  One tells for all: they are built and installed together."""
    spec = find_spec(module)
    return spec is not None and str(spec.origin).endswith(tuple(EXTENSION_SUFFIXES))


COMPILED: Final = compiled()

#: The version as people read it.
VERSION_SHOWN: Final = f"{__version__} (compiled)" if COMPILED else __version__
