"""Journals that several audits read, and partitions as small as they can be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, DataFrameReader

from tests.spark_jobs.audits import journals


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A generated journal of some segments; nobody changes it."""
    directory = tmp_path_factory.mktemp("generated")
    journals.generated(directory, records=6_000)
    return directory


@pytest.fixture(scope="session")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of a broker's small life; nobody changes it."""
    directory = tmp_path_factory.mktemp("lived")
    journals.lived(directory)
    return directory


@pytest.fixture
def scattered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every segment is a partition of its own, so that what belongs together has to be brought together."""
    load = DataFrameReader.load

    def load_scattered(reader: DataFrameReader, *args: Any, **options: Any) -> DataFrame:
        return load(reader.option("targetBytes", "1k"), *args, **options)

    monkeypatch.setattr(DataFrameReader, "load", load_scattered)
