"""The Python in docs/audits.md does what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from spark_jobs.journal.schema import RECORDS
from spark_jobs.report.machine import document
from spark_jobs.results import ExitStatus
from spark_jobs.source_options import _BATCH, _STREAM, VIEWS
from tests.spark_jobs.report import samples

PAGE: Final = (Path(__file__).parents[2] / "docs" / "audits.md").read_text()


def example(nearby: str) -> str:
    """The Python in which this occurs."""
    (found,) = [code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if nearby in code]
    return str(found)


def run(code: str, journal: Path) -> None:
    """What a reader would do: name the own journal."""
    assert "/var/lib/bartleby" in code
    exec(compile(code.replace("/var/lib/bartleby", str(journal)), "docs/audits.md", "exec"), {"__name__": "example"})


def test_duckdb_on_the_decoder(lived: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(example("duckdb"), lived)
    shown = capsys.readouterr().out
    assert "max-deliveries" in shown
    assert re.search(r"orders\s*│ rejected\s*│\s*\d", shown)


@pytest.mark.usefixtures("spark")
def test_a_question_with_spark(lived: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(example("my question"), lived)
    assert re.search(r"orders\s*\|\s*dead-lettered\s*\|\s*\d", capsys.readouterr().out)


@pytest.mark.usefixtures("spark")
def test_the_live_feed(lived: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = example("readStream").replace("/var/lib/audits", str(tmp_path))
    run(code.replace(".start()", ".trigger(availableNow=True).start()"), lived)
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 9
    assert sum("max-deliveries" in line for line in told) == 5


def test_the_options_of_the_source_are_all_there() -> None:
    _, after = PAGE.split("### With Spark")
    documented = {name.lower() for name in re.findall(r"`([a-zA-Z]+)`", after)}
    possible = {option for options in (*_BATCH.values(), _STREAM) for option in options}
    assert possible <= documented
    assert set(VIEWS) <= documented
    assert "body_hash" in RECORDS


def test_the_statuses_are_all_there() -> None:
    section = PAGE.split("### Exit statuses")[1].split("###")[0]
    assert {int(number) for number in re.findall(r"^\| (\d) \|", section, re.M)} == set(map(int, ExitStatus))


def test_the_document_has_what_it_should() -> None:
    shown = re.findall(r'^ {2,4}"(\w+)"|, "(\w+)"', PAGE.split("```json")[1].split("```")[0], re.M)
    named = {one or other for one, other in shown}
    assert {*document(samples.ledger()), *document(samples.ledger())["coverage"]} <= named


def test_the_links_lead_somewhere() -> None:
    def anchor(heading: str) -> str:
        return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")

    docs = Path(__file__).parents[2] / "docs"
    for page, fragment in re.findall(r"\]\(([\w.-]*)(?:#([\w-]+))?\)", PAGE):
        text = (docs / page).read_text() if page else PAGE
        headings = {anchor(heading) for heading in re.findall(r"^#+ (.*)$", text, re.M)}
        assert not fragment or fragment in headings, (page, fragment)
