"""Spark on a journal in an object store: S3, as moto's server on loopback speaks it; its workers open it themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import boto3
import pytest
from moto.server import ThreadedMotoServer

from spark_jobs.source import NAME
from tests.spark_jobs.journals import Growing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET: Final = "archive"
REGION: Final = "eu-west-1"


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Growing:
    """A journal on this machine."""
    growing = Growing(tmp_path_factory.mktemp("data"), seed=33)
    growing.run(60)
    growing.show()
    return growing


@pytest.fixture(scope="module")
def place(journal: Growing) -> Iterator[str]:
    """The URI of its copy in a bucket; credentials are in the environment of Spark's workers."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    bucket = f"{BUCKET}-{port}"  # all servers of a process share what is in them
    client = boto3.client(
        "s3",
        region_name=REGION,
        endpoint_url=f"http://{host}:{port}",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    for path in journal.data.rglob("*"):
        if path.is_file():
            client.put_object(Bucket=bucket, Key=str(path.relative_to(journal.data)), Body=path.read_bytes())
    yield f"s3://{bucket}/{{}}?scheme=http&endpoint_override={host}:{port}&region={REGION}"
    client.close()
    server.stop()


def _rows(spark: SparkSession, view: str, place: str) -> list[str]:
    frame = spark.read.format(NAME).options(view=view, targetBytes="40k").load(place)
    assert frame.rdd.getNumPartitions() > 1
    return sorted(str(row) for row in frame.drop("path").toArrow().to_pylist())


@pytest.mark.parametrize(("view", "least"), [("records", 50), ("segments", 15)])
def test_its_rows_are_those_of_the_same_journal_on_a_disk(
    spark: SparkSession, journal: Growing, place: str, view: str, least: int
) -> None:
    found = _rows(spark, view, place.format("journal"))
    assert found == _rows(spark, view, str(journal.data))
    assert len(found) > least
