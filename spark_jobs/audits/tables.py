"""Sections of a report: what is shown, and how many more rows there are."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from spark_jobs.results import Chart, Section
from store.counted import counted

UTC: Final = pa.timestamp("us", tz="UTC")


def section(
    name: str, title: str, table: pa.Table, *, beyond: int = 0, note: str = "", chart: Chart | None = None
) -> Section:
    """A section of a report.  An empty table gets no chart."""
    cut = f"{counted(beyond, 'more is', 'more are')} not shown." if beyond else ""
    return Section(name, title, table, " ".join(filter(None, (note, cut))), chart if table.num_rows else None)
