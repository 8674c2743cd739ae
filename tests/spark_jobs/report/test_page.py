"""The HTML report: complete, self-contained, escaped, accessible, the same bytes each time."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from spark_jobs.report.page import LONG, to_html
from spark_jobs.results import Result
from tests.spark_jobs.report.samples import ALL, empty, ledger, trace

#: Elements without an end tag.
VOID = frozenset({"meta", "br", "hr", "img", "link"})


class Page(HTMLParser):
    """What a browser makes of a page: its elements in order, their texts, and whether all are closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raise AssertionError(f"<{tag}/> is not HTML")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self._open[-1] if self._open else "", data))

    def all(self, tag: str) -> list[dict[str, str]]:
        """The attributes of all elements of a kind."""
        return [attributes for found, attributes in self.elements if found == tag]

    def said(self, tag: str) -> list[str]:
        """The texts of all elements of a kind."""
        return [text for found, text in self.texts if found == tag]


@pytest.mark.parametrize("name", ALL)
def test_a_page_is_well_formed_and_loads_nothing(name: str) -> None:
    page = to_html(ALL[name])
    found = Page(page)
    tags = {tag for tag, _ in found.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "base", "foreignobject", "image"}
    for tag, attributes in found.elements:
        assert not [key for key in attributes if key.startswith("on")], tag
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
    assert "http://" not in page.replace("http-equiv", "")
    assert "https://" not in page
    assert re.findall(r"url\((?!#)", page) == []
    assert "@import" not in page


@pytest.mark.parametrize("name", ALL)
def test_the_same_result_gives_the_same_bytes(name: str) -> None:
    assert to_html(ALL[name]) == to_html(replace(ALL[name]))


@pytest.mark.parametrize("name", ALL)
def test_ids_are_unique_and_links_and_references_lead_somewhere(name: str) -> None:
    page = to_html(ALL[name])
    ids = [attributes["id"] for _, attributes in Page(page).elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    wanted = re.findall(r'href="#([^"]*)"', page) + re.findall(r"url\(#([^)]*)\)", page)
    assert set(wanted) <= set(ids)


@pytest.mark.parametrize("name", ALL)
def test_it_can_be_used_without_seeing_it(name: str) -> None:
    found = Page(to_html(ALL[name]))
    assert found.all("html") == [{"lang": "en"}]
    assert len(found.all("h1")) == 1
    assert len(found.all("table")) == len(found.said("caption"))
    assert all(heading.get("scope") == "col" for heading in found.all("th"))
    charts = [attributes for attributes in found.all("div") if attributes.get("class") in ("bars", "plot")]
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in charts)
    assert len(charts) == len(found.all("figure"))


def test_hostile_texts_are_shown_and_do_nothing() -> None:
    page = to_html(ALL["hostile"])
    found = Page(page)
    assert any("</table><script>alert(1)</script>" in text for tag, text in found.texts if tag == "td")
    assert all(line.isprintable() for line in page.split("\n"))


def test_the_verdict_stands_before_what_was_read_and_that_before_the_sections() -> None:
    page = to_html(ALL["not provable"])
    order = [
        page.index(text) for text in ("Not provable", "What was read", "0000000112.journal", "The books of the queues")
    ]
    assert order == sorted(order)
    assert "3 places, at least 280,158 records lost" in page


@pytest.mark.parametrize(
    ("name", "tone"),
    [("balanced", "good"), ("violated", "bad"), ("not provable", "warn"), ("dlq exceeded", "bad"), ("dlq", "warn")],
)
def test_the_verdict_has_its_colour_and_its_word(name: str, tone: str) -> None:
    page = to_html(ALL[name])
    assert f'class="verdict {tone}"' in page
    assert Page(page).said("title")[0].endswith("· Bartleby")


def test_every_row_is_there() -> None:
    found = Page(to_html(ledger(queues=500)))
    assert sum(text.startswith("tenant-") and text.endswith(".incoming") for text in found.said("td")) == 493


@pytest.mark.parametrize(("queues", "long"), [(LONG, False), (LONG + 1, True)])
def test_long_tables_scroll(queues: int, long: bool) -> None:
    assert ('class="scroll long"' in to_html(ledger(queues=queues))) is long


def test_columns_that_are_0_are_named_below_a_wide_table_only() -> None:
    assert "0 in every row: opening, replaced" in to_html(ledger())
    assert "0 in every row" not in to_html(empty())
    assert "0 in every row" not in to_html(trace())


def test_an_empty_section_says_so() -> None:
    page = to_html(empty())
    assert "none" in Page(page).said("p")
    assert "<figure" not in page


@pytest.mark.parametrize("name", ["dlq", "hostile"])
def test_charts_are_drawn_in_the_colours_of_the_page(name: str) -> None:
    found = Page(to_html(ALL[name]))
    assert found.all("figure")
    drawn = {attributes["class"] for attributes in found.all("i") if attributes["class"] != "sign"}
    assert drawn == ({"s1", "s2"} if name == "dlq" else {"s1"})


def test_a_result_without_figures_or_sections_is_a_page() -> None:
    page = to_html(Result("trace", ALL["trace"].coverage, {}, ()))
    assert Page(page).said("h1") == ["Trace"]
