"""Partitions as small as they can be."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, DataFrameReader


@pytest.fixture
def scattered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every segment is a partition of its own, so that what belongs together has to be brought together."""
    load = DataFrameReader.load

    def load_scattered(reader: DataFrameReader, *args: Any, **options: Any) -> DataFrame:
        return load(reader.option("targetBytes", "1k"), *args, **options)

    monkeypatch.setattr(DataFrameReader, "load", load_scattered)
