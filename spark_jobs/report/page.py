"""A result as one HTML file: no scripts, no other files, the same bytes for the same result.

The order is that of the terminal: the verdict, what it stands on (with all damage), the figures, then a section each
with its chart and its table.  It follows the reader's choice of light or dark, prints on paper, and can be used without
seeing it: tables have captions and headings with scopes, charts a description, and colours only repeat what words say.

page.html is the template: whatever is put into it is escaped.
"""

from __future__ import annotations

from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from spark_jobs.report import text
from spark_jobs.report.charts import draw
from spark_jobs.report.tables import Column, columns
from spark_jobs.results import Damage, Result, Section

#: From so many rows on a table scrolls within the page (on paper it is there as a whole).
LONG: Final = 30

#: Up to so many columns a table is not drawn out to the width of the page.
NARROW: Final = 3

#: With more columns than this a table says in words which of them are 0 in every row.
WIDE: Final = 8


def to_html(result: Result) -> str:
    """The page."""
    environment = Environment(
        loader=PackageLoader("spark_jobs.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals.update(LONG=LONG, NARROW=NARROW, draw=draw, text=text)
    return environment.get_template("page.html").render(
        result=result,
        said=text.headline(result),
        damage=_damage(result.coverage.damage),
        tables=[(section, _shown(section)) for section in result.sections],
    )


def _damage(places: tuple[Damage, ...]) -> list[Column]:
    def known(number: int) -> str:
        return "not known" if number == text.UNKNOWN else f"{number:,}"

    return [
        Column("where", [text.clean(place.path) for place in places]),
        Column("byte", [f"{place.offset:,}" if place.offset else "" for place in places], "number"),
        Column("from position", [known(place.first_position) for place in places], "number"),
        Column("records lost", [known(place.records) for place in places], "number"),
        Column("what", [text.clean(place.what) for place in places]),
    ]


def _shown(section: Section) -> tuple[list[Column], list[Column]]:
    """The columns of a section that are shown, and of a wide table those that are only named: 0 in every row."""
    found = columns(section.table)
    zero = [column for column in found if column.zero] if len(found) > WIDE else []
    return [column for column in found if column not in zero], zero
