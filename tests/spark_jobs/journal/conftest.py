"""Data directories that tests may change, also while they are looked at."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_jobs.journal import files
from tests.spark_jobs.journal.disks import kept, live, truth, write
from tests.spark_jobs.journals import Growing

#: What is to happen before a function of `files` is called, by its name: it gets the same arguments.
Before = Callable[[str, Callable[..., object]], None]


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with every segment that ever was, live ones among the kept ones; not to be changed."""
    data = write(tmp_path_factory.mktemp("original") / "data").data
    assert all(known.records for known in truth(data).values())
    assert len(kept(data)) > 10
    assert len(live(data)) > 3
    assert min(live(data)) < max(kept(data))
    return data


@pytest.fixture
def data(original: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(original, tmp_path / "data"))


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    """Another one, whose broker goes on."""
    return write(tmp_path / "data")


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> Before:
    """Lets something happen, or fail, before each call of a function of `files`."""

    def install(name: str, act: Callable[..., object]) -> None:
        real = getattr(files, name)

        def acting(*args: object) -> object:
            act(*args)
            return real(*args)

        monkeypatch.setattr(files, name, acting)

    return install
