"""Files are there as a whole or not at all."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import BinaryIO

import pytest

from spark_jobs.report.output import check_target, write_file, write_text


def test_a_file_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_text(path, "old")
    write_text(path, "grün")
    assert path.read_bytes() == "grün".encode()
    assert list(tmp_path.iterdir()) == [path]


def test_where_writing_fails_the_old_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_text(path, "old")

    def fail(file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_file(path, fail)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_target_that_can_be_written(tmp_path: Path) -> None:
    check_target(tmp_path / "report.html", directory=False)
    check_target(tmp_path / "new" / "report", directory=True)
    assert list(tmp_path.iterdir()) == [tmp_path / "new"]


@pytest.mark.parametrize(
    ("name", "directory", "error"),
    [
        ("missing/report.html", False, FileNotFoundError),
        ("file/report.html", False, FileNotFoundError),
        ("directory", False, IsADirectoryError),
        ("file", True, FileExistsError),
        ("file/report", True, NotADirectoryError),
    ],
)
def test_a_target_that_cannot(name: str, directory: bool, error: type[OSError], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "directory").mkdir()
    with pytest.raises(error) as refused:
        check_target(tmp_path / name, directory=directory)
    assert refused.value.filename
    assert refused.value.strerror


@pytest.mark.parametrize("directory", [False, True])
def test_where_nothing_may_be_written(directory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.report.output.os.access", lambda path, mode: False)
    with pytest.raises(PermissionError, match="is not writable"):
        check_target(tmp_path / "report", directory=directory)
