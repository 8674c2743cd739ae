"""What is installed: whether the hot path is compiled (docs/performance.md, Compiled build), and which extras."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import Final

from broker import __version__


def compiled(module: str = "store.record") -> bool:
    """Whether this module is imported as an extension.  One answers for all: they are built and installed together."""
    spec = find_spec(module)
    return spec is not None and str(spec.origin).endswith(tuple(EXTENSION_SUFFIXES))


COMPILED: Final = compiled()

#: The version for people.
VERSION_SHOWN: Final = f"{__version__} (compiled)" if COMPILED else __version__

#: The packages of the extras of pyproject.toml, by import name.
_EXTRAS: Final = {
    "import": ("defusedxml", "tomli_w"),
    "jwt": ("jwt",),
    "postgresql": ("psycopg",),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "spark": ("pyspark", "pyarrow", "numpy", "jinja2"),
}


def missing_of(extra: str) -> list[str]:
    """The packages of an extra that are not installed, by the names they are imported by."""
    return [name for name in _EXTRAS[extra] if not _is_there(name)]


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # its parent package is missing too
        return False


def how_to_install(extra: str) -> str:
    """A sentence on how to install an extra."""
    return f"install the extra [{extra}]: pip install '.[{extra}]' in a copy of the sources, or 'FILE.whl[{extra}]'"
