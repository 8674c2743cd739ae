"""Templates, and how numbers, times and names are written.

Whatever a client chose is escaped; characters that cannot be seen, or that turn the direction of writing, are written
as escapes, so that two names that differ look different.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from broker.console.visit import link
from store.counted import counted

_HERE: Final = Path(__file__).parent

#: What is served as it is, and as what.
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


class Assets:
    """Scripts and styles by name, in memory; each address has a part that changes with the content."""

    def __init__(self) -> None:
        files = [path for path in (_HERE / "static").iterdir() if path.suffix in _TYPES]
        self._files = {path.name: (path.read_bytes(), _TYPES[path.suffix]) for path in files}

    def get(self, name: str) -> tuple[bytes, str] | None:
        """Content and type; None for what there is not."""
        return self._files.get(name)

    def link(self, name: str) -> str:
        """Where a page finds it."""
        return link(f"/static/{name}", v=sha256(self._files[name][0]).hexdigest()[:12])


def environment(assets: Assets) -> Environment:
    """What makes pages of templates."""
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        cache_size=-1,
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    links = {name: assets.link(name) for name in ("console.css", "console.js", "htmx.min.js", "uplot.min.css")}
    links |= {name: assets.link(name) for name in ("uplot.min.js", "theme.js", "login.js", "icon.svg")}
    made.globals |= {"asset": links, "link": link}
    made.filters |= {
        "count": count,
        "counted": counted,
        "size": size,
        "time": time,
        "duration": duration,
        "shown": shown,
        "lines": lines,
        "prose": prose,
    }
    return made


def page(templates: Environment, template: str, context: Mapping[str, object]) -> str:
    """A page."""
    return templates.get_template(template).render(context)


def warm(templates: Environment) -> None:
    """Compile all templates.  Safe in any thread."""
    for name in templates.list_templates():
        templates.get_template(name)


def shown(value: object) -> str:
    """A text as it is, but for what cannot be seen."""
    text = str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def lines(text: str) -> str:
    """The same for a text of several lines."""
    return "".join(c if c.isprintable() or c in "\n\t" else _escape(c) for c in text.replace("\r\n", "\n"))


def _escape(c: str) -> str:
    return f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}"


def count(value: int) -> str:
    """A number with its thousands apart."""
    return f"{value:,}"


def prose(text: str) -> Markup:
    """A sentence of Bartleby's own, with what stands between backquotes as code."""
    parts = [escape(part) for part in text.split("`")]
    return Markup("").join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))


def size(nbytes: float) -> str:
    """Bytes."""
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
