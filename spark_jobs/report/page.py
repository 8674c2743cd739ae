"""A result as one HTML file: no scripts, no other files, the same bytes for the same result.

The order is the same as on the terminal: the verdict, the coverage (with all damage), the figures, then each section
with its chart and its table.  The page follows the reader's choice of light or dark, can be printed, and is accessible:
tables have captions and scoped headings, charts have a description, and colours only repeat what the words say.
page.html is the template, which escapes all values.
"""

from __future__ import annotations

from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from spark_jobs.report import text
from spark_jobs.report.charts import draw
from spark_jobs.report.tables import Column, columns
from spark_jobs.results import Damage, Result, Section

#: A table with more rows scrolls within the page (on paper, it is printed completely).
LONG: Final = 30

#: A table with at most this number of columns is not stretched to the width of the page.
NARROW: Final = 3

#: In a table with more columns, those that are 0 in every row are only named in a sentence.
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
        tables=[(section, _divided(section)) for section in result.sections],
    )


def _damage(places: tuple[Damage, ...]) -> list[Column]:
    def known(number: int) -> str:
        return "unknown" if number == text.UNKNOWN else f"{number:,}"

    return [
        Column("where", [text.clean(place.path) for place in places]),
        Column("byte", [f"{place.offset:,}" if place.offset else "" for place in places], "number"),
        Column("from position", [known(place.first_position) for place in places], "number"),
        Column("records lost", [known(place.records) for place in places], "number"),
        Column("what", [text.clean(place.what) for place in places]),
    ]


def _divided(section: Section) -> tuple[list[Column], list[Column]]:
    """The columns that are shown, and, for a wide table, those that are only named: 0 in every row."""
    found = columns(section.table)
    zero = [column for column in found if column.zero] if len(found) > WIDE else []
    return [column for column in found if column not in zero], zero
