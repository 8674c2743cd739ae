"""The zip for executors: what is in it, that it is enough, and that `make pyfiles` makes it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

import pytest

from spark_jobs import pyfiles

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zip."""
    target = tmp_path_factory.mktemp("dist") / "bartleby-audit.zip"
    pyfiles.write(target)
    return target


def test_all_of_the_audits_and_the_store_and_nothing_else(archive: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        names = opened.namelist()
        assert opened.testzip() is None
    wanted = {p.relative_to(ROOT).as_posix() for room in ("spark_jobs", "store") for p in (ROOT / room).rglob("*.py")}
    wanted |= {"spark_jobs/log4j2.properties", "spark_jobs/py.typed", "store/py.typed"}
    wanted |= {"spark_jobs/report/page.html", "spark_jobs/report/style.css"}
    assert {"spark_jobs/source.py", "spark_jobs/journal/decode.py", "store/segment.py"} <= wanted
    assert set(names) == wanted
    assert names == sorted(names)


def test_the_same_code_gives_the_same_bytes(archive: Path, tmp_path: Path) -> None:
    pyfiles.write(tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()


def test_it_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "audit.zip"
    target.write_bytes(b"the one before")

    def fails(self: zipfile.ZipFile, *_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", fails)
    with pytest.raises(OSError, match="no space"):
        pyfiles.write(target)
    assert [path.name for path in tmp_path.iterdir()] == ["audit.zip"]
    assert target.read_bytes() == b"the one before"


def test_an_executor_needs_nothing_else_of_ours(archive: Path) -> None:
    """In an interpreter that sees the zip and what pip installed, but neither the sources nor a broker."""
    script = (
        "import sys\n"
        f"sys.path[:0] = [{str(archive)!r}]\n"
        "import spark_jobs.source, spark_jobs.stream\n"
        "from spark_jobs import pyfiles\n"
        "assert pyfiles.shipped()\n"
        "ours = {name.split('.')[0]: module for name, module in sys.modules.items() if name.split('.')[0] in "
        "('broker', 'protocols', 'spark_jobs', 'store')}\n"
        f"assert set(ours) == {{'spark_jobs', 'store'}}, ours\n"
        "assert 'rich' not in sys.modules and 'click' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_driver_has_the_template_of_the_reports_in_it(archive: Path) -> None:
    script = (
        "import sys\n"
        f"sys.path[:0] = [{str(archive)!r}]\n"
        "from spark_jobs.report.page import to_html\n"
        "from spark_jobs.results import Coverage, Result\n"
        "sys.stdout.write(to_html(Result('trace', Coverage('ab', ('/d',), 1, 64, 1, 1, 0, 0), {}, ())))\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("<!DOCTYPE html>"), done.stderr


def test_the_code_here_is_not_from_a_zip() -> None:
    assert not pyfiles.shipped()


def test_the_command(tmp_path: Path, archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pyfiles.main([str(tmp_path / "dist" / "audit.zip")]) == 0
    assert (tmp_path / "dist" / "audit.zip").read_bytes() == archive.read_bytes()
    assert pyfiles.main([]) == 2
    assert capsys.readouterr() == ("", "usage: python -m spark_jobs.pyfiles FILE.zip\n")


def test_make_pyfiles() -> None:
    done = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "pyfiles"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1].endswith("python -m spark_jobs.pyfiles dist/bartleby-audit.zip")
