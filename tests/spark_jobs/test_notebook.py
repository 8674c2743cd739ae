"""docs/notebook.md: everything on the page runs, and does what the page says."""

from __future__ import annotations

import atexit
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from spark_jobs.source import register
from tests.spark_jobs.journals import Growing, row_positions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE: Final = (Path(__file__).parents[2] / "docs" / "notebook.md").read_text()


def code(section: str) -> list[str]:
    """The Python of a section, block by block."""
    [text] = [text for text in PAGE.split("\n## ") if text.startswith(f"{section}\n")]
    return [str(block) for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]


class Notebook:
    """What a reader does: name the own journal and the own books, and run one block after the other."""

    def __init__(self, spark: SparkSession, data: Path, books: Path) -> None:
        self.names: dict[str, Any] = {"spark": spark, "__name__": "notebook"}
        self._own = {"/var/lib/bartleby": str(data), "/srv/books": str(books)}

    def run(self, *blocks: str) -> None:
        for block in blocks:
            for theirs, own in self._own.items():
                block = block.replace(theirs, own)
            exec(compile(block, "docs/notebook.md", "exec"), self.names)


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    """A journal in which things have happened."""
    growing = Growing(tmp_path / "data", seed=11)
    growing.run(40)
    growing.show()
    return growing


@pytest.fixture
def letters(spark: SparkSession, lived: Path, tmp_path: Path) -> Notebook:
    """A notebook about the journal of a broker's small life."""
    return Notebook(spark, lived, tmp_path / "none")


@pytest.fixture
def notebook(spark: SparkSession, growing: Growing, tmp_path: Path) -> Notebook:
    """A notebook about a journal that grows."""
    (tmp_path / "books").mkdir()
    return Notebook(spark, growing.data, tmp_path / "books")


def positions(table: pa.Table) -> list[int]:
    """The positions in a table, in order."""
    return sorted(table["position"].to_pylist())


def test_every_section_with_python_is_tested_here() -> None:
    sections = {text.split("\n")[0] for text in PAGE.split("\n## ") if "```python" in text}
    tested = set(re.findall(r'code\("([^"]+)"\)', Path(__file__).read_text()))
    assert sections == tested


def test_five_lines_to_the_dead_letters(
    letters: Notebook, spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[Any] = []
    monkeypatch.setattr(atexit, "register", ends.append)
    [lines] = code("Dead letters in a DataFrame")
    assert len([line for line in lines.splitlines() if line]) == 4
    letters.run(lines)
    assert "max-deliveries" in capsys.readouterr().out
    assert letters.names["spark"] is spark
    [end] = ends
    end()
    assert spark.range(3).count() == 3, "a session that was there is left running"


def test_own_questions(letters: Notebook, capsys: pytest.CaptureFixture[str]) -> None:
    letters.run(*code("Dead letters in a DataFrame"))
    capsys.readouterr()
    letters.run(*code("Your own questions"))
    shown = capsys.readouterr().out
    assert re.search(r"max-deliveries *\| *\d", shown)
    assert re.search(r"\|messages\|median\(ms\)\|max\(ms\)\|\n(.*\n)+\|.*\| +\d+\| +\d", shown)


def test_a_session_of_ones_own(letters: Notebook, spark: SparkSession) -> None:
    letters.run(*code("In a session of your own"))
    assert letters.names["register"] is register


def test_books_in_parquet(
    notebook: Notebook, growing: Growing, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    nightly, years = code("Books: every night into Parquet")
    books = Path(notebook._own["/srv/books"]) / "records"
    for _ in range(2):
        notebook.run(nightly)
        assert positions(spark.read.parquet(str(books)).toArrow()) == row_positions(growing.data)
        growing.run(10)
        growing.show()
    notebook.run(nightly, nightly)
    assert positions(spark.read.parquet(str(books)).toArrow()) == row_positions(growing.data)
    capsys.readouterr()
    notebook.run(years)
    assert "rejected" in capsys.readouterr().out


def _nights(notebook: Notebook, growing: Growing, nightly: str, checkpoint: str) -> None:
    """Three nights; before the last the checkpoint is as it was a commit earlier, as if the power had failed."""
    notebook.run(nightly)
    growing.run(10)
    growing.show()
    notebook.run(nightly)
    commits = Path(notebook._own["/srv/books"]) / checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for path in commits.glob(f"*{last}*"):
        path.unlink()
    notebook.run(nightly)


def test_books_in_delta(notebook: Notebook, growing: Growing) -> None:
    deltalake = pytest.importorskip("deltalake", reason="pip install deltalake")
    [nightly] = code("Delta Lake")
    _nights(notebook, growing, nightly, "delta-checkpoint")
    table = deltalake.DeltaTable(notebook._own["/srv/books"] + "/delta")
    assert positions(pa.table(table.to_pyarrow_table())) == row_positions(growing.data)


def test_books_in_iceberg(notebook: Notebook, growing: Growing) -> None:
    pytest.importorskip("pyiceberg.catalog.sql", reason="pip install 'pyiceberg[sql-sqlite]'")
    [nightly] = code("Iceberg")
    _nights(notebook, growing, nightly, "iceberg-checkpoint")
    table = notebook.names["catalog"].load_table("bartleby.records")
    assert positions(table.scan().to_arrow()) == row_positions(growing.data)
