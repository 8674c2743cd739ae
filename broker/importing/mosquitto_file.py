"""Parses a mosquitto.conf to the settings of the broker, its listeners and its bridges, each with its line.

1. A line is a name, a space, and a value; blank lines, and lines that begin with `#`, are ignored.
2. `listener` and `connection` begin a section; later settings of listeners and of bridges belong to it, whatever is in
   between.
3. Settings of listeners before any `listener`, and those after `port` and `bind_address`, belong to the default
   listener, which exists if one of these two is given, or no `listener` at all.
4. With `per_listener_settings true` some settings of the broker are each listener's own.
5. If a setting is given twice, the last one applies, unless it makes a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.importing.draft import Draft
from broker.importing.files import InvalidFile, text_of
from broker.importing.mosquitto_tables import ALIASES, BRIDGE, GENERAL, LISTENER, LISTS, OPTIONS, OWN
from broker.importing.report import Place, format_value
from broker.importing.rules import Always, Rule, apply

CONF_BYTES_MAX: Final = 1 << 20
"""Bytes of a file: the shipped one with all its comments has 40 KiB."""


class Line(NamedTuple):
    """A setting and its line number."""

    number: int
    name: str
    value: str

    @property
    def word(self) -> str:
        """The first word of the value: Mosquitto reads only this of numbers and booleans."""
        return self.value.partition(" ")[0]

    @property
    def truth(self) -> bool:
        """Whether the value is true."""
        return self.word in ("true", "1")

    def place(self, section: str = "") -> Place:
        """Its place, for the report."""
        what = f"{section}: {self.name}" if section else self.name
        return Place(self.number, what, format_value(what, self.value))


@dataclass(slots=True, eq=False)
class Section:
    """A listener or a bridge: the line that it begins with, if there is one, and its settings."""

    head: Line | None = None
    lines: list[Line] = field(default_factory=list)

    def get(self, name: str) -> Line | None:
        """The last line with a setting, which applies, under its name or an older one."""
        return next((line for line in reversed(self.lines) if ALIASES.get(line.name, line.name) == name), None)

    def truth(self, name: str) -> bool:
        """Whether a setting is true."""
        line = self.get(name)
        return line is not None and line.truth


@dataclass(slots=True)
class Conf:
    """The contents of a file."""

    general: Section = field(default_factory=Section)
    default: Section = field(default_factory=Section)
    """The listener that exists without a `listener` line."""
    listeners: list[Section] = field(default_factory=list)
    bridges: list[Section] = field(default_factory=list)
    stray: list[Line] = field(default_factory=list)
    """Settings of bridges before any `connection`."""
    unknown: list[Line] = field(default_factory=list)

    @property
    def every_listener(self) -> list[Section]:
        """All listeners, including the default one if it exists."""
        given = self.default.get("port") or self.default.get("bind_address")
        return [self.default, *self.listeners] if given is not None or not self.listeners else self.listeners


def read_conf(data: bytes) -> Conf:
    """Parse a file.  Raises InvalidFile with the line."""
    lines = list(_lines(data))
    own = any(line.name == "per_listener_settings" and line.truth for line in lines)
    conf = Conf()
    listener, bridge = conf.default, Section()
    for line in lines:
        if line.name == "listener":
            listener = Section(line)
            conf.listeners.append(listener)
        elif line.name == "connection":
            bridge = Section(line)
            conf.bridges.append(bridge)
        elif line.name in ("port", "bind_address"):
            listener = conf.default
            listener.lines.append(line)
        elif line.name in BRIDGE:
            (bridge.lines if bridge.head else conf.stray).append(line)
        elif line.name in LISTENER or (own and (line.name in OWN or line.name.startswith(OPTIONS))):
            listener.lines.append(line)
        elif line.name in GENERAL or line.name.startswith(OPTIONS):
            conf.general.lines.append(line)
        else:
            conf.unknown.append(line)
    if lines and len(conf.unknown) == len(lines):
        raise InvalidFile(
            f"line {lines[0].number}: {format_value('', lines[0].name)} is not a setting of Mosquitto, nor is any other"
            " line: name a broker.xml, an activemq.xml, a mosquitto.conf, or a rules table of runmqdlq"
        )
    return conf


def holding(lines: Iterable[Line], draft: Draft, section: str = "") -> list[Line]:
    """The lines that apply; the others are reported."""
    given = list(lines)
    last = {ALIASES.get(line.name, line.name): line for line in given}
    held: list[Line] = []
    for line in given:
        holds = last[ALIASES.get(line.name, line.name)]
        if holds is line or line.name in LISTS or line.name.startswith(OPTIONS):
            held.append(line)
        else:
            draft.report.left(line.place(section), f"line {holds.number} gives it again, and applies")
    return held


def apply_rule(draft: Draft, rule: Rule, line: Line, found: Place) -> None:
    """Translate one setting; 1 and 0 are true and false."""
    text = line.word
    if isinstance(rule, Always) and rule.value in ("true", "false"):
        text = {"0": "false", "1": "true"}.get(text, text)
    apply(draft, rule, found, text)


def _lines(data: bytes) -> Iterator[Line]:
    for number, line in enumerate(text_of(data, CONF_BYTES_MAX, "mosquitto.conf").split("\n"), start=1):
        name, _, value = line.strip().partition(" ")
        if name and not name.startswith("#"):
            yield Line(number, name, value.strip())
