"""Templates, and the formatting of numbers, times and names.

Text that a client chose is escaped.  Invisible characters, and those that change the direction of writing, are shown as
escapes, so that different names look different.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from broker.console.visit import link
from broker.management.openapi import prose
from store.counted import counted

_HERE: Final = Path(__file__).parent

#: The static files by suffix, with their types.
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


class Assets:
    """Scripts and styles by name, in memory; the URL of each changes with its content."""

    def __init__(self) -> None:
        files = [path for path in (_HERE / "static").iterdir() if path.suffix in _TYPES]
        self._files = {path.name: (path.read_bytes(), _TYPES[path.suffix]) for path in files}

    def get(self, name: str) -> tuple[bytes, str] | None:
        """Content and type; None if there is no such file."""
        return self._files.get(name)

    def link(self, name: str) -> str:
        """The URL of a file, for pages."""
        return link(f"/static/{name}", v=sha256(self._files[name][0]).hexdigest()[:12])


@cache
def assets() -> Assets:
    """The scripts and styles of all consoles."""
    return Assets()


@cache
def environment() -> Environment:
    """The template environment of all consoles: what one has compiled no other compiles again."""
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        cache_size=-1,
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    link_to = assets().link
    links = {name: link_to(name) for name in ("console.css", "console.js", "htmx.min.js", "uplot.min.css")}
    links |= {name: link_to(name) for name in ("uplot.min.js", "theme.js", "login.js", "icon.svg")}
    made.globals |= {"asset": links, "link": link}
    made.filters |= {
        "count": count,
        "counted": counted,
        "size": size,
        "time": time,
        "duration": duration,
        "shown": format_value,
        "lines": lines,
        "prose": prose,
    }
    return made


def page(templates: Environment, template: str, context: Mapping[str, object]) -> str:
    """Render a page."""
    return templates.get_template(template).render(context)


def warm(templates: Environment) -> None:
    """Compile all templates.  Safe in any thread."""
    for name in templates.list_templates():
        templates.get_template(name)


def format_value(value: object) -> str:
    """A text with its invisible characters escaped."""
    text = str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def lines(text: str) -> str:
    """A text of several lines with its invisible characters escaped."""
    return "".join(c if c.isprintable() or c in "\n\t" else _escape(c) for c in text.replace("\r\n", "\n"))


def _escape(c: str) -> str:
    return f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}"


def count(value: int) -> str:
    """A number with thousands separators."""
    return f"{value:,}"


def size(nbytes: float) -> str:
    """A size with a binary unit."""
    if nbytes < 0:
        return "no limit"
    unit = 0
    while nbytes >= 1024 and unit < len(_UNITS) - 1:
        nbytes /= 1024
        unit += 1
    return f"{nbytes:.0f} {_UNITS[unit]}" if unit == 0 or nbytes >= 100 else f"{nbytes:.1f} {_UNITS[unit]}"


def time(ms: int) -> str:
    """A time in ms since the epoch, in UTC; a dash for none."""
    if ms <= 0:
        return "-"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):  # a client may have sent any number
        return f"{ms} ms"


def duration(ms: int) -> str:
    """How long something took or has lasted."""
    seconds = ms // 1000
    if seconds < 0:
        return "-"
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
