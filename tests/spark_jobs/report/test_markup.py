"""HTML as a tree: texts stay texts, wherever they stand."""

from __future__ import annotations

from spark_jobs.report.markup import element, page


def test_texts_and_elements_in_their_order() -> None:
    made = element("p", "a", element("b", "<c>"), "d", "&", None, element("br"), "e")
    assert page(made) == "<!DOCTYPE html>\n<p>a<b>&lt;c&gt;</b>d&amp;<br>e</p>\n"


def test_attributes() -> None:
    made = element("td", class_="number", aria_label='"quoted" <&>')
    assert page(made).splitlines()[1] == '<td class="number" aria-label="&quot;quoted&quot; <&amp;&gt;"></td>'


def test_text_before_and_behind() -> None:
    assert page(element("p", element("b"), "x", "y")).splitlines()[1] == "<p><b></b>xy</p>"
