"""A result as one HTML file: no scripts, no other files, the same bytes for the same result.

The order is that of the terminal: the verdict, what it stands on (with all damage), the figures, then a section each
with its chart and its table.  It follows the reader's choice of light or dark, prints on paper, and can be used without
seeing it: tables have captions and headings with scopes, charts a description, and colours only repeat what words say.
"""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree as ET

from spark_jobs.report import text
from spark_jobs.report.charts import draw
from spark_jobs.report.markup import Child, add, element, page
from spark_jobs.report.style import STYLE
from spark_jobs.report.tables import Column, columns
from spark_jobs.results import Coverage, Figure, Result, Section

#: Nothing is loaded and nothing runs, whatever a client got into a text.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

#: From so many rows on a table scrolls within the page (on paper it is there as a whole).
LONG: Final = 30

#: Up to so many columns a table is not drawn out to the width of the page.
NARROW: Final = 3

#: With more columns than this a table says in words which of them are 0 in every row.
WIDE: Final = 8

_ZERO: Final = ("0", "0 s", "0 B")

_SIGNS: Final = {text.Tone.GOOD: "✓", text.Tone.WARN: "!", text.Tone.BAD: "✕"}


def to_html(result: Result) -> str:
    """The page."""
    said = text.headline(result)
    name = f"{text.title(result)}: {said.word.lower()}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{name} · Bartleby"),
        element("style", STYLE),
    )
    body = element(
        "body",
        element(
            "main",
            _masthead(result),
            _verdict(result, said),
            _figures(result),
            _coverage(result.coverage),
            _contents(result),
            *(_section(section) for section in result.sections),
            _footer(result),
        ),
    )
    return page(element("html", head, body, lang="en"))


def _masthead(result: Result) -> ET.Element:
    until = text.moment_ms(result.coverage.last_time)
    return element(
        "header",
        element("p", "Bartleby", element("span", " audit"), class_="brand"),
        element("h1", text.title(result)),
        element("p", f"as of {until} UTC", class_="asof") if until else None,
    )


def _verdict(result: Result, said: text.Headline) -> ET.Element:
    problems = [element("li", text.clean(problem)) for problem in result.problems]
    return element(
        "section",
        element("span", _SIGNS[said.tone], class_="sign", aria_hidden="true"),
        element(
            "div",
            element("p", said.word.capitalize(), class_="word"),
            element("p", said.sentence),
            element("ul", *problems) if problems else None,
        ),
        class_=f"verdict {said.tone.value}",
        aria_label="Verdict",
    )


def _figures(result: Result) -> ET.Element | None:
    tiles = [
        element(
            "div",
            element("dt", text.heading(name)),
            element("dd", text.figure(name, value), class_=_size(value)),
        )
        for name, value in result.summary.items()
    ]
    return element("section", element("dl", *tiles, class_="tiles"), aria_label="Figures") if tiles else None


def _size(value: Figure) -> str:
    if not isinstance(value, int):
        return "words"
    return "figure" if value else "figure zero"


def _coverage(coverage: Coverage) -> ET.Element:
    facts = [
        element("div", element("dt", name), element("dd", value), class_="damaged" if _told(name, coverage) else "")
        for name, value in text.covered(coverage).items()
    ]
    return element(
        "section",
        element("h2", "What was read"),
        element("dl", *facts, class_="facts"),
        _damage(coverage) if coverage.damage else None,
        class_="card",
    )


def _told(name: str, coverage: Coverage) -> bool:
    return name == "damage" and not coverage.whole


def _damage(coverage: Coverage) -> ET.Element:
    def known(number: int) -> str:
        return "not known" if number == text.UNKNOWN else f"{number:,}"

    places = coverage.damage
    found = [
        Column("where", [text.clean(place.path) for place in places]),
        Column("byte", [f"{place.offset:,}" if place.offset else "" for place in places], "number"),
        Column("from position", [known(place.first_position) for place in places], "number"),
        Column("records lost", [known(place.records) for place in places], "number"),
        Column("what", [text.clean(place.what) for place in places]),
    ]
    return _table("Damage", found)


def _contents(result: Result) -> ET.Element | None:
    if len(result.sections) < 3:
        return None
    links = [
        element("li", element("a", text.clean(section.title), href=f"#{section.name}")) for section in result.sections
    ]
    return element("nav", element("ul", *links), aria_label="Sections")


def _section(section: Section) -> ET.Element:
    title = text.clean(section.title)
    drawn = draw(section)
    return element(
        "section",
        element("h2", title),
        _figure(section, drawn) if drawn is not None else None,
        *_rows(title, section),
        element("p", text.clean(section.note), class_="note") if section.note else None,
        id=section.name,
        class_="card",
    )


def _figure(section: Section, drawn: ET.Element) -> ET.Element:
    said = section.chart.title if section.chart and section.chart.title != section.title else ""
    caption = element("figcaption", text.clean(said)) if said else None
    return element("figure", caption, element("div", drawn, class_="canvas"))


def _rows(title: str, section: Section) -> list[ET.Element]:
    """The table; of a wide one the columns that are 0 throughout are only named."""
    found = columns(section.table)
    if not section.table.num_rows:
        return [] if section.note else [element("p", "none", class_="none")]
    left_out = [column.heading for column in found if column.zero] if len(found) > WIDE else []
    if not left_out:
        return [_table(title, found)]
    shown = [column for column in found if not column.zero]
    return [_table(title, shown), element("p", f"0 in every row: {', '.join(left_out)}.", class_="note")]


def _table(caption: str, found: list[Column]) -> ET.Element:
    headings = [element("th", column.heading, scope="col", class_=column.kind) for column in found]
    rows = zip(*(column.cells for column in found), strict=True)
    body = element("tbody")
    for row in rows:
        add(body, [element("tr", *map(_cell, found, row))])
    classes = ["scroll", *(["long"] if len(body) > LONG else []), *(["narrow"] if len(found) <= NARROW else [])]
    return element(
        "div",
        element("table", element("caption", caption), element("thead", element("tr", *headings)), body),
        class_=" ".join(classes),
        tabindex="0",
        role="region",
        aria_label=f"Table: {caption}",
    )


def _cell(column: Column, cell: str) -> Child:
    zero = column.kind == "number" and cell in _ZERO
    return element("td", cell, class_="number zero" if zero else column.kind)


def _footer(result: Result) -> ET.Element:
    asked = ", ".join(f"{text.clean(name)} {text.clean(value)}" for name, value in result.options.items())
    return element(
        "footer",
        element("p", f"All times are UTC. Exit status {int(result.status)}."),
        element("p", f"Asked: {asked}.") if asked else None,
    )
