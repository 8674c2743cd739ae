"""What only an audit has read does not stay in the page cache; what was there before does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_jobs.journal import files, page_cache

SIZE = 4 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def handle(tmp_path: Path) -> Iterator[int]:
    """A file on disk, no page of which is in memory."""
    path = tmp_path / "segment"
    path.write_bytes(os.urandom(SIZE + 1))
    opened = os.open(path, os.O_RDONLY)
    os.fsync(opened)
    os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
    os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_RANDOM)  # a page at a time
    if page_cache.absent(opened) != [(0, SIZE + PAGE)]:
        os.close(opened)
        pytest.skip("this file system has all files in memory")
    yield opened
    os.close(opened)


def test_what_is_absent(handle: int) -> None:
    os.pread(handle, 1, 3 * PAGE)
    os.pread(handle, PAGE + 1, 7 * PAGE)
    assert page_cache.absent(handle) == [(0, 3 * PAGE), (4 * PAGE, 3 * PAGE), (9 * PAGE, SIZE - 8 * PAGE)]


def test_what_is_dropped(handle: int) -> None:
    os.pread(handle, 10 * PAGE, 0)
    page_cache.drop(handle, [(0, 2 * PAGE), (5 * PAGE, PAGE)])
    assert page_cache.absent(handle)[:2] == [(0, 2 * PAGE), (5 * PAGE, PAGE)]


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    with path.open("rb") as file:
        assert page_cache.absent(file.fileno()) == []


@pytest.mark.parametrize("nbytes", [None, 100, SIZE // 2])
def test_reading_leaves_it_as_it_was(handle: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nbytes: int) -> None:
    path = tmp_path / "segment"
    os.pread(handle, 1, 9 * PAGE)
    before = page_cache.absent(handle)
    monkeypatch.setattr(files, "gives_way", lambda: True)
    data = files.read(str(path), nbytes)
    assert page_cache.absent(handle) == before
    monkeypatch.setattr(files, "gives_way", lambda: False)
    assert files.read(str(path), nbytes) == data
    assert len(data) == (nbytes or SIZE + 1)
    assert page_cache.absent(handle) != before


def test_without_mincore_nothing_is_dropped(handle: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "_libc", object())
    assert page_cache.absent(handle) == []
